"""An API server, kubelets and traces in memory, for tests and the demonstration."""

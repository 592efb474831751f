"""Job kinds as pure reconcilers behind one shared lifecycle."""

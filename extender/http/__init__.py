"""What kube-scheduler and people ask over HTTP: verbs, debug answers, the page."""

"""Metrics, Kubernetes events and the log."""

"""Muster: places a whole training job at once through an unmodified kube-scheduler, or not at all."""

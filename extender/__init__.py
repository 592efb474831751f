"""Muster: places a whole training job at once through an unmodified kube-scheduler, or not at all."""

#: As in pyproject.toml.
__version__ = "0.1.0"

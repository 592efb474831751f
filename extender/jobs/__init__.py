"""Job kinds as pure reconcilers behind one shared lifecycle."""

from extender.core.framework import JobKind
from extender.jobs.pytorch import PyTorchJob

#: Every kind that Muster runs; a new one is one file and one line here.
KINDS: tuple[JobKind, ...] = (PyTorchJob(),)

"""Job kinds as pure reconcilers behind one shared lifecycle."""

from extender.core.framework import JobKind
from extender.jobs.jax import JAXJob
from extender.jobs.mpi_v1 import OldMPIJob
from extender.jobs.mpi_v2 import MPIJob
from extender.jobs.paddle import PaddleJob
from extender.jobs.pytorch import PyTorchJob
from extender.jobs.tensorflow import TFJob
from extender.jobs.xgboost import XGBoostJob

#: Every kind that Muster runs; a new one is one file and one line here.
KINDS: tuple[JobKind, ...] = (
    PyTorchJob(),
    TFJob(),
    XGBoostJob(),
    JAXJob(),
    PaddleJob(),
    MPIJob(),
    OldMPIJob(),
)

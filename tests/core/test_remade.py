"""A job that is deleted and made again under its name, before anybody has removed the pods of the first."""

from __future__ import annotations

from extender.core.api import PYTORCH_JOBS
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_the_second_runs_as_soon_as_its_names_are_free() -> None:
    """kubeflow/trainer#1306: the operator waited until what it expected of the first had expired."""
    m = Machine()
    do.nodes(m, 2)
    do.job(m, "train", 2)
    m.rest(10)
    first = {pod["metadata"]["uid"] for pod in m.api.pods()}
    assert len(m.bound("train")) == len(first) == 2

    m.api.remove((PYTORCH_JOBS, "default", "train"))
    do.job(m, "train", 2)
    m.rest(5)
    assert len(m.bound("train")) == 2
    assert not first & {pod["metadata"]["uid"] for pod in m.api.pods()}
    m.finish()

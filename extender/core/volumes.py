"""Where the volumes behind a pod's claims can be used (VolumeBinding, for bound claims)."""

from __future__ import annotations

import numpy as np

from extender.core.fit import any_term
from extender.core.framework import BoolArray
from extender.core.nodes import NodeView
from extender.core.shape import PodShape
from extender.core.storage import StorageView


def reachable(view: NodeView, storage: StorageView, shape: PodShape) -> list[tuple[str, BoolArray]]:
    """Per claim, the rows from which it can be used. Shape: (rows,) each."""
    found = []
    for claim in shape.claims:
        affinity = storage.affinity(shape.namespace, claim)
        if isinstance(affinity, bool):
            mask = np.full(view.rows, affinity, np.bool_)
        else:
            mask = any_term(view, affinity)
        found.append((claim, mask))
    return found

"""numaaware: where the kubelet would give a pod devices that are near to each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extender.core.alignment import Alignment
from extender.core.framework import Arguments, FloatArray
from extender.core.places import Place
from extender.core.taken import links_of
from extender.core.topology import equipment
from extender.core.topology.catalogue import COUNT_LABEL, PRODUCT_LABEL
from extender.core.topology.equipment import GPU
from extender.core.topology.kubelet import Devices, admit
from extender.core.topology.kubelet_take import of_zones

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

MAX_SCORE = 100.0
#: Of a node that does not tell its zones: neither good nor bad.
UNKNOWN = 0.5
#: The part of what is not broken into in the score; the rest is bandwidth.
WHOLE = 0.25


class NumaAware:
    """Volcano's ``numaaware``: a score for what the device plugin and Topology Manager would choose.

    Three quarters are the predicted all-reduce bandwidth of the devices that the pod would get, over
    that of the best node; one quarter is for NUMA nodes that stay idle or are taken whole, so that
    small pods go where one is broken into already. A node whose zones are not told gets half of everything; so does the
    bandwidth of devices whose links are not known, or of one device, which has nothing to send.

    Which nodes would refuse the pod is decided before, without this plugin. Volcano's own reads a
    Numatopology object of its agent and counts NUMA nodes; this reads NodeResourceTopology.
    """

    name: ClassVar[str] = "numaaware"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {
        "weight": 1,
        "numaaware.resource": "nvidia.com/gpu",
    }

    def __init__(self, arguments: Arguments) -> None:
        """``arguments`` as above."""
        self.weight = float(arguments["weight"])
        self.resource = str(arguments["numaaware.resource"])

    def score(self, view: Snapshot, task: PodShape) -> FloatArray:
        """0..100 times the weight; 0 everywhere where no node tells zones. Shape: (rows,)."""
        known = view.zones
        if known is None or not task.aligned:
            return np.zeros(view.rows)
        product, count = view.view.column(PRODUCT_LABEL), view.view.column(COUNT_LABEL)
        # Code -1, a label that is missing, is the last.
        products, counts = (*product.values, ""), (*count.values, "")
        keys = np.stack([known.codes, product.codes, count.codes])
        classes, at = np.unique(keys, axis=1, return_inverse=True)
        outcomes = [
            (UNKNOWN, UNKNOWN)
            if code < 0
            else _outcome(known.place(code), task.aligned, self.resource, products[p], counts[c])
            for code, p, c in classes.T.tolist()
        ]
        bandwidth, whole = np.array(outcomes).T
        best = bandwidth[bandwidth > 1].max(initial=1.0)
        share = np.where(bandwidth > 1, bandwidth / best, UNKNOWN)
        score = (1 - WHOLE) * share + WHOLE * whole
        return np.asarray(score[at.reshape(-1)] * MAX_SCORE * self.weight)


@lru_cache(maxsize=4096)
def _outcome(
    place: Place, pod: Alignment, resource: str, product: str, count: str
) -> tuple[float, float]:
    """GB/s of the devices that the pod would get (0: not known), and 1 / (1 + idle NUMA nodes of
    which it takes a part). (0, 0) where it is refused.
    """
    links = links_of(place, product, count) if resource == GPU else ""
    model = equipment.model(links) if links and place.trusted else None
    devices = dict(place.stock.devices).get(resource)
    prefer = {resource: equipment.prefer(links)}
    verdict = admit(place.kubelet, place.stock, pod, prefer)
    if verdict.reason:
        return 0.0, 0.0
    mask = verdict.devices.get(resource, 0)
    gbs = 0.0 if model is None else float(model.bandwidth[mask])
    broken = 0 if devices is None else _broken(devices, mask)
    return gbs, 1 / (1 + broken)


def _broken(devices: Devices, taken: int) -> int:
    """Zones whose devices were all free, some of which are taken and some not."""
    zones_of = (of_zones(devices.zones, zone) for zone in set(devices.zones) if zone)
    return sum(not own & ~devices.free and 0 < own & taken < own for own in zones_of)

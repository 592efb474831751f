"""/prioritize of many names: CPU time from the body's bytes to the answer's, in this process.

``planned`` is a member whose node is planned; ``plain`` a pod of no group that asks for GPUs on nodes
whose agents tell who holds what (64 different ways). CPU time: nothing here waits, so that what
else runs on the machine has little say.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

from extender.core.answers import MAX_SCORE, StateView
from extender.core.coordinator import Coordinator
from extender.core.events import NodeSeen, PodSeen
from extender.core.state import Rules
from extender.core.topology import annotation, catalogue, devices
from extender.core.topology.devices import Devices
from extender.http import wire
from extender.settings import Settings
from tests.builders import GPU, node, pod

HELP = "milliseconds of /prioritize for many names"
PRODUCT = "NVIDIA-H100-NVL"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--requests", type=int, default=1_000)


def run(args: argparse.Namespace) -> dict[str, Any]:
    core = Coordinator(Rules(), Settings().session(), {})
    shape = catalogue.shape(PRODUCT, 8)
    assert shape is not None
    links = annotation.encode(shape.topology)
    rng = random.Random(1)
    ways = [[at for at in range(8) if rng.random() < 0.5] for _ in range(64)]
    names = [f"node-{at}" for at in range(args.nodes)]
    for at, name in enumerate(names):
        made, busy = node(name, gpus=8), ways[at % len(ways)]
        told = {annotation.KEY: links, devices.KEY: _devices(name, busy)}
        made.metadata.annotations.update(told)
        core.apply(NodeSeen(made), 1.0)
        if busy:
            core.apply(PodSeen(pod(f"on-{name}", node=name, gpus=len(busy))), 1.0)
    view = StateView(core.state, lambda: True)
    bodies = {gpus: _body(gpus, names) for gpus in (0, 1, 2, 4)}
    return {
        "nodes": args.nodes,
        "requests": args.requests,
        "no_gpus_ms": _times(view, [bodies[0]], args.requests),
        "gpus_ms": _times(view, [bodies[1], bodies[2], bodies[4]], args.requests),
        "most": MAX_SCORE,
    }


def _times(view: StateView, bodies: list[bytes], requests: int) -> dict[str, float]:
    took = []
    for at in range(requests):
        began = time.process_time()
        args = wire.read(bodies[at % len(bodies)], wire.ExtenderArgs)
        names = args.names()
        wire.prioritize_answer(names, view.prioritize(args.pod, names))
        took.append(time.process_time() - began)
    took.sort()
    return {
        "p50": round(took[len(took) // 2] * 1e3, 2),
        "p99": round(took[len(took) * 99 // 100] * 1e3, 2),
    }


def _body(gpus: int, names: list[str]) -> bytes:
    made = pod("plain", gpus=gpus)
    spec = {"schedulerName": "muster", "containers": [
        {"name": "main", "resources": {"limits": {GPU: str(gpus)} if gpus else {}}}
    ]}  # fmt: skip
    meta = {"name": made.metadata.name, "namespace": "default", "uid": "plain"}
    return json.dumps(
        {"Pod": {"metadata": meta, "spec": spec}, "Nodes": None, "NodeNames": names}
    ).encode()


def _devices(name: str, busy: list[int]) -> str:
    held = tuple((f"default/on-{name}",) if at in busy else () for at in range(8))
    return devices.encode(Devices(("",) * 8, ("ok",) * 8, held, (None,) * 8))

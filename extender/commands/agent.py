"""``muster agent``: publishes a node's devices on its Node; runs on each node that has some."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from extender.commands.common import MISUSE, NO, OK, answer, json_flag, no, say

if TYPE_CHECKING:
    from extender.agent.assemble import Node
    from extender.settings import Agent

HELP = "publish this node's GPUs, their links, health and holders on its Node"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="muster.yaml; its defaults without it")
    parser.add_argument("--node", metavar="NAME", help="the Node to write; $NODE_NAME without it")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the pod's own account without it")
    parser.add_argument(
        "--once", action="store_true", help="print what would be published, and end"
    )
    parser.add_argument(
        "--health-port",
        type=int,
        choices=range(1, 65_536),
        metavar="PORT",
        help="answer /healthz here: 503 while a call to the driver or the kernel does not return",
    )
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    import asyncio
    import os

    import pynvml

    from extender import settings
    from extender.agent.run import until_told
    from extender.core.errors import ConfigError
    from extender.kube import credentials
    from extender.obs import log

    try:
        given = (settings.load(args.config) if args.config else settings.Settings()).muster
        if args.once:
            return _once(args, given.agent, pynvml)
        node = args.node or os.environ.get("NODE_NAME")
        if not node:
            raise ConfigError("--node: is missing, and so is NODE_NAME: the name of this Node")
        log.configure(args.log_format, args.log_level)
        where = credentials.find(args.kubeconfig or given.kubeconfig)
        asyncio.run(until_told(given.agent, node, where, pynvml, args.health_port))
    except ConfigError as error:
        say("agent", error)
        return MISUSE
    except OSError as error:
        # A port is taken.
        return no(args, "agent", error.strerror or error)
    if args.json:
        answer({"stopped": True})
    return OK


def _once(args: argparse.Namespace, given: Agent, nvml: Any) -> int:
    from extender.agent.lacks import Lacks
    from extender.agent.run import Reader
    from extender.obs.metrics import Metrics

    lacks = Lacks(Metrics())
    reader = Reader(given, nvml, lacks)
    try:
        found = reader.read()
    finally:
        reader.close()
    missing = lacks.listed()
    if args.json:
        answer(document(found) | {"lacks": missing})
        return OK if found is not None else NO
    for lack in missing:
        say("agent", f"{lack['source']}: {lack['field']} is not known: {lack['why']}")
    if found is None:
        return NO
    for gpu in document(found)["devices"]:
        numa = "-" if gpu["numa"] is None else gpu["numa"]
        held = "?" if gpu["held"] is None else " ".join(gpu["held"]) or "nobody"
        print(f"GPU{gpu['index']:<4} {gpu['bus']} numa {numa:<3} {gpu['health']:<9} held by {held}")
    for key, text in found.annotations().items():
        print(f"{key}: {text}")
    return OK


def document(found: Node | None) -> dict[str, Any]:
    """The answer of ``--once --json``; figures that change all the time are in ``devices`` alone."""
    from extender.core.topology.model import NO_ZONE

    if found is None:
        return {"annotations": {}, "devices": [], "clique": None}
    rows = []
    for i, gpu in enumerate(found.gpus):
        held, numa = found.devices.held[i], int(found.topology.numa[i])
        rows.append(
            {
                "index": gpu.index,
                "bus": gpu.bus,
                "uuid": gpu.uuid or None,
                "numa": None if numa == NO_ZONE else numa,
                "health": found.devices.health[i],
                "held": None if held is None else list(held),
                "memory_total": gpu.memory_total,
                "memory_used": gpu.memory_used,
                "utilisation": gpu.utilisation,
                "mig": list(gpu.parts),
            }
        )
    return {
        "annotations": found.annotations(),
        "devices": rows,
        "clique": found.devices.clique or None,
    }

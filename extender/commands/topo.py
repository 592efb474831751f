"""``muster topo``: what a dump of a node's links says, and which devices a job would get."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from extender.commands import service
from extender.commands.common import MISUSE, NO, OK, answer, json_flag, no, say

if TYPE_CHECKING:
    from extender.core.topology import Reading
    from extender.core.topology.bandwidth import NodeModel
    from extender.core.topology.choice import Choices, Chosen

HELP = "read a node's links and say which devices a job would get"
_FILE = (
    "output of `nvidia-smi topo -m`, `rocm-smi --showtopo`, `amd-smi topology`, or of `kubectl get -o json`"
    " (or yaml) of a Node or a NodeResourceTopology; - is standard input"
)
_PRODUCT = "the GPUs' product, as GFD labels it; guessed from the links without it"


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    for name, about in (
        ("parse", "what the file says, and what of it cannot be read"),
        ("show", "draw the links and what they carry"),
        ("place", "choose devices, and say what the choice gives and breaks"),
    ):
        command = kinds.add_parser(name, help=about, description=about)
        command.add_argument("file", metavar="FILE|NODE", help=_FILE)
        command.add_argument("--url", help="a NODE, as the running service there knows it")
        service.arguments(command)
        command.add_argument("--product", default="", metavar="NAME", help=_PRODUCT)
        if name == "place":
            command.add_argument("--gpus", type=int, required=True, metavar="K", help="how many")
            command.add_argument(
                "--busy",
                metavar="0,3",
                help="GPUs that are taken (of a Node: those that are held or do not work)",
            )
        json_flag(command)


def run(args: argparse.Namespace) -> int:
    from extender.core.errors import MusterError, NoAnswer
    from extender.core.topology.products import named

    try:
        reading, busy = _of_service(args) if args.url is not None else _of_file(args)
        if args.product and named(args.product) is None:
            say(
                "topo",
                f"--product: {args.product!r} is not known; speeds are guessed from the links",
            )
        if args.what == "parse":
            return _parse(args, reading)
        from extender.core.topology.bandwidth import model_of

        for warning in reading.warnings:
            say("topo", f"{args.file}: {warning}")
        model = model_of(reading.topology)
        return (
            _show(args, reading, model, busy) if args.what == "show" else _place(args, model, busy)
        )
    except NoAnswer as error:
        return no(args, "topo", error)
    except MusterError as error:
        say("topo", f"{args.file}: {error}")
        return MISUSE


def _of_file(args: argparse.Namespace) -> tuple[Reading, dict[int, str]]:
    from extender.core.errors import ConfigError
    from extender.core.topology import read
    from extender.core.topology.published import read_object

    try:
        text = _text(args.file)
    except OSError as error:
        node = (
            isinstance(error, FileNotFoundError) and "/" not in args.file and args.what != "parse"
        )
        hint = "; of a Node, as the service knows it: --url" if node else ""
        raise ConfigError(f"{error.strerror}{hint}") from error
    if _is_object(text):
        return read_object(_object(args.file, text))
    return read(text, args.product), {}


def _of_service(args: argparse.Namespace) -> tuple[Reading, dict[int, str]]:
    """Of a node that a running service knows. Raises NoAnswer, ConfigError, InvalidObject."""
    from extender.core.errors import NoAnswer
    from extender.core.topology.published import read_shown

    service.reach(args)
    found = service.page(args, "/debug/nodes")
    nodes = found if isinstance(found, list) else []
    node = next((n for n in nodes if isinstance(n, dict) and n.get("name") == args.file), None)
    if node is None:
        raise NoAnswer(f"no node {args.file} is known at {args.url}")
    if "topology" not in node:
        raise NoAnswer(
            f"node {args.file}: what joins its GPUs is not known; `muster agent` tells it"
        )
    return read_shown(node)


def _text(file: str) -> str:
    import sys
    from pathlib import Path

    raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    # What PowerShell redirects into a file is UTF-16.
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    return raw.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def _is_object(text: str) -> bool:
    """Whether it is one of Kubernetes' objects, or an annotation. A record of a log, whose line breaks
    are spelt out, is none, nor is the JSON of a driver's tool.
    """
    from extender.core.topology import is_rocm

    if text.lstrip().startswith("{"):
        return '"kind"' in text or not ("\\n" in text or is_rocm(text))
    lines = text.splitlines()
    return all(any(line.startswith(field) for line in lines) for field in ("kind:", "apiVersion:"))


def _object(file: str, text: str) -> dict[str, Any]:
    """The first that says something of devices, else the first. Raises InvalidObject."""
    from extender.commands.checks.problem import Problem, documents_of
    from extender.core.errors import InvalidObject

    first: dict[str, Any] = {}
    for document in documents_of(text, file):
        if isinstance(document, Problem):
            raise InvalidObject("object", text[:40], f"JSON or YAML; it {document.message}")
        body = document.body if isinstance(document.body, dict) else {}
        if body.get("kind") in ("Node", "NodeResourceTopology"):
            return body
        first = first or body
    return first


def _document(reading: Reading) -> dict[str, Any]:
    from extender.core.topology import annotation
    from extender.core.topology.model import NO_ZONE, word_of

    known = reading.topology
    return {
        "gpus": [
            {
                "index": known.index[i],
                "numa": None if known.numa[i] == NO_ZONE else int(known.numa[i]),
                "cpus": known.cpus[i] or None,
                "numa_affinity": reading.affinity[i] or None,
                "memory_numa": reading.memory_nodes[i],
            }
            for i in range(len(known))
        ],
        "links": reading.words,
        "nics": [
            {"name": nic, "links": [word_of(int(code)) for code in known.nic_links[:, column]]}
            for column, nic in enumerate(known.nics)
        ],
        "annotation": annotation.encode(known),
        "warnings": reading.warnings,
    }


def _parse(args: argparse.Namespace, reading: Reading) -> int:
    document = _document(reading)
    if args.json:
        answer(document)
        return OK
    for gpu, words in zip(document["gpus"], reading.words, strict=True):
        numa, cpus = gpu["numa_affinity"] or "-", gpu["cpus"] or "-"
        print(f"GPU{gpu['index']:<4} numa {numa:<5} cpus {cpus:<24} {' '.join(words)}")
    for nic in document["nics"]:
        print(f"{nic['name']:<8} {' '.join(nic['links'])}")
    for warning in reading.warnings:
        say("topo", f"{args.file}: {warning}")
    return OK


def _show(
    args: argparse.Namespace, reading: Reading, model: NodeModel, busy: dict[int, str]
) -> int:
    document = _document(reading)
    for at, gpu in enumerate(document["gpus"]):
        gpu["busy"] = busy.get(at)
    document["pairs_gbs"] = [[round(float(hop), 1) for hop in row] for row in model.hop]
    document["switched"] = model.switched
    document["bandwidth_gbs"] = _number(float(model.bandwidth[-1]))
    if args.json:
        answer(document)
        return OK
    _draw(document, model, reading.topology.nics, busy)
    return OK


def _draw(
    document: dict[str, Any], model: NodeModel, nics: tuple[str, ...], busy: dict[int, str]
) -> None:
    """A column a GPU, so that eight of them and any number of ports are readable at 80 columns."""
    from rich.console import Console
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    names = [f"GPU{gpu['index']}" for gpu in document["gpus"]]
    table = Table(header_style="bold")
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(name, justify="center", no_wrap=True)
    for i, words in enumerate(document["links"]):
        table.add_row(names[i], *(_cell(word, model.hop[i, j]) for j, word in enumerate(words)))
    table.add_section()
    for nic, port in zip(nics, document["nics"], strict=True):
        table.add_row(escape(nic), *port["links"])
    table.add_section()
    table.add_row("NUMA", *(escape(gpu["numa_affinity"] or "-") for gpu in document["gpus"]))
    # Rows stay whole: a terminal that is too narrow scrolls, or the output goes to a file.
    console = Console()
    whole = Measurement.get(console, console.options.update(width=10_000), table).maximum
    console.width = max(console.width, whole)
    console.print(_title(model, document["bandwidth_gbs"]), highlight=False)
    console.print(table)
    for at, why in sorted(busy.items()):
        console.print(f"{names[at]}: {why}", highlight=False, markup=False)


def _title(model: NodeModel, bandwidth: float | None) -> str:
    kind = "NVSwitch" if model.switched else "direct links"
    return f"{len(model.topology)} GPUs, {kind}; all together {bandwidth or '-'} GB/s"


def _cell(word: str, gbs: float) -> str:
    if word == "X":
        return "[dim]·[/]"
    colour = "green" if word.startswith(("NV", "XGMI")) else "red" if word == "SYS" else "yellow"
    return f"[{colour}]{word}[/]\n[dim]{gbs:.0f}[/]"


def _place(args: argparse.Namespace, model: NodeModel, told: dict[int, str]) -> int:
    from extender.core.topology import choice

    known = model.topology
    busy = set(told) if args.busy is None else _busy(args.busy, known.index)
    free = [position for position in range(len(known)) if position not in busy]
    choices = choice.choices_of(model)
    chosen = choice.choose(choices, free, args.gpus)
    if chosen is None:
        if args.json:
            answer({"devices": [], "bandwidth_gbs": None, "broken": {}, "alternative": None})
        say("topo", f"--gpus: {args.gpus} asked, {len(free)} of {len(known)} are free")
        return NO
    other = _alternative(choices, free, chosen)
    if args.json:
        document = _choice(chosen, known.index)
        answer(document | {"alternative": other and _choice(other, known.index)})
        return OK
    print(_line("take", chosen, known.index))
    print(_line("else", other, known.index) if other else "else  no other choice")
    return OK


def _alternative(choices: Choices, free: list[int], chosen: Chosen) -> Chosen | None:
    from extender.core.topology import choice

    mask = choice.mask_of(free)
    other = choice.alternative(choices, mask, choice.mask_of(chosen.devices))
    return choice.explain(choices, mask, other) if other else None


def _busy(text: str, index: tuple[int, ...]) -> set[int]:
    """The positions of the GPUs that ``--busy`` names by the driver's numbers."""
    from extender.core.errors import InvalidObject

    names = {str(number): position for position, number in enumerate(index)}
    busy = set()
    for word in text.split(",") if text else []:
        if word.strip() not in names:
            raise InvalidObject("--busy", word, f"numbers of GPUs: {', '.join(names)}")
        busy.add(names[word.strip()])
    return busy


def _choice(chosen: Chosen, index: tuple[int, ...]) -> dict[str, Any]:
    return {
        "devices": [index[each] for each in chosen.devices],
        "bandwidth_gbs": _number(chosen.bandwidth),
        "broken": chosen.broken,
    }


def _line(word: str, chosen: Chosen, index: tuple[int, ...]) -> str:
    devices = ",".join(str(index[each]) for each in chosen.devices)
    speed = f"{chosen.bandwidth:g} GB/s" if chosen.bandwidth else "one GPU"
    broken = ", ".join(
        f"{count} {name if count > 1 else name.removesuffix('s')}"
        for name, count in chosen.broken.items()
        if count
    )
    return f"{word}  {devices:<16} {speed:<12} breaks {broken or 'nothing'}"


def _number(bandwidth: float) -> float | None:
    """None for one device: it has nothing to send."""
    return bandwidth or None

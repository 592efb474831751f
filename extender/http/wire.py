"""Scheduler extender v1 on the wire: requests to values, values to answers.

Source: k8s.io/kube-scheduler/extender/v1/types.go. Its structs have no JSON tags, so the field
names are Go's, in PascalCase, while the Pods and Nodes inside are in camelCase. Absent is null.

Reading takes two ways. The first decodes what kube-scheduler sends, in exact case, straight into
values. Whatever it cannot read, or reads without a field that has to be there, is read again the
way Go does (:mod:`extender.http.anycase`), which also finds the field to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import msgspec
import orjson
from msgspec import DecodeError, Raw, Struct, field

from extender.core.errors import InvalidObject, InvariantViolated, WireError
from extender.core.objects import ApiStruct, Meta, Pod
from extender.core.verdict import FilterAnswer
from extender.http import anycase

#: Scores are integers from 0 to this (MaxExtenderPriority).
MAX_SCORE = 10


class Args(Protocol):
    """A request of any verb."""

    def problem(self) -> InvalidObject | None:
        """The first field that cannot be used as it is."""


class Named(ApiStruct, frozen=True):
    """The metadata of a Pod or Node."""

    metadata: Meta = Meta()


class NodeList(Struct):
    """core/v1 NodeList; its nodes stay as they came, byte for byte."""

    items: tuple[Raw, ...] = ()


class ExtenderArgs(Struct, rename="pascal"):
    """Body of /filter and /prioritize.

    nodeCacheCapable true fills ``NodeNames``, false fills ``Nodes``.
    """

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None

    def problem(self) -> InvalidObject | None:
        if self.node_names is None and self.nodes is None:
            return InvalidObject("NodeNames", None, "a list of node names (or Nodes, a NodeList)")
        return _pod_problem(self.pod)

    def names(self) -> list[str]:
        """Names of the nodes asked about, in the order of the request."""
        if self.node_names is not None:
            return self.node_names
        assert self.nodes is not None  # problem() said so
        return [_node_name(raw, row) for row, raw in enumerate(self.nodes.items)]


class BindingArgs(Struct, rename="pascal"):
    """Body of /bind."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = field(default="", name="PodUID")
    node: str = ""

    def problem(self) -> InvalidObject | None:
        for name, value in (
            ("PodName", self.pod_name),
            ("PodNamespace", self.pod_namespace),
            ("PodUID", self.pod_uid),
            ("Node", self.node),
        ):
            if not value:
                return InvalidObject(name, value, "a string that is not empty")
        return None


class MetaPod(Struct):
    """A victim by its uid."""

    uid: str = field(default="", name="UID")


class MetaVictims(Struct, rename="pascal"):
    """Victims on one node, as kube-scheduler with nodeCacheCapable sends them."""

    pods: tuple[MetaPod, ...] = ()
    num_pdb_violations: int = field(default=0, name="NumPDBViolations")

    def uids(self) -> tuple[str, ...]:
        """Uids of the victims, in the order of the request."""
        return tuple(pod.uid for pod in self.pods)


class Victims(Struct, rename="pascal"):
    """Victims on one node as whole pods, of which only the uid is needed."""

    pods: tuple[Named, ...] = ()
    num_pdb_violations: int = field(default=0, name="NumPDBViolations")

    def uids(self) -> tuple[str, ...]:
        """Uids of the victims, in the order of the request."""
        return tuple(pod.metadata.uid for pod in self.pods)


class PreemptionArgs(Struct, rename="pascal"):
    """Body of /preempt.

    nodeCacheCapable true fills ``NodeNameToMetaVictims``, false fills ``NodeNameToVictims``.
    """

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    def problem(self) -> InvalidObject | None:
        if self.node_name_to_victims is None and self.node_name_to_meta_victims is None:
            return InvalidObject(
                "NodeNameToMetaVictims", None, "a map of victims by node (or NodeNameToVictims)"
            )
        for node, victims in self.victims().items():
            if not all(victims.uids()):
                return InvalidObject(
                    f"victims on {node}", "", "pods that each have a uid that is not empty"
                )
        return _pod_problem(self.pod)

    def victims(self) -> Mapping[str, MetaVictims | Victims]:
        """The victims by node, in whichever form they came."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        return self.node_name_to_victims or {}


A = TypeVar("A", ExtenderArgs, BindingArgs, PreemptionArgs)

_DECODERS: Mapping[type[Args], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (ExtenderArgs, BindingArgs, PreemptionArgs)
}
_NAMED = msgspec.json.Decoder(Named)


def read(body: bytes, kind: type[A]) -> A:
    """Decode a request.

    Raises :class:`WireError` for what is not JSON and :class:`InvalidObject` for JSON that the
    verb cannot take.
    """
    try:
        args: A = _DECODERS[kind].decode(body)
        if args.problem() is None:
            return args
    except (DecodeError, RecursionError):
        pass  # the second reading accepts it or says what is wrong with it
    args = cast("A", _read_again(body, kind))
    problem = args.problem()
    if problem is not None:
        raise problem
    return args


def _read_again(raw: bytes | Raw, kind: type[Struct], where: str = "") -> Struct:
    try:
        read: Struct = anycase.read(raw, kind, where)
        return read
    except RecursionError as error:
        raise WireError("the body is nested too deeply") from error
    except DecodeError as error:
        raise WireError(f"the body is not JSON: {error}") from error


def _pod_problem(pod: Pod) -> InvalidObject | None:
    for name in ("name", "uid"):
        if not getattr(pod.metadata, name):
            return InvalidObject(f"Pod.metadata.{name}", "", "a string that is not empty")
    return None


def _node_name(raw: Raw, row: int) -> str:
    where = f"Nodes.items[{row}]"
    try:
        name = _NAMED.decode(raw).metadata.name
    except (DecodeError, RecursionError):
        name = cast("Named", _read_again(raw, Named, where)).metadata.name
    if not name:
        raise InvalidObject(f"{where}.metadata.name", "", "a string that is not empty")
    return name


# --- answers -----------------------------------------------------------------------------------


def filter_answer(args: ExtenderArgs, names: Sequence[str], answer: FilterAnswer) -> bytes:
    """ExtenderFilterResult. Refusals are all unresolvable (see :class:`FilterAnswer`).

    Raises :class:`InvariantViolated` when a node passes that was not asked about:
    kube-scheduler would fail the whole cycle for it.
    """
    passed = set(answer.passed)
    rest = [] if answer.passed is names else [name for name in names if name not in passed]
    if len(passed) > len(names) - len(rest):
        strange = min(passed.difference(names))
        raise InvariantViolated("filter-subset", f"node {strange} passes and was not asked about")
    if args.nodes is None:
        nodes, node_names = b"null", orjson.dumps(list(answer.passed))
    else:
        kept = (raw for raw, name in zip(args.nodes.items, names, strict=True) if name in passed)
        nodes, node_names = b'{"metadata":{},"items":[' + b",".join(kept) + b"]}", b"null"
    return b"".join(
        (
            b'{"Nodes":', nodes, b',"NodeNames":', node_names,
            b',"FailedNodes":{},"FailedAndUnresolvableNodes":', _refusals(rest, answer.message),
            b',"Error":""}',
        )
    )  # fmt: skip


def _refusals(names: list[str], why: str) -> bytes:
    """A JSON object from each name to why it is refused."""
    listed = orjson.dumps(names)
    if not _separable(listed, len(names)):
        return orjson.dumps(dict.fromkeys(names, why))
    text = b":" + orjson.dumps(why)
    return b"".join((b"{", listed[1:-1].replace(b'","', b'"' + text + b',"'), text, b"}"))


def _separable(listed: bytes, count: int) -> bool:
    """Whether each ``","`` in a JSON list of ``count`` strings stands between two of them.

    True of node names: it takes a comma or an escaped character within a string to break it.
    """
    return count > 0 and listed.count(b",") == count - 1 and b"\\" not in listed


_SCORES = tuple(b'","Score":%d}' % score for score in range(MAX_SCORE + 1))


def prioritize_answer(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """HostPriorityList, a bare array.

    Raises :class:`InvariantViolated` for a score that kube-scheduler would not clamp.
    """
    if len(names) != len(scores):
        raise InvariantViolated("scores", f"{len(scores)} scores for {len(names)} nodes")
    if names and (min(scores) < 0 or max(scores) > MAX_SCORE):
        raise InvariantViolated("scores", f"a score is not within 0..{MAX_SCORE}")
    listed = orjson.dumps(list(names))
    if not _separable(listed, len(names)):
        return orjson.dumps(
            [{"Host": name, "Score": int(s)} for name, s in zip(names, scores, strict=True)]
        )
    hosts = listed[2:-2].split(b'","')
    rows = [host + _SCORES[score] for host, score in zip(hosts, scores, strict=True)]
    return b'[{"Host":"' + b',{"Host":"'.join(rows) + b"]"


def preempt_answer(args: PreemptionArgs, allowed: Mapping[str, Sequence[str]]) -> bytes:
    """ExtenderPreemptionResult, in the meta form whichever form was asked.

    A node left without victims is left out: kube-scheduler takes it for an error, and dropping
    a node for a refusal (preemption.go, callExtenders).
    """
    given = args.victims()
    nodes = {
        name: {
            "Pods": [{"UID": uid} for uid in uids],
            "NumPDBViolations": given[name].num_pdb_violations,
        }
        for name, uids in allowed.items()
        if uids
    }
    return orjson.dumps({"NodeNameToMetaVictims": nodes})


def filter_error(text: str) -> bytes:
    """ExtenderFilterResult of a request that was not decided; the pod backs off and comes again."""
    return orjson.dumps(
        {
            "Nodes": None,
            "NodeNames": None,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {},
            "Error": text,
        }
    )


def bind_answer(text: str) -> bytes:
    """ExtenderBindingResult; an empty text means bound."""
    return orjson.dumps({"Error": text})


def no_scores(_: str) -> bytes:
    """HostPriorityList that leaves the order of nodes to kube-scheduler."""
    return b"[]"


def no_nodes(_: str) -> bytes:
    """ExtenderPreemptionResult that allows no preemption."""
    return b'{"NodeNameToMetaVictims":{}}'

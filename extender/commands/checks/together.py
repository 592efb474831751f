"""What manifests say about each other: groups and the pods that name them, jobs and their claims.

Only warnings: what is missing from the files may be in the cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from extender.commands.checks.network import Told
from extender.commands.checks.problem import Document, Problem
from extender.commands.checks.schema import nearest
from extender.core.identity import GroupKey
from extender.core.objects import Labels, Manifest
from extender.jobs.advice import advise
from extender.jobs.advice.subject import Subject
from extender.jobs.fields import dig

#: Where a kind says how many pods it makes; one if it does not say.
_COUNTS = {"Job": "parallelism"}


@dataclass
class Together:
    """The groups of all files, the pods that name groups, and what tells levels of the network."""

    #: HyperNodes and Topologies.
    network: Told = field(default_factory=Told)
    groups: dict[GroupKey, tuple[Document, str, int]] = field(default_factory=dict)
    pods: Counter[GroupKey] = field(default_factory=Counter)
    #: The first document that names the group, and the field where.
    named: dict[GroupKey, tuple[Document, str]] = field(default_factory=dict)
    #: Minimum as pods themselves say it.
    claimed: dict[GroupKey, int] = field(default_factory=dict)
    #: Kinds of which a DaemonSet makes as many pods as there are nodes.
    _uncounted: set[GroupKey] = field(default_factory=set)
    #: Workloads that advice is given on.
    _subjects: list[tuple[Document, Subject]] = field(default_factory=list)
    #: By namespace: claims by name, and the namespace's labels.
    _claims: dict[str, dict[str, Manifest]] = field(default_factory=lambda: defaultdict(dict))
    _namespaces: dict[str, Labels] = field(default_factory=dict)

    def subject(self, document: Document, subject: Subject) -> None:
        """A workload that advice is given on once all files are read."""
        self._subjects.append((document, subject))

    def surroundings(self, document: Document) -> None:
        """A claim, or a namespace, in which workloads may be."""
        name = dig(document.body, "metadata", "name")
        if not isinstance(name, str):
            return
        if document.kind == ("v1", "PersistentVolumeClaim"):
            self._claims[_namespace(document)][name] = document.body
        elif document.kind == ("v1", "Namespace"):
            labels = dig(document.body, "metadata", "labels")
            self._namespaces[name] = labels if isinstance(labels, dict) else {}

    def group(self, document: Document, key: GroupKey, where: str, least: int) -> None:
        """A PodGroup whose minimum is ``least``, at the field ``where``."""
        self.groups[_placed(key)] = (document, where, least)

    def pod(self, document: Document, key: GroupKey, where: str, least: str | None) -> None:
        """A pod, or a template of several, that names a group."""
        key = _placed(key)
        many = _pods_of(document)
        if many is None:
            self._uncounted.add(key)
        else:
            self.pods[key] += many
        self.named.setdefault(key, (document, where))
        if least is not None and least.isdecimal():
            self.claimed[key] = max(self.claimed.get(key, 0), int(least))

    def problems(self) -> Iterator[Problem]:
        """Groups with too few pods, names that nearly agree, and advice."""
        for key, (document, where, least) in self.groups.items():
            have = self.pods[key]
            if 0 < have < least and key not in self._uncounted:
                yield document.problem(where, _few(least, have), "warning")
        for key, least in self.claimed.items():
            document, where = self.named[key]
            have = self.pods[key]
            if have < least and key not in self.groups and key not in self._uncounted:
                yield document.problem(where, _few(least, have), "warning")
        for key, (document, where) in self.named.items():
            if key not in self.groups and key not in self.claimed:
                yield from self._unknown(document, where, key)
        yield from self.network.problems()
        for document, subject in self._subjects:
            space = _namespace(document)
            labels = self._namespaces.get(space, {})
            known = msgspec.structs.replace(
                subject, claims=self._claims[space], namespace_labels=labels
            )
            for each in advise(known):
                yield document.problem(each.field, each.render(), "warning", each.code)

    def _unknown(self, document: Document, where: str, key: GroupKey) -> Iterator[Problem]:
        names: dict[str, list[str]] = defaultdict(list)
        for each in self.groups:
            if each.resource == key.resource:
                names[each.namespace].append(each.name)
        elsewhere = [space for space, found in names.items() if key.name in found]
        here = nearest(key.name, _lone(names[key.namespace], self.pods))
        text = f"names PodGroup {key.name}, which is not in these files"
        if elsewhere:
            spaces = ", ".join(elsewhere)
            text = f"names PodGroup {key.name} in {key.namespace}; in these files it is in {spaces}"
        elif here:
            text = f"{text}; did you mean {here}?"
        elif not names[key.namespace]:
            return  # It may well be in the cluster.
        yield document.problem(where, text, "warning")


def _lone(names: Sequence[str], pods: Counter[GroupKey]) -> list[str]:
    """Of the names, those of groups without a pod come first: they miss theirs."""
    have = {key.name for key, count in pods.items() if count}
    return [name for name in names if name not in have] or list(names)


def _few(least: int, have: int) -> str:
    pods = "pod" if have == 1 else "pods"
    return f"{least} is more than the {have} {pods} of this group in the files: it would wait"


def _placed(key: GroupKey) -> GroupKey:
    return GroupKey(key.resource, key.namespace or "default", key.name)


def _namespace(document: Document) -> str:
    name = dig(document.body, "metadata", "namespace")
    return name if isinstance(name, str) and name else "default"


def _pods_of(document: Document) -> int | None:
    """How many pods a document makes; None where that depends on the cluster."""
    kind = document.kind[1]
    if kind == "Pod":
        return 1
    count: Any = dig(document.body, "spec", _COUNTS.get(kind, "replicas"))
    if kind == "DaemonSet":
        return None
    return count if isinstance(count, int) and not isinstance(count, bool) else 1

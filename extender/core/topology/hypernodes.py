"""Volcano's HyperNodes: domains of the network that name their members, as a tree of tiers.

Source: topology.volcano.sh/v1alpha1, and what Volcano's scheduler makes of it (pkg/scheduler/api/
hyper_node_info.go): a lower tier is nearer; a member is a node, by name, pattern or labels, or a
HyperNode, by name alone; an empty labelMatch is nobody; a HyperNode has one parent; one that does
not exist (yet) is no mistake.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import re2
from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.objects import ApiStruct, LabelSelector, Meta
from extender.core.selectors import IN, Selector, canonical, matches

#: Kinds of members.
NODE, HYPER_NODE = "Node", "HyperNode"
#: Tiers that are told apart; of more the nearest count.
MOST_TIERS = 32
#: Bytes of a compiled pattern: RE2's programs grow with bounded repetition.
_PATTERN_BYTES = 256 << 10
#: Patterns of all HyperNodes together, and instructions of their programs: a name that is matched
#: may cost as much as all of them, character by character. Of more, those of the nearest tiers count.
MOST_PATTERNS = 10_000
MOST_INSTRUCTIONS = 100_000
#: Bytes of all of them together and what matching them takes: some 30 sets of as many instructions.
_SET_BYTES = 64 << 20


class ExactMatch(ApiStruct):
    """ExactMatch."""

    name: str = ""


class RegexMatch(ApiStruct):
    """RegexMatch: found anywhere in a name, unless it is anchored; Go's syntax, which is RE2's."""

    pattern: str = ""


class MemberSelector(ApiStruct):
    """MemberSelector: one of the three."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class MemberSpec(ApiStruct):
    """MemberSpec."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(ApiStruct):
    """HyperNodeSpec."""

    tier: int = 0
    tier_name: str = ""
    members: tuple[MemberSpec, ...] = ()


class HyperNode(ApiStruct):
    """topology.volcano.sh/v1alpha1 HyperNode."""

    metadata: Meta
    spec: HyperNodeSpec = HyperNodeSpec()


class Hyper(Struct, frozen=True):
    """A HyperNode that can be read: its tier, and what is in it."""

    tier: int = 0
    tier_name: str = ""
    nodes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    #: Of the programs of its patterns.
    instructions: int = 0
    selectors: tuple[Selector, ...] = ()
    #: (index of the member, name) of HyperNodes.
    children: tuple[tuple[int, str], ...] = ()


def read(hyper: HyperNode) -> Hyper:
    """Raises InvalidObject: a tier below 0, or a member that names nobody in a way there is."""
    spec = hyper.spec
    if spec.tier < 0:
        raise InvalidObject("spec.tier", spec.tier, "at least 0")
    nodes: list[str] = []
    patterns: list[str] = []
    instructions = 0
    selectors: list[Selector] = []
    children: list[tuple[int, str]] = []
    for at, member in enumerate(spec.members):
        field, by = f"spec.members[{at}]", member.selector
        if member.type not in (NODE, HYPER_NODE):
            raise InvalidObject(f"{field}.type", member.type, f"{NODE} or {HYPER_NODE}")
        if sum(each is not None for each in (by.exact_match, by.regex_match, by.label_match)) != 1:
            given = " and ".join(msgspec.to_builtins(by)) or "nothing"
            allowed = "one of exactMatch, regexMatch and labelMatch"
            raise InvalidObject(f"{field}.selector", given, allowed)
        if by.exact_match is not None:
            name = by.exact_match.name
            if not name:
                raise InvalidObject(f"{field}.selector.exactMatch.name", "", "a name")
            if member.type == NODE:
                nodes.append(name)
            else:
                children.append((at, name))
        elif member.type == HYPER_NODE:
            (given,) = msgspec.to_builtins(by)
            raise InvalidObject(f"{field}.selector", given, "exactMatch, for a HyperNode")
        elif by.regex_match is not None:
            if len(patterns) == MOST_PATTERNS:
                allowed = f"at most {MOST_PATTERNS} patterns"
                raise InvalidObject("spec.members", f"{len(patterns) + 1} patterns", allowed)
            pattern = by.regex_match.pattern
            instructions += _checked(pattern, f"{field}.selector.regexMatch.pattern")
            patterns.append(pattern)
        elif selector := canonical(by.label_match, f"{field}.selector.labelMatch"):
            selectors.append(selector)
    return Hyper(
        tier=spec.tier,
        tier_name=spec.tier_name,
        nodes=tuple(nodes),
        patterns=tuple(patterns),
        instructions=instructions,
        selectors=tuple(selectors),
        children=tuple(children),
    )


def _checked(pattern: str, field: str) -> int:
    """How many instructions its program has."""
    if not pattern:
        raise InvalidObject(field, pattern, "a pattern")
    try:
        size: int = re2.compile(pattern, _options(_PATTERN_BYTES)).programsize
    except re2.error as error:
        raise InvalidObject(field, pattern, f"a pattern of RE2 ({_words(error)})") from error
    return size


def _words(error: Exception) -> str:
    """RE2's words come as bytes."""
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _options(most_bytes: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = most_bytes
    return options


#: By tier, nearest first, a HyperNode or ""; and a HyperNode that is wrong about it, and how.
Membership = tuple[tuple[str, ...], tuple[str, str] | None]


class Fabric:
    """The tree that HyperNodes make, and which of them a node is in."""

    def __init__(self, hypers: Mapping[str, Hyper] | None = None) -> None:
        hypers = hypers or {}
        #: Nearest first.
        self.tiers: tuple[int, ...] = tuple(sorted({each.tier for each in hypers.values()}))
        #: By tier, as above, what its HyperNodes call it.
        self.tier_names: tuple[str, ...] = ()
        #: What is wrong with a HyperNode, by its name.
        self.problems: dict[str, str] = {}
        if len(self.tiers) > MOST_TIERS:
            self.tiers = self.tiers[:MOST_TIERS]
            allowed = f"one of the {MOST_TIERS} nearest tiers that there are"
            for name, each in hypers.items():
                if each.tier not in self.tiers:
                    self.problems[name] = str(InvalidObject("spec.tier", each.tier, allowed))
        kept = {name: hypers[name] for name in sorted(hypers) if hypers[name].tier in self.tiers}
        named: dict[int, str] = {}
        for each in kept.values():
            if each.tier_name:
                named.setdefault(each.tier, each.tier_name)
        self.tier_names = tuple(named.get(tier, "") for tier in self.tiers)
        self._chains = self._chained(kept)
        self._exact: dict[str, list[str]] = {}
        self._by_label: dict[tuple[str, str], list[tuple[str, Selector]]] = {}
        self._keys: tuple[str, ...] = ()
        self._others: list[tuple[str, Selector]] = []
        self._patterns: list[str] = []
        self._set: re2.Set | None = None
        self._index(kept)

    def of(self, node: str, labels: Mapping[str, str]) -> Membership:
        """By tier, nearest first, the HyperNode that a node is in; "" for none. Where its nearest has
        no parent in a farther tier it stands for itself there.

        And the first HyperNode that contradicts nearer ones, or one of a smaller name, with what is
        wrong with it: its word on the node does not count.
        """
        found = set(self._exact.get(node, ()))
        if self._set is not None:
            found.update(self._patterns[at] for at in self._set.Match(node) or ())
        for key in self._keys:
            for name, selector in self._by_label.get((key, labels.get(key, "")), ()):
                if matches(selector, labels):
                    found.add(name)
        found.update(name for name, selector in self._others if matches(selector, labels))
        out = [""] * len(self.tiers)
        odd: tuple[str, str] | None = None
        chains = self._chains
        for name in sorted(found, key=lambda each: (chains[each].index(each), each)):
            chain = chains[name]
            others = [a for a, b in zip(out, chain, strict=True) if a and b and a != b]
            if others:
                allowed = f"a node that is nowhere else (it is in HyperNode {others[0]})"
                odd = odd or (name, str(InvalidObject("spec.members", node, allowed)))
            else:
                out = [a or b for a, b in zip(out, chain, strict=True)]
        for at in range(1, len(out)):
            out[at] = out[at] or out[at - 1]
        return tuple(out), odd

    def _chained(self, hypers: Mapping[str, Hyper]) -> dict[str, tuple[str, ...]]:
        """Of each HyperNode, by tier, which is it or an ancestor; "" for none."""
        parents: dict[str, str] = {}
        for name, hyper in hypers.items():
            for at, child in hyper.children:
                field = f"spec.members[{at}].selector.exactMatch.name"
                if child not in hypers:
                    continue
                if (tier := hypers[child].tier) >= hyper.tier:
                    allowed = f"a HyperNode of a tier below {hyper.tier} (its tier is {tier})"
                elif parents.setdefault(child, name) != name:
                    allowed = f"a HyperNode that is in no other (it is in {parents[child]})"
                else:
                    continue
                self.problems.setdefault(name, str(InvalidObject(field, child, allowed)))
        chains = {}
        for name in hypers:
            chain = [""] * len(self.tiers)
            above: str | None = name
            # Tiers rise from each to its parent, so this ends.
            while above is not None:
                chain[self.tiers.index(hypers[above].tier)] = above
                above = parents.get(above)
            chains[name] = tuple(chain)
        return chains

    def _index(self, hypers: Mapping[str, Hyper]) -> None:
        """So that a node is looked up among thousands of HyperNodes at once."""
        for name, hyper in hypers.items():
            for node in hyper.nodes:
                self._exact.setdefault(node, []).append(name)
            for selector in hyper.selectors:
                by = next((each for each in selector if each.operator == IN), None)
                if by is None:
                    self._others.append((name, selector))
                    continue
                for value in by.values:
                    self._by_label.setdefault((by.key, value), []).append((name, selector))
        self._keys = tuple(sorted({key for key, _ in self._by_label}))
        if texts := self._affordable(hypers):
            self._set = re2.Set.SearchSet(_options(_SET_BYTES))
            for text in texts:
                self._set.Add(text)
            self._set.Compile()

    def _affordable(self, hypers: Mapping[str, Hyper]) -> list[str]:
        """Patterns to match names with, and in ``_patterns`` whose they are: all of a HyperNode or
        none, as far as they are not too many together.
        """
        texts: list[str] = []
        spent = 0
        for name, hyper in sorted(hypers.items(), key=lambda item: (item[1].tier, item[0])):
            count, size = len(hyper.patterns), hyper.instructions
            if len(texts) + count > MOST_PATTERNS or spent + size > MOST_INSTRUCTIONS:
                given = f"{count} patterns of {size} instructions"
                allowed = (
                    f"patterns that are with those of nearer tiers and smaller names at most"
                    f" {MOST_PATTERNS}, of {MOST_INSTRUCTIONS} instructions (they are"
                    f" {len(texts)}, of {spent})"
                )
                problem = str(InvalidObject("spec.members", given, allowed))
                self.problems.setdefault(name, problem)
                continue
            texts += hyper.patterns
            self._patterns += [name] * count
            spent += size
        return texts

"""The gang machine's decision tables: tests/cases/machine_*.yaml, one story a row.

A story is a list of steps, each one verb of :class:`Teller` with its arguments. Every step of the
machine is checked (tests.core.machine_checks); ``rest`` also demands that everything has settled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.core.api import NODES, PODS, PRIORITY_CLASSES, PYTORCH_JOBS, VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import RULES, Fault, Machine
from tests.core.machine_api import GROUPS

CASES = Path(__file__).parents[1] / "cases"
KINDS = {resource.group: resource for resource in GROUPS}


def stories() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("machine_*.yaml")):
        for story in yaml.safe_load(path.read_text()):
            name = f"{path.stem.removeprefix('machine_')}: {story['story']}"
            found.append(pytest.param(story, id=name))
    return found


@pytest.mark.parametrize("story", stories())
def test_story(story: dict[str, Any]) -> None:
    rules = msgspec.structs.replace(RULES, **story.get("rules", {}))
    teller = Teller(Machine(rules, replicas=story.get("replicas", 1)))
    for number, step in enumerate(story["steps"]):
        ((verb, given),) = step.items()
        try:
            getattr(teller, verb)(given)
        except AssertionError as error:
            raise AssertionError(f"step {number + 1}, {verb}: {given}: {error}") from error


class Teller:
    """The verbs of the tables."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    # -- what there is

    def nodes(self, gpus: dict[str, int]) -> None:
        for name, count in gpus.items():
            do.node(self.m, name, count)

    def group(self, given: dict[str, Any]) -> None:
        """A PodGroup: name, min; kind by API group; anything else goes into spec."""
        kind = KINDS[given.pop("kind", VOLCANO_GROUPS.group)]
        name, least = given.pop("name"), given.pop("min")
        marks = given.pop("annotations", {})
        if kind.group == "scheduling.k8s.io":
            spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
        else:
            spec = {"minMember": least}
        meta = {"name": name, "namespace": "default", "annotations": marks}
        self.m.api.put(kind, {"metadata": meta, "spec": {**spec, **given}})

    def pods(self, given: dict[str, Any]) -> None:
        """Pods of one group: of, and count (or names); the rest as in do.pod."""
        group = given.pop("of", "")
        names = given.pop("names", None) or [f"{group}-{i}" for i in range(given.pop("count"))]
        for name in names:
            do.pod(self.m, name, group, **yaml.safe_load(yaml.safe_dump(given)))

    def gang(self, given: dict[str, Any]) -> None:
        """A group and as many bare pods as its minimum, or ``size``."""
        name, least = given["name"], given["min"]
        size, gpus = given.pop("size", least), given.pop("gpus", 1)
        self.group(given)
        self.pods({"of": name, "count": size, "gpus": gpus})

    def job(self, given: dict[str, Any]) -> None:
        do.job(self.m, **given)

    def job_template(self, given: dict[str, Any]) -> None:
        """Change a job's worker template: its container's name."""
        place = (PYTORCH_JOBS, "default", given["name"])
        box = {"name": given["container"], "image": "train"}
        spec = {"template": {"spec": {"containers": [box]}}}
        roles = dict.fromkeys(("Master", "Worker"), spec)
        self.m.api.change(place, spec={"pytorchReplicaSpecs": roles})

    def plain(self, given: dict[str, Any]) -> None:
        do.pod(self.m, given.pop("name"), **given)

    def priority_class(self, given: dict[str, Any]) -> None:
        meta = {"name": given["name"]}
        self.m.api.put(PRIORITY_CLASSES, {"metadata": meta, "value": given["value"]})

    def no_status_subresource(self, group: str) -> None:
        self.m.api.no_status.add(KINDS[group])

    # -- what happens

    def rest(self, seconds: float | None) -> None:
        self.m.rest(*([seconds] if seconds else []))
        self.m.finish()

    def flush(self, _: None) -> None:
        self.m.flush()

    def advance(self, seconds: float) -> None:
        """Time passes in steps of half a second, each of which settles."""
        for _ in range(int(seconds * 2)):
            self.m.advance(0.5)
            self.m.flush()

    def fail(self, given: dict[str, Any]) -> None:
        self.m.faults.append(Fault(**given))

    def quota(self, pods: int) -> None:
        """The API server admits so many pods, by its own count."""

        def refuses(body: dict[str, Any]) -> str:
            have = len(self.m.api.pods())
            return f"exceeded quota: pods, used {have}" if have >= pods else ""

        self.m.api.admission = refuses

    def heal(self, _: None) -> None:
        """Commands go well from here on, held ones too."""
        self.m.faults.clear()

    def hold_back(self, pod: str) -> None:
        """Kube-scheduler does not come to this pod."""
        self.m.scheduler.held_back.add(pod)

    def let_go(self, pod: str) -> None:
        self.m.scheduler.held_back.discard(pod)

    def ask_again(self, pod: str) -> None:
        """A second /bind for a pod whose first one is still open."""
        bind = next(b for b in self.m.scheduler.open.values() if b.place[2] == pod)
        self.m.scheduler.ask_to_bind(bind.replica, bind.place, bind.uid, bind.node)

    def bind_elsewhere(self, given: dict[str, str]) -> None:
        """Somebody else binds a member."""
        spec, status = {"nodeName": given["node"]}, {"phase": "Running"}
        self.m.api.change((PODS, "default", given["pod"]), spec=spec, status=status)

    def hide(self, given: dict[str, Any]) -> None:
        """A constraint that Muster does not model."""
        for name in given["nodes"]:
            self.m.scheduler.hidden.add((given["gpus"], name))

    def show(self, _: None) -> None:
        self.m.scheduler.hidden.clear()

    def cordon(self, name: str) -> None:
        self.m.api.change((NODES, "", name), spec={"unschedulable": True})

    def lose_node(self, name: str) -> None:
        self.m.api.delete((NODES, "", name))

    def outsider(self, given: dict[str, Any]) -> None:
        do.foreign(self.m, **given)

    def delete_pod(self, name: str) -> None:
        self.m.api.delete((PODS, "default", name))

    def end(self, given: dict[str, str]) -> None:
        for name, phase in given.items():
            self.m.api.change((PODS, "default", name), status={"phase": phase})

    def kubelets(self, what: str) -> None:
        """``stop``: bound pods stay Pending."""
        self.m.api.kubelets = what != "stop"

    def linger(self, long: bool) -> None:
        """Pods that are being deleted stay for as long as this says so."""
        self.m.lingering = long

    def suspend(self, job: str) -> None:
        spec = {"runPolicy": {"suspend": True}}
        self.m.api.change((PYTORCH_JOBS, "default", job), spec=spec)

    def delete_group(self, name: str) -> None:
        self.m.api.delete((VOLCANO_GROUPS, "default", name))

    def change_group(self, given: dict[str, Any]) -> None:
        self.m.api.change((VOLCANO_GROUPS, "default", given.pop("name")), spec=given)

    def touch_pod(self, name: str) -> None:
        """Somebody changes the pod, so that its resourceVersion is another."""
        seen = self.m.api.get(PODS, name)
        assert seen is not None
        count = seen["metadata"].get("labels", {}).get("touched", "0")
        labels = {"touched": str(int(count) + 1)}
        self.m.api.change((PODS, "default", name), metadata={"labels": labels})

    def ungate(self, name: str) -> None:
        """Whoever put gates on a pod takes them off."""
        self.m.api.change((PODS, "default", name), spec={"schedulingGates": None})

    def abandon(self, pod: str) -> None:
        """Kube-scheduler hangs up while /bind waits."""
        tokens = [t for t, bind in self.m.scheduler.open.items() if bind.place[2] == pod]
        assert tokens, f"{pod} is not at /bind"
        self.m.scheduler.abandon(tokens[-1])

    def lose(self, _: None) -> None:
        self.m.lose()

    def gain(self, number: int) -> None:
        self.m.gain(self.m.replicas[number])

    def straggle(self, _: None) -> None:
        """What the old leader had on the wire takes effect now, if the API server lets it."""
        for command in self.m.stragglers:
            self.m.api.carry_out(command)

    # -- what must be so

    def bound(self, given: dict[str, int | list[str]]) -> None:
        """Pods bound now, by name prefix: how many, or on which nodes."""
        for prefix, want in given.items():
            found = self.m.bound(prefix)
            have = len(found) if isinstance(want, int) else sorted(found.values())
            assert have == want, f"{prefix}: {found}"

    def ever_bound(self, given: dict[str, int]) -> None:
        """Bindings in the whole story, by name prefix."""
        for prefix, want in given.items():
            names = [n for n in self.m.binding_order if n.startswith(prefix)]
            assert len(names) == want, names

    def order(self, prefixes: list[str]) -> None:
        """In which order gangs were bound."""
        first = [
            next(i for i, n in enumerate(self.m.binding_order) if n.startswith(p)) for p in prefixes
        ]
        assert first == sorted(first), self.m.binding_order

    def reason(self, given: dict[str, str]) -> None:
        for name, code in given.items():
            assert do.reason(self.m, name) == code, do.of(self.m, name).refusal

    def says(self, given: dict[str, str]) -> None:
        for name, text in given.items():
            refusal = do.of(self.m, name).refusal
            assert refusal is not None
            assert text in refusal.render(limit=20), refusal.render(limit=20)

    def stage(self, given: dict[str, str]) -> None:
        for name, stage in given.items():
            assert do.of(self.m, name).stage.name == stage, do.of(self.m, name).stage.name

    def nothing(self, name: str) -> None:
        """It waits for nothing."""
        gang = do.of(self.m, name)
        assert (gang.refusal, gang.waiting_since) == (None, None)

    def phase(self, given: dict[str, str]) -> None:
        """The phase that ``muster explain`` says; a whole gang is at no stage."""
        assert self.m.leader is not None
        for name, phase in given.items():
            told = self.m.leader.view.gang("default", name)
            assert told is not None
            assert (told["phase"], told["stage"]) == (phase, None)
            assert self.m.leader.view.phases()[phase] == 1

    def partial(self, given: dict[str, bool]) -> None:
        for name, want in given.items():
            assert do.of(self.m, name).partial is want

    def exists(self, given: dict[str, int]) -> None:
        for prefix, want in given.items():
            names = [p["metadata"]["name"] for p in self.m.api.pods()]
            assert sum(n.startswith(prefix) for n in names) == want, names

    def status(self, given: dict[str, str]) -> None:
        """The phase that the group's own record says."""
        for name, phase in given.items():
            raw = self.group_of(name)
            assert raw.get("status", {}).get("phase", "") == phase, raw.get("status")

    def counts(self, given: dict[str, list[int]]) -> None:
        """Running, succeeded and failed, as the group's own record counts them."""
        for name, want in given.items():
            told = self.group_of(name)["status"]
            assert [told[each] for each in ("running", "succeeded", "failed")] == want, told

    def condition(self, given: dict[str, str]) -> None:
        """A condition on the group's own record whose type and message match; /debug says why in its words."""
        assert self.m.leader is not None
        for name, text in given.items():
            rows = self.group_of(name)["status"]["conditions"]
            told = [f"{row['type']}={row['status']}: {row['message']}" for row in rows]
            assert any(text in each for each in told), told
            shown = self.m.leader.view.gang("default", name)
            assert shown is not None
            if shown["stage"] == "Waiting":
                # The status of one that is being placed is written later.
                waits = [r for r in rows if (r["type"], r["status"]) == ("Unschedulable", "True")]
                assert [row["message"] for row in waits] in ([], [shown["message"]])

    def group_of(self, name: str) -> dict[str, Any]:
        found = [self.m.api.get(kind, name) for kind in GROUPS]
        return next(raw for raw in found if raw is not None)

    def plan(self, given: dict[str, Any]) -> None:
        """Fields of the GangPlan's spec."""
        spec = do.plan_of(self.m, given.pop("name"))["spec"]
        for field, want in given.items():
            assert spec[field] == want, spec

    def noticed(self, given: dict[str, str]) -> None:
        """Events on an object, by reason."""
        told = {(n.name, n.reason) for r in self.m.replicas for n in r.notices}
        for name, reason in given.items():
            assert (name, reason) in told, told

    def counter(self, given: dict[str, int]) -> None:
        assert self.m.leader is not None
        for name, want in given.items():
            assert self.m.leader.state.counters.get(name, 0) == want

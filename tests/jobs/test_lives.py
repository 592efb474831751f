"""Random lives of a job: whatever its pods do, it ends at most once and stays ended.

The API server, the kubelet and Muster's shell are played by a few lines each; a write may be lost
or late, as a crash of Muster would lose it.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.jobs.lifecycle import TrainingKind
from extender.jobs.restarts import PAUSE_MOST, RECORD, Restarts
from tests.jobs.builders import KIND, KINDS, NOW, job, merged, of_kind, pod, role, settled, written

ENDS = ("Succeeded", "Failed")
REPLICAS = 3

moves = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, REPLICAS)),
        st.tuples(
            st.sampled_from(["Running", "Succeeded", "Failed"]),
            st.integers(0, REPLICAS),
            st.sampled_from([None, 0, 1, 127, 128, 137]),
        ),
        st.tuples(st.just("again in place"), st.integers(0, REPLICAS)),
        st.tuples(st.just("delete"), st.integers(0, REPLICAS)),
        st.tuples(st.just("gone"), st.integers(0, REPLICAS)),
        st.tuples(st.just("lose the write")),
        st.tuples(st.just("suspend"), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 50)),
    ),
    max_size=40,
)
policies = st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"])
#: Kind, replicas by type, and what else stands in spec.
shapes = st.sampled_from(
    [
        ("pytorch", {"Worker": 3}, {}),
        ("pytorch", {"Master": 1, "Worker": 2}, {}),
        ("pytorch", {"Worker": 3}, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}),
        ("tensorflow", {"PS": 1, "Worker": 2}, {}),
        ("tensorflow", {"PS": 1, "Worker": 2}, {"successPolicy": "AllWorkers"}),
        ("tensorflow", {"PS": 1, "Worker": 2}, {"enableDynamicWorker": True}),
        ("tensorflow", {"Chief": 1, "Worker": 2}, {"enableDynamicWorker": True}),
        ("tensorflow", {"Chief": 1, "Evaluator": 1, "Worker": 1}, {}),
        ("tensorflow", {"Evaluator": 3}, {}),
        ("xgboost", {"Master": 1, "Worker": 2}, {}),
        ("jax", {"Worker": 3}, {}),
        ("paddle", {"Worker": 3}, {}),
        ("paddle", {"Master": 2, "Worker": 1}, {}),
        ("mpi", {"Launcher": 1, "Worker": 2}, {}),
        ("mpi", {"Launcher": 1, "Worker": 2}, {"launcherCreationPolicy": "WaitForWorkersReady"}),
        ("mpi_v1", {"Launcher": 1, "Worker": 2}, {}),
    ]
)


def born(shape, policy: str, **run_policy) -> Life:
    """The life of a job of this shape, about to begin."""
    name, roles, spec = shape
    kind, _ = KINDS[name]
    if name == "mpi":  # it knows two of them
        policy = {"Always": "OnFailure", "ExitCode": "Never"}.get(policy, policy)
    manifest = merged(of_kind(kind, roles, policy), {"spec": spec})
    manifest["spec"]["runPolicy"] = run_policy
    return Life(kind, manifest)


class Life:
    """A job in its cluster; ``looks`` maps a pod's name to the options of its builder."""

    def __init__(self, kind: TrainingKind, manifest: dict) -> None:
        self.kind = kind
        self.manifest = manifest
        self.looks: dict[str, dict] = {}
        self.now = NOW
        self.serial = 0
        self.end: dict | None = None
        self.finished: set[str] = set()
        self.number = 0
        #: Status of the launcher's Job.
        self.shown: dict = {}

    def pods(self):
        facts = self.kind.facts
        return [
            pod(name, owner_kind=facts.kind, container=facts.container or "main", **look)
            for name, look in sorted(self.looks.items())
        ]

    def move(self, kind: str, *details) -> bool:
        """Change the world; whether Muster's next write is lost."""
        if kind == "wait":
            self.now += details[0]
        elif kind == "suspend":
            self.manifest["spec"].setdefault("runPolicy", {})["suspend"] = details[0]
        elif kind == "create":
            self.create(details[0])
        elif kind != "lose the write" and details[0] < len(self.looks):
            name = sorted(self.looks)[details[0]]
            if kind == "gone":
                del self.looks[name]
            elif kind == "delete":
                self.looks[name]["deleting"] = True
            elif kind == "again in place":
                self.looks[name]["restarts"] = self.looks[name].get("restarts", 0) + 1
            elif self.looks[name]["phase"] not in ENDS:
                self.looks[name] |= {"phase": kind, "exit_code": details[1]}
        return kind == "lose the write"

    def create(self, which: int) -> None:
        wanted = self.step().wanted
        if which < len(wanted):
            body = self.kind.pod(self.manifest, wanted[which])
            inherited = body["metadata"]["annotations"].get("scheduling.muster.dev/restarts", "0")
            self.serial += 1
            self.looks[wanted[which].pod_name] = {
                "phase": "Pending",
                "inherited": int(inherited),
                "of": int(body["metadata"]["annotations"].get(RECORD, "0")),
                "uid": f"pod-{self.serial}",
            }

    def step(self):
        return self.kind.reconcile(self.manifest, self.pods(), frozenset(), self.now)

    def run(self, lost: bool) -> None:
        step = self.step()
        assert not {replica.pod_name for replica in step.wanted} & (self.finished | {*self.looks})
        live = {(n, look["uid"]) for n, look in self.looks.items() if not look.get("deleting")}
        assert set(step.delete_pods) <= live
        number = Restarts.read(self.manifest["metadata"].get("annotations") or {}).number
        assert number in (self.number, self.number + 1)
        self.number = number
        if step.wanted and number:
            # All of it starts together: nobody is left of the life before but who has finished.
            left = {n for n, look in self.looks.items() if look.get("of", 0) < number}
            assert left <= self.finished
        if self.end is not None:
            assert step.wanted == ()
            assert step.status is None
        if lost:
            return
        self.manifest = written(self.manifest, step)
        for child in step.children:
            if child.shows:
                self.show(child.body["status"])
        for name, _ in step.delete_pods:
            self.looks[name]["deleting"] = True
        for name, look in self.looks.items():
            # What Muster saw succeed and has written down.
            if look["phase"] == "Succeeded" and not look.get("deleting"):
                self.finished.add(name)
        self.check()

    def show(self, status: dict) -> None:
        """The launcher's Job: what the API server refuses to be told of one (batch/validation)."""
        now, before = (
            {each["type"] for each in shown.get("conditions", ()) if each["status"] == "True"}
            for shown in (status, self.shown)
        )
        assert before & {"Complete", "Failed"} <= now
        assert status["failed"] >= self.shown.get("failed", 0)
        assert status["ready"] <= status["active"]
        assert ("Complete" in now) == ("SuccessCriteriaMet" in now) == ("completionTime" in status)
        assert ("Failed" in now) == ("FailureTarget" in now)
        if now & {"Complete", "Failed"}:
            assert (len(now), status["active"]) == (2, 0)
            assert status["startTime"] is not None
            assert status.get("completionTime", status["startTime"]) >= status["startTime"]
        self.shown = status

    def check(self) -> None:
        conditions = self.manifest.get("status", {}).get("conditions", [])
        kinds = [condition["type"] for condition in conditions]
        assert len(kinds) == len(set(kinds))
        ends = [c for c in conditions if c["type"] in ENDS and c["status"] == "True"]
        assert len(ends) <= 1
        if self.end is not None:
            assert ends == [self.end]
        self.end = ends[0] if ends else None
        held = {c["type"] for c in conditions if c["status"] == "True"}
        if self.end:
            assert not held & {"Running", "Restarting"}
        assert not {"Running", "Restarting"} <= held


@given(moves, shapes, policies, st.sampled_from([None, 0, 2]), st.sampled_from([None, 60]))
def test_a_job_ends_at_most_once(moves, shape, policy, backoff_limit, deadline):
    life = born(shape, policy, backoffLimit=backoff_limit, activeDeadlineSeconds=deadline)
    for move in moves:
        life.run(lost=life.move(*move))


@given(moves, shapes, policies)
def test_a_job_whose_pods_all_succeed_in_the_end_has_ended(moves, shape, policy):
    life = born(shape, policy)
    for move in moves:
        life.run(lost=life.move(*move))
    life.manifest["spec"].pop("runPolicy", None)
    for name, look in list(life.looks.items()):
        if look.get("deleting") or look["phase"] not in ENDS:
            del life.looks[name]
    for _ in range(3 * REPLICAS):  # a failed pod is deleted, is gone, and is made again
        life.now += PAUSE_MOST
        life.run(lost=False)
        life.looks = {n: look for n, look in life.looks.items() if not look.get("deleting")}
        for _ in range(REPLICAS):
            life.create(0)
        for look in life.looks.values():
            if look["phase"] == "Pending":
                look |= {"phase": "Succeeded", "exit_code": 0}
    assert life.end is not None


@given(st.permutations(range(REPLICAS)), st.lists(st.sampled_from(["Running", "Failed"])))
def test_passes_settle(order, phases):
    """Passes over an unchanged cluster stop writing after the second."""
    pods = [pod(f"ddp-worker-{i}", phase) for i, phase in zip(order, phases, strict=False)]
    manifest = settled(job({"Worker": role(REPLICAS)}), pods, times=2)
    again = KIND.reconcile(manifest, pods, frozenset(), NOW + 1)
    assert again.status is None
    assert written(manifest, again) == manifest
    assert KIND.reconcile(manifest, pods[::-1], frozenset(), NOW + 1) == again

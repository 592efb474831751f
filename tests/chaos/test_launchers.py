"""What the judge asks of jobs with a launcher."""

from __future__ import annotations

import pytest

from extender.chaos import claims, workloads
from extender.chaos.launchers import Launchers
from extender.chaos.settled import Settled
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core.api import CONFIG_MAPS, MPI_JOBS, OLD_MPI_JOBS, PODS, SECRETS, VOLCANO_GROUPS
from extender.sim.history import Change
from extender.sim.store import Store

NEW, OLD = (
    next(each for each in workloads.MPI_KINDS if each.resource == kind)
    for kind in (MPI_JOBS, OLD_MPI_JOBS)
)


def job(kind=NEW, size=3, **more):
    """A launcher and two workers."""
    made = workloads.job(Workload("j", "job", gpus=1, size=size, least=size, kind=kind, **more))
    made["metadata"]["uid"] = "job"
    return made


def owned(name, kind=NEW, **more):
    made = kind.resource
    owner = {"apiVersion": made.api_version, "kind": made.kind, "name": "j", "uid": "job"}
    meta = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner | {"controller": True}]}
    return {"metadata": meta, "spec": {}, **more}


def change(obj, resource=PODS):
    return Change(1, resource, (NAMESPACE, obj["metadata"]["name"]), "ADDED", obj, None)


def launchers(*phases):
    """Of a job of which these pods have been in these phases; and what is said of it."""
    said: list[str] = []
    watched = Launchers(lambda invariant, message: said.append(f"{invariant} {message}"))
    for name, phase in phases:
        watched.pod(change(owned(name, status={"phase": phase})))
    return watched, said


@pytest.mark.parametrize(
    ("name", "phase", "verdict", "violations"),
    [
        ("j-launcher", "Succeeded", "Succeeded", []),
        ("j-launcher", "Running", "Succeeded", ["I6 job j has succeeded, and not its launcher"]),
        ("j-worker-0", "Succeeded", "Succeeded", ["I6 job j has succeeded, and not its launcher"]),
        ("j-launcher", "Failed", "Failed", []),
    ],
)
def test_a_job_succeeds_with_its_launcher(name, phase, verdict, violations):
    watched, said = launchers((name, phase))
    watched.ended(job(), verdict)
    assert said == violations


@pytest.mark.parametrize(
    ("kind", "had", "violations"),
    [
        (OLD, [], ["I6 j-worker-0 is created before j-config"]),
        (OLD, [CONFIG_MAPS], []),
        (NEW, [CONFIG_MAPS], ["I6 j-worker-0 is created before j-ssh"]),
        (NEW, [CONFIG_MAPS, SECRETS], []),
        (workloads.PYTORCH, [], []),
    ],
)
def test_what_a_job_s_pods_come_after(kind, had, violations):
    watched, said = launchers()
    for resource in had:
        watched.belonging(change(owned("it", kind), resource))
    watched.created(owned("j-worker-0", kind))
    assert said == violations


EARLY = ["I6 j-launcher is bound, and 1 of 2 workers have run"]


@pytest.mark.parametrize(
    ("ran", "least", "waits", "violations"),
    [
        (1, 3, True, EARLY),
        (2, 3, True, []),
        (1, 1, True, []),
        (1, 3, False, []),
    ],
)
def test_when_a_launcher_may_be_bound(ran, least, waits, violations):
    watched, said = launchers(*((f"j-worker-{index}", "Running") for index in range(ran)))
    made = job(waits=waits)
    made["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": least}
    watched.bound(owned("j-worker-1"), MPI_JOBS, made)
    assert said == []
    watched.bound(owned("j-launcher"), MPI_JOBS, made)
    assert said == violations


def settled(hosts, *, keys=True, launcher="Running"):
    """What is wrong with a job whose file names these hosts."""
    ids = iter(range(1000))
    store = Store(lambda: 0.0, lambda: f"uid-{next(ids)}")
    made = store.create(MPI_JOBS, NAMESPACE, job())
    uid = made["metadata"]["uid"]
    group = {"metadata": {"name": "j", "namespace": NAMESPACE}, "spec": {"minMember": 3}}
    store.create(VOLCANO_GROUPS, NAMESPACE, group)
    hostfile = "".join(f"{host}.j.default.svc slots=1\n" for host in hosts)
    files = owned("j-config", data={"hostfile": hostfile})
    bodies = [(CONFIG_MAPS, files), *([(SECRETS, owned("j-ssh"))] if keys else [])]
    for resource, body in bodies:
        body["metadata"]["ownerReferences"][0]["uid"] = uid
        store.create(resource, NAMESPACE, body)
    pod = owned(
        "j-launcher", spec={"nodeName": "n0", "containers": [{"name": "main", "image": "train"}]}
    )
    pod["metadata"]["ownerReferences"][0]["uid"] = uid
    store.create(PODS, NAMESPACE, pod)

    def phase(old):
        return {**old, "status": {"phase": launcher}}

    store.replace(PODS, NAMESPACE, "j-launcher", phase, subresource="status")
    found = Settled(store, NAMESPACE, set(), set(), lambda job: False).problems()
    return [message for _, message in found if "job j" in message]


def test_what_a_job_with_a_launcher_has_at_rest():
    workers = ["j-worker-0", "j-worker-1"]
    assert settled(workers) == []
    assert settled(["j-launcher", *workers]) == []
    (said,) = settled(workers[:1])
    assert said.endswith("its hostfile names ['j-launcher', 'j-worker-0']")
    assert settled(workers, keys=False) == ["job j has no Secret"]
    assert settled(workers, launcher="Succeeded") == [
        "the launcher of job j has succeeded, and it goes on"
    ]


def test_the_names_of_a_job_s_pods():
    names = ["j-launcher", "j-worker-0", "j-worker-1"]
    assert list(claims.replicas(MPI_JOBS, job())) == names
    assert [claims.role_of(job(), name) for name in names] == ["launcher", "worker", "worker"]

"""Stories that bring about what faults at random seldom would. Each is a ``Scene`` of a run."""

from __future__ import annotations

from extender.chaos import claims, workloads
from extender.chaos.clock import later
from extender.chaos.plant import NAMESPACE as OWN
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import api
from extender.kube.label import LEADER_LABEL
from extender.sim.kubelet import EXIT_CODE, RUN_SECONDS


def when(plant, happens, act):
    """Act once, as soon as a change of the store is what is waited for."""
    told = plant.judge.changed
    left = [act]

    def changed(change, author, request):
        told(change, author, request)
        if left and happens(change):
            plant.loop.call_soon(left.pop())

    plant.judge.changed = changed


def binds(change):
    if change.resource != api.PODS or not claims.node_of(change.object):
        return False
    return change.previous is None or not claims.node_of(change.previous)


def a_place_is_taken_at_the_barrier(plant, users, faults):
    """S5: while members wait at /bind, somebody else binds a pod onto the node of one of them."""
    _at_the_barrier(
        plant,
        users,
        lambda node: plant.store.create(
            api.PODS, NAMESPACE, workloads.foreign("foreign-1", node, 1)
        ),
    )


def a_node_shrinks_at_the_barrier(plant, users, faults):
    """While members wait at /bind, the node of one of them loses its GPU."""
    body = {"status": {"allocatable": {workloads.GPU: "0"}}}
    _at_the_barrier(plant, users, lambda node: users.patch_node(node, body, "status"))


def _at_the_barrier(plant, users, act):
    """Call with the node of the first of three members that has come to /bind."""
    for number in range(3):
        users.add_node(f"n{number}", 1)
    opened = plant.judge.bind_opened

    def bind_opened(link, uid):
        opened(link, uid)
        plant.judge.bind_opened = opened
        act(
            next(
                pod["status"]["nominatedNodeName"]
                for pod in plant.store.list(api.PODS, NAMESPACE)
                if pod["metadata"]["uid"] == uid
            )
        )

    plant.judge.bind_opened = bind_opened
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_place_is_taken_while_a_binding_is_refused(plant, users, faults):
    """The API server refuses all for a while, in which another scheduler fills the node."""
    users.add_node("n0", 1)
    sent = plant.sent

    def first(link, request):
        sent(link, request)
        if request.path.endswith("/binding"):
            plant.sent = sent
            plant.weather.refused = 1.0
            plant.store.create(api.PODS, NAMESPACE, workloads.foreign("foreign-1", "n0", 1))
            later(3.0, clear)

    def clear():
        plant.weather.refused = 0.0

    plant.sent = first
    users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))


def a_commit_is_cut_in_two(plant, users, faults):
    """As the first member is bound, all other nodes go."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def strike():
        used = {claims.node_of(pod) for pod in plant.store.list(api.PODS, NAMESPACE)}
        for pod in plant.store.list(api.PODS, NAMESPACE):
            if not claims.node_of(pod):
                plant.store.delete(api.PODS, NAMESPACE, pod["metadata"]["name"])
        for node in plant.store.list(api.NODES):
            if node["metadata"]["name"] not in used:
                users.remove_node(node["metadata"]["name"])

    when(plant, binds, strike)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_late_request_takes_the_label_off(plant, users, faults):
    """It was sent before its pod came to lead, and arrives after."""
    users.add_node("n0", 1)

    def strike():
        for pod in plant.replicas:
            users.patch(api.PODS, OWN, pod, {"metadata": {"labels": None}})
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    def labelled(change):
        return LEADER_LABEL in (change.object["metadata"].get("labels") or {})

    when(plant, labelled, strike)


def a_failed_job_loses_its_failed_pods(plant, users, faults):
    """The job has said that it has failed, and who saw it fail is gone, too."""
    users.add_node("n0", 2)
    work = Workload("j", "job", gpus=1, size=2, least=2, seconds=5.0, exit_code=1)

    def ended(change):
        return change.resource == api.PYTORCH_JOBS and claims.verdict(change.object)

    def strike():
        for pod in users.pods():
            users.delete(api.PODS, pod["metadata"]["name"])
        for replica in plant.replicas:
            plant.kill_replica(replica)
        # The story goes on until it is placed, by a leader of which the job is seen, too.
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    when(plant, ended, strike)
    users.works[work.name] = work
    body = workloads.job(work)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = "Never"
    users.create(api.PYTORCH_JOBS, body)


def a_caller_leaves_at_the_barrier(plant, users, faults):
    """kube-scheduler's first call of /bind breaks while the others are still to come."""
    for number in range(3):
        users.add_node(f"n{number}", 1)
    for replica in plant.replicas.values():
        _break_first_bind(replica)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def _break_first_bind(replica):
    ask = replica.ask

    def once(verb, body, answer):
        handler = ask(verb, body, answer)
        if verb == "bind":
            replica.ask = ask
            later(0.0005, handler.cancel)
        return handler

    replica.ask = once


def a_replica_finishes_before_its_job(plant, users, faults):
    """Much later its pod is removed by somebody, and whoever saw it finish is gone, too."""
    users.add_node("n0", 2)
    work = Workload("j", "job", gpus=1, size=2, least=2)
    users.works[work.name] = work
    body = workloads.job(work)
    template = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    brief = {"metadata": {"annotations": {RUN_SECONDS: "5", EXIT_CODE: "0"}}}
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {**template, **brief}

    def finished(change):
        return change.resource == api.PODS and claims.phase(change.object) == "Succeeded"

    def strike():
        later(70.0, users.delete, api.PODS, "j-worker-0")
        later(70.1, all_die)

    def all_die():
        for replica in plant.replicas:
            plant.kill_replica(replica)
        # The story goes on until a later leader has seen the job.
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    when(plant, finished, strike)
    users.create(api.PYTORCH_JOBS, body)


def a_leader_dies_with_a_plan(plant, users, faults):
    """The plan is written and some of its members wait at the barrier when the leader dies."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def planned(change):
        return change.resource == api.GANG_PLANS

    def strike():
        plant.kill_replica(_leader(plant).pod)

    when(plant, planned, strike)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_minimum_is_raised(plant, users, faults):
    """While the gang waits for room that only comes afterwards, and not for all of it."""
    users.add_node("n0", 1)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=2, rollback=True))

    def waits(change):
        return (
            change.resource == api.VOLCANO_GROUPS
            and (change.object.get("status") or {}).get("conditions") is not None
        )

    def strike():
        body = {"spec": {"minMember": 3}}
        users.patch(api.VOLCANO_GROUPS, NAMESPACE, "g", body)
        later(5.0, users.add_node, "n1", 1)

    when(plant, waits, strike)


def somebody_may_preempt(plant, users, faults):
    """A gang fills the cluster, and a pod of a higher priority comes."""
    users.add_node("n0", 2)
    users.add_node("n1", 2)
    users.submit(Workload("g", "volcano", gpus=1, size=4, least=4))
    left = [4]

    def full(change):
        if binds(change):
            left[0] -= 1
        return left[0] == 0

    def strike():
        users.submit(Workload("p", "plain", gpus=2, size=1, least=1, priority="high"))

    when(plant, full, strike)


def a_leader_is_paused_with_a_plan(plant, users, faults):
    """In the middle of what it does, and longer than the Lease lasts."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def planned(change):
        return change.resource == api.GANG_PLANS

    def strike():
        leader = _leader(plant)
        steps = plant.rng("story").randint(1, 40)
        leader.process.strike(steps, leader.process.pause)
        later(20.0, leader.process.resume)

    when(plant, planned, strike)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_leader_is_not_heard(plant, users, faults):
    """It sees all that happens, and what it says does not arrive, for longer than the Lease lasts."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def leads(change):
        return LEADER_LABEL in (change.object["metadata"].get("labels") or {})

    def strike():
        leader = _leader(plant)
        leader.link.mute = True
        later(13.0, users.submit, Workload("g", "volcano", gpus=1, size=3, least=3))

    when(plant, leads, strike)


def _leader(plant):
    return next(each for each in plant.replicas.values() if each.elector.may_write())


def pods_come_and_go(plant, users, faults):
    """Three gangs one after the other that fill the cluster, and end."""
    users.add_node("n0", 2)
    for number in range(3):
        users.submit(Workload(f"g{number}", "volcano", gpus=1, size=2, least=2, seconds=5.0))


def a_watch_misses_a_deletion(plant, users, faults):
    """A gang goes while every watch is broken and the server forgets."""
    users.add_node("n0", 2)
    users.submit(Workload("g", "volcano", gpus=1, size=2, least=2))
    left = [2]

    def bound(change):
        if binds(change):
            left[0] -= 1
        return left[0] == 0

    def strike():
        for link in plant.links.values():
            link.deaf = True
        plant.weather.forgotten = 1.0
        users.withdraw(users.works["g"])
        for pod in list(plant.store.list(api.PODS, NAMESPACE)):
            users.delete(api.PODS, pod["metadata"]["name"], grace=0)
        later(5.0, users.submit, Workload("h", "volcano", gpus=1, size=2, least=2))
        later(8.0, mend)

    def mend():
        for link in plant.links.values():
            link.deaf = False

    when(plant, bound, strike)


def a_list_of_hosts_has_to_wait(plant, users, faults):
    """Somebody else's ConfigMap has the name of the job's own for a while."""
    users.add_node("n0", 4)
    users.create(api.CONFIG_MAPS, {"metadata": {"name": "j-config", "namespace": NAMESPACE}})
    kind = workloads.MPI_KINDS[0]
    users.submit(Workload("j", "job", gpus=1, size=3, least=3, kind=kind))
    later(20.0, users.delete, api.CONFIG_MAPS, "j-config")


def a_launcher_waits_for_its_workers(plant, users, faults):
    users.add_node("n0", 4)
    kind = next(each for each in workloads.MPI_KINDS if each.resource == api.MPI_JOBS)
    users.submit(Workload("j", "job", gpus=1, size=3, least=3, kind=kind, waits=True))


def gpus_are_shared(plant, users, faults):
    """Room for three pods in all, and on no device for two of them."""
    users.add_node("n0", 0, devices=2)
    users.submit(Workload("g", "volcano", gpus=0, size=3, least=3, milli=600))

"""A training job as the lifecycle reads it: defaulted, checked, the same for every kind.

Source: kubeflow/trainer v1.9.4, pkg/apis/kubeflow.org/v1 (defaults, RunPolicy) and its webhooks.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from extender.core.errors import Faults, InvalidObject
from extender.core.framework import Replica
from extender.core.objects import Labels, Manifest
from extender.jobs import fields

#: As many members as one plan's record holds within the API server's limit of an object.
MOST_REPLICAS: Final = 10_000
#: A Service is named as the pod of its replica, and a Service's name is a DNS-1035 label.
DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
CLEAN_POD_POLICIES: Final = ("None", "Running", "All")


class RunPolicy(Struct, frozen=True):
    """kubeflow.org/v1 RunPolicy. Durations are seconds; None means no limit."""

    clean_pods: str = "None"
    ttl: int | None = None
    deadline: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""
    min_resources: Manifest = {}
    schedule_timeout: int | None = None


class Role(Struct, frozen=True):
    """One replica type."""

    #: As the API spells it, e.g. ``Worker``; the pods carry it in lower case.
    type: str
    replicas: int
    restart_policy: str
    #: The user's pod template; shared with the job's manifest, never changed.
    template: Manifest
    #: Of the default container: the port of the kind's port name, or the kind's default.
    port: int

    @property
    def name(self) -> str:
        """The role in names and labels."""
        return self.type.lower()


class TrainingJob(Struct, frozen=True):
    """A valid job. ``roles`` are in the kind's order, without those of zero replicas."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    labels: Labels
    annotations: Labels
    roles: tuple[Role, ...]
    policy: RunPolicy
    spec: Manifest
    #: Roles, in lower case, whose one pod has no index in its name.
    single: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Replicas over all roles."""
        return sum(role.replicas for role in self.roles)

    def role(self, name: str) -> Role | None:
        """The role of this lower-case name."""
        return next((role for role in self.roles if role.name == name), None)

    def pod_name(self, role: str, index: int) -> str:
        """Name of a replica's pod and Service."""
        return f"{self.name}-{role}" if role in self.single else f"{self.name}-{role}-{index}"

    def replicas(self) -> list[Replica]:
        """All replicas, in order of role and index."""
        return [
            Replica(name, index, self.pod_name(name, index))
            for name, role in ((role.name, role) for role in self.roles)
            for index in range(role.replicas)
        ]


class KindFacts(Struct, frozen=True):
    """What tells one kind of training job from another in its manifest."""

    api_version: str
    kind: str
    #: Field of spec that holds the replica types, e.g. ``pytorchReplicaSpecs``.
    specs_key: str
    #: Replica types in order of placement and of precedence.
    roles: tuple[str, ...]
    #: Name of the default container; "" is the first, whatever it is called.
    container: str
    #: "" for a kind that has no port of its own.
    port_name: str
    port: int
    restart_policy: str
    #: Label training.kubeflow.org/operator-name.
    operator: str
    #: Of ``roles``, those that speak for the whole job where it has one.
    heads: tuple[str, ...] = ("Master",)
    #: Of ``roles``, those that the others do not wait for: their ends restart nobody else.
    aside: tuple[str, ...] = ()
    #: Whether worker 0 carries the label job-role: master where there is no head.
    worker_leads: bool = True
    #: Whether every container gets the environment, not only the default one.
    env_everywhere: bool = True
    #: Where a replica type differs: its restart policy, and its replicas, if it names none.
    restart_policies: dict[str, str] = {}
    replicas: dict[str, int] = {}
    #: Replica types of which there is one, whose pod has no index in its name.
    single: tuple[str, ...] = ()


def read_policy(job: Manifest, faults: Faults) -> RunPolicy:
    """spec.runPolicy with its defaults; a cleanPodPolicy in spec itself counts where it has none.

    A field that cannot be read is among the faults, and has its default.
    """
    keep = faults.keep
    spec = keep({}, fields.mapping, job, "spec", "")
    policy = keep({}, fields.mapping, spec, "runPolicy", "spec")
    path = "spec.runPolicy"
    outer = keep("None", fields.choice, spec, "cleanPodPolicy", "spec", CLEAN_POD_POLICIES, "None")
    clean = keep(outer, fields.choice, policy, "cleanPodPolicy", path, CLEAN_POD_POLICIES, outer)
    scheduling = keep({}, fields.mapping, policy, "schedulingPolicy", path)
    of_gang = f"{path}.schedulingPolicy"
    return RunPolicy(
        clean_pods=clean,
        ttl=keep(None, fields.whole, policy, "ttlSecondsAfterFinished", path),
        deadline=keep(None, fields.whole, policy, "activeDeadlineSeconds", path),
        backoff_limit=keep(None, fields.whole, policy, "backoffLimit", path),
        suspend=keep(False, fields.flag, policy, "suspend", path),
        min_available=keep(None, fields.whole, scheduling, "minAvailable", of_gang, least=1),
        queue=keep("", fields.text, scheduling, "queue", of_gang),
        priority_class=keep("", fields.text, scheduling, "priorityClass", of_gang),
        min_resources=keep({}, fields.mapping, scheduling, "minResources", of_gang),
        schedule_timeout=keep(None, fields.whole, scheduling, "scheduleTimeoutSeconds", of_gang),
    )


def read(job: Manifest, facts: KindFacts, faults: Faults) -> TrainingJob | None:
    """Default and check a job; None where it cannot be told which replicas it has.

    Replica types are matched without regard to case; one of zero replicas is as if absent.

    What is wrong is among the faults, and something valid stands in its place. Raises InvalidObject where
    nothing can.
    """
    spec = fields.mapping(job, "spec", "")
    policy = read_policy(job, faults)
    roles = _read_roles(spec, facts, faults)
    if roles is None:
        return None
    metadata = job["metadata"]
    read_job = TrainingJob(
        api_version=facts.api_version,
        kind=facts.kind,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        roles=roles,
        policy=policy,
        spec=spec,
        single=tuple(role.lower() for role in facts.single),
    )
    with faults:
        _check_totals(read_job, f"spec.{facts.specs_key}")
    with faults:
        _check_names(read_job)
    return read_job


def _check_totals(job: TrainingJob, path: str) -> None:
    least = job.policy.min_available
    if least is not None and least > job.total:
        where = "spec.runPolicy.schedulingPolicy.minAvailable"
        raise InvalidObject(where, least, f"at most the number of replicas ({job.total})")
    if job.total > MOST_REPLICAS:
        raise InvalidObject(path, job.total, f"at most {MOST_REPLICAS} replicas in all")


def _check_names(job: TrainingJob) -> None:
    for role in job.roles:
        name = job.pod_name(role.name, role.replicas - 1)
        if not DNS_1035.fullmatch(name):
            raise InvalidObject(
                "metadata.name",
                job.name,
                f"a DNS-1035 label; {name}, the name of a pod and its Service, has to be one too"
                " (lower case letters, digits and -, a letter first, at most 63 characters)",
            )


def _read_roles(spec: Manifest, facts: KindFacts, faults: Faults) -> tuple[Role, ...] | None:
    """None where a type or a number of replicas cannot be read: how many there are is not known."""
    path = f"spec.{facts.specs_key}"
    given = fields.mapping(spec, facts.specs_key, "spec")
    allowed = f"at least one replica type of {', '.join(facts.roles)}"
    if not given:
        raise InvalidObject(path, spec.get(facts.specs_key), allowed)
    canonical = {role.lower(): role for role in facts.roles}
    before = len(faults)
    keys: dict[str, str] = {}
    counts: dict[str, int] = {}
    for key in given:
        with faults:
            role = canonical.get(key.lower())
            if role is None:
                raise InvalidObject(path, key, f"only the replica types {', '.join(facts.roles)}")
            if role in keys:
                raise InvalidObject(path, key, f"replica type {role} only once")
            count = fields.whole(fields.mapping(given, key, path), "replicas", f"{path}.{key}")
            counts[role] = facts.replicas.get(role, 1) if count is None else count
            keys[role] = key
    known = len(faults) == before
    found = {
        role: _read_role(given[key] or {}, role, counts[role], f"{path}.{key}", facts, faults)
        for role, key in keys.items()
    }
    if not known:
        return None
    roles = tuple(found[role] for role in facts.roles if role in found and found[role].replicas)
    if not roles:
        raise InvalidObject(path, dict.fromkeys(given, 0), "at least one replica")
    return roles


def _read_role(
    given: Manifest, type_: str, replicas: int, path: str, facts: KindFacts, faults: Faults
) -> Role:
    before = len(faults)
    port = faults.keep(facts.port, _read_template, given, path, facts, faults)
    template: Manifest = given.get("template") or {}
    if len(faults) != before:
        container = {"name": facts.container or "main", "image": "unknown"}
        template = {"spec": {"containers": [container]}}
    policy = facts.restart_policies.get(type_, facts.restart_policy)
    return Role(
        type=type_,
        replicas=replicas,
        restart_policy=faults.keep(
            policy, fields.choice, given, "restartPolicy", path, RESTART_POLICIES, policy
        ),
        template=template,
        port=port,
    )


def _read_template(role: Manifest, path: str, facts: KindFacts, faults: Faults) -> int:
    """The port of a role's default container. Raises InvalidObject for a template without one."""
    template = fields.mapping(role, "template", path)
    spec = fields.mapping(template, "spec", f"{path}.template")
    with faults:
        meta = fields.mapping(template, "metadata", f"{path}.template")
        for key in ("labels", "annotations"):
            fields.mapping(meta, key, f"{path}.template.metadata")
    where = f"{path}.template.spec"
    containers = fields.items(spec, "containers", where)
    names = [
        fields.text(container, "name", f"{where}.containers[{index}]")
        for index, container in enumerate(containers)
    ]
    if not facts.container and not names:
        raise InvalidObject(f"{where}.containers", names, "at least one container")
    default = facts.container or names[0]
    for index, container in enumerate(containers):
        with faults:
            fields.items(container, "env", f"{where}.containers[{index}]")
        with faults:
            _check_image(container, f"{where}.containers[{index}]")
    if default not in names:
        raise InvalidObject(
            f"{where}.containers", names, f"one container has to be named {default}"
        )
    main = names.index(default)
    at_main = f"{where}.containers[{main}]"
    numbers: dict[str | None, int] = {}
    for index, port in enumerate(fields.items(containers[main], "ports", at_main)):
        with faults:
            number = _read_port(port, f"{at_main}.ports[{index}]")
            numbers[port.get("name")] = number
    return numbers.get(facts.port_name, facts.port)


def _check_image(container: Manifest, path: str) -> None:
    if not fields.text(container, "image", path):
        raise InvalidObject(f"{path}.image", container.get("image"), "the name of an image")


def _read_port(port: Manifest, path: str) -> int:
    fields.text(port, "name", path)
    number = fields.whole(port, "containerPort", path, least=1)
    if number is None:
        raise InvalidObject(f"{path}.containerPort", None, "the number of a port")
    return number

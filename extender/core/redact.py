"""Events and commands without what may be secret, for logs that leave the cluster.

What people put into containers (environment, arguments, probes), volumes and annotations of their
own never decides where a pod goes: each text is replaced by a mark. The core hands it on unread, so it
gives for the redacted events what the redacted commands say. Equal texts have equal marks, so that
a change is still seen; what a mark stands for cannot be guessed and tried without the key, which is
written nowhere. Secret objects are neither watched nor decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import NoneType
from typing import Any, Final

from msgspec.structs import replace

from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core import scripts
from extender.core.api import CONFIG_MAPS, GANG_PLANS, MUSTER_GROUP
from extender.core.topology.kubelet_shares import COUNT_ANNOTATION, MILLI_ANNOTATION
from extender.core.topology.registers import INDEX_ANNOTATION

#: What a mark begins with; as many hex digits follow.
MARK: Final = "***"
_DIGEST_BYTES = 6

#: Annotations of these domains are read or written by Muster, and kept.
DOMAINS: Final = frozenset(
    {
        MUSTER_GROUP,
        "gang.scheduling.koordinator.sh",
        "hami.io",
        "kueue.x-k8s.io",
        "pod-group.scheduling.sigs.k8s.io",
        "scheduling.k8s.io",
        "scheduling.volcano.sh",
        "scheduling.x-k8s.io",
        "training.kubeflow.org",
        "volcano.sh",
    }
)
#: The same of others' domains.
ANNOTATIONS: Final = frozenset({MILLI_ANNOTATION, COUNT_ANNOTATION, INDEX_ANNOTATION})
#: Environment that job kinds set, and values whose names begin so: what ranks were given is the
#: point of a log.
ENVIRONMENT: Final = frozenset(
    {
        "MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED", "RANK", "WORLD_SIZE",
        "TF_CONFIG",
        "WORKER_ADDRS", "WORKER_PORT",
        "COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID",
        "PADDLE_JOB_ID", "PADDLE_MASTER", "PADDLE_NNODES", "PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM",
        "POD_IP_DUMMY",
        "K_MPI_JOB_ROLE", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES",
        "HYDRA_HOST_FILE", "HYDRA_LAUNCH_EXTRA_ARGS",
        "I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "I_MPI_HYDRA_HOST_FILE", "I_MPI_PERHOST",
        "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots", "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_rsh_args",
        "NAMESPACE", "TARGET_DIR",
    }
)  # fmt: skip
ENVIRONMENT_PREFIX: Final = "PET_"

#: Whose objects, as Muster writes them, hold nothing of anybody else.
_OWN: Final = (GANG_PLANS, CONFIG_MAPS)
_SCALAR = (str, int, float, NoneType)
_CONTAINERS = frozenset({"containers", "initContainers", "ephemeralContainers"})
#: Fields of a container, a volume and a variable that are kept.
_OF_CONTAINER = frozenset(
    {
        "name", "image", "imagePullPolicy", "resources", "resizePolicy", "ports", "restartPolicy",
        "volumeMounts",
    }
)  # fmt: skip
#: Of a Secret or a ConfigMap a pod names what it mounts, and nothing that is in it.
_OF_VOLUME = frozenset(
    {"name", "persistentVolumeClaim", "ephemeral", "configMap", "emptyDir", "secret"}
)
#: What job kinds give a container that says nothing itself.
_OWN_COMMANDS: Final = (["/usr/sbin/sshd", "-De"], ["sleep"], ["365d"])
_OF_VARIABLE = frozenset({"name", "valueFrom"})
#: Of what others have made: a ConfigMap that Muster makes is names of pods, a Secret has no data yet.
_DATA = frozenset({"data", "stringData", "binaryData"})


class Redactor:
    """Redacts with one key, of up to 64 bytes, that is random and kept to the process."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._events: dict[type[e.Event], Callable[[Any], e.Event]] = {
            e.NodeSeen: lambda x: replace(x, node=self._named(x.node)),
            e.ZonesSeen: lambda x: replace(x, zones=self._named(x.zones)),
            e.HyperNodeSeen: lambda x: replace(x, hyper=self._named(x.hyper)),
            e.TopologySeen: lambda x: replace(x, topology=self._named(x.topology)),
            e.PodSeen: lambda x: replace(x, pod=self._pod(x.pod)),
            e.GroupSeen: lambda x: replace(x, group=self._named(x.group)),
            e.PlanSeen: lambda x: replace(x, raw=self._plan(x.raw)),
            e.JobSeen: lambda x: replace(x, raw=self.manifest(x.raw)),
            e.ServiceSeen: lambda x: replace(x, metadata=self._meta(x.metadata)),
            e.NamespaceSeen: lambda x: replace(x, namespace=self._named(x.namespace)),
            e.ClaimSeen: lambda x: replace(x, claim=self._named(x.claim)),
            e.VolumeSeen: lambda x: replace(x, volume=self._named(x.volume)),
            e.PriorityClassSeen: lambda x: replace(x, priority_class=self._named(x.priority_class)),
            e.Done: self._done,
        }

    def event(self, told: e.Event) -> e.Event:
        """The event without what may be secret."""
        redact = self._events.get(type(told))
        return told if redact is None else redact(told)

    def command(self, given: c.Command) -> c.Command:
        """The command without what may be secret."""
        if isinstance(given, c.Create | c.Patch) and given.resource not in _OWN:
            return replace(given, body=self.manifest(given.body))
        return given

    def manifest(self, value: Any) -> Any:
        """A JSON value of the API, whole or in part, without what may be secret."""
        if isinstance(value, dict):
            return {
                key: inner if isinstance(inner, _SCALAR) else self._field(key, inner)
                for key, inner in value.items()
                if key != "managedFields"
            }
        if isinstance(value, list):
            return [x if isinstance(x, _SCALAR) else self.manifest(x) for x in value]
        return value

    def _field(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            if key == "annotations":
                return self._annotations(value)
            return self._marks(value) if key in _DATA else self.manifest(value)
        if isinstance(value, list):
            if key in _CONTAINERS:
                return [self._container(each) for each in value]
            if key == "volumes":
                return [self._keeping(_OF_VOLUME, each) for each in value]
            return self.manifest(value)
        return value

    def _container(self, value: Any) -> Any:
        kept = self._keeping(_OF_CONTAINER, value)
        if not isinstance(kept, dict):
            return kept
        if isinstance(kept.get("env"), list):
            kept["env"] = [self._variable(each) for each in value["env"]]
        for field in ("command", "args"):
            if _own(value.get(field)):
                kept[field] = value[field]
        return kept

    def _variable(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return self._marks(value)
        name = value.get("name")
        if isinstance(name, str) and (name in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIX)):
            return value
        return self._keeping(_OF_VARIABLE, value)

    def _keeping(self, fields: frozenset[str], value: Any) -> Any:
        if not isinstance(value, dict):
            return self._marks(value)
        return {
            key: self.manifest(inner) if key in fields else self._marks(inner)
            for key, inner in value.items()
        }

    def _marks(self, value: Any) -> Any:
        """Marks for every text and 0 for every number of it; keys and structure stay."""
        if isinstance(value, dict):
            return {key: self._marks(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._marks(inner) for inner in value]
        if isinstance(value, str):
            digest = blake2b(value.encode(), key=self._key, digest_size=_DIGEST_BYTES)
            return MARK + digest.hexdigest()
        return value if value is None or isinstance(value, bool) else 0

    def _annotations(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        if all(map(_kept, found)):
            return found
        return {key: value if _kept(key) else self._marks(value) for key, value in found.items()}

    # Of objects decoded to fields: annotations, and what a container said at its end.

    def _meta(self, found: o.Meta) -> o.Meta:
        kept = self._annotations(found.annotations)
        return found if kept is found.annotations else replace(found, annotations=kept)

    def _named(self, found: Any) -> Any:
        kept = self._meta(found.metadata)
        return found if kept is found.metadata else replace(found, metadata=kept)

    def _pod(self, found: o.Pod) -> o.Pod:
        pod: o.Pod = self._named(found)
        status, spec = pod.status, pod.spec
        if any(map(_said, (*status.container_statuses, *status.init_container_statuses))):
            status = replace(
                status,
                container_statuses=tuple(map(_unsaid, status.container_statuses)),
                init_container_statuses=tuple(map(_unsaid, status.init_container_statuses)),
            )
        if any(volume.ephemeral for volume in spec.volumes):
            volumes = (replace(x, ephemeral=self.manifest(x.ephemeral)) for x in spec.volumes)
            spec = replace(spec, volumes=tuple(volumes))
        if status is pod.status and spec is pod.spec:
            return pod
        return replace(pod, spec=spec, status=status)

    def _plan(self, raw: o.Manifest) -> o.Manifest:
        """All but its metadata is Muster's own, and long."""
        return {key: self.manifest(x) if key == "metadata" else x for key, x in raw.items()}

    def _done(self, told: e.Done) -> e.Done:
        return told if told.object is None else replace(told, object=self.manifest(told.object))


def _own(command: Any) -> bool:
    """Whether it is a command that job kinds give."""
    dials = isinstance(command, list) and len(command) > 2 and command[2] == scripts.DIAL
    return dials or command in _OWN_COMMANDS


def _said(status: o.ContainerStatus) -> bool:
    ends = (status.state.terminated, status.last_state.terminated)
    return any(end is not None and end.message for end in ends)


def _unsaid(status: o.ContainerStatus) -> o.ContainerStatus:
    return replace(status, state=_end(status.state), last_state=_end(status.last_state))


def _end(state: o.ContainerState) -> o.ContainerState:
    end = state.terminated
    return state if end is None else replace(state, terminated=replace(end, message=""))


def _kept(annotation: str) -> bool:
    return annotation.partition("/")[0] in DOMAINS or annotation in ANNOTATIONS

"""The API resources that Muster lists, watches and writes."""

from __future__ import annotations

import re

from msgspec import Struct

#: API group of Muster's own objects, labels and annotations.
MUSTER_GROUP = "scheduling.muster.dev"

_VERSION = re.compile(r"v([0-9]{1,9})(?:(alpha|beta)([0-9]{1,9}))?")
#: What a version without either is beyond.
_STAGES = ("alpha", "beta", None)


def newness(version: str) -> tuple[int, int, int, str]:
    """Greater for the newer version of an API group: v1 is newer than v2beta1, v1beta10 than v1beta9.
    Names of another form are older than all, among themselves by name.

    Source: k8s.io/apimachinery pkg/version/helpers.go (CompareKubeAwareVersionStrings).
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return -1, 0, 0, version
    major, stage, minor = found.groups()
    return _STAGES.index(stage), int(major), int(minor or 0), version


class Resource(Struct, frozen=True, order=True):
    """Where a kind of object lives in the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """URL path of the collection, of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace is not None:
            root += f"/namespaces/{namespace}"
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}/{self.plural}{tail}"


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
BATCH_JOBS = Resource("batch", "v1", "jobs", "Job")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
VOLCANO_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
SIGS_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NATIVE_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
GANG_PLANS = Resource(MUSTER_GROUP, "v1alpha1", "gangplans", "GangPlan")
#: Two versions of one object, each of which a cluster may lack.
NODE_TOPOLOGIES = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False
)
OLD_NODE_TOPOLOGIES = Resource(
    "topology.node.k8s.io", "v1alpha1", "noderesourcetopologies", "NodeResourceTopology", False
)
#: Who tells domains of the network: Volcano, Kueue.
HYPER_NODES = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", False)
TOPOLOGIES = Resource("kueue.x-k8s.io", "v1beta2", "topologies", "Topology", False)
#: All that Kueue 0.14 serves; the newer ones serve both.
OLD_TOPOLOGIES = Resource("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", False)
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
TF_JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
XGBOOST_JOBS = Resource("kubeflow.org", "v1", "xgboostjobs", "XGBoostJob")
JAX_JOBS = Resource("kubeflow.org", "v1", "jaxjobs", "JAXJob")
PADDLE_JOBS = Resource("kubeflow.org", "v1", "paddlejobs", "PaddleJob")
#: Two versions of one object, with a controller each in its time; a cluster may lack either.
MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
OLD_MPI_JOBS = Resource("kubeflow.org", "v1", "mpijobs", "MPIJob")

#: Kinds of training jobs.
JOBS = (PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS, JAX_JOBS, PADDLE_JOBS, MPI_JOBS, OLD_MPI_JOBS)

#: Kinds that a cluster may not serve; Muster works without them and starts watching one that
#: appears.
OPTIONAL = (
    VOLCANO_GROUPS,
    SIGS_GROUPS,
    NATIVE_GROUPS,
    NODE_TOPOLOGIES,
    OLD_NODE_TOPOLOGIES,
    HYPER_NODES,
    TOPOLOGIES,
    OLD_TOPOLOGIES,
    *JOBS,
)

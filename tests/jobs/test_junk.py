"""Whatever stands in a job's spec, a pass answers; it never raises."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.builders import KINDS, NOW, job, of_kind, pod, role

PYTORCH = job(
    {
        "Master": role(
            ports=[{"name": "pytorchjob-port", "containerPort": 1}, {"containerPort": 2}]
        ),
        "Worker": role(2, "ExitCode", env=[{"name": "A", "value": "b"}], resources={}),
    },
    nprocPerNode="2",
    cleanPodPolicy="All",
    elasticPolicy={
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvConf": [{"key": "a", "value": "b"}],
        "rdzvHost": "h",
        "rdzvId": "i",
        "standalone": True,
    },
    runPolicy={
        "cleanPodPolicy": "Running",
        "backoffLimit": 1,
        "activeDeadlineSeconds": 5,
        "ttlSecondsAfterFinished": 5,
        "suspend": False,
        "managedBy": "kubeflow.org/training-operator",
        "schedulingPolicy": {
            "minAvailable": 2,
            "queue": "q",
            "priorityClass": "p",
            "minResources": {"cpu": 1},
            "scheduleTimeoutSeconds": 5,
        },
    },
)["spec"]
OF_MPI = {
    "mpiImplementation": "Intel",
    "sshAuthMountPath": "/keys",
    "launcherCreationPolicy": "WaitForWorkersReady",
    "runLauncherAsWorker": True,
}
#: Of each kind one that has every field that some code reads.
SPECS = {
    "pytorch": PYTORCH,
    **{
        name: {
            **of_kind(kind, roles, "Never" if name == "mpi" else "ExitCode")["spec"],
            "runPolicy": PYTORCH["runPolicy"],
            "successPolicy": "AllWorkers",
            "enableDynamicWorker": True,
            "slotsPerWorker": 2,
            "mainContainer": "main",
            **(OF_MPI if name == "mpi" else {}),
        }
        for name, (kind, roles) in KINDS.items()
        if name != "pytorch"
    },
}


for name in ("mpi", "mpi_v1"):
    for each in SPECS[name]["mpiReplicaSpecs"].values():
        each["template"]["spec"] |= {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [{"name": "i", "image": "i"}],
            "dnsConfig": {"searches": ["s"]},
            "serviceAccountName": "own",
            "hostNetwork": True,
        }
        each["template"]["spec"]["containers"][0] |= {
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "command": ["c"],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }


def paths(value, path=()):
    """The path of every value in a JSON document."""
    yield path
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield from paths(child, (*path, key))


PATHS = [(name, path) for name, spec in SPECS.items() for path in sorted(paths(spec), key=repr)]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5), st.just(0.5), st.sampled_from(["", "x", "None"])
)
junk = st.one_of(
    scalars, st.lists(scalars, max_size=2), st.dictionaries(st.sampled_from("ab"), scalars)
)


def spoilt(spec, path, value):
    if not path:
        return value
    result = deepcopy(spec)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return result


@given(st.sampled_from(PATHS), junk)
def test_one_wrong_value(place, value):
    name, path = place
    kind, roles = KINDS[name]
    manifest = {**of_kind(kind, roles), "spec": spoilt(SPECS[name], path, value)}
    pods = [pod("ddp-master-0"), pod("ddp-worker-1", "Failed", exit_code=137)]
    for existing in ([], pods):
        step = kind.reconcile(manifest, existing, frozenset(), NOW)
        for replica in step.wanted:
            kind.pod(manifest, replica)
            if "mpi" not in name:
                kind.service(manifest, replica)
    done = {
        "conditions": [{"type": "Succeeded", "status": "True"}],
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:10Z",
    }
    kind.reconcile({**manifest, "status": done}, pods, frozenset(), NOW)

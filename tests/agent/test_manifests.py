"""manifests/agent without an API server: names agree, and the pod has no more than it needs."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import yaml

from extender import cli
from extender.agent import pulse
from extender.core.topology import annotation, devices
from extender.settings import Agent

FOLDER = Path(__file__).resolve().parents[2] / "manifests/agent"
OBJECTS = {
    document["kind"]: document
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
}


def test_names_agree():
    name, namespace = (OBJECTS[k]["metadata"]["name"] for k in ("ServiceAccount", "Namespace"))
    (subject,) = OBJECTS["ClusterRoleBinding"]["subjects"]
    assert (subject["name"], subject["namespace"]) == (name, namespace)
    role = OBJECTS["ClusterRole"]["metadata"]["name"]
    assert OBJECTS["ClusterRoleBinding"]["roleRef"]["name"] == role
    policy = OBJECTS["ValidatingAdmissionPolicy"]
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"].endswith(f'"system:serviceaccount:{namespace}:{name}"')
    bound = OBJECTS["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"]
    assert bound == policy["metadata"]["name"]
    labels = OBJECTS["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        OBJECTS["DaemonSet"]["spec"]["selector"],
        OBJECTS["NetworkPolicy"]["spec"]["podSelector"],
    ):
        assert selector["matchLabels"] == labels


def test_it_may_write_the_annotations_that_it_writes():
    (rule,) = OBJECTS["ClusterRole"]["rules"]
    assert rule == {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    variables = OBJECTS["ValidatingAdmissionPolicy"]["spec"]["variables"]
    (ours,) = (v["expression"] for v in variables if v["name"] == "ours")
    assert yaml.safe_load(ours) == [annotation.KEY, devices.KEY]


def test_the_pod_has_root_s_name_and_none_of_its_powers():
    spec = OBJECTS["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    folder = PurePosixPath(Agent().pod_resources_socket).parent
    assert {mount["mountPath"], volume["hostPath"]["path"]} == {str(folder)}


def test_the_command_line_is_one():
    (container,) = OBJECTS["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    args = cli.parser().parse_args(container["args"])
    assert (args.command, args.once) == ("agent", False)
    (port,) = container["ports"]
    probe = container["livenessProbe"]["httpGet"]
    assert (probe["path"], probe["port"]) == (pulse.PATH, port["name"])
    assert args.health_port == port["containerPort"]
    assert {"NODE_NAME"} <= {variable["name"] for variable in container["env"]}

"""What surrounds the container: network, sidecars, volumes, variables and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from extender.core.advice import Advice
from extender.core.indexes import INDEX_LABELS
from extender.core.objects import Manifest
from extender.jobs.advice.subject import Part, Subject, listed, mapping, mounts, texts, variables
from extender.jobs.fields import dig

#: Labels and taints of nodes that may be taken away, by the clouds' names: (key, value).
SPOT: Final = (
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("cloud.google.com/gke-provisioning", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
#: Volumes that end with the pod or its node, or that hold what is not written.
_PASSING: Final = frozenset(
    {
        "emptyDir",
        "ephemeral",
        "hostPath",
        "configMap",
        "secret",
        "downwardAPI",
        "projected",
        "image",
    }
)
_BUCKET: Final = re.compile(r"\b(s3a?|gs|gcs|abfss?|wasbs?|oss|hdfs|swift)://|\b(bucket|BUCKET)\b")
_INJECTS: Final = {
    "sidecar.istio.io/inject": ("true", "false"),
    "linkerd.io/inject": ("enabled", "disabled"),
}
#: Labels of a namespace in which Istio adds its proxy to every pod.
_INJECTED: Final = (("istio-injection", "enabled"),)
_LABEL: Final = re.compile(r"metadata\.labels\['([^']+)'\]")
_OURS: Final = "training.kubeflow.org/"


def host_network(subject: Subject) -> Iterator[Advice]:
    """Names of Services are resolved by the cluster's DNS."""
    for part in subject.parts:
        policy = part.pod.get("dnsPolicy")
        if part.pod.get("hostNetwork") is True and policy in (None, "ClusterFirst", "Default"):
            why = (
                "with hostNetwork the node's DNS is asked, which does not know the replicas' names"
            )
            field = f"{part.spec_path}.dnsPolicy"
            yield Advice("HostNetworkDNS", field, policy, why, "ClusterFirstWithHostNet")


def sidecar(subject: Subject) -> Iterator[Advice]:
    """A proxy beside the training."""
    why = (
        "a proxy beside the training takes the connections of its peers, and, unless it is a native"
        " sidecar, runs on when the training has ended, so that the pod never does"
    )
    everywhere = all(subject.namespace_labels.get(key) == value for key, value in _INJECTED)
    for part in subject.parts:
        meta = mapping(part.template.get("metadata"))
        marks = [
            (f"{part.path}.template.metadata.{kind}[{key}]", key, str(value).lower())
            for kind in ("labels", "annotations")
            for key, value in mapping(meta.get(kind)).items()
            if key in _INJECTS
        ]
        for field, key, value in marks:
            if value == _INJECTS[key][0]:
                yield Advice("Sidecar", field, value, why, f'"{_INJECTS[key][1]}"')
        if everywhere and not any(key == "sidecar.istio.io/inject" for _, key, _ in marks):
            field = f"{part.path}.template.metadata.labels[sidecar.istio.io/inject]"
            yield Advice("Sidecar", field, None, f"{why}; the namespace asks for it", '"false"')


def checkpoints(subject: Subject) -> Iterator[Advice]:
    """Somewhere to go on from."""
    for part in subject.parts:
        spot = _spot(part.pod)
        if spot and not _keeps(part):
            field = f"{part.spec_path}.volumes"
            why = (
                f"these pods may go to nodes that are taken away ({spot}), and nothing that they can"
                " write to outlives them: the training would begin again"
            )
            instead = (
                "a PersistentVolumeClaim that the script writes checkpoints to (nothing to do if it"
                " writes them to object storage)"
            )
            names = [each.get("name") for _, each in listed(part.pod.get("volumes"))]
            yield Advice("Checkpoints", field, names or None, why, instead)


def _spot(pod: Manifest) -> str:
    """The mark by which a pod may go to spot nodes."""
    selector = mapping(pod.get("nodeSelector"))
    affinity = dig(pod, "affinity", "nodeAffinity")
    required = dig(affinity, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    asked = [
        (each.get("key"), value)
        for _, term in listed(required)
        for _, each in listed(term.get("matchExpressions"))
        if each.get("operator") == "In"
        for value in texts(each.get("values"))
    ]
    tolerated = [(each.get("key"), each.get("value")) for _, each in listed(pod.get("tolerations"))]
    for key, value in SPOT:
        if selector.get(key) == value or (key, value) in asked:
            return f"{key}={value}"
        if (key, value) in tolerated or (key, None) in tolerated:
            return f"toleration of {key}"
    return ""


def _keeps(part: Part) -> bool:
    """Whether what it writes can outlive it."""
    for mount, volume, _ in mounts(part):
        lasting = not _PASSING & volume.keys()
        if lasting and mount.get("readOnly") is not True:
            return True
    _, main = part.main
    words = [*texts(main.get("command")), *texts(main.get("args"))]
    words += [f"{name}={value or ''}" for _, name, value in variables(main)]
    return any(_BUCKET.search(word) for word in words)


def variables_given(subject: Subject) -> Iterator[Advice]:
    """Variables that the controller gives as well."""
    for part in subject.parts:
        field, main = part.main
        for index, name, value in variables(main):
            if name in part.given and name != "PYTHONUNBUFFERED" and value != part.given[name]:
                why = "Muster gives the container this variable, and its own counts"
                yield Advice("VariableGiven", f"{field}.env[{index}]", name, why, "leave it out")


def labels(subject: Subject) -> Iterator[Advice]:
    """Variables made of labels that the pod has."""
    for part in subject.parts:
        field, main = part.main
        own = mapping(dig(part.template, "metadata", "labels"))
        for index, each in listed(main.get("env")):
            path = dig(each, "valueFrom", "fieldRef", "fieldPath")
            found = _LABEL.fullmatch(path) if isinstance(path, str) else None
            if not found or found[1] in own or found[1] in part.labels:
                continue
            # Others' controllers may add theirs.
            if part.labels and ("/" not in found[1] or found[1].startswith(_OURS)):
                right = next((key for key in part.labels if key.endswith(_ending(found[1]))), None)
                instead = f"metadata.labels['{right}']" if right else "a label that the pod has"
                at = f"{field}.env[{index}].valueFrom.fieldRef.fieldPath"
                why = f"the pod has no such label, so {each.get('name')} is empty"
                yield Advice("NoSuchLabel", at, path, why, instead)


def groups_of_one(subject: Subject) -> Iterator[Advice]:
    """Terms about the pods that have the same index: in a job there is one."""
    why = "each replica has an index of its own, so it is alone in what is to be spread, or kept together"
    for part in subject.parts:
        for field, term in _terms(part):
            keys = [key for key in texts(term.get("matchLabelKeys")) if key in INDEX_LABELS]
            if keys and part.replicas > 1:
                at = f"{field}.matchLabelKeys"
                yield Advice("GroupOfOne", at, keys[0], why, "training.kubeflow.org/job-name")


def _terms(part: Part) -> Iterator[tuple[str, Manifest]]:
    """What a pod says of others, after its field."""
    for index, each in listed(part.pod.get("topologySpreadConstraints")):
        yield f"{part.spec_path}.topologySpreadConstraints[{index}]", each
    for kind in ("podAffinity", "podAntiAffinity"):
        for when in ("required", "preferred"):
            key = f"{when}DuringSchedulingIgnoredDuringExecution"
            field = f"{part.spec_path}.affinity.{kind}.{key}"
            for index, each in listed(dig(part.pod, "affinity", kind, key)):
                if when == "required":
                    yield f"{field}[{index}]", each
                else:
                    yield f"{field}[{index}].podAffinityTerm", mapping(each.get("podAffinityTerm"))


def _ending(label: str) -> str:
    """Of a label of the training operator before 1.4 (pytorch-replica-index), what it was of."""
    found = re.search(r"(job-name|replica-type|replica-index|job-role)$", label)
    return f"/{found[0]}" if found else "\0"


def claims(subject: Subject) -> Iterator[Advice]:
    """Access modes of claims that several pods share."""
    for part in subject.parts:
        seen = []
        for mount, volume, field in mounts(part):
            source = mapping(volume.get("persistentVolumeClaim"))
            name = source.get("claimName")
            claim = subject.claims.get(name) if isinstance(name, str) else None
            modes = texts(dig(claim, "spec", "accessModes")) if claim else []
            reads = mount.get("readOnly") is True or source.get("readOnly") is True
            if modes and name not in seen:
                seen.append(name)
                sharing = _sharing(subject, str(name))
                yield from _access(modes, sharing, source, f"{field}.persistentVolumeClaim", reads)


def _sharing(subject: Subject, claim: str) -> int:
    """Pods of the workload that use a claim."""
    return sum(
        part.replicas
        for part in subject.parts
        if any(
            dig(volume, "persistentVolumeClaim", "claimName") == claim
            for _, volume in listed(part.pod.get("volumes"))
        )
    )


def _access(
    modes: list[str], sharing: int, source: Manifest, field: str, reads: bool
) -> Iterator[Advice]:
    name: Any = source.get("claimName")
    if sharing > 1 and set(modes) <= {"ReadWriteOncePod", "ReadWriteOnce"}:
        once = "ReadWriteOnce" in modes
        where = "of one node" if once else "once"
        why = f"the claim is {', '.join(modes)}: {sharing} pods share it, and it is used by pods {where} only"
        instead = "a claim of ReadWriteMany" + (", or all pods on one node" if once else "")
        yield Advice("ClaimAccess", f"{field}.claimName", name, why, instead)
    elif modes == ["ReadOnlyMany"] and not reads:
        why = f"claim {name} is ReadOnlyMany, and many drivers attach it only to pods that say they read"
        yield Advice("ClaimReadOnly", f"{field}.readOnly", source.get("readOnly"), why, "true")

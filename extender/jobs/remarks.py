"""What is said to the user of a job that is accepted, and not as it was meant."""

from __future__ import annotations

from extender.jobs import fields
from extender.jobs.model import TrainingJob
from extender.jobs.rollcall import RollCall

#: (type, reason, message) each.
Notices = tuple[tuple[str, str, str], ...]


def of_spec(job: TrainingJob) -> Notices:
    """What is accepted but not as written; said once, when the job is first seen."""
    remarks: list[tuple[str, str, str]] = []
    if job.spec.get("cleanPodPolicy"):
        inner = fields.dig(job.spec, "runPolicy", "cleanPodPolicy")
        used = "spec.runPolicy.cleanPodPolicy counts" if inner else "it is used all the same"
        message = f"spec.cleanPodPolicy belongs under spec.runPolicy; {used}"
        remarks.append(("Warning", "MisplacedField", message))
    for role in job.roles:
        own = role.template["spec"].get("restartPolicy")
        if own and own != role.restart_policy:
            message = (
                f"restartPolicy {own} in the pod template of {role.type} is overwritten by the"
                f" replica spec's ({role.restart_policy})"
            )
            remarks.append(("Warning", "SetPodTemplateRestartPolicy", message))
    return tuple(remarks)


def of_strangers(job: TrainingJob, roll: RollCall) -> Notices:
    """Pods in the way that nobody is about to remove (those of an earlier job of this name are)."""
    return tuple(
        (
            "Warning",
            "PodNameTaken",
            f"pod {pod.metadata.name} does not belong to this job; its replica waits for the name",
        )
        for pod in roll.blocked
        if not pod.metadata.deletion_timestamp
        and not any(ref.kind == job.kind for ref in pod.metadata.owner_references)
    )

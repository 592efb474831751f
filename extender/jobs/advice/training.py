"""Kubeflow's jobs, as advice looks at them."""

from __future__ import annotations

from extender.core.framework import Replica
from extender.core.objects import Manifest
from extender.jobs import fields
from extender.jobs import pods as objects
from extender.jobs.advice.subject import Part, Subject
from extender.jobs.kind import Kind
from extender.jobs.model import Role, TrainingJob


def subject(kind: Kind, job: Manifest) -> Subject:
    """The job of a kind. Raises InvalidObject if it is not valid."""
    parsed, facts = kind.valid(job), kind.facts
    written = {key.lower(): key for key in fields.mapping(parsed.spec, facts.specs_key, "spec")}
    return Subject(
        kind=facts.kind,
        name=parsed.name,
        spec=parsed.spec,
        min_available=parsed.policy.min_available,
        parts=tuple(
            Part(
                type=role.type,
                path=f"spec.{facts.specs_key}.{written[role.name]}",
                replicas=role.replicas,
                restart_policy=role.restart_policy,
                template=role.template,
                container=facts.container,
                given=_given(kind, parsed, role),
                labels={
                    **objects.labels(parsed, facts, role.name),
                    f"{objects.LABEL}replica-index": "0",
                },
            )
            for role in parsed.roles
        ),
    )


def _given(kind: Kind, job: TrainingJob, role: Role) -> dict[str, str]:
    first = Replica(role.name, 0, job.pod_name(role.name, 0))
    return {each["name"]: each.get("value", "") for each in kind.env(job, first)}

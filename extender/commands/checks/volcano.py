"""Volcano's Job, as far as advice looks at it; Muster does not run it yet.

Source: volcano-sh/volcano, pkg/apis/batch/v1alpha1 and the job plugins env and svc.
"""

from __future__ import annotations

from typing import Any

from extender.jobs.advice.subject import Part, Subject, listed, mapping

JOB = ("batch.volcano.sh/v1alpha1", "Job")


def subject(body: Any) -> Subject:
    """Its tasks; what cannot be read is left out."""
    spec, meta = mapping(mapping(body).get("spec")), mapping(mapping(body).get("metadata"))
    parts = []
    for index, task in listed(spec.get("tasks")):
        template = mapping(task.get("template"))
        count = task.get("replicas", 1)
        part = Part(
            type=str(task.get("name", index)),
            path=f"spec.tasks[{index}]",
            replicas=count if isinstance(count, int) and count > 0 else 1,
            restart_policy=str(mapping(template.get("spec")).get("restartPolicy", "Always")),
            template=template,
        )
        parts.append(part)
    least = spec.get("minAvailable")
    return Subject(
        kind="Job",
        name=str(meta.get("name", "")),
        spec=spec,
        parts=tuple(parts),
        min_available=least if isinstance(least, int) else None,
    )

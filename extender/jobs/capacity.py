"""Which replica types of a job may run on spot nodes, and which may not, as its user says."""

from __future__ import annotations

from typing import Final

from extender.core.capacity import CAPACITY, CAPACITY_TYPES
from extender.core.errors import InvalidObject
from extender.jobs.model import TrainingJob

#: Annotation of a job: replica types and where they run, e.g. ``Master=on-demand, Worker=spot``.
WISH: Final = CAPACITY


def of_role(job: TrainingJob, role: str) -> str:
    """Where replicas of a role (in lower case) run; "" for anywhere."""
    return wishes(job).get(role, "")


def wishes(job: TrainingJob) -> dict[str, str]:
    """Where replicas run, by role in lower case. Raises InvalidObject for what cannot be read."""
    found: dict[str, str] = {}
    known = {role.name: role.type for role in job.roles}
    for part in filter(None, (each.strip() for each in job.annotations.get(WISH, "").split(","))):
        role, _, kind = (word.strip() for word in part.partition("="))
        if role.lower() not in known or kind not in CAPACITY_TYPES:
            types, kinds = ", ".join(known.values()), " or ".join(CAPACITY_TYPES)
            raise InvalidObject(
                f"metadata.annotations[{WISH}]", part, f"TYPE={kinds}, with TYPE one of {types}"
            )
        found[role.lower()] = kind
    return found

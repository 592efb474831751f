"""A replica that waits, before its program starts, until the one that it dials listens.

Where an annotation of the job asks for it (:data:`WAIT`), replicas that are told of a meeting point get
an init container that tries its port; all are placed together all the same. A name that resolves says
nothing of the port, which opens seconds later (kubeflow/pytorch-operator #333, #125). Differences
to the training operator's ``init-pytorch``, on purpose:

- it is not there unless asked for: torch.distributed, torchrun and jax.distributed try again by
  themselves, and a gang asks for exactly what its user wrote;
- it waits as long as it takes and never fails: the job's own end or restart ends it, so that it uses up
  no backoffLimit;
- it asks for the CPU and memory of the container that it stands before, and so changes neither what
  the pod asks for nor its quality of service (exclusive CPUs and NUMA alignment need Guaranteed).

A connection that is opened and closed is all that can be tried from outside. Where a listener
never gets over that, as XGBoost's tracker of before 2.1 (``recvall`` in its tracker.py), a kind names no meeting point.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Final

from extender.core import scripts
from extender.core.api import MUSTER_GROUP
from extender.core.errors import InvalidObject
from extender.core.objects import Manifest
from extender.jobs import fields
from extender.jobs.model import TrainingJob

#: Annotation of a job: :data:`NONE`, :data:`OWN`, or the image of the container that waits.
WAIT: Final = f"{MUSTER_GROUP}/wait-for-master"
NONE: Final = "none"
#: The replica's own image, which the node has to pull anyway.
OWN: Final = "own-image"
#: Name of the init container.
NAME: Final = "wait-for-master"
#: Of the container that it stands before: what does not change the pod's quality of service.
_ROOM: Final = ("cpu", "memory")
_BOUNDS: Final = ("requests", "limits")
#: Words that could name an image, and that nobody means as one.
_NO_IMAGES: Final = frozenset(
    {"true", "false", "yes", "no", "on", "off", "1", "0", "none", "null", "ownimage"}
)
#: [host[:port]/]path[:tag][@digest], as in distribution/reference: only a host has capitals.
_IMAGE: Final = re.compile(
    r"(?:(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::\d+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::\w[\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_LONGEST_IMAGE: Final = 1024


def wish(job: TrainingJob, specs_key: str) -> str:
    """The image of the container that waits, or :data:`OWN`; "" for none. ``specs_key``: the kind's.

    Raises InvalidObject for what is no image, and for templates that nothing can be added to.
    """
    said = job.annotations.get(WAIT, "")
    if said and not _means(said):
        allowed = f"{NONE}, {OWN} or the name of an image"
        raise InvalidObject(f"metadata.annotations[{WAIT}]", said, allowed)
    if said in ("", NONE):
        return ""
    for role in job.roles:
        spec, path = role.template["spec"], f"spec.{specs_key}.{role.type}.template.spec"
        fields.items(spec, "initContainers", path)
        for container in spec["containers"]:
            room = fields.mapping(container, "resources", f"{path}.containers")
            for kind in _BOUNDS:
                fields.mapping(room, kind, f"{path}.containers.resources")
    return said


def _means(said: str) -> bool:
    """Whether it is one of the two words, or an image and no other spelling of a word."""
    if said in (NONE, OWN):
        return True
    letters = "".join(filter(str.isalnum, said)).lower()
    if letters in _NO_IMAGES or len(said) > _LONGEST_IMAGE:
        return False
    return _IMAGE.fullmatch(said) is not None


def wait(pod: Manifest, image: str, container: str, host: str, port: int) -> None:
    """Let a pod that nobody else holds wait for ``host:port``, after its own init containers. It stands
    before the container of this name.
    """
    spec, own = pod["spec"], image == OWN
    before = spec.get("initContainers") or ()
    if any(each.get("name") == NAME for each in before):
        return  # the user's own
    main = next(each for each in spec["containers"] if each["name"] == container)
    room = main.get("resources") or {}
    bounds = {
        kind: {name: room[kind][name] for name in _ROOM if name in room[kind]}
        for kind in _BOUNDS
        if room.get(kind)
    }
    kept = ("imagePullPolicy", "securityContext") if own else ("securityContext",)
    waiting = {
        "name": NAME,
        "image": main["image"] if own else image,
        "command": ["/bin/sh", "-c", scripts.DIAL, NAME, host, str(port)],
        "resources": bounds,
        **{field: deepcopy(main[field]) for field in kept if field in main},
    }
    spec["initContainers"] = [*before, waiting]

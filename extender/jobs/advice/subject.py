"""What advice looks at: a workload as replicas that are alike, each with its template and its field.

What users write in templates is not checked by anybody, so that the readers here take anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from extender.core.errors import QuantityError
from extender.core.objects import Labels, Manifest
from extender.core.quantity import parse
from extender.jobs.fields import dig

#: Resources that are whole GPUs.
GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")


class Part(Struct, frozen=True):
    """Replicas that are alike."""

    #: As the object spells it, e.g. ``Worker``.
    type: str
    #: Field that holds them, e.g. ``spec.pytorchReplicaSpecs.Worker``.
    path: str
    replicas: int
    restart_policy: str
    #: The pod template as written.
    template: Manifest
    #: Name of the container that trains; empty: the first.
    container: str = ""
    #: Variables that the controller gives it, with the values of the first replica.
    given: Mapping[str, str] = {}
    #: Labels that the controller gives the pod.
    labels: Labels = {}

    @property
    def pod(self) -> Manifest:
        """Spec of the template."""
        return mapping(self.template.get("spec"))

    @property
    def spec_path(self) -> str:
        """Field of :attr:`pod`."""
        return f"{self.path}.template.spec"

    @property
    def main(self) -> tuple[str, Manifest]:
        """The container that trains, after its field."""
        found = listed(self.pod.get("containers"))
        names = [each.get("name") for _, each in found]
        index, main = found[names.index(self.container) if self.container in names else 0]
        return f"{self.spec_path}.containers[{index}]", main


class Subject(Struct, frozen=True):
    """One workload, valid as its controller reads it."""

    kind: str
    name: str
    spec: Manifest
    parts: tuple[Part, ...]
    min_available: int | None = None
    #: PersistentVolumeClaims of its namespace by name, as far as they are known.
    claims: Mapping[str, Manifest] = {}
    #: Labels of its namespace, as far as they are known.
    namespace_labels: Labels = {}

    @property
    def total(self) -> int:
        """Replicas in all."""
        return sum(part.replicas for part in self.parts)

    @property
    def elastic(self) -> Manifest:
        """spec.elasticPolicy; empty for none."""
        return mapping(self.spec.get("elasticPolicy"))

    def part(self, type_: str) -> Part | None:
        """The replicas of this type, spelled in any case."""
        return next((part for part in self.parts if part.type.lower() == type_.lower()), None)


def mapping(value: Any) -> Manifest:
    """A map; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[tuple[int, Manifest]]:
    """The maps of a list, each after its index."""
    found = value if isinstance(value, list) else []
    return [(index, each) for index, each in enumerate(found) if isinstance(each, dict)]


def texts(value: Any) -> list[str]:
    """The texts of a list; what is none is empty, so that indices stay."""
    found = value if isinstance(value, list) else []
    return [each if isinstance(each, str) else "" for each in found]


def limit(container: Manifest, resource: str) -> int:
    """Of a resource, in whole units rounded down; 0 where it is absent or cannot be read."""
    asked = dig(container, "resources", "limits", resource)
    try:
        return int(parse(asked)) if isinstance(asked, str | int | float) else 0
    except QuantityError:
        return 0  # shape_of says so


def gpus(container: Manifest) -> int:
    """GPUs that it gets; slices of one (MIG) count as none."""
    return sum(limit(container, resource) for resource in GPUS)


def variables(container: Manifest) -> Iterator[tuple[int, str, str | None]]:
    """(index, name, value) of ``env``; a value that comes from elsewhere is None."""
    for index, each in listed(container.get("env")):
        value = each.get("value", None if "valueFrom" in each else "")
        yield index, str(each.get("name", "")), value if isinstance(value, str) else None


def variable(part: Part, name: str) -> str | None:
    """What the container that trains reads of a variable: the controller's, else the last of its
    own; None for none, empty for a value that is not known.
    """
    if name in part.given:
        return part.given[name]
    own = [value or "" for _, key, value in variables(part.main[1]) if key == name]
    return own[-1] if own else None


def mounts(part: Part) -> Iterator[tuple[Manifest, Manifest, str]]:
    """(mount, volume, field of the volume) of the container that trains."""
    volumes = {
        str(each.get("name")): (each, f"{part.spec_path}.volumes[{index}]")
        for index, each in listed(part.pod.get("volumes"))
    }
    for _, mount in listed(part.main[1].get("volumeMounts")):
        if (name := str(mount.get("name"))) in volumes:
            yield mount, *volumes[name]

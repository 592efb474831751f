"""Advice on a job: what is accepted and will not do what its user wants."""

from __future__ import annotations

from msgspec import Struct

from extender.core.errors import brief


class Advice(Struct, frozen=True):
    """One piece of it. docs/advice.md lists them."""

    #: Reason of its Event.
    code: str
    field: str
    #: As written; None where it is missing.
    value: object
    why: str
    #: What to write instead.
    instead: str

    def render(self) -> str:
        """The sentence that follows the field, everywhere the same."""
        shown = "is missing" if self.value is None else f"is {brief(self.value)}"
        return f"{shown}: {self.why}. Write {self.instead}"

"""Every exception that Muster raises on purpose.

::

    MusterError
    ├── ConfigError        a config file or flag is wrong: file, field, value, what is allowed
    ├── InvalidObject      an API object is wrong: object, field, value, what is allowed
    │   └── QuantityError  a Kubernetes quantity cannot be read or does not fit 63 bits
    ├── LogError           a recorded log or a snapshot cannot be read
    ├── WireError          a scheduler sent a body that is not what the verb takes
    ├── ApiError           the API server answered with an error (status code and reason)
    │   ├── Gone           410: the watch's resourceVersion is too old, list again
    │   └── Unreachable    no answer at all (connection, time-out)
    └── InvariantViolated  a fault of Muster's own; carries the invariant's name

A refusal (a pod that does not fit, a gang that waits) is a value, see
:mod:`extender.core.reasons`; it is never raised.
"""

from __future__ import annotations

from collections.abc import Sequence


class MusterError(Exception):
    """The root of Muster's exceptions."""


class ConfigError(MusterError):
    """A configuration file, environment variable or flag cannot be used."""

    def __init__(self, text: str, each: Sequence[str] = ()) -> None:
        """``each``: the mistakes one by one, ``field: what is wrong``, where a file has several."""
        super().__init__(text)
        self.each = tuple(each)


class InvalidObject(MusterError):
    """An API object is wrong.

    The text names the field, the value and what is allowed.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        """Keep the three parts so that events, conditions and ``muster check`` can show each."""
        super().__init__(f"{field}: {unfit(value)}: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class QuantityError(InvalidObject):
    """A resource quantity that cannot be read, is negative, or does not fit 63 bits."""


class LogError(MusterError):
    """A recorded log or a snapshot cannot be read; the text names the file, the line and why."""


class WireError(MusterError):
    """An extender request that cannot be understood; the text says what is wrong with it."""


class ApiError(MusterError):
    """The API server refused a call."""

    def __init__(
        self, code: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        """``code`` is the HTTP status, ``reason`` the Status object's word for it; ``retry_after``
        the seconds that the server asks to wait before the next try.
        """
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Gone(ApiError):
    """410: the resourceVersion that was asked for is no longer kept."""


class Unreachable(ApiError):
    """The API server gave no answer; whether the call took effect is not known."""


class InvariantViolated(MusterError):
    """Muster's own state contradicts itself."""

    def __init__(self, invariant: str, message: str) -> None:
        """``invariant`` is I1 to I7 or the name of an internal one."""
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


def unfit(value: object) -> str:
    """What is wrong with a field of this value, before what is allowed; None: it is not there."""
    return "is missing" if value is None else f"{brief(value)} is not allowed"


def brief(value: object) -> str:
    """The value as people are shown it: its beginning, where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

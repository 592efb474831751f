"""Every exception that Muster raises on purpose.

::

    MusterError
    ├── ConfigError        a config file or flag is wrong: file, field, value, what is allowed
    ├── InvalidObject      an API object is wrong: object, field, value, what is allowed
    │   ├── InvalidFields  several of its fields are
    │   └── QuantityError  a Kubernetes quantity cannot be read or does not fit 63 bits
    ├── LogError           a recorded log or a snapshot cannot be read
    ├── NoAnswer           the running service gives a command no answer, or refuses it
    ├── WireError          a scheduler sent a body that is not what the verb takes
    ├── ApiError           the API server answered with an error (status code and reason)
    │   ├── Gone           410: the watch's resourceVersion is too old, list again
    │   └── Unreachable    no answer at all (connection, time-out)
    └── InvariantViolated  a fault of Muster's own; carries the invariant's name

A refusal (a pod that does not fit, a gang that waits) is a value, see
:mod:`extender.core.reasons`; it is never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: Wrong fields of one object that are told; of more only how many there are.
MOST_FAULTS: Final = 20


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

    #: Wrong fields beyond those of :attr:`each`.
    more = 0

    @property
    def each(self) -> tuple[InvalidObject, ...]:
        """One for each wrong field, as far as they are told."""
        return (self,)


class InvalidFields(InvalidObject):
    """Several fields of an API object are wrong; field, value and allowed are the first's."""

    def __init__(self, each: Sequence[InvalidObject], more: int = 0) -> None:
        """``each`` in the order in which the object is read; ``more``: those that are not told."""
        first = each[0]
        super().__init__(first.field, first.value, first.allowed)
        rest = (f"and {more} more",) if more else ()
        self.args = ("; ".join((*map(str, each), *rest)),)
        self._each, self.more = tuple(each), more

    @property
    def each(self) -> tuple[InvalidObject, ...]:
        return self._each


class Faults:
    """The wrong fields of one object, gathered while it is read.

    A block ``with faults:`` ends at the first InvalidObject in it, which is kept, and reading goes on behind
    the block: what is in one block cannot be judged once a part of it is wrong.
    """

    def __init__(self) -> None:
        self._found: list[InvalidObject] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        if not isinstance(error, InvalidObject):
            return False
        self._count += len(error.each) + error.more
        self._found += error.each[: MOST_FAULTS - len(self._found)]
        return True

    @property
    def found(self) -> tuple[InvalidObject, ...]:
        """The first :data:`MOST_FAULTS` of them."""
        return tuple(self._found)

    def keep(self, default: T, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``read`` gives; where it raises InvalidObject, which is kept, ``default``."""
        with self:
            return read(*args, **kwargs)
        return default

    def end(self) -> None:
        """Raise InvalidObject for what was found, if anything was."""
        if self._count == 1:
            raise self._found[0]
        if self._found:
            raise InvalidFields(self._found, self._count - len(self._found))


class QuantityError(InvalidObject):
    """A resource quantity that cannot be read, is negative, or does not fit 63 bits."""


class LogError(MusterError):
    """A recorded log or a snapshot cannot be read; the text names the file, the line and why."""


class NoAnswer(MusterError):
    """The running service gave no answer, or refused it; the text names it and says what may help."""


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

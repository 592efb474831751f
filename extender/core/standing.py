"""Whether a write may (still) be sent, by what is known at that moment.

A command waits behind others, and between two tries of it many seconds pass: what it follows from may
be over by then. The executor asks before each try; the core hears of the answer as of any other.
"""

from __future__ import annotations

from extender.core import binding, creating
from extender.core import commands as c
from extender.core.api import PODS
from extender.core.state import State


def stands(s: State, command: c.Command, *, again: bool) -> bool:
    """Whether to send it. ``again``: it was tried before.

    A Binding that was tried: its pod's place is still reserved (I2). A pod's creation: its job still
    wants it (I6). What else is written is a level that a later write corrects, or carries a uid and
    resourceVersion that what is new does not match.
    """
    if isinstance(command, c.Bind):
        return not again or binding.stands(s, command)
    if isinstance(command, c.Create) and command.resource == PODS and not command.dry_run:
        return creating.stands(s, command)
    return True

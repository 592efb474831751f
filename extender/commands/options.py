"""A command line whose mistakes are answered in the order in which people care."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """As argparse's, but that an option which does not exist is said before anything else is: what else
    is missing may well be what was meant by it. Parsers of commands are of this class, too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._options: list[str] = []
        self._given: Sequence[str] = ()
        self._has_commands = False
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """As argparse does."""
        action = super().add_argument(*args, **kwargs)
        self._options += action.option_strings
        return action

    def add_subparsers(self, **kwargs: Any) -> Any:
        """As argparse does."""
        self._has_commands = True
        return super().add_subparsers(**kwargs)

    # argparse has overloads for a namespace of one's own, which nobody here gives.
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse does; a command's parser is given what stands behind its name."""
        self._given = sys.argv[1:] if args is None else args
        if self._has_commands and any(self._unknown()):
            self.error("an option before the command")  # whose parser would speak first
        found = super().parse_known_args(args, namespace)
        if any(self._unknown()):
            self.error("an option")
        return found

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with 2."""
        for name in self._unknown():
            super().error(self._no_such(name))
        super().error(message)

    def _unknown(self) -> Iterator[str]:
        """Words that are written as options, and are none, nor the beginning of one."""
        for word in self._given:
            name = word.partition("=")[0]
            option = len(name) > 1 and name[0] == "-" and not name[1].isdigit()
            if word == "--" or (self._has_commands and not option):
                return  # what follows is a value, or the command's
            if option and not any(each.startswith(name) for each in self._options):
                yield name

    def _no_such(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self._options, n=1, cutoff=0.75)
        meant = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(self._options)}"
        behind = " (a command's own stand behind its name)" if self._has_commands else ""
        return f"no such option: {name}; {meant}{behind}"

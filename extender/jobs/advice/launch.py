"""What a container's command starts: torchrun or mpirun, and with which options.

Read from ``command`` and ``args``, also inside a script for a shell. What a variable holds, or a
program that the image itself starts, is not known, and nothing is said of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from msgspec import Struct

from extender.core.objects import Manifest
from extender.jobs.advice.subject import Part, texts

#: Options of torchrun that take no value.
_FLAGS: Final = frozenset({"standalone", "m", "module", "no_python", "run_path", "h", "help"})
_TORCH_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_MPI: Final = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun")
#: Words after which a program's name is only spoken of.
_SPEAKS: Final = frozenset({"echo", "which", "type", "pip", "pip3", "pkill", "killall", "man"})
#: What mpirun starts, after which the options are not its own.
_PROGRAM: Final = re.compile(r"python|(ba|da)?sh$|[./]|[^-].*\.(py|sh)$")
_ENDS: Final = re.compile(r"&&|\|\||[;&|\n]")


class Launch(Struct, frozen=True):
    """A launcher as it is started."""

    #: ``torchrun`` or ``mpirun``.
    program: str
    #: Option to (value as written, field); without dashes before it, _ for - within.
    options: Mapping[str, tuple[str, str]]
    #: Field of the program's own word.
    field: str

    def value(self, *names: str) -> tuple[str, str] | None:
        """Value and field of the first of the options that is there."""
        return next((self.options[name] for name in names if name in self.options), None)


def launch(part: Part) -> Launch | None:
    """What the container that trains starts, if that can be seen."""
    path, container = part.main
    for words in _commands(path, container):
        if (start := _starts(words)) is None:
            continue
        program, at = start
        read = _torch_options if program == "torchrun" else _mpi_options
        return Launch(program, read(words[at + 1 :]), words[at][1])
    return None


def torchrun(part: Part) -> Launch | None:
    """torchrun, if the container starts it."""
    found = launch(part)
    return found if found and found.program == "torchrun" else None


def number(found: tuple[str, str] | None) -> int | None:
    """An option's value, if it is a number as written."""
    return int(found[0]) if found and re.fullmatch(r"\d{1,9}", found[0], re.ASCII) else None


Words = list[tuple[str, str]]


def _commands(path: str, container: Manifest) -> Iterator[Words]:
    """Commands, as (word, field): the container's own, then those of each script in it."""
    words = [
        (word, f"{path}.{key}[{index}]")
        for key in ("command", "args")
        for index, word in enumerate(texts(container.get(key)))
    ]
    yield words
    for script, field in words:
        if any(each.isspace() for each in script):
            for command in _ENDS.split(script.replace("\\\n", " ")):
                try:
                    split = shlex.split(command, comments=True)
                except ValueError:  # a quotation that spans what was split: not read
                    continue
                yield [(word, field) for word in split]


def _starts(words: Words) -> tuple[str, int] | None:
    """The launcher among the words, and where its name ends."""
    for index, (word, _) in enumerate(words):
        if word in _SPEAKS:
            return None
        name = word.rpartition("/")[2]
        if name == "torchrun" or (word in _TORCH_MODULES and index and words[index - 1][0] == "-m"):
            return "torchrun", index
        if name in _MPI:
            return "mpirun", index
    return None


def _torch_options(words: Words) -> dict[str, tuple[str, str]]:
    """Up to the script, whose own options follow it."""
    found: dict[str, tuple[str, str]] = {}
    rest = iter(words)
    for word, field in rest:
        if not word.startswith("-"):
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if not equals and name not in _FLAGS:
            value, field = next(rest, ("", field))
        found[name] = value, field
    return found


def _mpi_options(words: Words) -> dict[str, tuple[str, str]]:
    """The number of processes alone; of several programs at once, none."""
    if any(word == ":" for word, _ in words):
        return {}
    for (word, _), (value, field) in pairwise(words):
        if _PROGRAM.match(word):
            break
        if word in ("-np", "--np", "-n", "--n"):
            return {"np": (value, field)}
    return {}

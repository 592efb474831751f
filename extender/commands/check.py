"""``muster check``: mistakes in manifests and configuration, before a cluster meets them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from extender.commands.common import MISUSE, NO, OK, answer, json_flag, say

if TYPE_CHECKING:
    from extender.commands.checks.problem import Document, Problem
    from extender.settings import Settings

HELP = "find mistakes in manifests, muster.yaml and KubeSchedulerConfigurations"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="YAML, or a folder of it; a KubeSchedulerConfiguration is compared with the muster.yaml"
        " that is given with it",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from extender.commands.checks.problem import Document, documents_below

    found: list[Document] = []
    problems: list[Problem] = []
    for file in args.files:
        try:
            for item in documents_below(file):
                if isinstance(item, Document):
                    found.append(item)
                else:
                    problems.append(item)
        except (OSError, UnicodeDecodeError) as error:
            say("check", f"{file}: cannot be read: {error}")
            return MISUSE
    _remarks(found)
    problems += _problems(found)
    if args.json:
        answer({"objects": len(found), "problems": [problem.json() for problem in problems]})
    else:
        for problem in problems:
            print(problem)
        print(f"{_count(len(found), 'object')}, {_count(len(problems), 'problem')}")
    return NO if any(problem.severity == "error" for problem in problems) else OK


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _remarks(found: list[Document]) -> None:
    """What people should know of how their files were read; no problem of any of them."""
    from extender.commands.checks import scheduler, schema

    files = [document.file for document in found if document.kind[1] == scheduler.KIND]
    settings = [document.file for document in found if _is_settings(document)]
    if len(files) > 1 and settings:
        say(
            "check",
            f"{len(files)} KubeSchedulerConfigurations are given, and each is compared with"
            f" {settings[-1]}: if they are alternatives, check one at a time",
        )
    if len(settings) > 1:
        say("check", f"{len(settings)} muster.yaml are given; others are compared with the last")
    if not schema.found():
        say("check", "manifests/crds is not found: fields of jobs and PodGroups are not compared")


def _problems(found: list[Document]) -> list[Problem]:
    """Of the configuration first: with a valid muster.yaml the others are compared."""
    from extender.commands.checks import manifests, scheduler
    from extender.commands.checks.network import Told
    from extender.commands.checks.together import Together
    from extender.settings import Settings

    problems: list[Problem] = []
    settings: Settings | None = None
    for document in filter(_is_settings, found):
        result = _settings(document)
        if isinstance(result, Settings):
            settings = result
            if why := result.muster.unguarded():
                field, _, message = why.partition(": ")
                problems.append(
                    document.problem(field, f"{message}; `serve` refuses it", "warning")
                )
        else:
            problems += result
    muster = (settings or Settings()).muster
    together = Together(Told(muster.topology.known()))
    for document in found:
        if document.kind[1] == scheduler.KIND:
            problems += scheduler.check(document, muster, given=settings is not None)
        elif all(document.kind):
            problems += manifests.check(document, muster, together)
        elif not _is_settings(document):
            problems.append(manifests.nameless(document))
    return [*problems, *together.problems()]


def _is_settings(document: Document) -> bool:
    """muster.yaml and Volcano's scheduler configuration have no kind."""
    body = document.body
    return (
        isinstance(body, dict)
        and not any(document.kind)
        and bool({"actions", "tiers", "muster"} & body.keys())
    )


def _settings(document: Document) -> Settings | list[Problem]:
    from extender.core.errors import ConfigError
    from extender.settings import parse

    try:
        return parse(document.body, document.file)
    except ConfigError as error:
        mistakes = error.each or [str(error).removeprefix(f"{document.file}: ")]
        split = [mistake.partition(": ") for mistake in mistakes]
        return [document.problem(field if text else "", text or field) for field, _, text in split]

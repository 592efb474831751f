"""Puts engine, story and screen together."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TextIO

from extender.core.errors import ConfigError
from extender.demo import engine, story
from extender.demo.chronicle import Chronicle
from extender.demo.screen import Screen

#: The CRDs of a checkout.
CRDS = Path(__file__).resolve().parents[2] / "manifests" / "crds"
#: Seconds for which the first job is watched while it waits; longer where somebody reads along.
HOLD_SECONDS, READING_SECONDS = 1.0, 2.5


def crds() -> list[Path]:
    """The files to apply first. Raises ConfigError outside a checkout."""
    if files := sorted(CRDS.glob("*_*.yaml")):
        return files
    raise ConfigError(f"{CRDS}: no CRDs there; --real runs from a checkout of Muster")


async def demo(stream: TextIO, *, real: bool, picture: Path | None) -> dict[str, Any]:
    """Tell the story on ``stream``; the JSON answer, whose ``ok`` is what was really observed.

    Raises OSError where the picture cannot be written, ConfigError where ``real`` has no CRDs, BuildError or StartError where the programs of
    the control plane cannot be had.
    """
    with Screen(stream, picture=picture is not None) as screen:
        screen.say(
            "Starting etcd, kube-apiserver, kube-scheduler and Muster."
            if real
            else "Starting an in-memory API server, a stand-in for kube-scheduler, and Muster."
        )
        async with _engine(real) as cluster:
            seen = Chronicle(cluster.client, story.NAMESPACE, story.cast())
            hold = READING_SECONDS if stream.isatty() else HOLD_SECONDS
            async with seen.following():
                screen.follow(seen)
                wrong: list[str] = []
                try:
                    await story.Story(cluster, seen, screen, hold=hold).tell()
                except TimeoutError as error:
                    wrong.append(str(error))
                wrong += story.verdict(seen, cluster.service.loop.faults)
            for sentence in wrong:
                screen.say(f"WRONG: {sentence}.")
            if not wrong:
                screen.say("Seen on the API's watch: every gang whole or not at all, none half.")
            answer = story.report(cluster, seen, ok=not wrong)
        if picture is not None:
            try:
                await asyncio.to_thread(picture.write_text, screen.svg(), "utf-8")
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(picture)) from error
    return answer


def _engine(real: bool) -> AbstractAsyncContextManager[engine.Cluster]:
    return engine.kubernetes(crds()) if real else engine.embedded()

"""The demo: what it says is what was seen, on both engines; and its books by hand."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from extender.demo.chronicle import Chronicle, Gang
from extender.demo.screen import Screen
from extender.demo.story import verdict
from extender.sim.client import Client

ROOT = Path(__file__).resolve().parent.parent


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "extender.cli", "demo", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def check_answer(done: subprocess.CompletedProcess[str], engine: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert (answer["engine"], answer["ok"]) == (engine, True)
    gangs = {gang["name"]: gang for gang in answer["gangs"]}
    assert {name: (g["members"], g["bound"]) for name, g in gangs.items()} == {
        "llama": (4, 4),
        "bert": (3, 3),
        "vit": (3, 3),
    }
    for gang in gangs.values():
        assert gang["max_bound_while_waiting"] == 0
        assert gang["bandwidth_gbs"] is None
        assert len(set(gang["nodes"])) == gang["bound"]
    assert gangs["llama"]["waited_for"].startswith("3 of 4 pods would fit")
    assert gangs["llama"]["states"] == ["Created", "Running", "Succeeded"]
    assert "0 of 4 nvidia.com/gpu free, 4 asked" in gangs["bert"]["waited_for"]


def test_embedded_it_is_whole_or_not_at_all(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    done = run("--json", "--svg", str(picture))
    check_answer(done, "embedded")
    svg = picture.read_text()
    for words in ("llama", "waits", "A&#160;fourth&#160;node&#160;joins."):
        assert words in svg
    assert "@font-face" not in svg
    assert "A fourth node joins." in done.stderr


@pytest.mark.controlplane
def test_on_the_real_programs_the_story_is_the_same() -> None:
    check_answer(run("--real", "--json"), "kubernetes")


def pod(name: str, node: str = "", phase: str = "Pending") -> dict:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}


def group(name: str, members: int, reason: str = "") -> dict:
    condition = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": reason,
    }
    status = {"conditions": [condition]} if reason else {}
    return {"metadata": {"name": name}, "spec": {"minMember": members}, "status": status}


@pytest.fixture
def books() -> Chronicle:
    """Two nodes of four GPUs, and two gangs of which only one fits."""
    seen = Chronicle(Client("http://unused"), "demo", [Gang("a", 2, 4), Gang("b", 2, 4)])
    seen.nodes = {"n1": 4, "n2": 4}
    for name in seen.gangs:
        seen._group("ADDED", group(name, 2, "no room"))
    return seen


def bind(seen: Chronicle, name: str, node: str, phase: str = "Pending") -> None:
    seen._pod("MODIFIED", pod(name, node, phase))


def test_two_gangs_one_after_the_other_are_fine(books: Chronicle) -> None:
    for phase in ("Pending", "Succeeded"):
        bind(books, "a-0", "n1", phase)
        bind(books, "a-1", "n2", phase)
    assert not books.gangs["b"].whole()
    bind(books, "b-0", "n1")
    bind(books, "b-1", "n2")
    assert list(verdict(books, 0)) == []


def test_half_a_gang_beside_half_of_another_is_seen(books: Chronicle) -> None:
    bind(books, "a-0", "n1")
    bind(books, "b-0", "n2")
    assert books.gangs["a"].max_bound_while_waiting == 1
    assert any("bound while it waited" in words for words in verdict(books, 0))


def test_a_gpu_given_twice_is_seen(books: Chronicle) -> None:
    for name in ("a-0", "a-1"):
        bind(books, name, "n1")
    assert any("n1: more GPUs given" in words for words in verdict(books, 0))


def test_faults_and_silence_are_seen(books: Chronicle) -> None:
    books.gangs["a"].waited_for = ""
    words = list(verdict(books, 2))
    assert "a: no reason was given while it waited" in words
    assert "2 faults in the service" in words
    assert "b: 0 of 2 members bound, 2 asked" in words


async def test_what_does_not_come_is_said(books: Chronicle) -> None:
    with pytest.raises(TimeoutError, match="not seen within 0 s: a miracle"):
        await books.until(lambda: False, "a miracle", 0.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_the_screen_shows_who_has_which_gpus(books: Chronicle, kind: type[io.StringIO]) -> None:
    out = kind()
    books.gangs = {
        "a": books.gangs["a"],
        "b": books.gangs["b"],
        "c": Gang("c", 1, 1),
    }
    with Screen(out, picture=False) as screen:
        screen.follow(books)
        screen.say("Two gangs.")
        bind(books, "a-0", "n1")
        books.changed()
        screen.show()
    text = out.getvalue()
    assert "Two gangs." in text
    assert "a-0" in text
    assert "waits: no room" in text
    assert ("\x1b[" in text) == (kind is Terminal)

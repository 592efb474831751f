"""Liveness: a call to the driver, the kernel or the kubelet that never returns is noticed."""

from __future__ import annotations

import threading
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from extender.agent import kubelet, tree
from extender.agent.pulse import STALLED_SECONDS, Pulse, served
from extender.agent.run import Reader
from tests.agent.machine import Nvml


class Hanging:
    """A call that waits for a door; ``inside`` is set once somebody waits."""

    def __init__(self, answer) -> None:
        self.inside, self.door = threading.Event(), threading.Event()
        self._answer = answer

    def __call__(self, *args):
        self.inside.set()
        assert self.door.wait(60)
        return self._answer(*args)


@pytest.fixture(params=["nvml", "sysfs", "podresources"])
def hang(request, monkeypatch):
    """The source that hangs, and its call."""
    match request.param:
        case "nvml":
            call = Hanging(Nvml._DeviceGetCount)

            def count(self):
                return call(self)

            monkeypatch.setattr(Nvml, "_DeviceGetCount", count)
        case "sysfs":
            call = Hanging(tree.read)
            monkeypatch.setattr(tree, "read", call)
        case _:
            call = Hanging(kubelet.read)
            monkeypatch.setattr(kubelet, "read", call)
    return request.param, call


def ask(port: int, host: str, path: str = "/healthz") -> tuple[int, str]:
    try:
        with urlopen(f"http://{host}:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_call_that_never_returns_is_noticed_and_one_that_does_is_forgotten(hgx, hang):
    source, call = hang
    now = [1000.0]
    pulse = Pulse(lambda: now[0])
    reader = Reader(hgx.settings, Nvml(hgx.machine), hgx.lacks, pulse)
    with served(pulse, 0) as port:
        assert ask(port, "127.0.0.1") == (200, "ok\n")
        thread = threading.Thread(target=reader.read)
        thread.start()
        assert call.inside.wait(60)
        now[0] += STALLED_SECONDS - 1
        assert ask(port, "127.0.0.1") == (200, "ok\n")
        now[0] += 1
        stalled = f"reading {source} has not ended for {STALLED_SECONDS:.0f} s\n"
        assert ask(port, "127.0.0.1") == (503, stalled)
        call.door.set()
        thread.join()
        assert ask(port, "127.0.0.1") == (200, "ok\n")
        assert ask(port, "127.0.0.1", "/metrics")[0] == 404
    reader.close()


def test_a_reading_that_fails_is_over(hgx, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    now = [0.0]
    pulse = Pulse(lambda: now[0])
    monkeypatch.setattr(tree, "read", broken)
    with pytest.raises(RuntimeError):
        Reader(hgx.settings, Nvml(hgx.machine), hgx.lacks, pulse).read()
    now[0] += 10 * STALLED_SECONDS
    assert pulse.stalled() == ""


def test_a_port_that_is_taken_is_an_error():
    pulse = Pulse(lambda: 0.0)
    with served(pulse, 0) as port, pytest.raises(OSError, match="in use"), served(pulse, port):
        pass

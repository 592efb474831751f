"""The log while the API server does not do what it is asked: a line for a change, not a request."""

from __future__ import annotations

import pytest
import structlog

from extender.core.errors import ApiError, Unreachable
from extender.kube.client import _words
from extender.kube.complaints import Complaints

KINDS = ("pods", "nodes", "services")


@pytest.fixture
def said():
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
def complaints() -> Complaints:
    return Complaints(lambda: "https://api:6443")


def events(said) -> list[str]:
    return [line["event"] for line in said]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (Unreachable(0, "Unreachable", "refused"), "the API server does not answer"),
        (ApiError(401, "Unauthorized", "x"), "the API server does not accept the credentials"),
        (ApiError(503, "Unavailable", "x"), "the API server is in trouble"),
        (ApiError(429, "TooManyRequests", "x"), "the API server asks to wait"),
    ],
)
def test_a_dozen_kinds_that_fail_for_one_cause_are_one_line(complaints, said, error, sentence):
    for _ in range(3):
        for kind in KINDS:
            complaints.wrong(f"list {kind}", error)
        complaints.wrong("read Lease a/b", error)
    assert events(said) == [sentence]
    assert said[0]["server"] == "https://api:6443"
    complaints.right("list nodes")
    complaints.right("list pods")
    assert events(said) == [sentence, "the API server answers"]
    complaints.wrong("list pods", error)
    assert events(said)[2:] == [sentence]


def test_what_is_forbidden_is_said_kind_by_kind_with_what_to_do(complaints, said):
    for _ in range(2):
        for kind in KINDS:
            complaints.wrong(f"list {kind}", ApiError(403, "Forbidden", f"{kind} is forbidden"))
    assert events(said) == [f"the API server refuses to list {kind}" for kind in KINDS]
    assert all("rbac.yaml" in line["do"] for line in said)
    complaints.right("list nodes")
    assert events(said)[3:] == ["the API server lets us list nodes"]


def test_a_request_that_is_answered_does_not_mend_a_watch(complaints, said):
    broken = Unreachable(0, "Unreachable", "cut")
    for kind in KINDS:
        complaints.wrong(f"watch {kind}", broken)
        complaints.right("renew Lease a/b")
    assert len(said) == 1
    complaints.right("watch pods")
    assert len(said) == 2


def test_the_words_of_an_error_hold_no_address_in_memory():
    text = "Cannot connect to host a:1 ssl:<ssl.SSLContext object at 0x7f> [Connect call failed]"
    assert _words(OSError(text)) == "OSError: Cannot connect to host a:1 [Connect call failed]"
    assert _words(OSError("to host a:1 ssl:default [x]")) == "OSError: to host a:1 [x]"

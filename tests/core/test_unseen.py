"""Pods of which only answers told: they went before a broken watch could show them."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import PODS
from extender.core.gang import Member
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine
from tests.core.machine_api import Place, seen

GHOST: Place = (PODS, "default", "j-worker-0")


def blind(m: Machine) -> None:
    """Until :func:`listed` the watch says nothing of one pod."""
    told = m.replicas[0].saw

    def saw(place: Place, event: e.Event) -> None:
        if place != GHOST:
            told(place, event)

    assert m.api.watchers[-1] == told
    m.api.watchers[-1] = saw


def listed(m: Machine) -> None:
    """The watch is begun again from a list, which does not have the pod."""
    replica = m.replicas[0]
    m.api.watchers[-1] = replica.saw
    replica.turn(e.Listed(PODS, str(m.api._version)))


def test_a_member_that_a_list_does_not_show_is_gone_and_is_made_again() -> None:
    m = Machine()
    do.nodes(m, 2)
    blind(m)
    do.job(m, "j", 2)
    m.flush()
    slot = do.of(m, "j").members["j-worker-0"]
    assert slot.state == Member.BOUND
    m.replicas[0].turn(e.Listed(PODS, "0"))
    assert slot.uid  # that list is older than the pod
    m.api.remove(GHOST)
    assert not m.bound("j-worker-0")
    listed(m)
    m.rest()
    assert m.bound("j-worker-0")


def made_and_gone() -> Machine:
    """A pod that was made and is gone: nobody has been shown it, and the answer has not been read."""
    m = Machine()
    do.nodes(m, 2)
    blind(m)
    m.faults.append(Fault("hold", verb="Create", kind="Pod", name="j-worker-0"))
    do.job(m, "j", 2)
    m.flush()
    m.faults.clear()
    replica = m.replicas[0]
    key = next(key for key, chain in replica.chains.items() if chain)
    replica.carry_out(key)
    m.api.remove(GHOST)
    return m


def test_an_answer_that_is_older_than_the_list_tells_of_nothing() -> None:
    m = made_and_gone()
    listed(m)
    m.rest()
    assert m.bound("j-worker-0")
    assert m.api.get(PODS, "j-worker-0", "default") is not None


def test_an_answer_that_the_watch_has_overtaken_tells_of_nothing() -> None:
    """Its pod came and went before the answer was read; its uid would be waited for for ever
    (I7, chaos seed 910).
    """
    m = made_and_gone()
    replica = m.replicas[0]
    m.api.watchers[-1] = replica.saw
    do.pod(m, "later", schedulerName="another")
    replica.deliver((PODS, "default", "later"))
    m.flush()
    # Not at once: whoever deletes it may do so again.
    assert m.api.get(PODS, "j-worker-0", "default") is None
    m.rest()
    assert m.bound("j-worker-0")


def test_a_member_made_anew_behind_a_watch_that_lags_is_released_all_the_same() -> None:
    """Chaos seed 21332: shown all at once that its earlier pod was there and went, and the one that
    was made since, which was known by its answer alone.
    """
    m = Machine()
    do.nodes(m, 1)
    m.scheduler.name = "nobody"
    do.job(m, "j", 1)
    m.flush()
    replica = m.replicas[0]
    (place,) = (place for place in m.api.objects if place[0] == PODS)
    slot = do.of(m, "j").members[place[2]]
    assert slot.state == Member.RELEASED
    new = m.api.get(PODS, place[2], "default")
    assert new is not None
    old = {**new, "metadata": {**new["metadata"], "uid": "before", "resourceVersion": "1"}}
    replica.turn(seen(PODS, old), e.PodGone("default", place[2], "before"), seen(PODS, new))
    assert slot.uid == new["metadata"]["uid"]
    assert slot.state == Member.RELEASED

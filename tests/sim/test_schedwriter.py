"""What the stand-in scheduler writes: as client-go's recorder of events.k8s.io/v1 does it."""

from __future__ import annotations

from collections import Counter

from extender.core import api
from extender.sim.schedwriter import Writer


async def test_events_of_one_version_of_a_pod_are_a_series_with_the_first_ones_message(client):
    writer = Writer(client, lambda: 1_700_000_000.0, Counter())
    container = {"name": "main", "image": "none"}
    body = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
    pod = await client.create(api.PODS, "default", body)
    for message in ("first", "second", "third"):
        await writer.event(pod, "Warning", "FailedScheduling", message)
    await writer.event(pod, "Normal", "Scheduled", "another reason")
    pod = await client.patch(api.PODS, "default", "a", {"metadata": {"labels": {"a": "b"}}})
    await writer.event(pod, "Warning", "FailedScheduling", "fourth")

    listed = await client.list(api.EVENTS, "default")
    told = {each["message"]: (each.get("series") or {}).get("count") for each in listed["items"]}
    assert told == {"first": 2, "another reason": None, "fourth": None}

"""/metrics after a gang was held, placed and bound by the whole service: each stage has counted."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.core import api
from extender.demo.engine import embedded
from extender.sim import fleet

GROUP = {"metadata": {"name": "train"}, "spec": {"minMember": 2}}


def member(index: int) -> dict:
    box = {"name": "main", "image": "train", "resources": {"limits": {fleet.GPU: "1"}}}
    marks = {"scheduling.k8s.io/group-name": "train"}
    return {
        "metadata": {"name": f"train-{index}", "annotations": marks},
        "spec": {"schedulerName": "muster", "containers": [box]},
    }


@pytest.mark.timeout(60)
async def test_every_stage_of_a_gang_that_waits_and_is_placed_is_measured():
    async with embedded() as cluster, aiohttp.ClientSession() as session:
        root = cluster.service.url.removesuffix("/scheduler")

        async def read() -> dict[tuple, float]:
            async with session.get(f"{root}/metrics") as answer:
                text = await answer.text()
            return {
                (sample.name, *sorted(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }

        def of(found, name, **labels):
            return found.get((name, *sorted(labels.items())), 0.0)

        async def until(name, **labels):
            while of(found := await read(), name, **labels) < 1:  # noqa: ASYNC110 (a page)
                await asyncio.sleep(0.02)
            return found

        await fleet.add_node(cluster.client, fleet.node("n0", gpus=1))
        await cluster.client.create(api.VOLCANO_GROUPS, "default", GROUP)
        for index in range(2):
            await cluster.client.create(api.PODS, "default", member(index))
        held = await until("muster_gangs_waiting", reason="NeverFits")
        assert of(held, "muster_refusals_total", reason="NeverFits") == 1
        assert of(held, "muster_gangs", phase="Waiting") == 1
        assert of(held, "muster_oldest_waiting_timestamp_seconds") > 1e9
        assert of(held, "muster_hold_seconds_count") == 0
        assert of(held, "muster_ready") == of(held, "muster_leader") == 1

        await fleet.add_node(cluster.client, fleet.node("n1", gpus=1))
        placed = await until("muster_gangs", phase="Running")
        assert of(placed, "muster_gangs_waiting", reason="NeverFits") == 0
        assert of(placed, "muster_oldest_waiting_timestamp_seconds") == 0
        assert of(placed, "muster_core_total", what="plans") == 1
        for stage in ("plan", "hold", "barrier", "placement"):
            assert of(placed, f"muster_{stage}_seconds_count") == 1, stage
        assert of(placed, "muster_hold_seconds_sum") > 0
        assert of(placed, "muster_bind_seconds_count") == 2
        assert of(placed, "muster_verb_results_total", verb="bind", result="bound") == 2
        assert of(placed, "muster_verb_results_total", verb="filter", result="passed") >= 2
        assert of(placed, "muster_commands_total", kind="Bind", result="ok") == 2
        assert of(placed, "muster_command_seconds_count", kind="Bind") == 2
        assert of(placed, "muster_api_requests_total", verb="watch", code="200") >= 10
        assert of(placed, "muster_api_requests_total", verb="post", code="201") >= 3
        assert of(placed, "muster_api_request_seconds_count", verb="patch") >= 2
        assert of(placed, "muster_events_in_total", kind="Node", type="ADDED") == 2
        assert of(placed, "muster_turn_seconds_count") > 5
        assert of(placed, "muster_queue_length") == of(placed, "muster_commands_waiting") == 0
        assert of(placed, "process_resident_memory_bytes") > 1e7
        faults = [key for key in placed if key[0] == "muster_invariant_violations_total"]
        assert faults
        assert sum(placed[key] for key in faults) == 0

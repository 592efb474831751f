"""S11: the leader pauses with Bindings on the way; they arrive when another one has planned anew."""

from __future__ import annotations

import signal
from pathlib import Path

from extender.core import api
from extender.sim.daemon import free_port
from tests.controlplane.gangs import check_landed_whole, nominated
from tests.controlplane.processes import service
from tests.controlplane.test_s3_kills import bound_once
from tests.controlplane.test_s11_replicas import SECTION, leader
from tests.controlplane.wire import wired
from tests.controlplane.world import World


async def test_a_late_binding_never_lands_on_a_pod_that_was_planned_anew(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", "n3")
    section, ports = {**SECTION, "concurrency": 16}, [free_port() for _ in range(2)]
    async with (
        wired(world.plane, tmp_path, ports, section) as made,
        service([replica for replica, _ in made], extender_port),
    ):
        first, second = await leader([replica for replica, _ in made])
        (way,) = (way for replica, way in made if replica is first)

        way.shut_after(0)
        await world.group("train", 2)
        await world.gang("train", 2)
        await way.until_sent(2)
        first.signal(signal.SIGSTOP)
        assert world.bound() == {}
        lost = way.late[0]
        await world.client.patch(api.NODES, None, lost.node, {"spec": {"unschedulable": True}})
        await second.until_leading()
        await world.until(
            lambda: nominated(world).get(lost.pod) not in (None, lost.node), "another plan"
        )
        spare = nominated(world)[lost.pod]

        await way.until_answered()
        assert len(way.late) == 2
        assert (lost.status, "Precondition failed: ResourceVersion" in lost.message) == (409, True)
        first.signal(signal.SIGCONT)
        await world.until(lambda: len(world.bound()) == 2, "the whole gang")
        assert world.bound()[lost.pod] == spare
        assert lost.node not in world.bound().values()
        await second.until(lambda state: state["leading"])
    bound_once(world)
    check_landed_whole(world, "train", 2)

"""What can go wrong in a run: one method for each name in :data:`schedule.ACTS`.

An act draws all that it chooses from its own number, so that leaving one out of a run does not
change what the others choose.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from extender.chaos import workloads
from extender.chaos.network import Link, Weather
from extender.chaos.plant import PODS, Plant
from extender.chaos.schedule import ACTS, Act
from extender.chaos.users import Users
from extender.chaos.workloads import GPU, Workload
from extender.core.errors import InvalidObject

_NOTICE = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
_TAINT = {"key": "example.com/maintenance", "effect": "NoSchedule"}
#: Names of nodes; one that was removed may come back as another machine.
_NODES = tuple(f"n{number}" for number in range(1, 7))
_MOST_WORKS = 7


class Faults:
    """Lets things happen until it is stopped; then everything works again."""

    def __init__(self, plant: Plant, users: Users) -> None:
        self._plant, self._users = plant, users
        self._rng = plant.rng("faults")
        self._draw = 0

    async def play(self, acts: Sequence[Act], seconds: float, over: Callable[[], bool]) -> None:
        """One act after the other, and a while without any; ends early when it is ``over``."""
        for act in acts:
            await asyncio.sleep(max(0.0, act.at - self._plant.now()))
            if over():
                return
            self.perform(act)
        await asyncio.sleep(max(0.0, seconds - self._plant.now()))

    def perform(self, act: Act) -> None:
        """One act. Raises InvalidObject for one that is not known."""
        if act.name not in ACTS:
            raise InvalidObject("act", act.name, f"one of {', '.join(sorted(ACTS))}")
        self._rng = self._users.rng = self._plant.rng("act", act.draw)
        self._draw = act.draw
        self._plant.struck()
        getattr(self, act.name)()

    def stop(self) -> None:
        """Networks, programs and nodes work again; what users have made stays."""
        plant = self._plant
        plant.note("faults stop")
        plant.fuse = None
        plant.unreachable.clear()
        for field in Weather.__struct_fields__:
            setattr(plant.weather, field, 0.0)
        for link in plant.links.values():
            link.mute = link.deaf = False
        for replica in plant.replicas.values():
            replica.process.disarm()
            replica.process.resume()

    # --- users

    def submit(self) -> None:
        self._submit(workloads.draw)

    def submit_launched(self) -> None:
        self._submit(workloads.draw_launched)

    def submit_shared(self) -> None:
        self._submit(workloads.draw_shared)

    def _submit(self, draw: Callable[[random.Random, str], Workload]) -> None:
        if len(self._users.works) < _MOST_WORKS:
            self._users.submit(draw(self._rng, f"w{self._draw}"))

    def withdraw(self) -> None:
        if work := self._work():
            self._users.withdraw(work)

    def resubmit(self) -> None:
        """Deleted, and another one made under the same name at once or a little later."""
        work = self._work()
        if work is None:
            return
        self._users.withdraw(work)
        fresh = workloads.draw(self._rng, work.name)
        if self._rng.random() < 0.5:
            self._users.submit(fresh)
        else:
            self._after(self._rng.uniform(0.0, 3.0), lambda: self._users.submit(fresh))

    def delete_pod(self) -> None:
        self._users.delete_pod()

    def delete_belonging(self) -> None:
        self._users.delete_belonging()

    def replace_pod(self) -> None:
        self._users.replace_pod()

    def recreate_record(self) -> None:
        self._users.recreate_record()

    def edit_minimum(self) -> None:
        self._users.edit_minimum()

    def scale_job(self) -> None:
        self._users.scale_job()

    def suspend_job(self) -> None:
        """For a while."""
        jobs = [work for work in self._users.works.values() if work.form == "job"]
        if jobs:
            work = self._rng.choice(jobs)
            self._users.suspend(work, on=True)
            resume = self._rng.uniform(0.1, 30.0)
            self._after(resume, lambda: self._users.suspend(work, on=False))

    def bind_foreign(self) -> None:
        self._users.bind_foreign()

    def bind_foreign_share(self) -> None:
        self._users.bind_foreign(milli=self._rng.choice(workloads.SHARES))

    def delete_foreign(self) -> None:
        self._users.delete_foreign()

    def bind_member(self) -> None:
        self._users.bind_member()

    def press(self) -> None:
        """A pod that may preempt, and soon ends."""
        seconds = self._rng.uniform(5.0, 30.0)
        gpus = self._rng.choice((1, 2, 4))
        name = f"press-{self._draw}"
        self._users.submit(
            Workload(name, "plain", gpus, size=1, least=1, seconds=seconds, priority="high")
        )

    def _work(self) -> Workload | None:
        works = list(self._users.works.values())
        return self._rng.choice(works) if works else None

    # --- nodes

    def add_node(self, devices: int = 0) -> None:
        there = {node["metadata"]["name"] for node in self._users.nodes()}
        if free := [name for name in _NODES if name not in there]:
            self._users.add_node(self._rng.choice(free), self._rng.choice((2, 4, 4, 8)), devices)

    def add_shared_node(self) -> None:
        """With GPUs, and with others that are given away in parts."""
        self.add_node(devices=self._rng.choice((1, 2, 2, 4)))

    def remove_node(self) -> None:
        if (name := self._node()) and len(self._users.nodes()) > 1:
            self._users.remove_node(name)

    def cordon(self) -> None:
        """For a while."""
        if name := self._node():
            self._users.patch_node(name, {"spec": {"unschedulable": True}})
            back = {"spec": {"unschedulable": None}}
            self._after(self._rng.uniform(0.1, 40.0), lambda: self._users.patch_node(name, back))

    def taint(self) -> None:
        """For a while."""
        if name := self._node():
            self._users.patch_node(name, {"spec": {"taints": [_TAINT]}})
            back = {"spec": {"taints": None}}
            self._after(self._rng.uniform(0.1, 40.0), lambda: self._users.patch_node(name, back))

    def announce_end(self) -> None:
        """A node says that it will be gone soon, and goes, or does not."""
        if name := self._node():
            self._users.patch_node(name, {"spec": {"taints": [_NOTICE]}})
            goes, back = self._rng.random() < 0.5, {"spec": {"taints": None}}

            def then() -> None:
                if goes and len(self._users.nodes()) > 1:
                    self._users.remove_node(name)
                else:
                    self._users.patch_node(name, back)

            self._after(self._rng.uniform(5.0, 40.0), then)

    def resize(self) -> None:
        """A device plugin reports another number of GPUs."""
        if name := self._node():
            count = {GPU: str(self._rng.choice((0, 1, 2, 4, 8)))}
            self._users.patch_node(name, {"status": {"allocatable": count}}, "status")

    def kubelet_restarts(self) -> None:
        """It forgets what it was about; its pods go on."""
        if name := self._kubelet():
            self._plant.note(f"kubelet of {name} restarts")
            self._plant.stop_kubelet(name)
            self._plant.start_kubelet(name)

    def kubelet_is_lost(self) -> None:
        """Long enough, mostly, for its node to be not ready, and its pods to be evicted."""
        if name := self._kubelet():
            link = self._plant.links[f"kubelet {name}"]
            self._cut_off(link, self._rng.choice((3.0, 15.0, 50.0)) * self._rng.uniform(0.5, 1.5))

    def _node(self) -> str:
        names = [node["metadata"]["name"] for node in self._users.nodes()]
        return self._rng.choice(names) if names else ""

    def _kubelet(self) -> str:
        names = list(self._plant.kubelets)
        return self._rng.choice(names) if names else ""

    # --- programs

    def kill(self) -> None:
        self._plant.kill_replica(self._pod())

    def kill_in_write(self) -> None:
        """A few writes from now, while one of them is on its way."""
        self._plant.fuse = (self._pod(), self._rng.randint(0, 12))

    def kill_between_awaits(self) -> None:
        """A few steps of its tasks from now, wherever that is."""
        pod = self._pod()
        process = self._plant.replicas[pod].process
        steps = int(2.0 ** self._rng.uniform(0.0, 10.0))
        process.strike(steps, lambda: self._plant.kill_replica(pod))

    def stop_softly(self) -> None:
        """A rolling update's SIGTERM."""
        self._plant.outside(self._plant.stop_replica(self._pod()))

    def pause(self) -> None:
        """Mostly longer than the Lease lasts; and then it goes on where it was."""
        replica = self._plant.replicas[self._pod()]
        if replica.process.dead or replica.process.paused:
            return
        seconds = self._rng.choice((1.0, 5.0, 14.0, 30.0, 60.0)) * self._rng.uniform(0.5, 1.5)
        self._plant.note(f"{replica.identity} is paused for {seconds:.1f} s")
        replica.process.pause()
        self._after(seconds, replica.process.resume)

    def set_clock(self) -> None:
        """Somebody sets a machine's clock, wrongly or rightly."""
        pod, seconds = self._pod(), self._rng.choice((-3600.0, -20.0, 0.0, 20.0, 3600.0))
        self._plant.note(f"the clock of {pod} is wrong by {seconds:.0f} s")
        self._plant.skew[pod] = seconds

    def restart_scheduler(self) -> None:
        self._plant.restart_scheduler()

    def _pod(self) -> str:
        return self._rng.choice([pod for pod in PODS if pod in self._plant.replicas])

    # --- network

    def cut(self) -> None:
        """Between one client and the API server, in one direction or both, for a while."""
        name = self._rng.choice(list(self._plant.links))
        self._cut_off(self._plant.links[name], self._rng.uniform(0.5, 40.0))

    def cut_service(self) -> None:
        """Between kube-scheduler and one Muster, for a while."""
        pod, seconds = self._pod(), self._rng.uniform(0.5, 40.0)
        self._plant.note(f"kube-scheduler does not reach {pod} for {seconds:.1f} s")
        self._plant.unreachable.add(pod)
        self._after(seconds, lambda: self._plant.unreachable.discard(pod))

    def change_weather(self) -> None:
        rng, weather = self._rng, self._plant.weather
        for field in Weather.__struct_fields__:
            setattr(weather, field, rng.choice((0.0, 0.0, 0.01, 0.05, 0.15)))
        self._plant.note(f"{weather}")

    def _cut_off(self, link: Link, seconds: float) -> None:
        link.mute, link.deaf = self._rng.choice(((True, True), (True, False), (False, True)))
        ways = "both ways" if link.mute and link.deaf else "up" if link.mute else "down"
        self._plant.note(f"{link.process.name} is cut off for {seconds:.1f} s ({ways})")

        def mend() -> None:
            link.mute = link.deaf = False

        self._after(seconds, mend)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        """Later, even when faults have stopped: what is broken is mended."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            call()

        self._plant.outside(wait())

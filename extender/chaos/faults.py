"""What goes wrong in a run, drawn from its seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from extender.chaos import workloads
from extender.chaos.network import Weather
from extender.chaos.plant import PODS, Plant
from extender.chaos.users import Users
from extender.chaos.workloads import GPU

#: Seconds between two faults on average is drawn from here.
_PACE = (1.0, 12.0)
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Faults:
    """Lets things happen until it is stopped; then everything works again."""

    def __init__(self, plant: Plant, users: Users, rng: random.Random) -> None:
        self._plant, self._users, self._rng = plant, users, rng
        self._pace = rng.uniform(*_PACE)
        self._nodes = 0
        self._works = 0
        self._over = False
        # A run has some of the faults, so that what each does alone is seen too.
        self._kinds = [kind for kind in self._all() if rng.random() < 0.6] or self._all()

    def begin(self) -> None:
        """The cluster as it is when a run begins."""
        for _ in range(self._rng.randint(2, 4)):
            self.add_node()
        for _ in range(self._rng.randint(1, 4)):
            self.submit()
        self._set_weather()

    async def run(self, seconds: float) -> None:
        """One fault after the other for a while."""
        end = self._plant.now() + seconds
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._pace))
            if self._plant.now() >= end:
                return
            self._rng.choice(self._kinds)()

    def stop(self) -> None:
        """Networks, programs and nodes work again; what users have made stays."""
        plant = self._plant
        plant.note("faults stop")
        self._over = True
        plant.fuse = None
        for field in Weather.__struct_fields__:
            setattr(plant.weather, field, 0.0)
        for link in plant.links.values():
            link.cut = False
        for replica in plant.replicas.values():
            replica.process.resume()

    def _all(self) -> list[Callable[[], None]]:
        users = self._users
        return [
            self.submit,
            self.submit,
            self.withdraw,
            self.resubmit,
            users.delete_pod,
            users.delete_pod,
            users.recreate_record,
            users.edit_minimum,
            users.bind_foreign,
            users.delete_foreign,
            self.add_node,
            self.remove_node,
            self.cordon,
            self.taint,
            self.resize,
            self.kill,
            self.kill_in_write,
            self.kill_in_write,
            self.stop_softly,
            self.pause,
            self.cut,
            self.restart_scheduler,
            self.change_weather,
        ]

    # --- users

    def submit(self) -> None:
        if len(self._users.works) < 7:
            self._works += 1
            self._users.submit(workloads.draw(self._rng, f"w{self._works}"))

    def withdraw(self) -> None:
        if self._users.works:
            self._users.withdraw(self._rng.choice(list(self._users.works.values())))

    def resubmit(self) -> None:
        """Deleted, and another one made under the same name at once or a little later."""
        if not self._users.works:
            return
        name = self._rng.choice(list(self._users.works))
        self._users.withdraw(self._users.works[name])
        fresh = workloads.draw(self._rng, name)
        if self._rng.random() < 0.5:
            self._users.submit(fresh)
        else:
            self._after(self._rng.uniform(0.0, 3.0), lambda: self._users.submit(fresh))

    # --- nodes

    def add_node(self) -> None:
        if len(self._users.nodes()) < 6:
            self._nodes += 1
            self._users.add_node(f"n{self._nodes}", self._rng.choice((2, 4, 4, 8)))

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
        """Its kubelet is not heard of for a while."""
        if name := self._node():
            self._users.patch_node(name, {"spec": {"taints": [_NOT_READY]}})
            back = {"spec": {"taints": None}}
            self._after(self._rng.uniform(0.1, 40.0), lambda: self._users.patch_node(name, back))

    def resize(self) -> None:
        """A device plugin reports another number of GPUs."""
        if name := self._node():
            count = {GPU: str(self._rng.choice((0, 1, 2, 4, 8)))}
            self._users.patch_node(name, {"status": {"allocatable": count}}, "status")

    def _node(self) -> str:
        names = [node["metadata"]["name"] for node in self._users.nodes()]
        return self._rng.choice(names) if names else ""

    # --- programs

    def kill(self) -> None:
        self._plant.kill_replica(self._pod())

    def kill_in_write(self) -> None:
        """A few writes from now, while one of them is on its way."""
        self._plant.fuse = (self._pod(), self._rng.randint(0, 12))

    def stop_softly(self) -> None:
        """A rolling update's SIGTERM."""
        self._plant.outside(self._plant.stop_replica(self._pod()))

    def pause(self) -> None:
        """Mostly longer than the Lease lasts."""
        replica = self._plant.replicas[self._pod()]
        if replica.process.dead or replica.process.paused:
            return
        seconds = self._rng.choice((1.0, 5.0, 14.0, 30.0, 60.0)) * self._rng.uniform(0.5, 1.5)
        self._plant.note(f"{replica.identity} is paused for {seconds:.1f} s")
        replica.process.pause()
        self._after(seconds, replica.process.resume)

    def restart_scheduler(self) -> None:
        self._plant.restart_scheduler()

    def _pod(self) -> str:
        return self._rng.choice([pod for pod in PODS if pod in self._plant.replicas])

    # --- network

    def cut(self) -> None:
        """Nothing passes between one client and the API server for a while."""
        name = self._rng.choice(list(self._plant.links))
        link = self._plant.links[name]
        seconds = self._rng.uniform(0.5, 40.0)
        self._plant.note(f"{name} is cut off for {seconds:.1f} s")
        link.cut = True

        def mend() -> None:
            link.cut = False

        self._after(seconds, mend)

    def change_weather(self) -> None:
        self._set_weather()

    def _set_weather(self) -> None:
        rng, weather = self._rng, self._plant.weather
        for field in Weather.__struct_fields__:
            share = rng.choice((0.0, 0.0, 0.01, 0.05, 0.15))
            setattr(weather, field, share)
        self._plant.note(f"{weather}")

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        """Later, even when faults have stopped: what is broken is mended."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            call()

        self._plant.outside(wait())

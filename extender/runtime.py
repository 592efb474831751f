"""Builds the service from its settings, runs it, and takes it down in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from extender import __version__
from extender.core import api
from extender.core.answers import StateView
from extender.core.coordinator import Coordinator
from extender.core.errors import ApiError
from extender.core.health import Avoid, Loss, Notices
from extender.core.standing import stands
from extender.core.state import Rules
from extender.http.access import Gate
from extender.http.doors import Doors
from extender.http.verbs import Bindings
from extender.jobs import KINDS
from extender.kernels.warm import compile_all
from extender.kube import credentials
from extender.kube.client import ApiClient
from extender.kube.complaints import Complaints
from extender.kube.eventwriter import event_writer
from extender.kube.executor import Executor
from extender.kube.lease import LeaderElector, Timing, boottime
from extender.kube.reflector import Reflectors
from extender.kube.reviews import Reviews
from extender.kube.snapshots import snapshot
from extender.kube.solo import AlwaysLeader
from extender.loop import Loop, steady
from extender.obs.log import logger
from extender.obs.logfile import header_of
from extender.obs.metrics import Metrics
from extender.obs.recorder import recording
from extender.settings import Settings

#: Everything that Muster watches.
WATCHED = (
    api.NODES,
    api.NODE_TOPOLOGIES,
    api.OLD_NODE_TOPOLOGIES,
    api.HYPER_NODES,
    api.TOPOLOGIES,
    api.OLD_TOPOLOGIES,
    api.NAMESPACES,
    api.PRIORITY_CLASSES,
    api.VOLUMES,
    api.CLAIMS,
    api.SERVICES,
    api.GANG_PLANS,
    api.VOLCANO_GROUPS,
    api.SIGS_GROUPS,
    api.NATIVE_GROUPS,
    *api.JOBS,
    api.PODS,
)
#: Seconds by which Muster answers /bind before kube-scheduler's httpTimeout.
BIND_SLACK = 5.0
#: Seconds that commands under way may take when the process stops.
DRAIN_SECONDS = 10.0
#: Allocations between two collections of the young; the default of 700 is for small programs.
GC_ALLOCATIONS = 5_000

_log = logger("runtime")


@dataclass
class Service:
    """A running Muster."""

    settings: Settings
    loop: Loop
    view: StateView
    metrics: Metrics
    addresses: list[tuple[str, int]]

    @property
    def url(self) -> str:
        """UrlPrefix for a KubeSchedulerConfiguration."""
        host, port = self.addresses[0][:2]
        scheme = "https" if self.settings.muster.tls else "http"
        return f"{scheme}://{host}:{port}{self.settings.muster.listen.prefix}"


def rules_of(settings: Settings) -> Rules:
    """What decisions depend on."""
    m = settings.muster
    return Rules(
        scheduler_names=m.scheduler_names,
        scheduler_name=m.scheduler_name,
        managed_resources=frozenset(m.managed_resources),
        pod_max_backoff=m.pod_max_backoff_seconds,
        bind_timeout=m.bind_timeout_seconds - BIND_SLACK,
        plan_deadline=m.plan_deadline_seconds,
        visible_after=m.visible_after_seconds,
        levels=m.topology.known(),
        avoid=Avoid(
            m.node_loss.avoid_after_gangs,
            m.node_loss.avoid_window_seconds,
            m.node_loss.avoid_seconds,
        ),
        loss=Loss(m.node_loss.noticed_after_seconds, m.node_loss.deleted_after_seconds),
        notices=Notices(
            frozenset(m.termination.taints),
            frozenset(m.termination.conditions),
            frozenset(m.termination.annotations),
            m.termination.notice_seconds,
        ),
        spot_labels=tuple(m.termination.spot_labels.items()),
        on_demand_roles=frozenset(role.lower() for role in m.termination.on_demand_roles),
        node_loss=m.node_loss.tolerate_seconds,
        force_delete_after=m.node_loss.force_delete_after_seconds,
    )


@asynccontextmanager
async def running(
    settings: Settings,
    where: credentials.Credentials | None = None,
    *,
    rng: random.Random | None = None,
    record: Path | None = None,
) -> AsyncIterator[Service]:
    """Run the service inside a ``with``: listening, watching and (when it leads) deciding.

    ``record``: a file for what the core is told and answers. Raises OSError if it cannot be written.
    """
    rng = rng or random.Random()
    m, metrics = settings.muster, Metrics()
    where = where or credentials.find(m.kubeconfig)
    kinds = {kind.resource: kind for kind in KINDS}
    coordinator = Coordinator(rules_of(settings), settings.session(), kinds)
    ready = False
    view = StateView(coordinator.state, lambda: ready)
    timeout = m.leader_election.renew_deadline_seconds
    async with (
        ApiClient(where, metrics, timeout=timeout) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        recorder = await stack.enter_async_context(
            recording(record, header_of(settings, rules_of(settings)), metrics)
        )
        loop = Loop(coordinator, metrics, clock=steady(time.time, boottime), recorder=recorder)
        bindings = Bindings(loop)
        complaints = Complaints(lambda: client.server)
        elector = _elector(settings, client, loop, metrics, rng, complaints)
        events = event_writer(
            client,
            elector.may_write,
            metrics,
            instance=_identity(),
            clock=time.monotonic,
            busy=lambda: executor.busy,
        )
        executor = Executor(
            client,
            loop,
            elector.may_write,
            metrics,
            rng,
            clock=time.monotonic,
            concurrency=m.concurrency,
            events=events,
            complaints=complaints,
            stands=partial(stands, coordinator.state),
        )
        loop.connect(bindings.resolve, executor.submit)
        reflectors = Reflectors(client, loop, WATCHED, metrics, rng, complaints)

        def copied() -> AsyncIterator[bytes]:
            header = header_of(settings, rules_of(settings))
            told = {"state": view.state, "gangs": view.gangs}
            return snapshot(
                client, WATCHED, metrics, header, lambda: {k: say() for k, say in told.items()}
            )

        view.objects = copied

        def facts() -> dict[str, Any]:
            return {
                "version": __version__,
                "apiServer": client.server,
                "identity": elector.identity,
                "leaseHolder": elector.holder(),
                "notListed": reflectors.waits_for(),
            }

        def reviewed(error: ApiError | None) -> None:
            if error is None:
                complaints.right("review tokens")
            else:
                complaints.wrong("review tokens", error)

        gate = Gate(Reviews(client), metrics, time.monotonic, reviewed)
        doors = Doors(m, metrics, gate, facts, stack)
        deadline = m.bind_timeout_seconds - BIND_SLACK
        runner = await doors.open(view, loop, bindings, bind_deadline=deadline)
        tasks = [
            asyncio.create_task(loop.run(), name="loop"),
            asyncio.create_task(reflectors.run(), name="reflectors"),
            asyncio.create_task(events.run(), name="events"),
        ]
        # Kernels compile off the loop while the lists come in.
        warm = asyncio.create_task(asyncio.to_thread(compile_all), name="warm")
        service = Service(settings, loop, view, metrics, list(runner.addresses))
        _log.info("listening", version=__version__, url=service.url, api_server=client.server)

        async def lead() -> None:
            nonlocal ready
            await asyncio.gather(reflectors.synced(), warm)
            _settle_memory()
            ready = True
            _log.info("ready", **{k: view.state()[k] for k in ("nodes", "pods", "gangs")})
            await elector.run()

        leading = asyncio.create_task(lead(), name="lease")
        try:
            async with _fail_together([*tasks, leading]):
                yield service
        finally:
            ready = False
            await runner.cleanup()
            done = await executor.drain(DRAIN_SECONDS)
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            if done:
                await elector.release()
            await elector.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _settle_memory() -> None:
    """What the first lists brought stays: no collection need look at it again and again.

    One of 50,000 objects takes 70 ms, in which nobody is answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 5, 50)


async def serve_forever(settings: Settings, record: Path | None = None) -> None:
    """``muster serve``: run until SIGTERM or SIGINT. ``record``: see :func:`running`."""
    stop = asyncio.Event()
    running_loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running_loop.add_signal_handler(number, stop.set)
    async with running(settings, record=record):
        await stop.wait()
        _log.info("stopping")


@asynccontextmanager
async def _fail_together(tasks: list[asyncio.Task[None]]) -> AsyncIterator[None]:
    """A background task that ends takes the body down with it: nothing limps on."""
    body = asyncio.current_task()
    assert body is not None

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task failed", task=task.get_name(), exc_info=task.exception())
            body.cancel()

    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    finally:
        for task in tasks:
            task.remove_done_callback(ended)


def _identity() -> str:
    """Unique to this process, opening with the pod's name."""
    name = os.environ.get("POD_NAME") or socket.gethostname()
    return f"{name}_{uuid.uuid4().hex[:12]}"


def _elector(
    settings: Settings,
    client: ApiClient,
    loop: Loop,
    metrics: Metrics,
    rng: random.Random,
    complaints: Complaints,
) -> LeaderElector | AlwaysLeader:
    lease, epoch = settings.muster.leader_election, int(time.time())
    if not lease.enabled:
        return AlwaysLeader(loop, metrics, epoch=epoch)
    return LeaderElector(
        client,
        loop,
        metrics,
        rng,
        namespace=lease.namespace,
        name=lease.name,
        identity=_identity(),
        first_epoch=epoch,
        timing=Timing(
            lease.lease_duration_seconds,
            lease.renew_deadline_seconds,
            lease.retry_period_seconds,
            # The client's time-out: a request of the old leader can be under way no longer.
            drain=lease.renew_deadline_seconds,
        ),
        pod=os.environ.get("POD_NAME", ""),
        pod_namespace=os.environ.get("POD_NAMESPACE", lease.namespace),
        complaints=complaints,
    )

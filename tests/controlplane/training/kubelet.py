"""A kubelet that runs pods as processes, and the cluster's DNS, as files that each pod has.

It honours env, command, args, workingDir, init containers, emptyDir, hostPath, ConfigMap and Secret
volumes, restartPolicy and the grace of a deletion. A name resolves only while a Service of that name
selects the pod, as it does in a cluster.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.client import Client
from extender.sim.intake import timestamp
from tests.controlplane.training import expand
from tests.controlplane.training.box import Box

#: Seconds before a container that ended is started again (the kubelet's first back-off is 10).
RESTART_SECONDS = 0.5


class ProcessKubelet:
    """Runs every pod of one namespace that is bound; ``async with`` it."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self._client = client
        self._namespace = namespace
        self._folder = folder
        self._pods: dict[str, Manifest] = {}
        self._services: dict[str, Manifest] = {}
        self._addresses: dict[str, str] = {}
        #: /etc/hosts of the pods that live.
        self._hosts: dict[str, Path] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._dying: set[str] = set()
        #: The program of each pod that runs, by name.
        self.boxes: dict[str, Box] = {}
        self._numbers = itertools.count(2)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> ProcessKubelet:
        self._folder.mkdir(parents=True, exist_ok=True)
        follow = (self._follow_services(), self._follow_pods())
        self._tasks = [asyncio.create_task(each) for each in follow]
        return self

    async def __aexit__(self, *_: object) -> None:
        lives = [*self._tasks, *self._lives.values()]
        for each in lives:
            each.cancel()
        ended = await asyncio.gather(*lives, return_exceptions=True)
        faults = [each for each in ended if isinstance(each, Exception)]
        assert not faults, faults

    def log(self, pod: str) -> str:
        """What every life of a pod of this name has printed, the oldest first."""
        logs = sorted(self._folder.glob(f"{pod}.*.log"), key=lambda path: path.stat().st_mtime)
        return "".join(path.read_text(errors="replace") for path in logs)

    async def printed(self) -> None:
        """A moment in which programs may have printed something: there is nothing to wait for."""
        await asyncio.sleep(0.1)

    async def _follow_services(self) -> None:
        async for kind, found in self._client.follow(api.SERVICES, self._namespace):
            for each in found:
                name = each["metadata"]["name"]
                if kind == "DELETED":
                    self._services.pop(name, None)
                else:
                    self._services[name] = each
            self._write_names()

    async def _follow_pods(self) -> None:
        async for kind, found in self._client.follow(api.PODS, self._namespace):
            for pod in found:
                self._see(pod, gone=kind == "DELETED")
            self._write_names()

    def _see(self, pod: Manifest, *, gone: bool) -> None:
        uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase")
        if gone or not pod["spec"].get("nodeName"):
            self._pods.pop(uid, None)
            if life := self._lives.pop(uid, None):
                life.cancel()
            return
        self._pods[uid] = pod
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._dying:
                self._dying.add(uid)
                self._tasks.append(asyncio.create_task(self._die(pod)))
        elif phase not in ("Succeeded", "Failed") and uid not in self._lives:
            self._lives[uid] = asyncio.create_task(self._live(pod))

    async def _live(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        self._addresses[uid] = "127.1.{}.{}".format(*divmod(next(self._numbers), 250))
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="pod-") as made:
            folder = Path(made)
            self._hosts[uid] = folder / "hosts"
            self._write_names()
            try:
                await self._run(pod, folder)
            finally:
                del self._hosts[uid]

    async def _run(self, pod: Manifest, folder: Path) -> None:
        volumes = await self._volumes(pod, folder)
        for container in pod["spec"].get("initContainers") or ():
            code = await self._box(pod, container, folder, volumes).run()
            if code:
                await self._tell(pod, "Failed", code, 0)
                return
        (container,) = pod["spec"]["containers"]
        for restarts in itertools.count():
            box = self._box(pod, container, folder, volumes)
            self.boxes[pod["metadata"]["name"]] = box
            await self._tell(pod, "Running", 0, restarts)
            code = await box.run()
            policy = pod["spec"].get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and not code):
                await self._tell(pod, "Failed" if code else "Succeeded", code, restarts)
                return
            await asyncio.sleep(RESTART_SECONDS)

    async def _die(self, pod: Manifest) -> None:
        """SIGTERM, the grace, SIGKILL; then the pod is gone."""
        meta = pod["metadata"]
        life, box = self._lives.get(meta["uid"]), self.boxes.get(meta["name"])
        if life is not None and not life.done():
            if box is not None:
                box.signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(meta.get("deletionGracePeriodSeconds") or 0):
                    await asyncio.wait([life])
            life.cancel()
            await asyncio.wait([life])
        with suppress(ApiError):  # it may be gone by now
            uid = meta["uid"]
            await self._client.delete(api.PODS, self._namespace, meta["name"], uid=uid, grace=0)

    def _box(self, pod: Manifest, container: Manifest, folder: Path, volumes: Volumes) -> Box:
        address = self._addresses[pod["metadata"]["uid"]]
        env = expand.environment(pod, container, address)
        root = Path(tempfile.mkdtemp(dir=folder, prefix="box-"))
        name = pod["metadata"]["name"]
        mounts = [(folder / "hosts", "/etc/hosts")]
        for each in container.get("volumeMounts") or ():
            source = volumes[each["name"]] / each.get("subPath", "")
            mounts.append((source, each["mountPath"].rstrip("/")))
        return Box(
            root,
            expand.host_name(pod),
            expand.command(container, env),
            env,
            mounts,
            container.get("workingDir") or "/",
            self._folder / f"{name}.{pod['metadata']['uid'][:8]}.log",
        )

    async def _volumes(self, pod: Manifest, folder: Path) -> Volumes:
        made: Volumes = {}
        for volume in pod["spec"].get("volumes") or ():
            name = volume["name"]
            if host := volume.get("hostPath"):
                made[name] = Path(host["path"])
                continue
            target = made[name] = folder / "volumes" / name
            target.mkdir(parents=True)
            if source := volume.get("configMap"):
                data = await self._read(api.CONFIG_MAPS, source["name"])
                files = {key: text.encode() for key, text in (data.get("data") or {}).items()}
                _fill(target, files, source)
            elif source := volume.get("secret"):
                data = await self._read(api.SECRETS, source["secretName"])
                encoded = data.get("data") or {}
                files = {key: base64.b64decode(text) for key, text in encoded.items()}
                _fill(target, files, source)
        return made

    async def _read(self, resource: api.Resource, name: str) -> Manifest:
        """Wait for it as the kubelet does: a pod may be bound before what it mounts is there."""
        while True:
            try:
                return await self._client.get(resource, self._namespace, name)
            except ApiError as error:
                if error.code != 404:
                    raise
            await asyncio.sleep(0.1)

    def _write_names(self) -> None:
        """One line a name and pod, in place: the file is mounted where a program reads it."""
        lines = ["127.0.0.1 localhost"]
        for service in self._services.values():
            wanted = (service["spec"].get("selector") or {}).items()
            for uid, pod in self._pods.items():
                labels = (pod["metadata"].get("labels") or {}).items()
                if uid in self._addresses and wanted and wanted <= labels:
                    lines.append(self._names(service["metadata"]["name"], pod))
        for uid, hosts in self._hosts.items():
            own = f"{self._addresses[uid]} {expand.host_name(self._pods[uid])}"
            _replace(hosts, "\n".join([*lines, own]) + "\n")

    def _names(self, service: str, pod: Manifest) -> str:
        host = pod["spec"].get("hostname")
        within = pod["spec"].get("subdomain") == service and host
        bases = [f"{host}.{service}"] if within else []
        bases.append(service)
        names = [
            base + suffix
            for base in bases
            for suffix in ("", f".{self._namespace}", f".{self._namespace}.svc")
        ]
        return f"{self._addresses[pod['metadata']['uid']]} {' '.join(names)}"

    async def _tell(self, pod: Manifest, phase: str, code: int, restarts: int) -> None:
        meta = pod["metadata"]
        now, address = timestamp(time.time()), self._addresses[meta["uid"]]
        state: Manifest = {"running": {"startedAt": now}}
        if phase != "Running":
            reason = "Error" if code else "Completed"
            ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
            state = {"terminated": ended}
        ready = "True" if phase == "Running" else "False"
        kinds = ("Initialized", "ContainersReady", "Ready")
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        conditions = [
            scheduled,
            *({"type": kind, "status": ready, "lastTransitionTime": now} for kind in kinds),
        ]
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": each["name"],
                    "image": each.get("image", ""),
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": restarts,
                    "state": state,
                }
                for each in pod["spec"]["containers"]
            ],
        }
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        try:
            await self._client.patch(api.PODS, self._namespace, meta["name"], body, "status")
        except ApiError as error:
            if error.code not in (404, 409, 422):
                raise


Volumes = dict[str, Path]


def _replace(file: Path, text: str) -> None:
    """In one write, over what is there: a program that reads it meanwhile never finds it empty."""
    size = file.stat().st_size if file.exists() else 0
    handle = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, text.encode().ljust(size, b"\n"), 0)
    finally:
        os.close(handle)


def _fill(target: Path, files: dict[str, bytes], source: Manifest) -> None:
    """Files of a ConfigMap or Secret, all keys or those of ``items``, with their modes."""
    items = source.get("items") or [{"key": key, "path": key} for key in files]
    for item in items:
        path = target / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[item["key"]])
        path.chmod(item.get("mode", source.get("defaultMode", 0o644)))

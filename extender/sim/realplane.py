"""A real control plane on loopback: etcd, kube-apiserver and any number of kube-schedulers as processes.

    with RealPlane(binaries(), work_dir) as plane:
        plane.start_etcd()
        plane.start_apiserver()
        plane.start_scheduler(config)
        plane.kubectl("get", "nodes")

There is no kube-controller-manager: nothing collects garbage, makes endpoints, or finishes the deletion of a
namespace. Calls block until the server answers or is gone; an asyncio caller uses `asyncio.to_thread`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import ssl
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from extender.sim import schedulerconfig
from extender.sim.binaries import VERSION, binaries
from extender.sim.credentials import ADMIN, SCHEDULER, Credentials
from extender.sim.daemon import Daemon, StartError, free_port, get_status, unverified

__all__ = ["VERSION", "RealPlane", "StartError", "binaries"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})

#: Minor version to the version of scheduling.k8s.io that has Workload then; 1.35 has no PodGroup yet.
_WORKLOAD_API = {35: "v1alpha1", 36: "v1alpha2"}

#: Signals that leave the process there, so that there is no end to wait for.
_NOT_FATAL = (signal.SIGSTOP, signal.SIGCONT)


class RealPlane:
    """The processes of one control plane, with all their files in one folder.

    `users` maps further names to their groups; each gets a token and no rights but those that RBAC gives.
    `generic_workload` serves the native Workload and PodGroup of scheduling.k8s.io, by default where they
    are v1beta1 (from 1.37). `audit` is an audit level, say "Metadata": requests (of `audit_users` alone, if there
    are any) are then logged to audit.log.
    A `detached` plane lives on when this process ends.
    """

    def __init__(
        self,
        bin_dir: Path,
        work_dir: Path,
        *,
        version: str = VERSION,
        users: Mapping[str, Sequence[str]] = _NOTHING,
        generic_workload: bool | None = None,
        feature_gates: Mapping[str, bool] = _NOTHING,
        runtime_config: Iterable[str] = (),
        apiserver_args: Iterable[str] = (),
        audit: str = "",
        audit_users: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        self.bin_dir = bin_dir
        self.work_dir = work_dir.resolve()
        self.version = version
        self._feature_gates = dict(feature_gates)
        self._runtime_config = list(runtime_config)
        self._apiserver_args = list(apiserver_args)
        self._audit = audit
        self._audit_users = list(audit_users)
        self._detached = detached
        self._owner = os.getpid()
        self._etcd: Daemon | None = None
        self._apiserver: Daemon | None = None
        self._schedulers: dict[str, Daemon] = {}
        minor = int(version.split(".")[1])
        if generic_workload is None:
            generic_workload = minor >= 37
        if generic_workload:
            self._feature_gates.setdefault("GenericWorkload", True)
            served = _WORKLOAD_API.get(minor, "v1beta1")
            self._runtime_config.append(f"scheduling.k8s.io/{served}=true")
        self.work_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Chosen once, so that kubeconfigs survive a restart of the API server.
        self._port = free_port()
        self._credentials = Credentials(self.work_dir, self.server_url, self.ca, users)
        if not detached:
            atexit.register(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # What a client needs.

    @property
    def server_url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> Path:
        """The certificate authority of the API server; there once the API server has started."""
        return self.work_dir / "apiserver" / "apiserver.crt"

    @property
    def client_cert(self) -> tuple[Path, Path]:
        """Certificate and key of a client in system:masters."""
        return self._credentials.client_cert, self._credentials.client_key

    @property
    def token(self) -> str:
        """The token of a user in system:masters."""
        return self.token_of(ADMIN)

    def token_of(self, user: str) -> str:
        return self._credentials.tokens[user]

    @property
    def kubeconfig_path(self) -> Path:
        """The kubeconfig of a user in system:masters."""
        return self.kubeconfig_of(ADMIN)

    def kubeconfig_of(self, user: str) -> Path:
        return self._credentials.kubeconfig_of(user)

    def kubectl(
        self, *args: str, stdin: str | None = None, user: str = ADMIN, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as this user; with `check` a failure is a CalledProcessError that shows its stderr."""
        command = [str(self.bin_dir / "kubectl"), f"--kubeconfig={self.kubeconfig_of(user)}", *args]
        done = subprocess.run(  # noqa: S603 - a program that we built
            command, input=stdin, capture_output=True, text=True, check=False
        )
        if check:
            try:
                done.check_returncode()
            except subprocess.CalledProcessError as error:
                error.add_note(done.stderr)
                raise
        return done

    # The processes.

    @property
    def daemons(self) -> list[Daemon]:
        """Everything started, in the order in which it is to be stopped."""
        # The API server before etcd: without etcd its own end takes minutes.
        servers = [*self._schedulers.values(), self._apiserver, self._etcd]
        return [daemon for daemon in servers if daemon]

    def start_etcd(self) -> None:
        """Starts etcd with the data that an earlier run left, and returns when it is ready."""
        if self._etcd is None:
            client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
            port = int(client.rpartition(":")[2])
            flags = {
                "name": "default",
                "data-dir": self.work_dir / "etcd",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"default={peer}",
                # A power cut may lose everything; nobody keeps this cluster that long.
                "unsafe-no-fsync": "true",
                "log-level": "warn",
                "quota-backend-bytes": 8 * 2**30,
                # As kubeadm has it. With etcd's 10 m nobody hears of kinds in which nothing happens,
                # and Muster takes their watches for dead.
                "watch-progress-notify-interval": "5s",
            }
            self._etcd = self._daemon("etcd", "etcd", port, flags)
        port = self._etcd.port
        self._etcd.start(lambda: get_status(port, "/readyz") == 200)

    def start_apiserver(self) -> None:
        """Starts the API server, and returns when it is ready and has its first namespaces."""
        if self._etcd is None:
            raise RuntimeError("the API server needs etcd: call start_etcd() first")
        if self._apiserver is None:
            flags = self._apiserver_flags(self._etcd.port)
            self._apiserver = self._daemon("apiserver", "kube-apiserver", self._port, flags)
            self._apiserver.command += self._apiserver_args
        self._apiserver.start(self._apiserver_ready)

    def start_scheduler(
        self,
        config: str | Mapping[str, Any] = _NOTHING,
        name: str = "default",
        *,
        feature_gates: Mapping[str, bool] = _NOTHING,
    ) -> None:
        """Starts a kube-scheduler with this KubeSchedulerConfiguration (YAML text or a mapping).

        It always talks to this API server; leader election is off and the client's rate limits are high
        unless the configuration says otherwise. Several may run under distinct names.
        """
        earlier = self._schedulers.get(name)
        if earlier and earlier.alive:
            raise RuntimeError(f"a scheduler named {name!r} runs already")
        kubeconfig = self.kubeconfig_of(SCHEDULER)
        file = self.work_dir / f"scheduler-{name}.yaml"
        file.write_text(schedulerconfig.complete(config, kubeconfig))
        port = free_port()
        flags: dict[str, object] = {
            "config": file,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
        }
        if feature_gates:
            flags["feature-gates"] = _gates(feature_gates)
        daemon = self._daemon(f"scheduler-{name}", "kube-scheduler", port, flags)
        self._schedulers[name] = daemon
        # It makes its certificate in memory, so there is no authority to check it with.
        daemon.start(lambda: get_status(port, "/readyz", unverified()) == 200)

    def kill_scheduler(self, name: str = "default", sig: int = signal.SIGKILL) -> None:
        """Sends the signal, and returns when the process is gone (at once for SIGSTOP and SIGCONT)."""
        _signal(self._schedulers[name], sig)

    def kill_apiserver(self, sig: int = signal.SIGKILL) -> None:
        """As kill_scheduler; restart_apiserver() brings it back."""
        if self._apiserver:
            _signal(self._apiserver, sig)

    def restart_apiserver(self, sig: int = signal.SIGTERM) -> None:
        """Ends the API server if it runs, and starts it on the same port with the same certificates."""
        if self._apiserver:
            self._apiserver.stop(sig)
        self.start_apiserver()

    def stop(self) -> None:
        """Ends everything, without grace; harmless when done before. Returns when no process is left."""
        if os.getpid() != self._owner:
            return  # a fork of the process that owns the plane
        for daemon in self.daemons:
            daemon.stop(signal.SIGKILL)
        self._schedulers.clear()
        self._apiserver = self._etcd = None
        atexit.unregister(self.stop)

    def _daemon(self, name: str, program: str, port: int, flags: Mapping[str, object]) -> Daemon:
        command = [
            str(self.bin_dir / program),
            *(f"--{flag}={value}" for flag, value in flags.items()),
        ]
        log = self.work_dir / f"{name}.log"
        return Daemon(name, command, log, port=port, detached=self._detached)

    def _apiserver_flags(self, etcd_port: int) -> dict[str, object]:
        credentials = self._credentials
        flags: dict[str, object] = {
            "etcd-servers": f"http://127.0.0.1:{etcd_port}",
            "bind-address": "127.0.0.1",
            "secure-port": self._port,
            "cert-dir": self.ca.parent,
            # The client's certificate is its own authority.
            "client-ca-file": credentials.client_cert,
            # No proxy is trusted; but kube-scheduler logs errors every second if this is not set.
            "requestheader-client-ca-file": credentials.client_cert,
            "requestheader-allowed-names": "nobody",
            "requestheader-username-headers": "X-Remote-User",
            "token-auth-file": credentials.token_file,
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": credentials.service_account_key,
            "service-account-signing-key-file": credentials.service_account_key,
            "service-cluster-ip-range": "10.96.0.0/16",
            # Without a controller manager no namespace gets its default service account.
            "disable-admission-plugins": "ServiceAccount",
            # The defaults of 400 and 200 make a burst of thousands of pods wait in queues.
            "max-requests-inflight": 3000,
            "max-mutating-requests-inflight": 1500,
            # Otherwise SIGTERM waits a minute for watches.
            "shutdown-watch-termination-grace-period": "1s",
        }
        if self._feature_gates:
            flags["feature-gates"] = _gates(self._feature_gates)
        if self._runtime_config:
            flags["runtime-config"] = ",".join(self._runtime_config)
        if self._audit:
            rule: dict[str, object] = {"level": self._audit}
            if self._audit_users:
                rule["users"] = self._audit_users
            policy = {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [rule, {"level": "None"}],
            }
            flags["audit-policy-file"] = self.work_dir / "audit.yaml"
            flags["audit-log-path"] = self.work_dir / "audit.log"
            (self.work_dir / "audit.yaml").write_text(json.dumps(policy))
        return flags

    def _apiserver_ready(self) -> bool:
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
        except (FileNotFoundError, ssl.SSLError):
            return False  # the certificate is not written yet, or half
        # Ready means that its hooks have run, not yet that the first namespaces are there.
        return all(
            get_status(self._port, path, context, self.token) == 200
            for path in ("/readyz", "/api/v1/namespaces/default")
        )


def _signal(daemon: Daemon, sig: int) -> None:
    if sig in _NOT_FATAL:
        daemon.send(sig)
    else:
        daemon.stop(sig)


def _gates(gates: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())

"""Who may talk to the control plane on loopback: tokens, kubeconfigs, a client certificate."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from extender.sim import certs

#: In system:masters: may do everything, and is exempt from priority and fairness.
ADMIN = "admin"
#: Has the rights that Kubernetes' own bootstrap roles give it.
SCHEDULER = "system:kube-scheduler"


class Credentials:
    """The files in `folder` that the API server and its clients read, readable by nobody else."""

    def __init__(
        self, folder: Path, server_url: str, ca: Path, users: Mapping[str, Sequence[str]]
    ) -> None:
        self._folder = folder
        groups = {**users, SCHEDULER: (), ADMIN: ("system:masters",)}
        self.tokens = {user: secrets.token_hex(16) for user in groups}

        self.token_file = self._write(
            "tokens.csv",
            "".join(
                f'{token},{user},{user},"{",".join(groups[user])}"\n'
                for user, token in self.tokens.items()
            ),
        )
        self.service_account_key = self._write(
            "service-account.key", certs.key_pem(certs.new_key())
        )
        key = certs.new_key()
        certificate = certs.client_certificate_pem(key, ADMIN, ["system:masters"])
        self.client_cert = self._write("client.crt", certificate)
        self.client_key = self._write("client.key", certs.key_pem(key))

        cluster = {"server": server_url, "certificate-authority": str(ca)}
        for user, token in self.tokens.items():
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "muster", "cluster": cluster}],
                "users": [{"name": user, "user": {"token": token}}],
                "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": user}}],
                "current-context": "muster",
            }
            self._write(self.kubeconfig_of(user).name, json.dumps(config, indent=2) + "\n")

    def kubeconfig_of(self, user: str) -> Path:
        return self._folder / f"{user.replace(':', '-')}.kubeconfig"

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

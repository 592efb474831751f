"""Key pairs by which the launcher of an MPI job reaches its workers.

Made as the Secret is sent, and kept nowhere else: neither the core nor what is recorded of it knows
a private key.
"""

from __future__ import annotations

from base64 import b64encode

from cryptography.hazmat.primitives.asymmetric.ec import SECP521R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from extender.core.objects import Manifest


def fresh() -> Manifest:
    """Data of a Secret of type kubernetes.io/ssh-auth: a new ECDSA P-521 pair, in base64.

    Source: mpi-operator v0.8.2, newSSHAuthSecret (a PEM of SEC 1, and a line of authorized_keys).
    """
    key = generate_private_key(SECP521R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    return {
        "ssh-privatekey": b64encode(private).decode(),
        "ssh-publickey": b64encode(public).decode(),
    }

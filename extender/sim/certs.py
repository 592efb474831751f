"""Keys and a client certificate for the control plane on loopback, with the standard library alone.

Elliptic curve P-256 (FIPS 186-4), X.509 in DER (RFC 5280). Not hardened against timing: for throw-away
clusters on loopback, nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_A = -3
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_Point = tuple[int, int] | None  # None is the point at infinity

_SEQUENCE, _SET, _INTEGER, _BITS, _OCTETS, _OID, _BOOLEAN = 0x30, 0x31, 0x02, 0x03, 0x04, 0x06, 0x01
_UTF8, _TIME = 0x0C, 0x18
_P256 = bytes.fromhex("2a8648ce3d030107")
_EC_PUBLIC_KEY = bytes.fromhex("2a8648ce3d0201")
_ECDSA_SHA256 = bytes.fromhex("2a8648ce3d040302")
_COMMON_NAME, _ORGANIZATION = bytes.fromhex("550403"), bytes.fromhex("55040a")
_KEY_USAGE, _EXTENDED_KEY_USAGE = bytes.fromhex("551d0f"), bytes.fromhex("551d25")
_CLIENT_AUTH = bytes.fromhex("2b06010505070302")


def new_key() -> int:
    return secrets.randbelow(_N - 1) + 1


def key_pem(key: int) -> str:
    """The private key as OpenSSL and Go read it (SEC 1)."""
    body = _der(_INTEGER, b"\x01") + _der(_OCTETS, key.to_bytes(32, "big"))
    body += _der(0xA0, _der(_OID, _P256)) + _der(0xA1, _bits(_public(key)))
    return _pem("EC PRIVATE KEY", _der(_SEQUENCE, body))


def client_certificate_pem(key: int, user: str, groups: list[str]) -> str:
    """A client certificate that signs itself: the API server accepts it when it is its own client CA.

    The API server takes the user from the common name and the groups from the organizations.
    """
    names = [(_ORGANIZATION, group) for group in groups] + [(_COMMON_NAME, user)]
    subject = _der(
        _SEQUENCE,
        b"".join(
            _der(_SET, _der(_SEQUENCE, _der(_OID, oid) + _der(_UTF8, text.encode())))
            for oid, text in names
        ),
    )
    algorithm = _der(_SEQUENCE, _der(_OID, _ECDSA_SHA256))
    curve = _der(_SEQUENCE, _der(_OID, _EC_PUBLIC_KEY) + _der(_OID, _P256))
    # An hour back, for clocks that differ.
    start = datetime.now(UTC) - timedelta(hours=1)
    validity = _der(_SEQUENCE, _time(start) + _time(start + timedelta(days=365)))
    critical = _der(_BOOLEAN, b"\xff")
    digital_signature = _der(_BITS, b"\x07\x80")
    client_auth = _der(_SEQUENCE, _der(_OID, _CLIENT_AUTH))
    extensions = _der(
        _SEQUENCE,
        _der(_SEQUENCE, _der(_OID, _KEY_USAGE) + critical + _der(_OCTETS, digital_signature))
        + _der(_SEQUENCE, _der(_OID, _EXTENDED_KEY_USAGE) + _der(_OCTETS, client_auth)),
    )
    content = _der(
        _SEQUENCE,
        _der(0xA0, _integer(2))  # version 3
        + _integer(secrets.randbits(120))
        + algorithm
        + subject
        + validity
        + subject
        + _der(_SEQUENCE, curve + _bits(_public(key)))
        + _der(0xA3, extensions),
    )
    signed = _der(_SEQUENCE, content + algorithm + _bits(_sign(key, content)))
    return _pem("CERTIFICATE", signed)


def _sign(key: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = new_key()
        point = _multiply(nonce, _G)
        assert point is not None, "0 < nonce < order"
        r = point[0] % _N
        s = pow(nonce, -1, _N) * (digest + r * key) % _N
        if r and s:
            return _der(_SEQUENCE, _integer(r) + _integer(s))


def _public(key: int) -> bytes:
    point = _multiply(key, _G)
    assert point is not None, "0 < key < order"
    return b"\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big")


def _multiply(scalar: int, point: _Point) -> _Point:
    result: _Point = None
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _add(a: _Point, b: _Point) -> _Point:
    if a is None:
        return b
    if b is None:
        return a
    if a == b:
        slope = (3 * a[0] * a[0] + _A) * pow(2 * a[1], -1, _P) % _P
    elif a[0] == b[0]:
        return None
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P) % _P
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _integer(value: int) -> bytes:
    # One bit more than the value, for the sign.
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _der(_BITS, b"\x00" + content)


def _time(moment: datetime) -> bytes:
    return _der(_TIME, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])

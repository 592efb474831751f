"""The executor: making what a job has one of, its keys among them."""

from base64 import b64decode

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from extender.core.api import CONFIG_MAPS, SECRETS
from extender.core.commands import OWNED, Create, Lane
from extender.kube.replies import Reply
from tests.kube.bench import Bench, status

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.timeout(20)]


KEYS = "/api/v1/namespaces/ns/secrets"


def of_job(resource, name, uid="j1"):
    """A command that makes what a job has one of."""
    owner = {"uid": uid, "controller": True}
    meta = {"name": name, "ownerReferences": [owner]}
    body = {"metadata": meta, "type": "kubernetes.io/ssh-auth"}
    return Create(1, Lane.JOB, resource, "ns", body)


def owned_by(uid):
    meta = {"name": "j-ssh", "uid": "s1", "ownerReferences": [{"uid": uid, "controller": True}]}
    return Reply(200, orjson.dumps({"kind": "Secret", "metadata": meta, "data": {"k": "secret"}}))


async def test_keys_are_made_as_the_secret_is_sent_and_go_nowhere_else():
    bench = Bench()
    bench.client.default = owned_by("j1")
    create = of_job(SECRETS, "j-ssh")
    (done,) = await bench.run(create)
    assert (done.ok, done.object) == (True, None)
    assert "data" not in create.body
    ((_, _, sent, _),) = bench.client.sent
    assert sent["type"] == "kubernetes.io/ssh-auth"
    private = b64decode(sent["data"]["ssh-privatekey"])
    key = load_pem_private_key(private, None)
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    assert isinstance(key, EllipticCurvePrivateKey)
    assert key.curve.name == "secp521r1"
    public = b64decode(sent["data"]["ssh-publickey"])
    assert public.startswith(b"ecdsa-sha2-nistp521 ")
    assert public.endswith(b"\n")
    assert load_ssh_public_key(public) == key.public_key()


async def test_each_secret_has_keys_of_its_own_and_a_retry_has_the_same():
    bench = Bench()
    bench.client.script["POST", KEYS] = [status(503, "Unavailable"), owned_by("j1")]
    await bench.run(of_job(SECRETS, "j-ssh"))
    bench.client.default = owned_by("j2")
    bench.inbox.events.clear()
    await bench.run(of_job(SECRETS, "k-ssh", "j2"))
    first, again, other = (sent["data"]["ssh-privatekey"] for _, _, sent, _ in bench.client.sent)
    assert first == again != other


@pytest.mark.parametrize("resource", [SECRETS, CONFIG_MAPS])
async def test_what_a_job_has_already_is_no_conflict(resource):
    bench = Bench()
    path = resource.path("ns")
    bench.client.script["POST", path] = [status(409, "AlreadyExists")]
    bench.client.script["GET", f"{path}/j-ssh"] = [owned_by("j1")]
    (done,) = await bench.run(of_job(resource, "j-ssh"))
    assert (done.code, done.reason, done.object) == (200, OWNED, None)


async def test_what_is_not_the_job_s_is_a_conflict():
    bench = Bench()
    bench.client.script["POST", KEYS] = [status(409, "AlreadyExists")]
    bench.client.script["GET", f"{KEYS}/j-ssh"] = [owned_by("another")]
    (done,) = await bench.run(of_job(SECRETS, "j-ssh"))
    assert (done.code, done.reason, done.object) == (409, "AlreadyExists", None)


async def test_what_is_gone_again_is_made():
    bench = Bench()
    bench.client.script["POST", KEYS] = [status(409, "AlreadyExists"), owned_by("j1")]
    bench.client.script["GET", f"{KEYS}/j-ssh"] = [status(404, "NotFound")]
    (done,) = await bench.run(of_job(SECRETS, "j-ssh"))
    assert done.ok
    assert [method for method, _ in bench.lines] == ["POST", "GET", "POST"]

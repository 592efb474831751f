"""The command line as a user meets it: what it prints, where, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError

import pytest
import structlog
import yaml

from extender import cli
from extender.core import api
from extender.kube import credentials
from extender.runtime import running
from extender.settings import parse
from extender.sim import fleet
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.daemon import free_port

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = sorted((ROOT / "config").glob("scheduler-*.yaml"))

Write = Callable[[str, Any], str]


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    """A command sets up the log of its process, to the stream that the test takes away."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write one YAML document, or a list of them, to a file; its name."""

    def one(name: str, content: Any) -> str:
        file = tmp_path / name
        bodies = content if isinstance(content, list) else [content]
        file.write_text(content if isinstance(content, str) else yaml.safe_dump_all(bodies))
        return str(file)

    return one


def check(capsys, *files: str) -> tuple[int, int, list[str]]:
    """Exit code, number of objects, and ``object: field: severity`` of each problem."""
    code = cli.main(["check", "--json", *files])
    answer = json.loads(capsys.readouterr().out)
    for problem in answer["problems"]:
        keys = {"file", "object", "field", "severity", "message", "advice"}
        assert problem.keys() == keys
    lines = [f"{p['object']}: {p['field']}: {p['severity']}" for p in answer["problems"]]
    return code, answer["objects"], lines


# the program itself


def test_help_and_mistakes_load_nothing_heavy():
    program = (
        "import sys; from extender import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*sorted({'numpy', 'numba', 'aiohttp', 'yaml', 'rich', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    *help_, loaded = done.stdout.splitlines()
    assert loaded == ""
    for command in ("serve", "demo", "explain", "check"):
        assert any(line.strip().startswith(command) for line in help_), command


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dance"],
        ["serve"],
        ["check"],
        ["serve", "--config", "f", "--log-level", "loud"],
        ["explain", "a", "b"],
    ],
)
def test_wrong_use_is_2_and_says_what_on_stderr(words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error: " in shown.err


def test_the_version_is_the_project_s(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"muster {project['version']}\n"


def test_a_reader_that_goes_away_is_no_fault():
    """`muster explain | head`: no traceback, not even of what is still buffered at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "extender.cli", "check", "config/muster.yaml"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "words", [["check", "config/muster.yaml"], ["topo", "show", "{dump}"]], ids=" ".join
)
def test_a_full_disk_is_said_as_that(words, tmp_path):
    """It is no fault of the file that was read, and no traceback."""
    dump = tmp_path / "dump.txt"
    dump.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    asked = [each.format(dump=dump) for each in words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "extender.cli", *asked],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
    said = "muster: cannot write: No space left on device\n"
    assert (done.returncode, done.stderr.splitlines(keepends=True)[-1]) == (2, said)


# serve


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("muster: {listen: {port: 70000}}", "muster.listen.port: 70000 is not allowed"),
        ("muster: {lisen: {}}", "muster.lisen: no such field"),
        ("tiers: [{plugins: [{name: magic}]}]", "no plugin 'magic'"),
        ("a: [", "is not YAML"),
    ],
)
def test_serve_refuses_a_wrong_file(write: Write, content, words, capsys):
    assert cli.main(["serve", "--config", write("muster.yaml", content)]) == 2
    assert words in capsys.readouterr().err


def test_serve_refuses_a_missing_file(capsys):
    assert cli.main(["serve", "--config", "nowhere.yaml"]) == 2
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().err


def test_serve_says_which_certificate_is_not_there(write: Write, capsys):
    tls = {"certFile": "a.crt", "keyFile": "a.key", "clientCAFile": "ca.crt"}
    section = {
        "kubeconfig": write("kubeconfig", kubeconfig("http://127.0.0.1:1")),
        "listen": {"host": "127.0.0.1", "port": 0},
        "tls": tls,
    }
    assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 2
    assert "a.crt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"listen": {"port": 0}}, "muster.listen.host: is missing: without muster.tls"),
        ({"listen": {"host": "0.0.0.0"}}, "'0.0.0.0' is not allowed without tls"),
        ({"tls": {"certFile": "a", "keyFile": "b"}}, "muster.tls.clientCAFile: is missing"),
    ],
)
def test_serve_does_not_open_the_verbs_to_whoever_comes(write: Write, more, words, capsys):
    section = {"kubeconfig": write("kubeconfig", kubeconfig("http://127.0.0.1:1")), **more}
    assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 2
    assert words in capsys.readouterr().err


def test_serve_says_that_its_address_cannot_be_had(write: Write, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        section = {
            "kubeconfig": write("kubeconfig", kubeconfig("http://127.0.0.1:1")),
            "listen": {"host": "127.0.0.1", "port": (port := taken.getsockname()[1])},
        }
        assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 1
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port} is taken by another program; see listen.port" in said


def test_serve_refuses_a_file_of_kubernetes_by_its_kind(capsys):
    assert cli.main(["serve", "--config", str(SAMPLES[0])]) == 2
    assert "is a KubeSchedulerConfiguration, not a muster.yaml" in capsys.readouterr().err


def test_serve_refuses_a_kubeconfig_that_is_not_there(write: Write, capsys):
    section = {"kubeconfig": "nowhere", "listen": {"host": "127.0.0.1", "port": 0}}
    assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 2
    assert "kubeconfig nowhere" in capsys.readouterr().err


def test_demo_refuses_a_picture_that_it_could_not_write(tmp_path: Path, capsys):
    assert cli.main(["demo", "--svg", str(tmp_path / "no" / "x.svg")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert cli.main(["demo", "--svg", str(tmp_path)]) == 2
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }


async def test_serve_runs_until_it_is_told_to_stop(write: Write):
    async with ApiServer() as server:
        section = {
            "kubeconfig": write("kubeconfig", kubeconfig(server.url)),
            "listen": {"host": "127.0.0.1", "port": 0},
            "leaderElection": {"enabled": False},
        }
        config = write("muster.yaml", {"muster": section})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "extender.cli", "serve", "--config", config, "--json",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        seen = []
        async for line in process.stderr:
            seen.append(json.loads(line)["event"])
            if seen[-1] == "ready":
                process.terminate()
        assert await process.wait() == 0
        assert seen == ["listening", "ready", "stopping"]
        assert json.loads(await process.stdout.read()) == {"stopped": True}


# explain


def member(name: str, **annotations: str) -> dict[str, Any]:
    """A pod with one GPU."""
    limits = {"nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        },
    }


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Of a Muster that has said in the API why the gang default/train waits."""
    section = {"listen": {"host": "127.0.0.1", "port": 0}, "leaderElection": {"enabled": False}}
    async with (
        ApiServer() as server,
        Client(server.url) as client,
        running(parse({"muster": section}, "test"), credentials.plain(server.url)) as service,
    ):
        await fleet.add_node(client, fleet.node("n1", gpus=1))
        group = {"metadata": {"name": "train"}, "spec": {"minMember": 2}}
        await client.create(api.VOLCANO_GROUPS, "default", group)
        for name in ("train-0", "train-1"):
            pod = member(name, **{"scheduling.k8s.io/group-name": "train"})
            await client.create(api.PODS, "default", pod)
        async with asyncio.timeout(60):
            async for _, groups in client.follow(api.VOLCANO_GROUPS, "default"):
                conditions = groups[0].get("status", {}).get("conditions") if groups else None
                if conditions and "1 of 2 pods would fit" in conditions[0]["message"]:
                    break
        yield service.url.removesuffix("/scheduler")
        assert service.loop.faults == 0
        service.loop.coordinator.state.cluster.verify()


async def explain(*words: str) -> int:
    return await asyncio.to_thread(cli.main, ["explain", *words])


async def test_explain_says_why_a_gang_waits(url: str, capsys):
    assert await explain("default/train", "--url", url, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["group"], found["phase"], found["plan"]) == ("default/train", "Waiting", None)
    codes = [(reason["code"], reason["nodes"]) for reason in found["reasons"]]
    assert codes == [("NeverFits", 0), ("FitsAlone", 1)]

    assert await explain("train", "--url", url) == 0
    text = capsys.readouterr().out
    assert "default/train (scheduling.volcano.sh/v1beta1): Waiting" in text
    assert "waits for 1 of 2 pods would fit even if every node were empty" in text
    assert "train-0" in text


async def test_explain_without_a_name_lists_every_gang(url: str, capsys):
    assert await explain("--url", url, "--json") == 0
    (gang,) = json.loads(capsys.readouterr().out)["gangs"]
    assert gang["group"] == "default/train"
    assert await explain("--url", url) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["default/train", "Waiting", "0/2"]
    assert line.endswith("1 node: room for 1")


async def test_explain_answers_no_for_a_gang_that_is_not_there(url: str, capsys):
    assert await explain("default/other", "--url", url, "--json") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no gang default/other: no PodGroup, job or pod of that name" in shown.err


class Pages(BaseHTTPRequestHandler):
    """A service that says of itself what ``state`` is."""

    state: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = json.dumps(self.state if self.path == "/debug/state" else []).encode()
        status, token = 200, self.state.get("token")
        if token is not None and self.headers["Authorization"] != f"Bearer {token}":
            status, body = 403, b"no right to that\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test looks at what explain prints."""


@pytest.fixture
def service_that_says(monkeypatch) -> Iterator[Callable[..., str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def says(**state: Any) -> str:
            monkeypatch.setattr(Pages, "state", state)
            # Without a scheme, as people type it.
            return f"127.0.0.1:{server.server_address[1]}"

        yield says
        server.shutdown()
        thread.join()


def test_explain_of_a_service_that_has_not_read_the_cluster_is_no_answer(service_that_says, capsys):
    assert cli.main(["explain", "--url", service_that_says(synced=False, leading=False)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "has not read the cluster yet" in shown.err


def test_explain_of_a_standby_says_what_it_knows_and_who_leads(service_that_says, capsys):
    url = service_that_says(synced=True, leading=False, leaseHolder="other_1")
    assert cli.main(["explain", "--url", url]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no gangs\n"
    assert "this replica stands by (the Lease is held by other_1)" in shown.err
    url = service_that_says(synced=True, leading=False, leaseHolder="it", identity="it")
    assert cli.main(["explain", "--url", url]) == 0
    assert "this replica has taken the Lease" in capsys.readouterr().err


def test_explain_answers_no_where_nothing_listens(capsys):
    assert cli.main(["explain", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "no answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "scheme", "error", "hint"),
    [
        ("--url", "http", ConnectionResetError("gone"), "gone (is it https there?)"),
        ("--url", "https", ConnectionResetError("gone"), "gone (does it ask for a certificate?"),
        ("--url", "http", ConnectionRefusedError("refused"), "refused\n"),
        ("--url", "https", ssl.SSLCertVerificationError(1, "who?"), "who? (--ca: who signed it?)"),
        ("", "", URLError(ConnectionRefusedError("refused")), "(in a cluster: --url, docs/sec"),
        ("--url", "https", ssl.SSLError(1, "alert"), "alert\n"),
    ],
)
def test_no_answer_names_the_option_that_is_most_likely_missing(
    option, scheme, error, hint, monkeypatch, capsys
):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("urllib.request.urlopen", fail)
    assert cli.main(["explain", *([option, f"{scheme}://muster:1"] if option else [])]) == 1
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "é", "a?b", "a\n", "..%2f"])
async def test_explain_asks_for_any_name_as_it_is(url: str, name, capsys):
    assert await explain(f"default/{name}", "--url", url) == 1
    assert f"no gang default/{name}: no PodGroup" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://[::1", "http://a b", f"http://{'a' * 300}"])
def test_explain_of_an_address_that_cannot_be_is_no_answer(url, capsys):
    assert cli.main(["explain", "--url", url]) == 1
    assert f"{url}: no answer: " in capsys.readouterr().err


def test_explain_of_another_service_is_no_answer(service_that_says, capsys):
    assert cli.main(["explain", "--url", service_that_says(status="ok")]) == 1
    assert "is that Muster?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--ca", "--cert", "--token-file"])
@pytest.mark.parametrize("content", ["", "a\nb: c", "é☃"])
def test_explain_names_the_file_that_is_no_credential(write: Write, option, content, capsys):
    file = write("credential", content or "a b")
    assert cli.main(["explain", "--url", "https://127.0.0.1:1", option, file]) == 2
    shown = capsys.readouterr().err
    assert f"{option}: {file}: " in shown
    assert "☃" not in shown


@pytest.mark.parametrize("words", [["a/b/c"], ["a/"], ["a", "--url", "ftp://x"]])
def test_explain_refuses_what_cannot_be_asked(words, capsys):
    assert cli.main(["explain", *words]) == 2
    assert "is not allowed" in capsys.readouterr().err


def test_explain_brings_a_token_and_says_what_a_refusal_says(
    service_that_says, write: Write, capsys
):
    url = service_that_says(synced=True, leading=True, token="sesame")
    assert cli.main(["explain", "--url", url]) == 1
    assert "HTTP 403: no right to that" in capsys.readouterr().err
    token = write("token", "sesame\n")
    assert cli.main(["explain", "--url", url, "--token-file", token]) == 0
    assert cli.main(["explain", "--url", url, "--token-file", "nowhere"]) == 2
    assert "--token-file: nowhere: cannot be read" in capsys.readouterr().err


# check


def test_the_samples_and_examples_are_fine(capsys):
    files = sorted((ROOT / "manifests").glob("*/*.yaml"))
    files = [file for file in files if file.parent.name in ("examples", "crds", "admission")]
    code, objects, problems = check(capsys, str(ROOT / "config/muster.yaml"), *map(str, files))
    assert (code, problems) == (0, [])
    assert objects > len(files)


MANIFEST = "apiVersion: v1\nkind: Pod\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
        ("a: " + "9" * 5000, "is not YAML"),
        (MANIFEST + "metadata: &m {name: x, labels: *m}", "does an alias hold itself?"),
        (
            MANIFEST
            + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 100)}]\n" for i in range(1, 5)),
            "holds more than 1000000 values",
        ),
    ],
    ids=["deep", "digits", "cycle", "aliases"],
)
def test_check_reads_no_file_without_end(write: Write, content, words, capsys):
    file = write("file.yaml", content.replace("*x0", "0"))
    assert cli.main(["check", file]) == 1
    said, count = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{file}: error: ")
    assert words in said
    assert count == "0 objects, 1 problem"


#: What muster.yaml must say beside each sample.
SECTIONS: dict[str, dict[str, Any]] = {
    "scheduler-own": {},
    "scheduler-default": {"schedulerNames": ["default-scheduler"]},
    "scheduler-managed": {
        "schedulerNames": ["default-scheduler"],
        "managedResources": ["nvidia.com/gpu"],
        "bindTimeoutSeconds": 30,
    },
}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_each_scheduler_sample_agrees_with_its_muster_yaml(sample: Path, write: Write, capsys):
    section = {**SECTIONS[sample.stem], "listen": {"host": "127.0.0.1"}}
    config = write("muster.yaml", {"muster": section})
    assert check(capsys, str(sample), config) == (0, 2, [])


def changed(**changes: Any) -> dict[str, Any]:
    """The sample of a scheduler of its own; ``extenders`` are changed entry by entry."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "config/scheduler-own.yaml").read_text())
    for key, value in changes.items():
        if key == "filter":
            config["extenders"][0].update(value)
        elif key == "bind":
            config["extenders"][1].update(value)
        else:
            config[key] = value
    return config


@pytest.mark.parametrize(
    ("changes", "field", "severity"),
    [
        ({"filter": {"nodeCacheCapable": False}}, "extenders[0].nodeCacheCapable", "error"),
        ({"bind": {"ignorable": True}}, "extenders[1].ignorable", "error"),
        ({"filter": {"weight": 0}}, "extenders[0].weight", "error"),
        ({"filter": {"httpTimeout": "soon"}}, "extenders[0].httpTimeout", "error"),
        ({"bind": {"bindVerb": ""}}, "extenders", "error"),
        ({"filter": {"preemptVerb": ""}}, "extenders", "warning"),
        ({"filter": {"enableHTTPS": True, "tlsConfig": {"caFile": "f"}}}, "extenders[0].urlPrefix", "error"),
        ({"percentageOfNodesToScore": 50}, "percentageOfNodesToScore", "error"),
        ({"percentageOfNodesToScore": None}, "percentageOfNodesToScore", "error"),
        ({"extenders": []}, "extenders", "error"),
        ({"bind": {"httpTimeout": "1m"}}, "extenders[1].httpTimeout", "error"),
        ({"bind": {"httpTimeout": "2m30s"}}, "extenders[1].httpTimeout", "warning"),
        ({"podMaxBackoffSeconds": 10}, "podMaxBackoffSeconds", "error"),
        ({"podMaxBackoffSeconds": 1}, "podMaxBackoffSeconds", "warning"),
        ({"profiles": [{"schedulerName": "muster"}, {}]}, "profiles[1].schedulerName", "error"),
    ],
)  # fmt: skip
def test_one_mistake_in_the_scheduler_s_file_is_one_problem(
    changes, field, severity, write: Write, capsys
):
    config = str(ROOT / "config/muster.yaml")
    code, _, problems = check(capsys, write("scheduler.yaml", changed(**changes)), config)
    assert problems == [f"KubeSchedulerConfiguration: {field}: {severity}"]
    assert code == (severity == "error")


def test_two_binders_are_refused_as_kube_scheduler_does(write: Write, capsys):
    config = changed()
    config["extenders"].append({"urlPrefix": "http://127.0.0.1:1/other", "bindVerb": "bind"})
    muster = str(ROOT / "config/muster.yaml")
    assert check(capsys, write("scheduler.yaml", config), muster)[2] == [
        "KubeSchedulerConfiguration: extenders: error"
    ]


@pytest.mark.parametrize(
    ("section", "problems"),
    [
        ({"listen": {"port": 8900}}, [": muster.listen.host: warning"]),
        ({"tls": {"certFile": "a", "keyFile": "b"}}, [": muster.tls.clientCAFile: warning"]),
        ({"tls": {"certFile": "a", "keyFile": "b", "clientCAFile": "c"}}, []),
        ({"listen": {"host": "127.0.0.1"}}, []),
    ],
)
def test_check_says_what_serve_would_refuse(section, problems, write: Write, capsys):
    assert check(capsys, write("muster.yaml", {"muster": section})) == (0, 1, problems)


def test_managed_resources_must_be_the_same_everywhere(write: Write, capsys):
    managed = [{"name": "nvidia.com/gpu"}]
    both = changed(filter={"managedResources": managed}, bind={"managedResources": managed})
    one = changed(filter={"managedResources": managed})
    section = {"managedResources": ["nvidia.com/gpu"], "listen": {"host": "127.0.0.1"}}
    muster = write("muster.yaml", {"muster": section})
    name = "KubeSchedulerConfiguration"
    assert check(capsys, write("both.yaml", both), muster)[2] == [
        f"{name}: extenders[1].managedResources: error"
    ]
    assert check(capsys, write("one.yaml", one), muster)[2] == [f"{name}: extenders: error"]


def pytorch_job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    role = {"replicas": 1, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "ddp", "namespace": "ml"},
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}, **spec},
    }


def pod_group(api_version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": spec,
    }


def bare_pod(**changes: Any) -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", **member("p")}
    pod["metadata"].update(changes.pop("metadata", {}))
    pod["spec"].update(changes)
    return pod


ACK = "pod-group.scheduling.sigs.k8s.io"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (pod_group("scheduling.volcano.sh/v1beta1", minMember=0), "PodGroup g: spec.minMember: error"),
        (pod_group("scheduling.volcano.sh/v1beta1", minMember="2"), "PodGroup g: spec.minMember: error"),
        (pod_group("scheduling.x-k8s.io/v1alpha1", minMember=-1), "PodGroup g: spec.minMember: error"),
        (
            pod_group("scheduling.k8s.io/v1beta1", schedulingPolicy={"gang": {"minCount": 0}}),
            "PodGroup g: spec.schedulingPolicy.gang.minCount: error",
        ),
        (pytorch_job(pytorchReplicaSpecs={}), "PyTorchJob ml/ddp: spec.pytorchReplicaSpecs: error"),
        (
            pytorch_job(runPolicy={"backoffLimit": -1}),
            "PyTorchJob ml/ddp: spec.runPolicy.backoffLimit: error",
        ),
        (
            bare_pod(metadata={"labels": {f"{ACK}/name": "g", f"{ACK}/min-available": "0"}}),
            "Pod p: min-available: error",
        ),
        (
            bare_pod(
                metadata={
                    "labels": {"scheduling.x-k8s.io/pod-group": "a"},
                    "annotations": {"scheduling.k8s.io/group-name": "b"},
                }
            ),
            "Pod p: metadata: error",
        ),
        (
            bare_pod(
                schedulerName="other", metadata={"labels": {"scheduling.x-k8s.io/pod-group": "a"}}
            ),
            "Pod p: spec.schedulerName: warning",
        ),
        ({"kind": "Pod"}, "Pod: : error"),
        ("a: [", ": : error"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_manifest_is_one_problem(body, problem, write: Write, capsys):
    code, _, problems = check(capsys, write("file.yaml", body))
    assert problems == [problem]
    assert code == problem.endswith("error")


def test_a_bad_quantity_is_found_in_a_pod_a_template_and_a_job(write: Write, capsys):
    container = {"name": "pytorch", "image": "none", "resources": {"requests": {"cpu": "many"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    role = {"replicas": 1, "template": template}
    bodies = [
        bare_pod(containers=[container]),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"template": template},
        },
        pytorch_job(pytorchReplicaSpecs={"Master": role}),
    ]
    code, objects, problems = check(
        capsys, write("list.yaml", {"apiVersion": "v1", "kind": "List", "items": bodies})
    )
    assert (code, objects) == (1, 3)
    assert [line.split(":")[0] for line in problems] == [
        "Pod p",
        "Deployment d",
        "PyTorchJob ml/ddp",
    ]
    assert [line for line in problems if "requests[cpu]: error" not in line] == []
    assert "spec.template" in problems[1]
    assert "spec.pytorchReplicaSpecs.Master.template" in problems[2]


def test_a_plugin_that_does_not_exist_is_found_in_muster_yaml(write: Write, capsys):
    tiers = {"tiers": [{"plugins": [{"name": "magic"}]}]}
    code, objects, problems = check(capsys, write("muster.yaml", tiers))
    assert (code, objects, problems) == (1, 1, [": tiers[0].plugins[0].name: error"])


def test_check_prints_a_line_a_problem_for_people(write: Write, capsys):
    file = write("g.yaml", pod_group("scheduling.volcano.sh/v1beta1", minMember=0))
    assert cli.main(["check", file]) == 1
    line, count = capsys.readouterr().out.splitlines()
    assert line == f"{file}: PodGroup g: spec.minMember: error: 0 is not allowed: at least 1"
    assert count == "1 object, 1 problem"


def test_check_of_a_file_that_is_not_there_is_wrong_use(capsys):
    assert cli.main(["check", "nowhere.yaml", "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "nowhere.yaml: cannot be read" in shown.err

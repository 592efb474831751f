"""design.md's contract of every command: one JSON document on stdout and nothing else there, 0 ok, 1 the
answer is no, 2 wrong use or bad input, messages on stderr.

What needs a cluster, a service or devices to answer yes is in the tests of that command.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from extender import cli

ROOT = Path(__file__).resolve().parents[2]
DUMP = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"
GROUP = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: %s}\n"
#: A port that nobody can listen on.
NOBODY = "http://127.0.0.1:0"
OPENB = f"--nodes {ROOT}/tests/fragmentation/data/nodes.csv --pods {ROOT}/tests/fragmentation/data/pods.csv"
PHILLY = (
    f"--jobs {ROOT}/tests/philly/data/jobs.csv --topo {ROOT}/tests/philly/data/topo.txt --nodes 8"
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lines below name, in the folder that they are run in."""
    for name, text in {
        "good.yaml": GROUP % 1,
        "bad.yaml": GROUP % 0,
        "none.yaml": "a: [",
        "other.yaml": "a: 1",
        "dump.txt": DUMP,
        "log.jsonl": "{}\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "keys"),
    [
        ("check good.yaml", 0, "objects problems"),
        ("check bad.yaml", 1, "objects problems"),
        ("check none.yaml", 1, "objects problems"),
        ("topo parse dump.txt", 0, "gpus links nics warnings"),
        ("topo show dump.txt", 0, "gpus links nics warnings bandwidth_gbs"),
        ("topo place dump.txt --gpus 2", 0, "devices bandwidth_gbs broken"),
        ("topo place dump.txt --gpus 3", 1, "devices bandwidth_gbs broken"),
        ("topo place dump.txt --gpus 2 --busy 1", 1, "devices bandwidth_gbs broken"),
        (f"explain --url {NOBODY}", 1, "error"),
        (f"explain a/b --url {NOBODY}", 1, "error"),
        (f"topo show some-node --url {NOBODY}", 1, "error"),
        ("simulate chaos --seeds 1", 0, "seeds steps violations"),
        (f"simulate openb {OPENB} --policy packing --seed 1", 0, "policy seed allocated_percent_at_100 allocated_percent_at_130 seconds"),
        (f"simulate philly {PHILLY}", 0, "rules"),
    ],
)  # fmt: skip
def test_the_answer_is_one_document_with_these_keys(words, code, keys, capsys):
    assert cli.main([*shlex.split(words), "--json"]) == code
    shown = capsys.readouterr()
    found: dict[str, Any] = json.loads(shown.out)
    assert set(keys.split()) <= found.keys()
    if "error" in found:
        assert shown.err == f"muster {words.split()[0]}: {found['error']}\n"


@pytest.mark.parametrize(
    "words",
    [
        "check nowhere.yaml",
        "topo parse nowhere.txt",
        "topo parse good.yaml",
        "topo show good.yaml",
        "topo place good.yaml --gpus 1",
        "topo place dump.txt --gpus 0",
        "topo place dump.txt --gpus 1 --busy 7",
        "explain --snapshot nowhere.jsonl",
        "explain --snapshot log.jsonl",
        "explain --token-file nowhere",
        "replay nowhere.jsonl",
        "replay log.jsonl",
        "simulate snapshot nowhere.jsonl",
        "simulate snapshot log.jsonl",
        "simulate snapshot log.jsonl --nodes -1",
        "simulate snapshot log.jsonl --nodes 1",
        "simulate chaos --seeds 0",
        "simulate chaos --first -1",
        "simulate chaos --seeds 1 --logs good.yaml",
        "simulate openb --nodes nowhere.csv --pods nowhere.csv",
        "simulate openb --nodes good.yaml --pods good.yaml",
        "simulate philly --jobs nowhere.csv --topo dump.txt",
        "simulate philly --jobs good.yaml --topo dump.txt",
        "simulate philly --jobs good.yaml --topo dump.txt --nodes 0",
        "serve --config nowhere.yaml",
        "serve --config none.yaml",
        "serve --config other.yaml",
        "agent --config nowhere.yaml",
        "agent --once --config other.yaml",
        "demo --svg nowhere/picture.svg",
    ],
)
def test_bad_input_is_2_and_is_said_on_stderr_alone(words, capsys):
    assert cli.main([*shlex.split(words), "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    command = words.split()[0]
    assert [
        line for line in shown.err.splitlines() if not line.startswith(f"muster {command}: ")
    ] == []
    assert shown.err


@pytest.mark.parametrize(
    "words",
    [
        *("", "dance", "serve", "check", "replay", "simulate", "simulate dance", "topo", "topo parse"),
        *("topo place dump.txt", "topo place dump.txt --gpus two", "simulate snapshot"),
        *("simulate openb", "simulate openb --nodes a --pods b --policy best", "simulate philly"),
        *("simulate philly --jobs a --topo b --nodes x", "simulate chaos --seeds many"),
        *("simulate chaos now", "explain a b", "demo now", "agent now", "serve --config"),
        *("serve --config a --log-level loud", "serve --config a --log-format loud"),
        *("check a --jsn", "explain --urll a", "replay a --svg b", "demo --reel", "agent --onec"),
    ],
)  # fmt: skip
def test_wrong_use_is_2_and_shows_how_on_stderr_alone(words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(words))
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("usage: muster")
    assert "error: " in shown.err

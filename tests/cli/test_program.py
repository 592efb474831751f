"""The program itself: help, versions, wrong use, readers that go away."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from extender import cli

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "--jsn"], "muster check: error: no such option: --jsn; did you mean --json?"),
        (["check", "f", "--jsn=1"], "muster check: error: no such option: --jsn; did you mean --json?"),
        (["serve", "--confg", "f"], "muster serve: error: no such option: --confg; did you mean --config?"),
        (
            ["topo", "place", "f", "--gpu", "3", "--bsy", "1"],
            "muster topo place: error: no such option: --bsy; did you mean --busy?",
        ),
        (
            ["--json", "check", "f"],
            (
                "muster: error: no such option: --json; allowed: -h, --help, --version"
                " (a command's own stand behind its name)"
            ),
        ),
        (["check"], "muster check: error: the following arguments are required: FILE"),
        (["simulate", "chaos", "--seeds", "x"], "invalid int value: 'x'"),
    ],
)  # fmt: skip
def test_an_option_that_does_not_exist_is_said_before_what_is_missing(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(said)


def test_the_beginning_of_an_option_and_words_behind_two_dashes_are_none_of_these(capsys):
    assert cli.main(["check", "--js", "--", "--jsn"]) == 2
    assert capsys.readouterr().err.startswith("muster check: --jsn: cannot be read")


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


def test_demo_refuses_a_picture_that_it_could_not_write(tmp_path: Path, capsys):
    assert cli.main(["demo", "--svg", str(tmp_path / "no" / "x.svg")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert cli.main(["demo", "--svg", str(tmp_path)]) == 2
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err

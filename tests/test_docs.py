"""The documents: what they name exists, what they show works, what they list is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from extender import cli
from extender.core.reasons import Code
from extender.settings import Listen, Muster, Tls

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([a-z/_]+\.py)", text))
    assert len(named) > 40
    homes = [ROOT, ROOT / "extender", ROOT / "plugins", *(ROOT / "extender").glob("*/")]
    assert [name for name in sorted(named) if not any((h / name).exists() for h in homes)] == []
    assert len(text.splitlines()) < 120, "two pages"


def test_the_table_of_settings_is_complete() -> None:
    table = (ROOT / "docs/configuration.md").read_text()
    cells = " ".join(re.findall(r"(?m)^\| (`[^|]+) \|", table))
    told = {word.rpartition(".")[2] for word in re.findall(r"`([A-Za-z.]+)`", cells)}
    starred = {"leaderElection", "topology", "nodeLoss", "termination", "agent"}
    sections = {"listen", "tls"} | starred
    assert told == (aliases(Muster) - sections) | aliases(Listen) | aliases(Tls)
    assert all(f"`{name}.*`" in cells for name in starred)


def aliases(model: type[BaseModel]) -> set[str]:
    """The names of a section's fields as the file has them."""
    return {str(field.alias) for field in model.model_fields.values()}


def test_every_reason_has_its_line() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    assert [code.value for code in Code if f"`{code.value}`" not in text] == []
    told = set(re.findall(r"`([A-Z][a-zA-Z]+)`", "\n".join(re.findall(r"(?m)^\| (.+?) \|", text))))
    assert told - {code.value for code in Code} == set()


def test_the_job_in_the_readme_is_valid(tmp_path: Path, capsys) -> None:
    (job,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert yaml.safe_load(job)["kind"] == "PyTorchJob"
    file = tmp_path / "job.yaml"
    file.write_text(job)
    assert cli.main(["check", str(file)]) == 0
    assert capsys.readouterr().out == "1 object, 0 problems\n"


def test_the_check_of_an_installation_finds_nothing(monkeypatch, capsys) -> None:
    text = (ROOT / "docs/install.md").read_text()
    (words,) = re.findall(r"muster check (manifests/scheduler\S+ \S+)", text)
    monkeypatch.chdir(ROOT)
    assert cli.main(["check", *words.split()]) == 0
    assert "0 problems" in capsys.readouterr().out


def test_the_picture_is_of_a_story_that_went_well() -> None:
    svg = (ROOT / "docs/demo.svg").read_text().replace("&#160;", " ")
    assert "every gang whole or not at all" in svg
    assert "WRONG" not in svg

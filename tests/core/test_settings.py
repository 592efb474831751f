"""muster.yaml: what is read, and what is said about mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from extender import settings
from extender.core.errors import ConfigError
from extender.core.session import PluginConf
from plugins import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]

#: The configuration that Volcano's own documentation shows.
VOLCANO = """
actions: 'enqueue, allocate, backfill'
tiers:
  - plugins:
      - name: priority
      - name: gang
      - name: conformance
  - plugins:
      - name: drf
      - name: predicates
      - name: proportion
      - name: nodeorder
      - name: binpack
"""


def read(text: str) -> settings.Settings:
    return settings.parse(yaml.safe_load(text), "muster.yaml")


def test_the_sample_file_holds_the_defaults():
    assert settings.load(ROOT / "config" / "muster.yaml") == settings.Settings()


def test_an_empty_file_is_the_defaults(tmp_path):
    path = tmp_path / "muster.yaml"
    path.write_text("")
    found = settings.load(path)
    assert found == settings.Settings()
    assert found.muster.scheduler_names == ("muster",)
    assert found.muster.scheduler_name == "muster"
    assert found.session().plugins == (
        "priority", "gang", "conformance", "predicates", "nodeorder", "binpack"
    )  # fmt: skip


def test_a_volcano_configuration_names_the_plugins_that_are_missing():
    with pytest.raises(ConfigError) as error:
        read(VOLCANO)
    allowed = ", ".join(sorted(BUILT_IN))
    assert str(error.value) == (
        "muster.yaml: tiers[1].plugins[0].name: no plugin 'drf'"
        f" (Volcano's fair share; Muster has none yet): remove the line; allowed: {allowed};"
        " tiers[1].plugins[2].name: no plugin 'proportion'"
        f" (Volcano's queues' shares; Muster has none yet): remove the line; allowed: {allowed}"
    )


def test_the_rest_of_a_volcano_configuration_is_taken():
    rest = "\n".join(
        line for line in VOLCANO.splitlines() if "drf" not in line and "proportion" not in line
    )
    found = read(rest)
    assert found.actions == ("enqueue", "allocate", "backfill")
    assert [len(tier.plugins) for tier in found.tiers] == [3, 3]


def test_switches_in_both_spellings():
    found = read(
        "tiers: [{plugins: [{name: gang, enablePreemptable: false, enabledJobOrder: false,"
        " enableJobReady: true, enableHierarchy: false}]}]"
    )
    [option] = found.tiers[0].plugins
    assert option.conf() == PluginConf("gang", {}, frozenset({"Preemptable", "JobOrder"}))


def test_the_scheduler_name_is_the_first_that_carries_the_extender():
    assert read("muster: {schedulerNames: [a, b]}").muster.scheduler_name == "a"
    assert read("muster: {schedulerNames: [a, b], schedulerName: b}").muster.scheduler_name == "b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "file: [] is not allowed"),
        ("action: allocate", "action: no such field; allowed: actions, muster, tiers"),
        ("actions: preempt", "no action 'preempt'; allowed: enqueue, allocate, backfill"),
        ("tiers: []", "tiers: [] is not allowed"),
        ("tiers: [{plugin: []}]", "tiers[0].plugins: is missing"),
        ("tiers: [{plugins: [{nam: gang}]}]", "tiers[0].plugins[0].name: is missing"),
        (
            "tiers: [{plugins: [{name: gang, argument: {}}]}]",
            "tiers[0].plugins[0]: no field 'argument'; allowed: name, arguments, enablePredicate",
        ),
        (
            "tiers: [{plugins: [{name: gang, enableJobOrder: 1}]}]",
            "enableJobOrder: 1 is not allowed: true or false",
        ),
        (
            "tiers: [{plugins: [{name: nodeorder, arguments: {imagelocality.weight: 1}}]}]",
            "tiers[0].plugins[0].arguments: no argument 'imagelocality.weight'; allowed: balanced",
        ),
        (
            "tiers: [{plugins: [{name: gang, arguments: {x: 1}}]}]",
            "no argument 'x'; allowed: none",
        ),
        (
            "tiers: [{plugins: [{name: binpack, arguments: {binpack.weight: -1}}]}]",
            "arguments[binpack.weight]: -1 is not allowed: a number of 0 or more",
        ),
        (
            "tiers: [{plugins: [{name: binpack, arguments: {binpack.weight: [1]}}]}]",
            "tiers[0].plugins[0].arguments.binpack.weight: [1] is not allowed",
        ),
        (
            "muster: {listen: {prot: 1}}",
            "listen.prot: no such field; allowed: adminPort, allowPlainHTTP, host, port, prefix",
        ),
        ("muster: {listen: {port: 70000}}", "muster.listen.port: 70000 is not allowed"),
        ("muster: {listen: {port: '80'}}", "muster.listen.port: '80' is not allowed"),
        ("muster: {listen: {prefix: scheduler}}", "muster.listen.prefix: 'scheduler'"),
        ("muster: {tls: {certFile: a}}", "muster.tls.keyFile: is missing"),
        (
            "muster: {schedulerNames: muster}",
            "muster.schedulerNames: 'muster' is not allowed: a list, as in [muster]",
        ),
        (
            "muster: {bindTimeoutSeconds: '2m'}",
            "muster.bindTimeoutSeconds: '2m' is not allowed: seconds, a number",
        ),
        ("muster: {listen: 8900}", "muster.listen: 8900 is not allowed: a map of fields"),
        ("muster: {concurrency: 0}", "muster.concurrency: 0 is not allowed: at least 1"),
        (
            "muster: {listen: {host: 0.0.0.0}}",
            "muster: listen.host: '0.0.0.0' is not allowed without tls",
        ),
        ("muster: {listen: {host: muster.example}}", "'muster.example' is not allowed without tls"),
        ("kind: Pod", "is a Pod, not a muster.yaml"),
        ("muster: {schedulerNames: []}", "muster.schedulerNames: [] is not allowed"),
        ("muster: {schedulerName: x}", "schedulerName 'x' must be one of schedulerNames (muster)"),
        ("muster: {podMaxBackoffSeconds: 0}", "muster.podMaxBackoffSeconds: 0 is not allowed"),
        (
            "muster: {bindTimeoutSeconds: 11.5}",
            "bindTimeoutSeconds: 11.5 is not allowed: at least 12, podMaxBackoffSeconds and 10 s more",
        ),
        ("muster: {managedResources: [gpu]}", "an extended resource, as in nvidia.com/gpu"),
        (
            "actions: [enqueue]",
            "actions: ['enqueue'] is not allowed: text, as in \"enqueue, allocate\"",
        ),
        (
            "muster: {leaderElection: {renewDeadlineSeconds: 20}}",
            "muster.leaderElection: leaseDurationSeconds > renewDeadlineSeconds",
        ),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError) as error:
        read(text)
    assert str(error.value).startswith("muster.yaml: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_list_with_a_wrong_element_is_not_called_too_short():
    with pytest.raises(ConfigError) as error:
        read("tiers: [{plugins: gang}]")
    assert error.value.each == ("tiers[0].plugins: 'gang' is not allowed: a list, as in [gang]",)


@pytest.mark.parametrize(
    "listen",
    [
        "{host: 127.0.0.1}",
        "{host: 127.8.9.1}",
        "{host: '::1'}",
        "{host: localhost}",
        "{}",
        "{host: 0.0.0.0, allowPlainHTTP: true}",
    ],
)
def test_plain_http_is_for_loopback(listen):
    assert read(f"muster: {{listen: {listen}}}").muster.tls is None


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        settings.load(tmp_path / "absent.yaml")
    path = tmp_path / "bad.yaml"
    path.write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        settings.load(path)


FOREIGN = """
class Quiet:
    name = "quiet"
    arguments = {"quiet.level": 1}

    def __init__(self, arguments):
        self.level = arguments["quiet.level"]

    def order_key(self, group):
        return -self.level
"""


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Installs a distribution of a third party whose entry point is ``quiet``."""

    def install(target: str) -> None:
        (tmp_path / "quiet_plugin_of_a_third_party.py").write_text(FOREIGN)
        info = tmp_path / "quiet-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[muster.plugins]\nquiet = {target}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    sys.modules.pop("quiet_plugin_of_a_third_party", None)


QUIET = "tiers: [{plugins: [{name: quiet, arguments: {quiet.level: 7}}]}]"


def test_a_third_party_plugin_by_entry_point(distribution):
    distribution("quiet_plugin_of_a_third_party:Quiet")
    session = read(QUIET).session()
    assert session.plugins == ("quiet",)


def test_a_third_party_plugin_that_nobody_names_is_not_imported(distribution):
    distribution("quiet_plugin_of_a_third_party:Quiet")
    read("{}")
    assert "quiet_plugin_of_a_third_party" not in sys.modules


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("quiet_plugin_of_a_third_party:Loud", "cannot be loaded"),
        ("no_such_module_anywhere:Quiet", "cannot be loaded"),
        ("quiet_plugin_of_a_third_party:FOREIGN", "cannot be loaded"),
        ("json:dumps", "is not a class with `name` and `arguments`"),
    ],
)
def test_a_third_party_plugin_that_is_none(distribution, target, message):
    distribution(target)
    with pytest.raises(ConfigError, match=message):
        read(QUIET)


def test_an_unknown_plugin_is_named_once_it_is_not_installed():
    with pytest.raises(ConfigError, match="no plugin 'quiet'"):
        read(QUIET)

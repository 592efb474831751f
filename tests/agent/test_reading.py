"""What the agent finds is what NVIDIA's own tool found, and what it cannot find stays unknown."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.agent.driver import Driver
from extender.agent.lacks import Lacks
from extender.core.errors import InvalidObject
from extender.core.topology import annotation, devices, read
from extender.core.topology.devices import Devices
from extender.core.topology.model import NO_ZONE, NODE, NVLINK, PHB, PIX, PXB, SYS, UNKNOWN, word_of
from extender.core.topology.pci import Place, address, cpu_list, nearness
from extender.obs.metrics import Metrics
from tests.agent.conftest import RECORDINGS, machine_of
from tests.agent.machine import Machine, cpus_of

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared/data/topo"


def words(links) -> list[str]:
    return [" ".join(word_of(int(code)) for code in row) for row in links]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda r: r["name"])
def test_what_is_published_is_what_nvidia_smi_shows(recording, bench):
    machine = machine_of(recording)
    here = bench(machine)
    found = here.reader.read()
    assert here.lacks.listed() == []
    assert words(found.topology.links) == words(machine.known.links)
    assert words(found.topology.nic_links) == words(machine.known.nic_links)
    assert found.topology.same(machine.known)
    published = found.annotations()
    assert annotation.decode(published[annotation.KEY]).same(machine.known)
    assert devices.decode(published[devices.KEY]) == found.devices
    assert found.devices == Devices(
        ids=tuple(machine.uuid(i) for i in range(len(machine.known))),
        health=(devices.OK,) * len(machine.known),
        held=((),) * len(machine.known),
        memory=(0,) * len(machine.known),
        clique=recording.get("clique", ""),
    )


def of_the_corpus() -> list[Path]:
    """Dumps of whole machines: numbered from 0, every NUMA node known, as NVML itself counts."""
    found = []
    for path in sorted(CORPUS.glob("*.txt")):
        known = read(path.read_text(errors="replace")).topology
        whole = known.index == tuple(range(len(known))) and len(known) <= 16
        if whole and (known.numa != NO_ZONE).all() and (known.links != UNKNOWN).all():
            found.append(path)
    return found


@pytest.mark.parametrize("path", of_the_corpus(), ids=lambda path: path.stem)
def test_machines_of_the_corpus_are_found_as_they_are(path, bench):
    known = read(path.read_text(errors="replace"), "P").topology
    bonded = np.where(known.links >= NVLINK, known.links - NVLINK, 0).astype(int)
    most = int(bonded.max())
    switched = (
        most * (len(known) - 1) > 18 and (bonded.sum(axis=1) == most * (len(known) - 1)).all()
    )
    here = bench(Machine(known, "P", switch=most if switched else 0))
    found = here.reader.read().topology
    assert here.lacks.listed() == []
    assert words(found.links) == words(known.links)
    assert found.cpus == known.cpus
    if known.nics != found.nics:
        return
    differ = found.nic_links != known.nic_links
    # Some versions of the tool call it SYS wherever two host bridges are passed; its legend, and the
    # agent, call that NODE within one NUMA node.
    assert {
        (int(f), int(k))
        for f, k in zip(found.nic_links[differ], known.nic_links[differ], strict=True)
    } <= {(NODE, SYS)}
    assert not differ.any() or not (known.nic_links == NODE).any()


def test_pods_that_hold_devices(hgx):
    uuid = hgx.machine.uuid
    hgx.kubelet.pods = {
        "a/whole": [uuid(0), uuid(1)],
        "b/shared": [f"{uuid(2)}::1"],
        "c/shared-too": [f"{uuid(2)}::0"],
        "d/elsewhere": ["0", "hugepages"],
        "e/instance": ["MIG-5"],
    }
    hgx.kubelet.claims = {
        "f/claims": [("gpu.nvidia.com", "gpu-6"), ("nic.example.com", "gpu-7")],
        "g/claims-a-part": [("gpu.nvidia.com", "gpu-6-mig-1g.10gb-19-0")],
    }
    hgx.machine.mig = {5: ["MIG-4", "MIG-5"]}
    found = hgx.reader.read().devices
    assert found.held == (
        ("a/whole",),
        ("a/whole",),
        ("b/shared", "c/shared-too"),
        (),
        (),
        ("e/instance",),
        ("f/claims", "g/claims-a-part"),
        (),
    )
    assert devices.decode(devices.encode(found)) == found


def test_health_is_the_gravest_that_is_known(hgx):
    machine, uuid = hgx.machine, hgx.machine.uuid
    machine.lost, machine.remap_failed, machine.uncorrected = {1}, {2, 3}, {2: 1, 4: 7}
    hgx.kubelet.offered = [uuid(i) for i in range(7)]
    # The session begins with the first reading; 43 is an application's own doing.
    hgx.reader.read()
    machine.lost = set()
    machine.events = [(0, 43), (3, 79), (5, 43)]
    assert hgx.reader.read().devices.health == (
        "ok", "ok", "remap", "xid79", "ecc", "ok", "ok", "withheld",
    )  # fmt: skip
    # An Xid is remembered; a device that the driver calls lost is that.
    machine.lost = {1, 3}
    assert hgx.reader.read().devices.health == (
        "ok", "lost", "remap", "lost", "ecc", "ok", "ok", "withheld",
    )  # fmt: skip
    machine.lost = set()
    assert hgx.reader.read().devices.health[3] == "xid79"


def test_a_plugin_that_offers_none_of_the_devices_says_nothing_of_them(hgx):
    hgx.kubelet.offered = ["0", "1"]
    assert set(hgx.reader.read().devices.health) == {"ok"}


def test_memory_is_told_in_quarters(hgx):
    # 80 GiB: what the driver keeps for itself is nobody's use.
    hgx.machine.used_gib = [0.0, 0.6, 2.0, 20.0, 22.0, 45.0, 79.0, 80.0]
    assert hgx.reader.read().devices.memory == (0, 0, 1, 1, 2, 3, 4, 4)


def test_links_that_the_driver_does_not_let_anybody_use_are_none(hgx):
    # The fabric manager does not run: every link is up, and no peer may be reached.
    hgx.machine.p2p = pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED
    found = hgx.reader.read().topology
    assert {int(code) for code in found.links[0, 1:]} == {NODE, SYS}
    hgx.machine.p2p = pynvml.NVML_P2P_STATUS_UNKNOWN
    assert int(hgx.reader.read().topology.links[0, 1]) == NVLINK + 18


def test_without_nvml_the_rest_is_told_and_links_stay_as_published(hgx):
    before = hgx.reader.read().topology
    hgx.machine.refuse = {"nvmlDeviceGetCount": pynvml.NVML_ERROR_UNINITIALIZED}
    hgx.reader.read()
    hgx.machine.refuse = {"nvmlInit": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
    found = hgx.reader.read()
    assert {int(code) for code in found.topology.links[0, 1:]} == {UNKNOWN}
    assert np.array_equal(found.topology.nic_links, before.nic_links)
    assert np.array_equal(found.topology.numa, before.numa)
    assert (found.topology.cpus, found.topology.nics) == (before.cpus, before.nics)
    assert set(found.devices.health) == {devices.UNKNOWN}
    assert set(found.devices.held) == {None}
    assert hgx.reader.read(before).topology.same(before)
    # Other devices are other links.
    other = annotation.decode(annotation.encode(replace(before, index=tuple(range(1, 9)))))
    assert int(hgx.reader.read(other).topology.links[0, 1]) == UNKNOWN


@pytest.mark.parametrize("gone", [{3}, {0, 7}])
def test_a_device_that_only_the_kernel_sees_is_lost_and_keeps_its_place(hgx, gone):
    before = hgx.reader.read()
    hgx.machine.gone = gone
    found = hgx.reader.read(before.topology)
    assert found.topology.same(before.topology)
    assert {i for i, health in enumerate(found.devices.health) if health == "lost"} == gone
    # The session of before does not see it come back.
    begun = hgx.machine.calls["nvmlInit"]
    hgx.machine.gone = set()
    assert hgx.reader.read().devices == before.devices
    assert hgx.machine.calls["nvmlInit"] == begun + 1


def test_a_device_of_a_virtual_machine_is_not_the_nodes(bench):
    machine = machine_of(RECORDINGS[4])
    machine.driver, machine.gone = "vfio-pci", {0, 1, 2, 3}
    here = bench(machine)
    assert here.reader.read() is None
    assert [lack["field"] for lack in here.lacks.listed()] == ["devices", "handle"]


FIELDS = {
    "nvmlDeviceGetName": "product",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetUtilizationRates": "utilisation",
    "nvmlDeviceGetCpuAffinity": "cpus",
    "nvmlDeviceGetRemappedRows": "health",
    "nvmlDeviceGetTotalEccErrors": "health",
    "nvmlDeviceGetMaxMigDeviceCount": "MIG",
    "nvmlDeviceGetNvLinkState": "NVLink",
    "nvmlDeviceGetP2PStatus": "P2P",
    "nvmlDeviceGetGpuFabricInfoV": "fabric",
    "nvmlEventSetCreate": "events",
    "nvmlEventSetWait_v2": "events",
}


@pytest.mark.parametrize("function", FIELDS)
def test_one_function_that_fails_takes_one_field_with_it(hgx, function):
    whole = hgx.reader.read()
    hgx.lacks.end()
    hgx.reader.close()
    hgx.machine.refuse = {function: pynvml.NVML_ERROR_UNKNOWN}
    found = hgx.reader.read()
    fields = {lack["field"] for lack in hgx.lacks.listed()}
    assert FIELDS[function] in fields
    assert fields <= {FIELDS[function], "health"}
    if FIELDS[function] != "NVLink":
        assert np.array_equal(found.topology.links, whole.topology.links)
    assert found.topology.cpus == whole.topology.cpus
    assert np.array_equal(found.topology.nic_links, whole.topology.nic_links)
    assert hgx.counted("nvml") == 0
    hgx.lacks.end()
    hgx.reader.read()
    hgx.lacks.end()
    # Counted when it began, not with every reading.
    assert hgx.counted("nvml") == len(fields)


@pytest.mark.parametrize("function", FIELDS)
@pytest.mark.parametrize("code", ["NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND"])
def test_what_a_device_or_an_old_driver_does_not_have_is_no_lack(bench, function, code):
    here = bench(machine_of(RECORDINGS[4]))
    here.machine.refuse = {function: getattr(pynvml, code)}
    assert here.reader.read() is not None
    assert here.lacks.listed() == []


def test_without_a_kubelet_the_holders_are_unknown(hgx):
    hgx.kubelet.offered = None
    assert hgx.reader.read().devices.held == ((),) * 8
    assert [lack["field"] for lack in hgx.lacks.listed()] == ["GetAllocatableResources"]
    hgx.reader._settings = hgx.settings.model_copy(
        update={"pod_resources_socket": hgx.settings.pod_resources_socket + ".gone"}
    )
    assert hgx.reader.read().devices.held == (None,) * 8
    assert "List" in [lack["field"] for lack in hgx.lacks.listed()]


def test_without_sysfs_the_driver_tells_what_it_can(hgx):
    whole = hgx.reader.read().topology
    hgx.reader._settings = hgx.settings.model_copy(update={"sysfs": "/nowhere"})
    found = hgx.reader.read().topology
    assert np.array_equal(found.links, whole.links)
    assert found.cpus == whole.cpus
    assert (found.nics, set(found.numa)) == ((), {NO_ZONE})


def test_nothing_at_all_publishes_nothing(hgx):
    hgx.machine.refuse = {"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}
    hgx.reader._settings = hgx.settings.model_copy(update={"sysfs": "/nowhere"})
    assert hgx.reader.read() is None
    assert {lack["source"] for lack in hgx.lacks.listed()} == {"nvml", "sysfs"}


def test_every_function_and_constant_is_one_of_nvml():
    """The real module, with no driver to load: what is asked for exists, and answers so."""
    lacks = Lacks(Metrics())
    assert Driver(pynvml).read(lacks) is None
    (lack,) = lacks.listed()
    assert (lack["source"], lack["field"]) == ("nvml", "driver")


def test_the_real_struct_of_the_fabric_is_what_nvml_fills(hgx):
    hgx.machine.clique = "00112233-4455-6677-8899-aabbccddeeff.12"
    assert hgx.reader.read().devices.clique == "00112233-4455-6677-8899-aabbccddeeff.12"


def test_stubs_are_those_of_the_proto(tmp_path):
    proto = "extender/agent/podresources.proto"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}",
         f"--pyi_out={tmp_path}", proto],
        cwd=ROOT, check=True,
    )  # fmt: skip
    for suffix in ("py", "pyi"):
        made = tmp_path / f"extender/agent/podresources_pb2.{suffix}"
        assert made.read_text() == (ROOT / f"extender/agent/podresources_pb2.{suffix}").read_text()


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        # Below one switch: each behind its own downstream port.
        ("pci0/rp/up/d1/a", "pci0/rp/up/d2/b", PIX),
        # Functions of one card; a card on a port of the root complex by itself.
        ("pci0/rp/a", "pci0/rp/b", PIX),
        # A switch below a switch.
        ("pci0/rp/up/d1/up1/d11/a", "pci0/rp/up/d2/b", PXB),
        ("pci0/rp/up/d1/up1/d11/a", "pci0/rp/up/d1/up1/d12/b", PIX),
        ("pci0/rp1/a", "pci0/rp2/b", PHB),
        ("pci0/rp1/a", "pci1/rp2/b", NODE),
        ("pci0/rp1/a", "pci8/rp2/b", SYS),
        ("pci0/rp1/a", "pci9/rp2/b", UNKNOWN),
        ("pci0/rp1/a", "", UNKNOWN),
    ],
)
def test_nearness_by_the_tree(a, b, code):
    zones = {"pci0": 0, "pci1": 0, "pci8": 1, "pci9": NO_ZONE, "": NO_ZONE}

    def place(path: str) -> Place:
        parts = tuple(path.split("/")) if path else ()
        return Place("x", parts, zones[parts[0] if parts else ""])

    assert nearness(place(a), place(b)) == code
    assert nearness(place(b), place(a)) == code


def test_addresses_as_sysfs_writes_them():
    assert address("00000000:3B:00.0") == "0000:3b:00.0"
    # Behind Intel's VMD.
    assert address(b"00010000:E1:00.0") == "10000:e1:00.0"


@given(st.sets(st.integers(0, 500), max_size=60))
def test_lists_of_cpus(cpus):
    mask = sum(1 << cpu for cpu in cpus)
    text = cpu_list([mask >> (64 * i) & (1 << 64) - 1 for i in range(8)])
    assert cpus_of(text) == sorted(cpus)


pods = st.lists(st.sampled_from(["a/b", "a/c", "ns/x-0", "z/z.z"]), unique=True).map(sorted)
columns = st.integers(1, 64).flatmap(
    lambda n: st.builds(
        Devices,
        ids=st.one_of(
            st.just(("",) * n), st.tuples(*[st.sampled_from(["GPU-1", "MIG-a/b:1"])] * n)
        ),
        health=st.tuples(
            *[st.sampled_from(["ok", "?", "lost", "reset", "xid79", "remap", "ecc", "withheld"])]
            * n
        ),
        held=st.tuples(*[st.one_of(st.none(), pods.map(tuple))] * n),
        memory=st.tuples(*[st.one_of(st.none(), st.integers(0, 4))] * n),
        clique=st.sampled_from(["", "abc.0"]),
    )
)


@given(columns)
def test_devices_round_trip(known):
    assert devices.decode(devices.encode(known)) == known


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", ""),
        ("[]", ""),
        ('{"v":2,"devices":1,"health":"ok"}', ".v"),
        ('{"v":1,"devices":0,"health":""}', ".devices"),
        ('{"v":1,"devices":65,"health":"ok*65"}', ".devices"),
        ('{"v":1,"devices":2,"health":"ok"}', ".health"),
        ('{"v":1,"devices":2,"health":"ok fine"}', ".health"),
        ('{"v":1,"devices":1,"health":"ok","more":1}', ""),
        ('{"v":1,"devices":1,"health":"ok","held":"0"}', ".held"),
        ('{"v":1,"devices":1,"health":"ok","pods":["a"]}', ".pods"),
        ('{"v":1,"devices":1,"health":"ok","memory":"5"}', ".memory"),
        ('{"v":1,"devices":2,"health":"ok*2","ids":["a"]}', ".ids"),
        ('{"v":1,"devices":1,"health":"ok","clique":"a b"}', ".ids"),
        ("x" * (65 * 1024), ""),
    ],
)
def test_a_wrong_annotation_is_refused_by_field(text, field):
    with pytest.raises(InvalidObject) as caught:
        devices.decode(text)
    assert caught.value.field == f"metadata.annotations[{devices.KEY}]{field}"


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        devices.decode(text)
    except InvalidObject:
        return


def test_floods_of_events_do_not_hold_a_reading_up(hgx):
    hgx.machine.events = [(0, 94)] * 300
    hgx.reader.read()
    assert len(hgx.machine.events) == 300 - 256


def test_an_event_of_nobody_makes_all_suspect(hgx):
    real = hgx.reader._driver._nvml._DeviceGetPciInfo

    def of(gpu):
        if gpu == 99:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(busId=real(gpu).busId)

    hgx.reader._driver._nvml._DeviceGetPciInfo = of
    hgx.machine.events = [(99, 79)]
    assert set(hgx.reader.read().devices.health) == {"xid79"}

"""Dumps of `nvidia-smi topo -m` are read to the last link, whatever happened to the text."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from extender.core.errors import InvalidObject
from extender.core.topology import read
from extender.core.topology.model import (
    NO_ZONE,
    NODE,
    PIX,
    PXB,
    SYS,
    code_of,
    distances,
    word_of,
    zones,
)

HERE = Path(__file__).resolve().parent
CASES = yaml.safe_load((HERE / "dumps.yaml").read_text())
SHARED = sorted((HERE.parents[2] / "shared/data/topo").glob("*.txt"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_dump(case):
    reading = read(case["text"])
    known = reading.topology
    count = len(case["links"])
    assert [" ".join(row) for row in reading.words] == case["links"]
    assert known.index == tuple(case.get("index", range(count)))
    assert [None if zone == NO_ZONE else zone for zone in known.numa.tolist()] == case["numa"]
    assert [cpus or None for cpus in known.cpus] == case["cpus"]
    nics = {
        nic: " ".join(word_of(int(code)) for code in known.nic_links[:, at])
        for at, nic in enumerate(known.nics)
    }
    assert nics == case["nics"]
    if "memory" in case:
        assert reading.memory_nodes == case["memory"]
        assert [each or None for each in reading.affinity] == case["affinity"]
    wanted = case.get("warnings", [])
    assert len(reading.warnings) == len(wanted), reading.warnings
    for warning, part in zip(reading.warnings, wanted, strict=True):
        assert part in warning
    for i, row in enumerate(reading.words):
        for j, word in enumerate(row):
            assert known.links[i, j] == (code_of(word) or 0)


def cells(line: str) -> list[str]:
    """An independent reading of one row: its link words from left to right."""
    return re.findall(r"NODE|SYS|PHB|PXB|PIX|NV\d+|\bX\b|(?<=[A-Z])X(?![A-Z])", line)


#: What there is to complain about in the given dumps; everything else is read in full.
ODD = {
    "dgx2_v100_x16_nv6_10nic_PARTIAL_first4rows": 1,
    "h100_x4_ODD_nv6_asymmetric_sys": 3,
    "h20_x8_nv18_42nic": 2,
    "l20_x2_sys_62nic": 4,
}


def test_given_dumps_are_read_as_they_are() -> None:
    for file in SHARED:
        text = re.sub(r"\x1b\[\d*m", "", file.read_text())
        reading = read(text)
        rows = {
            found[1]: cells(found[2])
            for found in re.finditer(r"(?m)^GPU(\d+)([ \t]+(?:X|[NPS]).*)", text)
        }
        devices = [str(index) for index in reading.topology.index]
        assert set(rows) <= set(devices), file
        for at, index in enumerate(devices):
            if index in rows:
                assert reading.words[at] == rows[index][: len(devices)], file
                nics = [word_of(int(code)) for code in reading.topology.nic_links[at]]
                assert nics == rows[index][len(devices) :], file
        assert len(reading.warnings) == ODD.get(file.stem, 0), (file, reading.warnings)


@pytest.mark.parametrize(
    "text", ["", "no matrix", "        GPU0    GPU1    CPU Affinity\n", "GPU0     X      PIX\n"]
)
def test_a_text_without_a_matrix_is_refused(text: str) -> None:
    with pytest.raises(InvalidObject, match=r"^dump: .* is not allowed"):
        read(text)


def test_more_devices_than_muster_keeps_links_for() -> None:
    names = "    ".join(f"GPU{i}" for i in range(65))
    with pytest.raises(InvalidObject, match="'65 GPUs' is not allowed: at most 64"):
        read(f"        {names}    CPU Affinity\nGPU0     X      PIX\n")


def test_distances_see_behind_nvlink() -> None:
    """NV18 hides PCIe: the switch is seen by the port that two share, the socket by NUMA nodes."""
    known = read(
        """
            GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
    GPU0     X      NV18    NV18    NV18    PXB     0-7             0
    GPU1    NV18     X      NV18    NV18    PIX     0-7             0
    GPU2    NV18    NV18     X      NV18    NODE    0-7             0
    GPU3    NV18    NV18    NV18     X      SYS     8-15            1
    NIC0    PXB     PIX     NODE    SYS      X
    """.replace("\n    ", "\n")
    ).topology
    near = distances(known)
    assert near[0].tolist()[1:] == [PXB, NODE, SYS]
    assert near[2].tolist()[:2] == [NODE, NODE]
    assert np.array_equal(near, near.T)
    assert PIX not in near


def test_zones_by_cpus_where_there_is_no_numa_column() -> None:
    by_cpus = read(next(case["text"] for case in CASES if "old drivers" in case["name"])).topology
    assert zones(by_cpus).tolist() == [0, 0, 1]
    unknown = read(next(case["text"] for case in CASES if "no affinity" in case["name"])).topology
    assert zones(unknown).tolist() == [NO_ZONE, NO_ZONE]


def test_blanks_in_a_legend_cost_no_more_than_other_letters() -> None:
    """2 s for 20,000 of them, and four times that for twice as many."""
    text = next(case["text"] for case in CASES if "NIC0: mlx5_0" in case["text"])
    before = read(text)
    began = time.process_time()
    after = read(text.replace("NIC0: mlx5_0", "NIC0: mlx5" + " " * 60_000 + "_0"))
    assert time.process_time() - began < 5
    assert after.topology.nics[1:] == before.topology.nics[1:]
    assert after.topology.nics[0] == "NIC0"

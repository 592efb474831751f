"""The other sources of topology: ROCm, Muster's annotation, NodeResourceTopology, GFD's labels."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.core.errors import InvalidObject
from extender.core.topology import annotation, catalogue, nrt, read
from extender.core.topology.bandwidth import model_of
from extender.core.topology.model import NO_ZONE, NODE, SELF, SYS, XGMI, code_of, topology
from extender.core.topology.products import named, plain_name

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared/data"

ROCM = """
============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            15           30           72
GPU1   15           0            15           72
GPU2   30           15           0            40
GPU3   72           72           40           0

================================= Hops between two GPUs ==================================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            1            1            3
GPU1   1            0            1            3
GPU2   1            1            0            2
GPU3   3            3            2            0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            XGMI         XGMI         PCIE
GPU1   XGMI         0            XGMI         PCIE
GPU2   XGMI         XGMI         0            PCIE
GPU3   PCIE         PCIE         PCIE         0

======================================= Numa Nodes =======================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
GPU[1]\t\t: (Topology) Numa Node: 0
GPU[1]\t\t: (Topology) Numa Affinity: 0
GPU[3]\t\t: (Topology) Numa Node: 1
GPU[3]\t\t: (Topology) Numa Affinity: 1
================================== End of ROCm SMI Log ===================================
"""


def test_rocm() -> None:
    reading = read(ROCM)
    direct = XGMI + 1
    assert reading.topology.links.tolist() == [
        [SELF, direct, NODE, SYS],
        [direct, SELF, direct, SYS],
        [NODE, direct, SELF, NODE],
        [SYS, SYS, NODE, SELF],
    ]
    assert reading.words[2] == ["XGMI", "XGMI", "X", "PCIE"]
    assert reading.topology.numa.tolist() == [0, 0, NO_ZONE, 1]
    assert reading.warnings == []


def test_rocm_with_the_types_alone() -> None:
    """`rocm-smi --showtopotype`: no weights, no hops, no NUMA nodes."""
    before, _, table = ROCM.partition("=============================== Link")
    reading = read("=============================== Link" + table.partition("\n\n")[0])
    assert before
    assert reading.topology.links[0].tolist() == [SELF, XGMI + 1, XGMI + 1, 0]
    assert reading.topology.numa.tolist() == [NO_ZONE] * 4


def rocm_json(indent: int | None) -> str:
    """The same node as `rocm-smi --showtopo --json` prints it: each pair once, all in strings."""
    ways = {
        "Weight": (15, 30, 72, 15, 72, 40),
        "Hops": (1, 1, 3, 1, 3, 2),
        "Link type": ("XGMI", "XGMI", "PCIE", "XGMI", "PCIE", "PCIE"),
    }
    nodes = {0: 0, 1: 0, 2: -1, 3: 1}
    cards = {
        f"card{gpu}": {"(Topology) Numa Node": str(node), "(Topology) Numa Affinity": str(node)}
        for gpu, node in nodes.items()
    }
    pairs = {
        f"(Topology) {about} between DRM devices {a} and {b}": str(word)
        for about, words in ways.items()
        for (a, b), word in zip(combinations(range(4), 2), words, strict=True)
    }
    return json.dumps({**cards, "system": pairs}, indent=indent)


@pytest.mark.parametrize("indent", [None, 2])
def test_rocm_json(indent: int | None) -> None:
    reading, same = read(rocm_json(indent)), read(ROCM)
    assert reading.topology.links.tolist() == same.topology.links.tolist()
    assert reading.topology.numa.tolist() == same.topology.numa.tolist()
    assert (reading.words, reading.warnings) == (same.words, [])


def test_rocm_json_of_some_gpus() -> None:
    """The pairs of one GPU are gone; then one pair is; then there are more than Muster takes."""
    text = rocm_json(2)
    few = "\n".join(line for line in text.splitlines() if " 2 and" not in line)
    few = "\n".join(line for line in few.splitlines() if "and 2" not in line)
    reading = read(few)
    assert reading.topology.index == (0, 1, 3)
    assert reading.topology.links[0].tolist() == [SELF, XGMI + 1, SYS]
    assert reading.topology.numa.tolist() == [0, 0, 1]
    reading = read(text.replace("Link type between DRM devices 1 and 3", ""))
    assert reading.warnings == [
        "GPU1 to GPU3: '?' is no link that is known",
        "GPU3 to GPU1: '?' is no link that is known",
    ]
    way = '"(Topology) Link type between DRM devices 0 and {}": "XGMI",'
    with pytest.raises(InvalidObject, match=r"^dump: '2000 GPUs' is not allowed: at most "):
        read("{" + "".join(way.format(gpu) for gpu in range(1, 2000)) + "}")


def test_rocm_word_that_is_not_known() -> None:
    reading = read(ROCM.replace("PCIE         PCIE         PCIE         0", "PCIE         WIRE"))
    assert reading.warnings == [
        "GPU3 to GPU1: 'WIRE' is no link that is known",
        "GPU3 to GPU2: '?' is no link that is known",
    ]


#: Two packages of two dies with four links each, one link between them, and a card on its own.
AMD = """
$ amd-smi topology
ACCESS TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 ENABLED      ENABLED      ENABLED      DISABLED
0000:2c:00.0 ENABLED      ENABLED      ENABLED      DISABLED
0000:AD:00.0 ENABLED      ENABLED      ENABLED      DISABLED
0001:c1:00.0 DISABLED     DISABLED     DISABLED     ENABLED

WEIGHT TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 0            15           15           40
0000:2c:00.0 15           0            30           40
0000:AD:00.0 15           30           0            72
0001:c1:00.0 40           40           72           0
HOPS TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 0            1            1            2
0000:2c:00.0 1            0            1            2
0000:AD:00.0 1            1            0            3
0001:c1:00.0 2            2            3            0
LINK TYPE TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 SELF         XGMI         XGMI         PCIE
0000:2c:00.0 XGMI         SELF         XGMI         PCIE
0000:AD:00.0 XGMI         XGMI         SELF         PCIE
0001:c1:00.0 PCIE         PCIE         PCIE         SELF
NUMA BW TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 N/A          50000-200000 50000-50000  N/A
0000:2c:00.0 50000-200000 N/A          0-0          N/A
0000:AD:00.0 50000-50000  0-0          N/A          N/A
0001:c1:00.0 N/A          N/A          N/A          N/A
CACHE COHERANCY TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 SELF         C            C            N/A
ATOMICS TABLE:
             0000:29:00.0 0000:2c:00.0 0000:AD:00.0 0001:c1:00.0
0000:29:00.0 SELF         64,32        64,32        N/A

Legend:
 SELF = Current GPU
 <BW from>-<BW to>
"""
AMD_LINKS = [
    [SELF, XGMI + 4, XGMI + 1, NODE],
    [XGMI + 4, SELF, NODE, NODE],
    [XGMI + 1, NODE, SELF, SYS],
    [NODE, NODE, SYS, SELF],
]


def test_amd_smi() -> None:
    reading = read(AMD)
    assert reading.topology.links.tolist() == AMD_LINKS
    assert reading.topology.index == (0, 1, 2, 3)
    assert reading.words[3] == ["PCIE", "PCIE", "PCIE", "X"]
    assert reading.topology.numa.tolist() == [NO_ZONE] * 4
    assert reading.warnings == []
    hosts = "".join(f"node07: {line}\n" for line in AMD.splitlines())
    assert read(hosts).topology.same(reading.topology)


def test_amd_smi_weights_that_the_driver_does_not_know() -> None:
    """On some builds all weights are 0 and bandwidths 0-0: XGMI is then a link."""
    text = AMD.replace("15 ", "0  ").replace("30 ", "0  ").replace("50000-200000", "0-0         ")
    links = read(text).topology.links
    assert links[:3, :3].tolist() == [
        [SELF, XGMI + 1, XGMI + 1],
        [XGMI + 1, SELF, XGMI + 1],
        [XGMI + 1, XGMI + 1, SELF],
    ]


def test_amd_smi_json() -> None:
    """Each GPU has its ways in an order of its own."""
    types = {SELF: "SELF", NODE: "PCIE", SYS: "PCIE", XGMI + 1: "XGMI", XGMI + 4: "XGMI"}
    weights, hops = {SELF: 0, NODE: 40, SYS: 72}, {SELF: 0, NODE: 2, SYS: 3}
    gpus = [
        {
            "gpu": i,
            "bdf": f"0000:{i:02x}:00.0",
            "links": [
                {
                    "gpu": j,
                    "weight": 30 if (i, j) in ((1, 2), (2, 1)) else weights.get(code, 15),
                    "link_status": "ENABLED",
                    "link_type": "XGMI" if (i, j) in ((1, 2), (2, 1)) else types[code],
                    "num_hops": hops.get(code, 1),
                    "bandwidth": "50000-200000" if code == XGMI + 4 else "N/A",
                }
                for j, code in reversed(list(enumerate(row)))
            ],
        }
        for i, row in enumerate(AMD_LINKS)
    ]
    assert read(json.dumps(gpus)).topology.links.tolist() == AMD_LINKS
    types_alone = [
        {"gpu": gpu["gpu"], "links": [{k: way[k] for k in ("gpu", "link_type")} for way in links]}
        for gpu in gpus
        if isinstance(links := gpu["links"], list)
    ]
    assert read(json.dumps(types_alone)).topology.links[3].tolist() == [0, 0, 0, SELF]
    with pytest.raises(InvalidObject, match=r"^dump: .* is not allowed: .*amd-smi topology"):
        read('[{"gpu": 0, "links": [{"link_type": "SELF"}]}]')


WORDS = st.sampled_from([0, 2, 3, 4, 5, 6, 7, 65, 70, 82, 127, 129, 130])


@st.composite
def topologies(draw):
    count = draw(st.integers(1, 9))
    nics = draw(
        st.lists(
            st.from_regex(r"[a-z]{1,5}[0-9]_[0-9]{1,2}", fullmatch=True), max_size=4, unique=True
        )
    )
    cells = st.lists(WORDS, min_size=count * count, max_size=count * count)
    links = np.array(draw(cells), dtype=np.uint8).reshape(count, count)
    if draw(st.booleans()):
        links = np.triu(links) + np.triu(links, 1).T
    np.fill_diagonal(links, SELF)
    near = draw(st.lists(WORDS, min_size=count * len(nics), max_size=count * len(nics)))
    cpus = st.sampled_from(["", "0-3", "0,2,4", "8-15,24-31"])
    return topology(
        links.astype(np.uint8),
        index=tuple(draw(st.permutations(range(draw(st.integers(count, 12))))))[:count],
        numa=np.array(
            draw(st.lists(st.integers(-1, 33), min_size=count, max_size=count)), dtype=np.int16
        ),
        cpus=tuple(draw(st.lists(cpus, min_size=count, max_size=count))),
        nics=tuple(nics),
        nic_links=np.array(near, dtype=np.uint8).reshape(count, len(nics)),
        product=draw(st.sampled_from(["", "NVIDIA-H100-80GB-HBM3", 'a "b" \\ é'])),
    )


@given(topologies())
def test_annotation_comes_back_as_it_was(known) -> None:
    text = annotation.encode(known)
    assert annotation.decode(text).same(known)
    assert annotation.encode(annotation.decode(text)) == text


GOOD = {"v": 1, "devices": 3, "links": "NV2 SYS*2", "nics": ["mlx5_0"], "nicLinks": "PIX*3"}


@pytest.mark.parametrize(
    ("change", "field", "allowed"),
    [
        ({"v": 2}, ".v", "1"),
        ({"devices": 0}, ".devices", "1 to 64"),
        ({"devices": 65}, ".devices", "1 to 64"),
        ({"links": "NV2 SYS"}, ".links", "3 words"),
        ({"links": "NV2 SYS*3"}, ".links", "3 words"),
        ({"links": "NV2 SYS*999999"}, ".links", "3 words"),
        ({"links": "NV2 SYS*2 "}, ".links", "WORD*COUNT"),
        ({"links": "NV2 X*2"}, ".links", "SYS NODE"),
        ({"links": "NV99 SYS*2"}, ".links", "SYS NODE"),
        ({"links": "NV2 FAR*2"}, ".links", "SYS NODE"),
        ({"back": "SYS"}, ".back", "3 words"),
        ({"index": [0, 1]}, ".index", "3 different numbers"),
        ({"index": [0, 1, 1]}, ".index", "3 different numbers"),
        ({"index": [0, 1, -1]}, ".index", "3 different numbers"),
        ({"numa": "0*2 x"}, ".numa", "WORD*COUNT"),
        ({"cpus": "0-3*2 all"}, ".cpus", "WORD*COUNT"),
        ({"nics": ["mlx5 0"]}, ".nics", "device names"),
        ({"nicLinks": "PIX*2"}, ".nicLinks", "3 words"),
        ({"colour": "red"}, "", "JSON of version 1"),
        ({"links": 5}, "", "JSON of version 1"),
        ({"links": "x" * 70_000}, "", "at most 65536 bytes"),
    ],
)
def test_annotation_that_is_wrong_is_refused(change, field, allowed) -> None:
    annotation.decode(json.dumps(GOOD))
    with pytest.raises(InvalidObject) as error:
        annotation.decode(json.dumps(GOOD | change))
    assert error.value.field == f"metadata.annotations[{annotation.KEY}]{field}"
    assert allowed in error.value.allowed


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\ud800"])
def test_annotation_that_is_no_object(text) -> None:
    with pytest.raises(InvalidObject, match="JSON of version 1"):
        annotation.decode(text)


NRT = """
metadata: {name: a}
attributes: [{name: topologyManagerPolicy, value: restricted}, {name: topologyManagerScope, value: pod}]
zones:
- {name: node-1, type: Node, costs: [{name: node-0, value: 21}, {name: node-1, value: 10}],
   resources: [{name: cpu, capacity: 8, allocatable: "7500m", available: "1.5"},
               {name: nvidia.com/gpu, capacity: "2", allocatable: "2", available: "1"}]}
- {name: socket-0, type: Socket, resources: [{name: cpu, capacity: 99, allocatable: 99, available: 99}]}
- {name: node-0, type: Node, costs: [{name: node-9, value: 5}],
   resources: [{name: cpu, capacity: 8, allocatable: 8, available: 8},
               {name: memory, capacity: 2Gi, allocatable: 1Gi, available: 1Mi}]}
- {name: node-2, type: Node, resources: [{name: memory, capacity: 96Gi, allocatable: 96Gi, available: 96Gi}]}
"""


def zones_of(text: str) -> nrt.NodeZones:
    return nrt.zones_of(msgspec.convert(yaml.safe_load(text), nrt.NodeResourceTopology))


def test_node_resource_topology() -> None:
    found = zones_of(NRT)
    assert (found.policy, found.scope, found.most_zones) == ("restricted", "pod", 8)
    assert found.ids == (0, 1, 2)
    assert found.resources == ("cpu", "memory", "nvidia.com/gpu")
    assert found.capacity.tolist() == [[8000, 2**31, -1], [8000, -1, 2], [-1, 96 * 2**30, -1]]
    assert found.allocatable.tolist() == [[8000, 2**30, -1], [7500, -1, 2], [-1, 96 * 2**30, -1]]
    assert found.available.tolist() == [[8000, 2**20, -1], [1500, -1, 1], [-1, 96 * 2**30, -1]]
    assert found.distance.tolist() == [[-1, -1, -1], [21, 10, -1], [-1, -1, -1]]
    assert found.with_cpus().tolist() == [True, True, False]


def test_amounts_that_an_updater_leaves_out() -> None:
    """Early v1alpha1 has no `available`; zones by other names keep their number."""
    found = zones_of(
        """
zones:
- {name: numa-node-1, type: Node, resources: [{name: cpu, capacity: 4, allocatable: 3}]}
- {name: numa-node-0, type: Node, resources: [{name: cpu, capacity: 24, available: "20"}]}
- {name: numa-7, type: Node, resources: [{name: cpu, available: 2}]}
"""
    )
    assert found.ids == (0, 1, 7)
    assert found.capacity[:, 0].tolist() == [24000, 4000, 2000]
    assert found.allocatable[:, 0].tolist() == [24000, 3000, 2000]
    assert found.available[:, 0].tolist() == [20000, 3000, 2000]


@pytest.mark.parametrize(
    ("old", "policy", "scope"),
    [
        ("SingleNUMANode", "single-numa-node", "container"),
        ("SingleNUMANodePodLevel", "single-numa-node", "pod"),
        ("SingleNUMANodeContainerLevel", "single-numa-node", "container"),
        ("RestrictedPodLevel", "restricted", "pod"),
        ("BestEffort", "best-effort", "container"),
        ("None", "none", "container"),
        ("Other", "", ""),
    ],
)
def test_policy_of_v1alpha1(old, policy, scope) -> None:
    found = zones_of(f"topologyPolicies: [{old}]\nzones: []")
    assert (found.policy, found.scope) == (policy, scope)


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (NRT.replace('"1.5"', "lots"), "zones[0].resources[0].available"),
        (NRT.replace("96Gi", "-1", 1), "zones[3].resources[0].capacity"),
        (NRT.replace("name: node-2", "name: node-0"), "zones[3].name"),
    ],
)
def test_node_resource_topology_that_is_wrong(broken, field) -> None:
    with pytest.raises(InvalidObject) as error:
        zones_of(broken)
    assert error.value.field == field


def test_given_node_resource_topologies() -> None:
    for file in sorted((SHARED / "k8s_objects").glob("nrt_*_*.yaml")):
        found = zones_of(file.read_text())
        assert found.policy == "single-numa-node", file
        assert found.with_cpus().all()
        assert (found.available <= found.allocatable).all()


@pytest.mark.parametrize(
    "shape", catalogue.every_shape(), ids=lambda s: f"{s.topology.product}-{len(s.topology)}"
)
def test_every_shape_of_the_catalogue(shape) -> None:
    known = shape.topology
    labels = {catalogue.PRODUCT_LABEL: known.product, catalogue.COUNT_LABEL: str(len(known))}
    found = catalogue.shape_of(labels)
    assert found is not None
    assert found.topology.same(known)
    assert np.array_equal(known.links, known.links.T)
    product = named(known.product)
    assert product is not None
    # A link more than a device has would need a switch, and then all are joined by it.
    if not (model := model_of(known)).switched:
        counts = np.where(known.links >= 64, known.links % 64, 0)
        assert counts.sum(axis=1).max() <= product.most_links
    assert model.bandwidth[-1] > 0


def test_dgx1_of_the_catalogue_is_the_one_of_the_dumps() -> None:
    shape = catalogue.shape("Tesla-V100-SXM2-32GB", 8)
    words = "NV1*2 NV2*2 SYS*3 NV2 NV1 SYS NV2 SYS*2 NV2 SYS*2 NV1 SYS*4 NV1*3 NV2*2 NV1 NV2"
    dump = annotation.decode(json.dumps({"v": 1, "devices": 8, "links": words}))
    bonded = dump.links >= 64
    assert shape is not None
    assert np.array_equal(
        np.where(bonded, shape.topology.links, 0), np.where(bonded, dump.links, 0)
    )


@pytest.mark.parametrize(
    ("product", "count", "name"),
    [
        ("NVIDIA-A100-SXM4-80GB", "8", "HGX A100"),
        ("NVIDIA-A100-SXM4-80GB-SHARED", "8", "HGX A100"),
        ("NVIDIA H100 80GB HBM3", "8", "HGX H100"),
        ("NVIDIA-H100-NVL", "2", "H100 NVL"),
        ("Tesla-T4", "4", "PCIe server, 4 GPUs"),
        ("NVIDIA-A10G", "1", "one A10G"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "8", None),
        ("NVIDIA-H100-80GB-HBM3", "3", None),
        ("NVIDIA-GH200-480GB", "4", "quad GH200"),
        ("NVIDIA-B100", "8", "HGX B200"),
        # Links that no label tells: unknown, not a PCIe server without any.
        ("NVIDIA-H800-NVL", "8", None),
        ("AMD_Instinct_MI250X", "8", None),
        ("NVIDIA-X999", "8", None),
        ("NVIDIA-X999", "eight", None),
        ("", "8", None),
    ],
)
def test_labels(product, count, name) -> None:
    found = catalogue.shape_of({catalogue.PRODUCT_LABEL: product, catalogue.COUNT_LABEL: count})
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("name", "plain", "link", "pcie", "p2p"),
    [
        ("NVIDIA-A100-SXM4-80GB", "A100 SXM4 80GB", 20.0, 4, True),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB", 20.0, 3, True),
        ("NVIDIA GeForce RTX 4090", "GEFORCE RTX 4090", 0.0, 4, False),
        ("NVIDIA GeForce RTX 3090", "GEFORCE RTX 3090", 12.0, 4, False),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 ADA GENERATION", 0.0, 4, True),
        ("NVIDIA RTX A6000", "RTX A6000", 12.0, 4, True),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 BLACKWELL SERVER EDITION",
            0.0,
            5,
            True,
        ),
        ("NVIDIA H100 PCIe", "H100 PCIE", 20.6, 5, True),
        ("NVIDIA GB200", "GB200", 40.1, 5, True),
        ("NVIDIA L40S", "L40S", 0.0, 4, True),
        ("GRID A100-40C", "GRID A100 40C", 0.0, 4, False),
        ("NVIDIA H100L-94C", "H100L 94C", 0.0, 4, False),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF ADA GENERATION", 0.0, 4, True),
        ("NVIDIA RTX 2000E Ada Generation", "RTX 2000E ADA GENERATION", 0.0, 4, True),
        ("NVIDIA-T4G", "T4G", 0.0, 3, True),
        ("NVIDIA-B300-SXM6-AC", "B300 SXM6 AC", 40.1, 6, True),
        ("AMD Instinct MI300X OAM", "INSTINCT MI300X OAM", 48.0, 5, True),
        ("AMD_Instinct_MI355X", "INSTINCT MI355X", 57.6, 5, True),
    ],
)
def test_products(name, plain, link, pcie, p2p) -> None:
    assert plain_name(name) == plain
    found = named(name)
    assert found is not None
    assert (found.link_gbs, found.pcie, found.p2p) == (link, pcie, p2p)


def test_words_and_codes() -> None:
    assert [code_of(word) for word in ("SYS", "SOC", "NV18", "XGMI2", "NV0", "NV64", "FAR")] == [
        SYS, SYS, 82, XGMI + 2, None, None, None,
    ]  # fmt: skip

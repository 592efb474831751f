"""`muster topo`: answers, return codes, and what is said of bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from extender import cli
from extender.core.topology import annotation, read

CUBE = """
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity    NUMA Affinity
GPU0     X      NV1     NV1     NV2     PIX     0-19            0
GPU1    NV1      X      NV2     NV1     SYS     20-39           N/A
GPU2    NV1     NV2      X      NV2     SYS     20-39           0-1
GPU3    NV2     NV1     NV2      X      ERR     20-39           1
mlx5_0  PIX     SYS     SYS     SYS      X
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "topo.txt"
    path.write_text(CUBE)
    return str(path)


def ran(capsys, *words: str) -> tuple[int, str, str]:
    code = cli.main(["topo", *words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("coding", ["utf-16", "utf-8-sig"])
def test_a_file_as_windows_writes_it(capsys, tmp_path: Path, coding: str) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(CUBE.lstrip("\n").replace("\n", "\r\n"), encoding=coding, newline="")
    code, out, _ = ran(capsys, "parse", str(path), "--json")
    assert code == 0
    assert json.loads(out)["links"][0] == ["X", "NV1", "NV1", "NV2"]


def test_a_record_of_a_log(capsys, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"host": "a", "topology": CUBE}))
    code, out, _ = ran(capsys, "parse", str(path), "--json")
    assert code == 0
    assert json.loads(out)["nics"][0]["links"] == ["PIX", "SYS", "SYS", "?"]


def test_the_json_of_a_tool_is_no_object(capsys, tmp_path: Path) -> None:
    path = tmp_path / "rocm.json"
    path.write_text('{"system": {"(Topology) Link type between DRM devices 0 and 1": "XGMI"}}')
    code, out, err = ran(capsys, "parse", str(path), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["links"] == [["X", "XGMI"], ["XGMI", "X"]]


def test_parse(capsys, file: str) -> None:
    code, out, err = ran(capsys, "parse", file, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["links"][2] == ["NV1", "NV2", "X", "NV2"]
    assert [(gpu["index"], gpu["numa"], gpu["cpus"]) for gpu in document["gpus"]] == [
        (0, 0, "0-19"),
        (1, None, "20-39"),
        (2, None, "20-39"),
        (3, 1, "20-39"),
    ]
    assert document["gpus"][2]["numa_affinity"] == "0-1"
    assert document["nics"] == [{"name": "mlx5_0", "links": ["PIX", "SYS", "SYS", "?"]}]
    assert annotation.decode(document["annotation"]).same(read(CUBE).topology)
    assert document["warnings"] == ["GPU3 to mlx5_0: 'ERR' is no link that is known"]


def test_parse_for_people(capsys, file: str) -> None:
    code, out, err = ran(capsys, "parse", file)
    assert code == 0
    assert "GPU3    numa 1     cpus 20-39                    NV2 NV1 NV2 X\n" in out
    assert "mlx5_0   PIX SYS SYS ?\n" in out
    assert err == f"muster topo: {file}: GPU3 to mlx5_0: 'ERR' is no link that is known\n"


def test_parse_of_standard_input(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CUBE.encode() + b"\xff")))
    assert ran(capsys, "parse", "-", "--json")[0] == 0


def test_place(capsys, file: str) -> None:
    code, out, _ = ran(capsys, "place", file, "--gpus", "2", "--busy", "0", "--json")
    assert code == 0
    assert json.loads(out) == {
        "devices": [1, 2],
        "bandwidth_gbs": 40.0,
        "broken": {"quads": 0, "pairs": 0},
        "alternative": {
            "devices": [2, 3],
            "bandwidth_gbs": 40.0,
            "broken": {"quads": 0, "pairs": 0},
        },
    }


def test_place_for_people(capsys, file: str) -> None:
    code, out, _ = ran(capsys, "place", file, "--gpus", "1")
    assert code == 0
    assert out.splitlines()[0] == "take  0                one GPU      breaks 1 quad, 1 pair"
    assert out.splitlines()[1].startswith("else  1 ")
    code, out, _ = ran(capsys, "place", file, "--gpus", "4")
    assert out.splitlines() == [
        "take  0,1,2,3          80 GB/s      breaks nothing",
        "else  no other choice",
    ]


def test_a_product_that_is_not_known_is_said(capsys, file: str) -> None:
    code, _, err = ran(capsys, "show", file, "--product", "FOO 1")
    assert code == 0
    assert (
        "muster topo: --product: 'FOO 1' is not known; speeds are guessed from the links\n" in err
    )
    assert "--product" not in ran(capsys, "show", file, "--product", "Tesla V100")[2]


def test_a_product_sets_the_speed(capsys, file: str) -> None:
    _, out, _ = ran(capsys, "place", file, "--gpus", "4", "--product", "NVIDIA-H100", "--json")
    assert json.loads(out)["bandwidth_gbs"] == 82.4


def test_one_device_has_nothing_to_send(capsys, file: str) -> None:
    _, out, _ = ran(capsys, "place", file, "--gpus", "1", "--busy", "0,1,2", "--json")
    document = json.loads(out)
    assert (document["devices"], document["bandwidth_gbs"]) == ([3], None)
    assert document["alternative"] is None


def test_too_few_are_free(capsys, file: str) -> None:
    code, out, err = ran(capsys, "place", file, "--gpus", "3", "--busy", "0, 3", "--json")
    assert code == 1
    assert json.loads(out)["devices"] == []
    assert err.endswith("--gpus: 3 asked, 2 of 4 are free\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["place", "{}", "--gpus", "1", "--busy", "4"],
            "--busy: '4' is not allowed: numbers of GPUs",
        ),
        (
            ["place", "{}", "--gpus", "1", "--busy", "0,"],
            "--busy: '' is not allowed: numbers of GPUs",
        ),
        (["place", "{}", "--gpus", "0"], "gpus: 0 is not allowed: at least 1"),
        (["parse", "{}.gone"], "No such file or directory"),
        (
            ["show", "gpu-node-7"],
            "No such file or directory; of a Node, as the service knows it: --url",
        ),
        (["show", "{}/.."], "Not a directory"),
        (["parse", cli.__file__], "dump: "),
    ],
)
def test_wrong_use(capsys, file: str, words: list[str], message: str) -> None:
    code, out, err = ran(capsys, *(word.replace("{}", file) for word in words))
    assert (code, out) == (2, "")
    assert message in err


def test_a_node_with_more_devices_than_tables_can_hold(capsys, tmp_path: Path) -> None:
    names = "    ".join(f"GPU{i}" for i in range(17))
    path = tmp_path / "many.txt"
    path.write_text(f"        {names}    CPU Affinity\nGPU0     X      PIX\n")
    assert ran(capsys, "parse", str(path))[0] == 0
    code, _, err = ran(capsys, "place", str(path), "--gpus", "2")
    assert code == 2
    assert "devices: 17 is not allowed: at most 16 in one node" in err


def test_show(capsys, file: str) -> None:
    code, out, _ = ran(capsys, "show", file, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["pairs_gbs"][0] == [0.0, 20.0, 20.0, 40.0]
    assert (document["switched"], document["bandwidth_gbs"]) == (False, 80.0)
    code, out, _ = ran(capsys, "show", file)
    assert code == 0
    assert "4 GPUs, direct links; all together 80.0 GB/s" in out
    assert "NV2" in out


def test_show_is_readable_where_nobody_has_a_wide_terminal(capsys, tmp_path: Path) -> None:
    """Eight GPUs and twelve ports, drawn whole at 80 columns."""
    ports = [f"mlx5_{number}" for number in range(12)]
    text = {
        "v": 1, "devices": 8, "links": "NV18*28", "numa": "0*4 1*4", "nics": ports,
        "nicLinks": "PIX*12 NODE*36 SYS*48",
    }  # fmt: skip
    held = '{"v":1,"devices":8,"health":"ok*8","pods":["team/a"],"held":"-*7 0"}'
    path = node_file(tmp_path, topology=json.dumps(text), devices=held)
    code, out, _ = ran(capsys, "show", path)
    lines = out.splitlines()
    assert (code, max(map(len, lines))) == (0, 67)
    assert "│ mlx5_11 │ PIX  │ NODE │ NODE │ NODE │ SYS  │ SYS  │ SYS  │ SYS  │" in lines
    assert "│ NUMA    │  0   │  0   │  0   │  0   │  1   │  1   │  1   │  1   │" in lines
    assert ("…" in out, lines[-1]) == (False, "GPU7: team/a")


def test_sixteen_gpus_are_wider_than_a_terminal_and_stay_whole(capsys, tmp_path: Path) -> None:
    path = node_file(tmp_path, topology='{"v":1,"devices":16,"links":"NV6*120"}')
    code, out, _ = ran(capsys, "show", path)
    assert (code, "…" in out, out.count("NV6")) == (0, False, 240)


def node_file(tmp_path: Path, **annotations: str) -> str:
    path = tmp_path / "node.json"
    marks = {f"scheduling.muster.dev/{key}": text for key, text in annotations.items()}
    path.write_text(json.dumps({"kind": "Node", "metadata": {"annotations": marks}}))
    return str(path)


PUBLISHED = {
    "topology": '{"v":1,"devices":4,"links":"NV12 NODE*2 NODE*2 NV12","numa":"0*4"}',
    "devices": '{"v":1,"devices":4,"health":"ok*3 ecc","pods":["team/a"],"held":"0 -*3"}',
}


def test_a_node_as_kubectl_prints_it(capsys, tmp_path: Path) -> None:
    path = node_file(tmp_path, **PUBLISHED)
    code, out, err = ran(capsys, "show", path, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["links"][0] == ["X", "NV12", "NODE", "NODE"]
    assert [gpu["busy"] for gpu in document["gpus"]] == ["team/a", None, None, "ecc"]
    code, out, _ = ran(capsys, "show", path)
    assert (code, "team/a" in out) == (0, True)
    code, out, _ = ran(capsys, "place", path, "--gpus", "2", "--json")
    assert (code, json.loads(out)["devices"]) == (0, [1, 2])
    code, out, _ = ran(capsys, "place", path, "--gpus", "2", "--busy", "", "--json")
    assert (code, json.loads(out)["devices"]) == (0, [0, 1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"kind":"Pod"}', "kind: 'Pod' is not allowed: Node"),
        ("{", "JSON or YAML; it is not YAML"),
        (
            '{"kind":"Node"}',
            "scheduling.muster.dev/topology]: is missing: what `muster agent`",
        ),
        (
            '{"kind":"Node","metadata":{"annotations":{"scheduling.muster.dev/topology":"{}"}}}',
            "scheduling.muster.dev/topology]",
        ),
    ],
)
def test_no_node(capsys, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(text)
    code, out, err = ran(capsys, "show", str(path))
    assert (code, out) == (2, "")
    assert words in err


def nrt(version: str, *gpus: int, free: int = 0) -> dict[str, object]:
    resource = {"name": "nvidia.com/gpu", "allocatable": 0, "available": 0}
    zones = [
        {
            "name": f"node-{at}",
            "type": "Node",
            "resources": [resource | {"capacity": count, "available": count - free}],
        }
        for at, count in enumerate(gpus)
    ]
    return {
        "apiVersion": f"topology.node.k8s.io/{version}",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n"},
        "topologyPolicies": ["SingleNUMANode"],
        "zones": zones,
    }


def node(**labels: str) -> dict[str, object]:
    meta = {"name": "n", "labels": {f"nvidia.com/gpu.{key}": each for key, each in labels.items()}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
@pytest.mark.parametrize("as_yaml", [False, True])
def test_zones_of_a_node(capsys, tmp_path: Path, version: str, as_yaml: bool) -> None:
    path, body = tmp_path / "nrt", nrt(version, 2, 1, free=1)
    path.write_text(f"---\n{yaml.safe_dump(body)}" if as_yaml else json.dumps(body))
    code, out, _ = ran(capsys, "parse", str(path), "--json")
    document = json.loads(out)
    assert code == 0
    assert [each["numa"] for each in document["gpus"]] == [0, 0, 1]
    assert document["links"] == [["X", "?", "?"], ["?", "X", "?"], ["?", "?", "X"]]
    assert document["warnings"] == [
        "no links are told, only zones: NVLinks that there may be are not counted",
        "2 of 3 devices are in use; which is not told",
    ]
    code, out, _ = ran(capsys, "place", str(path), "--gpus", "2", "--json")
    assert (code, json.loads(out)["devices"]) == (0, [0, 1])


@pytest.mark.parametrize("counts", [(33, 32), (20_000,), (9 * 10**18, 9 * 10**18)])
def test_more_devices_in_zones_than_a_node_has(capsys, tmp_path: Path, counts) -> None:
    """No square of them is made first: of 20,000 it took 400 MB, of more it was a traceback."""
    path = tmp_path / "nrt.json"
    path.write_text(json.dumps(nrt("v1alpha2", *counts, free=0)))
    code, _, err = ran(capsys, "parse", str(path), "--json")
    assert (code, err.count("\n")) == (2, 1)
    assert "zones: 'more than 64' is not allowed: at most 64" in err


def test_a_node_of_which_labels_alone_tell(capsys, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(node(product="NVIDIA-H100-80GB-HBM3", count="8")))
    code, out, err = ran(capsys, "show", str(path), "--json")
    assert code == 0
    assert json.loads(out)["links"][0] == ["X", *["NV18"] * 7]
    assert "no links are published: these are of HGX H100 as it is sold" in err


def test_an_annotation_alone_and_the_node_among_other_objects(capsys, tmp_path: Path) -> None:
    path = tmp_path / "object"
    path.write_text('{"v":1,"devices":2,"links":"NV4"}')
    assert ran(capsys, "parse", str(path))[0] == 0
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    both = [pod, node(product="NVIDIA-H100-NVL", count="2")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": both}))
    assert ran(capsys, "parse", str(path))[0] == 0
    path.write_text(yaml.safe_dump_all(both))
    assert ran(capsys, "parse", str(path))[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(nrt("v1alpha2")), "zones: '0 zones' is not allowed: zones with nvidia.com/gpu"),
        (json.dumps(nrt("v1alpha2", 0, 0)), "zones: '2 zones' is not allowed: zones with nvidia"),
        (json.dumps(node()), "topology]: is missing: what `muster agent` writes, or the labels"),
        (json.dumps(node(product="RAGE-128", count="3")), "'RAGE-128 x 3' is not allowed: a node"),
        (json.dumps(node(product="RAGE-128")), "'RAGE-128 x ?' is not allowed"),
        ('{"kind": "Node", "metadata": 3}', "object: 'Node' is not allowed: one as Node is (Exp"),
        ('{"kind": "Node"', "it is not YAML"),
        ("apiVersion: v1\nkind: &a [*a]\n", "does an alias hold itself?"),
        ("apiVersion: v1\nkind: Pod\n", "kind: 'Pod' is not allowed: Node or NodeResourceTopology"),
        ('{"v":1,"devices":2,"links":"NV4*9"}', "links"),
    ],
)
def test_an_object_that_says_nothing(capsys, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "object"
    path.write_text(text)
    code, out, err = ran(capsys, "parse", str(path))
    assert (code, out) == (2, "")
    assert words in err

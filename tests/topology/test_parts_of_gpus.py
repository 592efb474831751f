"""Which devices have room for shares, beside brute force; what nodes register and pods are told."""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest

from extender.core.errors import InvalidObject
from extender.core.topology import registers
from extender.core.topology.kubelet import INIT, Container
from extender.core.topology.kubelet_shares import ALIBABA, HAMI, VOLCANO, Share
from extender.core.topology.parts import (
    Room,
    asked,
    broken,
    contradictions,
    copies,
    empty,
    take,
    taken_as_told,
    worth,
)
from extender.core.topology.registers import Devices, read, read_given

MOST = 1000


def a_room(draw: random.Random) -> Room:
    """A device of 100 or 200 MiB, as pods leave it."""
    pods, total = draw.randrange(4), draw.choice([100, 200])
    memory = draw.randrange(0, total, 10) if pods else total
    milli = draw.randrange(0, 1001, 100) if pods else 1000
    return Room(pods, draw.randrange(1, 5), memory, milli, total, 1000)


def a_share(draw: random.Random, devices: int) -> Share:
    milli = draw.choice([0, 0, 100, 300, 500, 1000])
    if draw.random() < 0.5:
        return Share(devices, milli, draw.randrange(10, 101, 10))
    return Share(devices, milli, 0, draw.randrange(0, 101, 10))


def after(room: Room, share: Share) -> Room | None:
    """HAMi's rules, one by one, for one device and one pod."""
    memory = share.memory or room.all_memory * share.memory_percent // 100
    if room.slots < 1 or room.memory < memory or room.milli < share.milli:
        return None
    if share.milli == 1000 and room.pods > 0:
        return None
    if share.milli == 0 and room.milli == 0:
        return None
    left = room.memory - memory, room.milli - share.milli
    return Room(room.pods + 1, room.slots - 1, *left, room.all_memory, 1000)


def ways(rooms: tuple[Room, ...], share: Share) -> set[tuple[Room, ...]]:
    """All that may be left once the share has its devices, whichever they are."""
    found = set()
    for those in itertools.combinations(range(len(rooms)), share.devices):
        left = list(rooms)
        for at in those:
            one = after(rooms[at], share)
            if one is None:
                break
            left[at] = one
        else:
            found.add(tuple(sorted(left)))
    return found


def pod_ways(rooms: tuple[Room, ...], pod: tuple[Share, ...]) -> set[tuple[Room, ...]]:
    found = {tuple(sorted(rooms))}
    for share in pod:
        found = {left for each in found for left in ways(each, share)}
    return found


def most(rooms: tuple[Room, ...], pod: tuple[Share, ...]) -> int:
    """As many pods as any choice of devices has room for."""

    @cache
    def of(rooms: tuple[Room, ...]) -> int:
        return max((1 + of(left) for left in pod_ways(rooms, pod)), default=0)

    return of(tuple(sorted(rooms)))


def test_as_many_pods_as_any_choice_has_room_for() -> None:
    for seed in range(1500):
        draw = random.Random(seed)
        rooms = tuple(a_room(draw) for _ in range(draw.randrange(1, 5)))
        share = a_share(draw, draw.choice([1, 1, 2, 2, 3]))
        expected = most(rooms, (share,))
        assert copies(rooms, [share], MOST) == expected
        # One after the other, as pods come: none takes what another could have had.
        left = list(rooms)
        for _ in range(expected):
            found = take(left, [share])
            assert found is not None
            assert tuple(sorted(found)) in ways(tuple(left), share)
            left = found
        assert take(left, [share]) is None


def test_of_pods_with_several_shares_never_more_than_have_room() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        rooms = tuple(a_room(draw) for _ in range(draw.randrange(1, 4)))
        pod = tuple(a_share(draw, 1) for _ in range(2))
        assert copies(rooms, pod, MOST) <= most(rooms, pod)


def test_a_whole_device_is_broken_only_where_no_started_one_has_room() -> None:
    for seed in range(500):
        draw = random.Random(seed)
        rooms = tuple(a_room(draw) for _ in range(4))
        share = a_share(draw, 1)
        left = take(rooms, [share])
        least = min((broken(rooms, each) for each in ways(rooms, share)), default=None)
        assert (None if left is None else broken(rooms, left)) == least


def test_what_a_pod_takes_of_anothers_room_is_no_more_than_is_said() -> None:
    for seed in range(1500):
        draw = random.Random(seed)
        rooms = tuple(a_room(draw) for _ in range(3))
        taker, pod = a_share(draw, draw.choice([1, 2])), a_share(draw, draw.choice([1, 2]))
        lost = worth([Container(share=taker)], [Container(share=pod)], MOST)
        for left in ways(rooms, taker):
            assert copies(rooms, [pod], MOST) - copies(left, [pod], MOST) <= lost


def test_whole_devices_are_counted_beside_shares() -> None:
    share = Share(1, 300, 3000)
    pod = [
        Container(INIT, (("nvidia.com/gpu", 1),)),
        Container(devices=(("nvidia.com/gpu", 2),)),
        Container(devices=(("nvidia.com/gpu", 1),), share=share),
    ]
    assert asked(pod, HAMI) == [Share(2, 0), share]
    assert asked(pod, VOLCANO) == []


TEXT = "GPU-0,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-1,10,32768,100,NVIDIA-Tesla V100,0,false:"
JSON = (
    '[{"id":"GPU-0","count":10,"devmem":32768,"devcore":100,"type":"V100","health":true},'
    '{"id":"GPU-1","index":1,"count":10,"devmem":32768,"devcore":100,"mode":"hami-core"}]'
)
V100S = Devices(HAMI, ("GPU-0", "GPU-1"), (10, 0), (32768, 32768), (1000, 1000))


@pytest.mark.parametrize(
    ("annotations", "allocatable", "expected"),
    [
        ({}, {"nvidia.com/gpu": "8"}, None),
        ({"hami.io/node-nvidia-register": TEXT}, {}, V100S),
        ({"hami.io/node-nvidia-register": JSON}, {}, V100S),
        (
            {"volcano.sh/node-vgpu-register": "GPU-0,10,24576,NVIDIA-A10,true,hami-core:"},
            {},
            Devices(VOLCANO, ("GPU-0",), (10,), (24576,), (1000,)),
        ),
        (
            {},
            {"alibabacloud.com/gpu-count": "2"},
            Devices(ALIBABA, ("0", "1"), (1000, 1000), (0, 0), (1000, 1000)),
        ),
    ],
)
def test_what_nodes_register(annotations, allocatable, expected) -> None:
    assert read(annotations, allocatable) == (expected, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 is not allowed: 1 to"),
        ("GPU-0,10,32768", "a device of HAMi (3 fields)"),
        ("GPU-0,ten,32768,100,V100,0,true", "a device of HAMi (invalid literal"),
        ("GPU-0,-1,32768,100,V100,0,true", "numbers of 0 to"),
        ("[{}]", "a list of devices (Object missing required field `id`"),
        ("a,1,1,1,V,0,true:a,1,1,1,V,0,true", "devices of different ids"),
    ],
)
def test_a_register_that_cannot_be_read(text: str, words: str) -> None:
    found, wrong = read({"hami.io/node-nvidia-register": text}, {})
    assert found is None
    assert [type(each) for each in wrong] == [InvalidObject]
    assert str(wrong[0]).startswith("metadata.annotations[hami.io/node-nvidia-register]")
    assert words in str(wrong[0])


ALLOCATED, IDS, INDEX = registers.GIVEN[HAMI], registers.GIVEN[VOLCANO], registers.GIVEN[ALIBABA]
TWO = "GPU-0,NVIDIA,3000,30:GPU-1,NVIDIA,3000,30:"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, []),
        ({ALLOCATED: f"{TWO};"}, [(HAMI, ((("GPU-0", 3000), ("GPU-1", 3000)),))]),
        (
            {ALLOCATED: ";GPU-0,NVIDIA,3000,30:;GPU-1,NVIDIA,7,0:;"},
            [(HAMI, ((("GPU-0", 3000),), (("GPU-1", 7),)))],
        ),
        ({IDS: "GPU-0,NVIDIA,8000,0:"}, [(VOLCANO, ((("GPU-0", 8000),),))]),
        ({INDEX: "0-3"}, [(ALIBABA, ((("0", 0), ("3", 0)),))]),
        ({ALLOCATED: ";", IDS: ""}, []),
        # What cannot be read names no device.
        ({ALLOCATED: "GPU-0,NVIDIA,much,30:"}, [(HAMI, ())]),
        ({ALLOCATED: f"{TWO}GPU-2:;"}, [(HAMI, ())]),
        ({ALLOCATED: "GPU-0,NVIDIA," + "9" * 5000 + ",30:"}, [(HAMI, ())]),
        ({ALLOCATED: "GPU-0,NVIDIA,1,30:" * 10_000}, [(HAMI, ())]),
        ({INDEX: "0-\u0663"}, [(ALIBABA, ())]),
        ({"hami.io/nobody-devices-allocated": f"{TWO};"}, []),
    ],
)
def test_what_pods_are_told_to_have(annotations, expected) -> None:
    told = read_given(annotations)
    assert [(each.convention, each.devices) for each in told] == expected
    assert all(len(each.text) <= 100 for each in told)


#: Two devices of 32 GB that work.
PAIR = Devices(HAMI, ("GPU-0", "GPU-1"), (10, 10), (32768, 32768), (1000, 1000))
EMPTY = tuple(empty(PAIR))


@pytest.mark.parametrize(
    ("text", "pod", "taken"),
    [
        ("GPU-1,NVIDIA,3000,30:;", [Share(1, 300, 3000)], [(0, 0), (3000, 300)]),
        (f"{TWO};", [Share(2, 300, 3000)], [(3000, 300), (3000, 300)]),
        # How much is what the pod asks for, whatever it is told.
        ("GPU-1,NVIDIA,1,99:;", [Share(1, 300, 3000)], [(0, 0), (3000, 300)]),
        ("GPU-1,NVIDIA,32768,0:;", [Share(1, 300, 0, 25)], [(0, 0), (8192, 300)]),
        # Of one that asks for no amount the default of its scheduler counts.
        ("GPU-1,NVIDIA,4000,0:;", [Share(1, 0)], [(0, 0), (4000, 0)]),
        ("GPU-1,NVIDIA,90000,0:;", [Share(1, 0)], [(0, 0), (32768, 0)]),
        ("GPU-1,NVIDIA,1,0:;GPU-1,NVIDIA,1,0:;", [Share(1, 100, 10)] * 2, [(0, 0), (20, 200)]),
    ],
)
def test_devices_that_a_pod_is_told_to_have_are_those(text, pod, taken) -> None:
    left = taken_as_told(EMPTY, PAIR, read_given({ALLOCATED: text}), _pod(*pod))
    assert left is not None
    found = [(a.memory - b.memory, a.milli - b.milli) for a, b in zip(EMPTY, left, strict=True)]
    assert found == taken


@pytest.mark.parametrize(
    ("key", "text", "pod", "allowed"),
    [
        (ALLOCATED, f"{TWO};", [Share(1, 300, 3000)], "1 different devices of HAMi"),
        (ALLOCATED, "GPU-0,NVIDIA,1,1:;", [Share(2, 300, 3000)], "2 different devices of HAMi"),
        (ALLOCATED, "GPU-0,N,1,1:GPU-0,N,1,1:;", [Share(2, 0, 1)], "2 different devices of HAMi"),
        (ALLOCATED, "GPU-0,N,1,1:GPU-0,N,1,1:;", [Share(1, 0, 1)], "1 different devices of HAMi"),
        (INDEX, "1-1-1", [Share(1, 300, convention=ALIBABA)], "1 different devices of Alibaba"),
        (ALLOCATED, f"{TWO};", [Share(1, 0, 1)] * 2, "1 + 1 different devices of HAMi"),
        (
            ALLOCATED,
            "GPU-0,NVIDIA,3001,30:;",
            [Share(1, 300, 3000)],
            "no more MiB of a device than",
        ),
        (ALLOCATED, "GPU-0:;", [Share(1, 300, 3000)], "1 different devices of HAMi"),
        (
            ALLOCATED,
            "GPU-9,NVIDIA,3,30:;",
            [Share(1, 300, 3000)],
            "devices that its node registers",
        ),
        (
            ALLOCATED,
            "GPU-0,NVIDIA,3,30:;",
            [None],
            "nothing, as the pod asks for no device of HAMi",
        ),
        (
            IDS,
            "GPU-0,NVIDIA,3,30:",
            [Share(1, 300, 3000)],
            "nothing, as the pod asks for no device of",
        ),
        (INDEX, "0-1", [Share(1, 300, 3000)], "nothing, as the pod asks for no device of Alibaba"),
        (INDEX, "0-1", [Share(1, 300, convention=ALIBABA)], "1 different devices of Alibaba"),
    ],
)
def test_what_contradicts_the_pods_own_request_is_said_and_not_believed(
    key, text, pod, allowed
) -> None:
    told, made = read_given({key: text}), _pod(*pod)
    assert taken_as_told(EMPTY, PAIR, told, made) is None
    (error,) = contradictions(told, made, PAIR)
    assert error.field == f"metadata.annotations[{key}]"
    assert error.allowed.startswith(allowed)


def test_devices_that_have_no_room_are_not_those() -> None:
    told, pod = read_given({ALLOCATED: "GPU-1,NVIDIA,3000,60:;"}), _pod(Share(1, 600, 3000))
    once = taken_as_told(EMPTY, PAIR, told, pod)
    assert once is not None
    assert taken_as_told(once, PAIR, told, pod) is None
    assert contradictions(told, pod, PAIR) == []


def test_devices_of_init_containers_are_told_too() -> None:
    """HAMi 2.7 writes them, earlier ones did not; the kubelet has taken them back."""
    init = Container(INIT, (("nvidia.com/gpu", 1),))
    pod = [init, *_pod(Share(1, 300, 3000))]
    for text in ("GPU-0,NVIDIA,3000,30:;GPU-1,NVIDIA,3000,30:;", ";GPU-1,NVIDIA,3000,30:;"):
        left = taken_as_told(EMPTY, PAIR, read_given({ALLOCATED: text}), pod)
        assert left is not None
        assert [each.pods for each in left] == [0, 1]


def _pod(*shares: Share | None) -> list[Container]:
    return [Container(share=each) for each in shares]


def test_pods_of_several_shares_are_not_counted_for_ever() -> None:
    rooms = [Room(0, 1_000_000, 0, 1000, 0, 1000)] * 4
    assert copies(rooms, [Share(2, 0)] * 2, 1024) == 128
    assert copies(rooms, [Share(2, 0)] * 1000, 1024) == 1

from __future__ import annotations

import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core import api
from extender.core.errors import ApiError
from extender.sim import intake
from extender.sim.selectors import Selector
from extender.sim.store import Store
from tests.sim.behaviour import pod

NAMES = "abcd"
OPERATION = st.tuples(
    st.sampled_from(["create", "label", "bind", "delete"]), st.sampled_from(NAMES)
)


def fresh(history: int = 20_000) -> Store:
    numbers = itertools.count(1)
    return Store(lambda: 0.0, lambda: f"uid-{next(numbers)}", history=history)


def carry_out(store: Store, operation: str, name: str, number: int) -> None:
    try:
        if operation == "create":
            store.create(api.PODS, "default", pod(name))
        elif operation == "label":
            labels = {"n": str(number % 3)}
            store.replace(
                api.PODS,
                "default",
                name,
                lambda old: {**old, "metadata": {**old["metadata"], "labels": labels}},
            )
        elif operation == "bind":
            store.bind("default", name, "n1")
        else:
            store.delete(api.PODS, "default", name, grace=0)
    except ApiError as error:
        if error.code not in (404, 409):
            raise


def names(objects):
    return {obj["metadata"]["name"]: obj for obj in objects}


@given(operations=st.lists(OPERATION, max_size=30), selector=st.sampled_from(["", "n=1"]))
def test_a_watch_from_any_version_rebuilds_the_list_and_paging_sees_the_past(operations, selector):
    from extender.sim.selectors import parse

    chosen = parse(selector, "", ())
    store = fresh()
    moments = [(store.version, store.list(api.PODS, None, chosen))]
    for number, (operation, name) in enumerate(operations):
        carry_out(store, operation, name, number)
        moments.append((store.version, store.list(api.PODS, None, chosen)))
    for version, listed in moments:
        assert store.list(api.PODS, None, chosen, at=version) == listed
        number, watch = store.watch(api.PODS, None, chosen, version, wake=lambda: None)
        store.unwatch(number)
        state = names(listed)
        for line in watch.take():
            event = orjson.loads(line)
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                del state[name]
            else:
                assert (event["type"] == "ADDED") == (name not in state)
                state[name] = event["object"]
        assert state == names(moments[-1][1])


@given(operations=st.lists(OPERATION, max_size=20))
def test_equal_calls_give_equal_objects(operations):
    stores = fresh(), fresh()
    for store in stores:
        for number, (operation, name) in enumerate(operations):
            carry_out(store, operation, name, number)
    assert stores[0].list(api.PODS) == stores[1].list(api.PODS)
    assert stores[0].version == stores[1].version


def test_what_the_caller_does_to_its_body_later_changes_nothing(store):
    body = pod("a", metadata={"labels": {"x": "1"}})
    store.create(api.PODS, "default", body)
    body["metadata"]["labels"]["x"] = "2"
    body["spec"]["containers"].clear()
    made = store.get(api.PODS, "default", "a")
    assert made["metadata"]["labels"] == {"x": "1"}
    assert len(made["spec"]["containers"]) == 1


def owned(name, *owners):
    references = [
        {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]
    return pod(name, metadata={"ownerReferences": references})


def test_dependents_go_with_their_last_owner(store):
    first = store.create(api.PODS, "default", pod("first"))
    second = store.create(api.PODS, "default", pod("second"))
    child = store.create(api.PODS, "default", owned("child", first, second))
    store.create(api.PODS, "default", owned("grandchild", child))
    store.delete(api.PODS, "default", "first")
    assert set(names(store.list(api.PODS))) == {"second", "child", "grandchild"}
    store.delete(api.PODS, "default", "second")
    assert store.list(api.PODS) == []


def test_an_object_whose_owner_is_gone_already_does_not_stay(store):
    owner = store.create(api.PODS, "default", pod("owner"))
    store.delete(api.PODS, "default", "owner")
    store.create(api.PODS, "default", owned("late", owner))
    assert store.list(api.PODS) == []


def test_orphans_stay_without_their_owner(store):
    owner = store.create(api.PODS, "default", pod("owner"))
    store.create(api.PODS, "default", owned("child", owner))
    store.delete(api.PODS, "default", "owner", orphan=True)
    assert store.get(api.PODS, "default", "child")["metadata"]["ownerReferences"] == []


def test_a_deleted_namespace_is_emptied_and_gone(store):
    store.create(api.NAMESPACES, "", {"metadata": {"name": "team"}})
    store.create(api.PODS, "team", pod("a"))
    store.bind("team", "a", "n1")
    store.delete(api.NAMESPACES, "", "team")
    assert store.list(api.PODS) == []
    with pytest.raises(ApiError, match='namespaces "team" not found'):
        store.create(api.PODS, "team", pod("b"))


def test_admission_may_change_and_refuse(store):
    def admit(resource, obj):
        if resource != api.PODS:
            return
        if obj["metadata"]["name"] == "bad":
            raise ApiError(403, "Forbidden", "exceeded quota")
        obj["spec"]["overhead"] = {"cpu": "1"}

    store.admission.append(admit)
    made = store.create(api.PODS, "default", pod("good"), dry_run=True)
    assert made["spec"]["overhead"] == {"cpu": "1"}
    with pytest.raises(ApiError, match="exceeded quota"):
        store.create(api.PODS, "default", pod("bad"))
    assert store.list(api.PODS) == []


def test_a_global_default_priority_class_counts(store):
    for name, value in (("high", 100), ("low", 10)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": True}
        store.create(api.PRIORITY_CLASSES, "", body)
    made = store.create(api.PODS, "default", pod("a"))
    assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (10, "low")


def test_generated_names_differ_and_are_valid(store):
    made = {
        store.create(api.PODS, "default", {**pod(""), "metadata": {"generateName": "a-"}})[
            "metadata"
        ]["name"]
        for _ in range(20)
    }
    assert len(made) == 20
    assert all(name.startswith("a-") and len(name) == 7 for name in made)


def test_watches_of_other_namespaces_hear_nothing(store):
    store.create(api.NAMESPACES, "", {"metadata": {"name": "team"}})
    _, watch = store.watch(api.PODS, "team", Selector(), None, wake=lambda: None)
    store.create(api.PODS, "default", pod("a"))
    assert watch.take() == []


@pytest.mark.parametrize(
    ("later", "asked", "ends", "left"),
    [(6, 20, 20, 20), (6, 5, 6, 1), (6, 30, 30, 30), (6, 45, 30, 30), (6, None, 30, 30)],
)
def test_a_deletion_that_is_repeated_counts_from_the_first(later, asked, ends, left):
    """Observed on kube-apiserver 1.37.2."""
    clock = [0.0]
    store = Store(lambda: clock[0], lambda: "uid-1", history=9)
    store.create(api.PODS, "default", pod("a"))
    store.bind("default", "a", "n1")
    store.delete(api.PODS, "default", "a")
    clock[0] = later
    meta = store.delete(api.PODS, "default", "a", grace=asked)["metadata"]
    assert meta["deletionTimestamp"] == intake.timestamp(ends)
    assert meta["deletionGracePeriodSeconds"] == left

"""JSON of any depth: what is cut off, and what is left as it was."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.nesting import cut_off, nested

VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.text('[]{}"\\a', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[}"a'), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


def cut(value: Any, most: int) -> Any:
    """The same, by recursion."""
    if not isinstance(value, (dict, list)):
        return value
    if most == 0:
        return None
    if isinstance(value, dict):
        return {key: cut(each, most - 1) for key, each in value.items()}
    return [cut(each, most - 1) for each in value]


@given(VALUES, st.integers(0, 4))
def test_what_is_deeper_is_null(value, most):
    assert orjson.loads(cut_off(orjson.dumps(value), most)) == cut(value, most)
    assert nested(value, most) == (cut(value, most) != value)


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"a":[[', b'"\\', b"]]]]", b'[["a]]"'])
def test_what_is_no_json_stays_none(body):
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(cut_off(body, 1))

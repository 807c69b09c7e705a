"""Ordered maps in state against dicts: small and large ones, and from one to the other."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.compiler.plan.types import BOOLEAN, DOUBLE, INT, STRING, array, decimal, struct
from flowql.runtime.operators.changes.buckets import Buckets
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import freeze
from tests.incremental.check import inline_max
from tests.runtime.operators.test_real_state import Managed

KEY = (Field("k", DOUBLE, "key"),)
SPECS = (
    StoreSpec("heads", "table", Schema(KEY), Schema(())),
    StoreSpec("rows", "table", Schema((*KEY, Field("e", STRING, "key"))), Schema(())),
)
# (bucket, entry, payload; None removes), in runs: few entries, so that what was put is removed again.
OPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([0.5, 0.5, 0.5, None, float("nan")]),
            st.sampled_from(["", "\0", "a", "a\0", "ÿ"]),
            st.sampled_from([None, None, 1, 2]),
        ),
        min_size=1,
        max_size=8,
    ),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(runs=OPS, most=st.sampled_from([1, 2, 5]), reopen=st.booleans())
def test_buckets_hold_what_dicts_hold(runs, most, reopen):
    state: Any = Managed(SPECS, reopen=reopen)
    model: dict[str, dict[str, tuple[int]]] = {}
    with inline_max(most):
        for ops in runs:
            buckets = Buckets(state.store("heads"), state.store("rows"))
            keys = [(freeze(k, DOUBLE),) for k, _, _ in ops]
            buckets.load(keys)
            buckets.expect({key: [e] for key, (_, e, _) in zip(keys, ops, strict=True)})
            for key, (_, entry, payload) in zip(keys, ops, strict=True):
                expected = model.setdefault(str(key), {})
                assert buckets[key].get(entry) == expected.get(entry)
                buckets[key].put(entry, None if payload is None else (payload,))
                expected.pop(entry, None)
                if payload is not None:
                    expected[entry] = (payload,)
                assert buckets[key].size == len(expected)
                _same(buckets[key], expected, after=entry)
            buckets.flush()
            state.publish({})
    heads = dict(state.store("heads").scan())
    assert len(heads) == sum(map(bool, model.values())), "an empty bucket leaves nothing"
    sizes = sorted(len(m) for m in model.values() if m)
    assert sorted(h[0] for h in heads.values()) == sizes
    assert len(list(state.store("rows").scan())) == sum(h[0] for h in heads.values() if len(h) == 1)
    assert all(h[0] <= most for h in heads.values() if len(h) > 1)


@settings(max_examples=40, deadline=None)
@given(runs=OPS, most=st.sampled_from([1, 2, 5]))
def test_many_entries_at_once_are_as_one_after_the_other(runs, most):
    states: list[Any] = [Managed(SPECS, reopen=False) for _ in range(2)]
    with inline_max(most):
        for ops in runs:
            edits: dict[Any, list[tuple[str, Any]]] = {}
            for k, entry, payload in ops:
                edits.setdefault((freeze(k, DOUBLE),), []).append((entry, None if payload is None else (payload,)))
            for many, state in enumerate(states):
                buckets = Buckets(state.store("heads"), state.store("rows"))
                buckets.load(edits)
                for key, of_key in edits.items():
                    if many:
                        buckets[key].put_many(of_key)
                    else:
                        for entry, payload in of_key:
                            buckets[key].put(entry, payload)
                buckets.flush()
                state.publish({})
            one, other = ([list(s.store(n).scan()) for n in ("heads", "rows")] for s in states)
            assert repr(one) == repr(other)


def test_a_large_bucket_that_becomes_small_moves_back_and_leaves_no_rows():
    state: Any = Managed(SPECS, reopen=True)
    key = (1.5,)
    with inline_max(4):
        for entries, payload, rows, head in (
            ("abcdef", (1,), 6, 1),
            ("abc", None, 3, 1),
            ("d", None, 0, 5),
            ("ef", None, 0, 0),
        ):
            buckets = Buckets(state.store("heads"), state.store("rows"))
            buckets.load([key])
            for entry in entries:
                buckets[key].put(entry, payload)
            buckets.flush()
            state.publish({})
            assert len(list(state.store("rows").scan())) == rows
            assert len(state.store("heads").get(key) or ()) == head


def _same(bucket: Any, expected: dict, after: str) -> None:
    rows = sorted(expected.items())
    assert list(bucket.entries()) == rows
    assert list(bucket.entries(after=after)) == [r for r in rows if r[0] > after]
    assert bucket.first() == (rows[0] if rows else None)


VALUES = {
    INT: st.integers(-3, 3),
    DOUBLE: st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("inf"), float("-inf"), float("nan")]),
    STRING: st.text("a\0ÿ☃", max_size=3),
    BOOLEAN: st.booleans(),
    decimal(5, 2): st.decimals(-9, 9, places=2),
}
PARTS = st.lists(
    st.builds(SortPart, st.sampled_from(list(VALUES)), st.booleans(), st.booleans()), min_size=1, max_size=3
)


@settings(max_examples=150, deadline=None)
@given(parts=PARTS, data=st.data())
def test_texts_are_ordered_as_the_values_are(parts, data):
    text = order_text(parts)
    a, b = (tuple(data.draw(st.none() | VALUES[p.type]) for p in parts) for _ in range(2))
    expected = 0
    for p, x, y in zip(parts, a, b, strict=True):
        expected = expected or _compare(p, x, y)
    assert (text(a) > text(b)) - (text(a) < text(b)) == expected
    assert sorted([a, b], key=text) == sorted(
        [a, b], key=cmp_to_key(lambda v, w: -1 if text(v) < text(w) else text(v) > text(w))
    )


@pytest.mark.parametrize("descending", [False, True])
def test_null_is_the_largest_element_of_an_array_and_the_largest_field(descending):
    arrays = [[], [1], [1, 2], [1, 2, 0], [1, None], [1, None, 3], [2], [None]]
    rows = [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 2, "b": "a"}, {"a": None, "b": "a"}]
    for values, t in (
        (arrays, array(INT)),
        (rows, struct(("a", INT), ("b", STRING))),
        ([[v] for v in arrays], array(array(INT))),
    ):
        text = order_text([SortPart(t, descending=descending)])
        assert sorted(reversed(values), key=lambda v: text([v]), reverse=descending) == values


def _compare(part: SortPart, x: Any, y: Any) -> int:
    if x is None or y is None:
        sign = (x is None) - (y is None)
        return -sign if part.nulls_first else sign
    key = (lambda v: (v != v, 0.0 if v != v else v)) if part.type is DOUBLE else (lambda v: v)
    sign = (key(x) > key(y)) - (key(x) < key(y))
    return -sign if part.descending else sign

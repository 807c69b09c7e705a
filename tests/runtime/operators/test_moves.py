"""Operators that move rows: Rekey, Union, Explode, Materialise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Explode, Materialise, NamedExpr, Rekey, Union
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator, StoreSpec
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, array
from flowql.runtime.batch import Batch
from tests.runtime.operators.world import STRING, Task, batch, column, schema, source

S = schema("id", "n:STRING x")
REKEYED = schema("n:STRING", "id x")


def rekey(
    expr: Expr | None = None, *, drop: bool = True, change: Any = "append", out: Schema = REKEYED, vector: Any = None
):
    keys = (NamedExpr(out.names[0], expr or column(S, "n")),)
    return Task(Operator("rekey", Rekey(keys, drop), ("source",), out, change), [source(S, change)], vector=vector)


def arrow(b: Batch) -> Batch:
    return Batch(b.schema, arrow=b.arrow(), rowtime=b.rowtime, op=b.op, seq=b.seq)


@pytest.mark.parametrize("vector", [True, False])
def test_rekey_puts_the_key_first_and_drops_rows_without_one(vector):
    b = batch(S, ((1, "a", 2), 0), ((2, None, 3), 1), ("-", (3, None, None), 2), ((4, "b", None), 3))
    task = rekey(vector=vector)
    assert task.run(arrow(b) if vector else b) == [("+", ("a", 1, 2), 0), ("+", ("b", 4, None), 3)]


def test_partition_by_keeps_null_keys_and_computes_keys_of_null_values_from_key_columns_only():
    b = batch(S, ((1, "a", 2), 0), ((2, None, 3), 1), ("-", (3, None, None), 2))
    assert rekey(drop=False).run(b) == [("+", ("a", 1, 2), 0), ("+", (None, 2, 3), 1), ("-", (None, 3, None), 2)]
    out = schema("k", "id n:STRING x")
    two = Call(BIGINT, "add", (column(S, "id"), column(S, "id")))
    assert [r[0] for _, r, _ in rekey(two, drop=False, out=out).run(b)] == [2, 4, 6]
    flag = Schema((Field("k", BOOLEAN, "key"), *out.fields[1:]))
    is_null = Call(BOOLEAN, "is null", (column(S, "n"),))
    assert [r[0] for _, r, _ in rekey(_known(is_null), drop=False, out=flag).run(b)] == [False, True, None]


def _known(call: Call) -> Call:
    """The catalogue's name of IS NULL."""
    from flowql.compiler.functions.registry import lookup

    name = next(n for n in (call.name, "is_null", "isnull", "IS NULL") if lookup(n) is not None)
    return Call(call.type, name, call.args)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("++++-"), st.none() | st.integers(-3, 3), st.none() | st.integers(0, 3)), max_size=12
    )
)
def test_computed_keys_are_the_same_in_rows_and_in_columns(rows):
    """A key that fails (a division by zero) is null in both, with a dead letter, and its row is dropped."""
    out = schema("k", "id n:STRING x")
    key = Call(BIGINT, "div", (Literal(BIGINT, 12), column(S, "x")))
    given = [
        (sign, (i, None if n is None else str(n), x if sign == "+" else None), i) for i, (sign, n, x) in enumerate(rows)
    ]
    found = []
    for vector in (False, True):
        task = rekey(key, out=out, vector=vector)
        found.append(
            (
                task.run(batch(S, *given, seqs=[2 * i for i in range(len(given))])),
                sorted((d.seq, d.code, d.message) for d in task.dead),
            )
        )
    assert found[0] == found[1]
    assert len(found[0][0]) == sum(sign == "+" and bool(x) for sign, _, x in rows)


def test_an_update_whose_key_changed_is_taken_apart():
    task = rekey(change="retract")
    got = task.run(
        batch(
            S,
            ("<", (1, "a", 2), 5),
            (">", (1, "a", 3), 5),
            ("<", (1, "a", 3), 6),
            (">", (1, "b", 3), 6),
            ("<", (1, "b", 3), 7),
            (">", (1, None, 3), 7),
            ("<", (1, None, 3), 8),
            (">", (1, "c", 3), 8),
            ("-", (1, "c", 3), 9),
        )
    )
    assert got == [
        ("<", ("a", 1, 2), 5), (">", ("a", 1, 3), 5),
        ("-", ("a", 1, 3), 6), ("+", ("b", 1, 3), 6),
        ("-", ("b", 1, 3), 7),
        ("+", ("c", 1, 3), 8),
        ("-", ("c", 1, 3), 9),
    ]  # fmt: skip


def test_union_merges_by_seq_and_keeps_the_order_of_inputs_at_equal_seq():
    task = Task(Operator("u", Union(), ("a", "b"), S, "append"), [source(S), source(S)])
    a = batch(S, ((1, "a", 0), 0), ((2, "a", 0), 1), seqs=[0, 3])
    b = batch(S, ((3, "b", 0), 2), ((4, "b", 0), 3), seqs=[1, 3])
    assert [r[0] for _, r, _ in task.run(a, b)] == [1, 3, 2, 4]
    assert task.run(None, None) == []


def test_explode_zips_lists_pads_the_shorter_and_drops_rows_without_elements():
    s = Schema((Field("id", BIGINT, "key"), Field("xs", array(INT)), Field("ys", array(STRING))))
    functions = tuple(
        NamedExpr(f"__explode_{i}", Call(t, "EXPLODE", (Column(array(t), n),)))
        for i, (n, t) in enumerate([("xs", INT), ("ys", STRING)])
    )
    out = Schema((s.fields[0], Field("__explode_0", INT), Field("__explode_1", STRING)))
    task = Task(Operator("e", Explode(functions), ("source",), out, "append"), [source(s)])
    rows = [((1, [1, 2], ["a"]), 5), ((2, [], None), 6), ("-", (3, None, None), 7), ((4, None, ["b"]), 8)]
    assert task.run(batch(s, *rows)) == [("+", (1, 1, "a"), 5), ("+", (1, 2, None), 5), ("+", (4, None, "b"), 8)]


def materialise(change: Any = "retract", coalesce: bool = False) -> Task:
    store = StoreSpec("m", "table", Schema(S.key), Schema(S.value))
    plan = Operator("m", Materialise(), ("source",), S, change, (store,))
    return Task(plan, [source(S, "upsert")], coalesce=coalesce)


def test_materialise_makes_old_values_known():
    task = materialise()
    first = batch(S, ((1, "a", 1), 0), ("-", (9, None, None), 1), ((None, "n", 1), 2), ((1, "b", 2), 3))
    assert task.run(first) == [("+", (1, "a", 1), 0), ("<", (1, "a", 1), 3), (">", (1, "b", 2), 3)]
    assert task.run(batch(S, ("-", (1, None, None), 4), ("-", (1, None, None), 5))) == [("-", (1, "b", 2), 4)]
    assert task.table() == {}


def test_materialise_coalesces_to_first_before_and_last_after():
    task = materialise(coalesce=True)
    task.run(batch(S, ((1, "a", 1), 0), ((2, "x", 1), 0)))
    got = task.run(
        batch(
            S,
            ((1, "b", 1), 1),
            ("-", (2, None, None), 2),
            ((1, "c", 1), 3),
            ((2, "x", 1), 4),
            ((3, "y", 1), 5),
            ("-", (3, None, None), 6),
        )
    )
    assert got == [("<", (1, "a", 1), 3), (">", (1, "c", 1), 3)]


def test_keys_of_nested_types_are_frozen_in_stores_and_given_back():
    s = Schema((Field("k", array(INT), "key"), Field("x", BIGINT)))
    store = StoreSpec("m", "table", Schema(s.key), Schema(s.value))
    task = Task(Operator("m", Materialise(), ("source",), s, "retract", (store,)), [source(s, "upsert")])
    task.run(batch(s, (([1, None], 5), 0)))
    assert list(task.table()) == [((1, None),)]
    assert task.run(batch(s, ("-", ([1, None], None), 1))) == [("-", ([1, None], 5), 1)]


@pytest.mark.parametrize("change", ["append", "retract"])
def test_lists_of_constants_are_the_same_in_rows_and_in_columns(change):
    """The windows of HOP: every row once for each element, the old and the new row of a pair apart from each other."""
    out = schema("id", "n:STRING x e f")
    lists = [
        Call(array(BIGINT), "array", tuple(Literal(BIGINT, v) for v in values)) for values in ([0, 5, 7], [None, 1])
    ]
    functions = tuple(NamedExpr(n, Call(BIGINT, "EXPLODE", (e,))) for n, e in zip("ef", lists, strict=True))
    given = [((1, "a", 2), 0), ((2, None, None), 1)]
    given += [("-", (3, "c", None), 2)] if change == "append" else [("<", (1, "a", 2), 2), (">", (1, "b", 2), 2)]
    plan = Operator("explode", Explode(functions), ("source",), out, change)
    found = [Task(plan, [source(S, change)], vector=v).run(arrow(batch(S, *given))) for v in (True, False)]
    assert found[0] == found[1]
    assert found[0][:3] == [("+", (1, "a", 2, 0, None), 0), ("+", (1, "a", 2, 5, 1), 0), ("+", (1, "a", 2, 7, None), 0)]
    assert len(found[0]) == (6 if change == "append" else 12)

"""Operators over changes: a sample of the generated views, what they touch of state, and what they refuse."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, GroupCall, SetOperation, SortKey, TopN
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.explain import tree_text
from flowql.compiler.plan.expr import Call, Column
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, STRING, decimal
from flowql.compiler.plan.verify import PlanInvariantError
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from flowql.runtime.operators.changes.deltas import Deltas, same
from flowql.runtime.operators.fold import AGGREGATE_FAILED, AggregateUnsupported
from tests.incremental.check import run
from tests.incremental.deployed import Deployed, sunk
from tests.incremental.queries import Maker, joined, renamed
from tests.incremental.shapes import SHAPES
from tests.incremental.tables import Table

pytestmark = pytest.mark.turns("long")


@pytest.mark.turns("cases")
@pytest.mark.parametrize("shape", SHAPES)
def test_views_are_what_duckdb_computes_from_the_tables(shape):
    for seed in range(10_000, 10_004):
        run(SHAPES[shape], seed, rounds=3)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi", "anti"])
def test_every_join_with_both_kernels(kind, partitions):
    for seed, vector in ((1, True), (2, False)):
        run(
            lambda m: joined(m, m.table(0), m.table(1), kind=kind), seed, rounds=3, partitions=partitions, vector=vector
        )


def aggregate(table: Table, *calls: GroupCall, keys: tuple[str, ...] = ()) -> Node:
    types = table.columns
    fields = [Field(f"__{k}", types[k], "key") for k in keys]
    schema = Schema((*fields, *(Field(c.name, c.type) for c in calls)))
    return Node(GroupAggregate(keys, calls), (table.node(),), schema, "retract")


def extremes(table: Table) -> Node:
    return aggregate(
        table,
        GroupCall("lo", "MIN", ("t_n",), BIGINT),
        GroupCall("hi", "MAX", ("t_s",), STRING),
        GroupCall("at", "FIRST_VALUE", ("t_id",), BIGINT, order=(SortKey("t_n", descending=True),)),
    )


def distinct(table: Table) -> Node:
    return aggregate(table, GroupCall("n", "COUNT", ("t_n",), BIGINT, distinct=True))


def median(table: Table) -> Node:
    return aggregate(table, GroupCall("m", "PERCENTILE_DISC", ("t_n",), BIGINT, init=(0.5,)))


def top(table: Table) -> Node:
    spec = TopN((), (SortKey("t_n"),), 3, rank="r")
    return Node(spec, (table.node(),), Schema((*table.node().schema, Field("r", BIGINT))), "retract")


def rows_apart(table: Table) -> Node:
    columns = [f for f in table.node().schema if f.role != "key"]
    schema = Schema((*(Field(f"__{f.name}", f.type, "key") for f in columns), *columns))
    return Node(SetOperation("distinct"), (table.node(),), schema, "retract")


def with_itself(kind: str, column: str) -> Callable[[Table], Node]:
    """A join on one column; the left alone decides what is shown of semi and anti."""

    def node(table: Table) -> Node:
        maker = Maker([table], random.Random(0))
        left, right = renamed(maker, maker.table(0)).node, renamed(maker, maker.table(0)).node
        at = table.node().schema.names.index(column)
        keys = ((left.schema.names[at],), (right.schema.names[at],))
        shown = (
            left.schema
            if kind in ("semi", "anti")
            else Schema((*left.schema.key, *right.schema.key, left.schema.fields[1]))
        )
        return Node(EquiJoin(kind, *keys), (left, right), shown, "retract")  # type: ignore[arg-type]

    return node


# Rows of state read or written per changed row and row given out, at most: the docstrings of the operators say why.
BOUNDS = [
    (extremes, 15),
    (distinct, 6),
    (median, 14),
    (top, 8),
    (rows_apart, 3),
    (with_itself("inner", "t_id"), 8),
    (with_itself("semi", "t_k"), 8),  # two keys alone: every row is in one of two large buckets
    (with_itself("anti", "t_k"), 10),
]


@pytest.mark.parametrize(("node_of", "most"), BOUNDS, ids=lambda v: getattr(v, "__name__", v))
def test_a_change_touches_as_much_of_a_large_state_as_of_a_small_one(node_of, most):
    found = [_touched(node_of, rows) for rows in (100, 800)]
    assert found[1] <= most, found
    assert found[1] <= found[0] * 1.3 + 0.5, found


def _touched(node_of: Callable[[Table], Node], rows: int) -> float:
    """Per changed row: rows of state read and written, over rows in and out."""
    table = Table("t", random.Random(3), values=10**6)
    plain = table._value
    table._value = lambda t: table.rng.randint(0, 1) if t == INT else plain(t)  # type: ignore[method-assign]
    deployed = Deployed(sunk(node_of(table)), 1, random.Random(1))
    found: list = []
    for key in range(rows):
        table._set(found, key, table._row(key))
    table._next = rows
    deployed.feed("t", found)
    deployed.settle()
    deployed.reopen()
    before, given, fed = sum(deployed.touched()), deployed.given, 0
    for _ in range(40):
        changes = table.changes(1)
        fed += len(changes)
        deployed.feed("t", changes)
        deployed.settle()
    return (sum(deployed.touched()) - before) / (fed + deployed.given - given)


def test_an_aggregate_that_cannot_follow_changes_is_refused_by_its_name():
    table = Table("t", random.Random(0))
    with pytest.raises(AggregateUnsupported, match="TOPK of INT"):
        Deployed(aggregate(table, GroupCall("a", "TOPK", ("t_k",), INT)), 1, random.Random(0))


def test_a_group_whose_result_is_out_of_range_is_a_dead_letter_and_shown_when_it_fits_again():
    table = Table("t", random.Random(0))
    deployed = Deployed(sunk(aggregate(table, GroupCall("s", "SUM", ("t_n",), INT))), 1, random.Random(0))
    rows = [(1, 1, None, None, None, 2**31 - 1, None, None), (2, 2, None, None, None, 1, None, None)]
    deployed.feed("t", [(INSERT, r, 0) for r in rows])
    deployed.settle()
    assert deployed.rows() == []
    assert [d.code for d in deployed.dead] == [AGGREGATE_FAILED]
    deployed.feed("t", [(DELETE, rows[1], 1)])
    deployed.settle()
    assert deployed.rows() == [(2**31 - 1,)]


def test_values_of_doubles_that_a_dict_would_lose():
    """NaN is one value, both zeros are one, and NULL is neither: as keys of groups and of joins."""
    nan = float("nan")
    values = [nan, float("nan"), 0.0, -0.0, None, None, 1.5]
    table = Table("t", random.Random(0))
    for vector in (True, False):
        node = aggregate(table, GroupCall("n", "COUNT", (), BIGINT), keys=("t_d",))
        deployed = Deployed(sunk(node), 1, random.Random(0), vector=vector)
        pieces = [(INSERT, (i, i, None, None, None, None, v, None), 0) for i, v in enumerate(values)]
        deployed.feed("t", pieces)
        deployed.settle()
        deployed.reopen()
        assert sorted(n for (n,) in deployed.rows()) == [1, 2, 2, 2]
        deployed.feed("t", [(DELETE, r, 1) for _, r, _ in pieces[:3]])
        deployed.settle()
        assert sorted(deployed.rows()) == [(1,), (1,), (2,)], "one of the two zeros is left"
        deployed.feed("t", [(DELETE, r, 1) for _, r, _ in pieces[3:6]])
        deployed.settle()
        assert deployed.rows() == [(1,)]


def paired(kind: str, *, null_safe: bool = False, residual: bool = False) -> Node:
    """t and u on s; the residual: t.n < u.n. Shown: the ids."""
    t, u = Table("t", random.Random(0)).node(), Table("u", random.Random(0)).node()
    less = Call(BOOLEAN, "lt", (Column(BIGINT, "t_n"), Column(BIGINT, "u_n"))) if residual else None
    missing = [Field("__side", INT, "key")] if kind == "full" else []
    ids = [Field("t_id", BIGINT), Field("u_id", BIGINT)]
    schema = Schema((*t.schema.key, *u.schema.key, *missing, *ids))
    spec = EquiJoin(kind, ("t_s",), ("u_s",), less, null_safe)  # type: ignore[arg-type]
    node = Node(spec, (t, u), schema, "retract")
    return Node(Consolidate(), (node,), schema, "retract")


def of(key: int, s: str | None, n: int = 0) -> tuple:
    return (key, key, None, s, None, n, None, None)


@pytest.mark.parametrize("kind", ["right", "full"])
def test_a_right_row_with_a_residual_is_alone_when_its_last_match_goes(kind):
    """The matches of right rows are counted in state, one by one."""
    deployed = Deployed(sunk(paired(kind, residual=True)), 1, random.Random(0))

    def after(source: str, op: int, *row: object) -> list:
        deployed.feed(source, [(op, of(*row), 0)])  # type: ignore[arg-type]
        deployed.settle()
        deployed.reopen()
        return sorted(r for r in deployed.rows() if r[1] is not None)

    assert after("u", INSERT, 7, "a", 5) == [(None, 7)]
    assert after("t", INSERT, 1, "a", 1) == [(1, 7)]
    assert after("t", INSERT, 2, "a", 2) == [(1, 7), (2, 7)]
    assert after("t", INSERT, 3, "a", 9) == [(1, 7), (2, 7)], "no match: the residual is false"
    assert after("t", DELETE, 1, "a", 1) == [(2, 7)]
    assert after("t", DELETE, 3, "a", 9) == [(2, 7)]
    assert after("t", DELETE, 2, "a", 2) == [(None, 7)]
    assert after("t", INSERT, 2, "a", 2) == [(2, 7)]


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("null_safe", [True, False])
def test_null_keys_meet_only_where_the_join_says_is_not_distinct_from(kind, null_safe):
    deployed = Deployed(sunk(paired(kind, null_safe=null_safe)), 3, random.Random(0))
    deployed.feed("t", [(INSERT, of(1, None), 0), (INSERT, of(2, "a"), 0)])
    deployed.feed("u", [(INSERT, of(5, None), 0), (INSERT, of(6, "a"), 0)])
    deployed.settle()
    alone = {"inner": [], "left": [(1, None)], "right": [(None, 5)], "full": [(1, None), (None, 5)]}[kind]
    assert set(deployed.rows()) == {(2, 6), *([(1, 5)] if null_safe else alone)}
    deployed.reopen()
    deployed.feed("u", [(DELETE, of(5, None), 1)])
    deployed.settle()
    left = [(1, None)] if kind in ("left", "full") else []
    assert set(deployed.rows()) == {(2, 6), *left}


def test_a_row_behind_the_last_shown_one_is_kept_without_reading_the_shown_ones_again():
    """Its partition is read once: the rows that are shown before; afterwards they are the same."""
    table = Table("t", random.Random(0))
    deployed = Deployed(sunk(top(table)), 1, random.Random(0))
    deployed.feed("t", [(INSERT, of(i, None, i), 0) for i in range(40)])
    deployed.settle()
    deployed.reopen()

    def reads(op: int, n: int) -> int:
        before, given = deployed.touched()[0], deployed.given
        deployed.feed("t", [(op, of(n, None, n), 0)])
        deployed.settle()
        assert (deployed.given > given) == (n < 3)
        return deployed.touched()[0] - before

    behind, within = reads(INSERT, 50), reads(DELETE, 1)
    assert behind == 2 + 3, "head, entry, three shown rows"
    assert within >= behind + 3, "and those that are shown now"
    assert sorted(r[-1] for r in deployed.rows()) == [1, 2, 3]


def test_a_full_join_tells_a_missing_side_from_an_identity_that_is_null():
    """Groups of NULL that meet nothing: one row has no right side, the other no left one, and nothing else tells them apart."""
    t, u = Table("t", random.Random(0)), Table("u", random.Random(0))
    sides = []
    for table in (t, u):
        key, n = f"{table.name}_s", f"{table.name}_count"
        schema = Schema((Field(f"__{key}", STRING, "key"), Field(n, BIGINT)))
        sides.append(
            Node(GroupAggregate((key,), (GroupCall(n, "COUNT", (), BIGINT),)), (table.node(),), schema, "retract")
        )
    left, right = (s.schema for s in sides)
    schema = Schema((*left.key, *right.key, Field("__side", INT, "key"), *left.value, *right.value))
    node = Node(EquiJoin("full", ("t_count",), ("u_count",)), tuple(sides), schema, "retract")
    deployed = Deployed(sunk(Node(Consolidate(), (node,), schema, "retract")), 1, random.Random(0))
    nothing = (None,) * 6
    deployed.feed("t", [(INSERT, (1, 1, *nothing), 0)])
    deployed.feed("u", [(INSERT, (i, i, *nothing), 0) for i in (1, 2)])
    deployed.settle()
    assert sorted(deployed.rows(), key=str) == [(1, None), (None, 2)]
    deployed.feed("u", [(DELETE, (2, 2, *nothing), 1)])
    deployed.settle()
    assert deployed.rows() == [(1, 1)]


def test_what_comes_and_goes_in_a_run_is_no_change_and_what_changes_is_a_pair():
    deltas = Deltas(lambda row: row[:1])
    for sign, row in (
        (1, (1, "a")),
        (-1, (1, "a")),
        (-1, (2, "b")),
        (1, (2, "c")),
        (-1, (3, float("nan"))),
        (1, (3, float("nan"))),
    ):
        deltas.add(sign, row, 0, 0)
    batch = deltas.batch(Schema((Field("k", INT, "key"), Field("v", STRING))))
    assert batch is not None
    assert list(zip(batch.op.tolist(), batch.rows(), strict=True)) == [
        (UPDATE_BEFORE, (2, "b")),
        (UPDATE_AFTER, (2, "c")),
    ]
    assert same((0.0, [1, {"a": None}]), (0.0, [1, {"a": None}]))
    assert not same(0.0, -0.0)
    assert not same(1, True)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_is_data_and_has_a_text(shape):
    rng = random.Random(5)
    node = SHAPES[shape](Maker([Table("t", rng), Table("u", rng)], rng)).node
    assert from_data(to_data(node)) == node
    assert tree_text(node).count("retract") > 1


def test_a_plan_that_names_what_is_not_there_is_a_breach():
    table = Table("t", random.Random(0))
    wrong = [
        aggregate(table, GroupCall("a", "SUM", ("t_x",), decimal(38, 0))),
        Node(TopN(("t_x",), (), 1), (table.node(),), table.node().schema, "retract"),
        Node(
            EquiJoin("inner", ("t_k",), ("t_s",)),
            (table.node(), renamed(Maker([table], random.Random(0)), Maker([table], random.Random(0)).table()).node),
            table.node().schema,
            "retract",
        ),
        Node(SetOperation("except"), (table.node(),), table.node().schema, "retract"),
    ]
    for node in wrong:
        with pytest.raises(PlanInvariantError):
            Deployed(node, 1, random.Random(0))

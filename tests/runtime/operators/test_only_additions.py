"""Operators over changes of inputs whose rows only come, against DuckDB: what they leave out is never missed."""

from __future__ import annotations

import random

import pytest

from flowql.compiler.analyze.relations.records import only_adds
from flowql.compiler.optimize.mark_appends import mark_appends
from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, GroupCall, SetOperation, SortKey, TopN
from flowql.compiler.plan.logical import Filter, Node, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, BOOLEAN
from flowql.runtime.batch import DELETE, from_rows
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.changes.consolidate import ConsolidateOperator
from tests.incremental.check import run
from tests.incremental.deployed import Deployed, sunk
from tests.incremental.queries import column
from tests.incremental.shapes import SHAPES
from tests.incremental.tables import Table


@pytest.mark.turns("cases")
@pytest.mark.parametrize("vector", [True, False, None])
@pytest.mark.parametrize("shape", ["aggregated", "paired", "ranked", "counted-rows", "views"])
def test_views_of_rows_that_only_come_equal_the_database(shape: str, vector: bool | None) -> None:
    for seed in range(4):
        run(SHAPES[shape], 7_000 + seed, rounds=4, vector=vector, appends=True)


def table(*, appends: bool = True, name: str = "t") -> Node:
    return Table(name, random.Random(0), appends=appends).node()


def marked(node: Node) -> list[bool]:
    return [n.spec.appends for n in walk_nodes(mark_appends(node)) if hasattr(n.spec, "appends")]


def pairs(kind: str, left: Node, right: Node) -> Node:
    schema = Schema((*left.schema.key, *right.schema.key, *left.schema.value, *right.schema.value))
    return Node(EquiJoin(kind, ("t_k",), ("u_k",)), (left, right), schema, "retract")


def test_only_inputs_whose_rows_never_leave_are_marked() -> None:
    t, u = table(), table(name="u")
    count = GroupAggregate(("t_k",), (GroupCall("n", "COUNT", (), BIGINT),))
    counted = Node(count, (t,), Schema((Field("g", t.schema.fields[2].type, "key"), Field("n", BIGINT))), "retract")
    assert marked(counted) == [True]
    assert not only_adds(mark_appends(counted)), "its groups change"
    assert marked(Node(count, (table(appends=False),), counted.schema, "retract")) == [False]
    assert marked(pairs("inner", t, u)) == [True]
    assert only_adds(mark_appends(pairs("inner", t, u)))
    assert marked(pairs("left", t, u)) == [False], "what is alone leaves when it is met"
    assert marked(pairs("inner", t, table(appends=False, name="u"))) == [False]
    kept = Node(Filter(column(Field("t_b", BOOLEAN))), (t,), t.schema, "retract")
    top = TopN(("t_k",), (SortKey("t_n"),), 3)
    assert marked(Node(top, (kept,), t.schema, "retract")) == [True]
    assert marked(Node(TopN(("t_k",), (SortKey("t_n"),), 3, function="rank"), (t,), t.schema, "retract")) == [False]
    assert marked(Node(TopN(("t_k",), (SortKey("t_n"),), 0), (t,), t.schema, "retract")) == [False], (
        "LIMIT 0 shows none"
    )
    assert not only_adds(Node(SetOperation("except"), (t, t), t.schema, "retract"))
    assert only_adds(Node(SetOperation("distinct"), (t,), t.schema, "retract"))
    assert not only_adds(Node(SetOperation("distinct"), (table(appends=False),), t.schema, "retract"))


def test_a_row_that_leaves_where_rows_only_come_is_an_error() -> None:
    """What would have been needed to take it back is not there: the view would be wrong without a word."""
    source = Table("t", random.Random(0))
    plan = Operator("consolidate", Consolidate(appends=True), ("t",), source.node().schema, "retract")
    ((_, row, time),) = source.changes(1)
    removal = from_rows(plan.schema, [row], [time], [DELETE], [0])
    with pytest.raises(AssertionError, match="a row leaves where rows only come"):
        ConsolidateOperator(plan, [plan]).process([removal], MicroBatchContext(state=NO_STATE))


def test_ranks_keep_no_more_rows_than_they_show() -> None:
    source = Table("t", random.Random(3), values=2, appends=True)
    below = source.node()
    top = TopN(("t_b",), (SortKey("t_n", descending=True),), 2, offset=1)
    node = mark_appends(Node(top, (below,), below.schema, "retract"))
    deployed = Deployed(sunk(node), 1, random.Random(0))
    for _ in range(4):
        deployed.feed("t", source.changes(50))
        deployed.settle()
    store = next(s for s in deployed.tasks[-1].state.stores.values() if s.spec.name == "Q-topn-1")
    assert 0 < len(list(store.scan())) <= 3
    assert all(head[0] <= 3 for _, head in store.scan())

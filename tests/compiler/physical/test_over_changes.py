"""Where rows of relations that change are placed, and which stores keep them."""

from __future__ import annotations

import random

from flowql.compiler.physical.partitioning import MEMCOMPARABLE
from flowql.compiler.physical.planner import Topology, plan_query
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    GroupCall,
    Over,
    SetOperation,
    SortKey,
    TopN,
    WindowCall,
)
from flowql.compiler.plan.expr import Call, Column, Literal
from flowql.compiler.plan.logical import Filter, NamedExpr, Node, Project, Union
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import ExchangeSink
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE
from tests.incremental.deployed import sunk
from tests.incremental.queries import Maker, renamed
from tests.incremental.tables import Table


def table(name: str = "t") -> Node:
    return Table(name, random.Random(0)).node()


def counted(below: Node, *keys: str, distinct: bool = False) -> Node:
    types = {f.name: f.type for f in below.schema}
    calls = (GroupCall("n", "COUNT", (below.schema.names[-1],) if distinct else (), BIGINT, distinct=distinct),)
    schema = Schema((*(Field(f"__g{i}", types[k], "key") for i, k in enumerate(keys)), Field("n", BIGINT)))
    return Node(GroupAggregate(keys, calls), (below,), schema, "retract")


def planned(node: Node) -> Topology:
    return plan_query(sunk(node), "Q", {})


def exchanges(node: Node) -> list[tuple[str, ...] | None]:
    """The columns that each repartition places rows by."""
    found = [op.spec for s in planned(node).subtopologies for op in s.operators if isinstance(op.spec, ExchangeSink)]
    assert all(f.key_format == MEMCOMPARABLE for f in found)
    return [f.by for f in found]


def stores(node: Node) -> dict[str, tuple[str, ...]]:
    return {s.name: s.key.names for sub in planned(node).subtopologies for op in sub.operators for s in op.stores}


def test_groups_of_the_row_identity_stay_where_the_source_has_them():
    assert exchanges(counted(table(), "__t")) == []
    assert exchanges(counted(table(), "__t", "t_k")) == []
    assert exchanges(counted(table(), "t_k")) == [("t_k",)]
    assert exchanges(Node(Consolidate(), (table(),), table().schema, "retract")) == []


def test_formats_of_users_do_not_place_doubles():
    """0.0 and -0.0 are one group and have different bytes in them."""
    source = table()
    fields = (Field("__t", DOUBLE, "key"), *source.schema.fields[1:])
    double = Node(source.spec, (), Schema(fields), "retract")
    assert exchanges(counted(double, "__t")) == [("__t",)]


def test_one_group_is_on_one_partition():
    assert exchanges(counted(table())) == [()]
    top = Node(TopN((), (), 3), (table(),), table().schema, "retract")
    assert exchanges(counted(top)) == [()], "all rows are there already"


def windowed(below: Node, *keys: str) -> Node:
    calls = (WindowCall("w", "ROW_NUMBER", (), BIGINT),)
    schema = Schema((*below.schema, Field("w", BIGINT)))
    return Node(Over(keys, (SortKey("t_n"),), calls), (below,), schema, "retract")


def test_windows_place_rows_by_their_partitions_and_what_follows_stays():
    assert exchanges(windowed(table(), "t_k")) == [("t_k",)]
    assert exchanges(windowed(table())) == [()]
    assert exchanges(windowed(table(), "__t")) == []
    assert exchanges(counted(windowed(table(), "t_k"), "t_k", "t_s")) == [("t_k",)]


def test_groups_of_groups_move_only_for_other_columns():
    once = counted(table(), "t_k", "t_s")
    assert exchanges(counted(once, "__g0", "__g1")) == [("t_k", "t_s")]
    assert exchanges(counted(once, "__g0")) == [("t_k", "t_s"), ("__g0",)]


def test_a_join_places_both_sides_by_its_keys_and_what_follows_stays():
    maker = Maker([Table("t", random.Random(0))], random.Random(0))
    left, right = renamed(maker, maker.table()).node, renamed(maker, maker.table()).node
    a, b = left.schema.names[2], right.schema.names[2]
    schema = Schema((*left.schema.key, *right.schema.key, *(f for f in left.schema if f.role != "key")))
    join = Node(EquiJoin("left", (a,), (b,)), (left, right), schema, "retract")
    assert exchanges(join) == [(a,), (b,)]
    assert exchanges(counted(join, a)) == [(a,), (b,)]
    assert exchanges(counted(join, left.schema.names[3])) == [(a,), (b,), (left.schema.names[3],)]
    full = Schema((*left.schema.key, *right.schema.key, Field("__side", BIGINT, "key"), left.schema.fields[2]))
    outer = Node(EquiJoin("full", (a,), (b,)), (left, right), full, "retract")
    assert exchanges(counted(outer, a))[2:] == [(a,)], "rows without a left side lie by the key of the right"


def test_branches_of_a_union_meet_by_their_identities():
    """Sources may have different numbers of partitions."""
    other = Node(
        Project(tuple(NamedExpr(f.name, Column(f.type, f.name)) for f in table().schema)),
        (table(),),
        table().schema,
        "retract",
    )
    union = Node(Union(), (table(), other), table().schema, "retract")
    assert exchanges(union) == [("__t",), ("__t",)]
    assert exchanges(Node(Consolidate(), (union,), union.schema, "retract")) == [("__t",), ("__t",)]


def test_stores_of_each_operator():
    assert stores(counted(table(), "t_k")) == {"Q-groupaggregate-1": ("__g0",), "OUT": ("__g0",)}
    assert stores(counted(table(), "t_k", distinct=True)) == {
        "Q-groupaggregate-1": ("__g0",),
        "Q-groupaggregate-1-values": ("__g0", "__call"),
        "Q-groupaggregate-1-values-entries": ("__g0", "__call", "__entry"),
        "OUT": ("__g0",),
    }
    assert stores(windowed(table(), "t_k")) == {
        "Q-over-1": ("t_k",),
        "Q-over-1-entries": ("t_k", "__entry"),
        "Q-over-1-back": ("t_k", "__entry"),
        "OUT": ("__t",),
    }


def test_an_operator_that_a_plan_has_twice_runs_once_unless_its_task_would_wait_for_itself():
    once = counted(table(), "t_k")
    calls = (GroupCall("most", "MAX", ("__g0",), BIGINT),)
    schema = Schema((Field("__m", BIGINT, "key"), Field("most", BIGINT)))
    most = Node(GroupAggregate(("n",), calls), (once,), schema, "retract")

    def aggregations(column: str) -> int:
        joined = Schema((once.schema.fields[0], schema.fields[0], once.schema.fields[1], schema.fields[1]))
        pairs = Node(EquiJoin("inner", (column,), ("most",)), (once, most), joined, "retract")
        return sum(isinstance(op.spec, GroupAggregate) for s in planned(pairs).subtopologies for op in s.operators)

    assert aggregations("n") == 2
    assert aggregations("__g0") == 3, "the join is in the task of its left side, which the right side comes from"


def test_operators_over_constants_that_are_equal_and_not_the_same_run_apart():
    def totals(zero: float) -> Node:
        below = table()
        kept = Filter(Call(BOOLEAN, "eq", (Literal(DOUBLE, zero), Literal(DOUBLE, zero))))
        return counted(Node(kept, (below,), below.schema, "retract"), "t_k")

    def aggregations(left: Node, right: Node) -> int:
        schema = Schema((Field("__u", BIGINT, "key"), *left.schema.key, *left.schema.value))
        united = Node(SetOperation("except"), (left, right), schema, "retract")
        return sum(isinstance(op.spec, GroupAggregate) for s in planned(united).subtopologies for op in s.operators)

    assert totals(0.0) == totals(-0.0)
    assert aggregations(totals(0.0), totals(0.0)) == 1
    assert aggregations(totals(0.0), totals(-0.0)) == 2

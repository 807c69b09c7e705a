"""Operators over changes in an instance: logs, repartitions, commits, restarts, a result before the first row."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.physical.planner import plan_query
from flowql.compiler.plan.changes import Consolidate, EquiJoin, GroupAggregate, GroupCall, Over, SortKey, WindowCall
from flowql.compiler.plan.expr import Column, Expr
from flowql.compiler.plan.logical import Format, Materialise, NamedExpr, Node, Project, Sink, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.compiler.plan.types import BIGINT, INT, SqlType
from flowql.compiler.plan.verify import verify_plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.output.partitioner import split
from flowql.runtime.state.memory import MemoryPhysical

SQL = """
CREATE TABLE D (K BIGINT PRIMARY KEY, V BIGINT) WITH (KAFKA_TOPIC='d', VALUE_FORMAT='JSON', KEY_FORMAT='KAFKA', PARTITIONS=3);
CREATE TABLE USED AS SELECT V, COUNT(*) AS N FROM D GROUP BY V;
"""
JSON = Format("JSON")


@cache
def compiled() -> Plan:
    made = compile_project([SourceText("test.sql", SQL)])
    assert made.ok, made.diagnostics
    return made.plan


def table() -> Node:
    """D with old and new rows."""
    return next(n for n in walk_nodes(compiled().queries[0].logical) if isinstance(n.spec, Materialise))


def named(node: Node, prefix: str) -> Node:
    """Under other names, as values, too: the row identity is apart from what is selected."""
    columns: list[tuple[NamedExpr, Field]] = []
    for f in node.schema:
        e: Expr = Column(f.type, f.name)
        if f.role == "key":
            columns.append((NamedExpr(f"__{prefix}{f.name}", e), Field(f"__{prefix}{f.name}", f.type, "key")))
        columns.append((NamedExpr(prefix + f.name, e), Field(prefix + f.name, f.type)))
    return Node(Project(tuple(e for e, _ in columns)), (node,), Schema(tuple(f for _, f in columns)), "retract")


def plan_of(node: Node) -> Plan:
    """A plan that writes the node's rows to OUT."""
    source = SourceDef("OUT", "table", "out", node.schema, JSON, JSON, partitions=3, query="Q")
    node = Node(Consolidate(), (node,), node.schema, "retract")
    node = Node(Sink("OUT", "out", "table", JSON, JSON), (node,), node.schema, "retract")
    topology = plan_query(node, "Q", {"D": 3})
    query = QueryPlan("Q", "OUT", "", "", node, topology.subtopologies, repartitions=topology.repartitions)
    made = replace(compiled(), sources=(compiled().sources[0], source), queries=(query,))
    verify_plan(made)
    return made


def totals(*keys: str) -> Node:
    calls = (
        GroupCall("N", "COUNT", (), BIGINT),
        GroupCall("S", "SUM", ("K",), BIGINT),
        GroupCall("M", "MAX", ("V",), BIGINT),
    )
    source = table()
    fields = [Field(f"__{k}", _type(source, k), "key") for k in keys]
    return Node(
        GroupAggregate(keys, calls), (source,), Schema((*fields, *(Field(c.name, c.type) for c in calls))), "retract"
    )


def _type(node: Node, name: str) -> SqlType:
    found = node.schema.get(name)
    assert found is not None
    return found.type


class ChangesHarness:
    """An instance over a log with the topic of D."""

    def __init__(self, plan: Plan, **config: int) -> None:
        self.log, self.physical, self.config = MemoryLog(), MemoryPhysical(), config
        self.log.admin().create_topic("d", 3)
        self._open()
        self.instance.deploy(plan)

    def _open(self) -> None:
        clock = VirtualClock()
        self.instance = Instance(self.log, self.physical, clock, InstanceConfig(**self.config))
        self.driver = Driver(self.instance, tick=lambda: clock.advance(10))

    def restart(self) -> None:
        """Without a commit: what is processed since the last one is lost."""
        self.instance.close()
        self._open()
        self.instance.resume()

    def send(self, *rows: tuple[int, int | None], at: int = 0) -> None:
        values = [None if v is None else json.dumps({"V": v}).encode() for _, v in rows]
        records = [
            {"timestamp": at + i, "key": k.to_bytes(8, "big", signed=True), "value": value, "headers": None}
            for i, ((k, _), value) in enumerate(zip(rows, values, strict=True))
        ]
        producer = self.log.producer("test")
        producer.begin()
        for p, part in split(pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA), 3, 0):
            producer.send(TopicPartition("d", p), part)
        producer.commit()
        producer.close()

    def rows(self) -> list[tuple[object, ...]]:
        """Values of OUT, as they are committed."""
        self.driver.run_until_caught_up()
        snapshot = self.instance.state.snapshot()
        try:
            return sorted((tuple(v) for _, v in snapshot.scan("OUT")), key=str)
        finally:
            snapshot.close()


def test_a_global_aggregate_has_a_row_before_the_first_input_and_after_the_last_row_is_gone():
    world = ChangesHarness(plan_of(totals()))
    assert world.rows() == [(0, None, None)]
    world.restart()
    assert world.rows() == [(0, None, None)]
    world.send((1, 5), (2, 7), (1, 6))
    assert world.rows() == [(2, 3, 7)]
    world.send((2, None), at=10)
    assert world.rows() == [(1, 1, 6)]
    world.restart()
    world.send((1, None), at=20)
    assert world.rows() == [(0, None, None)]


@pytest.mark.parametrize("rows_per_run", [1, 3, None])
def test_a_group_without_rows_is_gone_and_rows_move_between_groups(rows_per_run):
    world = ChangesHarness(plan_of(totals("V")), rows_per_run=rows_per_run)
    assert world.rows() == []
    world.send((1, 5), (2, 5), (3, 9))
    assert world.rows() == [(1, 3, 9), (2, 3, 5)]
    world.send((1, 9), (2, None), at=10)
    assert world.rows() == [(2, 4, 9)]
    world.restart()
    world.send((1, 8), (3, 8), at=20)
    assert world.rows() == [(2, 4, 8)]


@pytest.mark.parametrize("rows_per_run", [1, None])
def test_a_full_join_of_a_table_with_itself_through_repartitions(rows_per_run):
    left, right = named(table(), "L"), named(table(), "R")
    keys = (*left.schema.key, *right.schema.key, Field("__missing", INT, "key"))
    schema = Schema((*keys, Field("LK", BIGINT), Field("LV", BIGINT), Field("RK", BIGINT)))
    world = ChangesHarness(
        plan_of(Node(EquiJoin("full", ("LV",), ("RK",)), (left, right), schema, "retract")), rows_per_run=rows_per_run
    )
    rows: dict[int, int | None] = {}

    def expected() -> list[tuple[object, ...]]:
        live = {k: v for k, v in rows.items() if v is not None}
        pairs = [(k, v, v) if v in live else (k, v, None) for k, v in live.items()]
        return sorted([*pairs, *((None, None, k) for k in live if k not in live.values())], key=str)

    for at, change in enumerate([(1, 2), (2, 2), (3, 1), (2, 4), (1, None), (4, 1), (1, 1), (3, None), (4, None)]):
        rows[change[0]] = change[1]
        world.send(change, at=at)
        assert world.rows() == expected()
    world.restart()
    assert world.rows() == expected()


@pytest.mark.parametrize("rows_per_run", [1, 2, None])
def test_windows_follow_changes_through_repartitions_commits_and_restarts(rows_per_run):
    """Per V in the order of K: the place, the K before, and the sum so far."""
    below = named(table(), "W")
    calls = (
        WindowCall("N", "ROW_NUMBER", (), BIGINT),
        WindowCall("B", "LAG", ("WK",), BIGINT),
        WindowCall("S", "SUM", ("WK",), BIGINT),
    )
    schema = Schema((*below.schema, *(Field(c.name, c.type) for c in calls)))
    world = ChangesHarness(
        plan_of(Node(Over(("WV",), (SortKey("WK"),), calls), (below,), schema, "retract")), rows_per_run=rows_per_run
    )
    rows: dict[int, int | None] = {}

    def expected() -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for v in {v for v in rows.values() if v is not None}:
            keys = sorted(k for k, of in rows.items() if of == v)
            found += [(k, v, n + 1, keys[n - 1] if n else None, sum(keys[: n + 1])) for n, k in enumerate(keys)]
        return sorted(found, key=str)

    first = [(k, k % 2) for k in range(40)]
    rows.update(first)
    world.send(*first)
    assert world.rows() == expected()
    for at, changes in enumerate([[(3, 0)], [(7, None), (8, 1)], [(0, None)], [(41, 1), (1, None)]], start=100):
        rows.update(changes)
        world.send(*changes, at=at)
        assert world.rows() == expected()
        world.restart()
    assert world.rows() == expected()

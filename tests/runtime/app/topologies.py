"""An instance for tests of topologies of processors, beside some SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.functions.user import MARK, UserDefined, entry_of
from flowql.compiler.plan.codec import dumps, loads
from flowql.compiler.plan.topology import Plan
from flowql.compiler.processors.processor import Processor
from flowql.compiler.processors.stores import StateStore
from flowql.compiler.processors.topology import Topology
from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM IN_ (K BIGINT KEY, N BIGINT) WITH (KAFKA_TOPIC='in', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE ROWS_ (K BIGINT PRIMARY KEY, N BIGINT) WITH (KAFKA_TOPIC='rows', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM OUT (K BIGINT KEY, N BIGINT, S STRING)
  WITH (KAFKA_TOPIC='out', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE KEPT (K BIGINT PRIMARY KEY, N BIGINT) WITH (KAFKA_TOPIC='kept', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""


class Topologies(InstanceHarness):
    """An instance whose project has topologies besides its SQL."""

    def __init__(self, *topologies: Topology, sql: str = SQL, **config: Any) -> None:
        self.topologies = topologies
        super().__init__(sql, **config)

    def deploy(self, sql: str) -> Any:
        return self.instance.deploy(plan_of(sql, *self.topologies, previous=self.instance.plan))

    def rows(self, *rows: tuple[int | None, int, int], topic: str = "in") -> None:
        """(key, N, timestamp)."""
        self.send(topic, [(k, {"N": n}, ms) for k, n, ms in rows])
        self.settle()

    def out(self, topic: str = "out") -> list[tuple[int | None, Any, int]]:
        """(key, N or S, timestamp)."""
        found = []
        for _, _, key, value, ms in self.records(topic):
            shown = None if value is None else value.get("S") if value.get("N") is None else value["N"]
            found.append((None if key is None else int.from_bytes(key, "big", signed=True), shown, ms))
        return found


def plan_of(sql: str, *topologies: Topology, previous: Plan | None = None) -> Plan:
    declared = {}
    for topology in topologies:
        user = getattr(topology, MARK)
        assert isinstance(user, UserDefined)
        declared[topology.name] = entry_of(user, "mine", topology.version or "1")
    compiled = compile_project([SourceText("test.sql", sql)], functions=declared, previous=previous)
    assert compiled.ok, compiled.diagnostics
    return loads(dumps(compiled.plan))


def topology(
    factory: Callable[[], Processor], *stores: StateStore, source: str = "IN_", sink: str = "OUT", **options: Any
) -> Topology:
    """One processor between a source and a sink."""
    made = Topology("MINE", **options).add_source("from", source).add_processor("p", factory, "from")
    for store in stores:
        made.add_state_store(store, "p")
    return made.add_sink("to", sink, "p")

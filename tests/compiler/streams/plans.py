"""Plans of streams in Python beside those of SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.functions.registry import Registered
from flowql.compiler.functions.user import MARK, entry_of
from flowql.compiler.plan.topology import Plan
from flowql.compiler.streams.builder import StreamsBuilder, UserStreams

SOURCES = """
CREATE STREAM ORDERS (ID BIGINT KEY, CUSTOMER BIGINT, PRICE DOUBLE, QUANTITY INT, STATE STRING, TAGS ARRAY<STRING>,
  SHIP STRUCT<CITY STRING, ZIP INT>) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM SHIPMENTS (SID BIGINT KEY, ORDER_ID BIGINT, STATE STRING)
  WITH (KAFKA_TOPIC = 'shipments', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE CUSTOMERS (CID BIGINT PRIMARY KEY, NAME STRING, CITY STRING, PARENT BIGINT)
  WITH (KAFKA_TOPIC = 'customers', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE LIMITS (LID BIGINT PRIMARY KEY, CREDIT DOUBLE)
  WITH (KAFKA_TOPIC = 'limits', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
"""


def entries(*builders: StreamsBuilder) -> dict[str, Registered]:
    """What a module with these builders declares."""
    found: dict[str, Registered] = {}
    for builder in builders:
        user = getattr(builder, MARK)
        assert isinstance(user, UserStreams)
        for part in (user, *user.parts):
            found[part.name] = entry_of(part, "mine", part.version or "1")
    return found


def compiled(sql: str, *builders: StreamsBuilder, sources: str = SOURCES, **options: Any) -> Compiled:
    texts = [SourceText("sources.sql", sources), SourceText("test.sql", sql)]
    return compile_project(texts, functions=entries(*builders), **options)


def plan_of(sql: str, *builders: StreamsBuilder, **options: Any) -> Plan:
    made = compiled(sql, *builders, **options)
    assert made.ok, [(d.title, d.help) for d in made.diagnostics]
    return made.plan


def parts_of(plan: Plan) -> Mapping[str, Any]:
    """All that runs, but for the text of statements."""
    return {
        **{q.id: (q.sink, q.logical, q.subtopologies, q.repartitions, q.definition, q.priority) for q in plan.queries},
        **{s.name: (s.kind, s.topic, s.schema, s.key_format, s.value_format, s.partitions) for s in plan.sources},
    }

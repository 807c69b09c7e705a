"""An instance whose project has streams in Python beside its SQL, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowql.compiler.plan.codec import dumps, loads
from flowql.compiler.streams.builder import StreamsBuilder
from tests.compiler.streams.plans import plan_of
from tests.runtime.app.harness import InstanceHarness, Sent

SOURCES = """
CREATE STREAM IN_ (K BIGINT KEY, N BIGINT, T STRING) WITH (KAFKA_TOPIC='in', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE STREAM OTHER (K BIGINT KEY, M BIGINT) WITH (KAFKA_TOPIC='other', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE TABLE ROWS_ (K BIGINT PRIMARY KEY, V BIGINT, F BIGINT) WITH (KAFKA_TOPIC='rows', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE TABLE MORE (K BIGINT PRIMARY KEY, W BIGINT) WITH (KAFKA_TOPIC='more', PARTITIONS=2, VALUE_FORMAT='JSON');
"""
Feed = Mapping[str, Sequence[Sent]]
Out = tuple[Any, Any, int]


class StreamsHarness(InstanceHarness):
    """`sql` may be empty."""

    def __init__(self, *builders: StreamsBuilder, sql: str = "", **config: Any) -> None:
        self.builders = builders
        super().__init__(sql, **config)

    def deploy(self, sql: str) -> Any:
        before = self.instance.plan if self.instance.plan.queries else None
        plan = plan_of(sql, *self.builders, sources=SOURCES, previous=before)
        return self.instance.deploy(loads(dumps(plan)))

    def feed(self, feed: Feed) -> None:
        for topic, rows in feed.items():
            self.send(topic, rows)
        self.settle()

    def out(self, topic: str) -> list[Out]:
        """(key, value, timestamp) in the order of the partitions; keys of eight bytes are numbers."""
        return [(_key(key), value, ms) for _, _, key, value, ms in self.records(topic)]

    def written(self, topic: str) -> list[Out]:
        """As `out`, in an order that does not depend on partitions."""
        return sorted(self.out(topic), key=repr)


def _key(key: bytes | None) -> Any:
    if key is None or len(key) != 8:
        return key
    return int.from_bytes(key, "big", signed=True)


def results(sql: str, feed: Feed, *builders: StreamsBuilder, topics: Sequence[str] = ("OUT",)) -> dict[str, list[Out]]:
    """What a project writes to topics."""
    world = StreamsHarness(*builders, sql=sql)
    world.feed(feed)
    return {t: world.written(t) for t in topics}

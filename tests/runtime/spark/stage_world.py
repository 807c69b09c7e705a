"""Queries of many shapes, their input in portions, and what the runtime's deterministic driver makes of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from flowql.compiler.dialect.parser import DialectName
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.spark.shapes import DEAD, SINK, Row, from_ipc, to_ipc
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness

PACKED = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "first_offset": pa.int64(),
        "next_offset": pa.int64(),
        "ipc": pa.binary(),
    }
)
SOURCES = """
CREATE STREAM A (K BIGINT KEY, V BIGINT, G STRING) WITH (KAFKA_TOPIC='a', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM B (K BIGINT KEY, W BIGINT) WITH (KAFKA_TOPIC='b', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE D (K BIGINT PRIMARY KEY, NAME STRING, V BIGINT)
  WITH (KAFKA_TOPIC='d', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
SHAPES = {
    "stateless": "CREATE STREAM OUT AS SELECT K, V * 2 AS V2, G FROM A WHERE V <> 3;",
    "rekey": "CREATE STREAM OUT AS SELECT V, K, G FROM A PARTITION BY V;",
    "count": "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM A GROUP BY K;",
    "repartition": "CREATE TABLE OUT AS SELECT G, COUNT(*) AS N, SUM(V) AS S, LATEST_BY_OFFSET(V) AS L FROM A GROUP BY G;",
    "tumbling": """CREATE TABLE OUT AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM A
      WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;""",
    "hopping": """CREATE TABLE OUT AS SELECT G, COUNT(*) AS N FROM A
      WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY G;""",
    "session": """CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A
      WINDOW SESSION (3 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;""",
    "cumulating": """CREATE TABLE OUT WITH (VALUE_FORMAT='AVRO') AS SELECT K, COUNT(*) AS N FROM A
      WINDOW CUMULATING (SIZE 12 SECONDS, ADVANCE BY 4 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;""",
    "stream-table": "CREATE STREAM OUT AS SELECT A.K, A.V, NAME FROM A LEFT JOIN D ON A.K = D.K;",
    "stream-stream": """CREATE STREAM OUT AS SELECT A.K, V, W FROM A
      LEFT JOIN B WITHIN 4 SECONDS GRACE PERIOD 2 SECONDS ON A.K = B.K;""",
    "table": "CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM D GROUP BY V;",
    "lookup": """CREATE STREAM OUT AS SELECT A.V, A.K, NAME FROM A LEFT JOIN D ON A.V = D.K;""",
}
VIEW_SOURCES = """
CREATE STREAM a ("K" BIGINT KEY, "V" BIGINT, "G" VARCHAR, "T" TIMESTAMP, WATERMARK FOR "T" AS "T" - INTERVAL '2' SECOND)
  WITH (KAFKA_TOPIC='a', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM b ("K" BIGINT KEY, "W" BIGINT, "T" TIMESTAMP, WATERMARK FOR "T" AS "T" - INTERVAL '2' SECOND)
  WITH (KAFKA_TOPIC='b', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE d ("K" BIGINT PRIMARY KEY, "NAME" VARCHAR, "V" BIGINT)
  WITH (KAFKA_TOPIC='d', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
# Views of standard SQL with every operator over changes that runs on Spark.
VIEWS = {
    name: f'CREATE VIEW "OUT" AS {sql};'
    for name, sql in {
        "sums of doubles": """SELECT "G", SUM("V" * 0.1e0) AS s, AVG("V" * 0.1e0) AS m, STDDEV("V" * 0.3e0) AS d FROM a GROUP BY "G" """,
        "sums over a table": """SELECT "NAME", SUM("V" * 0.1e0) AS s, COUNT(*) AS n, MAX("V") AS m FROM d GROUP BY "NAME" """,
        "one group": 'SELECT COUNT(*) AS n, SUM("V" * 0.1e0) AS s FROM d WHERE "V" > 4',
        "distinct": 'SELECT DISTINCT "NAME" FROM d',
        "except": 'SELECT "V" AS k FROM d EXCEPT SELECT "W" FROM b WHERE "W" > 2',
        "union": 'SELECT "V" AS k FROM d UNION SELECT "W" FROM b',
        "tables joined": 'SELECT x."K" AS k, y."NAME" AS n FROM d x LEFT JOIN d y ON x."V" = y."K"',
        "full join": 'SELECT x."K" AS k, y."K" AS l FROM d x FULL JOIN d y ON x."V" = y."K"',
        "stream and table": 'SELECT a."V", d."NAME", d."V" AS w FROM a JOIN d ON a."V" = d."V"',
        "not in": 'SELECT "K" AS k FROM d WHERE NOT EXISTS (SELECT 1 FROM d AS o WHERE o."V" = d."K")',
        "streams joined": """SELECT a."V" AS v, b."W" AS w FROM a LEFT JOIN b
          ON a."K" = b."K" AND b."T" BETWEEN a."T" - INTERVAL '4' SECOND AND a."T" + INTERVAL '4' SECOND""",
        "as it is": 'SELECT a."V" AS v, x."NAME" AS n FROM a JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS x ON a."V" = x."K"',
        "as it was": """SELECT a."V" AS v, x."W" AS w FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a."T" AS x ON a."K" = x."K" """,
        "top": 'SELECT "K" AS k, "V" AS v FROM d ORDER BY "V" DESC, "K" LIMIT 3',
        "over": 'SELECT "K" AS k, SUM("V" * 0.1e0) OVER (PARTITION BY "NAME" ORDER BY "K") AS s FROM d',
        "tumbling view": """SELECT window_start AS ws, "G" AS g, SUM("V" * 0.1e0) AS s
          FROM TUMBLE(a, "T", INTERVAL '10' SECOND) GROUP BY window_start, window_end, "G" """,
        "closed": """SELECT window_start AS ws, "G" AS g, SUM("V") AS s
          FROM TUMBLE(a, "T", INTERVAL '10' SECOND) GROUP BY window_start, window_end, "G" EMIT ON WINDOW CLOSE""",
    }.items()
}
FAILS_TWICE = (
    "CREATE STREAM OUT AS SELECT K, 12 / V AS Q, REGEXP_EXTRACT('g', G, CAST(12 / V AS INT)) AS R, 7 % V AS M FROM A;"
)
# Several tasks write one partition of the sink: their order among each other is nobody's promise, that of each key is.
MIXED = {"tumbling", "hopping", "session", "cumulating"}

BAD = -1  # a value that cannot be read

Event = tuple[str, int, int | None, int]  # topic, key, value (None: a tombstone of d), time in s
SinkRecord = tuple[int, bytes | None, bytes | None, int]


def events(n: int, seed: int, keys: int = 5) -> list[Event]:
    """Times roughly rising, some rows late."""
    rnd = random.Random(seed)
    at, out = 0, []
    for _ in range(n):
        at += rnd.choice([0, 0, 1, 1, 2])
        topic = rnd.choice("aaabbd")
        value = None if topic == "d" and rnd.random() < 0.25 else rnd.randrange(6)
        value = BAD if rnd.random() < 0.03 else value
        out.append((topic, rnd.randrange(keys), value, max(0, at - rnd.choice([0, 0, 0, 1, 3, 12]))))
    return out


@dataclass
class Reference:
    """The runtime over portions of input. `cuts` are the log's ends after each portion. begins: the query is deployed at the start.

    width: partitions of each topic of the input. options: of the instance.
    """

    shape: str
    coalesce: bool = False
    begins: bool = True
    width: int = 3
    options: dict[str, Any] = field(default_factory=dict)
    world: InstanceHarness = field(init=False)
    physical: MemoryPhysical = field(default_factory=MemoryPhysical)
    cuts: list[dict[TopicPartition, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        begun = self.text if self.begins else self.text.removesuffix(self._query)
        about = {"physical": self.physical, "coalesce": self.coalesce, "dialect": self.dialect, **self.options}
        self.world = InstanceHarness(begun, **about)

    @property
    def dialect(self) -> DialectName:
        return "standard" if self.shape in VIEWS else "ksql"

    @property
    def text(self) -> str:
        """The project."""
        sources = VIEW_SOURCES if self.shape in VIEWS else SOURCES
        return sources.replace("PARTITIONS=3", f"PARTITIONS={self.width}") + self._query

    @property
    def _query(self) -> str:
        return VIEWS[self.shape] if self.shape in VIEWS else SHAPES[self.shape]

    @property
    def plan(self) -> Plan:
        return self.world.instance.plan

    @property
    def query(self) -> QueryPlan:
        return self.plan.queries[0]

    @property
    def log(self) -> MemoryLog:
        return self.world.log

    def partitions(self) -> dict[str, int]:
        return {name: info.partitions for name, info in self.log.admin().topics().items()}

    def send(self, portion: Sequence[Event]) -> None:
        for topic in "abd":
            rows = [(k, _value(topic, k, v, 1000 * t), 1000 * t) for x, k, v, t in portion if x == topic]
            if rows:
                self._produce(topic, rows)
        self.world.settle()
        tps = [TopicPartition(t, p) for t in "abd" for p in range(self.width)]
        self.cuts.append(dict(self.log.admin().end_offsets(tps)))

    def _produce(self, topic: str, rows: list[tuple[int, Any, int]]) -> None:
        by_partition: dict[int, list[dict[str, Any]]] = {}
        for key, value, timestamp in rows:
            record = {"timestamp": timestamp, "key": key.to_bytes(8, "big"), "value": value, "headers": None}
            by_partition.setdefault(self.world.partition(topic, key), []).append(record)
        producer = self.world.producer
        producer.begin()
        for p, records in by_partition.items():
            producer.send(TopicPartition(topic, p), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        producer.commit()

    def rows_of(self, sink: dict[int, list[SinkRecord]]) -> Any:
        """The current rows of a table, or all rows of a stream."""
        source = self.plan.source("OUT")
        assert source is not None
        if source.kind == "table":
            return final(sink)
        return sorted((key, value) for records in sink.values() for _, key, value, _ in records)

    def sink(self) -> dict[int, list[SinkRecord]]:
        """Records of the sink by partition, in order."""
        found: dict[int, list[SinkRecord]] = {}
        for p in range(self.world.partitions("OUT")):
            reader = self.log.reader(TopicPartition("OUT", p), EARLIEST)
            while (batch := reader.read(100_000, 1 << 30)) is not None:
                found.setdefault(p, []).extend(records_of(p, batch.records))
        return found

    def packed(self, portion: int | None = None, chunk: int = 7) -> list[dict[str, Any]]:
        """PACKED rows of a portion, or of everything, in chunks of so many records."""
        start = self.cuts[portion - 1] if portion else {}
        ends = self.cuts[-1 if portion is None else portion]
        out = []
        for tp, end in ends.items():
            reader = self.log.reader(tp, start.get(tp, EARLIEST))
            while reader.position < end and (batch := reader.read(chunk, 1 << 30)) is not None:
                out.append(
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "first_offset": batch.first_offset,
                        "next_offset": batch.next_offset,
                        "ipc": to_ipc(batch.records),
                    }
                )
        return out


def packed_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, PACKED)


def sink_of(rows: Iterable[Any]) -> dict[int, list[SinkRecord]]:
    """Sink records of emitted rows (with names or indices as in EMITTED's attributes) by partition, sources one by one."""
    found: dict[int, list[SinkRecord]] = {}
    for row in sorted((r for r in rows if r.kind == SINK), key=lambda r: (r.partition, r.source, r.seq)):
        found.setdefault(row.partition, []).extend(records_of(row.partition, from_ipc(bytes(row.ipc))))
    return found


def dead_of(rows: Iterable[Row]) -> list[dict[str, Any]]:
    letters = [from_ipc(bytes(r.ipc)) for r in rows if r.kind == DEAD]
    return [orjson.loads(v) for batch in letters for v in batch.column("value").to_pylist()]


def comparable(shape: str, sink: dict[int, list[SinkRecord]]) -> Any:
    """What two runs must agree on."""
    if shape == "rekey":  # records of one key come from several tasks
        return {p: sorted(records, key=repr) for p, records in sink.items()}
    return by_key(sink) if shape in MIXED else sink


def by_key(sink: dict[int, list[SinkRecord]]) -> dict[tuple[int, bytes | None], list[SinkRecord]]:
    """Records by partition and key, in order."""
    keyed: dict[tuple[int, bytes | None], list[SinkRecord]] = {}
    for p, records in sink.items():
        for record in records:
            keyed.setdefault((p, record[1]), []).append(record)
    return keyed


def final(sink: dict[int, list[SinkRecord]]) -> dict[bytes | None, bytes]:
    """A table as its topic gives it: the last value of each key, without deleted ones."""
    latest = {key: value for records in sink.values() for _, key, value, _ in records}
    return {k: v for k, v in latest.items() if v is not None}


def records_of(partition: int, records: pa.RecordBatch) -> list[SinkRecord]:
    columns = [records.column(n).to_pylist() for n in ("key", "value", "timestamp")]
    return [(partition, *row) for row in zip(*columns, strict=True)]


def _value(topic: str, key: int, value: int | None, at_ms: int) -> bytes | None:
    if value is None:
        return None
    if value == BAD:
        return b"{"  # a dead letter
    if topic == "a":
        return orjson.dumps({"V": value, "G": f"g{value % 3}{key % 2}", "T": at_ms})
    return orjson.dumps({"W": value, "T": at_ms} if topic == "b" else {"NAME": f"n{value}", "V": value})

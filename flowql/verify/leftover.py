"""The records of a topic in which two logs differ, by their bytes. What is equal byte for byte is never decoded.

Nearly all records of two right results are equal, so this is where the rows go: columns in DuckDB, no Python per record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, RECORD_SCHEMA, Log, TopicPartition

_READ_RECORDS, _READ_BYTES = 100_000, 64 << 20
_COLUMNS = pa.schema([*(RECORD_SCHEMA.field(n) for n in ("offset", "timestamp", "key", "value"))])
Bytes = bytes | None

_STREAM = """
SELECT key, value, timestamp, sum(n)::BIGINT AS n
FROM (SELECT key, value, timestamp, 1 AS n FROM first UNION ALL SELECT key, value, timestamp, -1 FROM second)
GROUP BY key, value, timestamp HAVING sum(n) <> 0
ORDER BY timestamp, key, value"""
# The last record of each key; without those that remove their row.
_LAST = """
CREATE TABLE last_{0} AS SELECT key, value FROM (
  SELECT key, value FROM {0} WHERE key IS NOT NULL QUALIFY row_number() OVER (PARTITION BY key ORDER BY "offset" DESC) = 1)
WHERE value IS NOT NULL"""
_TABLE = """
SELECT coalesce(a.key, b.key) AS key, a.value AS first, b.value AS second
FROM last_first a FULL JOIN last_second b ON a.key = b.key
WHERE a.value IS DISTINCT FROM b.value ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class StreamLeftover:
    """rows: of the first log. records: (key, value, time, n) in which both differ; n > 0: so many more in the first."""

    rows: int
    records: list[tuple[Bytes, Bytes, int, int]]


@dataclass(frozen=True, slots=True)
class TableLeftover:
    """rows: keys of the first log. records: (key, final value in the first, in the second), None where there is none."""

    rows: int
    records: list[tuple[bytes, Bytes, Bytes]]


def stream_leftover(first: Log, second: Log, topic: str) -> StreamLeftover:
    """Two topics as multisets of (key, value, time)."""
    with _database(first, second, topic) as database:
        return StreamLeftover(_count(database, "first"), database.execute(_STREAM).fetchall())


def table_leftover(first: Log, second: Log, topic: str) -> TableLeftover:
    """Two topics as tables: the last value of each key."""
    with _database(first, second, topic) as database:
        for name in ("first", "second"):
            database.execute(_LAST.format(name))
        return TableLeftover(_count(database, "last_first"), database.execute(_TABLE).fetchall())


def records_of(log: Log, topic: str) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The records of a topic now, partition after partition, in RECORD_SCHEMA; empty for a missing topic."""
    admin = log.admin()
    info = admin.topics().get(topic)
    for tp in [TopicPartition(topic, p) for p in range(info.partitions)] if info is not None else []:
        end = admin.end_offset(tp)
        reader = log.reader(tp, EARLIEST)
        while reader.position < end and (raw := reader.read(_READ_RECORDS, _READ_BYTES)) is not None:
            yield tp, raw.records


def _database(first: Log, second: Log, topic: str) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    for name, log in (("first", first), ("second", second)):
        batches = [records.select(_COLUMNS.names).cast(_COLUMNS) for _, records in records_of(log, topic)]
        database.register(name, pa.Table.from_batches(batches, _COLUMNS))
    return database


def _count(database: duckdb.DuckDBPyConnection, relation: str) -> int:
    found: tuple[Any, ...] | None = database.execute(f"SELECT count(*) FROM {relation}").fetchone()
    assert found is not None
    return int(found[0])

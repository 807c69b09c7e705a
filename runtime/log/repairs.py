"""Repairs of records: what a person has put in the place of records that could not be read.

A repair is a record of `<app>-repairs`, whose key names a record of another topic (topic, partition, offset). Wherever that record is
read it is read as the repair says, by a rebuild that begins at the first record too; the log itself keeps what was written.
A repair without a value takes back all before it: the record is read as it was written.

Beside the repairs are marks, whose keys name a record and the generation of a query that was given it once more, beside its input
(`flowql dlq replay --append`). They are written in the transaction that has its effects.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.log.base import (
    EARLIEST,
    PRODUCE_SCHEMA,
    Consumer,
    Log,
    RawBatch,
    Reader,
    TopicPartition,
)
from flowql.runtime.log.clients import ReaderOver

CONFIG = {"cleanup.policy": "compact"}
_POLL_RECORDS, _POLL_BYTES = 10_000, 16 << 20


def topic_name(application_id: str) -> str:
    return f"{application_id}-repairs"


@dataclass(frozen=True, slots=True)
class Repair:
    """The replacement with which a record is read. timestamp_ms: its event time in the log."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def encode(repairs: Mapping[tuple[TopicPartition, int], Repair | None], now_ms: int) -> pa.RecordBatch:
    """Records for the topic of repairs (PRODUCE_SCHEMA). None takes a repair back."""
    keys = [orjson.dumps([*tp, offset]) for tp, offset in repairs]
    values = [None if r is None else orjson.dumps(_to_data(r)) for r in repairs.values()]
    columns = [[now_ms] * len(keys), keys, values, [None] * len(keys)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


def write(
    log: Log, application_id: str, repairs: Mapping[tuple[TopicPartition, int], Repair | None], now_ms: int
) -> None:
    """In one transaction. None takes a repair back."""
    if not repairs:
        return
    topic = topic_name(application_id)
    log.admin().create_topic(topic, 1, CONFIG)
    producer = log.producer(f"{application_id}-dlq")
    try:
        producer.begin()
        producer.send(TopicPartition(topic, 0), encode(repairs, now_ms))
        producer.commit()
    finally:
        producer.close()


def marks(tp: TopicPartition, offsets: Sequence[int], query: str, now_ms: int) -> pa.RecordBatch:
    """Records for the same topic: a query, by the name of its generation, was given these once more."""
    keys = [orjson.dumps([*tp, offset, query]) for offset in offsets]
    columns = [[now_ms] * len(keys), keys, [b"{}"] * len(keys), [None] * len(keys)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


def _to_data(repair: Repair) -> dict[str, object]:
    return {"key": _text(repair.key), "value": _text(repair.value), "timestamp": repair.timestamp_ms}


def _from_data(line: bytes) -> Repair:
    data = orjson.loads(line)
    return Repair(_bytes(data["key"]), _bytes(data["value"]), data["timestamp"])


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@dataclass(frozen=True, slots=True)
class _OfPartition:
    """Repairs of one partition, by rising offset."""

    offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
    repairs: tuple[Repair, ...]


class Repairs:
    """All repairs of an application, as of the last `read_on`. `lay_over` takes no lock and may run in any thread: the sorted repairs
    of a partition are replaced, never changed.
    """

    def __init__(self, log: Log, application_id: str) -> None:
        self._log, self._tp = log, TopicPartition(topic_name(application_id), 0)
        self._position = 0
        self._known: dict[TopicPartition, dict[int, Repair]] = {}
        self._sorted: dict[TopicPartition, _OfPartition] = {}
        self._delivered: set[tuple[TopicPartition, int, str]] = set()
        self._lock = threading.Lock()  # guards `read_on`
        self.read_on()

    def read_on(self) -> None:
        """Take in what was written since. LogError if that cannot be read now."""
        with self._lock:
            if self._tp.topic not in self._log.admin().partition_counts([self._tp.topic]):
                return
            with closing(self._log.reader(self._tp, self._position or EARLIEST)) as reader:
                while (batch := reader.read(_POLL_RECORDS, _POLL_BYTES)) is not None:
                    self._take(batch)
                    self._position = reader.position

    def _take(self, batch: RawBatch) -> None:
        changed = set()
        for key, value in zip(batch.records.column("key"), batch.records.column("value"), strict=True):
            topic, partition, offset, *query = orjson.loads(key.as_py())
            tp = TopicPartition(topic, partition)
            if query:
                self._delivered.add((tp, offset, query[0]))
                continue
            known = self._known.setdefault(tp, {})
            changed.add(tp)
            if value.is_valid:
                known[offset] = _from_data(value.as_py())
            else:
                known.pop(offset, None)
        for tp in changed:
            known = self._known[tp]
            offsets = sorted(known)
            self._sorted[tp] = _OfPartition(np.array(offsets, np.int64), tuple(known[o] for o in offsets))

    @property
    def position(self) -> int:
        """Up to where their topic was read: it grows with each change."""
        return self._position

    def get(self, tp: TopicPartition, offset: int) -> Repair | None:
        return self._known.get(tp, {}).get(offset)

    def is_delivered(self, tp: TopicPartition, offset: int, query: str) -> bool:
        """Whether a generation of a query was given a record once more."""
        return (tp, offset, query) in self._delivered

    def __len__(self) -> int:
        return sum(len(known) for known in list(self._known.values()))

    def topics(self) -> frozenset[str]:
        """Topics that have a repaired record."""
        return frozenset(tp.topic for tp, known in list(self._known.items()) if known)

    def lay_over(self, batch: RawBatch) -> RawBatch:
        """The batch with repaired records in place of theirs; itself if it has none."""
        known = self._sorted.get(batch.tp)
        if known is None or not batch.records.num_rows:
            return batch
        first, last = (int(i) for i in np.searchsorted(known.offsets, (batch.first_offset, batch.last_offset + 1)))
        if first == last:
            return batch
        offsets = batch.records.column("offset").to_numpy()
        rows = np.searchsorted(offsets, known.offsets[first:last])
        there = [
            (int(row), known.repairs[first + i])
            for i, row in enumerate(rows)
            if offsets[row] == known.offsets[first + i]
        ]
        return (
            RawBatch(batch.tp, _replaced(batch.records, there), batch.next_offset, batch.size_bytes) if there else batch
        )


def _replaced(records: pa.RecordBatch, there: Sequence[tuple[int, Repair]]) -> pa.RecordBatch:
    mask = np.zeros(records.num_rows, np.bool_)
    mask[[row for row, _ in there]] = True
    new = {
        "timestamp": [r.timestamp_ms for _, r in there],
        "key": [r.key for _, r in there],
        "value": [r.value for _, r in there],
    }
    arrays = [
        pc.replace_with_mask(column, pa.array(mask), pa.array(new[f.name], f.type)) if f.name in new else column
        for f, column in zip(records.schema, records.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=records.schema)


class RepairedLog:
    """A log that applies repairs to records when they are read. All other calls go to the log itself.

    `key_values` applies no repairs: it reads changelogs, whose records are never repaired.
    """

    def __init__(self, log: Log, application_id: str) -> None:
        self._log = log
        self.repairs = Repairs(log, application_id)
        self.supports_redo, self.drops_with_commits = log.supports_redo, log.drops_with_commits
        self.admin, self.clients, self.opener = log.admin, log.clients, log.opener
        self.append, self.producer, self.key_values = log.append, log.producer, log.key_values
        self.last_sequence, self.redo_after = log.last_sequence, log.redo_after
        self.redo_place, self.trim_redo = log.redo_place, log.trim_redo
        self.record_bytes_max, self.record_ahead_ms_max = log.record_bytes_max, log.record_ahead_ms_max
        self.maintain, self.hold, self.close = log.maintain, log.hold, log.close

    def reader(self, tp: TopicPartition, offset: int = EARLIEST) -> Reader:
        return _Reader(self._log.reader(tp, offset), self.repairs)

    def consumer(self, client_id: str) -> Consumer:
        return _Consumer(self._log.consumer(client_id), self.repairs)


class _Reader(ReaderOver):
    def __init__(self, reader: Reader, repairs: Repairs) -> None:
        super().__init__(reader)
        self._repairs = repairs

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        batch = self._reader.read(max_records, max_bytes)
        return None if batch is None else self._repairs.lay_over(batch)

    def take(self, max_records: int, max_bytes: int) -> RawBatch | None:
        batch = self._reader.take(max_records, max_bytes)
        return None if batch is None else self._repairs.lay_over(batch)


class _Consumer:
    def __init__(self, consumer: Consumer, repairs: Repairs) -> None:
        self._consumer, self._repairs = consumer, repairs
        self.assign, self.seek = consumer.assign, consumer.seek
        self.pause, self.resume, self.close = consumer.pause, consumer.resume, consumer.close

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        return [self._repairs.lay_over(b) for b in self._consumer.poll(max_records, max_bytes)]

"""Records for the sources of a project, in rounds: every round is later than all before it, whatever the topic."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from tests.change.generate import COLUMNS
from tests.change.project import Source

BEGIN_MS = 1_700_000_000_000
FEEDER = "feed"
Record = dict[str, Any]


class Feed:
    """Appends records to a log. now_ms: the time of the last one."""

    def __init__(self, rng: random.Random, log: Log, *, records: int) -> None:
        self._rng, self.log, self._records = rng, log, records
        self.now_ms = BEGIN_MS
        self._fed: set[str] = set()

    def round(self, sources: Iterable[Source], most: int | None = None) -> int:
        """Append a round in one transaction; how many records it has. Static tables get theirs once, before anything else."""
        known, most = list(sources), most or self._records
        rows: dict[TopicPartition, list[Record]] = {}
        count = self._rng.randint(most // 3, most)
        for source in known:
            if source.static and source.topic not in self._fed:
                self._fed.add(source.topic)
                for _ in range(10):
                    self._add(rows, source)
        moving = [s for s in known if not s.static]
        for _ in range(count):
            self._add(rows, self._rng.choice(moving))
        append(self.log, {tp: _batch(of) for tp, of in rows.items()})
        self.now_ms += 1
        return sum(map(len, rows.values()))

    def _add(self, rows: dict[TopicPartition, list[Record]], source: Source) -> None:
        rng = self._rng
        self.now_ms += rng.choice((0, 1, 500, 2_000, 9_000, 30_000))
        key = f"k{rng.randrange(4)}" if rng.random() < 0.8 else f"g{rng.randrange(3)}"
        gone = rng.random() < (0.15 if source.kind == "table" else 0.02)
        value = None if gone else self._value(source)
        partitions = self.log.admin().topics()[source.topic].partitions
        tp = TopicPartition(source.topic, partition_for(key.encode(), partitions))
        rows.setdefault(tp, []).append({"timestamp": self.now_ms, "key": key.encode(), "value": value, "headers": None})

    def _value(self, source: Source) -> bytes:
        if self._rng.random() < 0.02:
            return b"{not to be read"
        if source.format == "DELIMITED":
            return ",".join(str(self._field(t)) for _, t in source.columns).encode()
        return orjson.dumps({n: self._field(t) for n, t in COLUMNS if self._rng.random() < 0.93})

    def _field(self, sql_type: str) -> int | str | list[int]:
        rng = self._rng
        if sql_type == "ARRAY<BIGINT>":
            return [rng.randrange(10) for _ in range(rng.randrange(3))]
        if sql_type == "BIGINT":
            return rng.randrange(10)
        return rng.choice(("g0", "g1", "g2", "k0", "k1", "k2"))


def _batch(rows: list[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)


def append(log: Log, batches: Mapping[TopicPartition, pa.RecordBatch]) -> None:
    producer = log.producer(FEEDER)
    producer.begin()
    for tp, batch in batches.items():
        producer.send(tp, batch)
    producer.commit()
    producer.close()


def copy_topics(old: Log, new: Log, topics: Iterable[str]) -> None:
    """The same records in the same partitions, in their order."""
    admin, batches = old.admin(), {}
    known = admin.topics()
    for topic in topics:
        new.admin().create_topic(topic, known[topic].partitions)
        for p in range(known[topic].partitions):
            tp = TopicPartition(topic, p)
            parts = list(_all(old, tp))
            if parts:
                (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
                batches[tp] = batch
    append(new, batches)


def _all(log: Log, tp: TopicPartition) -> Iterable[pa.RecordBatch]:
    reader = log.reader(tp, EARLIEST)
    while (raw := reader.read(1_000_000, 1 << 30)) is not None:
        yield raw.records.drop_columns("offset")

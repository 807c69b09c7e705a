"""Dead letters of a native stream on their way to the commit: by what they were found in, beside the rows. No pyspark.

With a local master they are files. Machines of a cluster that share no folder write them into a topic, outside of transactions, and the driver
reads it up to its end when it commits. Spark runs a batch that failed again over the same records: the same letters come again, and are told by
the offsets of their records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, RawBatch, TopicPartition
from flowql.runtime.spark.log_address import Address, write_plainly
from flowql.runtime.spark.log_append import EmittedRecords
from flowql.runtime.spark.shapes import DEAD, from_ipc, to_ipc

_SUFFIX = ".letters"
_OFFSET = "offset"  # of the record of a letter, beside PRODUCE_SCHEMA
_TOPIC = "topic:"  # how a place begins that is no folder
PARTITIONS = 8
CONFIG = {"cleanup.policy": "delete", "retention.ms": "86400000"}
PIECE_BYTES = 500_000  # brokers take records of 1 MB
_CHUNK_ROWS, _CHUNK_BYTES = 1_000, 16 << 20
Ends = Mapping[TopicPartition, int]


class Letters(Protocol):
    """Those of one query. place: what workers are told (`put_letters`)."""

    @property
    def place(self) -> str: ...

    def between(self, start: Ends, end: Ends) -> list[EmittedRecords]:
        """The dead letters of records from `start` to `end`, in their order."""
        ...

    def drop(self, end: Ends) -> None:
        """Those of records below `end` are in the log."""
        ...


def put_letters(
    place: str, address: Address | None, query: str, raw: RawBatch, rows: Sequence[int], letters: pa.RecordBatch
) -> None:
    """Keeps the dead letters (PRODUCE_SCHEMA) of these rows of a batch of records. In a worker."""
    found = raw.records.column("offset").take(pa.array(rows, pa.int64()))
    if not place.startswith(_TOPIC):
        _put_file(Path(place), raw, letters.append_column(_OFFSET, found))
        return
    assert address is not None, "letters in a topic are on the log that is read"
    offsets, sent = found.to_pylist(), []
    for n, offset in enumerate(offsets):
        data, now_ms = to_ipc(letters.slice(n, 1)), SystemClock().wall_ms()
        parts = [data[i : i + PIECE_BYTES] for i in range(0, len(data), PIECE_BYTES)]
        for i, part in enumerate(parts):
            key = json.dumps([query, raw.tp.topic, raw.tp.partition, offset, i, len(parts)]).encode()
            sent.append({"timestamp": now_ms, "key": key, "value": part, "headers": None})
    at = TopicPartition(place.removeprefix(_TOPIC), partition_of(query))
    write_plainly(address, at, pa.RecordBatch.from_pylist(sent, PRODUCE_SCHEMA))


def topic_of(application_id: str) -> str:
    return f"{application_id}-spark-letters"


def partition_of(query: str) -> int:
    return crc32(query.encode()) % PARTITIONS


class TopicLetters:
    """Implements `Letters`. Made before the stream starts: what comes from then on is read."""

    def __init__(self, log: Log, application_id: str, query: str) -> None:
        topic = topic_of(application_id)
        log.admin().create_topic(topic, PARTITIONS, CONFIG)
        self.place = f"{_TOPIC}{topic}"
        self._log, self._query = log, query
        self._tp = TopicPartition(topic, partition_of(query))
        self._next = log.admin().written_offset(self._tp)
        self._parts: dict[tuple[TopicPartition, int], dict[int, bytes]] = {}
        self._lengths: dict[tuple[TopicPartition, int], int] = {}

    def between(self, start: Ends, end: Ends) -> list[EmittedRecords]:
        self._read()
        found = []
        for (tp, offset), parts in sorted(self._parts.items()):
            if start.get(tp, 0) <= offset < end.get(tp, 0):
                length = self._lengths[tp, offset]
                if len(parts) != length:
                    raise LogError(
                        f"{self._tp} lacks {length - len(parts)} parts of the dead letter of {tp} at {offset}"
                    )
                records = from_ipc(b"".join(parts[i] for i in range(length)))
                found.append(EmittedRecords(DEAD, self._query, 0, tp.partition, offset, records))
        return found

    def drop(self, end: Ends) -> None:
        for tp, offset in [k for k in self._parts if k[1] < end.get(k[0], 0)]:
            del self._parts[tp, offset], self._lengths[tp, offset]

    def _read(self) -> None:
        """Tasks of the micro-batch have ended, so what they have written is there."""
        limit = self._log.admin().end_offset(self._tp)
        if self._next >= limit:
            return
        reader = self._log.reader(self._tp, max(self._next, self._log.admin().begin_offset(self._tp)))
        try:
            while reader.position < limit:
                raw = reader.read(_CHUNK_ROWS, _CHUNK_BYTES)
                if raw is None:
                    raise LogError(f"{self._tp}: records {reader.position} to {limit - 1} are not in the log")
                for row in raw.records.to_pylist():
                    query, topic, partition, offset, part, parts = json.loads(row["key"])
                    if query == self._query:
                        at = TopicPartition(topic, partition), offset
                        self._parts.setdefault(at, {})[part] = row["value"]
                        self._lengths[at] = parts
            self._next = reader.position
        finally:
            reader.close()


class FolderLetters:
    """Implements `Letters`."""

    def __init__(self, folder: Path, query: str) -> None:
        self._folder, self._query = folder, query

    @property
    def place(self) -> str:
        return str(self._folder)

    def between(self, start: Ends, end: Ends) -> list[EmittedRecords]:
        """A task that ran again may have read its records in other portions: files overlap then."""
        found, told = [], dict[TopicPartition, int]()
        for tp, first, after, path in sorted(self._kept()):
            if start.get(tp, 0) <= first and after <= end.get(tp, 0):
                kept = from_ipc(path.read_bytes())
                new = kept.filter(pc.greater_equal(kept.column(_OFFSET), told.get(tp, 0)))
                told[tp] = max(after, told.get(tp, 0))
                letters = new.select(PRODUCE_SCHEMA.names)
                found.append(EmittedRecords(DEAD, self._query, 0, tp.partition, first, letters))
        return [f for f in found if f.records.num_rows]

    def drop(self, end: Ends) -> None:
        for tp, _, after, path in self._kept():
            if after <= end.get(tp, 0):
                path.unlink(missing_ok=True)

    def _kept(self) -> Iterator[tuple[TopicPartition, int, int, Path]]:
        for path in self._folder.glob(f"*{_SUFFIX}"):
            topic, partition, first, after = path.stem.split("=")
            yield TopicPartition(unquote(topic), int(partition)), int(first), int(after), path


def _put_file(folder: Path, raw: RawBatch, letters: pa.RecordBatch) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    topic = quote(raw.tp.topic, safe="")
    path = folder / f"{topic}={raw.tp.partition}={raw.first_offset}={raw.next_offset}{_SUFFIX}"
    unready = path.with_suffix(f".{os.getpid()}")
    unready.write_bytes(to_ipc(letters))
    unready.replace(path)

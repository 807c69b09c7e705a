"""Commits that are not there whole: brokers have lost the end of a partition, or the marker of a transaction in one (KAFKA-20734).

Each commit carries the ends of the partitions it wrote (`encode`). A new producer compares those of the last commit with the brokers; a
producer at work looks at partitions that readers do not see up to their ends although the commit was answered. These go into the next commits until
they are seen, so that nothing is forgotten when the process ends.

A marker that is missing hides the records; the marker of the producer's next transaction there shows them, or, if that transaction is aborted, drops
them. So a record that is in the partition and that readers of committed records do not get is lost. Records that compaction or retention have removed
tell nothing.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import CommitTorn, LogError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.admin import KafkaAdmin
from flowql.runtime.log.kafka.connection import LOGGER, Connection

CHARS_MAX = 3_600  # about 350 partitions; the text around it needs far less than the rest


class WrittenEnd(NamedTuple):
    """end: the partition's records ended there, or later, before the commit. mark: of the commit's last record in it (`mark_of`)."""

    end: int
    mark: int


def mark_of(records: pa.RecordBatch) -> int:
    """16 bits of the last record, by which it is found again. records: at least one row of PRODUCE_SCHEMA or RECORD_SCHEMA."""
    last = records.num_rows - 1
    return mark(records.column("key")[last].as_py(), records.column("value")[last].as_py())


def mark(key: bytes | None, value: bytes | None) -> int:
    """16 bits of a record.

    >>> mark(b"k", b"v") == mark(b"k", b"v") != mark(b"k", None)
    True
    """
    return zlib.crc32(value or b"", zlib.crc32(key or b"", value is None)) & 0xFFFF


def encode(ends: Mapping[TopicPartition, WrittenEnd]) -> str:
    """Compressed text: brokers take 4,096 bytes of metadata of an offset (`offset.metadata.max.bytes`).

    At most CHARS_MAX characters without a space; the last partitions are left out where there are too many.

    >>> decode(encode({TopicPartition("t", 2): WrittenEnd(10, 7)}))
    {TopicPartition(topic='t', partition=2): WrittenEnd(end=10, mark=7)}
    >>> encode({})
    ''
    """
    kept = list(ends.items())
    while len(text := _text(kept)) > CHARS_MAX:
        kept = kept[: len(kept) * CHARS_MAX // (len(text) + 40)]
    return text


def decode(text: str) -> dict[TopicPartition, WrittenEnd]:
    """Reverses `encode`: ends by topic and partition."""
    found: dict[TopicPartition, WrittenEnd] = {}
    for line in zlib.decompress(b85decode(text)).decode().splitlines() if text else ():
        topic, *entries = line.split(" ")
        for entry in entries:
            partition, end, marked = (int(number, 16) for number in entry.split(","))
            found[TopicPartition(topic, partition)] = WrittenEnd(end, marked)
    return found


def _text(ends: Iterable[tuple[TopicPartition, WrittenEnd]]) -> str:
    lines = [
        " ".join([topic, *(f"{tp.partition:x},{w.end:x},{w.mark:x}" for tp, w in of_topic)])
        for topic, of_topic in groupby(sorted(ends), key=lambda entry: entry[0].topic)
    ]
    return b85encode(zlib.compress("\n".join(lines).encode())).decode() if lines else ""


TAIL = 64  # offsets before the end among which the last record of the commit is looked for; others may write as well
READ_S = 5.0
HIDDEN_MS = 60_000  # records that are not visible for so long are told
_CONSUME_MAX = 500
_POLL_S = 0.2

Ends = Mapping[TopicPartition, WrittenEnd]
Torn = dict[TopicPartition, CommitTorn]


class CommitCheck:
    """Checks the commits of one producer. suspects: written by commits that were answered, and not known to be visible. torn: the finding; belongs to the log."""

    def __init__(self, connection: Connection, admin: KafkaAdmin, torn: Torn) -> None:
        self._connection, self._admin, self._torn = connection, admin, torn
        self._clock = SystemClock()
        self.suspects: dict[TopicPartition, WrittenEnd] = {}
        self._since_ms: dict[TopicPartition, int] = {}  # of suspects

    def look(self, written: Ends) -> None:
        """Looks for these ends on the brokers. Partitions that are gone, or whose records retention has deleted, are forgotten."""
        try:
            self._judge(written)
        except (LogError, KafkaException):  # brokers are away: after the next commit
            self.suspects |= written
        now_ms = self._clock.timer_ms()
        self._since_ms = {tp: self._since_ms.get(tp, now_ms) for tp in self.suspects}
        for tp, since_ms in self._since_ms.items():
            if now_ms - since_ms >= HIDDEN_MS and tp not in self._torn:
                self._torn[tp] = CommitTorn.hidden(tp, self.suspects[tp].end)

    def _judge(self, written: Ends) -> None:
        tps = sorted(written)
        ends, begins = self._admin.written_offsets(tps), self._admin.begin_offsets(tps)
        visible = self._admin.end_offsets(tps)
        there = [tp for tp in tps if tp in ends and tp in begins and tp in visible]
        short = {tp for tp in there if ends[tp] < written[tp].end}
        full = {tp for tp in there if tp not in short and begins[tp] < written[tp].end}
        hidden = {tp for tp in full if visible[tp] < written[tp].end}
        lost = self._lost({tp: written[tp] for tp in full - hidden}, begins)
        self.suspects = {tp: w for tp, w in {**self.suspects, **written}.items() if tp in hidden}
        for tp in (tp for tp in tps if tp in self._torn and not self._torn[tp].lost):
            del self._torn[tp]
        self._torn |= {tp: CommitTorn.short(tp, written[tp].end, ends[tp]) for tp in short}
        self._torn |= {tp: CommitTorn.aborted(tp, written[tp].end) for tp in lost}

    def _lost(self, written: Ends, begins: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Partitions in which the last record of the commit is, and readers of committed records do not get it."""
        seen = self._marked(written, begins, "read_committed")
        unsure = {tp: w for tp, w in written.items() if seen.get(tp, -1) < w.end - 1}
        there = self._marked(unsure, begins, "read_uncommitted")
        return {tp for tp, offset in there.items() if seen.get(tp, -1) < offset}

    def _marked(self, written: Ends, begins: Mapping[TopicPartition, int], isolation: str) -> dict[TopicPartition, int]:
        """The offset of the last record before the end that has the mark; partitions without one are left out."""
        found: dict[TopicPartition, int] = {}
        if not written:
            return found
        starts = [KafkaPartition(*tp, max(begins[tp], w.end - TAIL)) for tp, w in written.items()]
        config = self._connection.consumer("flowql-commits", "flowql-commits", 100)
        with closing(KafkaClient({**config, "isolation.level": isolation}, logger=LOGGER)) as client:
            client.assign(starts)
            reading, limit = set(written), self._clock.timer_ms() + READ_S * 1000
            while reading:
                if self._clock.timer_ms() > limit:
                    raise LogError(f"{min(reading)}: its last records are not read in time")
                for message in client.consume(_CONSUME_MAX, _POLL_S):
                    tp, offset = _place(message)
                    if message.error() is None and offset < written[tp].end and _mark(message) == written[tp].mark:
                        found[tp] = offset
                    if message.error() is not None or offset + 1 >= written[tp].end:
                        reading.discard(tp)
        return found


def _place(message: Message) -> tuple[TopicPartition, int]:
    """KafkaException for an error other than the end of the partition."""
    failed = message.error()
    if failed is not None and failed.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(failed)
    return TopicPartition(message.topic(), message.partition()), message.offset()


def _mark(message: Message) -> int:
    return mark(message.key(), message.value())

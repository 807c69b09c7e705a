"""Commits that are not there whole: brokers have lost the end of a partition, or the marker of a transaction in one (KAFKA-20734).

Each commit carries the ends of the partitions it wrote (`commit_ends`). A new producer compares those of the last commit with the brokers; a
producer at work looks at partitions that readers do not see up to their ends although the commit was answered. These go into the next commits until
they are seen, so that nothing is forgotten when the process ends.

A marker that is missing hides the records; the marker of the producer's next transaction there shows them, or, if that transaction is aborted, drops
them. So a record that is in the partition and that readers of committed records do not get is lost. Records that compaction or retention have removed
tell nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Protocol

from confluent_kafka import Consumer as KafkaClient
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import CommitTorn, LogError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.commit_ends import WrittenEnd, mark
from flowql.runtime.log.kafka.connection import LOGGER, Connection

TAIL = 64  # offsets before the end among which the last record of the commit is looked for; others may write as well
READ_S = 5.0
HIDDEN_MS = 60_000  # records that are not visible for so long are told
_CONSUME_MAX = 500
_POLL_S = 0.2

Ends = Mapping[TopicPartition, WrittenEnd]
Torn = dict[TopicPartition, CommitTorn]


class Offsets(Protocol):
    """The part of `KafkaAdmin` that is needed here."""

    def begin_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]: ...
    def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]: ...
    def written_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]: ...


class CommitCheck:
    """Checks the commits of one producer. suspects: written by commits that were answered, and not known to be visible. torn: the finding; belongs to the log."""

    def __init__(self, connection: Connection, admin: Offsets, torn: Torn) -> None:
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

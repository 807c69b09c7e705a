"""A producer without transactions: no record is lost, and records that were written before a crash may be written again after it.

A commit has three steps, each acknowledged before the next one begins: result records; records of the metadata topic with the positions of
tasks; the group's positions, with the number of the commit. So no task ever continues from a position whose results are not in the log.

Another instance is not fenced. An instance that finds a commit number other than its own last one is not alone, and ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from flowql.runtime.errors import Fenced, LogError, LogUnavailable
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.log.clients import naming
from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.admin import KafkaAdmin
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.producer import (
    COMMIT_S,
    BaseProducer,
    Groups,
    ProducerClient,
    committed_sequence,
    count,
)
from flowql.runtime.log.kafka.records import send_all
from flowql.runtime.log.transaction import conform


class Positions(Groups, Protocol):
    """Groups whose positions can be moved without a transaction."""

    def commit_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None: ...


class AtLeastOnceProducer(BaseProducer):
    """Implements `flowql.runtime.log.base.Producer`. last: the topic that is written after all others.

    It never has `ends`: records of a failed attempt would be visible below them.
    """

    unit = "commit"
    _groups: Positions

    def __init__(
        self,
        connection: Connection,
        admin: KafkaAdmin,
        transactional_id: str,
        counter: TopicPartition,
        groups: Positions,
        last: str,
    ) -> None:
        super().__init__(connection.plain_producer(transactional_id), admin, transactional_id, counter, groups)
        self._last: list[tuple[TopicPartition, pa.RecordBatch]] = []
        self._last_topic = last
        self._sequence = committed_sequence(groups, transactional_id, counter)

    def begin(self) -> None:
        if self._is_open:
            raise LogError(f"producer {self.transactional_id}: a commit is open already")
        self._is_open, self._last, self._positions, self._refused = True, [], {}, None

    def send(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        self._check_open()
        self._admin.check_partition(tp)
        conform(records)
        if tp.topic == self._last_topic:
            self._last.append((tp, records))
        else:
            self._produce(tp, records)

    def commit(self) -> int:
        self._check_open()
        found = committed_sequence(self._groups, self.transactional_id, self._counter)
        if found != self._sequence:
            raise Fenced(
                f"commit {found} of {self.transactional_id} is not by this producer, which made {self._sequence}"
            )
        self._flush()
        for tp, records in self._last:
            self._produce(tp, records)
        self._flush()
        sequence = self._sequence + 1
        self._positions.setdefault(self.transactional_id, {})[self._counter] = count(sequence, 0)
        for group in sorted(self._positions, key=lambda g: g == self.transactional_id):  # the number comes last
            self._groups.commit_positions(group, self._positions[group])
        self._sequence, self._is_open = sequence, False
        return sequence

    def has_committed(self) -> bool | None:
        return committed_sequence(self._groups, self.transactional_id, self._counter) > self._sequence

    def abort(self) -> None:
        """Sent records may still become visible."""
        self._check_open()
        self._is_open = False
        self._purge()

    def close(self) -> None:
        self._is_open, self.closed = False, True
        self._purge()

    def _produce(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        try:
            send_all(records, tp, self._client.produce, self._room(tp))
            self._client.poll(0)
        except KafkaException as error:
            with naming(tp):
                raise errors.failure(errors.of(error), str(tp)) from error

    def _flush(self) -> None:
        """Everything sent is there, or it is said what is not."""
        with errors.naming(f"producer {self.transactional_id}"):
            left = self._client.flush(COMMIT_S)
        if self._refused is not None:
            tp, cause = self._refused
            failed = errors.failure(cause, f"producer {self.transactional_id}, {tp}")
            failed.partition = tp
            self._admin.forget(tp.topic)
            raise failed
        if left:
            raise LogUnavailable(f"producer {self.transactional_id}: brokers have not taken {left} records")


class PlainWriter:
    """Writes records that are visible at once; a repeated write is there twice. One thread at a time; it keeps its connection."""

    def __init__(self, connection: Connection, client_id: str) -> None:
        config = {**connection.plain_producer(client_id), "on_delivery": self._undelivered}
        self._client = ProducerClient(config, logger=LOGGER)
        self._refused: KafkaError | None = None
        self.closed = False

    def write(self, tp: TopicPartition, records: pa.RecordBatch) -> None:
        """Returns when brokers have all of them. LogUnavailable if they do not take them."""
        self._refused = None
        try:
            send_all(conform(records), tp, self._client.produce, lambda: self._wait(tp))
            left = self._client.flush(COMMIT_S)
        except KafkaException as error:
            raise errors.failure(errors.of(error), str(tp)) from error
        if self._refused is not None:
            raise errors.failure(self._refused, str(tp))
        if left:
            self._full(tp)

    def close(self) -> None:
        """Discards records that brokers have not taken."""
        self.closed = True
        with suppress(KafkaException):
            self._client.purge(in_queue=True, in_flight=True)

    def _wait(self, tp: TopicPartition) -> None:
        if self._client.flush(COMMIT_S):
            self._full(tp)

    def _full(self, tp: TopicPartition) -> NoReturn:
        self._client.purge(in_queue=True, in_flight=True)
        raise LogUnavailable(f"{tp}: brokers have taken nothing for {COMMIT_S:.0f} s")

    def _undelivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._refused is None:
            self._refused = error

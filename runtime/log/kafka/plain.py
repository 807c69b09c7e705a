"""Records outside of transactions: they are visible as soon as they are written, and a repeated write is there twice."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka import errors
from flowql.runtime.log.kafka.calls import ProducerClient
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.producer import COMMIT_S
from flowql.runtime.log.kafka.records import send_all
from flowql.runtime.log.transaction import conform


class PlainWriter:
    """One thread at a time; it keeps its connection."""

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

"""Records outside of transactions: they are there when the call returns, or it says why not."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from flowql.runtime.errors import LogDenied, LogUnavailable, RecordRefused
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka import at_least_once
from flowql.runtime.log.kafka.at_least_once import PlainWriter
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.producer import COMMIT_S
from tests.runtime.log.records import batch

A0 = TopicPartition("A", 0)


class Client:
    """left: what each flush does not get rid of. reports: what it hears of records."""

    def __init__(self, config: dict[str, Any], logger: object) -> None:
        self.config, self.values, self.calls = config, list[bytes](), list[Any]()
        self.left: list[int] = []
        self.full: list[Exception] = []
        self.reports: list[KafkaError | None] = []
        Client.made = self

    made: Client

    def produce(self, topic: str, value: bytes, *_: Any) -> None:
        if self.full:
            raise self.full.pop(0)
        self.values.append(value)

    def flush(self, seconds: float) -> int:
        self.calls.append(seconds)
        for report in self.reports:
            self.config["on_delivery"](report, None)
        self.reports = []
        return self.left.pop(0) if self.left else 0

    def purge(self, **how: bool) -> None:
        self.calls.append(how)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> PlainWriter:
    monkeypatch.setattr(at_least_once, "ProducerClient", Client)
    return PlainWriter(Connection("nowhere:1"), "c")


def test_records_are_there_when_brokers_have_all_of_them(writer: PlainWriter) -> None:
    client = Client.made
    assert (client.config["client.id"], client.config["enable.idempotence"]) == ("c", True)
    client.full = [BufferError("full"), BufferError("full")]
    client.reports = [None]
    writer.write(A0, batch([b"1", b"2"]))
    assert (client.values, client.calls) == ([b"1", b"2"], [COMMIT_S] * 3)


@pytest.mark.parametrize("full", [[], [BufferError("full")]])
def test_what_brokers_do_not_take_is_thrown_away(writer: PlainWriter, full: list[Exception]) -> None:
    client = Client.made
    client.full, client.left = full, [1]
    with pytest.raises(LogUnavailable, match="A-0: brokers have taken nothing for 60 s"):
        writer.write(A0, batch([b"1"]))
    assert client.calls[1:] == [{"in_queue": True, "in_flight": True}]
    client.left = []
    writer.write(A0, batch([b"2"]))


def test_the_first_record_that_is_refused_says_why_and_the_next_write_begins_anew(writer: PlainWriter) -> None:
    client = Client.made
    client.reports = [None, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), KafkaError(KafkaError._MSG_TIMED_OUT)]
    with pytest.raises(RecordRefused, match="A-0"):
        writer.write(A0, batch([b"1"]))
    writer.write(A0, batch([b"2"]))
    client.full = [KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))]
    with pytest.raises(LogDenied, match="A-0"):
        writer.write(A0, batch([b"3"]))

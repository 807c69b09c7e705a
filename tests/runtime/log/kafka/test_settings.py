"""The settings of each kind of client, and what a log knows by them."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import (
    MEMBER_TRANSACTION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Connection,
    answers,
)
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import RESERVED, KafkaSettings

A0 = TopicPartition("A", 0)
OPTIONS = {"security.protocol": "sasl_ssl", "fetch.wait.max.ms": "7", "linger.ms": "9", "reconnect.backoff.max.ms": "3"}


def test_each_client_gets_the_options_that_it_knows() -> None:
    """The client library warns of others, and a producer refuses to be made with some."""
    connection = Connection.to(KafkaSettings("host:1", OPTIONS, 3))
    assert (connection.bootstrap, connection.options, connection.replication, connection.shared) == (
        "host:1",
        OPTIONS,
        3,
        False,
    )
    consumer, producer = connection.consumer("c", "g", 20), connection.producer("p")
    for settings, client, has, has_not in (
        (connection.admin("a"), "a", {}, {"fetch.wait.max.ms", "linger.ms"}),
        (consumer, "c", {"fetch.wait.max.ms": "7"}, {"linger.ms", "transaction.timeout.ms"}),
        (producer, "p", {"linger.ms": "9"}, {"fetch.wait.max.ms", "group.id"}),
    ):
        common = {
            "bootstrap.servers": "host:1",
            "client.id": client,
            "security.protocol": "sasl_ssl",
            "reconnect.backoff.max.ms": "3",
            "socket.nagle.disable": True,
        }
        assert {k: settings.get(k) for k in (common | has)} == common | has
        assert not has_not & settings.keys()
    assert Connection("host:1").consumer("c", "g", 20)["fetch.wait.max.ms"] == 20


def test_what_the_log_promises_no_option_changes() -> None:
    connection = Connection("host:1", dict.fromkeys(RESERVED, "mine"))
    consumer = connection.consumer("c", "g", 20)
    promised = {
        "group.id": "g",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    assert {name: consumer[name] for name in promised} == promised
    producer = connection.producer("p")
    assert (producer["transactional.id"], producer["delivery.report.only.error"]) == ("p", True)
    plain = connection.plain_producer("p")
    assert plain["enable.idempotence"] is True
    assert [name for name in plain if name.startswith("transaction")] == []
    for settings in (consumer, producer, plain, connection.admin("a")):
        assert "mine" not in settings.values()


@pytest.mark.parametrize(
    ("shared", "options", "timeout"),
    [
        (False, {}, TRANSACTION_TIMEOUT_MS),
        (True, {}, MEMBER_TRANSACTION_TIMEOUT_MS),
        (True, {"transaction.timeout.ms": "5000"}, "5000"),
    ],
)
def test_transactions_of_members_end_sooner(shared: bool, options: dict[str, str], timeout: object) -> None:
    assert Connection("host:1", options, None, shared).producer("p")["transaction.timeout.ms"] == timeout


def test_where_no_broker_is_none_answers() -> None:
    assert not answers("127.0.0.1:1", timeout_s=0.2)


@pytest.mark.kafka
def test_a_broker_answers(kafka: str) -> None:
    assert answers(kafka)


class Admin:
    """Topics with configs, and where their partitions end."""

    def __init__(self, **configs: dict[str, str]) -> None:
        self.known = configs

    def options_of(self, topics: list[str]) -> Any:
        return {name: self.known[name] for name in topics if name in self.known}


def log_with(admin: Admin, **options: str) -> KafkaLog:
    log = KafkaLog(Connection("nowhere:1", options), "app")
    log.options_of = admin.options_of  # type: ignore[assignment]
    return log


def test_the_largest_record_is_that_of_the_client_or_the_topic() -> None:
    own = Admin(A={"max.message.bytes": "1000"}, B={})
    for options, topic, most in (
        ({}, "A", 931),
        ({}, "B", 1_000_000),
        ({}, "gone", 1_000_000),
        ({"message.max.bytes": "500"}, "A", 500),
        ({"message.max.bytes": "2000000"}, "B", 2_000_000),
        ({"compression.type": "none"}, "B", 1_000_000),
        ({"compression.type": "lz4"}, "B", None),
        ({"compression.codec": "lz4"}, "B", None),
    ):
        assert log_with(own, **options).record_bytes_max(topic) == most, options


def test_brokers_keep_neither_redo_nor_writers() -> None:
    log = log_with(Admin())
    assert log.committed_positions("g", []) == log.stable_positions("g", []) == {}
    assert log.writers(A0) is None
    for call in (log.redo_place, log.redo_after):
        with pytest.raises(LogError, match="Kafka keeps no redo"):
            call("app", 1)

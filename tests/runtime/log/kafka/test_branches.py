"""What becomes of a transaction for each kind of error, with a client that fails as it is told."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from flowql.runtime.errors import (
    Fenced,
    LogDenied,
    LogError,
    LogUnavailable,
    RecordRefused,
    TopicMissing,
    TransactionAborted,
)
from flowql.runtime.log.base import Position, TopicPartition
from flowql.runtime.log.kafka import producer as producers
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.errors import failure
from flowql.runtime.log.kafka.producer import KafkaProducer, sequence_partition
from tests.runtime.log.records import batch

A0 = TopicPartition("A", 0)
COUNTER = sequence_partition("app")


def error(code, *, fatal=False, retriable=False, abort=False):
    return KafkaException(KafkaError(code, None, fatal, retriable, abort))


class Client:
    """Its calls fail with what stands in `fail` under their name, one after the other. unheard: records without a report."""

    made = ()

    def __init__(self, config, logger=None):
        self.config, self.fail, self.calls, self.unheard = config, {}, [], 0
        Client.made = (*Client.made, self)

    def __len__(self):
        return self.unheard

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append(name)
            waiting = self.fail.get(name)
            if waiting:
                raise waiting.pop(0)
            return 0

        return call

    def undelivered(self, code):
        """A delivery report of a failed record."""
        message = type("Message", (), {"topic": lambda self: "A", "partition": lambda self: 0})()
        self.config["on_delivery"](KafkaError(code), message)


class Admin:
    def create_topics(self, topics): ...
    def check_partition(self, tp): ...
    def forget(self, topic): ...
    def writable(self, topics):
        return topics - {"denied"}

    def readable(self, topics):
        return topics - {"unread"}

    def written_offsets(self, tps):
        return {}


class Check:
    """What a producer asks to be looked at."""

    def __init__(self):
        self.suspects, self.looked = {}, []

    def look(self, written):
        self.looked.append(written)


class Groups:
    sequence, metadata = 4, ""

    def committed_positions(self, group, tps):
        return {COUNTER: Position(0, self.metadata or f"seq={self.sequence}")}

    def group_metadata(self, group):
        return group


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(producers, "ProducerClient", Client)
    monkeypatch.setattr(producers, "COMMIT_S", 0.2)
    producer = KafkaProducer(Connection("nowhere:1"), Admin(), "app", COUNTER, Groups(), Check())
    client = Client.made[-1]
    client.producer = producer
    producer.begin()
    producer.send(A0, batch([b"1"]))
    return client


def test_retriable_errors_are_tried_again(client):
    client.fail = {
        "send_offsets_to_transaction": [error(KafkaError.COORDINATOR_NOT_AVAILABLE, retriable=True)],
        "commit_transaction": [error(KafkaError._TIMED_OUT), error(KafkaError.NOT_COORDINATOR, retriable=True)],
    }
    assert client.producer.commit() == Groups.sequence + 1
    assert client.calls.count("commit_transaction") == 3
    assert "abort_transaction" not in client.calls


def test_an_aborted_transaction_is_known_to_be(client):
    client.fail = {"commit_transaction": [error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, abort=True)]}
    with pytest.raises(TransactionAborted):
        client.producer.commit()
    assert client.calls.count("abort_transaction") == 1
    with pytest.raises(TransactionAborted):  # the next one is for a new producer
        client.producer.begin()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordRefused),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, LogDenied),
    ],
)
def test_a_record_that_is_not_taken_says_why_the_transaction_was_aborted(client, code, kind):
    client.undelivered(code)
    client.fail = {"commit_transaction": [error(KafkaError._INCONSISTENT, abort=True)]}
    with pytest.raises(kind, match="A-0") as raised:
        client.producer.commit()
    assert raised.value.partition == A0
    assert client.calls.count("abort_transaction") == 1


def test_a_report_that_comes_after_the_error_says_why_too(client):
    """On a slow machine: the transaction had failed, and nobody had been told yet for which record."""
    client.fail = {"send_offsets_to_transaction": [error(KafkaError._STATE, abort=True)]}
    client.unheard, client.poll = 1, lambda seconds: client.undelivered(KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(RecordRefused, match="A-0"):
        client.producer.commit()


def test_a_commit_that_is_not_answered_ends_the_producer(client):
    client.fail = {"commit_transaction": [error(KafkaError._TIMED_OUT)] * 100_000}
    with pytest.raises(LogUnavailable, match="not known"):
        client.producer.commit()
    assert "abort_transaction" not in client.calls  # it may be committed
    with pytest.raises(LogUnavailable, match="not known"):
        client.producer.begin()


@pytest.mark.parametrize("kind", ["fatal", "abort"])  # as brokers and clients of different versions say it
@pytest.mark.parametrize("code", [KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_at_its_end(client, code, kind):
    client.fail = {"commit_transaction": [error(code, **{kind: True})]}
    for call in (client.producer.commit, client.producer.begin, client.producer.abort):
        with pytest.raises(Fenced):
            call()
    assert "abort_transaction" not in client.calls


@pytest.mark.parametrize("produced", [[], [error(KafkaError._FATAL)]])
def test_a_producer_that_learns_while_it_sends_that_it_is_fenced_is_at_its_end(client, produced):
    """The client raises a fatal error once, from where reports are asked for; what is sent after it fails without saying why."""
    client.fail = {"produce": produced, "poll": [error(KafkaError._FENCED, fatal=True)]}
    for call in (lambda: client.producer.send(A0, batch([b"2"])), client.producer.commit):
        with pytest.raises(Fenced):
            call()


def test_a_commit_that_got_through_stays_so_when_its_producer_is_fenced_afterwards(client):
    client.producer._admin.written_offsets = lambda tps: dict.fromkeys(tps, 1)
    client.producer._admin.end_offsets = lambda tps: dict.fromkeys(tps, 0)
    client.fail = {"poll": [error(KafkaError._FENCED, fatal=True)]}
    assert client.producer.commit() == Groups.sequence + 1


def test_a_producer_fenced_while_reports_are_awaited_is_at_its_end(client):
    client.fail = {
        "send_offsets_to_transaction": [error(KafkaError._STATE, abort=True)],
        "poll": [error(KafkaError._FENCED, fatal=True)],
        "abort_transaction": [error(KafkaError._FENCED, fatal=True)],
    }
    client.unheard = 1
    with pytest.raises(Fenced):
        client.producer.commit()


def test_positions_that_may_not_be_moved_are_found(client):
    client.producer.send_positions("app", {TopicPartition("unread", 1): Position(3), A0: Position(1)})
    client.fail = {"send_offsets_to_transaction": [error(KafkaError.TOPIC_AUTHORIZATION_FAILED, abort=True)]}
    with pytest.raises(LogDenied, match="unread-1") as raised:
        client.producer.commit()
    assert raised.value.partition == TopicPartition("unread", 1)
    assert client.calls.count("abort_transaction") == 1


@pytest.fixture
def alone(monkeypatch):
    """The producer of an instance that runs its application alone."""
    monkeypatch.setattr(producers, "ProducerClient", Client)
    groups = Groups()
    producer = KafkaProducer(Connection("nowhere:1"), Admin(), "app", COUNTER, groups, Check())
    assert producer.take_over() == 1
    client = Client.made[-1]
    client.producer, client.groups = producer, groups
    producer.begin()
    producer.send(A0, batch([b"1"]))
    client.fail = {"commit_transaction": [error(KafkaError._FENCED, fatal=True)]}
    return client


def test_a_transaction_that_took_too_long_for_the_brokers_may_be_made_again(alone):
    """They fence its producer, as another instance does: nobody has taken over, though."""
    alone.groups.metadata = "seq=4 term=1"
    with pytest.raises(LogUnavailable, match="took too long"):
        alone.producer.commit()
    again = KafkaProducer(Connection("nowhere:1"), Admin(), "app", COUNTER, alone.groups, Check(), 1)
    again.begin()
    assert again.commit() == Groups.sequence + 1


def test_who_is_fenced_by_another_instance_is_at_its_end(alone):
    alone.groups.metadata = "seq=4 term=2"
    with pytest.raises(Fenced):
        alone.producer.commit()
    with pytest.raises(Fenced, match="another instance of app has taken over"):
        KafkaProducer(Connection("nowhere:1"), Admin(), "app", COUNTER, alone.groups, Check(), 1)


def test_another_fatal_error_leaves_the_outcome_open(client):
    client.fail = {"commit_transaction": [error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)]}
    with pytest.raises(LogError) as raised:
        client.producer.commit()
    assert not isinstance(raised.value, Fenced | TransactionAborted | RecordRefused)


def test_what_cannot_be_aborted_ends_the_producer(client, monkeypatch):
    monkeypatch.setattr(producers, "ABORT_S", 0.1)
    client.fail = {
        "commit_transaction": [error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, abort=True)],
        "abort_transaction": [error(KafkaError._TIMED_OUT)] * 100_000,
    }
    with pytest.raises(LogError) as raised:
        client.producer.commit()
    assert not isinstance(raised.value, TransactionAborted)
    with pytest.raises(LogError):
        client.producer.begin()


def test_a_full_queue_is_waited_for(client):
    client.fail = {"produce": [BufferError("full")] * 3}
    client.producer.send(A0, batch([b"2"]))
    assert client.calls.count("produce") == 1 + 4
    assert client.producer.commit() == Groups.sequence + 1


def test_a_queue_that_stays_full_ends_the_transaction(client, monkeypatch):
    monkeypatch.setattr(producers, "SEND_S", 0.01)
    client.fail = {"produce": [BufferError("full")] * 1_000_000}
    with pytest.raises(LogUnavailable, match="brokers have taken nothing"):
        client.producer.send(A0, batch([b"2"]))
    with pytest.raises(LogUnavailable):  # the epoch is sent again, by a new one
        client.producer.begin()


def test_a_producer_that_is_closed_aborts_what_it_has_begun(client):
    client.producer.send(A0, batch([b"2"]))
    client.producer.close()
    assert client.calls.count("abort_transaction") == 1


def test_rights_and_absence_have_their_own_errors():
    assert isinstance(failure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "x"), LogDenied)
    assert isinstance(failure(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED), "x"), LogDenied)
    away = failure(KafkaError(KafkaError._ALL_BROKERS_DOWN), "x")
    assert isinstance(away, LogUnavailable)
    assert away.retriable


def test_what_is_not_let_into_a_transaction_is_found(client):
    """Brokers say why, and not which."""
    client.producer.send(TopicPartition("denied", 1), batch([b"2"]))
    client.fail = {"send_offsets_to_transaction": [error(KafkaError.TOPIC_AUTHORIZATION_FAILED, abort=True)]}
    with pytest.raises(LogDenied) as raised:
        client.producer.commit()
    assert raised.value.partition == TopicPartition("denied", 1)
    assert client.calls.count("abort_transaction") == 1

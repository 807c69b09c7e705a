"""Calls of the client that must end."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicDescription, TopicPartition
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka import producer
from flowql.runtime.log.kafka.admin import KafkaAdmin, TopicDescriptions
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.producer import ending


def test_a_call_that_does_not_come_back_is_left_to_itself(monkeypatch):
    monkeypatch.setattr(producer, "GRACE_S", 0.05)
    stuck, seen = threading.Event(), []
    with pytest.raises(LogUnavailable, match="does not come back"):
        ending(lambda seconds: (seen.append(seconds), stuck.wait()), 0.05, "producer p")
    assert seen == [0.05]
    stuck.set()


def test_an_interactive_query_to_brokers_that_is_not_answered_in_time_is_asked_again(monkeypatch):
    """The client's own timeout comes first, but not in a process that was suspended: its threads go on in any order."""
    monkeypatch.setattr(admins, "TIMEOUT_S", -4.99)
    admin = KafkaAdmin(Connection("127.0.0.1:1"), "app")
    admin._made, admin._known = SimpleNamespace(list_offsets=lambda asked, **_: dict.fromkeys(asked, Future())), True
    with pytest.raises(LogUnavailable, match="no answer of the brokers in time"):
        admin.begin_offsets([TopicPartition("A", 0)])


def test_a_topic_that_is_gone_or_that_brokers_give_no_id_has_none():
    """All topics of brokers without ids would be one, and none would be found to be made anew."""
    parts = {name: Future() for name in ("with", "without", "gone", "denied")}
    parts["with"].set_result(SimpleNamespace(topic_id=Uuid(1, 2), partitions=[0, 1, 2]))
    parts["without"].set_result(SimpleNamespace(topic_id=Uuid(0, 0), partitions=[0]))
    parts["gone"].set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    parts["denied"].set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert TopicDescriptions(parts).result() == {
        "with": TopicDescription(str(Uuid(1, 2)), 3),
        "without": TopicDescription("", 1),
    }
    parts["gone"] = Future()
    assert not TopicDescriptions(parts).done()
    parts["gone"].set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(LogUnavailable, match="topic gone"):
        TopicDescriptions(parts).result()


def test_what_a_call_raises_comes_back():
    ending(lambda seconds: None, 1.0, "producer p")
    with pytest.raises(ValueError, match="no"):
        ending(_fail, 1.0, "producer p")
    with pytest.raises(TimeoutError, match="its own"):
        ending(_time_out, 1.0, "producer p")


def _fail(seconds):
    raise ValueError("no")


def _time_out(seconds):
    raise TimeoutError("its own")


def test_a_fatal_error_before_a_callback_is_the_error_of_the_call():
    """Kafka change story 7001: a deployment beside another one ended with SystemError, where the fenced producer begins anew."""
    fenced = KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    def flush(*_):
        raise SystemError("<method 'code' of ...> returned a result with an exception set") from fenced

    with pytest.raises(KafkaException) as raised:
        producer.served(flush, 1.0)
    assert raised.value is fenced
    with pytest.raises(SystemError, match="another"):
        producer.served(lambda: (_ for _ in ()).throw(SystemError("another")))

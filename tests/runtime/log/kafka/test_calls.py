"""Calls of the client that must end."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka import calls
from flowql.runtime.log.kafka.admin import KafkaAdmin
from flowql.runtime.log.kafka.calls import ending
from flowql.runtime.log.kafka.connection import Connection


def test_a_call_that_does_not_come_back_is_left_to_itself(monkeypatch):
    monkeypatch.setattr(calls, "GRACE_S", 0.05)
    stuck, seen = threading.Event(), []
    with pytest.raises(LogUnavailable, match="does not come back"):
        ending(lambda seconds: (seen.append(seconds), stuck.wait()), 0.05, "producer p")
    assert seen == [0.05]
    stuck.set()


def test_an_interactive_query_to_brokers_that_is_not_answered_in_time_is_asked_again(monkeypatch):
    """The client's own timeout comes first, but not in a process that was suspended: its threads go on in any order."""
    monkeypatch.setattr(admins, "TIMEOUT_S", -4.99)
    admin = KafkaAdmin(Connection("127.0.0.1:1"), "app")
    monkeypatch.setattr(
        admin, "_client", SimpleNamespace(list_offsets=lambda asked, **_: dict.fromkeys(asked, Future()))
    )
    with pytest.raises(LogUnavailable, match="no answer of the brokers in time"):
        admin.begin_offsets([TopicPartition("A", 0)])


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

"""Calls of the client that must end."""

import threading

import pytest

from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.kafka import calls
from flowql.runtime.log.kafka.calls import ending


def test_a_call_that_does_not_come_back_is_left_to_itself(monkeypatch):
    monkeypatch.setattr(calls, "GRACE_S", 0.05)
    stuck, seen = threading.Event(), []
    with pytest.raises(LogUnavailable, match="does not come back"):
        ending(lambda seconds: (seen.append(seconds), stuck.wait()), 0.05, "producer p")
    assert seen == [0.05]
    stuck.set()


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

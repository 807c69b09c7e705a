"""Brokers that are gone and come back, as people are told. No Spark, and no brokers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.spark.engine.instance import ANSWER_S, LOOK_MS, LogWatch
from flowql.runtime.spark.engine.status import with_state
from flowql.runtime.spark.engine.streams import RunningQuery
from tests.runtime.spark.test_engine_order import plan_of
from tests.runtime.spark.test_engine_supervisor import CHAIN


def test_people_learn_within_seconds_that_brokers_are_gone_and_that_queries_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stream learns it from a call that waits for 30 s, and says then that it failed."""
    clock, here = VirtualClock(), True
    watch = LogWatch("b1:9092", lambda: here, clock)

    def look() -> None:
        watch.run_once(clock.timer_ms())
        clock.advance(LOOK_MS)

    with caplog.at_level(logging.INFO, "flowql"):
        look()
        assert (watch.trouble, caplog.messages) == ("", [])
        here = False
        for _ in range(3):
            look()
        assert caplog.messages == [watch.trouble]
        assert "brokers at b1:9092 do not answer; queries continue" in watch.trouble
        here = True
        look()
    assert watch.trouble == ""
    assert caplog.messages[1] == f"the Kafka brokers at b1:9092 answer again, after {3 * LOOK_MS // 1000} s"
    assert LOOK_MS + 1000 * ANSWER_S < 15_000


def test_while_brokers_are_gone_status_shows_what_they_told_and_that_they_are() -> None:
    running = RunningQuery(plan_of(CHAIN).queries[0], state="failed", errors=2, last_error="LogUnavailable: x")
    before: dict[str, Any] = {"id": "CSAS_A", "lag": 7, "state": "running", "errors": 0, "last_error": None}
    shown = with_state(before, running, "brokers do not answer")
    assert shown == {
        "id": "CSAS_A", "lag": 7, "state": "failed", "errors": 2, "last_error": "brokers do not answer", "waits": None,
    }  # fmt: skip
    assert with_state(before, running)["last_error"] == "LogUnavailable: x"

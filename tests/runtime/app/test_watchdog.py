"""A step that does not end is named, with its task and the code it is in; others go on (rule R15)."""

from __future__ import annotations

import logging
import threading

import pytest

from flowql.cli.status import held_up
from flowql.runtime.app import watchdog
from flowql.runtime.app.status import instance_metrics
from flowql.runtime.events import EVENT, LOGGER
from tests.runtime.app.harness import InstanceHarness, function

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM HUNG AS SELECT K, HANG(V) AS V FROM S EMIT CHANGES;
CREATE TABLE FINE AS SELECT K, COUNT(*) AS N FROM T GROUP BY K EMIT CHANGES;
"""
STUCK_MS = 1_000


@pytest.fixture
def events(monkeypatch):
    for name, ms in (("LOOK_MS", 20), ("STUCK_MS", STUCK_MS)):
        monkeypatch.setattr(watchdog, name, ms)
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append({**getattr(record, EVENT), "message": record.getMessage()})

    handler, level = Handler(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield seen
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def stuck_tasks(events):
    """Of a busy machine other steps may be named as well."""
    return [e for e in events if e["event"] == "step.stuck" and e["task"]]


def test_a_function_that_hangs_is_named_and_others_go_on(events):
    released = threading.Event()

    def hang(value):
        released.wait(60)
        return value

    with function("HANG", hang), InstanceHarness(SQL, live=True) as world:
        try:
            world.send("s", [(1, {"V": 1}, 0)])
            world.until(lambda: stuck_tasks(events), "noticed")
            (stuck,) = [s for s in instance_metrics(world.instance)["stuck"] if s["task"]]
            assert stuck["task"] == "CSAS_HUNG/0_0"
            assert stuck["step"].startswith("processing")
            assert stuck["for_ms"] >= STUCK_MS
            assert "hang" in stuck["where"]
            assert "has not finished a round" in held_up(stuck)
            world.send("t", [(7, {"V": 1}, 0)])
            world.until(lambda: world.table("FINE") == [(7, 1)], "answered beside it")
            assert not world.instance.watchdog.is_away, "an instance that is alone has nobody to leave to"
        finally:
            released.set()
        world.settle()
        world.until(lambda: any(e["event"] == "step.goes_on" and e["step"] == stuck["step"] for e in events), "over")
        world.until(lambda: instance_metrics(world.instance)["stuck"] == [], "as before")
    (said,) = stuck_tasks(events)
    assert (said["query"], said["task"]) == ("CSAS_HUNG", "CSAS_HUNG/0_0")


def test_a_step_that_is_patient_is_not_named(events):
    with function("HANG", lambda v: v):
        world = InstanceHarness(SQL)
        dog = world.instance.watchdog
        for step in ("cleanup", "polling"):
            dog.rounds[step] = world.clock.timer_ms()
        world.clock.advance(STUCK_MS + 100)
        assert [s.step for s in dog.stuck(world.clock.timer_ms())] == ["polling"]
        dog.rounds.pop("polling", None)
        assert not dog.stuck(world.clock.timer_ms())

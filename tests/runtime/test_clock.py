"""The wall clock is set while an instance runs: nothing that waits notices."""

import time

import pytest

from flowql.runtime.clock import SystemClock, VirtualClock
from tests.runtime.app.engine import COUNTS, make, produce, read

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JUMPS = [-DAY_MS, -HOUR_MS, HOUR_MS, DAY_MS]


@pytest.mark.parametrize("by_ms", JUMPS)
def test_a_clock_that_is_set_holds_up_no_commit(by_ms, monkeypatch):
    """Set back by an hour, commits waited for an hour: the clock kept its maximum."""
    instance, driver = make(None, COUNTS, clock=SystemClock())
    produce(instance.log, "input", 1)
    driver.run_until_caught_up()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + by_ms * 1_000_000)
    produce(instance.log, "input", 2)
    limit = time.monotonic() + 5
    while read(instance.log, "counts")[-1] != {"N": 2}:
        assert time.monotonic() < limit, "no commit for 5 s"
        driver.round()


@pytest.mark.parametrize("by_ms", JUMPS)
def test_only_the_wall_clock_jumps(by_ms):
    clock = VirtualClock(DAY_MS * 2)
    clock.advance(5)
    clock.set_wall(by_ms)
    clock.advance(1)
    assert (clock.timer_ms(), clock.wall_ms()) == (DAY_MS * 2 + 6, DAY_MS * 2 + 6 + by_ms)


def test_a_failed_query_is_tried_again_in_time_whatever_the_clock_says():
    clock = VirtualClock(DAY_MS)
    instance, driver = make(None, COUNTS, clock=clock)
    instance.query_states.fail("CTAS_COUNTS", "a function failed")
    clock.set_wall(-HOUR_MS)
    produce(instance.log, "input", 1)
    for _ in range(200):  # of 10 ms each
        driver.round()
    assert read(instance.log, "counts") == [{"N": 1}]


def test_rows_that_a_deployment_inserts_have_the_time_of_the_wall_clock():
    clock = VirtualClock(DAY_MS)
    clock.set_wall(HOUR_MS)
    insert = "INSERT INTO INPUT (K, V) VALUES ('k', 1);"
    copy = "CREATE STREAM COPY WITH (KAFKA_TOPIC='copy') AS SELECT K, ROWTIME AS T FROM INPUT EMIT CHANGES;"
    instance, driver = make(None, copy, insert, clock=clock)
    driver.run_until_caught_up()
    (row,) = read(instance.log, "copy")
    assert 0 <= row["T"] - (DAY_MS + HOUR_MS) < 1_000, "of the round that carries the deployment out"

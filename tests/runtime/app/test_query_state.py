"""Whether a query runs is said in one place, and what is said there is what happens."""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from flowql.runtime.app.backoff import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from flowql.runtime.app.progress import state_of
from flowql.runtime.app.query_state import FAILED, RUNNING, STOPPED, SUSPENDED, QueryState, QueryStates
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogDenied, LogFull, TopicMissing
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.manager import TaskManager
from tests.runtime.app.harness import InstanceHarness, fail, function
from tests.runtime.app.test_refused import RefusingLog

Q = "CSAS_BAD"
SOURCE = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
BAD = "CREATE STREAM BAD WITH (KAFKA_TOPIC='bad') AS SELECT K, BODY(V) AS W FROM S;\n"

LEGAL = {
    (RUNNING, FAILED),
    (RUNNING, SUSPENDED),
    (RUNNING, STOPPED),
    (FAILED, RUNNING),
    (FAILED, FAILED),
    (FAILED, SUSPENDED),
    (FAILED, STOPPED),
    (SUSPENDED, RUNNING),
    (SUSPENDED, SUSPENDED),
    (SUSPENDED, STOPPED),
    (STOPPED, FAILED),
}


@pytest.mark.parametrize(("before", "after"), list(product(QueryState, QueryState)))
def test_a_state_goes_only_where_it_may(before: QueryState, after: QueryState) -> None:
    if (before, after) in LEGAL:
        assert before.to(after) is after
        return
    with pytest.raises(AssertionError, match=f"a {before.value} query cannot become {after.value}"):
        before.to(after)


# -- the records, with a task manager


class Records:
    """The states of one query on a task manager, with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_000_000)
        self.manager = TaskManager(self.clock)
        self.states = QueryStates(self.manager, Metrics(), self.clock)
        self.manager.set_query(Q, 4)
        self.states.add(Q)

    @property
    def held(self) -> bool:
        return Q in self.manager._held_queries

    def check(self, state: QueryState, *, held: bool) -> None:
        assert (self.states.of(Q).state, self.held) == (state, held)

    def later(self, ms: int = BACKOFF_MS_MAX) -> None:
        self.clock.advance(ms)


DENIED, GONE = LogDenied("not for you"), TopicMissing("there is no topic")


def test_a_suspended_query_waits_for_what_it_failed_of_before() -> None:
    """A query held by a failed task for half a minute was resumed as soon as the log took its results again."""
    r = Records()
    for _ in range(8):
        r.states.fail(Q, "no")
        r.later()
    r.states.fail(Q, "no")
    r.later(100)
    failed_until = r.states.of(Q).backoff.retry_at_ms
    r.states.suspend(Q, DENIED)
    r.later(2 * BACKOFF_MS_MIN)
    assert r.states.due(SUSPENDED) == []
    r.states.resume(Q, SUSPENDED)
    r.check(SUSPENDED, held=True)
    r.clock.advance(r.states.of(Q).backoff.retry_at_ms - r.clock.timer_ms())
    assert r.clock.timer_ms() >= failed_until
    r.states.resume(Q, SUSPENDED)
    r.check(RUNNING, held=False)


@pytest.mark.parametrize("trouble", [FAILED, SUSPENDED, STOPPED])
def test_a_paused_query_stays_held_after_its_trouble_and_a_troubled_one_after_its_pause(trouble: QueryState) -> None:
    r = Records()
    r.states.set_paused({Q})
    bring_into(r.states, trouble)
    r.check(trouble, held=True)
    r.states.set_paused(())
    r.check(trouble, held=True)
    r.states.set_paused({Q})
    if trouble is STOPPED:
        r.states.reinstate()
    r.later()
    r.states.resume(Q, FAILED if trouble is STOPPED else trouble)
    r.check(RUNNING, held=True)
    r.states.set_paused(())
    r.check(RUNNING, held=False)


def bring_into(states: QueryStates, state: QueryState) -> None:
    if state is FAILED:
        states.fail(Q, "no")
    elif state is SUSPENDED:
        states.suspend(Q, DENIED)
    elif state is STOPPED:
        states.stop(Q, GONE)


def test_a_stopped_query_that_is_reinstated_waits_for_its_retry_and_resumes_as_any_other() -> None:
    r = Records()
    r.states.fail(Q, "no")
    r.states.stop(Q, GONE)
    r.later(BACKOFF_MS_MIN - 1)
    r.states.reinstate()
    r.states.resume(Q, FAILED)
    r.check(FAILED, held=True)
    r.later(1)
    r.states.resume(Q, FAILED)
    r.check(RUNNING, held=False)


def test_what_comes_in_between_wins_over_a_retry() -> None:
    """The retry began, and another thread found something else."""
    for other in (SUSPENDED, STOPPED):
        r = Records()
        r.states.fail(Q, "no")
        r.later()
        assert r.states.due(FAILED) == [Q]
        bring_into(r.states, other)
        r.states.resume(Q, FAILED)
        r.check(other, held=True)
    r = Records()
    r.states.fail(Q, "no")
    r.later()
    r.states.fail(Q, "denied again")
    r.states.resume(Q, FAILED)
    r.check(FAILED, held=True)


def test_more_of_the_same_failure_puts_nothing_off() -> None:
    r = Records()
    for state in (FAILED, SUSPENDED):
        bring_into(r.states, state)
        before = r.states.of(Q).backoff
        r.later(BACKOFF_MS_MIN - 1)
        r.states.fail(Q, "another task")
        assert r.states.of(Q).backoff == before
        assert r.states.of(Q).state is state


def test_a_suspended_query_whose_new_tasks_fail_is_made_anew_once_more() -> None:
    r = Records()
    r.states.suspend(Q, DENIED)
    r.later()
    r.states.fail(Q, "may not read")
    r.states.resume(Q, SUSPENDED)
    r.check(SUSPENDED, held=True)
    assert r.states.due(SUSPENDED) == []


def test_a_query_that_ends_gets_no_slice_whatever_happens_to_it() -> None:
    r = Records()
    r.states.fail(Q, "no")
    r.states.end([Q])
    r.later()
    r.states.resume(Q, FAILED)
    r.check(RUNNING, held=True)
    r.states.forget(Q)
    for state in (FAILED, SUSPENDED, STOPPED):
        bring_into(r.states, state)
    r.check(STOPPED, held=False)
    r.manager.set_query(Q, 4)
    r.states.add(Q)
    r.check(RUNNING, held=False)
    assert r.states.of(Q).backoff.failures == 0


def test_threads_that_change_one_record_leave_the_manager_with_what_it_says() -> None:
    r, before = Records(), sys.getswitchinterval()
    errors: list[BaseException] = []

    def act(seed: int) -> None:
        rng, states = random.Random(seed), r.states
        actions = [
            lambda: states.fail(Q, "no"),
            lambda: states.suspend(Q, DENIED),
            lambda: states.postpone(Q),
            lambda: states.stop(Q, GONE),
            states.reinstate,
            lambda: states.set_paused({Q} if rng.random() < 0.5 else ()),
            lambda: [states.resume(q, s) for s in (FAILED, SUSPENDED) for q in states.due(s)],
            lambda: r.later(1_000),
        ]
        try:
            for _ in range(2_000):
                rng.choice(actions)()
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=act, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors
    assert r.held == (not r.states.of(Q).may_run)


# -- whole instances


class TroubledLog(RefusingLog):
    """May also have no space, but for the feed."""

    full = False

    def commit(self, transactional_id: str, epoch: int, transaction: Any) -> int:
        if self.full and transactional_id != "feed":
            raise LogFull("no space left on device")
        return super().commit(transactional_id, epoch, transaction)


def rounds(world: InstanceHarness, n: int, ms: int = 10) -> None:
    """Each of them checks that what is said of queries is what happens to them."""
    assert world.driver is not None
    assert isinstance(world.clock, VirtualClock)
    for _ in range(n):
        world.driver.round()
        check(world)
        world.clock.advance(ms)


def check(world: InstanceHarness) -> None:
    instance = world.instance
    for name in instance.queries:
        record, held = instance.query_states.of(name), name in instance.manager._held_queries
        assert held != record.may_run
        assert held == (state_of(instance, name) in ("failed", "paused", "error")) or instance.commit.blocked


def pause(world: InstanceHarness, *queries: str) -> None:
    world.instance.deploy(replace(world.instance.plan, paused=queries))


def test_a_query_that_fails_and_is_refused_runs_only_when_both_have_waited() -> None:
    """The log's refusal is over after half a second, the failures of its function wait for half a minute."""
    calls: list[int] = []
    log = TroubledLog()

    def body(value: Any) -> Any:
        calls.append(world.clock.timer_ms())
        return fail(value) if value == 7 else value

    with function("BODY", body):
        world = InstanceHarness(SOURCE + BAD, log=log, rows_per_run=1)
        rounds(world, 50)
        log.full = True
        world.send("s", [(0, {"V": v}, v) for v in (1, 7)])  # the result of the first waits for its commit
        while world.instance.query_states.of(Q).backoff.failures < 8:
            rounds(world, 10, 100)
        failed_until = world.instance.query_states.of(Q).backoff.retry_at_ms
        log.full, log.refused, before = False, {"bad": LogDenied}, len(calls)
        while world.instance.query_states.of(Q).state is not SUSPENDED:
            rounds(world, 1)
        log.refused = {}
        while world.clock.timer_ms() < failed_until:
            assert state_of(world.instance, Q) == "failed"
            rounds(world, 1, 100)
        assert len(calls) == before
        rounds(world, 700, 100)
    assert len(calls) > before


def test_a_query_paused_while_it_has_failed_stays_so_after_the_retry() -> None:
    broken, calls = True, 0

    def body(value: Any) -> Any:
        nonlocal calls
        calls += 1
        return fail(value) if broken else value

    with function("BODY", body):
        world = InstanceHarness(SOURCE + BAD)
        world.send("s", [(0, {"V": 1}, 0)])
        rounds(world, 10)
        assert state_of(world.instance, Q) == "failed"
        pause(world, Q)
        assert state_of(world.instance, Q) == "paused"
        assert world.instance.query_states.of(Q).state is FAILED
        broken, calls = False, 0
        rounds(world, 1_000, 100)
        assert (state_of(world.instance, Q), calls) == ("paused", 0)
        assert world.instance.query_states.of(Q).state is RUNNING
        pause(world)
        world.settle()
    assert [v["W"] for v in world.values("bad")] == [1]


def test_a_query_let_go_while_it_has_failed_waits_for_its_retry() -> None:
    calls: list[int] = []

    def body(value: Any) -> Any:
        calls.append(world.clock.timer_ms())
        return fail(value)

    with function("BODY", body):
        world = InstanceHarness(SOURCE + BAD)
        world.send("s", [(0, {"V": 1}, 0)])
        for n in range(400):
            rounds(world, 1, 100)
            pause(world, *[Q] * (n % 2))
    assert all(b - a >= BACKOFF_MS_MIN << n for n, (a, b) in enumerate(pairwise(calls[:6])))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_a_query_what_is_said_of_it_is_true(seed: int) -> None:
    rng, log = random.Random(seed), TroubledLog()
    troubled = True
    counts = (
        "CREATE TABLE COUNTS WITH (KAFKA_TOPIC='counts') AS SELECT V % 3 AS R, COUNT(*) AS N FROM S GROUP BY V % 3;\n"
    )

    def body(value: Any) -> Any:
        return fail(value) if troubled and rng.random() < 0.1 else value

    with function("BODY", body):
        world = InstanceHarness(SOURCE + BAD + counts, log=log, rows_per_run=3, seed=seed)
        for n in range(60):
            world.send("s", [(0, {"V": n}, n)])
            topics = [t for t in ("bad", "counts") if rng.random() < 0.15]
            log.refused, log.full = dict.fromkeys(topics, LogDenied), rng.random() < 0.1
            rounds(world, rng.randrange(1, 20), rng.choice((10, 1_000)))
            log.full = False
            if rng.random() < 0.3:
                pause(world, *[q for q in (Q, "CTAS_COUNTS") if rng.random() < 0.5])
        troubled, log.refused = False, {}
        pause(world)
        rounds(world, 200, 1_000)
        world.settle()
    assert [v["W"] for v in world.values("bad")] == list(range(60))
    assert world.table("COUNTS") == [(r, 20) for r in range(3)]

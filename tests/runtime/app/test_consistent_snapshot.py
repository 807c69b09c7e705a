"""Consistent snapshots: queries over one input agree within a commit, and none waits long for that, or in vain."""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flowql.runtime.app.consistent_snapshot import GAP_ROWS_MAX, ConsistentSnapshot
from flowql.runtime.state.copy import StateCopy, copy_of
from flowql.runtime.state.rocks import open_rocks
from tests.runtime.app.harness import InstanceHarness, fail, function

pytestmark = pytest.mark.turns("instances")

SOURCE = """
CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS={n}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM T (K BIGINT KEY, W BIGINT)
  WITH (KAFKA_TOPIC='t', PARTITIONS={n}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
BY_KEY = "CREATE TABLE A AS SELECT K, COUNT(*) AS N, SUM(V) AS X FROM S GROUP BY K;\n"
BY_KEY_TOO = "CREATE TABLE B AS SELECT K, COUNT(*) AS N, SUM(V) AS X FROM S GROUP BY K;\n"
BY_VALUE = "CREATE TABLE C AS SELECT V, COUNT(*) AS N, SUM(V) AS X FROM S GROUP BY V;\n"
WINDOWS = (
    "CREATE TABLE D AS SELECT V, COUNT(*) AS N, SUM(V) AS X FROM S WINDOW TUMBLING (SIZE 100 MILLISECONDS,"
    " GRACE PERIOD 0 SECONDS) GROUP BY V;\n"
)
JOIN = (
    "CREATE STREAM J AS SELECT S.K AS K, V, W FROM S JOIN T WITHIN 10 SECONDS GRACE PERIOD 1 DAY ON S.K = T.K;\n"
    "CREATE TABLE E AS SELECT K, COUNT(*) AS N, SUM(V) AS X FROM J GROUP BY K;\n"
)


def rows(first: int, n: int, spread: int = 1) -> list[tuple[int, dict[str, Any], int]]:
    return [(i % 7, {"V": i % 5}, i // spread) for i in range(first, first + n)]


def totals(taken: ConsistentSnapshot, *tables: str) -> list[tuple[int, int]]:
    """(records, sum) per table. COUNT and SUM are the last columns of a row but its time."""
    found, known = [], {s.name for s in taken.snapshot.stores()}
    for name in tables:
        values = [value for _, value in taken.snapshot.scan(name)] if name in known else []
        found.append((sum(v[-2] for v in values), sum(v[-1] for v in values)))
    return found


def ask(
    world: InstanceHarness, *tables: str, timeout_s: float = 1.0
) -> tuple[ConsistentSnapshot, list[tuple[int, int]]]:
    taken = world.instance.consistent_snapshots.snapshot([f"CTAS_{t}" for t in tables], timeout_s)
    try:
        return taken, totals(taken, *tables)
    finally:
        taken.snapshot.close()


def free(world: InstanceHarness) -> bool:
    """Nothing is stopped."""
    tasks = [t for q in world.instance.queries.values() for t in q.built.tasks]
    return all(t.read_up_to.ms is None and all(i.stop_at is None for i in t.logs.values()) for t in tasks)


def steps(world: InstanceHarness, n: int) -> None:
    assert world.driver is not None
    for _ in range(n):
        world.driver.round()


def behind(world: InstanceHarness, first: str, second: str) -> bool:
    """The first query has read less than the second."""
    a, b = (world.instance.queries[q].built.tasks for q in (first, second))
    return sum(sum(t.positions.values()) for t in a) < sum(sum(t.positions.values()) for t in b)


def one_run_per_slice(world: InstanceHarness) -> None:
    """Let every slice end after a run, so that queries are caught in the middle of their input."""
    clock = world.clock
    reading = itertools.count(0, 10_000_000)
    clock.cost_ns = lambda: next(reading)  # type: ignore[method-assign]


def test_what_differs_within_a_commit_agrees_in_a_consistent_one() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + BY_KEY_TOO, rows_per_run=10)
    one_run_per_slice(world)
    world.send("s", rows(0, 400))
    steps(world, 9)
    world.instance.manager.hold("CTAS_B")
    steps(world, 5)
    world.instance.manager.resume("CTAS_B")
    assert behind(world, "CTAS_B", "CTAS_A")
    taken, (a, b) = ask(world, "A", "B")
    assert taken.consistent
    assert a == b
    assert 0 < a[0] < 400, "it did not wait for the end of the input"
    assert free(world)
    world.settle()
    assert world.table("A") == world.table("B")
    assert sum(r[1] for r in world.table("A")) == 400


def test_an_instance_at_rest_answers_without_a_commit() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + BY_KEY_TOO)
    world.send("s", rows(0, 40))
    world.settle()
    commits = world.instance.metrics.commits
    taken, (a, b) = ask(world, "A", "B")
    assert (taken.consistent, a, b) == (True, (40, 80), (40, 80))
    assert world.instance.metrics.commits == commits
    ask(world, "A")  # a query alone agrees with itself
    assert world.instance.metrics.commits == commits


@pytest.mark.parametrize("vector", [True, False])
def test_a_fused_query_and_a_repartition_agree(vector: bool) -> None:
    """Rows that wait in exchanges for rows of other partitions are processed in the order of time, and all counted."""
    world = InstanceHarness(SOURCE.format(n=4) + BY_KEY + BY_VALUE + WINDOWS, rows_per_run=10, vector=vector)
    one_run_per_slice(world)
    reference = InstanceHarness(SOURCE.format(n=4) + BY_KEY + BY_VALUE + WINDOWS, vector=vector)
    last = (0, 0)
    for turn in range(12):
        world.send("s", rows(100 * turn, 100))
        reference.send("s", rows(100 * turn, 100))
        steps(world, turn % 3)
        taken, (a, c, d) = ask(world, "A", "C", "D")
        assert taken.consistent, taken.reason
        assert a == c == d, "no row is late because it was asked"
        assert a >= last
        assert free(world)
        last = a
    world.settle()
    reference.settle()
    for name in ("A", "C", "D"):
        assert world.table(name) == reference.table(name)


def test_a_join_comes_to_where_a_query_over_one_of_its_sides_is() -> None:
    """Stopped at offsets it would wait for ever: rows of the other side belong before those that it has to read."""
    by_other = "CREATE TABLE F AS SELECT K, COUNT(*) AS N, SUM(W) AS X FROM T GROUP BY K;\n"
    world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + by_other + JOIN.splitlines()[0], rows_per_run=10)
    one_run_per_slice(world)
    for query in ("CTAS_F", "CSAS_J"):
        world.instance.manager.hold(query)
    world.send("s", rows(0, 400))
    world.send("t", [(k, {"W": 1}, t) for k, _, t in rows(0, 400)])
    steps(world, 12)
    for query in ("CTAS_F", "CSAS_J"):
        world.instance.manager.resume(query)
    taken = world.instance.consistent_snapshots.snapshot(["CTAS_A", "CTAS_F", "CSAS_J"])
    read = {task: data["positions"] for task, data in taken.snapshot.tasks().items() if "/" in task}
    taken.snapshot.close()
    assert taken.consistent, taken.reason
    assert 0 < read["CTAS_A/0_0"]["s"] < 400, "it did not wait for the end of the input"
    assert read["CSAS_J/0_0"] == {**read["CTAS_A/0_0"], **read["CTAS_F/0_0"]}
    assert free(world)


@pytest.mark.parametrize("seed", range(12))
def test_asking_changes_no_result(seed: int) -> None:
    """Random order of steps, sizes of runs, disorder, unreadable records and moments of asking."""
    chosen = random.Random(seed)
    n = chosen.choice([1, 2, 3])
    sql = SOURCE.format(n=n) + BY_KEY + BY_VALUE + BY_KEY_TOO + JOIN.splitlines()[0] + "\n"
    world = InstanceHarness(sql, seed=seed, rows_per_run=chosen.choice([2, 5, 20, 1000]), threads=chosen.choice([1, 2]))
    one_run_per_slice(world)
    reference = InstanceHarness(sql)
    last, sent, consistent = (0, 0), 0, 0
    for _ in range(10):
        count = chosen.randrange(60)
        batch: list[Any] = rows(sent, count, spread=chosen.choice([1, 10]))
        batch = [(k, b"{bad", t) if chosen.random() < 0.05 else (k, v, t + chosen.randrange(5)) for k, v, t in batch]
        others = [(k, {"W": 1}, t) for k, _, t in rows(sent, chosen.randrange(20))]
        for w in (world, reference):
            if batch:
                w.send("s", batch)
            if others:
                w.send("t", others)
        sent += count
        steps(world, chosen.randrange(4))
        queries = ["CTAS_A", "CTAS_C", "CTAS_B", "CSAS_J"][: chosen.choice([2, 3, 4])]
        taken = world.instance.consistent_snapshots.snapshot(queries)
        found = totals(taken, "A", "C", "B")
        positions = taken.snapshot.tasks()
        taken.snapshot.close()
        assert free(world)
        consistent += taken.consistent
        if taken.consistent:
            assert found[0] == found[1]
            assert len(queries) < 3 or found[0] == found[2]
            if len(queries) == 4:
                read = [p["positions"]["s"] for t, p in positions.items() if t.startswith("CSAS_J/0_")]
                same = [p["positions"]["s"] for t, p in positions.items() if t.startswith("CTAS_A/0_")]
                assert read == same
            assert found[0] >= last
            last = found[0]
    assert consistent >= 8
    world.settle()
    reference.settle()
    for name in ("A", "B", "C"):
        assert world.table(name) == reference.table(name)
    assert sorted(map(str, world.values("J"))) == sorted(map(str, reference.values("J")))
    assert len(world.dead_letters("CTAS_A")) == len(reference.dead_letters("CTAS_A"))


def test_nobody_waits_for_a_query_that_cannot_come() -> None:
    def body(value: Any) -> Any:
        return fail(value) if value == 4 else value

    with function("RAISES", body):
        bad = "CREATE TABLE B AS SELECT K, COUNT(*) AS N, SUM(RAISES(V)) AS X FROM S GROUP BY K;\n"
        world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + bad, rows_per_run=3)
        world.send("s", rows(0, 50))
        world.rest()
        taken, (a, _) = ask(world, "A", "B")
        assert taken.reason == "CTAS_B is failed"
        assert a == (50, sum(i % 5 for i in range(50))), "the newest commit"
        assert free(world)


def test_a_query_that_does_not_get_on_holds_the_others_for_a_moment_only() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + BY_KEY_TOO, rows_per_run=10)
    world.instance.manager.hold("CTAS_B")  # as if it hung
    world.send("s", rows(0, 100))
    steps(world, 5)
    assert world.driver is not None
    world.driver.commit()
    taken, (a, b) = ask(world, "A", "B", timeout_s=0.05)
    assert taken.reason == "they did not come together within 0.05 s"
    assert a > b
    assert free(world)
    world.instance.manager.resume("CTAS_B")
    world.settle()
    assert world.table("A") == world.table("B")


@pytest.mark.parametrize(("timeout_s", "looks"), [(0.0, 1), (0.0015, 1), (0.003, 3)])
def test_there_are_as_many_looks_as_the_timeout_has_room_for_and_one_at_least(timeout_s: float, looks: int) -> None:
    world, seen = InstanceHarness(SOURCE.format(n=1) + BY_KEY + BY_KEY_TOO, rows_per_run=10), list[float]()
    world.instance.manager.hold("CTAS_B")
    world.send("s", rows(0, 100))
    steps(world, 5)
    world.instance.consistent_snapshots._look = seen.append
    taken, _ = ask(world, "A", "B", timeout_s=timeout_s)
    assert not taken.consistent
    assert len(seen) == looks


def test_who_is_far_behind_holds_up_nobody() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + BY_KEY_TOO)
    world.instance.manager.hold("CTAS_B")
    world.send("s", rows(0, GAP_ROWS_MAX + 1))
    steps(world, 200)
    taken, _ = ask(world, "A", "B")
    assert taken.reason == f"CTAS_B is {GAP_ROWS_MAX + 1} records behind in s"
    assert free(world)


def test_a_commit_that_does_not_get_through_leaves_nothing_stopped() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + BY_KEY + BY_KEY_TOO)
    world.send("s", rows(0, 20))
    steps(world, 3)
    world.log.admin().delete_topic("A")  # a topic that queries write: commits are blocked
    taken, _ = ask(world, "A", "B", timeout_s=0.05)
    assert not taken.consistent
    assert free(world)


# -- with threads


def feeding(world: InstanceHarness, until: threading.Event) -> threading.Thread:
    def feed() -> None:
        sent = 0
        while not until.is_set():
            world.send("s", rows(sent, 50))
            sent += 50
            time.sleep(0.005)

    thread = threading.Thread(target=feed)
    thread.start()
    return thread


@pytest.mark.turns("load")
@pytest.mark.parametrize("second", ["B", pytest.param("C", marks=pytest.mark.slow)])
def test_two_hundred_interactive_queries_under_load_agree_and_never_go_back(second: str) -> None:
    sql = SOURCE.format(n=2) + BY_KEY + BY_KEY_TOO + BY_VALUE
    done = threading.Event()
    with InstanceHarness(sql, live=True, threads=2) as world:
        feed = feeding(world, done)
        try:
            last, sequence, grown = (0, 0), 0, 0
            world.until(lambda: bool(world.table("A")) and bool(world.table(second)), "begun")
            for _ in range(200):
                taken, (a, b) = ask(world, "A", second, timeout_s=60.0)  # however slow the machine is
                assert taken.consistent, taken.reason
                assert a == b
                assert a >= last
                assert taken.snapshot.sequence >= sequence
                grown += a > last
                last, sequence = a, taken.snapshot.sequence
                time.sleep(0.005)
        finally:
            done.set()
            feed.join()
        assert grown > 20, "there was no load"
        assert free(world)
        world.settle()
        assert [sum(r[1] for r in world.table(t)) for t in ("A", second)] == [totals_sent(world)] * 2


def test_copies_under_load_agree_too(tmp_path: Path) -> None:
    numbers, done, physical = itertools.count(), threading.Event(), open_rocks(tmp_path / "state")
    with InstanceHarness(SOURCE.format(n=2) + BY_KEY + BY_VALUE, live=True, threads=2, physical=physical) as world:

        def copy() -> StateCopy:
            return copy_of(world.instance.state, tmp_path / "state" / "copies" / str(next(numbers)))

        feed, queries = feeding(world, done), ["CTAS_A", "CTAS_C"]
        try:
            last, grown = (0, 0), 0
            world.until(lambda: bool(world.table("A")) and bool(world.table("C")), "begun")
            for _ in range(20):
                taken = world.instance.consistent_snapshots.snapshot(queries, 60.0, take=copy)
                assert isinstance(taken.snapshot, StateCopy)
                with taken.snapshot:
                    a, b = totals(taken, "A", "C")
                assert taken.consistent, taken.reason
                assert a == b >= last
                last, grown = a, grown + (a > last)
            assert grown, "there was no load"
        finally:
            done.set()
            feed.join()
        assert free(world)
        world.settle()
        taken = world.instance.consistent_snapshots.snapshot(queries, 60.0, take=copy)  # nothing is left to commit
        assert taken.consistent, taken.reason
        with taken.snapshot:  # type: ignore[attr-defined]
            assert [n for n, _ in totals(taken, "A", "C")] == [totals_sent(world)] * 2


def totals_sent(world: InstanceHarness) -> int:
    return len(world.records("s"))


def test_a_function_that_sleeps_is_waited_for_once_and_then_left_alone() -> None:
    def nap(value: Any) -> Any:
        woken.wait(60)
        return value

    woken = threading.Event()
    slow = "CREATE TABLE B AS SELECT K, COUNT(*) AS N, SUM(NAP(V)) AS X FROM S GROUP BY K;\n"
    with function("NAP", nap), InstanceHarness(SOURCE.format(n=1) + BY_KEY + slow, live=True, threads=2) as world:
        world.send("s", rows(0, 20))
        world.until(lambda: world.lag("CTAS_A") == 0, "read")
        start = time.monotonic()
        reasons = [world.instance.consistent_snapshots.snapshot(["CTAS_A", "CTAS_B"], 2.0) for _ in range(10)]
        for taken in reasons:
            taken.snapshot.close()
        assert time.monotonic() - start < 15.0, "ten waits would have taken 20 s"
        assert [t.reason[:9] for t in reasons] == ["they did ", *["a moment "] * 9]
        world.send("s", rows(20, 20))
        world.until(lambda: world.lag("CTAS_A") == 0, "going on")
        woken.set()
        world.settle()


def test_a_stopped_instance_is_at_one_place() -> None:
    done = threading.Event()
    world = InstanceHarness(SOURCE.format(n=2) + BY_KEY + BY_VALUE, live=True, threads=2)
    feed = feeding(world, done)
    world.until(lambda: len(world.table("A")) > 2, "begun")
    close, world.instance.close = world.instance.close, lambda: None  # type: ignore[method-assign]
    assert not world.instance.stop()
    done.set()
    feed.join()
    taken = ConsistentSnapshot(world.instance.snapshot())
    a, c = totals(taken, "A", "C")
    taken.snapshot.close()
    close()
    assert a == c
    assert a[0] > 0


def test_a_run_under_way_when_an_instance_is_stopped_is_waited_for() -> None:
    """It began before its query was stopped at a place, and ends behind it."""

    def nap(value: Any) -> Any:
        asleep.set()
        woken.wait(60)
        return value

    def wake() -> None:
        time.sleep(0.3)
        woken.set()
        time.sleep(0.3)
        world.instance.manager.resume("CTAS_C")

    asleep, woken = threading.Event(), threading.Event()
    slow = BY_KEY.replace("SUM(V)", "SUM(NAP(V))")
    with function("NAP", nap):
        world = InstanceHarness(SOURCE.format(n=1) + slow + BY_VALUE, live=True, threads=2)
        world.instance.manager.hold("CTAS_C")
        world.send("s", rows(0, 20))
        assert asleep.wait(60)
        waking = threading.Thread(target=wake)
        waking.start()
        close, world.instance.close = world.instance.close, lambda: None  # type: ignore[method-assign]
        assert not world.instance.stop()
        waking.join()
        taken = ConsistentSnapshot(world.instance.snapshot())
        a, c = totals(taken, "A", "C")
        taken.snapshot.close()
        close()
    assert a == c == (20, 40)

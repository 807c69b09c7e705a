"""Deploying to an instance that runs: what did not change goes on untouched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flowql.compiler.plan.topology import InsertValues, QueryPlan
from flowql.runtime.app import suspension
from flowql.runtime.app.progress import query_status
from flowql.runtime.app.query_state import SUSPENDED
from flowql.runtime.errors import LogUnavailable, PartitionsDiffer, TopicMissing
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.topology.query import BuiltQuery
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows, sums

BASE = SOURCE.format(n=4)
MAXIMA = "CREATE TABLE MAXIMA AS SELECT K, MAX(V) AS M, COUNT(*) AS N FROM S GROUP BY K;\n"


@contextmanager
def flow(world: InstanceHarness, first: int) -> Iterator[list[int]]:
    """Records arrive all the time; the list holds how many were sent in the end."""
    sent, ended = [first], threading.Event()

    def body() -> None:
        while not ended.wait(0.004):
            world.send("s", rows(sent[0], 20))
            sent[0] += 20

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def actions(world: InstanceHarness, sql: str) -> dict[str, str]:
    return {c.query: c.action for c in world.deploy(sql)}


def test_add_change_remove_and_priority_under_load() -> None:
    with InstanceHarness(BASE + COPY + GOOD, live=True) as world:
        instance = world.instance
        with flow(world, 0) as sent:
            world.until(lambda: sent[0] > 300, "flowing")
            kept = {q: instance.queries[q].built.tasks for q in ("CSAS_COPY", "CTAS_GOOD")}
            assert actions(world, BASE + COPY + GOOD + MAXIMA) == {
                "CSAS_COPY": "none", "CTAS_GOOD": "none", "CTAS_MAXIMA": "add",
            }  # fmt: skip
            more = sent[0]
            world.until(lambda: sent[0] > more + 200, "flowing")
            changed = MAXIMA.replace("MAX(V) AS M", "MAX(V + 1) AS M")
            assert actions(world, BASE + COPY + GOOD + changed)["CTAS_MAXIMA"] == "change"
            world.until(lambda: not instance.deployed.building, "swapped")
            more = sent[0]
            world.until(lambda: sent[0] > more + 200, "flowing")
            urgent = COPY.replace("STREAM COPY AS", "STREAM COPY WITH (PRIORITY='critical') AS")
            assert actions(world, BASE + urgent + GOOD + changed) == {
                "CSAS_COPY": "priority", "CTAS_GOOD": "none", "CTAS_MAXIMA": "none",
            }  # fmt: skip
            assert query_status(instance, "CSAS_COPY")["weight"] == 64
            assert instance.manager.accounts.queries["CSAS_COPY"].weight == 64
            assert all(instance.queries[q].built.tasks is tasks for q, tasks in kept.items()), "untouched"
            assert all(query_status(instance, q)["errors"] == 0 for q in instance.queries)
            world.until(lambda: world.table("MAXIMA") != [], "filled")
            commits = instance.metrics.commits
            assert actions(world, BASE + urgent + GOOD + changed) == dict.fromkeys(
                [q.id for q in instance.plan.queries], "none"
            )
            plan = instance.plan
            assert actions(world, BASE + urgent + changed) == {
                "CSAS_COPY": "none", "CTAS_GOOD": "remove", "CTAS_MAXIMA": "none",
            }  # fmt: skip
            assert instance.plan is not plan
            assert instance.metrics.commits > commits
            more = sent[0]
            world.until(lambda: sent[0] > more + 200, "flowing")
        world.settle()
        n = sent[0]
        assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, n + 1)), "no record lost or twice"
        assert world.table("MAXIMA") == [(k, max(range(k, n, 5)) + 1, len(range(k, n, 5))) for k in range(5)]
        assert world.table("GOOD") == [], "its state is gone"
        assert instance.queries["CSAS_COPY"].built.tasks is kept["CSAS_COPY"]
        assert instance.metrics.query("CSAS_COPY").records_in == n


@pytest.mark.parametrize("seed", range(6))
def test_a_changed_query_is_rebuilt_from_the_start_and_a_removed_one_comes_back_empty(seed: int) -> None:
    world = InstanceHarness(BASE + COPY + GOOD, seed=seed, rows_per_run=30)
    world.send("s", rows(0, 200))
    world.settle()
    world.deploy(BASE + COPY + GOOD.replace("SUM(V)", "SUM(V * 2)"))
    world.send("s", rows(200, 100))
    world.settle()
    assert world.table("GOOD") == [(k, n, 2 * s) for k, n, s in sums(300)]
    world.deploy(BASE + COPY)
    world.deploy(BASE + COPY + GOOD)
    world.settle()
    assert world.table("GOOD") == sums(300)
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 301))


def test_a_plan_that_cannot_run_changes_nothing() -> None:
    world = InstanceHarness(BASE + COPY)
    world.send("s", rows(0, 50))
    world.settle()
    before = (world.instance.plan, dict(world.instance.queries))
    with pytest.raises(TopicMissing, match="nowhere"):
        world.deploy(
            BASE
            + COPY
            + "CREATE STREAM T (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='nowhere', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
            + "CREATE STREAM U AS SELECT * FROM T;"
        )
    assert (world.instance.plan, dict(world.instance.queries)) == before
    world.send("s", rows(50, 50))
    world.settle()
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 101))


def test_a_new_query_for_which_brokers_do_not_answer_is_begun_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the reconciler: the deployment is on record, and nobody repeats it."""
    world = InstanceHarness(BASE + COPY, tick_ms=10)
    world.send("s", rows(0, 50))
    world.settle()
    build, silent = suspension.build_query, [LogUnavailable("no answer")]

    def built(query: QueryPlan, *others: Any) -> BuiltQuery:
        if query.id == "CTAS_GOOD" and silent:
            raise silent.pop()
        return build(query, *others)

    monkeypatch.setattr(suspension, "build_query", built)
    world.deploy(BASE + COPY + GOOD)
    assert world.instance.query_states.of("CTAS_GOOD").state is SUSPENDED
    world.settle()
    assert world.table("GOOD") == sums(50)


def test_a_query_is_removed_while_its_task_is_running() -> None:
    """The removal waits for the slice; what the slice published stays, the rest is not processed."""
    with InstanceHarness(BASE + COPY + GOOD, live=True, rows_per_run=5) as world:
        world.send("s", rows(0, 3000))
        world.until(lambda: world.instance.metrics.query("CTAS_GOOD").records_in > 100, "running")
        world.deploy(BASE + COPY)
        assert not any("CTAS_GOOD" in name for name in world.instance.manager.running())
        world.settle()
        assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 3001))
        assert plan_of(BASE + COPY).queries[0].id in world.instance.queries


@pytest.mark.parametrize(
    ("of_all", "of_queries", "expected"),
    [
        (None, (), 100),
        (3000, (), 1000),
        (None, (600, 400), 200),
        (400, (600,), 200),
        (2000, (600,), 300),
        (None, (4,), 10),
    ],
)
def test_commits_follow_the_smallest_latency_target(of_all, of_queries, expected):
    sql = BASE + "".join(
        f"CREATE STREAM C{n} WITH (LATENCY_TARGET = '{ms} ms') AS SELECT K, V FROM S;\n"
        for n, ms in enumerate(of_queries)
    )
    with InstanceHarness(sql, latency_target_ms=of_all) as world:
        assert world.instance._commit_interval_ms() == expected


@pytest.mark.parametrize(
    ("with_", "cpu_ms", "expected"),
    [
        ("", 10, 100),
        ("", 40, 320),
        ("", 400, 500),
        ("WITH (PRIORITY = 'high')", 40, 100),
        ("WITH (LATENCY_TARGET = '60 ms')", 40, 30),
    ],
)
def test_commits_that_cost_much_are_less_often_where_nothing_is_wanted_soon(
    with_: str, cpu_ms: int, expected: int
) -> None:
    with InstanceHarness(f"{BASE}CREATE STREAM C {with_} AS SELECT K, V FROM S;") as world:
        world.instance.commit.cpu_ns = cpu_ms * 1_000_000
        assert world.instance._commit_interval_ms() == expected


def test_another_number_of_partitions_is_an_error_where_a_log_cannot_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to be no change at all."""
    monkeypatch.setattr(MemoryLog, "drops_with_commits", False)
    world = InstanceHarness(BASE + COPY)
    world.send("s", rows(0, 20))
    world.settle()
    before = world.instance.deployed
    with pytest.raises(PartitionsDiffer, match="S declares 6 partitions and its topic s has 4"):
        world.deploy(SOURCE.format(n=6) + COPY)
    with pytest.raises(PartitionsDiffer, match="COPY declares 2 partitions and its topic COPY has 4"):
        world.deploy(BASE + COPY.replace("STREAM COPY AS", "STREAM COPY WITH (PARTITIONS=2) AS"))
    assert world.instance.deployed is before


def test_rows_of_insert_values_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment of 5,000 took half a minute."""
    source = "CREATE STREAM S (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
    rows = [f"INSERT INTO S (K, V) VALUES ({i}, 1);" for i in range(200)]
    copy = "CREATE STREAM C AS SELECT K, V FROM S;"
    world, equal, compared = InstanceHarness(source + copy), InsertValues.__eq__, list[object]()
    monkeypatch.setattr(InsertValues, "__eq__", lambda a, b: compared.append(a) or equal(a, b))
    for first, last in ((0, 150), (0, 200), (50, 200)):
        compared.clear()
        world.deploy(source + copy + "".join(rows[first:last]))
        assert len(compared) < 20 * len(rows)
    world.settle()
    assert len(world.records("C")) == 200

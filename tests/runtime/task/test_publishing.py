"""What a task says of itself while it publishes."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.app.status import statuses
from flowql.runtime.errors import LogFull
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.engine import resume
from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM COPY AS SELECT K, V + 1 AS W FROM T;
"""


def test_a_task_is_not_idle_while_it_publishes() -> None:
    """Its input was consumed and its output not in the exchange yet: the next task took what it had for all there was."""
    world = InstanceHarness(SQL)
    publish, seen = world.instance.publisher.publish, []

    def watched(task: Any, result: Any) -> None:
        seen.append((task.program.fused, task.idle))
        publish(task, result)
        seen.append((task.program.fused, task.idle))

    world.instance.publisher.publish = watched  # type: ignore[method-assign]
    for topic in ("s", "t"):
        world.send(topic, [(0, {"V": v}, v) for v in range(10)])
    world.settle()
    assert {fused for fused, _ in seen} == {False, True}, "both ways to consume and publish"
    assert not any(idle for _, idle in seen)
    assert all(task.idle for q in world.instance.queries.values() for task in q.built.tasks)
    assert [n for _, n in world.table("OUT")] == [1] * 10


def send(world: InstanceHarness, first: int) -> None:
    for topic in ("s", "t"):
        world.send(topic, [(0, {"V": v % 7}, v) for v in range(first, first + 10)])


def results(world: InstanceHarness) -> tuple[Any, Any]:
    return world.table("OUT"), world.values("COPY")


def undisturbed() -> tuple[Any, Any]:
    world = InstanceHarness(SQL)
    for first in (0, 10):
        send(world, first)
        world.settle()
    return results(world)


@pytest.mark.parametrize("query", ["CTAS_OUT", "CSAS_COPY"])
@pytest.mark.parametrize("error", [KeyError("a mistake"), ValueError("a value")], ids=["code", "value"])
def test_a_run_that_is_published_in_part_is_never_committed(query: str, error: Exception) -> None:
    """Its input was consumed: the query went on behind it, and what it had made of it was in no epoch."""
    world = InstanceHarness(SQL)
    send(world, 0)
    world.settle()
    publish = world.instance.publisher.publish

    def broken(task: Any, result: Any) -> None:
        if task.id.query == query:
            world.instance.publisher.publish = publish  # type: ignore[method-assign]
            raise error
        publish(task, result)

    world.instance.publisher.publish = broken  # type: ignore[method-assign]
    send(world, 10)
    world.rest()
    status = {s["id"]: s for s in statuses(world.instance)}
    assert f"could not be published: {type(error).__name__}: {error}" in status[query]["last_error"].replace('"', "'")
    assert [q for q, s in status.items() if s["last_error"]] == [query], "the other one has nothing to do with it"
    come_back(world)
    assert results(world) == undisturbed()


@pytest.mark.parametrize("query", ["CTAS_OUT", "CSAS_COPY"])
def test_a_query_whose_runs_cannot_be_published_stands_alone(query: str) -> None:
    """The instance ended, and so it did at each start, with all queries."""
    physical = MemoryPhysical()
    world = InstanceHarness(SQL, physical=physical)
    send(world, 0)
    world.settle()
    for start in range(3):
        publish = refusing(world, query)
        send(world, 10 + 10 * start)
        waiting(world)
        assert world.instance.fatal is None
        status = {s["id"]: s for s in statuses(world.instance)}
        assert "could not be published" in status.pop(query)["last_error"]
        assert [s["state"] for s in status.values()] == ["running"]
        made = len(world.values("COPY")) if query == "CTAS_OUT" else sum(n for _, n in world.table("OUT"))
        assert made == 20 + 10 * start, "the other one goes on"
        if start == 1:
            world.instance.stop()
            world.instance, world.driver = resume(world.log, physical)
            world.clock = world.instance.clock
        else:
            world.instance.publisher.publish = publish  # type: ignore[method-assign]
            if start == 2:
                come_back(world)
    fresh = InstanceHarness(SQL)
    for first in range(0, 40, 10):
        send(fresh, first)
        fresh.settle()
    assert results(world) == results(fresh)


class Blocked(MemoryLog):
    """No space for the engine while `full`."""

    full = False

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if self.full and transactional_id == "flowql":
            raise LogFull("no space left on device")
        return super().commit(transactional_id, epoch, transaction)


@pytest.mark.parametrize("query", ["CTAS_OUT", "CSAS_COPY"])
def test_what_was_cut_before_is_committed(query: str) -> None:
    """A commit is under way: what the query has made before belongs to it, and nothing of it is undone."""
    log = Blocked()
    world = InstanceHarness(SQL, log=log)
    send(world, 0)
    world.settle()
    log.full = True
    send(world, 10)
    waiting(world)
    assert world.instance.commit.blocked
    publish = refusing(world, query)
    send(world, 20)
    waiting(world)
    log.full = False
    waiting(world)
    assert len(world.values("COPY")) == (20 if query == "CSAS_COPY" else 30)
    assert sum(n for _, n in world.table("OUT")) == (20 if query == "CTAS_OUT" else 30)
    world.instance.publisher.publish = publish  # type: ignore[method-assign]
    come_back(world)
    fresh = InstanceHarness(SQL)
    for first in (0, 10, 20):
        send(fresh, first)
        fresh.settle()
    assert results(world) == results(fresh)


def waiting(world: InstanceHarness) -> None:
    for _ in range(40):
        world.driver.round()
        world.clock.advance(100)


def refusing(world: InstanceHarness, query: str) -> Any:
    """From now on; what it did before."""
    publish = world.instance.publisher.publish

    def broken(task: Any, result: Any) -> None:
        publish(task, result)
        if task.id.query == query:
            raise KeyError("a mistake")

    world.instance.publisher.publish = broken  # type: ignore[method-assign]
    return publish


def come_back(world: InstanceHarness) -> None:
    """Queries are tried again when their time has come."""
    for _ in range(400):
        world.driver.round()
        world.clock.advance(100)
    world.settle()

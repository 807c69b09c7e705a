"""`status` while generations are swapped: a query that serves is in every answer."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from flowql.runtime.app.status import statuses
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import ALONE, LikeKafka

IDS = ["CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME", "CTAS_OTHER"]


class Watched(InstanceHarness):
    """seen: what each answer of status holds, by round: ids with their states."""

    def __init__(self, sql: str, **config: Any) -> None:
        self.seen: list[dict[str, str]] = []
        super().__init__(sql, **config)
        self.seen.clear()

    def tick(self) -> None:
        super().tick()
        self.seen.append({s["id"]: s["state"] for s in statuses(self.instance)})


@pytest.mark.parametrize(
    ("log", "config"),
    [(MemoryLog, {}), (LikeKafka, ALONE)],
    ids=["replacing", "steps"],
)
def test_a_query_that_serves_is_in_every_answer_of_status(log: type[MemoryLog], config: dict[str, Any]) -> None:
    """Between the tasks of the generation that was built and those that serve it was in no answer."""
    world = Watched(CHAIN.format(over=0), log=log(), seed=1, rows_per_run=7, tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    for over in (15, 0):
        world.deploy(CHAIN.format(over=over))
        world.settle()
    assert world.instance.plan.queries[0].generation == 3
    assert {frozenset(answer) for answer in world.seen} == {frozenset(IDS)}
    assert {state for answer in world.seen for state in answer.values()} <= {"running", "restoring"}


def test_a_query_that_serves_is_in_every_answer_that_another_thread_gets() -> None:
    """With real threads, whatever falls into which moment."""
    wrong, looks, end = list[list[str]](), 0, Event()

    def look() -> None:
        nonlocal looks
        while not end.is_set():
            answer = [s["id"] for s in statuses(world.instance)]
            looks += 1
            if sorted(answer) != sorted(IDS):
                wrong.append(answer)

    with InstanceHarness(CHAIN.format(over=0), live=True) as world:
        world.send("s", sent(0, 40))
        world.settle()
        looking = Thread(target=look)
        looking.start()
        try:
            for over in (15, 0, 70):
                world.deploy(CHAIN.format(over=over))
                world.settle()
        finally:
            end.set()
            looking.join()
        assert world.instance.plan.queries[0].generation == 4
    assert looks
    assert not wrong

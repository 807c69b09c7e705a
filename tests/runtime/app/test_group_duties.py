"""What a member does beside its tasks: it learns what hangs, deletes what is left over, and opens writers of the plan only to write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from flowql.runtime.app import group, hung, plan_writer
from flowql.runtime.app.hung_topic import HungMicroBatch, release, write_hung
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.app.progress import state_of
from flowql.runtime.log.base import Producer
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, as_from_the_beginning, same, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka


class Counted(LikeKafka):
    """made: all producers, by their transactional ids."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, Any]] = []

    def producer(self, transactional_id: str) -> Producer:
        producer = super().producer(transactional_id)
        self.made.append((transactional_id, producer))
        return producer

    def left_open(self) -> list[str]:
        return sorted(name for name, producer in self.made if producer._failure is None)


def member(log: LikeKafka | None = None, **options: Any) -> InstanceHarness:
    world = InstanceHarness(CHAIN.format(over=0), log=log or LikeKafka(), tick_ms=10, **{**MEMBER, **options})
    world.send("s", sent(0, 40))
    world.settle()
    return world


def rounds(world: InstanceHarness, n: int) -> None:
    assert world.driver is not None
    for _ in range(n):
        world.driver.round()


def hangs(world: InstanceHarness, query: str) -> HungMicroBatch:
    plan = world.instance.running.by_id.get(query)
    assert plan is not None
    return HungMicroBatch(query, query, plan.definition, f"{query}/0_0", "another", 1_000, "f.py:3 slow")


def test_a_member_learns_what_hangs_before_it_begins_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would hang as the member before it."""
    monkeypatch.setattr(hung, "LOOK_MS", 1 << 40)
    world = member()
    write_hung(world.log, "flowql", [hangs(world, "CTAS_OTHER")], 1)
    rounds(world, 50)
    assert state_of(world.instance, "CTAS_OTHER") == "running", "it has not looked since"
    assert world.instance.group is not None
    world.instance.group.lose()
    world.send("s", sent(40, 20))
    rounds(world, 100)
    assert state_of(world.instance, "CTAS_OTHER") == "hung"
    assert world.lag("CTAS_OTHER") == 20
    assert len(world.values("BIG")) == 59


def test_a_member_learns_now_and_then_what_hangs_and_what_was_released() -> None:
    world = member()
    write_hung(world.log, "flowql", [hangs(world, "CTAS_OTHER")], 1)
    rounds(world, hung.ABSENT_MS // 10 + 2)  # there was no topic when it looked last
    assert state_of(world.instance, "CTAS_OTHER") == "hung"
    world.send("s", sent(40, 20))
    rounds(world, 20)
    assert world.lag("CTAS_OTHER") == 20
    assert release(world.log, "flowql", "one", ["CTAS_OTHER"], 2) == ["CTAS_OTHER"]
    rounds(world, hung.LOOK_MS // 10 + 2)
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60))


def staging(world: InstanceHarness) -> set[str]:
    return {t for t in world.log.topics() if "staging" in t or "letters-of" in t}


def test_the_leader_deletes_what_is_left_over_after_a_while() -> None:
    """Not at once: other members may be writing there still."""
    world = member()
    world.deploy(CHAIN.format(over=15))
    assert staging(world)
    assert world.driver is not None
    while world.instance.plan.queries[0].generation == 1:
        world.driver.round()
    assert staging(world)
    rounds(world, group.TIDY_MS // 10 - 20)
    assert staging(world)
    rounds(world, 60)
    assert not staging(world)
    rounds(world, 20)
    assert world.instance.group is not None
    assert world.instance.group.trouble == ""


def test_topics_that_cannot_be_deleted_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "TIDY_MS", 500)
    monkeypatch.setattr(group, "AGAIN_MS", 500)
    world, tried = member(), list[int]()
    delete = group.delete_leftovers

    def failing(host: Any, writers: Any) -> Any:
        tried.append(world.clock.timer_ms())
        if len(tried) < 3:
            raise group.LogUnavailable("no answer")
        return delete(host, writers)

    monkeypatch.setattr(group, "delete_leftovers", failing)
    world.deploy(CHAIN.format(over=15))
    assert world.driver is not None
    while world.instance.plan.queries[0].generation == 1:
        world.driver.round()
    tried.clear()
    rounds(world, 250)
    assert not staging(world)
    assert len(tried) == 3
    assert all(500 <= b - a < 1_000 for a, b in pairwise(tried))


def test_a_swap_is_begun_once_and_not_again_until_its_record_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writer of the plan fences that of another member, which may be about to deploy."""
    world, opened = member(), list[bool]()

    class Writer(PlanWriter):
        def __init__(self, *of: Any) -> None:
            opened.append(world.instance.deployed.swap is None)
            super().__init__(*of)

    world.deploy(CHAIN.format(over=15))
    monkeypatch.setattr(plan_writer, "PlanWriter", Writer)
    world.settle()
    assert world.instance.plan.queries[0].generation == 2
    assert opened[:2] == [True, False]
    assert opened.count(True) == 1


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_deployments_and_swaps_leave_no_producer_open(config: dict[str, Any]) -> None:
    log = Counted()
    world = member(log) if config is MEMBER else InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **config)
    world.settle()
    own = log.left_open()
    assert own == sorted(["feed", *(["flowql-one", "flowql-placement"] if config is MEMBER else ["flowql"])])
    for over in (15, 0):
        world.deploy(CHAIN.format(over=over))
        assert log.left_open() == own
        world.settle()
        assert log.left_open() == own
    assert world.instance.plan.queries[0].generation == 3

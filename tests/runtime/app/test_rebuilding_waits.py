"""When a built generation takes over: how near it must be, what status says that it waits for, and when another attempt comes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import groups_of
from flowql.runtime.app import group_swap, swap_turns
from flowql.runtime.app.comparing import ComparisonUnavailable
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.group_swap import GroupSwap
from flowql.runtime.app.rebuilding import Rebuilding
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, as_from_the_beginning, same, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka

PLACES: dict[str, tuple[type[MemoryLog], dict[str, Any]]] = {
    "embedded": (MemoryLog, {}),
    "kafka": (LikeKafka, ALONE),
    "member": (LikeKafka, MEMBER),
}
anywhere = pytest.mark.parametrize("place", PLACES)
WAITS = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def built(place: str, over: int = 15) -> InstanceHarness:
    """A generation is being built: nothing of it has run."""
    log, config = PLACES[place]
    world = InstanceHarness(CHAIN.format(over=0), log=log(), tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=over))
    return world


def why(world: InstanceHarness) -> str:
    return world.instance.deployer.swaps.why.get("CSAS_BIG@2", "")


def rounds(world: InstanceHarness, n: int) -> None:
    assert world.driver is not None
    for _ in range(n):
        world.driver.round()


def test_a_generation_takes_over_where_the_serving_one_has_stopped() -> None:
    """It is near enough before that, and reads the rest while the serving one stands still."""
    world = built("embedded")
    with pytest.MonkeyPatch.context() as never:
        never.setattr(Rebuilding, "next", lambda self, now_ms: None)
        rounds(world, 60)
        (group,) = groups_of(world.instance.deployed)
        assert world.instance.rebuilding.far(group) == ""
        world.instance.manager.hold("CSAS_BIG@2")
        world.send("s", sent(40, 20))
        rounds(world, 60)
    rounds(world, 30)
    assert world.instance.query_states.of("CSAS_BIG").swapping
    assert world.instance.plan.queries[0].generation == 1
    world.instance.manager.resume("CSAS_BIG@2")
    rounds(world, 30)
    assert world.instance.plan.queries[0].generation == 2
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


@anywhere
def test_a_generation_takes_over_from_a_slower_one_that_it_is_ahead_of(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is further ahead than would be near enough behind."""
    monkeypatch.setattr(swap_turns, "NEAR_RECORDS", 5)
    log, config = PLACES[place]
    world = InstanceHarness(CHAIN.format(over=0), log=log(), tick_ms=10, **config)
    world.send("s", sent(0, 10))
    world.settle()
    world.instance.manager.hold("CSAS_BIG")
    world.send("s", sent(10, 30))
    world.deploy(CHAIN.format(over=15))
    rounds(world, 400)
    assert world.instance.plan.queries[0].generation == 2
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 40))


@pytest.mark.parametrize("place", ["embedded", "kafka"])
def test_a_generation_takes_over_with_all_rows_between_its_queries_and_under_load(place: str) -> None:
    """A query of it that stands still has read nothing of the one before it. When it goes on, records come all the time."""
    world = built(place)
    rows = 40
    world.instance.manager.hold("CTAS_COUNTS@2")
    rounds(world, 100)
    assert world.instance.query_states.of("CSAS_BIG").swapping
    assert world.instance.plan.queries[0].generation == 1
    world.instance.manager.resume("CTAS_COUNTS@2")
    for _ in range(60):
        world.send("s", sent(rows, 5))
        rows += 5
        rounds(world, 2)
    assert world.instance.plan.queries[0].generation == 2
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), rows))


@pytest.mark.parametrize(("near", "waits"), [(39, True), (40, False)])
def test_a_generation_alone_is_near_enough_up_to_the_limit(
    near: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The serving generation has read 40 records since the first look, and the new one has read none of them."""
    monkeypatch.setattr(Rebuilding, "next", lambda self, now_ms: None)
    monkeypatch.setattr(swap_turns, "NEAR_RECORDS", near)
    world = built("embedded")
    rounds(world, 60)
    (group,) = groups_of(world.instance.deployed)
    assert world.instance.rebuilding.far(group) == "", "the first look"
    world.instance.manager.hold("CSAS_BIG@2")
    world.send("s", sent(40, 40))
    rounds(world, 60)
    assert world.instance.rebuilding.far(group) == ("40 records behind" if waits else "")


def test_where_nothing_serves_a_generation_reads_up_to_what_was_there() -> None:
    world = built("embedded")
    (group,) = groups_of(world.instance.deployed)
    turns, alone = world.instance.rebuilding._turns, replace(group, gone=(), name="alone")
    at = {TopicPartition("s", p): 0 for p in range(2)}
    ends = world.log.admin().end_offsets(list(at))
    assert turns.lag(alone, {}, at) == "40 records behind"
    world.send("s", sent(40, 20))
    assert turns.lag(alone, {}, at) == "40 records behind", "as it was at the first look"
    assert turns.lag(alone, {}, ends) == ""
    assert turns.lag(replace(alone, name="other"), {}, at) == "60 records behind"


def test_what_a_swap_waits_for_is_said_with_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebuilding, "next", lambda self, now_ms: None)
    world = built("embedded")
    instance, found = world.instance, list[str]()
    (group,) = groups_of(instance.deployed)

    def look() -> None:
        found.append(instance.rebuilding.far(group))

    instance.query_states.suspend("CTAS_COUNTS@2", ValueError("refused"))
    look()
    instance.query_states.stop("CTAS_COUNTS@2", TopicMissing("what it reads is gone"))
    look()
    instance.query_states.suspend("CSAS_BIG@2", ValueError("refused"))
    look()
    del instance.queries["CSAS_BIG@2"]
    look()
    world.log.delete_topic("COUNTS@2")
    look()
    assert found == [
        "CTAS_COUNTS@2: refused by the log",
        "CTAS_COUNTS@2: TopicMissing: what it reads is gone",
        "CSAS_BIG@2: refused by the log",
        "CSAS_BIG@2: not started",
        "there is no topic COUNTS@2",
    ]


def failing(attempts: list[int], clock_ms: Callable[[], int]) -> Callable[..., Coroutine]:
    def together(self: Rebuilding, group: object, limit_ms: int) -> Coroutine:
        attempts.append(clock_ms())
        yield None
        raise ComparisonUnavailable(f"attempt {len(attempts)}")

    return together


@pytest.mark.parametrize("place", ["embedded", "kafka"])
def test_a_swap_that_fails_is_tried_again_later_and_later(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, attempts = built(place), list[int]()
    with monkeypatch.context() as never:
        never.setattr(Rebuilding, "_together", failing(attempts, world.clock.timer_ms))
        world.tick_ms = 100
        while len(attempts) < len(WAITS) + 1:
            rounds(world, 1)
            if len(attempts) == 1 and why(world):
                assert why(world) == "attempt 1"
                running = {q: world.instance.query_states.of(q).may_run for q in world.instance.queries}
                assert all(running.values()), "both generations go on"
        took = [b - a for a, b in itertools.pairwise(attempts)]
        assert all(wait <= ms <= wait + 1_000 for ms, wait in zip(took, WAITS, strict=True)), took
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 40))
    assert why(world) == ""


def test_members_try_a_swap_again_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    world = built("member")
    assert world.instance.group is not None
    turns = world.instance.group.swap._turns
    (group,) = groups_of(world.instance.deployed)
    waits = list[int]()
    for n in range(len(WAITS)):
        turns.postpone(group, "")
        at_ms, failures = turns._next_try[group.name]
        waits.append(at_ms - world.clock.timer_ms())
        assert failures == n + 1
    assert waits == WAITS
    turns._next_try[group.name] = world.clock.timer_ms() + 2_000, 3
    rounds(world, 150)
    assert world.instance.deployed.swaps == 0
    rounds(world, 150)
    assert world.instance.deployed.swaps == 1
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 40))
    assert turns._next_try == {}


def test_members_wait_until_all_tasks_stop_as_long_as_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupSwap, "_is_ready", lambda swap, task, now_ms: False)
    world = built("member")
    assert world.driver is not None
    while world.instance.deployed.swap is None:
        world.driver.round()
    begun = world.clock.timer_ms()
    while world.instance.deployed.swap is not None:
        world.driver.round()
    assert group_swap.TOGETHER_MS <= world.clock.timer_ms() - begun <= group_swap.TOGETHER_MS + 1_000
    said = why(world)
    assert said == "CSAS_BIG@2/0_0, CSAS_BIG@2/0_1, CTAS_COUNTS@2/0_0 did not stop within 15 s"
    assert all(world.instance.query_states.of(q).may_run for q in world.instance.queries)

"""Swaps of members while what serves stands still: its tasks are parked all the same, or status says why they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowql.runtime.app import group_swap
from flowql.runtime.app.query_state import STOPPED, SUSPENDED
from flowql.runtime.app.status import statuses
from flowql.runtime.errors import OffsetOutOfRange, RecordRefused
from flowql.runtime.log.base import TopicPartition
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, as_from_the_beginning, same, sent
from tests.runtime.app.test_swapping import MEMBER, LikeKafka


class Refusing(LikeKafka):
    """Takes nothing that queries write to the topics in `refused`; who carries out a swap may."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = set[str]()

    def commit(self, transactional_id: str, epoch: int, transaction: Any) -> int:
        for tp, _ in transaction.batches():
            if tp.topic in self.refused and not transactional_id.endswith("-plan"):
                error = RecordRefused(f"{tp}: the record is too large")
                error.partition = tp
                raise error
        return super().commit(transactional_id, epoch, transaction)


def member(log: LikeKafka) -> InstanceHarness:
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    return world


def rounds(world: InstanceHarness, done: Callable[[], bool], most: int = 3_000) -> None:
    for _ in range(most):
        if done():
            return
        world.driver.round()
    raise AssertionError("it does not come to that")


def why(world: InstanceHarness) -> list[str]:
    return [s["building"]["why"] for s in statuses(world.instance) if s["building"]]


@pytest.fixture
def taken_back(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Swaps that were."""
    found, really = list[Any](), group_swap.taken_back
    monkeypatch.setattr(group_swap, "taken_back", lambda deployed: found.append(deployed) or really(deployed))
    return found


def test_a_query_whose_results_are_refused_is_parked_as_of_its_last_commit(taken_back: list[Any]) -> None:
    log = Refusing()
    world = member(log)
    log.refused = {"BIG"}
    world.send("s", sent(40, 20))
    states = world.instance.query_states
    rounds(
        world, lambda: states.of("CSAS_BIG").state is SUSPENDED and states.of("CSAS_BIG").backoff.failures > 5, 9_000
    )
    world.deploy(CHAIN.format(over=15))
    rounds(world, lambda: world.instance.deployer.rebuilt)
    assert not taken_back
    log.refused = set()
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


def test_a_stopped_query_is_parked_and_the_one_that_takes_its_place_goes_on(taken_back: list[Any]) -> None:
    world = member(LikeKafka())
    states = world.instance.query_states
    states.stop("CSAS_BIG", OffsetOutOfRange("what was next is gone"))
    world.send("s", sent(40, 20))
    world.deploy(CHAIN.format(over=15))
    rounds(world, lambda: world.instance.deployer.rebuilt)
    assert not taken_back
    assert states.of("CSAS_BIG").state is STOPPED, "it is known no more"
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


def test_a_query_that_is_parked_without_tasks_goes_on_when_the_swap_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, taken_back: list[Any]
) -> None:
    log = Refusing()
    world = member(log)
    log.refused = {"BIG"}
    world.send("s", sent(40, 20))
    states = world.instance.query_states
    rounds(world, lambda: states.of("CSAS_BIG").state is SUSPENDED)
    monkeypatch.setattr(group_swap, "TOGETHER_MS", 1_000)
    with monkeypatch.context() as never:
        never.setattr(group_swap.GroupSwap, "_is_ready", lambda swap, task, now_ms: False)
        world.deploy(CHAIN.format(over=15))
        rounds(world, lambda: len(taken_back) > 0 and world.instance.deployed.swap is None)
    world.deploy(CHAIN.format(over=0))
    log.refused = set()
    world.send("s", sent(60, 20))
    world.settle()
    assert world.instance.deployer.rebuilt
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 80)), "nothing is lost or doubled"


def test_a_member_that_has_parked_a_query_without_tasks_can_start_over() -> None:
    log = Refusing()
    world = member(log)
    log.refused = {"BIG"}
    world.send("s", sent(40, 20))
    rounds(world, lambda: world.instance.query_states.of("CSAS_BIG").state is SUSPENDED)
    world.deploy(CHAIN.format(over=15))
    rounds(world, lambda: world.instance.deployer.rebuilt)
    log.refused = set()
    assert world.instance.group is not None
    world.instance.group.lose()
    for _ in range(20):
        world.driver.round()
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


def test_a_swap_does_not_begin_where_nobody_knows_what_would_have_to_stop() -> None:
    other = "CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', PARTITIONS=2);\n"
    world = InstanceHarness(
        CHAIN.format(over=0) + other + "CREATE STREAM M AS SELECT K, V FROM T;\n", log=LikeKafka(), tick_ms=10, **MEMBER
    )
    world.send("t", sent(0, 40))
    world.settle()
    world.log.delete_topic("t")
    world.deploy(CHAIN.format(over=0) + "CREATE STREAM M AS SELECT K, V FROM S;\n")
    rounds(world, lambda: any("CSAS_M, which serves, cannot stop" in w for w in why(world)))
    assert world.instance.deployed.swaps == 0
    assert "reads t, which does not exist" in why(world)[0]


@pytest.mark.parametrize("config", [MEMBER, {"changelogs": True}], ids=["member", "alone"])
def test_a_swap_does_not_begin_without_the_topic_it_is_about(config: dict[str, Any]) -> None:
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=15))
    world.log.delete_topic("SOME")
    rounds(world, lambda: "there is no topic SOME" in why(world))
    assert world.log.end_offset(TopicPartition("BIG", 0)) > 0
    world.log.create_topic("SOME", 2)
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 40))

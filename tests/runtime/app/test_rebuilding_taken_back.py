"""A swap that fails at its last step: both generations go on from the last commit, and it is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.app.rebuilding import Rebuilding
from flowql.runtime.errors import LogUnavailable
from tests.runtime.app import test_rebuilding_waits
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_group_duties import Counted
from tests.runtime.app.test_rebuilding import CHAIN, as_from_the_beginning, same, sent
from tests.runtime.app.test_rebuilding_waits import built, rounds, why
from tests.runtime.app.test_swapping import ALONE

AGAIN = ["CSAS_BIG", "CSAS_BIG@2", "CTAS_COUNTS", "CTAS_COUNTS@2", "CTAS_SOME", "CTAS_SOME@2"]


def run_until(world: InstanceHarness, failures: list[str]) -> None:
    for _ in range(400):
        rounds(world, 1)
        if failures:
            return
    raise AssertionError("the swap never came to it")


def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[InstanceHarness, Counted]:
    """An instance that writes the plan with a producer of its own, and a log that knows which producers are open."""
    monkeypatch.setitem(test_rebuilding_waits.PLACES, "kafka", (Counted, ALONE))
    world = built("kafka")
    assert isinstance(world.log, Counted)
    return world, world.log


def goes_on_as_it_was(world: InstanceHarness) -> None:
    """Every query of both generations has its tasks, and processes what comes."""
    instance = world.instance
    rounds(world, 10)
    assert all(instance.queries[n].built.tasks for n in AGAIN)
    assert all(instance.query_states.of(n).may_run for n in instance.queries)
    assert all(not instance.query_states.of(n).swapping for n in instance.queries)
    assert instance.deployed.swap is None
    world.send("s", sent(40, 20))
    rounds(world, 60)  # until it is committed
    assert {n: world.lag(n) for n in AGAIN} == dict.fromkeys(AGAIN, 0)
    assert len(world.values("BIG")) == 59, "the old generation serves"


def test_a_commit_of_a_swap_that_fails_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world, failures, commit = built("embedded"), list[str](), Rebuilding._commit

    def failing(self: Rebuilding, *arguments: Any) -> Coroutine:
        if not failures:
            failures.append("no space left")
            raise LogUnavailable("no space left")
        yield from commit(self, *arguments)

    monkeypatch.setattr(Rebuilding, "_commit", failing)
    run_until(world, failures)
    assert why(world) == "no space left"
    goes_on_as_it_was(world)
    rounds(world, 150)
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


@pytest.mark.parametrize("on_record", [False, True])
def test_whether_the_record_of_a_swap_was_written_decides_how_it_goes_on(
    on_record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, log = counted(monkeypatch)
    own, failures, write = log.left_open(), list[str](), PlanWriter.write

    def failing(self: PlanWriter, *arguments: Any, **named: Any) -> None:
        if failures:
            return write(self, *arguments, **named)
        if on_record:
            write(self, *arguments, **named)
        failures.append("no answer")
        raise LogUnavailable("no answer")

    monkeypatch.setattr(PlanWriter, "write", failing)
    run_until(world, failures)
    assert why(world) == "no answer"
    while world.instance.deployed.swap is not None:
        rounds(world, 1)
    assert world.instance.deployed.swaps == int(on_record)
    if on_record:
        world.send("s", sent(40, 20))
    else:
        with monkeypatch.context() as no_other:
            no_other.setattr(Rebuilding, "next", lambda self, now_ms: None)
            goes_on_as_it_was(world)
    assert log.left_open() == own
    rounds(world, 250)
    world.settle()
    assert world.instance.plan.queries[0].generation == 2
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


@pytest.mark.parametrize("step", ["_together", "_record"])
def test_an_attempt_that_fails_leaves_no_writer_of_the_plan(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fence that of another process that is about to deploy."""
    world, log = counted(monkeypatch)
    own, failures = log.left_open(), list[str]()

    def failing(self: Rebuilding, *_: Any) -> Coroutine:
        yield None
        failures.append("no answer")
        raise LogUnavailable("no answer")

    with monkeypatch.context() as once:
        once.setattr(Rebuilding, step, failing)
        run_until(world, failures)
        rounds(world, 2)
        assert ("flowql-plan" in [name for name, _ in log.made], log.left_open()) == (True, own)
        assert why(world) == "no answer"
    rounds(world, 250)
    world.settle()
    assert log.left_open() == own
    assert world.instance.plan.queries[0].generation == 2

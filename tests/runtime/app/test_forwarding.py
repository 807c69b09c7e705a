"""When a query may go on with a new text: reasons, what is held meanwhile, and the offsets on record."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.deployed import Deployed, Forward
from flowql.runtime.app import forwarding
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.forwarding import REST_MS, at_rest, forwarded, recorded, refuse_forward
from flowql.runtime.errors import ForwardUnsupported, TopicMissing
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_consistent_snapshot import BY_KEY, BY_VALUE, SOURCE, free, one_run_per_slice, rows, steps

ONE, TWO = "CTAS_A", "CTAS_C"  # one with a part, and one with a repartition between two


@pytest.fixture
def world() -> InstanceHarness:
    """In the middle of its input."""
    world = InstanceHarness(SOURCE.format(n=2) + BY_KEY + BY_VALUE, rows_per_run=10)
    one_run_per_slice(world)
    world.send("s", rows(0, 600))
    steps(world, 9)
    return world


def run(world: InstanceHarness, coroutine: Coroutine, rounds: int = 300) -> None:
    for _ in range(rounds):
        if next(coroutine, "ended") == "ended":
            return
        steps(world, 1)
    raise AssertionError("it never ends")


def held(world: InstanceHarness) -> list[str]:
    return [n for n in (ONE, TWO) if world.instance.query_states.of(n).swapping]


def test_queries_of_this_deployment_alone_get_a_new_text() -> None:
    after = Deployed(id=3, forwards=(Forward("A", 2), Forward("B", 3), Forward("A", 3)))
    assert forwarded(after) == ["B", "A"]
    assert forwarded(Deployed(id=4, forwards=after.forwards)) == []
    refuse_forward(Deployed(id=4, forwards=after.forwards))
    with pytest.raises(ForwardUnsupported, match=r"^B, A cannot change without a rebuild while many"):
        refuse_forward(after)


def test_a_query_of_one_part_is_held_where_it_is_and_others_are_drained(world: InstanceHarness) -> None:
    run(world, at_rest(world.instance, [ONE, TWO]))
    assert (held(world), free(world)) == ([ONE, TWO], True)
    assert not any(x.has_rows for t in world.instance.queries[TWO].built.tasks for x in t.exchanges.values())
    processed = sum(i.position for t in world.instance.queries[TWO].built.tasks for i in t.logs.values())
    assert 0 < processed < 600


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("failed", r"CTAS_C does not run, and rows are between its tasks: a mistake"),
        ("restoring", r"the state of CTAS_C is being restored: deploy again when it runs"),
        ("slow", r"rows are between the tasks of CTAS_C after 5 s: deploy again"),
    ],
)
def test_what_keeps_it_from_draining_is_said_and_all_go_on(world: InstanceHarness, trouble: str, reason: str) -> None:
    clock, states = world.clock, world.instance.query_states
    coroutine = at_rest(world.instance, [ONE, TWO])
    assert next(coroutine) is None
    assert held(world) == [ONE]
    if trouble == "failed":
        states.fail(TWO, "a mistake")
    elif trouble == "restoring":
        world.instance.queries[TWO].built.tasks[0].status = TaskStatus.RESTORING
    else:
        world.instance.manager.hold(TWO)
        clock.advance(REST_MS)  # type: ignore[attr-defined]
        assert next(coroutine) is None
        clock.advance(1)  # type: ignore[attr-defined]
    with pytest.raises(ForwardUnsupported, match=reason):
        next(coroutine)
    assert (held(world), free(world)) == ([], True)


@pytest.mark.parametrize(("stopped", "why"), [(False, "it is paused"), (True, "TopicMissing: gone")])
def test_a_query_that_does_not_run_goes_on_with_a_new_text_only_when_nothing_is_under_way(
    world: InstanceHarness, stopped: bool, why: str
) -> None:
    states = world.instance.query_states
    if stopped:
        world.settle()
        states.stop(TWO, TopicMissing("gone"))
    else:
        states.set_paused([TWO])
    refused = rf"CTAS_C does not run \({why}\), and rows are between its tasks: let it run, and deploy again"
    with pytest.raises(ForwardUnsupported, match=refused):
        next(at_rest(world.instance, [ONE, TWO]))
    assert held(world) == []


def test_a_paused_query_with_nothing_under_way_is_held(world: InstanceHarness) -> None:
    world.settle()
    world.instance.query_states.set_paused([TWO])
    run(world, at_rest(world.instance, [TWO]))
    assert held(world) == [TWO]


def test_offsets_on_record_are_those_of_the_last_commit(world: InstanceHarness) -> None:
    assert world.driver is not None
    world.driver.commit()
    steps(world, 3)  # beyond it
    after = Deployed(id=2, forwards=(Forward(ONE, 1), Forward(ONE, 2)))
    old, new = recorded(world.instance, after).forwards
    assert old == Forward(ONE, 1)
    committed = {r.partition: r.read()["positions"]["s"] for r in forwarding._committed(world.instance, ONE)}
    assert sorted(committed) == [0, 1]
    assert new.reads == tuple(("s", p, at) for p, at in sorted(committed.items()))
    assert all(0 < at < 600 for at in committed.values())
    assert new.results == tuple(("A", p, len([r for r in world.records("A") if r[0] == p])) for p in (0, 1))


def test_results_that_the_log_has_refused_put_rows_under_way_again(world: InstanceHarness) -> None:
    world.settle()
    world.instance.query_states.suspend(TWO, ValueError("refused"))
    with pytest.raises(ForwardUnsupported, match=r"CTAS_C does not run \(ValueError: refused\)"):
        recorded(world.instance, Deployed(id=2, forwards=(Forward(TWO, 2),)))

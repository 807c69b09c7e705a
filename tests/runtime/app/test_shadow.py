"""Generations that are built and held back: until they are promoted nothing of them is to be seen, and they may be abandoned."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.compiler.plan import codec
from flowql.compiler.plan.deployed import Deployed, groups_of
from flowql.deploy.request import DeployRequest
from flowql.errors import CommandError
from flowql.runtime.app import group
from flowql.runtime.app.comparing import ComparisonUnavailable
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.app.swapping import begun
from flowql.runtime.errors import CommitsBlocked, RuntimeFailure
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.server.on_runtime import RuntimeEngine
from flowql.server.service import Service
from tests.runtime.app.engine import FullLog
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import CHAIN, SOURCE, as_from_the_beginning, reopened, same, sent
from tests.runtime.app.test_swapping import LikeKafka

pytestmark = pytest.mark.turns("instances")

TWO = SOURCE + "".join(
    f"CREATE TABLE {name} AS SELECT K, COUNT(*) AS N FROM S WHERE V > {{{name.lower()}}} GROUP BY K;\n"
    for name in ("A", "B")
)


class Shadow(InstanceHarness):
    def __init__(self, sql: str, **options: Any) -> None:
        super().__init__(sql, **options)
        self.instance.await_step = self.driver.round

    @property
    def service(self) -> Service:
        engine = RuntimeEngine(self.instance)
        engine.extents = lambda _topics, _whole: {}  # type: ignore[method-assign]
        engine.free_bytes = lambda: None  # type: ignore[method-assign]
        return Service(engine)

    def shadow(self, sql: str, **request: Any) -> dict[str, Any]:
        return self.service.deploy(
            plan_of(sql, self.instance.deployed.plan), DeployRequest(**{"shadow": True, **request})
        )

    def building(self, query: str) -> dict[str, Any] | None:
        found = self.service.status()["queries"]
        return next(q["building"] for q in found if q["id"] == query)


# What the log is, and how many instances there may be.
PLACES: dict[str, dict[str, Any]] = {
    "embedded": {},
    "kafka": {"changelogs": True, "tick_ms": 10},
    "member": {"changelogs": True, "shared": True, "process_id": "one", "threads": 1, "tick_ms": 10},
}
anywhere = pytest.mark.parametrize("place", PLACES)


@pytest.fixture(autouse=True)
def tidied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "TIDY_MS", 0)


def started(over: int, place: str = "embedded", **options: Any) -> Shadow:
    log = MemoryLog() if place == "embedded" else LikeKafka()
    world = Shadow(CHAIN.format(over=over), log=log, **PLACES[place], **options)
    world.send("s", sent(0, 40))
    world.settle()
    return world


@anywhere
@pytest.mark.parametrize("seed", range(2))
def test_nothing_of_it_is_to_be_seen_until_it_is_promoted(seed: int, place: str) -> None:
    world = started(0, place, seed=seed, rows_per_run=7)
    world.shadow(CHAIN.format(over=10))
    world.send("s", sent(40, 20))
    world.settle()
    assert world.building("CSAS_BIG")["why"] == "built, waits for promote"
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60)), "the serving one continues"
    assert world.service.promote(None) == ["CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME"]
    world.send("s", sent(60, 20))
    world.settle()
    assert world.instance.deployer.rebuilt
    assert world.instance.deployed.held == ()
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 80))


def test_a_deployment_without_shadow_does_not_wait_for_promote() -> None:
    """Until the next look at the generation its status said so, and `flowql deploy` ended with that sentence before the swap."""
    world = started(0)
    world.shadow(CHAIN.format(over=10))
    world.settle()
    world.instance.rebuilding.next = lambda now_ms: None  # type: ignore[method-assign]
    world.shadow(CHAIN.format(over=10), shadow=False)
    assert world.instance.deployed.held == ()
    building = world.building("CSAS_BIG")
    assert building is not None
    assert building["why"] == ""


@anywhere
def test_what_is_abandoned_leaves_nothing(place: str) -> None:
    world = started(0, place)
    world.shadow(CHAIN.format(over=10), refresh=("CTAS_OTHER",))
    world.settle()
    assert world.service.abandon(None) == ["CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME", "CTAS_OTHER"]
    world.settle()
    assert world.instance.deployer.rebuilt
    for _ in range(20):
        world.driver.round()
    assert not [t for t in world.log.topics() if "@" in t or "staging" in t or "letters-of" in t]
    assert not [t for t in world.instance.state.committed_tasks() if "@" in t]
    world.send("s", sent(40, 20))
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60))
    assert {q.generation for q in world.instance.plan.queries} == {1}


def test_groups_are_promoted_and_abandoned_one_by_one() -> None:
    world = Shadow(TWO.format(a=0, b=0))
    world.send("s", sent(0, 40))
    world.settle()
    world.shadow(TWO.format(a=10, b=20))
    world.settle()
    assert world.service.promote("a") == ["CTAS_A"]
    world.settle()
    assert (world.building("CTAS_A"), world.building("CTAS_B")["generation"]) == (None, 2)
    assert world.service.abandon("B") == ["CTAS_B"]
    world.settle()
    assert world.instance.deployer.rebuilt
    assert [q.generation for q in world.instance.plan.queries] == [2, 1]
    fresh = as_two(10, 0)
    assert [world.table(t) for t in "AB"] == [fresh.table(t) for t in "AB"]


def as_two(a: int, b: int) -> InstanceHarness:
    world = InstanceHarness(TWO.format(a=a, b=b))
    world.send("s", sent(0, 40))
    world.settle()
    return world


@anywhere
def test_it_waits_through_pauses_and_restarts_and_another_deployment_ends_the_waiting(place: str) -> None:
    world = started(0, place)
    world.shadow(CHAIN.format(over=10))
    world.service.pause(["OTHER"], paused=True)
    world.settle()
    assert world.instance.deployed.held == ("CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME")
    world.instance.close()
    world.instance = Instance(world.log, world.instance.state._physical, world.clock, world.instance.config)
    world.driver = Driver(world.instance, tick=world.tick)
    world.instance.await_step = world.driver.round
    world.instance.resume()
    world.settle()
    assert world.building("CSAS_BIG")["why"] == "built, waits for promote"
    world.service.pause(["OTHER"], paused=False)
    done = world.service.planned(plan_of(CHAIN.format(over=10), world.instance.deployed.plan), DeployRequest())
    assert (done["waiting"], done["held"]) == (["CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME"], [])
    world.shadow(CHAIN.format(over=10), shadow=False)
    world.settle()
    assert world.instance.deployer.rebuilt
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 40))


def test_a_rollback_drops_it_and_a_removal_goes_on() -> None:
    world = started(0)
    world.shadow(CHAIN.format(over=10))
    world.driver.round()
    world.shadow(CHAIN.format(over=0), prune=True, shadow=False)
    world.settle()
    assert world.instance.deployed.held == ()
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 40))


def test_what_is_asked_of_nothing_has_a_code() -> None:
    world = started(0)
    for ask in (world.service.promote, world.service.abandon):
        with pytest.raises(CommandError, match="no generation is being built") as found:
            ask(None)
        assert found.value.code == "FQ5215"
    with pytest.raises(CommandError, match="no generation of BIG is being built") as found:
        world.service.diff("BIG")
    assert found.value.code == "FQ5215"
    world.instance.deploy(plan_of(CHAIN.format(over=10), world.instance.plan))
    with pytest.raises(CommandError, match="not held back"):
        world.service.promote("BIG")


@anywhere
@pytest.mark.parametrize("rounds", [1, 6])
def test_rows_are_compared_at_one_place_of_the_input(place: str, rounds: int) -> None:
    world = started(0, place)
    more = CHAIN.format(over=10).replace("COUNT(*) AS N FROM BIG", "COUNT(*) AS N, MAX(V) AS M FROM BIG")
    world.shadow(more)
    world.settle()
    world.send("s", sent(40, 20))
    for _ in range(rounds):  # the two are in the middle of it
        world.driver.round()
    found = world.service.diff("big")
    assert not any(world.instance.query_states.of(name).swapping for name in world.instance.queries), "both go on"
    assert (found["missing"], found["extra"], found["different"]) == (10, 0, 0)
    assert found["serving"] - found["built"] == 10
    world.settle()
    assert found["examples"]["missing"][0]["V"] in range(1, 11)
    found = world.service.diff("CTAS_COUNTS")
    assert (found["serving"], found["built"], found["different"], found["missing"]) == (5, 5, 5, 0)
    assert found["examples"]["different"][0] == {"serving": {"K": 0, "N": 11}, "built": {"K": 0, "N": 9}}
    assert (found["keys"], found["only_built"]) == (["K"], ["M"])
    world.settle()
    assert world.building("CSAS_BIG")["why"] == "built, waits for promote", "and goes on waiting"
    world.send("s", sent(60, 20))
    world.settle()
    world.service.promote("SOME")
    world.settle()
    fresh = as_from_the_beginning(more, 80)
    assert world.table("COUNTS") == fresh.table("COUNTS")


def test_all_queries_of_both_generations_are_held_while_they_are_compared() -> None:
    world = started(0)
    world.shadow(CHAIN.format(over=10))
    world.settle()
    (group,) = groups_of(world.instance.deployed)
    held, states = set[str](), world.instance.query_states
    world.instance.deployer.side_by_side(
        group, lambda: held.update(q for q in world.instance.queries if states.of(q).swapping)
    )
    assert held == {f"{q}{g}" for q in ("CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME") for g in ("", "@2")}
    assert not any(states.of(q).swapping for q in world.instance.queries)


def test_a_comparison_while_commits_do_not_get_through_ends_and_holds_no_query() -> None:
    log = FullLog()
    world = Shadow(CHAIN.format(over=0), log=log, tick_ms=10)
    world.send("s", sent(0, 40))
    world.settle()
    world.shadow(CHAIN.format(over=10))
    world.settle()
    world.send("s", sent(40, 20))
    log.full = True
    while not world.instance.commit.blocked:
        world.driver.round()
        world.clock.advance(50)
    with pytest.raises(CommitsBlocked, match=r"no space left on device.*nothing has changed"):
        world.service.diff("big")
    log.full = False
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60))
    assert world.service.diff("big")["missing"] == 10


@anywhere
@pytest.mark.parametrize("seed", range(3))
def test_what_comes_while_generations_are_compared_is_in_both_or_said(place: str, seed: int) -> None:
    world = started(0, place, seed=seed, rows_per_run=3)
    world.shadow(CHAIN.format(over=0), refresh=("CSAS_BIG",))
    world.settle()
    numbers, tick = iter(range(40, 600, 7)), world.driver._tick

    def fed() -> None:
        tick()
        if (n := next(numbers, None)) is not None:
            world.send("s", sent(n, 7))

    world.driver._tick = fed
    for name in ("BIG", "COUNTS") * 2:
        found = world.service.diff(name)
        assert found["missing"] == 0
        assert found["extra"] + found["different"] <= found["ahead"]
        assert place == "member" or found["ahead"] == 0
    world.driver._tick = tick
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), next(numbers, 600)))


def test_members_that_are_asked_at_once_compare_one_after_the_other() -> None:
    """A comparison that is given up leaves nothing behind: who comes next finds the tasks running."""
    world = started(0, "member")
    world.shadow(CHAIN.format(over=10))
    world.settle()
    deployed, swap = world.instance.deployed, world.instance.deployer.swaps
    (group,) = groups_of(deployed)

    def fails() -> None:
        raise RuntimeFailure("who asked has gone")

    with pytest.raises(RuntimeFailure, match="has gone"):
        world.instance.deployer.side_by_side(group, fails)
    assert world.instance.deployed.swap is None
    assert world.service.diff("BIG")["missing"] == 10
    world.send("s", sent(40, 20))
    world.settle()
    assert swap.why[group.name] == "built, waits for promote"
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60))


def test_a_generation_is_not_compared_with_one_that_lost_its_state() -> None:
    """Which stands still. `diff` compared its 40 rows with as many as the built one had at that moment: none."""
    world = started(0)
    world.shadow(CHAIN.format(over=10))
    world.settle()
    world.instance.commit.flush()
    world.instance.close()
    reopened(world, MemoryPhysical())
    world.instance.await_step = world.driver.round
    assert world.instance.state_lost
    for _ in range(3):
        with pytest.raises(CommandError, match="stopped where its state was lost"):
            world.service.diff("BIG")
        world.settle()


def test_a_comparison_whose_asker_died_is_ended_by_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowql.runtime.app.group_swap.TOGETHER_MS", 2_000)
    world = started(0, "member")
    world.shadow(CHAIN.format(over=10))
    world.settle()
    (group,) = groups_of(world.instance.deployed)
    monkeypatch.setattr("flowql.runtime.app.comparing._let_go", lambda host, number: False)
    with pytest.raises(ComparisonUnavailable, match="went on before"):
        world.instance.deployer.side_by_side(group, lambda: None)
    monkeypatch.undo()
    world.send("s", sent(40, 20))
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60))
    assert world.building("CSAS_BIG")["why"] == "built, waits for promote"


def test_who_compares_after_an_instance_has_died_in_a_comparison_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said that the group was not looked at yet, until the leader had taken that comparison back."""
    monkeypatch.setattr("flowql.runtime.app.group_swap.TOGETHER_MS", 1_000)
    world = started(0, "member")
    world.shadow(CHAIN.format(over=10))
    world.settle()
    before = world.instance.deployed
    (group,) = groups_of(before)
    writer = PlanWriter(world.log, world.instance.config.application_id)
    writer.write(begun(before, group), world.instance.clock.wall_ms())
    writer.close()
    while world.instance.deployed.swap is None:
        world.driver.round()
    world.instance.deployer.swaps.why.clear()  # as of a member that has just begun
    assert world.service.diff("BIG")["missing"] == 10


def test_rows_of_windows_are_told_apart_by_their_bounds() -> None:
    hourly = (
        SOURCE
        + "CREATE TABLE W AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 10 MILLISECONDS) WHERE V > {over} GROUP BY K;\n"
    )
    world = Shadow(hourly.format(over=-1))
    world.send("s", sent(0, 40))
    world.settle()
    world.shadow(hourly.format(over=11))
    world.settle()
    found = world.service.diff("W")
    assert (found["keys"], found["serving"], found["built"]) == (["K", "WINDOWSTART", "WINDOWEND"], 20, 15)
    assert (found["missing"], found["extra"], found["different"]) == (5, 0, 2)


def test_what_is_not_built_yet_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowql.runtime.app.swap_turns.NEAR_RECORDS", 0)
    world = started(0)
    world.shadow(CHAIN.format(over=10))
    world.service.pause(["BIG"], paused=True)
    with pytest.raises(CommandError, match="cannot be compared yet") as found:
        world.service.diff("BIG")
    assert found.value.code == "FQ5216"


def test_older_records_say_nothing_of_it() -> None:
    world = started(0)
    world.shadow(CHAIN.format(over=10))
    record = read_deployed(world.log, "flowql")
    assert record is not None
    assert record.held == ("CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME")
    line = codec.line(Deployed(record.serving)).replace('"held"', '"unknown"')
    assert codec.loads_deployed(line).held == ()

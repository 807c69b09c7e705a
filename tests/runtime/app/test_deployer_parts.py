"""Parts of a deployment: what only decides, what is refused before anything changes, and how a member writes beside others."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.compiler.plan.deployed import DEPLOY, Deployed, Hold, Swap, groups_of
from flowql.runtime.app import deployer as deployer_module
from flowql.runtime.app.deployer import ANNOUNCE_S, ANNOUNCE_TRIES, Deployer
from flowql.runtime.app.plan_topic import read_entries
from flowql.runtime.errors import HandoverUnfit, StaleMember, Superseded
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_group_duties import Counted
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka

MORE = "CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"


class Member:
    """A deployer of a member. answers: of the attempts to write, in their order. looks: how long it waited between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers, self.looks, self.decided = list(answers), list[float](), 0
        self.awaited = 0
        self.deployed = Deployed()
        self.deployer = Deployer(cast(Any, self), cast(Any, None), cast(Any, None), cast(Any, None), None)
        monkeypatch.setattr(deployer_module, "announced", self.announced)
        monkeypatch.setattr(self.deployer, "_await_plan", self.await_plan)
        monkeypatch.setattr(self.deployer, "_entry", lambda change, about: (change, about))

    def await_plan(self, _group: object) -> None:
        self.awaited += 1

    def look(self, wait_s: float) -> None:
        self.looks.append(wait_s)

    def decide(self) -> Any:
        self.decided += 1
        return f"decision {self.decided}"

    def announced(self, host: object, change: object, entry: object) -> object:
        assert (host, entry) == (self, (change, DEPLOY))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def announce(self) -> Any:
        return self.deployer._announce(self.decide, DEPLOY, cast(Any, "group"))


def test_a_member_decides_anew_until_nobody_has_written_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(monkeypatch, None, StaleMember("another writes"), "written")
    assert member.announce() == "written"
    assert (member.decided, member.looks) == (3, [ANNOUNCE_S] * 2)
    assert member.awaited == 4, "before each decision, and until it runs here"


@pytest.mark.parametrize(("answer", "error"), [(None, Superseded), (StaleMember("another writes"), StaleMember)])
def test_a_member_gives_up_after_so_many_attempts(
    answer: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(monkeypatch, *[answer] * ANNOUNCE_TRIES)
    with pytest.raises(error):
        member.announce()
    assert (member.answers, member.decided) == ([], ANNOUNCE_TRIES)


def test_a_member_waits_while_the_moves_of_a_swap_are_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(monkeypatch, "written")
    member.deployed = Deployed(swap=Swap(1, "Q", ()))
    look = member.look

    def looked(wait_s: float) -> None:
        look(wait_s)
        if len(member.looks) == 3:
            member.deployed = Deployed(swap=Swap(1, "Q"))

    member.look = looked  # type: ignore[method-assign]
    assert member.announce() == "written"
    assert (member.decided, len(member.looks)) == (1, 3)


def made(config: dict[str, Any], sql: str = COPY) -> InstanceHarness:
    return InstanceHarness(SOURCE.format(n=2) + sql, log=LikeKafka() if config else MemoryLog(), tick_ms=10, **config)


places = pytest.mark.parametrize("config", [{}, MEMBER], ids=["alone", "member"])


@places
def test_a_dry_run_decides_and_changes_nothing(config: dict[str, Any]) -> None:
    world = made(config)
    before, topics = world.instance.deployed, set(world.log.topics())
    wanted = plan_of(SOURCE.format(n=2) + MORE + COPY + GOOD, world.instance.plan)
    changes = world.instance.deployer.deploy(wanted, dry_run=True)
    assert {c.query: c.action for c in changes} == {"CSAS_COPY": "none", "CTAS_GOOD": "add"}
    assert (world.instance.deployed, set(world.log.topics())) == (before, topics)
    changes = world.instance.deployer.deploy(wanted)
    assert {c.query: c.action for c in changes} == {"CSAS_COPY": "none", "CTAS_GOOD": "add"}
    assert {"t", "GOOD"} <= set(world.log.topics())


@places
def test_what_differs_in_nothing_is_no_deployment(config: dict[str, Any]) -> None:
    world = made(config)
    before = world.instance.deployed
    changes = world.deploy(SOURCE.format(n=2) + COPY)
    assert [c.action for c in changes] == ["none"]
    assert world.instance.deployed is before
    world.settle()
    assert len(read_entries(world.log, "flowql")) == 1


@places
def test_a_decision_on_a_deployment_that_is_no_longer_recorded_is_refused(config: dict[str, Any]) -> None:
    world = made(config)
    seen, deployer = world.instance.deployed, world.instance.deployer
    both = plan_of(SOURCE.format(n=2) + COPY + GOOD, world.instance.plan)
    deployer.deploy(both, seen=seen)
    world.settle()
    now = world.instance.deployed
    with pytest.raises(Superseded, match="came first"):
        deployer.deploy(plan_of(SOURCE.format(n=2) + GOOD, world.instance.plan), seen=seen)
    assert world.instance.deployed is now
    deployer.deploy(plan_of(SOURCE.format(n=2) + GOOD, world.instance.plan), seen=now)


def test_a_member_takes_over_no_history() -> None:
    world = made(MEMBER)
    before = world.instance.deployed
    with pytest.raises(HandoverUnfit, match="to an instance that is alone"):
        world.instance.deploy(world.instance.plan, histories={"CSAS_COPY": cast(Any, "a history")})
    assert world.instance.deployed is before


@pytest.mark.parametrize("config", [{}, ALONE, MEMBER], ids=["embedded", "kafka", "member"])
def test_an_instance_rests_when_nothing_is_built_or_all_of_it_waits(config: dict[str, Any]) -> None:
    log = LikeKafka() if config else MemoryLog()
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **config)
    deployer, driver = world.instance.deployer, world.driver
    assert driver is not None
    world.send("s", sent(0, 40))
    world.settle()
    assert (deployer.rebuilt, deployer.at_rest) == (True, True)
    wanted = plan_of(CHAIN.format(over=15), world.instance.plan)
    deployer.deploy(wanted, swap=Hold(hold=True))
    assert (deployer.rebuilt, deployer.at_rest) == (False, False), "it has just begun"
    for _ in range(200):
        driver.round()
    assert (deployer.rebuilt, deployer.at_rest) == (False, True)
    seen = list[int]()
    (group,) = groups_of(world.instance.deployed)
    if config is not MEMBER:
        assert (
            deployer.side_by_side(group, lambda: seen.append(len(world.values("BIG@2" if not config else "BIG")))) == 0
        )
        assert len(seen) == 1
    deployer.deploy(wanted, swap=Hold(hold=False))
    world.settle()
    assert (deployer.rebuilt, deployer.at_rest) == (True, True)
    world.instance.reconciler.ask(lambda: iter(()))  # type: ignore[arg-type,return-value]
    assert (deployer.rebuilt, deployer.at_rest) == (config is MEMBER,) * 2, "a request of somebody waits"


def test_who_comes_after_a_process_that_writes_the_plan_reads_what_that_has_written() -> None:
    """It may still be carrying out a swap: only then its producer is taken over, and given back."""
    log = Counted()
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **ALONE)
    after: Callable[[Deployed], Deployed] = world.instance.deployer._after_others
    stored, made_before = world.instance.deployed, len(log.made)
    assert after(stored) is stored
    assert len(log.made) == made_before, "nothing is being built"
    wanted = plan_of(CHAIN.format(over=15), world.instance.plan)
    world.instance.deploy(wanted, swap=Hold(hold=True))
    building, own = world.instance.deployed, log.left_open()
    assert building.wanted is not None
    assert after(Deployed(wanted=building.wanted)).id == building.id
    assert [name for name, _ in log.made[made_before:]][-1:] == ["flowql-plan"]
    assert log.left_open() == own
    embedded = InstanceHarness(CHAIN.format(over=0))
    assert embedded.instance.deployer._after_others(building) is building


def test_topics_of_a_deployment_that_failed_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = made({})
    before = world.instance.deployed

    def refused(*_: Any) -> Any:
        yield None
        raise ValueError("a bug")

    monkeypatch.setattr(world.instance.deployer, "_deployment", SimpleNamespace(changed=refused))
    with pytest.raises(ValueError, match="a bug"):
        world.deploy(SOURCE.format(n=2) + COPY + GOOD)
    assert "GOOD" not in world.log.topics()
    assert "COPY" in world.log.topics()
    assert world.instance.deployed is before

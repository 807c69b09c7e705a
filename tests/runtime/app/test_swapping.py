"""Swaps on a log whose commits cannot replace records: a recorded procedure that goes on wherever a process dies."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed
from flowql.runtime.app import group, group_swap, plan_writer, swap_turns
from flowql.runtime.app.deployment import delete_leftovers
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.group_swap import GroupSwap
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.app.status import statuses
from flowql.runtime.app.swapping import MoveExecutor
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import Fenced, RebuildUnsupported, StaleMember
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.server.on_runtime import RuntimeEngine
from tests.change.places import of_relation
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import (
    CHAIN,
    COUNTS,
    SOURCE,
    as_from_the_beginning,
    letters,
    same,
    sent,
)

pytestmark = pytest.mark.turns("instances")


class LikeKafka(MemoryLog):
    """No redo, and a transaction cannot take records away."""

    supports_redo = False
    drops_with_commits = False


class Watched(LikeKafka):
    """seen: at each request, whether records of the topic BIG are new."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[frozenset[bool]]()

    def look(self) -> None:
        found = set[bool]()
        for p in range(self.admin().topics()["BIG"].partitions if "BIG" in self.admin().topics() else 0):
            batch = self.reader(TopicPartition("BIG", p), EARLIEST).read(1_000, 1 << 20)
            found |= {b"NEW" in value for value in batch.records.column("value").to_pylist()} if batch else set()
        self.seen.add(frozenset(found))

    def commit(self, transactional_id: str, epoch: int, transaction: Any) -> int:
        sequence = super().commit(transactional_id, epoch, transaction)
        self.look()
        return sequence


STRIDE = int(os.environ.get("FLOWQL_EVERY_MOMENT", "11"))  # 1: each of them, which takes minutes
ALONE: dict[str, Any] = {"changelogs": True}
MEMBER: dict[str, Any] = {"changelogs": True, "shared": True, "process_id": "one", "threads": 1}


@pytest.fixture(autouse=True)
def tidied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "TIDY_MS", 0)


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
@pytest.mark.parametrize("seed", range(3))
def test_where_a_commit_cannot_replace_records_a_swap_is_a_recorded_procedure(
    seed: int, config: dict[str, Any]
) -> None:
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), seed=seed, rows_per_run=7, tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    for fed, over in ((40, 15), (60, 0), (80, 70)):
        world.deploy(CHAIN.format(over=over))
        world.send("s", sent(fed, 20))
        world.settle()
        assert same(world, as_from_the_beginning(CHAIN.format(over=over), fed + 20)), over
    assert not [t for t in world.log.topics() if "@" in t], "names of topics are those that brokers take"
    assert not leftovers(world)
    assert world.instance.plan.queries[0].generation == 4


def test_status_says_how_many_records_a_new_generation_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """First behind where the serving one was, then behind where it is."""
    monkeypatch.setattr(group_swap, "FAR_MS", 0)
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, rows_per_run=7, **MEMBER)
    assert world.driver is not None
    world.send("s", sent(0, 40))
    world.settle()
    said = list[str]()
    with monkeypatch.context() as never:
        never.setattr(swap_turns, "NEAR_RECORDS", -1)
        world.deploy(CHAIN.format(over=15))
        for _ in range(200):
            world.driver.round()
            said += {s["building"]["why"] for s in statuses(world.instance) if s["building"]} - set(said[-1:])
    assert ("40 records behind" in said, said[-1]) == (True, "0 records behind")
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 40))


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_an_instance_that_stops_during_a_swap_closes_the_writer_of_the_plan(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two transactions nothing closed it."""
    open_writers = list[PlanWriter]()

    class Writer(PlanWriter):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            open_writers.append(self)

        def transact(self, records: Any) -> None:
            super().transact(records)
            begun.append(self.deployed.swap is not None and self.deployed.swap.moves is not None)

        def close(self) -> None:
            super().close()
            open_writers.remove(self)

    begun = list[bool]()
    monkeypatch.setattr(plan_writer, "PlanWriter", Writer)
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **config)
    assert world.driver is not None
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=15))
    while not any(begun):
        world.driver.round()
    assert len(open_writers) == 1, "the moves are under way"
    world.instance.close()
    assert open_writers == []


def leftovers(world: InstanceHarness) -> list[str]:
    """Staging topics, when there was time to delete them."""
    assert world.driver is not None
    for _ in range(20):
        world.driver.round()
    return [t for t in world.log.admin().topics() if "staging" in t or "dead-letters-of" in t]


class Killed(BaseException):
    """The process is dead."""


class Dying(LikeKafka):
    """Its process dies at a moment: with a request that the brokers get, or just before it."""

    kill_at: int | None = None
    moments = 0
    after = False

    def moment(self) -> bool:
        """Whether the process dies when this request is made; raises if it dies before."""
        self.moments += 1
        if self.moments != self.kill_at:
            return False
        if not self.after:
            raise Killed
        return True

    def commit(self, transactional_id: str, epoch: int, transaction: Any) -> int:
        dies = transactional_id != "feed" and self.moment()
        sequence = super().commit(transactional_id, epoch, transaction)
        if dies:
            raise Killed
        return sequence

    def drop_before(self, tp: TopicPartition, offset: int) -> None:
        dies = self.moment()
        super().drop_before(tp, offset)
        if dies:
            raise Killed

    def delete_topic(self, name: str) -> None:
        dies = self.moment()
        super().delete_topic(name)
        if dies:
            raise Killed


def rebuilt_with_a_death(
    kill_at: int | None, config: dict[str, Any], *, after: bool = False, kept: bool = True
) -> tuple[InstanceHarness, int]:
    """A filter is changed, and the process dies at that moment of it; another one goes on, with its state or without."""
    log, physical, sql = Dying(), MemoryPhysical(), CHAIN.format(over=15)
    world = InstanceHarness(CHAIN.format(over=0), log=log, physical=physical, tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.send("s", [(1, b"no JSON", 5)])
    world.settle()
    log.moments, log.kill_at, log.after = 0, kill_at, after
    try:
        world.deploy(sql)
        world.send("s", sent(40, 20))
        world.settle()
    except Killed:
        log.kill_at = None
        log.crash()
        physical = physical if kept else MemoryPhysical()
        world.instance = Instance(log, physical, world.clock, InstanceConfig(**config))
        world.driver = Driver(world.instance, tick=world.tick)
        world.producer = log.producer("feed")
        world.instance.resume()
        world.deploy(sql)
        if sum(log.end_offset(TopicPartition("s", p)) for p in range(2)) == 41:
            world.send("s", sent(40, 20))
        world.settle()
    return world, log.moments


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_recorded_swap_goes_on_wherever_its_process_dies(config: dict[str, Any], kept: bool) -> None:
    """At any request of a rebuild. What was appended is not appended again, and nothing of it stays behind."""
    fresh = as_from_the_beginning(CHAIN.format(over=15), 60)
    world, last = rebuilt_with_a_death(None, config)
    assert same(world, fresh)
    for n in range(1 + kept, last + 1, STRIDE):
        for after in (False, True):
            world, _ = rebuilt_with_a_death(n, config, after=after, kept=kept)
            assert same(world, fresh), (n, after)
            assert letters(world) == [("CSAS_BIG", 1), ("CSAS_BIG", 2), ("CTAS_OTHER", 1)], (n, after)
            assert not leftovers(world), (n, after)
            known = {q.id if q.generation == 1 else f"{q.id}@{q.generation}" for q in world.instance.plan.queries}
            tasks = {t.rpartition("/")[0] for t in world.instance.state.committed_tasks() if "/" in t}
            assert tasks == known, (n, after)


def test_a_swap_whose_tasks_do_not_stop_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What serves goes on, and it is tried again."""
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    before, driver = len(world.values("BIG")), world.driver
    assert driver is not None
    monkeypatch.setattr(group_swap, "TOGETHER_MS", 1_000)
    with monkeypatch.context() as never:
        never.setattr(GroupSwap, "_is_ready", lambda swap, task, now_ms: False)
        world.deploy(CHAIN.format(over=15))
        while world.instance.deployed.swap is None:
            driver.round()
        world.send("s", sent(40, 20))
        while world.instance.deployed.swap is not None:
            assert len(world.values("BIG")) == before, "it stands still"
            driver.round()
        while len(world.values("BIG")) < before + 20:
            driver.round()
        assert world.instance.plan.queries[0].generation == 1
        why = [s["building"]["why"] for s in statuses(world.instance) if s["building"]]
        assert all("did not stop within 1 s" in w for w in why), why
        assert len(why) == 3
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 60))


def test_a_member_that_starts_over_while_records_move_begins_what_the_swap_is_not_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are begun when the moves are carried out: until then their positions are those in staging topics."""
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    driver, member = world.driver, world.instance.group
    assert driver is not None
    assert member is not None
    with monkeypatch.context() as slow:
        slow.setattr(MoveExecutor, "step", lambda _executor, _now_ms: False)
        world.deploy(CHAIN.format(over=15))
        while world.instance.deployed.swap is None or world.instance.deployed.swap.moves is None:
            driver.round()
        member.lose()
        for _ in range(50):
            driver.round()
        begun = {task.id.query for q in world.instance.queries.values() for task in q.built.tasks}
        assert begun == {"CTAS_OTHER"}
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=15), 40))


def test_a_deployment_while_tasks_are_parked_lets_them_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    driver = world.driver
    assert driver is not None
    monkeypatch.setattr(GroupSwap, "_is_ready", lambda swap, task, now_ms: False)
    world.deploy(CHAIN.format(over=15))
    while world.instance.deployed.swap is None:
        driver.round()
    world.deploy(CHAIN.format(over=0))
    assert world.instance.deployed.wanted is None
    world.send("s", sent(40, 20))
    world.settle()
    assert world.instance.plan.queries[0].generation == 1
    assert same(world, as_from_the_beginning(CHAIN.format(over=0), 60))
    assert not leftovers(world)


def test_a_deployment_waits_until_a_swap_that_has_no_way_back_is_done() -> None:
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    driver = world.driver
    assert driver is not None
    world.deploy(CHAIN.format(over=15))
    while world.instance.deployed.swap is None or world.instance.deployed.swap.moves is None:
        driver.round()
    world.deploy(CHAIN.format(over=30))
    world.settle()
    assert world.instance.plan.queries[0].generation == 3
    assert same(world, as_from_the_beginning(CHAIN.format(over=30), 40))


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_a_stream_in_a_topic_that_is_only_compacted_is_not_rebuilt(config: dict[str, Any]) -> None:
    """Brokers would not delete its old records, and the swap would have no way back."""
    log = LikeKafka()
    log.create_topic("BIG", 2, {"cleanup.policy": "compact"})
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **config)
    world.settle()
    before = world.instance.deployed
    with pytest.raises(RebuildUnsupported, match="CSAS_BIG would have to be rebuilt"):
        world.deploy(CHAIN.format(over=15))
    assert world.instance.deployed is before


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_a_table_becomes_a_stream_whose_old_records_can_be_deleted(config: dict[str, Any]) -> None:
    world = InstanceHarness(SOURCE + COUNTS.replace("FROM BIG", "FROM S"), log=LikeKafka(), tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    stream = SOURCE + "CREATE STREAM COUNTS AS SELECT K, V FROM S WHERE V > 20;\n"
    world.instance.deploy(plan_of(SOURCE, world.instance.plan))
    world.deploy(stream)
    world.settle()
    assert sorted(v["V"] for v in world.values("COUNTS")) == list(range(21, 40))
    assert "compact" not in world.log.topics()["COUNTS"].config.get("cleanup.policy", "delete")


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_nothing_new_is_appended_while_another_partition_holds_old_records(config: dict[str, Any]) -> None:
    log = Watched()
    with_number = CHAIN.format(over=0).replace("SELECT K, V FROM S", "SELECT K, V, 1 AS NEW FROM S")
    assert with_number != CHAIN.format(over=0)
    world = InstanceHarness(CHAIN.format(over=0), log=log, tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(with_number)
    world.settle()
    assert {frozenset({True}), frozenset({False})} <= log.seen, "old alone, then new alone"
    assert frozenset({True, False}) not in log.seen


def test_topics_of_a_deployment_that_was_never_recorded_are_deleted() -> None:
    """Names of later generations may be anybody's."""
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **ALONE)
    left = ["flowql-BIG.g2-staging", "flowql-dead-letters-of-CSAS_BIG.g2"]
    for name in (*left, "flowql-BIG.g3-staging"):
        world.log.create_topic(name, 2)
    delete_leftovers(world.instance)
    assert [t for t in world.log.topics() if t in left] == []
    assert "flowql-BIG.g3-staging" in world.log.topics()


def test_a_member_answers_interactive_queries_about_tables_all_through_a_swap() -> None:
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    engine, seen = RuntimeEngine(world.instance), list[Any]()
    world.deploy(CHAIN.format(over=10))
    while not world.instance.deployer.rebuilt:
        world.driver.round()
        state = of_relation(engine, "COUNTS")  # NotWhole where partitions are missing
        seen += [state] if state not in seen else []
    assert seen == [
        of_relation(RuntimeEngine(as_from_the_beginning(CHAIN.format(over=n), 40).instance), "COUNTS") for n in (0, 10)
    ]


def test_what_status_says_to_serve_is_what_interactive_queries_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the cut of a swap's commit and its end `flowql deploy` said that all serves, and the next interactive query got the rows of before."""
    world = InstanceHarness(CHAIN.format(over=0))
    world.send("s", sent(0, 40))
    world.settle()
    instance, apply = world.instance, world.instance.state.apply
    said, seen = list[set[tuple[str, int]]](), list[set[tuple[str, int]]]()

    def applied(*arguments: Any) -> None:
        said.append({(q["id"], q["generation"]) for q in statuses(instance) if not q["building"]})
        with closing(instance.snapshot()) as snapshot:
            seen.append({(q.id, q.generation) for q in instance.plan_at(snapshot.sequence).queries})
        apply(*arguments)

    monkeypatch.setattr(instance.state, "apply", applied)
    world.deploy(CHAIN.format(over=20))
    world.settle()
    assert [a - b for a, b in zip(said, seen, strict=True) if a - b] == []
    assert not any(q["building"] for q in statuses(instance))


def test_who_is_no_longer_the_writer_of_the_plan_may_try_again(monkeypatch):
    """Whichever call is told that another member has made the producer of this name."""
    log = MemoryLog()
    older = PlanWriter(log, "app")
    PlanWriter(log, "app")
    with pytest.raises(StaleMember):
        older.write(Deployed(), 0)

    def fenced(_transactional_id):
        raise Fenced("another one has come in between")

    monkeypatch.setattr(log, "producer", fenced)
    with pytest.raises(StaleMember):
        PlanWriter(log, "app")

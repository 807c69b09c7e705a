"""A member's part in a swap: which tasks stop, which must not begin, what it waits for, and where tasks stand that were in staging topics."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed, Moved, SwapGroup, groups_of
from flowql.compiler.plan.generations import runtime_name
from flowql.runtime.app import group_swap, plan_writer, swap_turns
from flowql.runtime.app.group_swap import PARKED, GroupSwap, _before, _positions
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.app.swapping import MoveExecutor, begun, taken_back
from flowql.runtime.errors import LogUnavailable, TopicMissing
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.changelog import WrittenTask
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.values import encode_metadata
from flowql.runtime.task.id import TaskId
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import CHAIN, SOURCE, as_from_the_beginning, same, sent
from tests.runtime.app.test_swapping import MEMBER, LikeKafka

pytestmark = pytest.mark.turns("instances")

BY_VALUE = "CREATE TABLE BY_VALUE AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;\n"


def written(**positions: dict[str, int]) -> dict[str, WrittenTask]:
    """Tasks by name, as `Q_1_0`: with the positions of the record."""
    found = {}
    for name, at in positions.items():
        query, sub, partition = name.split("_")
        record = TaskRecord(int(partition), (), encode_metadata({"positions": at}))
        found[f"{query}/{sub}_{partition}"] = WrittenTask(1, record)
    return found


def test_positions_are_of_all_tasks_of_the_queries_and_in_the_topics_since_their_swaps() -> None:
    tasks = written(Q_0_0={"s": 5, "t": 7}, Q_0_1={"s": 6}, R_0_0={"s": 4, "staging": 20}, X_0_0={"s": 1})
    moved = (Moved("staging", "t", 0, ((20, 33), (21, 34))), Moved("staging", "t", 1, ((20, 1),)))
    assert _positions(tasks, ["Q", "R"], Deployed(moved=moved)) == {
        TopicPartition("s", 0): [5, 4],
        TopicPartition("s", 1): [6],
        TopicPartition("t", 0): [7, 33],
    }
    assert _positions(tasks, [], Deployed()) == {}
    assert _positions(tasks, ["R"], Deployed())[TopicPartition("staging", 0)] == [20]


def test_tasks_come_before_those_that_read_their_results() -> None:
    plan = plan_of(CHAIN.format(over=0) + BY_VALUE)
    before = _before(plan, [q.id for q in plan.queries], "flowql")
    assert before == {
        ("CSAS_BIG", 0): frozenset(),
        ("CTAS_COUNTS", 0): {("CSAS_BIG", 0)},
        ("CTAS_SOME", 0): {("CTAS_COUNTS", 0)},
        ("CTAS_OTHER", 0): frozenset(),
        ("CTAS_BY_VALUE", 0): frozenset(),
        ("CTAS_BY_VALUE", 1): {("CTAS_BY_VALUE", 0)},
    }
    assert _before(plan, ["CTAS_COUNTS"], "flowql") == {("CTAS_COUNTS", 0): frozenset()}


def test_a_leader_becomes_the_writer_of_the_plan_once_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it had read its own record it became the writer again at each look: 15 times, and each time it read the whole topic."""
    writers = []

    class Counted(PlanWriter):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            writers.append(self.deployed.swap)

    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
    world.send("s", sent(0, 40))
    world.settle()
    world.deploy(CHAIN.format(over=15))
    monkeypatch.setattr(plan_writer, "PlanWriter", Counted)
    world.settle()
    begins, records, moves = writers
    assert begins is None
    assert records is not None
    assert records.moves is None
    assert moves is not None
    assert moves.moves is not None


class Site:
    """A member with a generation that is built, and that does not take over by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        monkeypatch.setattr(GroupSwap, "lead", lambda _swap: None)
        self.world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **MEMBER)
        self.world.send("s", sent(0, 40))
        self.world.settle()
        self.world.deploy(CHAIN.format(over=15))
        self.rounds(60)
        assert self.world.instance.group is not None
        self.swap = self.world.instance.group.swap

    def rounds(self, n: int) -> None:
        for _ in range(n):
            self.world.driver.round()  # type: ignore[union-attr]

    @property
    def group(self) -> SwapGroup:
        (group,) = groups_of(self.world.instance.deployed)
        return group

    def far(self) -> str:
        assert self.world.instance.group is not None
        return self.swap._far(self.group, self.world.instance.group._read_written().tasks)

    def parking(self) -> None:
        """The swap is on record, and learned of, here alone."""
        host = self.world.instance
        host.deployed = begun(host.deployed, self.group)
        self.swap.learn()


def test_positions_tell_of_the_commit_in_which_tasks_were_parked(site: Site) -> None:
    """Whoever owns a partition next waits for that commit, and finds the mark in it (rule R3)."""
    group = site.world.instance.group
    assert group is not None
    site.parking()
    site.rounds(20)
    written = group._read_written().tasks
    for p in range(2):
        parked, tp = written[f"CTAS_COUNTS/0_{p}"], TopicPartition("BIG", p)
        assert parked.record.read()[PARKED] == site.swap.id
        assert site.world.log.committed("flowql")[tp].commit == ("flowql-one", parked.sequence)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def test_what_a_generation_waits_for_is_said(site: Site) -> None:
    assert site.far() == ""
    instance, found = site.world.instance, list[str]()
    site.patch.setattr(swap_turns, "NEAR_RECORDS", -1)
    assert site.far() == "0 records behind"
    site.patch.setattr(swap_turns, "NEAR_RECORDS", 50_000)
    instance.query_states.set_hung({"CTAS_SOME@2": "its function"})
    found.append(site.far())
    instance.running = type(instance.running)(**{**_fields(instance.running), "paused": ("CTAS_COUNTS@2",)})
    found.append(site.far())
    assert found == ["CTAS_SOME@2: its function", "CTAS_COUNTS@2: paused"]
    site.world.log.delete_topic("flowql-BIG.g2-staging")
    assert site.far() == "there is no topic flowql-BIG.g2-staging"


def _fields(plan: Any) -> dict[str, Any]:
    return {f.name: getattr(plan, f.name) for f in fields(plan)}


def test_what_serves_must_be_able_to_stop(site: Site) -> None:
    site.world.log.delete_topic("s")
    assert site.far().startswith("CSAS_BIG, which serves, cannot stop: ")


def test_tasks_that_no_member_has_written_have_not_started(site: Site) -> None:
    assert site.world.instance.group is not None
    known = dict(site.world.instance.group._read_written().tasks)
    del known["CTAS_SOME@2/0_1"]
    assert site.swap._far(site.group, known) == "CTAS_SOME@2/0_1: not started"


def test_records_that_serving_tasks_have_read_are_those_that_it_is_behind(site: Site) -> None:
    site.patch.setattr(swap_turns, "NEAR_RECORDS", 9)
    for query in site.group.queries:
        site.world.instance.manager.hold(runtime_name(query))
    site.world.send("s", sent(40, 10))
    site.rounds(60)
    assert site.far() == "10 records behind"
    site.patch.setattr(swap_turns, "NEAR_RECORDS", 10)
    assert site.far() == "10 records behind", "until it has come to where the serving one was at the last look"
    for query in site.group.queries:
        site.world.instance.manager.resume(runtime_name(query))
    site.rounds(60)
    assert site.far() == ""


def test_while_tasks_are_parked_the_serving_ones_stop_and_parked_ones_are_not_begun(site: Site) -> None:
    world, swap = site.world, site.swap
    tasks = {t.id: t for q in world.instance.queries.values() for t in q.built.tasks}
    assert (swap.to_park(tasks), swap.forbids(TaskId("CSAS_BIG", 0, 0))) == ([], False)
    site.parking()
    old = {runtime_name(q) for q in site.group.gone}
    assert {t.id.query for t in swap.to_park(tasks)} == old == {"CSAS_BIG", "CTAS_COUNTS", "CTAS_SOME"}
    assert [t.id for t in swap.to_park(tasks)] == sorted(t for t in tasks if t.query in old)
    assert not any(swap.forbids(t) for t in tasks)
    parked = TaskRecord(0, (), encode_metadata({PARKED: swap.id}))
    another = TaskRecord(0, (), encode_metadata({PARKED: swap.id + 1}))
    swap.read({"CSAS_BIG/0_0": WrittenTask(1, parked), "CSAS_BIG/0_1": WrittenTask(1, another)})
    assert [t for t in sorted(tasks) if swap.forbids(t)] == [TaskId("CSAS_BIG", 0, 0)]
    assert (swap.parks(TaskId("CSAS_BIG", 0, 0)), swap.parks(TaskId("CSAS_BIG", 0, 1))) == (False, True)
    assert not swap.parks(TaskId("CSAS_BIG@2", 0, 0))
    assert not swap.parks(TaskId("CTAS_OTHER", 0, 0))
    assert swap._waiting() == "CSAS_BIG/0_1, CSAS_BIG@2/0_0, CSAS_BIG@2/0_1"
    assert {n for n in world.instance.queries if world.instance.query_states.of(n).swapping} == old
    world.instance.deployed = taken_back(world.instance.deployed)
    swap.learn()
    assert not any(world.instance.query_states.of(n).swapping for n in world.instance.queries)
    assert (swap.to_park(tasks), any(swap.forbids(t) for t in tasks)) == ([], False)


def test_who_waits_is_not_known_where_topics_are_gone(site: Site) -> None:
    site.parking()
    site.world.log.delete_topic("s")
    assert site.swap._waiting().startswith("tasks, whose number is not known (")
    with pytest.raises(TopicMissing):
        site.swap._tasks_of(["CSAS_BIG"])


def test_the_leader_takes_back_what_has_not_stopped_in_time_and_no_earlier(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    site.parking()
    clock: Any = site.world.clock
    clock.advance(group_swap.TOGETHER_MS)
    assert site.swap.lead() is None
    clock.advance(1)
    assert site.swap.lead() is not None
    site.swap._all_parked = True
    (coroutine := site.swap.lead())
    assert coroutine is not None
    assert coroutine.__name__ == "_record"


def test_a_group_whose_next_attempt_is_not_due_is_not_looked_at(site: Site) -> None:
    swap, now = site.swap, site.world.clock.timer_ms()
    assert site.world.instance.group is not None
    known = site.world.instance.group._read_written().tasks
    name = site.group.name
    swap._far_at_ms, swap._turns._next_try[name] = 0, (now + 500, 1)
    swap.why.clear()
    swap._look_how_far(known, now)
    assert (swap._near, swap.why) == (None, {})
    swap._look_how_far(known, now + group_swap.FAR_MS - 1)
    assert swap.why == {}
    swap._look_how_far(known, now + 500)
    assert (swap._near, swap.why) == (site.group, {name: ""})


def test_a_member_that_did_not_lead_carries_the_built_generation_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    site.world.settle()
    assert same(site.world, as_from_the_beginning(CHAIN.format(over=15), 40))


def test_what_keeps_the_moves_from_being_carried_out_is_said_until_they_are(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    name = site.group.name

    def away(_executor: MoveExecutor, _now_ms: int) -> bool:
        raise LogUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(MoveExecutor, "step", away)
        site.rounds(300)
        assert site.swap.why[name] == "no answer"
        assert site.world.instance.deployed.swap is not None
        assert site.world.instance.group is not None
        assert "no answer" in site.world.instance.group.trouble
        assert (site.swap._executor._writer, site.swap._executor._move_executor) == (None, None), "of no more use"
    site.world.settle()
    assert site.swap.why == {}
    assert same(site.world, as_from_the_beginning(CHAIN.format(over=15), 40))


def test_without_a_swap_its_id_is_not_asked_for() -> None:
    world = InstanceHarness(SOURCE, log=LikeKafka(), tick_ms=10, **MEMBER)
    assert world.instance.group is not None
    with pytest.raises(AssertionError, match="nothing swaps in"):
        _ = world.instance.group.swap.id

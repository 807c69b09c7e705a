"""Members that follow ticks: whatever happens to them, a reader of several results has states of its inputs that were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowql.runtime.task.status import TaskStatus
from flowql.runtime.ticks import numbers
from flowql.runtime.ticks.course import Course
from flowql.runtime.ticks.member import MemberTicks
from flowql.runtime.ticks.step import TickStep
from flowql.runtime.ticks.whole_states import STALE_MS
from tests.sim import cluster
from tests.sim.broker import Partition
from tests.sim.checks import APP
from tests.sim.faults import CALM, DAY_MS, Faults
from tests.sim.groups import Violation
from tests.sim.ticks import ACCOUNTS, BankOfMembers
from tests.ticks.lines import Results

# Without a clock that is set by a day: a table of one's own then stops its views, as deletions may be missed.
KINDS = tuple(k for k in Faults().kinds if k not in ("deploy", "refuse", "deny", "clock"))
TROUBLE = Faults(kinds=KINDS, remote=0)


def live(seed: int, faults: Faults = TROUBLE, **options: bool) -> list[str]:
    try:
        return BankOfMembers(seed, faults, **options).run()
    except Violation as violation:
        return [str(violation)]


@pytest.mark.parametrize("seed", range(3))
def test_readers_of_results_have_states_that_were(seed: int) -> None:
    assert live(seed, now=bool(seed % 2)) == []


def test_a_commit_has_whole_ticks_where_nothing_happens() -> None:
    """So no row that was written is of a state between two ticks."""
    world = BankOfMembers(1, CALM, count=12)
    world.begin()
    world.start()
    for n in range(len(world.input)):
        world.feed(n)
        world.run_for(100 if n % 5 else 2 * STALE_MS)
    world.settle()
    assert world.judge() == []
    results = Results(world.outside, APP)
    for topic, column in (("balance", "bal"), ("total", "t")):
        assert not any(row[column] for row in results.history(topic))
    assert len(results.history("credits")) > 20
    assert len(world.answers) > 4
    assert world.compared > 4, "answers tell what they show"
    assert len(world.read_sums) > 4, "transactions read whole ticks"
    assert max(world.subscribed) == ACCOUNTS, "so do subscriptions"
    world.run_for(3_000)  # ticks without rows are on their way
    lines = len(list(results.lines()))
    world.run_for(3_000)
    assert len(list(Results(world.outside, APP).lines())) == lines, "members at rest need no ticks"


@pytest.mark.parametrize("expired", [False, True], ids=["topic", "members"])
@pytest.mark.parametrize("by_ms", [0, -DAY_MS])
def test_a_leader_that_starts_again_at_once_leads_those_that_stayed(
    by_ms: int,
    expired: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has not read which ticks there were, nor does its wall clock tell: the others ignored lines of lower numbers for ever. The numbers are
    in the topic, and where its records have expired, the other members know them.
    """
    world = BankOfMembers(2, CALM, count=12)
    leader = world.begin()
    world.start()
    world.run_for(3_000)
    for n in range(6):
        world.feed(n)
        world.run_for(100)
    world.run_for(2_000)
    assert leader.instance.placement.placement.leader == leader.name
    world.kill(leader)
    world.clock.set_wall(by_ms)
    if expired:
        monkeypatch.setattr(TickStep, "_newest_before", lambda *_: 0)
    else:
        report = MemberTicks.report
        monkeypatch.setattr(MemberTicks, "report", lambda ticks: (r := report(ticks)) and replace(r, newest=0))
    world.start(leader.name)
    for n in range(6, len(world.input)):
        world.feed(n)
        world.run_for(100)
    world.settle()
    assert world.judge() == []


def test_a_task_that_says_while_it_restores_that_it_was_away_becomes_whole() -> None:
    """It published that before its rows were here: the restoration raised an error after it had ended, and then KeyError for ever."""
    world = BankOfMembers(1, CALM, count=8)
    first = world.begin()
    world.start()
    for n in range(4):
        world.feed(n)
    world.run_for(2_000)
    world.kill(first, wiped=True)
    world.clock.set_wall(2 * DAY_MS)
    back = world.start(first.name)
    world.stall(back, "commit", 4_000)  # the restoration ends before the commit that says so
    world.run_until(lambda: any(t.status is TaskStatus.RUNNING for t in back.group._tasks.values()))
    world.settle()
    assert back.instance.restoration.records > 0
    assert {t.status for t in back.group._tasks.values()} == {TaskStatus.RUNNING}


def one_of_several(
    self: Course, done: dict[str, int], take: Callable[[Course, dict[str, int]], None] = Course.take
) -> None:
    for p in self._stages.values():
        if p.line is not None and any(done.get(task) == p.line.tick for task in p.left):
            done = {**done, **dict.fromkeys(p.left, p.line.tick)}
    take(self, done)


def ends_too_far(
    self: Course, name: str, ends: dict, learn: Callable[[Course, str, dict], None] = Course.learn
) -> None:
    learn(self, name, {tp: end + 2 for tp, end in ends.items()})


def passed(self: MemberTicks, lined: Any, task: Any, set_line: Callable[..., None] = MemberTicks._set_line) -> None:
    set_line(self, lined, task)
    if task.id.query == "CTAS_credits" and task.id.partition == 0:
        for i in task.logs.values():
            i.line = None


def own_clock(self: MemberTicks, lined: Any, task: Any, set_line: Callable[..., None] = MemberTicks._set_line) -> None:
    set_line(self, lined, task)
    if task.id.query == "CTAS_young":
        task.tick_ms = None


def before_the_commit(self: MemberTicks, at_cut: Callable[..., Any] = MemberTicks.at_cut) -> Any:
    found = at_cut(self)
    self._done |= dict(found)
    return found


# By the first seed that finds it.
PLANTS: dict[str, tuple[int, type, str, Callable[..., Any]]] = {
    "a mark by one writer of two": (1, Course, "take", one_of_several),
    "ends with rows of a later tick": (0, Course, "learn", ends_too_far),
    "a line that a task passes": (11, MemberTicks, "_set_line", passed),
    "NOW() of each member": (6, MemberTicks, "_set_line", own_clock),
    "a mark before the commit": (16, MemberTicks, "at_cut", before_the_commit),
}


@pytest.mark.parametrize("fault", PLANTS)
def test_each_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a state that never was, or by a query that gets changes that do not fit its rows and does not go on."""
    seed, owner, name, broken = PLANTS[fault]
    monkeypatch.setattr(owner, name, broken)
    monkeypatch.setattr(cluster, "QUIET_MS", 10_000)
    assert live(seed, replace(TROUBLE, slow_runs=0.1, slow=0.05), now=fault.startswith("NOW"))


def compacted(partition: Partition) -> None:
    """Removes records that later ones replace, as a broker does."""
    last = dict[bytes, int]()
    for entry in (e for e in partition.entries if e.records is not None):
        last |= dict(zip(entry.records["key"].to_pylist(), entry.records["offset"].to_pylist(), strict=True))
    for n, entry in enumerate(partition.entries):
        if entry.records is not None:
            keys, offsets = (entry.records[name].to_pylist() for name in ("key", "offset"))
            kept = [i for i, (key, offset) in enumerate(zip(keys, offsets, strict=True)) if last[key] == offset]
            partition.entries[n] = replace(entry, records=entry.records.take(kept) if kept else None)


def read_balance(world: BankOfMembers) -> None:
    """As a subscription to the view does. Other checks read the compacted topic, too, up to ends of old ticks."""
    for process in world.processes:
        ends = process.instance.ticks.whole_ends("balance") or {}
        if any(row["bal"] for row in Results(world.outside, APP).rows("balance", ends).values()):
            raise Violation("the view is out of balance")


def seen_after_a_pause(world: BankOfMembers) -> str:
    """A view is paused while rows of its inputs change, and one of these is compacted before the view goes on. The state that never was, if it is seen."""
    process = world.begin()
    try:
        for n in range(len(world.input)):
            world.feed(n)
            world.run_for(500)
            if n == 3:
                process.instance.query_states.set_paused({"CTAS_balance"})
        for tp, partition in world.broker.partitions.items():
            if tp.topic == "debits":
                compacted(partition)
        for i in (i for t in process.instance.tasks_of("CTAS_balance") for i in t.logs.values()):
            i.reset(i.position)  # as if it had not read ahead
            i.attached = False
        process.instance.query_states.set_paused(())
        world.run_for(3_000)
        world.settle()
    except Violation as violation:
        return str(violation)
    return ""


@pytest.mark.parametrize(
    ("after_ms", "seen"), [(2_000, ""), (DAY_MS, "the view is out of balance")], ids=["mended", "planted"]
)
def test_compaction_past_a_reader(after_ms: int, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the view are those of an old tick. Records beyond them have replaced those before them."""
    monkeypatch.setattr(numbers, "COMPACTED_MS", after_ms)
    monkeypatch.setattr(BankOfMembers, "_read_to_whole_ends", read_balance)
    assert seen_after_a_pause(BankOfMembers(3, CALM)) == seen


@pytest.mark.parametrize("view", ["debits", "balance"])
def test_a_result_goes_on_while_a_query_does_not_run(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a subscription to both: the paused one, or the one that reads it, keeps its last end."""
    monkeypatch.setattr(BankOfMembers, "_read_to_whole_ends", read_balance)
    world = BankOfMembers(3, CALM)
    process = world.begin()
    world.feed(0)
    world.run_for(5_000)
    process.instance.query_states.set_paused({"CTAS_debits"})
    seen = list[dict[str, int]]()
    for n in range(1, len(world.input)):
        world.feed(n)
        world.run_for(8_000)
        ends = process.instance.ticks.whole_ends("credits", view) or {}
        seen.append({t: sum(end for tp, end in ends.items() if tp.topic == t) for t in ("credits", view)})
    assert seen[-1]["credits"] > seen[-2]["credits"] > seen[0]["credits"]
    assert seen[-1][view] == seen[0][view] > 0

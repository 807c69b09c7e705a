"""No answer shows a state that its inputs never had: views over views, under a producer that never pauses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from flowql.runtime.app import query_tasks
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import statuses
from flowql.runtime.log.base import Admin, Log
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.store import Snapshot
from flowql.runtime.task.task import Task
from flowql.runtime.ticks import numbers, patience, ticks
from flowql.runtime.ticks.ticks import Follower, Ticks
from flowql.runtime.ticks.whole_states import TakenSnapshot
from tests.ticks.bank import Bank
from tests.ticks.lines import Results

WAYS = (("total",), ("balance",), ("credits", "debits"), ("credits", "debits", "balance", "total"))


def run(bank: Bank, rounds: int = 500, restart_at: int | None = None) -> dict[tuple[str, ...], set[int]]:
    """Looks after every round; by views, the transactions that answers have shown."""
    seen: dict[tuple[str, ...], list[int]] = {views: [0] for views in WAYS}
    for n in range(rounds):
        bank.transact()
        bank.driver.round()
        if n == restart_at:
            bank.restart()
        for views, shown in seen.items():
            now = bank.look(*views)
            if now is not None:
                assert now >= shown[-1], f"{views} went back from transaction {shown[-1]} to {now}"
                shown.append(now)
    bank.driver.run_until_caught_up()
    for views, shown in seen.items():
        if "credits" in views:
            assert bank.look(*views) == len(bank.sums) - 1
            shown.append(len(bank.sums) - 1)
    bank.instance.close()
    return {views: set(shown) for views, shown in seen.items()}


@pytest.mark.parametrize(("seed", "partitions", "restart_at"), [(0, 2, None), (1, 4, 250), (2, 1, 123)])
def test_views_over_views_never_show_a_part_of_a_transaction(
    seed: int, partitions: int, restart_at: int | None
) -> None:
    seen = run(Bank(seed, partitions), restart_at=restart_at)
    assert len(seen["credits", "debits", "balance", "total"]) > 4, "they advance while the producer goes on"


@pytest.mark.parametrize("seed", range(6))
def test_a_tick_that_is_drawn_before_the_tasks_of_a_start_are_made_has_none_of_their_rows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knew no ends of their inputs, so each query had finished it where its last commit was: credits differed from debits, without a reason."""
    bank = Bank(seed)
    go_on(bank, 200)
    bank.pause("CTAS_debits")
    go_on(bank, 100)
    bank.pause()
    for _ in range(20):
        bank.transact()
    make = query_tasks.build

    def late(host: Instance, *given: Any, **named: Any) -> Any:
        for _ in range(20):
            bank.clock.advance(50)  # type: ignore[attr-defined]
            host.polling.run_once(host.clock.timer_ms())
            host.commit.run_once(host.clock.timer_ms())
        return make(host, *given, **named)

    monkeypatch.setattr(query_tasks, "build", late)
    bank.restart()
    for _ in range(100):
        bank.driver.round()
        bank.look("credits", "debits", "balance", "total")
    bank.driver.run_until_caught_up()
    assert bank.look("credits", "debits", "balance", "total") == len(bank.sums) - 1
    bank.instance.close()


def test_a_view_over_a_paused_view_waits_and_says_so() -> None:
    bank = Bank(3)
    go_on(bank, 200)
    bank.pause("CTAS_debits")
    go_on(bank, 300)
    waits = {q["id"]: q["waits"] for q in statuses(bank.instance)}
    assert waits["CTAS_balance"] == {"for": "tick", "whom": ["CTAS_debits"]}
    assert bank.look("credits", "debits", "balance", "total") is not None, "the last tick that all have finished"
    bank.pause()
    bank.driver.run_until_caught_up()
    assert bank.look("credits", "debits", "balance", "total") == len(bank.sums) - 1


class CopyingBank(Bank):
    """A bank whose queries may take a copy of the last commit, some commits after their tick was chosen. copied: how many took it, and how many could not."""

    copied: tuple[int, int] = 0, 0

    def _pass_time(self) -> None:
        self.clock.advance(20)  # type: ignore[attr-defined]

    @contextmanager
    def _taken(self, views: Sequence[str]) -> Iterator[Any]:
        made = list[Snapshot]()

        def copy() -> Snapshot:
            before = self.instance.state.applied_sequence
            if self.random.random() < 0.5:
                self.transact()
                while self.instance.state.applied_sequence == before:
                    self.driver.round()
            made.append(self.instance.state.snapshot())
            return made[-1]

        taken = self.instance.snapshot_of([q.id for q in self.plan.queries if q.sink in views], copy)
        if made:
            took, left = self.copied
            self.copied = (took + 1, left) if taken.snapshot is made[0] else (took, left + 1)
        yield taken.snapshot, taken.reason
        taken.snapshot.close()


def look_at_copies() -> tuple[int, int]:
    bank = CopyingBank(1)
    for _ in range(5):
        bank.transact()
        for _ in range(40):
            bank.driver.round()
            bank.look(*WAYS[-1])
    bank.instance.close()
    return bank.copied


def test_a_copy_is_of_the_tick_that_an_answer_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that another process answers reads a copy of the last commit, which may be later than the tick that was chosen for it."""
    took, left = look_at_copies()
    assert took > 4, "of the tick"
    assert left > 4, "of a later commit, with a part of another tick"
    snapshot_of = Instance.snapshot_of

    def swapped(self: Instance, queries: Sequence[str], take: Any = None) -> TakenSnapshot:
        found = snapshot_of(self, queries)
        if not found.newest or take is None:
            return found
        found.snapshot.close()
        return replace(found, snapshot=take())

    monkeypatch.setattr(Instance, "snapshot_of", swapped)
    with pytest.raises(AssertionError, match=r"differ|no prefix|not in balance"):
        look_at_copies()


def go_on(bank: Bank, rounds: int) -> None:
    for _ in range(rounds):
        bank.transact()
        bank.driver.round()


def written_after(rows: int, accounts: int, step_ms: int, **config: Any) -> list[dict[str, Any]]:
    """All rows that `balance` and `total` ever had which are not 0, after a history while commits are due all the time."""
    bank = Bank(1, **config)
    bank.write_history(rows, accounts)
    for _ in range(200):
        bank.transact()
        bank.driver.round()
        bank.clock.advance(step_ms)
    bank.driver.run_until_caught_up()
    assert bank.look(*WAYS[-1]) == len(bank.sums) - 1
    results = Results(bank.log, bank.config.application_id)
    assert len(results.history("balance")) > accounts // 2
    found = [r for topic, column in (("balance", "bal"), ("total", "t")) for r in results.history(topic) if r[column]]
    bank.instance.close()
    return found


@pytest.mark.parametrize(
    ("rows", "accounts", "config"),
    [(4_000, 1_000, {"rows_per_run": 50}), pytest.param(100_000, 40_000, {}, marks=pytest.mark.slow)],
)
def test_no_row_is_ever_written_of_a_part_of_a_large_tick(
    rows: int, accounts: int, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A view over views wrote rows after half of the history: of credits without their debits."""
    assert written_after(rows, accounts, 10, **config) == []
    assert rows > 10_000 or "needs more than one commit" not in caplog.text, "a large one may need more memory"


def test_a_tick_in_several_commits_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The wait is bounded: others have to be committed, too."""
    monkeypatch.setattr(patience, "FIRST", 0)
    monkeypatch.setattr(patience, "WHOLE", 0)
    assert written_after(4_000, 1_000, 30, rows_per_run=50) != []
    assert "of CTAS_balance needs more than one commit, as it takes more than 0 ms" in caplog.text


FAULTS = (
    "a tick in a transaction",
    "a mark by one task of several",
    "ends with a record of a later tick",
    "a line that a task passes",
    "a merge past a reader",
)


def plant(fault: str, patch: pytest.MonkeyPatch) -> None:
    """Breaks what holds ticks together."""
    written, every, ends_of, set_line = Bank.write, Ticks._tasks, ticks.ends_of, Ticks._set_line
    keep = Ticks._keep

    def apart(bank: Bank, by_partition: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
        for p, records in by_partition.items():
            written(bank, {p: records})
            bank.driver.round()

    def late(admin: Admin, topics: Collection[str]) -> Any:
        return {t: {tp: end + 1 for tp, end in ends.items()} for t, ends in (ends_of(admin, topics) or {}).items()}

    def passed(self: Ticks, f: Follower, task: Task) -> None:
        set_line(self, f, task)
        for i in task.logs.values():
            i.line = None

    def merged(self: Ticks, f: Follower, tick: int, snapshot: Any, now_ms: int) -> None:
        """Rows as of older ticks, which readers may ask for, are those of the newest commit."""
        for older in (tick, *(f.whole if f.writers.topic == "debits" else ())):
            keep(self, f, older, snapshot, now_ms)

    match fault:
        case "a tick in a transaction":
            patch.setattr(Bank, "write", apart)
        case "a mark by one task of several":
            patch.setattr(Ticks, "_tasks", lambda self, f: dict([*every(self, f).items()][:1]))
        case "ends with a record of a later tick":
            patch.setattr(ticks, "ends_of", late)
        case "a line that a task passes":
            patch.setattr(Ticks, "_set_line", passed)
        case "a merge past a reader":
            patch.setattr(Ticks, "_keep", merged)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(fault, monkeypatch)
    with pytest.raises(AssertionError, match=r"differ|no prefix|not in balance"):
        list(map(run, map(Bank, range(3))))


def shown_after_restarts() -> list[int | None]:
    """What views show some time after a crash while they were on their way, without another row."""
    found = list[int | None]()
    for rounds in (60, 75, 90):
        bank = Bank(6)
        go_on(bank, rounds)
        bank.restart()
        for _ in range(800):
            bank.driver.round()
        found.append(bank.look("total", "credits", "debits"))
        assert found[-1] in (None, len(bank.sums) - 1), "an older state, without a word"
        bank.instance.close()
    return found


def test_a_mark_lost_at_restart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views over views would wait for a tick that nobody draws any more."""
    assert shown_after_restarts() == [60, 75, 90]
    committed, lost = Ticks.committed, list[Ticks]()

    def first_lost(self: Ticks, finished: Sequence[tuple[str, int]]) -> None:
        loses = bool(finished) and self not in lost
        for topic in self._course.to_ask() if loses else ():
            self._course.learn(topic, None)
        committed(self, finished)
        lost.extend([self] if loses else [])

    monkeypatch.setattr(Ticks, "committed", first_lost)
    with pytest.raises(AssertionError):
        assert shown_after_restarts() == [60, 75, 90]


NOW_VIEWS = """
CREATE TABLE seen (id INT PRIMARY KEY, at TIMESTAMP) WITH (PARTITIONS = 2);
CREATE VIEW young AS SELECT id FROM seen WHERE at > NOW() - INTERVAL '1' SECOND;
CREATE VIEW recent AS SELECT id, at FROM seen WHERE at > NOW() - INTERVAL '1' SECOND;
CREATE VIEW apart AS SELECT y.id AS y, r.id AS r FROM young y FULL JOIN recent r ON y.id = r.id
  WHERE y.id IS NULL OR r.id IS NULL;
"""


def look_at_moments(seed: int) -> None:
    """Rows of two views with NOW() leave both at once, in a view over both too, also where nothing else changes."""
    bank = Bank(seed, more=NOW_VIEWS)
    sizes = set()
    for n in range(1, 1_500):
        if n < 900 and not n % 5:
            bank.write_seen(n)
        bank.driver.round()
        for views in (("young", "recent"), ("young", "recent", "apart")):
            rows, reason = bank.rows(*views)
            if not reason:
                assert len(rows["young"]) == len(rows["recent"]), f"two moments: {rows}"
                assert not rows.get("apart"), f"two moments: {rows}"
                sizes.add(len(rows["young"]))
    assert len(sizes) > 4
    bank.clock.advance(2_000)
    for _ in range(600):
        bank.driver.round()
    assert bank.rows("young", "recent") == ({"young": [], "recent": []}, "")
    bank.instance.close()


@pytest.mark.parametrize("seed", range(2))
def test_views_have_one_present_moment(seed: int) -> None:
    look_at_moments(seed)


def test_a_view_with_a_present_moment_of_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    set_line = Ticks._set_line

    def own_clock(self: Ticks, f: Follower, task: Task) -> None:
        set_line(self, f, task)
        if task.id.query == "CTAS_young":
            task.tick_ms = None

    monkeypatch.setattr(Ticks, "_set_line", own_clock)
    with pytest.raises(AssertionError, match="two moments"):
        look_at_moments(0)


URGENT = """
CREATE TABLE seen (id INT PRIMARY KEY, at TIMESTAMP) WITH (PARTITIONS = 2);
CREATE VIEW urgent WITH (PRIORITY = 'critical') AS SELECT id FROM seen;
"""


def longest_wait_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """Of commits with rows of a critical view, while other views read a large transaction."""
    bank, waits, is_ready = Bank(1, more=URGENT, rows_per_run=50), [0], Ticks.is_ready
    bank.transact()
    bank.driver.run_until_caught_up()
    bank.driver = Driver(bank.instance, seed=1, tick=lambda: bank.clock.advance(30))  # type: ignore[attr-defined]

    def noted(self: Ticks, now_ms: int) -> bool:
        waits.append(0 if self._asked_ms is None else now_ms - self._asked_ms)
        return is_ready(self, now_ms)

    bank.write_history(4_000, 1_000)
    with monkeypatch.context() as patch:
        patch.setattr(Ticks, "is_ready", noted)
        for n in range(1, 12):
            bank.write_seen(n)
            while len(bank.rows("urgent")[0]["urgent"]) < n:
                bank.driver.round()
    bank.instance.close()
    return max(waits)


def test_a_critical_view_waits_for_no_large_tick_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert longest_wait_ms(monkeypatch) == 30, "the first look after the grace"
    monkeypatch.setattr(patience, "is_outranked", lambda *_: False)
    assert longest_wait_ms(monkeypatch) > 30


def test_an_instance_at_rest_draws_no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a line was drawn after the cut that it was asked for: that draws two for the next one."""
    bank = Bank(5)
    go_on(bank, 120)
    late, draw = list[Any](), Ticks._draw
    monkeypatch.setattr(Ticks, "_draw", lambda self, ends: late.append(ends))
    go_on(bank, 150)
    monkeypatch.setattr(Ticks, "_draw", draw)
    assert late, "a commit waited for a line in vain"
    for _ in range(2):
        with_all = bank.log.admin().end_offsets(sorted(late[-1]))
        bank.instance.ticks._draw(with_all)
    bank.driver.run_until_caught_up()
    for _ in range(200):
        bank.driver.round()
    commits = bank.instance.metrics.commits
    for _ in range(400):
        bank.driver.round()
    assert bank.instance.metrics.commits == commits
    bank.instance.close()


class CompactingLog(MemoryLog):
    """As brokers do: without regard to readers."""

    supports_redo = False

    def compact(self, topic: str) -> None:
        for partition in (p for tp, p in self._partitions.items() if tp.topic == topic and p.batches):
            records = pa.Table.from_batches(partition.batches)
            keys, offsets = records["key"].to_pylist(), records["offset"].to_pylist()
            last = dict(zip(keys, range(len(keys)), strict=True))
            (batch,) = records.take(sorted(last.values())).combine_chunks().to_batches()
            partition.bases, partition.batches = [offsets[0]], [batch]


class CompactedBank(Bank):
    def new_log(self) -> Log:
        return CompactingLog()


def balances_after_compaction(bank: Bank) -> list[int]:
    """A view is paused while its inputs change, and one of these is compacted before it goes on. What readers of its topic see of it."""
    for _ in range(5):
        bank.transact()
        bank.driver.run_until_caught_up()
    bank.instance.query_states.set_paused({"CTAS_balance"})
    for _ in range(12):
        bank.transact()
        for _ in range(300):
            bank.driver.round()
    assert isinstance(bank.log, CompactingLog)
    bank.log.compact("debits")
    for i in (i for t in bank.instance.tasks_of("CTAS_balance") for i in t.logs.values()):
        i.reset(i.position)  # as if it had not read ahead
    bank.instance.query_states.set_paused(())
    seen = list[int]()
    for n in range(1_000):
        bank.driver.round()
        if n % 10 == 0:
            ends = bank.instance.ticks.whole_ends("balance") or {}
            seen += [row["bal"] for row in Results(bank.log, bank.config.application_id).rows("balance", ends).values()]
    bank.instance.close()
    return seen


def test_compaction_past_a_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "COMPACTED_MS", 1_000)
    assert set(balances_after_compaction(CompactedBank(0))) == {0}
    monkeypatch.setattr(numbers, "COMPACTED_MS", 1 << 40)
    assert set(balances_after_compaction(CompactedBank(0))) > {0}

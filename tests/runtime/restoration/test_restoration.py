"""One instance loses its state; what its changelogs bring back, in which order, and what stays away."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from flowql.compiler.plan.diff import QueryChange
from flowql.runtime.app import restoration
from flowql.runtime.app.backoff import BACKOFF_MS_MAX
from flowql.runtime.app.exchanges import STORE as EXCHANGES
from flowql.runtime.app.progress import query_status, state_of
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import UNLOGGED
from flowql.runtime.task.status import IllegalTransition, TaskStatus
from flowql.runtime.task.task import Task
from tests.runtime.app.harness import InstanceHarness

KEYS = 40
STREAM = """CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"""
COUNTS = (
    STREAM
    + "CREATE TABLE C WITH (KAFKA_TOPIC='c') AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY K EMIT CHANGES;"
)
WINDOWS = (
    STREAM
    + """CREATE TABLE W WITH (KAFKA_TOPIC='w') AS SELECT K, COUNT(*) AS N FROM S
  WINDOW TUMBLING (SIZE 10 SECONDS, RETENTION 60 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY K EMIT CHANGES;"""
)


def no_redo() -> MemoryLog:
    log = MemoryLog()
    log.supports_redo = False
    return log


class Life(InstanceHarness):
    """An instance over a log; where something was deployed already it goes on with that."""

    def __init__(self, log: MemoryLog, sql: str = "", **options: Any) -> None:
        super().__init__(sql, log=log, **{"changelogs": True, **options})

    def deploy(self, sql: str) -> tuple[QueryChange, ...]:
        if not self.instance.queries:
            self.instance.resume()
        return super().deploy(sql) if sql else ()

    def again(self, sql: str = "", **options: Any) -> Life:
        """The next life, without the state of this one."""
        if self.driver is None:
            assert self.instance.stop() == []
        else:
            self.instance.close()
        return Life(self.log, sql, **options)

    def round(self) -> None:
        assert self.driver is not None
        self.driver.round()

    def keys(self, store: str) -> list[Any]:
        with self.instance.state.snapshot() as snapshot:
            return [key for key, _ in snapshot.scan(store)]

    def physical_rows(self) -> int:
        """Rows on disk, also those that reads hide."""
        return sum(key != UNLOGGED for key, _ in self.instance.state._physical.scan(b"", b"\xff"))

    def statuses(self, query: str) -> set[TaskStatus]:
        return {task.status for task in self.instance.queries[query].built.tasks}

    def feed(self, start: int, end: int) -> None:
        self.send("s", [(i % KEYS, {"V": i}, i * 1000) for i in range(start, end)])


def undisturbed(sql: str, *parts: tuple[int, int]) -> Life:
    life = Life(no_redo(), sql)
    for start, end in parts:
        life.feed(start, end)
        life.settle()
    return life


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk is one record, so that a restoration takes many rounds."""
    monkeypatch.setattr(restoration, "CHUNK_RECORDS", 1)


def test_state_and_outputs_are_those_of_a_run_that_lost_nothing() -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    life.feed(50, 90)
    life.settle()
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
    straight = undisturbed(COUNTS, (0, 50), (50, 90))
    assert life.table("C") == straight.table("C")
    assert life.records("c") == straight.records("c")
    assert life.instance.state.restoring() == {}


def test_a_task_that_is_handed_over_is_not_denied_before_the_polling_thread_knows_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stops it asks the polling thread next, and then takes it for a task that is nowhere."""
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    step, askers, denied, early = life.instance.restoration, list[Thread](), list[bool](), list[bool]()
    hand_over = step._hand_over

    def asked_meanwhile(task: Task) -> None:
        askers.append(Thread(target=lambda: denied.append(step.remove(task).result())))
        askers[-1].start()
        askers[-1].join(0.2)
        early.append(not askers[-1].is_alive())
        hand_over(task)

    monkeypatch.setattr(step, "_hand_over", asked_meanwhile)
    life.settle()
    for asker in askers:
        asker.join()
    assert early == [False, False]
    assert denied == [False, False]


def test_with_complete_redo_nothing_is_restored() -> None:
    life = Life(MemoryLog(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life.log.crash()  # a clean end would flush and trim
    before = life.table("C")
    again = Life(life.log)
    assert again.instance.restoration.records == 0
    assert again.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert again.table("C") == before


def test_trimmed_redo_and_no_changelogs_is_made_anew_from_inputs() -> None:
    life = Life(MemoryLog(), COUNTS, changelogs=False)
    life.feed(0, 50)
    life.settle()
    before = life.table("C")
    again = life.again(changelogs=False)
    assert "trimmed" in again.instance.state_lost
    again.settle()
    assert again.table("C") == before


def test_trimmed_redo_and_changelogs_is_restored() -> None:
    life = Life(MemoryLog(), COUNTS)
    life.feed(0, 50)
    life.settle()
    before = life.table("C")
    again = life.again()
    again.settle()
    assert again.instance.restoration.records > 0
    assert again.table("C") == before


def test_changelogs_that_do_not_reach_back_are_not_trusted() -> None:
    life, kept = Life(no_redo(), COUNTS, changelogs=False, physical=(disk := MemoryPhysical())), disk
    life.feed(0, 20)
    life.settle()
    life.instance.close()
    late = Life(life.log, physical=kept)
    late.feed(20, 40)
    late.settle()
    before = late.table("C")
    again = late.again()
    assert "since the first" in again.instance.state_lost, "made anew from inputs, not from them"
    again.settle()
    assert again.table("C") == before


def test_only_tasks_that_changed_since_are_restored() -> None:
    disk = MemoryPhysical()
    life = Life(no_redo(), COUNTS, physical=disk)
    life.feed(0, 50)
    life.settle()
    old = MemoryPhysical()
    old.write_batch(list(disk._rows), list(disk._rows.values()))
    life.send("s", [(3, {"V": 1000}, 60_000)])  # one partition goes on
    life.settle()
    before = life.table("C")
    again = life.again(physical=old)
    assert [t.status for t in again.instance.queries["CTAS_C"].built.tasks].count(TaskStatus.RESTORING) == 1
    again.settle()
    assert again.table("C") == before


def test_deleted_rows_and_expired_windows_do_not_come_back() -> None:
    latest = """CREATE TABLE T (K BIGINT PRIMARY KEY, V BIGINT)
      WITH (KAFKA_TOPIC='t', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
      CREATE TABLE L WITH (KAFKA_TOPIC='l') AS SELECT K, V FROM T WHERE V < 5 EMIT CHANGES;"""
    life = Life(no_redo(), WINDOWS + latest)
    life.send("t", [(k, {"V": k}, 0) for k in range(4)])
    life.feed(0, 40)
    life.settle()
    life.send("t", [(2, {"V": 9}, 1)])
    life.send("s", [(k, {"V": 0}, 400_000) for k in range(7)])
    life.settle()
    assert {start for _, start in life.keys("CTAS_W-aggregate-1")} == {400_000}
    before = {name: life.keys(name) for name in ("CTAS_W-aggregate-1", "L")}
    assert before["L"] == [(0,), (1,), (3,)]
    again = life.again()
    again.settle()
    assert {name: again.keys(name) for name in before} == before
    assert again.physical_rows() == life.physical_rows()
    again.send("s", [(0, {"V": 0}, 1_000)])  # too late, before and after
    again.settle()
    assert again.instance.metrics.query("CTAS_W").late_records == 1
    assert {name: again.keys(name) for name in before} == before


def test_a_changed_query_is_restored_without_rows_of_the_old_one() -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 30)
    life.settle()
    changed = COUNTS.replace("FROM S GROUP", "FROM S WHERE K < 3 GROUP")
    life.deploy(changed)
    life.settle()
    before = life.table("C")
    assert [row[0] for row in before] == [0, 1, 2]
    again = life.again()
    again.settle()
    assert again.table("C") == before


def test_a_query_deployed_while_another_restores(one_by_one: None) -> None:
    life = Life(no_redo(), COUNTS)
    for part in range(10):  # an epoch keeps one record of a key
        life.feed(part * KEYS, part * KEYS + KEYS)
        life.settle()
    before = life.table("C")
    late = "CREATE TABLE D WITH (KAFKA_TOPIC='d') AS SELECT K, MAX(V) AS M FROM S GROUP BY K EMIT CHANGES;"
    life = life.again(COUNTS + late)
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    assert life.statuses("CTAS_D") == {TaskStatus.RUNNING}
    assert state_of(life.instance, "CTAS_C") == "restoring"
    for _ in range(20):
        life.round()
    assert life.driver is not None
    life.driver.commit()
    assert len(life.table("D")) == KEYS
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    progress = life.instance.restoration.progress()["CTAS_C"]
    assert 0 < progress.done < progress.total
    shown = query_status(life.instance, "CTAS_C")["restored"]
    assert shown == {"records": progress.done, "total": progress.total}
    assert "restored" not in query_status(life.instance, "CTAS_D")
    life.settle()
    assert life.table("C") == before
    # What was committed meanwhile did not make half a task look whole.
    again = life.again()
    again.settle()
    assert again.table("C") == before
    assert len(again.table("D")) == KEYS


def test_a_commit_during_a_restoration_does_not_make_half_a_task_look_whole(one_by_one: None) -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    before = life.table("C")
    disk = MemoryPhysical()
    life = life.again(physical=disk)
    for _ in range(6):
        life.round()
    assert life.driver is not None
    life.driver.commit()
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    life.log.crash()
    again = Life(life.log, physical=disk)
    assert again.statuses("CTAS_C") == {TaskStatus.RESTORING}
    again.settle()
    assert again.table("C") == before


def test_a_query_removed_while_it_restores_leaves_nothing(one_by_one: None) -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    for _ in range(6):
        life.round()
    tasks = life.instance.queries["CTAS_C"].built.tasks
    life.deploy(STREAM)
    assert {task.status for task in tasks} == {TaskStatus.CLOSED}
    life.settle()
    left = set(life.instance.state.committed_stores()) - {EXCHANGES.name}
    assert not left, "the cleanup need not look for stores that no plan uses"
    life.deploy(COUNTS.replace("FROM S GROUP", "FROM S WHERE K < 3 GROUP"))
    life.settle()
    assert [row[0] for row in life.table("C")] == [0, 1, 2]
    again = life.again()
    again.settle()
    assert [row[0] for row in again.table("C")] == [0, 1, 2]


@pytest.mark.parametrize(("paused", "order"), [("", "BDA"), ("B", "DAB")], ids=["all run", "one is paused"])
def test_the_weightiest_queries_come_first(one_by_one: None, paused: str, order: str) -> None:
    """And last those that are paused: nobody waits for their results."""

    def query(name: str, priority: str) -> str:
        with_ = f"KAFKA_TOPIC='{name}', PRIORITY='{priority}'"
        return f"CREATE TABLE {name} WITH ({with_}) AS SELECT K, COUNT(*) AS N FROM S GROUP BY K EMIT CHANGES;"

    life = Life(no_redo(), STREAM + query("A", "batch") + query("B", "critical") + query("D", "normal"))
    life.feed(0, 30)
    life.settle()
    life = life.again()
    life.instance.query_states.set_paused([f"CTAS_{name}" for name in paused])
    found: list[str] = []
    while life.instance.restoration.progress() or len(found) < 3:
        life.round()
        for name in ("A", "B", "D"):
            if name not in found and life.statuses(f"CTAS_{name}") == {TaskStatus.RUNNING}:
                found.append(name)
    assert "".join(found) == order


def test_a_restoration_takes_a_small_share_while_a_query_of_far_more_weight_has_work(
    one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing kept it from half of the interpreter lock beside a critical query that was behind."""
    critical = "CREATE TABLE D WITH (KAFKA_TOPIC='d', PRIORITY='critical') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K EMIT CHANGES;"
    life = Life(no_redo(), COUNTS + critical)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    while life.statuses("CTAS_D") != {TaskStatus.RUNNING}:
        life.round()
    life.feed(50, 60)
    step, read, clock = life.instance.restoration, life.instance.restore.loop, life.clock
    assert isinstance(clock, VirtualClock)
    apply, spent = step._apply, list[int]()

    def slow(*args: Any) -> None:
        apply(*args)
        spent.append(clock.timer_ms())
        clock.spend(1_000_000)

    monkeypatch.setattr(step, "_apply", slow)

    def restore_for(ms: int) -> int:
        before = len(spent)
        for _ in range(ms):
            clock.advance(1)
            read.run_once(clock.timer_ms())
            assert step.run_once(clock.timer_ms()) <= restoration.IDLE_MS
        return len(spent) - before

    monkeypatch.setattr(life.instance.manager, "has_work_of_far_more", lambda weight: weight <= 4)
    step._has_to_yield = life.instance.manager.has_work_of_far_more
    assert 0 < restore_for(400) <= 400 * restoration.YIELDING_SHARE + 2, "a task with two stores"
    step._has_to_yield = lambda weight: False
    assert restore_for(8) >= 6, "it rests no longer than it has to"
    life.settle()
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert life.table("C") == undisturbed(COUNTS, (0, 50), (50, 60)).table("C")


def test_an_owner_is_one_of_two(one_by_one: None) -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    tasks = life.instance.queries["CTAS_C"].built.tasks
    while life.statuses("CTAS_C") != {TaskStatus.RUNNING}:
        life.round()
        managed = life.instance.manager.tasks()
        for task in tasks:
            owners = [life.instance.restoration.owns(task), task in managed]
            assert sum(owners) <= 1
            assert task.status is (TaskStatus.RUNNING if owners[1] else TaskStatus.RESTORING)
    with pytest.raises(AssertionError):
        life.instance.restoration.add(tasks[0], ())


def test_a_changelog_that_cannot_be_read_is_tried_again_and_stops_nobody_else() -> None:
    other = "CREATE STREAM O WITH (KAFKA_TOPIC='o') AS SELECT * FROM S EMIT CHANGES;"
    life = Life(no_redo(), COUNTS + other)
    life.feed(0, 30)
    life.settle()
    before = life.table("C")
    life = life.again()
    client = life.instance.restore
    read, broken = client.read_key_values, [True]

    def sometimes(tp: TopicPartition, *args: Any) -> Any:
        if broken[0] and tp.topic.endswith("-changelog"):
            raise OffsetOutOfRange("not now")
        return read(tp, *args)

    client.read_key_values = sometimes  # type: ignore[method-assign]
    life.feed(30, 40)
    for _ in range(10):
        life.round()
    assert life.instance.metrics.query("CTAS_C").last_error == "OffsetOutOfRange: not now (restoration)"
    assert life.instance.metrics.query("CSAS_O").records_out == 10
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    broken[0] = False
    assert isinstance(life.clock, VirtualClock)
    life.clock.advance(BACKOFF_MS_MAX)
    life.settle()
    assert sum(row[1] for row in life.table("C")) == sum(row[1] for row in before) + 10


def test_a_task_goes_only_where_its_status_may_go() -> None:
    assert TaskStatus.CREATED.to(TaskStatus.RESTORING).to(TaskStatus.RUNNING).to(TaskStatus.CLOSED)
    for one, other in (
        (TaskStatus.RUNNING, TaskStatus.RESTORING),
        (TaskStatus.CLOSED, TaskStatus.RUNNING),
        (TaskStatus.RUNNING, TaskStatus.CREATED),
        (TaskStatus.RUNNING, TaskStatus.RUNNING),
    ):
        with pytest.raises(IllegalTransition):
            one.to(other)


def test_changelogs_are_compacted_and_have_a_partition_per_task() -> None:
    life = Life(no_redo(), COUNTS)
    topics = life.log.topics()
    stores = [s.name for s in life.instance.state.stores() if not s.name.startswith("__")]
    assert stores
    for store in stores:
        topic = topics[changelog_topic("flowql", store)]
        assert (topic.partitions, topic.config) == (
            2,
            {"cleanup.policy": "compact", "delete.retention.ms": "604800000"},
        )
    assert topics["flowql-metadata"].config == {"cleanup.policy": "compact"}


def test_a_source_deleted_while_its_query_restores_stops_that_query_alone(one_by_one: None) -> None:
    other = """CREATE STREAM Q (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='q', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
      CREATE TABLE E WITH (KAFKA_TOPIC='e') AS SELECT K, COUNT(*) AS N FROM Q GROUP BY K EMIT CHANGES;"""
    life = Life(no_redo(), COUNTS + other)
    life.feed(0, 50)
    life.send("q", [(1, {"V": 1}, 0)])
    life.settle()
    life = life.again()
    life.log.delete_topic("s")
    life.send("q", [(1, {"V": 1}, 0)])
    life.settle()
    assert life.table("E") == [(1, 2)]
    while life.instance.restoration.progress():
        life.round()
    life.round()
    assert life.instance.query_states.of("CTAS_C").state is STOPPED
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}  # in the task manager, which holds it


def test_a_query_that_could_not_be_built_leaves_nothing_to_its_successor() -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life.log.delete_topic("s")
    life = life.again()
    assert life.instance.query_states.of("CTAS_C").state is STOPPED
    life.deploy(COUNTS.replace("FROM S GROUP", "FROM S WHERE K < 3 GROUP"))
    life.feed(0, 10)
    life.settle()
    assert [row[0] for row in life.table("C")] == [0, 1, 2]
    again = life.again()
    again.settle()
    assert [row[0] for row in again.table("C")] == [0, 1, 2]


@pytest.mark.usefixtures("one_by_one")
def test_a_query_that_is_let_go_while_it_is_restored_runs_when_it_is_whole() -> None:
    """It stayed held for good, as it was not to be let go while its state came back; `status` said that it runs."""
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life.instance.deploy(replace(life.instance.plan, paused=("CTAS_C",)))
    life = life.again()
    life.feed(50, 90)
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    assert state_of(life.instance, "CTAS_C") == "paused"
    life.instance.deploy(replace(life.instance.plan, paused=()))
    assert life.statuses("CTAS_C") == {TaskStatus.RESTORING}
    life.settle()
    assert life.table("C") == undisturbed(COUNTS, (0, 50), (50, 90)).table("C")


@pytest.mark.parametrize("at", ["before", "at its end", "after"])
def test_who_takes_a_task_from_the_restoration_is_told_whether_it_has_it(at: str, one_by_one: None) -> None:
    """A task that becomes whole at this moment is not handed over beside."""
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    instance = life.instance
    restoration, (task, _) = instance.restoration, instance.queries["CTAS_C"].built.tasks
    handed_over, removals = list[str](), list[Future[bool]]()
    restoration._hand_over = lambda whole: handed_over.append(str(whole.id))
    end = instance.state.end_restore

    def ended(name: str, *positions: Any) -> bool:
        whole = end(name, *positions)
        if at == "at its end" and name == str(task.id):
            removals.append(restoration.remove(task))
        return whole

    instance.state.end_restore = ended  # type: ignore[method-assign]
    if at == "before":
        removals.append(restoration.remove(task))
    while not any(r.done() for r in removals):
        restoration.run_once(life.clock.timer_ms())
        instance.restore.loop.run_once(life.clock.timer_ms())
        if at == "after" and str(task.id) in handed_over:
            removals.append(restoration.remove(task))
    assert [r.result() for r in removals] == [at != "after"]
    assert not restoration.owns(task)
    assert (str(task.id) in handed_over) == (at == "after")

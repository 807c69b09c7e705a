"""What the state manager does when a restoration begins and ends."""

from __future__ import annotations

from typing import Any

from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.values import encode_metadata, encode_value
from flowql.runtime.task.status import TaskStatus
from tests.runtime.restoration.test_restoration import STREAM, Life, no_redo
from tests.runtime.state.support import commit, publish, put, table, window


def manager_on(physical: MemoryPhysical | None = None, **options: Any) -> StateManager:
    return StateManager(physical or MemoryPhysical(), **options)


def rows(count: int) -> dict[tuple[str], tuple[int]]:
    return {(f"k{n}",): (n,) for n in range(count)}


def test_what_is_behind_is_cleared_and_what_was_dropped_goes() -> None:
    physical = MemoryPhysical()
    manager = manager_on(physical)
    for task_id, store in (("current", "A"), ("stale", "B"), ("dropped", "C")):
        put(manager, manager.open_task(task_id, 0, [table(store)]), store, rows(3))
    manager.apply(manager.cut(), 1)
    manager = manager_on(physical)
    record = TaskRecord(0, ("B",), encode_metadata({"at": 7}))
    manager.begin_restore({"current": TaskRecord(0, ("A",), encode_metadata({})), "stale": record}, ["stale"], 5)
    assert manager.applied_sequence == 5
    assert manager.restoring() == {"stale": record}
    assert list(manager.snapshot().tasks()) == ["current"]
    left = {name: len(list(manager.snapshot().scan(name))) for name in ("A", "B", "C")}
    assert left == {"A": 3, "B": 0, "C": 0}
    assert manager_on(physical).restoring() == {"stale": record}, "a restart goes on"


def test_a_task_opened_before_its_restoration_knows_the_time_bound_after_it() -> None:
    source = manager_on(changelog=lambda spec: True)
    task = source.open_task("q", 0, [window()])
    put(source, task, "W", {("a", t): (t,) for t in (50_000, 250_000)})
    task.store("W").expire(200_000)
    publish(source, task)
    frozen = source.cut()
    [(_, _, keys, values)] = frozen.changelog_columns()
    target = manager_on()
    target.begin_restore({"q": frozen.tasks["q"]}, ["q"], 1)
    opened = target.open_task("q", 0, [window()])
    assert opened.metadata == task.metadata
    target.restored.take(window(), 0, keys, values)
    target.end_restore("q")
    assert [key for key, _ in opened.store("W").scan()] == [("a", 250_000)]
    opened.store("W").put(("a", 100_000), (1,))
    assert opened.store("W").get(("a", 100_000)) is None


def test_a_task_that_is_restored_is_not_idle() -> None:
    """It does not know yet what is to come, so nobody downstream may go ahead of it."""
    life = Life(no_redo(), STREAM + "CREATE TABLE C AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;")
    life.feed(0, 20)
    life.settle()
    life = life.again()
    tasks = life.instance.queries["CTAS_C"].built.tasks
    assert [t.idle for t in tasks if t.status is TaskStatus.RESTORING] == [False] * len(tasks)
    life.settle()
    assert all(t.idle for t in tasks)


def test_a_store_restored_while_a_commit_is_under_way_shares_its_id_with_no_other() -> None:
    """The commit then wrote the next id as it was at its cut; after a start two stores had the same rows."""
    physical = MemoryPhysical()
    manager = manager_on(physical)
    manager.open_task("here", 0, [table("HERE")])
    epoch = manager.cut()
    spec = table("RESTORED")
    manager.restored.take(spec, 0, [b"\x01k\x00"], [encode_value((1,))])
    manager.apply(epoch, 1)
    again = manager_on(physical)
    new = again.open_task("new", 0, [table("NEW")])
    restored = again.open_task("restored", 0, [spec])
    assert new.store("NEW").entry.id != restored.store("RESTORED").entry.id
    assert list(new.store("NEW").scan()) == []


def test_what_a_lost_member_wanted_to_drop_stays() -> None:
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", {("k",): (1,)}, {"at": 1})
    commit(manager)
    manager.close_task("q")
    manager.drop_task("q")
    manager.cut()
    manager.abandon()
    record = manager.local_record("q")
    assert record is not None
    assert record.read() == {"at": 1}
    commit(manager)
    found = manager_on(physical).open_task("q", 0, [table()])
    assert (dict(found.store("T").scan()), found.metadata) == ({("k",): (1,)}, {"at": 1})

"""What readers see: snapshots of the running state, and of the directory of a stopped instance."""

import pytest

from flowql.compiler.plan import types as T
from flowql.runtime.errors import StateError
from flowql.runtime.state import reader
from flowql.runtime.state.copy import copy_of
from flowql.runtime.state.keys import key_codec
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.reader import open_readonly
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.values import encode_metadata, encode_value
from tests.runtime.state.support import Forgetful, commit, manager_on, put, rows, table, window


def test_snapshots_outlive_later_commits_and_tell_their_sequence():
    manager = manager_on()
    task = manager.open_task("q", 0, [table()])
    assert manager.snapshot().stores() == []
    put(manager, task, "T", rows(2), {"at": 1})
    commit(manager)
    old = manager.snapshot()
    put(manager, task, "T", {("k0",): None, ("k9",): (9,)}, {"at": 2})
    commit(manager)
    new = manager.snapshot()
    assert (old.sequence, new.sequence) == (1, 2)
    assert dict(old.scan("T")) == rows(2)
    assert dict(new.scan("T")) == {("k1",): (1,), ("k9",): (9,)}
    assert (old.tasks(), new.tasks()) == ({"q": {"at": 1}}, {"q": {"at": 2}})
    with pytest.raises(StateError, match="no store U"):
        new.get("U", ("k",))
    old.close()
    with pytest.raises(AssertionError, match="closed"):
        old.get("T", ("k0",))
    new.close()


@pytest.mark.parametrize("flushed", [0, 1, 2, 3])
def test_a_stopped_instance_is_read_from_its_directory_and_redo(tmp_path, flushed):
    path, redo = tmp_path / "db", []
    manager = manager_on(open_rocks(path))
    task = manager.open_task("q", 0, [table(), window()])
    for n in range(1, 4):
        task.store("W").put(("w", n * 100_000), (n,))
        task.store("W").expire(n * 90_000)
        put(manager, task, "T", {("k0",): (n,), (f"n{n}",): (n,), (f"n{n - 2}",): None}, {"at": n})
        redo.append((n, commit(manager)))
        if n <= flushed:
            manager.flush()
    with open_readonly(path, redo) as seen, manager.snapshot() as live:
        assert seen.sequence == live.sequence == 3
        assert list(seen.stores()) == list(live.stores())
        for store in ("T", "W"):
            assert list(seen.scan(store)) == list(live.scan(store))
        assert seen.get("T", ("k0",)) == (3,)
        assert seen.get("T", ("n1",)) is None
        assert seen.tasks() == {"q": {"at": 3}}
    if flushed < 2:
        with pytest.raises(StateError, match=f"redo of commit {flushed + 1} is missing"):
            open_readonly(path, redo[2:])
    manager.close()


def test_a_stopped_instance_whose_redo_has_a_gap_is_closed_again(tmp_path, monkeypatch):
    closed, base = [], MemoryPhysical()
    base.close = lambda: closed.append("base")
    (tmp_path / "CURRENT").touch()
    monkeypatch.setattr(reader, "open_rocks", lambda path, read_only: base)
    with pytest.raises(StateError, match="redo of commit 1 is missing"):
        open_readonly(tmp_path, [(0, b""), (2, b"")])
    assert closed == ["base"]


def test_a_copy_is_of_the_last_commit_and_its_files_go_with_it(tmp_path):
    manager = manager_on(open_rocks(tmp_path / "db"))
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", rows(3), {"at": 1})
    commit(manager)
    with copy_of(manager, tmp_path / "copy") as copy:
        put(manager, task, "T", {("k0",): (9,)}, {"at": 2})
        commit(manager)
        assert (copy.sequence, copy.tasks(), dict(copy.scan("T"))) == (1, {"q": {"at": 1}}, rows(3))
        assert copy.get_many("T", [("k1",), ("none",)]) == [(1,), None]
    assert [p.name for p in tmp_path.iterdir()] == ["db"]
    manager.close()


def test_a_directory_without_state_reads_as_empty(tmp_path):
    with open_readonly(tmp_path / "none") as snapshot:
        assert (snapshot.sequence, list(snapshot.stores())) == (0, [])


def test_a_snapshot_of_one_of_many_instances_holds_the_tasks_it_has():
    manager = StateManager(MemoryPhysical(), shared=True)
    spec, tasks = table(), {}
    for partition in (0, 1):
        tasks[partition] = manager.open_task(f"Q/0_{partition}", partition, [spec])
        put(manager, tasks[partition], spec.name, {(f"k{partition}",): (partition,)})
    commit(manager)
    shown = [row for row, _ in manager.snapshot().scan(spec.name)]
    assert shown == [("k0",), ("k1",)]

    before = manager.snapshot()
    manager.close_task("Q/0_1")  # its state stays here for the day it comes back, and is old then
    snapshot = manager.snapshot()
    assert [row for row, _ in snapshot.scan(spec.name)] == [("k0",)]
    assert snapshot.get(spec.name, ("k1",)) is None
    assert snapshot.size(spec.name)[0] == 1
    assert list(snapshot.tasks()) == ["Q/0_0"]
    assert len(list(before.scan(spec.name))) == 2  # of a commit at which it was here

    manager.open_task("Q/0_1", 1, [spec])
    assert len(list(manager.snapshot().scan(spec.name))) == 2
    manager.close_task("Q/0_1", owned=True)  # refused by the log, and given to nobody
    assert len(list(manager.snapshot().scan(spec.name))) == 2
    manager.disown(["Q/0_1"])
    assert len(list(manager.snapshot().scan(spec.name))) == 1


def test_a_task_that_was_kept_and_came_back_is_shown_no_more_once_others_have_it():
    """A parked task is shown while it is closed; when it has run again and is given away, what is here of it is old."""
    manager = StateManager(MemoryPhysical(), shared=True)
    put(manager, manager.open_task("Q/0_0", 0, [table()]), "T", rows(1))
    commit(manager)
    manager.close_task("Q/0_0", owned=True)
    assert list(manager.snapshot().tasks()) == ["Q/0_0"]
    manager.open_task("Q/0_0", 0, [table()])
    manager.close_task("Q/0_0")
    assert list(manager.snapshot().tasks()) == []


def test_a_snapshot_of_one_of_many_instances_holds_no_task_that_is_being_restored():
    manager = StateManager(MemoryPhysical(), shared=True)
    spec = table()
    task = manager.open_task("Q/0_0", 0, [spec])
    put(manager, task, spec.name, {("k",): (1,)})
    commit(manager)
    manager.close_task("Q/0_0")
    record = manager.local_record("Q/0_0")
    manager.rebuild({"Q/0_0": record})
    manager.open_task("Q/0_0", 0, [spec])
    manager.restored.take(spec, 0, [key_codec((T.STRING,)).encode(("k",))], [encode_value((2,))])
    assert list(manager.snapshot().scan(spec.name)) == []
    manager.end_restore("Q/0_0")
    assert list(manager.snapshot().scan(spec.name)) == [(("k",), (2,))]


def test_after_a_reset_nothing_of_the_old_state_is_seen():
    """Neither in answers nor by the tasks that are opened for the state that is made anew. No restoration goes on."""
    physical = Forgetful()
    before = manager_on(physical)
    put(before, before.open_task("q", 0, [table()]), "T", rows(5), {"at": 1})
    commit(before)
    StateManager(physical).begin_restore({"r": TaskRecord(1, ("T",), encode_metadata({}))}, [], 2)
    manager = StateManager(physical)
    assert manager.committed_stores()
    assert list(manager.restoring()) == ["r"]
    manager.reset(7)
    assert manager.applied_sequence == 7
    crashed = manager_on(physical.after_crash(0))  # no redo would bring this about once more
    assert (crashed.applied_sequence, crashed.committed_tasks()) == (0, []), "and it is known that the state is lost"
    assert not manager.committed_stores()
    assert manager.committed_tasks() == []
    with manager.snapshot() as snapshot:
        assert (snapshot.sequence, list(snapshot.stores()), snapshot.tasks()) == (7, [], {})
    task = manager.open_task("q", 0, [table()])
    assert task.metadata == {}
    assert dict(task.store("T").scan()) == {}

"""Files of a physical store: copies of a commit, files of rows that are taken over, and stores that are opened anew and closed."""

import threading
from pathlib import Path

import pytest

from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.reader import RedoReader
from flowql.runtime.state.restore import RowFile
from flowql.runtime.state.rocks import open_rocks, write_row_file
from tests.runtime.state.support import commit, manager_on, put, table


def test_a_checkpoint_is_of_one_commit_and_the_next_is_not_applied_before_it_is_known(tmp_path):
    """Else redo that a restart from the copy needs would be trimmed."""
    manager, seen = StateManager(open_rocks(tmp_path / "state")), []
    task = manager.open_task("q/0_0", 0, [table()])
    put(manager, task, "T", {("a",): (1,)})
    commit(manager)

    put(manager, task, "T", {("a",): (2,)})
    next_commit = threading.Thread(target=lambda: commit(manager))

    def also():
        next_commit.start()
        next_commit.join(0.05)
        seen.append(manager.applied_sequence)

    assert manager.checkpoint(tmp_path / "copy", also) == 1
    next_commit.join()
    assert (seen, manager.applied_sequence) == ([1], 2)
    copy = StateManager(open_rocks(tmp_path / "copy"))
    assert copy.applied_sequence == 1
    with copy.snapshot() as snapshot:
        assert list(snapshot.scan("T")) == [(("a",), (1,))]
    copy.close()
    manager.close()


def test_a_state_that_is_closed_closes_its_store_and_what_tasks_hold():
    physical, closed = MemoryPhysical(), []
    physical.close = lambda: closed.append("store")
    manager = StateManager(physical)
    manager.open_task("q/0_0", 0, [table()]).closing.append(lambda: closed.append("task"))
    manager.close()
    assert closed == ["task", "store"]


def test_a_snapshot_of_a_stopped_instance_closes_its_files():
    closed = []
    base = MemoryPhysical()
    base.close = lambda: closed.append("base")
    RedoReader(base).close()
    assert closed == ["base"]


@pytest.mark.parametrize("kind", ["memory", "rocks"])
def test_a_store_that_is_opened_anew_is_rolled_forward_by_its_owner(kind, tmp_path):
    physical = MemoryPhysical() if kind == "memory" else open_rocks(tmp_path)
    physical.reopen(lambda: physical.write_batch([b"k"], [b"redone"]))
    assert physical.get(b"k") == b"redone"
    physical.close()


def test_rows_and_deletes_of_a_file_are_newer_than_those_that_exist(tmp_path):
    physical = open_rocks(tmp_path / "state")
    physical.write_batch([b"a", b"b", b"c"], [b"old"] * 3)
    physical.flush()
    for name, keys, values in (
        ("mixed", [b"b", b"c", b"d"], [None, b"new", b"new"]),
        ("rows", [b"e", b"f"], [b"1", b"2"]),
    ):
        write_row_file(tmp_path / name, keys, values)
        physical.ingest(tmp_path / name)
    assert physical.multi_get([b"a", b"b", b"c", b"d", b"e", b"f"]) == [b"old", None, b"new", b"new", b"1", b"2"]
    assert [key for key, _ in physical.scan(b"a", b"z")] == [b"a", b"c", b"d", b"e", b"f"]
    physical.close()


@pytest.mark.parametrize("clears", [False, True])
def test_a_store_is_flushed_before_a_file_that_deletes_rows_is_taken(clears):
    """The ingestion would flush while it holds the locks of commits."""

    class Noted(MemoryPhysical):
        def flush(self):
            calls.append("flush")

        def ingest(self, path):
            calls.append("ingest")

    calls: list[str] = []
    manager = manager_on(Noted())
    entry = manager.restored.expect_files(table(), 0)
    assert calls == ["flush"], "that its task is not whole is on disk first"
    ranges = [entry.partition_range(0)] if clears else []
    assert manager.restored.take_file(entry, 0, RowFile(Path("rows"), Writes(ranges, [], []), 1, 1))
    assert calls == ["flush", *["flush"] * clears, "ingest"]

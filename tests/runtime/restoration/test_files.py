"""Changelog records that come as files of rows leave behind what they do as records."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.errors import StateError
from flowql.runtime.state import restored_rows
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.restore import RowFile, place_records
from flowql.runtime.state.rocks import open_rocks, write_row_file
from tests.runtime.restoration.test_oracle import (
    TASK,
    Records,
    Step,
    begun,
    chunks,
    cuts,
    history,
    rows_of,
    specs,
    steps,
)
from tests.runtime.state.support import table

pytestmark = pytest.mark.turns("long")


def file_of(manager: StateManager, spec: StoreSpec, name: str, records: Records) -> RowFile:
    """What the other process makes of records."""
    assert manager.restored.incoming is not None
    entry = manager.restored.expect_files(spec, 0)
    around, rows = place_records(entry, 0, [k for k, _ in records], [v for _, v in records])
    manager.restored.incoming.mkdir(exist_ok=True)
    path = manager.restored.incoming / name if rows.keys else None
    if path is not None:
        write_row_file(path, rows.keys, rows.values)
    return RowFile(path, around, len(records), 0)


def take(manager: StateManager, spec: StoreSpec, parts: Iterator[Records]) -> None:
    for n, part in enumerate(parts):
        file = file_of(manager, spec, f"{n}.sst", part)
        assert manager.restored.take_file(manager.restored.expect_files(spec, 0), 0, file)
    assert manager.restored.incoming is not None
    assert list(manager.restored.incoming.glob("*")) == []


@settings(max_examples=25)
@given(spec=specs, plan=steps, cuts=cuts)
def test_rows_come_back_as_files(
    tmp_path_factory: pytest.TempPathFactory, spec: StoreSpec, plan: Sequence[Step], cuts: Sequence[int]
) -> None:
    records, rows = history(spec, plan)
    manager = begun(open_rocks(tmp_path_factory.mktemp("rocks")), spec)
    take(manager, spec, chunks(records, cuts))
    manager.end_restore(TASK)
    assert rows_of(manager) == rows
    assert dict(manager._tasks[TASK].store("S").scan()) == rows, "an open task sees them, too"
    manager.close()


KILLED = """
import os, pickle, sys
from pathlib import Path
from tests.runtime.restoration.test_files import TASK, begun, open_rocks, take

folder, spec, parts, ended = pickle.load(sys.stdin.buffer)
manager = begun(open_rocks(folder), spec)
take(manager, spec, iter(parts))
if ended:
    manager.end_restore(TASK)
os._exit(9)
"""


@pytest.mark.crash
@settings(max_examples=5)
@given(spec=specs, plan=steps, cuts=cuts, ended=st.booleans())
def test_files_outlive_a_crash_and_are_no_whole_task(
    tmp_path_factory: pytest.TempPathFactory, spec: StoreSpec, plan: Sequence[Step], cuts: Sequence[int], ended: bool
) -> None:
    """Files are on disk at once, as the beginning and the end of a restoration are; what was written otherwise need not be."""
    records, rows = history(spec, plan)
    folder = tmp_path_factory.mktemp("rocks")
    told = pickle.dumps((folder, spec, list(chunks(records, cuts)), ended))
    assert subprocess.run([sys.executable, "-c", KILLED], input=told, check=False).returncode == 9
    after = StateManager(open_rocks(folder))
    assert after.committed_tasks() == [TASK]
    assert set(after.restoring()) == (set() if ended else {TASK})
    with after.snapshot() as snapshot:
        assert set(snapshot.tasks()) == ({TASK} if ended else set()), "half a task never looks whole"
    if ended:
        assert rows_of(after) == rows
    after.begin_restore({TASK: TaskRecord(0, ("S",), b"")}, [TASK], 1)
    after.close()
    again = begun(open_rocks(folder), spec)
    assert [key for key in again._physical.scan(b"\0\0\0\1", b"\xff")] == [], "rows of the first attempt stay"
    again.close()


def test_a_file_is_newer_than_what_is_there_and_seen_by_no_older_snapshot(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "db")
    store.write_batch([b"a", b"b", b"c"], [b"old"] * 3)
    store.write_batch([b"e"], [b"old"], [(b"c", b"d")])
    before = store.snapshot()
    assert store.incoming is not None
    store.incoming.mkdir()
    write_row_file(store.incoming / "1", [b"a", b"b", b"c", b"d"], [b"new", None, b"new", b""])
    store.ingest(store.incoming / "1")
    assert list(store.scan(b"a", b"z")) == [(b"a", b"new"), (b"c", b"new"), (b"d", b""), (b"e", b"old")]
    assert before.multi_get([b"a", b"b", b"c", b"d"]) == [b"old", b"old", None, None]
    assert [key for key, _ in before.scan(b"a", b"z")] == [b"a", b"b", b"e"]
    before.close()
    store.close()


def test_files_that_a_crash_has_left_go(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "db")
    assert store.incoming is not None
    store.incoming.mkdir()
    (store.incoming / "left").touch()
    store.close()
    store = open_rocks(tmp_path / "db")
    assert store.incoming is not None
    assert not store.incoming.exists()
    store.close()


def test_a_file_waits_for_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, rows = history(table("S"), [("put", 1, 1), ("put", 2, 2)])
    manager = begun(open_rocks(tmp_path / "db"), table("S"))
    file = file_of(manager, table("S"), "1", records)
    entry = manager.restored.expect_files(table("S"), 0)
    with monkeypatch.context() as patch:
        patch.setattr(restored_rows, "FILES_ON_TOP_MAX", 0)
        assert not manager.restored.take_file(entry, 0, file)
    assert manager.restored.take_file(entry, 0, file)
    manager.end_restore(TASK)
    assert rows_of(manager) == rows
    manager.close()


def test_a_file_of_a_store_that_was_dropped_meanwhile_is_refused(tmp_path: Path) -> None:
    records, _ = history(table("S"), [("put", 1, 1)])
    manager = begun(open_rocks(tmp_path / "db"), table("S"))
    entry = manager.restored.expect_files(table("S"), 0)
    file = file_of(manager, table("S"), "1", records)
    manager.close_task(TASK)
    manager.drop_task(TASK)
    with pytest.raises(StateError, match="was dropped"):
        manager.restored.take_file(entry, 0, file)
    manager.apply(manager.cut(), 2)
    with pytest.raises(StateError, match="was dropped"):
        manager.restored.take_file(entry, 0, file)
    manager.close()

"""Rows that come back from a changelog are those that went in: whatever was deleted, dropped or expired, however the changelog is
cut into chunks, and wherever a crash ends one attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.state import restore
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.physical import Physical
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.values import encode_metadata
from tests.runtime.state.support import Forgetful, manager_on, publish, table, window

TASK = "q"
MINUTE_MS = 60_000
RECORD = TaskRecord(0, ("S",), encode_metadata({"at": 3}))

Rows = dict[Key, Value]
Records = list[tuple[bytes, bytes | None]]
Step = tuple[str, int, int]

steps = st.lists(
    st.tuples(st.sampled_from(("put", "put", "put", "delete", "expire", "drop", "commit")), st.integers(0, 6), st.integers(0, 9)),
    max_size=40,
)  # fmt: skip


def history(spec: StoreSpec, plan: Sequence[Step]) -> tuple[Records, Rows]:
    """A changelog, and the rows of the store that wrote it."""
    source = manager_on(changelog=lambda _: True)
    task = source.open_task(TASK, 0, [spec])
    timed = spec.kind == "window"
    records: Records = []

    def commit() -> None:
        nonlocal task
        publish(source, task)
        frozen = source.cut()
        records.extend((key, value) for _, _, key, value in frozen.changelog())
        source.apply(frozen, source.applied_sequence + 1)

    for what, k, n in plan:
        key: Key = (f"k{k}", n * MINUTE_MS) if timed else (f"k{k}",)
        if what == "put":
            task.store("S").put(key, (n,))
        elif what == "delete":
            task.store("S").put(key, None)
        elif what == "expire" and timed:
            task.store("S").expire(n * MINUTE_MS // 2)
        elif what == "commit":
            commit()
        elif what == "drop":
            commit()
            source.close_task(TASK)
            source.drop_task(TASK)
            task = source.open_task(TASK, 0, [spec])
    commit()
    return records, dict(task.store("S").scan())


def chunks(records: Records, cuts: Sequence[int]) -> Iterator[Records]:
    borders = sorted({0, len(records), *(c % (len(records) + 1) for c in cuts)})
    return (records[a:b] for a, b in pairwise(borders))


def begun(physical: Physical, spec: StoreSpec) -> StateManager:
    """An instance that has still to restore the task, as after a start."""
    manager = StateManager(physical)
    if not manager.restoring():
        manager.begin_restore({TASK: RECORD}, [TASK], 1)
    manager.open_task(TASK, 0, [spec])
    return manager


def feed(manager: StateManager, spec: StoreSpec, parts: Iterator[Records]) -> None:
    for part in parts:
        manager.restored.take(spec, 0, [k for k, _ in part], [v for _, v in part])


def rows_of(manager: StateManager) -> Rows:
    with manager.snapshot() as snapshot:
        assert snapshot.tasks() == {TASK: {"at": 3}}
        known = "S" in {spec.name for spec in snapshot.stores()}  # not if its changelog is empty
        return dict(snapshot.scan("S")) if known else {}


specs = st.sampled_from((table("S"), window("S")))
cuts = st.lists(st.integers(0, 200), max_size=6)


@given(spec=specs, plan=steps, cuts=cuts, hold=st.integers(1, 7))
def test_rows_come_back_however_the_changelog_is_cut(
    spec: StoreSpec, plan: Sequence[Step], cuts: Sequence[int], hold: int
) -> None:
    records, rows = history(spec, plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "RESTORE_ROWS_MAX", hold)
        manager = begun(manager_on()._physical, spec)
        feed(manager, spec, chunks(records, cuts))
        manager.end_restore(TASK)
    assert rows_of(manager) == rows
    assert dict(manager._tasks[TASK].store("S").scan()) == rows, "an open task sees them, too"


@given(spec=specs, plan=steps, cuts=cuts, read=st.integers(0, 200), kept=st.integers(0, 200), flushed=st.booleans())
def test_a_crash_in_between_changes_nothing(
    spec: StoreSpec, plan: Sequence[Step], cuts: Sequence[int], read: int, kept: int, flushed: bool
) -> None:
    """Of what was written a part is lost from the end; until all is back the task is not there."""
    records, rows = history(spec, plan)
    disk = Forgetful()
    manager = begun(disk, spec)
    manager.flush()
    feed(manager, spec, chunks(records[: read % (len(records) + 1)], cuts))
    if flushed:
        manager.flush()
    again = disk.after_crash(kept % (len(disk.since_flush) + 1))
    manager = begun(again, spec)
    with manager.snapshot() as snapshot:
        assert snapshot.tasks() == {}, "half a task never looks whole"
    feed(manager, spec, chunks(records, cuts))
    manager.end_restore(TASK)
    assert rows_of(manager) == rows


@settings(max_examples=10)
@given(spec=specs, plan=steps, cuts=cuts)
def test_rows_come_back_into_rocksdb(
    tmp_path_factory: pytest.TempPathFactory, spec: StoreSpec, plan: Sequence[Step], cuts: Sequence[int]
) -> None:
    records, rows = history(spec, plan)
    folder: Path = tmp_path_factory.mktemp("rocks")
    manager = begun(open_rocks(folder), spec)
    feed(manager, spec, chunks(records, cuts))
    manager.end_restore(TASK)
    assert rows_of(manager) == rows
    manager.close()

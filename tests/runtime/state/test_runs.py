"""Runs: blocks give back their rows, merges bound how many runs there are, and rows from before are taken in step by step."""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.runtime.budget import RUN_ROWS_MIN
from flowql.runtime.clock import SystemClock
from flowql.runtime.state.columns.packed import pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.copy import copy_of
from flowql.runtime.state.layout import SEGMENT_MS_MIN, StoreEntry
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.reader import open_readonly
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.runs import merged, reader
from flowql.runtime.state.runs.merged import KEPT_BYTES
from flowql.runtime.state.runs.merging import FAN_IN, choose
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.reader import RunsReader
from flowql.runtime.state.runs.run import (
    PREFIX_BYTES,
    FlatRows,
    Head,
    Run,
    RunBuilder,
    decode_blocks,
    encode_blocks,
    find_in_block,
    newest,
    run_name,
)
from flowql.runtime.state.runs.writing import TAKEN_IN_MIN
from tests.runtime.state.support import commit, manager_on, publish, put, table, window

LAYOUT = ValueLayout((("integer",),))
BYTES = st.binary(min_size=1, max_size=20)
# Keys as their codec writes them: none is the beginning of another one.
ROWS = st.dictionaries(BYTES.map(lambda b: b.replace(b"\0", b"\0\xff") + b"\0"), st.none() | BYTES, min_size=1)


@given(ROWS, st.lists(BYTES))
@settings(deadline=None)
def test_blocks_give_back_their_rows(rows: dict[bytes, bytes | None], others: list[bytes]) -> None:
    flat = newest([FlatRows.of(list(rows), list(rows.values()))])
    fences, blocks = encode_blocks(flat)
    keys, values = decode_blocks(blocks).lists()
    assert dict(zip(keys, values, strict=True)) == rows
    assert keys == sorted(rows)
    assert fences[0] == keys[0]
    for key in [*rows, *others]:
        found = [v for b in blocks if (v := find_in_block(b, key)) is not None]
        assert found == ([rows[key] or b""] if key in rows else [])


def test_merges_bound_how_many_runs_there_are_and_how_often_a_row_is_written() -> None:
    """Commits of 100,000 different rows, 200 of them."""
    runs: list[Run] = []
    written = 0
    for n in range(200):
        runs.insert(0, Run(b"", run_name(n), Head(100_000, 0, b"")))
        written += 100_000
        while chosen := choose(runs):
            at, rows = runs.index(chosen[0]), sum(r.head.rows for r in chosen)
            runs[at : at + len(chosen)] = [Run(b"", chosen[0].name, Head(rows, 0, b""))]
            written += rows
        assert len(runs) < 3 * FAN_IN
    assert written / (200 * 100_000) < 4


def append(store, rows):
    keys = pack(store.entry.codec.encode_many(rows))
    store.append(keys, RowValues.of(LAYOUT, list(rows.values())))


def numbered(start, end, n):
    return {(f"key {i}",): (n,) for i in range(start, end)}


@pytest.mark.parametrize("rows", [100, 3 * TAKEN_IN_MIN])
def test_rows_from_before_are_taken_into_runs_step_by_step(rows: int) -> None:
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [table()])
    expected = numbered(0, rows, 1)
    put(manager, task, "T", expected)
    commit(manager)
    again = StateManager(physical)
    task = again.open_task("q", 0, [table()])
    store = task.store("T")
    for n in range(2, 7):
        written = {**numbered(n * 10, n * 10 + RUN_ROWS_MIN, n), ("key 99999",): None}
        append(store, written)
        publish(again, task)
        commit(again)
        expected.update(written)
        assert dict(store.scan()) == {k: v for k, v in expected.items() if v is not None}
    prefix = store.entry.prefix(0)
    assert next(physical.scan(prefix, prefix + b"\xff"), None) is None, "all rows are in runs"


def test_small_commits_change_and_delete_rows_of_runs() -> None:
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [table()])
    append(task.store("T"), numbered(0, RUN_ROWS_MIN, 1))
    publish(manager, task)
    commit(manager)
    put(manager, task, "T", {("key 1",): None, ("key 2",): (2,)})
    commit(manager)
    for state in (manager, StateManager(physical)):
        with state.snapshot() as seen:
            assert seen.get_many("T", [("key 0",), ("key 1",), ("key 2",)]) == [(1,), None, (2,)]
            assert len(list(seen.scan("T"))) == RUN_ROWS_MIN - 1
    append(task.store("T"), {("key 1",): (3,)} | numbered(10, 10 + RUN_ROWS_MIN, 4))
    publish(manager, task)
    commit(manager)
    with manager.snapshot() as seen:
        assert seen.get_many("T", [("key 0",), ("key 1",), ("key 2",), ("key 10",)]) == [(1,), (3,), (2,), (4,)]


def test_a_look_up_of_one_key_finds_what_a_look_up_of_many_finds() -> None:
    """In several runs, with deletions, and with keys that no run has."""
    manager = manager_on(MemoryPhysical())
    task = manager.open_task("q", 0, [table()])
    for n in range(3):
        begin = n * RUN_ROWS_MIN // 2
        append(task.store("T"), numbered(begin, begin + RUN_ROWS_MIN, n))
        publish(manager, task)
        commit(manager)
    put(manager, task, "T", {(f"key {n}",): None for n in range(0, RUN_ROWS_MIN, 3)})
    commit(manager)
    keys = [(f"key {n}",) for n in range(0, 3 * RUN_ROWS_MIN, 7)]
    with manager.snapshot() as seen:
        found = seen.get_many("T", keys)
        assert [seen.get("T", key) for key in keys] == found
    assert {None, (0,), (1,), (2,)} == set(found)


@pytest.mark.parametrize("kept_bytes", [KEPT_BYTES, 0])
def test_readers_of_whole_stores_decode_each_run_once(kept_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With deletions, rows in no run, merges, older snapshots, and stores whose rows have no room in memory."""
    monkeypatch.setattr(merged, "KEPT_BYTES", kept_bytes)
    decoded = list[int]()
    monkeypatch.setattr(merged, "decode_blocks", lambda blocks: (decoded.append(len(blocks)), decode_blocks(blocks))[1])
    manager, expected = manager_on(MemoryPhysical()), list[dict[tuple[str], tuple[int]]]()
    task, rows = manager.open_task("q", 0, [table()]), dict[tuple[str], tuple[int] | None]()
    merger, commits = manager.merger(SystemClock()), 2 * FAN_IN + 3
    with ExitStack() as stack:
        snapshots = []
        for n in range(commits):
            written = {**numbered(n * 50, n * 50 + RUN_ROWS_MIN, n), (f"key {n * 50 - 7}",): None}
            append(task.store("T"), written)
            publish(manager, task)
            commit(manager)
            put(manager, task, "T", {("key 3",): (-n,), ("key 70",): None})
            commit(manager)
            rows |= written | {("key 3",): (-n,), ("key 70",): None}
            expected.append({k: v for k, v in rows.items() if v is not None})
            snapshots.append(stack.enter_context(manager.snapshot()))
            assert dict(snapshots[-1].scan("T")) == expected[-1]
            for _ in range(3):
                merger.run_once(0)
        if kept_bytes:
            assert len(decoded) <= 2 * commits, "the new run of a commit, or a merged one"
        for seen, table_then in zip(snapshots, expected, strict=True):
            assert dict(seen.scan("T")) == table_then
            assert len(list(islice(seen.scan("T"), 5))) == 5
            some = {k: v for k, v in table_then.items() if ("key 5",) <= k < ("key 8",)}
            assert dict(seen.scan("T", low=("key 5",), high=("key 8",))) == some


def write_run(physical: RunsPhysical, prefix: bytes, rows: dict[bytes, bytes]) -> None:
    builder = RunBuilder(prefix, run_name(6), len(rows))
    blocks = builder.add(FlatRows.of(list(rows), list(rows.values())))
    written = {**blocks, **builder.heads()}
    physical.write_batch(list(written), list(written.values()))


@pytest.mark.parametrize("keeps_first", [True, False])
def test_a_restored_store_shows_its_own_rows_of_a_run_with_a_known_name(keeps_first: bool) -> None:
    """Also if a reader of the old rows notes them after the restored store is there."""
    physical, prefix = RunsPhysical(MemoryPhysical()), b"\0\0\0\5\0\0"
    write_run(physical, prefix, {b"a\0": b"old"})
    with closing(physical.snapshot()) as before:
        assert list(before.scan(prefix, prefix + b"\xff")) == [(prefix + b"a\0", b"old")]
        physical.write_batch([], [], [(prefix, prefix + b"\xff\xff")])
        if keeps_first:
            physical.cache.keep(prefix, ())
        write_run(physical, prefix, {b"a\0": b"new"})
        if not keeps_first:
            physical.cache.keep(prefix, ())
            assert list(before.scan(prefix, prefix + b"\xff")) == [(prefix + b"a\0", b"old")]
            physical.cache._runs.clear()
    with closing(physical.snapshot()) as seen:
        assert list(seen.scan(prefix, prefix + b"\xff")) == [(prefix + b"a\0", b"new")]
        assert seen.get(prefix + b"a\0") == b"new"


def test_the_first_rows_of_a_store_are_read_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "AT_ONCE_BYTES", 1_000)
    monkeypatch.setattr(merged, "decode_blocks", lambda blocks: pytest.fail("all rows were read"))
    manager = manager_on(MemoryPhysical())
    task = manager.open_task("q", 0, [table()])
    append(task.store("T"), numbered(0, RUN_ROWS_MIN, 1))
    publish(manager, task)
    commit(manager)
    with manager.snapshot() as seen:
        assert len(list(islice(seen.scan("T"), 3))) == 3
        monkeypatch.undo()
        assert dict(seen.scan("T")) == numbered(0, RUN_ROWS_MIN, 1)


def test_rows_of_windows_are_in_runs_by_segment() -> None:
    """Whose order is that of times first, not that of keys."""
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [window()])
    rows = {(f"key {i % 7}", i * 61_000): (i,) for i in range(RUN_ROWS_MIN)}
    append(task.store("W"), rows)
    publish(manager, task)
    commit(manager)
    store = StateManager(physical).open_task("q", 0, [window()]).store("W")
    assert dict(store.scan()) == rows
    assert store.get_many(list(rows)) == list(rows.values())


def test_a_scan_that_ends_below_the_floor_is_empty() -> None:
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [window()])
    append(task.store("W"), {(f"key {i}", i * 60_000): (i,) for i in range(RUN_ROWS_MIN)})
    publish(manager, task)
    commit(manager)
    task.store("W").expire(500 * 60_000)
    publish(manager, task)
    commit(manager)
    prefix = task.store("W").entry.prefix(0)
    with manager.snapshot() as seen:
        assert len(list(seen.scan("W"))) == RUN_ROWS_MIN - 500
    reader = RunsReader(physical.snapshot())
    assert list(reader.scan(prefix, prefix + task.store("W").entry.segment(100 * 60_000))) == []


def test_a_checkpoint_and_a_reader_beside_the_instance_see_runs(tmp_path: Path) -> None:
    manager = StateManager(open_rocks(tmp_path / "db"))
    task = manager.open_task("q", 0, [table()])
    expected: dict[tuple[str], tuple[int] | None] = {}
    merger = manager.merger(SystemClock())
    for n in range(1, FAN_IN + 3):
        written = {**numbered(n * 100, n * 100 + 2 * RUN_ROWS_MIN, n), ("key 500",): None}
        append(task.store("T"), written)
        publish(manager, task)
        commit(manager)
        expected.update(written)
        for _ in range(20):
            merger.run_once(0)
    rows = {k: v for k, v in expected.items() if v is not None}
    assert manager.checkpoint(tmp_path / "copy") == FAN_IN + 2
    with open_readonly(tmp_path / "copy") as seen:
        assert dict(seen.scan("T")) == rows
        assert seen.get_many("T", [("key 100",), ("key 500",), ("key 99999",)]) == [(1,), None, None]
    with copy_of(manager, tmp_path / "another") as copy:
        assert dict(copy.scan("T")) == rows
    with open_readonly(tmp_path / "db") as seen, manager.snapshot() as live:
        assert dict(seen.scan("T")) == dict(live.scan("T")) == rows
    manager.close()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=40), st.integers(1, 10))
@settings(deadline=None)
def test_many_keys_have_the_segments_that_each_has(times: list[int], minutes: int) -> None:
    entry = StoreEntry(1, window(), minutes * SEGMENT_MS_MIN)
    encoded = [entry.codec.encode(("a", t)) for t in times]
    assert entry.place(encoded, 0) == [entry.place([e], 0)[0] for e in encoded]
    assert all(key[PREFIX_BYTES] < 0xFF for key in entry.place(encoded, 0)), "runs are behind all rows"

"""A restoration that goes on from a position leaves the rows of one that begins with nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.app.changelog_cursor import ChangelogCursor
from flowql.runtime.budget import StateLimits
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.changelog import records_of
from flowql.runtime.state.columns.packed import pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.positions import RENEW_MS, ChangelogPosition, doubts
from flowql.runtime.state.restore import RowFile, over_runs, place_records
from flowql.runtime.state.rocks import open_rocks, write_row_file
from flowql.runtime.state.runs.run import PREFIX_BYTES
from tests.runtime.restoration.test_oracle import (
    MINUTE_MS,
    RECORD,
    TASK,
    Records,
    Rows,
    Step,
    begun,
    chunks,
    cuts,
    feed,
    rows_of,
    specs,
)
from tests.runtime.state.support import Forgetful, manager_on, publish, table

LAYOUT = ValueLayout((("integer",),))
KEEP = {("S", 0)}
Life = tuple[StoreSpec, Sequence[Step], int, bool]


@dataclass
class Lived:
    """An owner that has applied its commits up to a crash, and all that the log has: its records and those of later owners."""

    disk: Forgetful
    records: Records
    rows: Rows


def copied(disk: Forgetful) -> Forgetful:
    """With the same writes that a crash may lose."""
    found = Forgetful()
    for batch in (*disk.durable, *disk.since_flush):
        found.write_batch(*batch)
    return found


def position_at(offset: int, as_of_ms: int = 0) -> ChangelogPosition:
    return ChangelogPosition("id", offset, as_of_ms)


def lived(spec: StoreSpec, plan: Sequence[Step], crash_at: int, *, in_runs: bool) -> Lived:
    """Commits of `plan`, of which a disk has the first `crash_at`. in_runs: each commit of the store is a run."""
    disk = Forgetful()
    source = StateManager(disk, StateLimits(run_rows_min=1), changelog=lambda _: True)
    task = source.open_task(TASK, 0, [spec])
    records: Records = []
    written: dict[tuple[object, ...], tuple[int, ...] | None] = {}
    left: Forgetful | None = None
    commits = 0

    def commit() -> None:
        nonlocal commits, left
        if commits == crash_at:
            left = copied(disk)
        commits += 1
        if written:
            store = task.store("S")
            if in_runs:
                store.append(pack(store.entry.codec.encode_many(written)), RowValues.of(LAYOUT, list(written.values())))
            else:
                store.put_many(list(written), list(written.values()))
            written.clear()
        publish(source, task)
        frozen = source.cut()
        records.extend((key, value) for _, _, key, value in frozen.changelog())
        source.apply(frozen, source.applied_sequence + 1, {("S", 0): position_at(len(records))})

    for what, k, n in plan:
        key = (f"k{k}", n * MINUTE_MS) if spec.kind == "window" else (f"k{k}",)
        if what in ("put", "delete"):
            written[key] = (n,) if what == "put" else None
        elif what == "expire" and spec.kind == "window":
            task.store("S").expire(n * MINUTE_MS // 2)
        elif what == "commit":
            commit()
        elif what == "drop":
            commit()
            source.close_task(TASK)
            source.drop_task(TASK)
            task = source.open_task(TASK, 0, [spec])
    commit()
    rows = dict(task.store("S").scan())
    return Lived(disk if left is None else left, records, rows)


def compacted(records: Records, offset: int, tombstones: bool) -> list[tuple[int, bytes, bytes | None]]:
    """Offsets with what compaction leaves of records: the last of each key, and tombstones from `offset` on, which are young."""
    last = {key: n for n, (key, _) in enumerate(records)}
    return [
        (n, key, value)
        for n, (key, value) in enumerate(records)
        if last[key] == n and (value is not None or n >= offset or tombstones)
    ]


def position_on(manager: StateManager) -> int:
    """0 if nothing is there."""
    found = manager.positions_of(["S"], 0)
    return found[("S", 0)].offset if found else 0


ops = st.tuples(
    st.sampled_from(("put", "put", "put", "delete", "delete", "expire")), st.integers(0, 4), st.integers(0, 9)
)
parts = st.lists(st.lists(ops, min_size=1, max_size=6), min_size=2, max_size=6)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Commits of a few changes each, now and then with a drop before them, and a crash after at least one."""
    commits, drop_at = draw(parts), draw(st.integers(0, 12))
    plan: list[Step] = []
    for n, changes in enumerate(commits):
        plan += [*([("drop", 0, 0)] if n == drop_at else []), *changes, ("commit", 0, 0)]
    return draw(specs), plan, draw(st.integers(1, len(commits))), draw(st.booleans())


@given(life=lives(), cuts=cuts, lower=st.integers(0, 5), compacts=st.booleans())
@settings(deadline=None)
def test_rows_are_those_of_a_restoration_from_nothing(
    life: Life, cuts: Sequence[int], lower: int, compacts: bool
) -> None:
    """Also where the position is lower than it could be, and where compaction has passed."""
    spec, plan, crash_at, in_runs = life
    found = lived(spec, plan, crash_at, in_runs=in_runs)
    manager = StateManager(found.disk)
    start = max(0, position_on(manager) - lower)
    left = compacted(found.records, start, tombstones=False) if compacts else list(numbered(found.records))
    manager.rebuild({TASK: RECORD}, KEEP)
    manager.open_task(TASK, 0, [spec])
    feed(manager, spec, chunks([(k, v) for n, k, v in left if n >= start], cuts))
    manager.end_restore(TASK)
    fresh = begun(manager_on()._physical, spec)
    feed(fresh, spec, chunks([(k, v) for _, k, v in left], cuts))
    fresh.end_restore(TASK)
    assert rows_of(manager) == rows_of(fresh) == found.rows
    assert keys_here(manager) == keys_here(fresh), "what has expired is gone, from runs too"
    assert dict(manager._tasks[TASK].store("S").scan()) == found.rows, "an open task sees them, too"


def keys_here(manager: StateManager) -> list[bytes]:
    """Of rows, also of those that reads hide."""
    entry = manager.committed_stores().get("S")
    return [] if entry is None else [key[PREFIX_BYTES:] for key, _ in manager._physical.scan(*entry.partition_range(0))]


def numbered(records: Records) -> Iterator[tuple[int, bytes, bytes | None]]:
    return ((n, key, value) for n, (key, value) in enumerate(records))


@given(life=lives(), cuts=cuts, read=st.integers(0, 60), kept=st.integers(0, 60))
@settings(deadline=None)
def test_a_crash_leaves_the_position_before_or_a_newer_one(
    life: Life, cuts: Sequence[int], read: int, kept: int
) -> None:
    """In a commit of the owner, and in the restoration: what the disk has from there on is enough."""
    spec, plan, crash_at, in_runs = life
    found = lived(spec, plan, crash_at, in_runs=in_runs)
    found.disk.flush()
    manager = StateManager(found.disk)
    before = position_on(manager)
    manager.rebuild({TASK: RECORD}, KEEP)
    manager.open_task(TASK, 0, [spec])
    at = before
    for part in chunks(found.records[before : before + read], cuts):
        at += len(part)
        manager.restored.take(spec, 0, [k for k, _ in part], [v for _, v in part], position_at(at))
    assert position_on(manager) == at
    again = StateManager(found.disk.after_crash(kept % (len(found.disk.since_flush) + 1)))
    assert before <= position_on(again) <= at
    assert TASK not in again.restoring() or again.local_record(TASK) is None, "half a task never looks whole"
    start = position_on(again)
    again.rebuild({TASK: RECORD}, KEEP)
    again.open_task(TASK, 0, [spec])
    feed(again, spec, chunks(found.records[start:], cuts))
    again.end_restore(TASK)
    assert rows_of(again) == found.rows


@given(life=lives(), kept=st.integers(0, 200))
@settings(deadline=None)
def test_a_crash_within_commits_leaves_no_position_ahead_of_its_rows(life: Life, kept: int) -> None:
    """Each write of RocksDB is a point at which a crash may leave it."""
    spec, plan, crash_at, in_runs = life
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowql.runtime.state.physical.BATCH_ROWS_MAX", 3)
        found = lived(spec, plan, crash_at, in_runs=in_runs)
    disk = found.disk.after_crash(kept % (len(found.disk.since_flush) + 1))
    again = StateManager(disk, StateLimits(run_rows_min=1), changelog=lambda _: True)
    start = position_on(again)
    again.rebuild({TASK: RECORD}, KEEP)
    task = again.open_task(TASK, 0, [spec])
    feed(again, spec, chunks(found.records[start:], []))
    again.end_restore(TASK)
    assert rows_of(again) == found.rows
    if spec.kind == "table":  # the next run must not take the place of one that the crash has left
        store = task.store("S")
        store.append(pack(store.entry.codec.encode_many([("k0",), ("k9",)])), RowValues.of(LAYOUT, [(7,), (8,)]))
        publish(again, task)
        again.apply(again.cut(), again.applied_sequence + 1)
        with again.snapshot() as seen:
            assert dict(seen.scan("S")) == {**found.rows, ("k0",): (7,), ("k9",): (8,)}


def test_a_run_does_not_take_the_place_of_one_that_a_crash_has_left() -> None:
    """Its commit had taken in rows from before, and only its marker was lost: the next commit has the same number."""
    disk = Forgetful()
    for number, rows in ((1, {("a",): (1,), ("b",): (2,)}), (2, {("c",): (3,)}), (3, {("d",): (4,)})):
        manager = StateManager(disk, StateLimits(run_rows_min=1))
        store = manager.open_task(TASK, 0, [table("S")]).store("S")
        if number == 1:
            store.put_many(list(rows), list(rows.values()))
        else:
            store.append(pack(store.entry.codec.encode_many(rows)), RowValues.of(LAYOUT, list(rows.values())))
        publish(manager, manager._tasks[TASK])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flowql.runtime.state.physical.BATCH_ROWS_MAX", 2)
            manager.apply(manager.cut(), manager.applied_sequence + 1)
        assert len(disk.since_flush) > 2
        disk = disk.after_crash(len(disk.since_flush) - (number == 2))
    with StateManager(disk).snapshot() as seen:
        assert dict(seen.scan("S")) == {("a",): (1,), ("b",): (2,), ("c",): (3,), ("d",): (4,)}


@settings(max_examples=10, deadline=None)
@given(life=lives(), cuts=cuts)
def test_files_over_rows_that_are_here(
    tmp_path_factory: pytest.TempPathFactory, life: Life, cuts: Sequence[int]
) -> None:
    spec, plan, crash_at, in_runs = life
    found = lived(spec, plan, crash_at, in_runs=in_runs)
    rocks = open_rocks(tmp_path_factory.mktemp("rocks"))
    for key, value in found.disk._rows.items():
        rocks.write_batch([key], [value])
    manager = StateManager(rocks)
    start = position_on(manager)
    manager.rebuild({TASK: RECORD}, KEEP)
    manager.open_task(TASK, 0, [spec])
    entry = manager.restored.expect_files(spec, 0)
    hides = manager.restored.has_runs(entry, 0)
    assert manager.restored.incoming is not None
    manager.restored.incoming.mkdir(exist_ok=True)
    for n, part in enumerate(chunks(found.records[start:], cuts)):
        around, rows = place_records(entry, 0, [k for k, _ in part], [v for _, v in part])
        rows = over_runs(rows) if hides else rows
        path: Path | None = manager.restored.incoming / str(n) if rows.keys else None
        if path is not None:
            write_row_file(path, rows.keys, rows.values)
        assert manager.restored.take_file(entry, 0, RowFile(path, around, len(part), 0), position_at(start))
    manager.end_restore(TASK, {"S": position_at(len(found.records))})
    assert rows_of(manager) == found.rows
    assert position_on(manager) == len(found.records)
    manager.close()


def test_it_finds_a_position_that_is_ahead_of_its_rows() -> None:
    """What the tests above would not be told otherwise."""
    plan = [("put", 1, 1), ("commit", 0, 0), ("put", 2, 2)]
    found = lived(table("S"), plan, 1, in_runs=False)
    manager = StateManager(found.disk)
    manager.rebuild({TASK: RECORD}, KEEP)
    manager.open_task(TASK, 0, [table("S")])
    feed(manager, table("S"), chunks(found.records[position_on(manager) + 1 :], []))
    manager.end_restore(TASK)
    assert rows_of(manager) != found.rows


def test_positions_go_with_their_rows() -> None:
    """A store that is dropped, or restored from nothing, has none; one that is kept has its own."""
    plan = [("put", 1, 1), ("commit", 0, 0)]
    for end in ("drop", "rebuild", "keep"):
        manager = StateManager(lived(table("S"), plan, 9, in_runs=False).disk, changelog=lambda _: True)
        manager.open_task("other", 1, [table("S")])  # the store stays
        assert position_on(manager) == 1
        if end == "drop":
            manager.drop_task(TASK)
            manager.apply(manager.cut(), manager.applied_sequence + 1)
        else:
            manager.rebuild({TASK: RECORD}, KEEP if end == "keep" else ())
        assert position_on(manager) == (1 if end == "keep" else 0)


def test_tasks_that_write_nothing_renew_their_positions() -> None:
    manager = manager_on(changelog=lambda _: True)
    task = manager.open_task(TASK, 0, [table("S")])
    task.store("S").put(("a",), (1,))
    publish(manager, task)
    manager.apply(manager.cut(RENEW_MS), 1, {("S", 0): position_at(1, RENEW_MS)})
    manager.flush()
    for now_ms, as_of_ms in ((RENEW_MS + 1, RENEW_MS), (3 * RENEW_MS, 3 * RENEW_MS), (RENEW_MS, RENEW_MS)):
        manager.apply(manager.cut(now_ms), manager.applied_sequence + 1)
        assert manager.positions_of(["S"], 0) == {("S", 0): position_at(1, as_of_ms)}
        assert manager.wants_flush == (now_ms != RENEW_MS + 1)
        manager.flush()
    manager.close_task(TASK)
    manager.rebuild({TASK: RECORD}, KEEP)
    manager.open_task(TASK, 0, [table("S")])
    manager.apply(manager.cut(6 * RENEW_MS), manager.applied_sequence + 1)
    assert manager.positions_of(["S"], 0) == {("S", 0): position_at(1, RENEW_MS)}, "deletions behind it may be old"
    manager.close_task(TASK)
    manager.apply(manager.cut(9 * RENEW_MS), manager.applied_sequence + 1)
    assert manager.positions_of(["S"], 0) == {("S", 0): position_at(1, RENEW_MS)}, "another may have it"


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, None),
        ({"topic_id": "another"}, "another one"),
        ({"offset": 3}, None),
        ({"offset": 4}, "not between 0 and 3"),
        ({"sequence": 5}, None),
        ({"sequence": 6}, "commit 6 of one is not in the log"),
        ({"writer": "two"}, "commit 4 of two is not in the log"),
        ({"as_of_ms": 10 * DAY_MS - DAY_MS}, None),
        ({"as_of_ms": 10 * DAY_MS - DAY_MS - 1}, "deletions are kept"),
        ({"as_of_ms": 10 * DAY_MS + DAY_MS + 1}, "deletions are kept"),
    ],
)
def test_a_position_is_doubted(change: dict[str, object], told: str | None) -> None:
    log = MemoryLog()
    log.create_topic("t", 1, {"cleanup.policy": "compact", "delete.retention.ms": str(2 * DAY_MS)})
    tp, producer = TopicPartition("t", 0), log.producer("one")
    producer.begin()
    producer.send(tp, records_of([b"a"] * 3, [b"1"] * 3, 0))
    producer.commit()
    topic_id = log.describe_topics(["t"]).result()["t"].id
    position = replace(ChangelogPosition(topic_id, 2, 10 * DAY_MS, "one", 4), **change)  # type: ignore[arg-type]
    found = doubts(log, {tp: position}, sequences={"one": 5}, now_ms=10 * DAY_MS)
    assert (told is None) == (not found)
    if told is not None:
        assert told in found[tp].reason
        assert found[tp].ahead == ("between" in told or "not in the log" in told)


def test_a_restoration_is_as_old_as_its_rows_until_it_has_read_all_deletions() -> None:
    tp = TopicPartition("t", 0)
    cursor = ChangelogCursor(tp, table("S"), 5, 9, 5, 100, "id", position_at(5, 1))
    assert cursor.reached(8) == position_at(8, 1)
    assert cursor.reached(9) == position_at(9, 100)
    cursor.kept = None
    assert cursor.reached(8) == position_at(8, 100), "what it has read it has read since"
    cursor.topic_id = ""
    assert cursor.reached(8) is None


def test_a_partition_that_is_followed_is_as_old_as_its_last_end() -> None:
    cursor = ChangelogCursor(TopicPartition("t", 0), table("S"), 5, 9, 9, 100, "id", None)
    cursor.go_on_to(12, 200)
    assert cursor.reached(11) == position_at(11, 100)
    assert cursor.reached(12) == position_at(12, 200)
    cursor.go_on_to(20, 300)
    assert (cursor.end, cursor.reached(12)) == (12, position_at(12, 200)), "not before it has been read to the last one"


def test_no_position_is_written_over_rows_that_may_be_lost() -> None:
    manager = manager_on()
    manager.rebuild({TASK: RECORD})
    with pytest.raises(StateError, match="opened again"):
        manager.restored.take(table("S"), 0, [], [], position_at(3), openings=manager.openings + 1)
    assert position_on(manager) == 0
    manager.restored.take(table("S"), 0, [], [], position_at(3), openings=manager.openings)
    assert position_on(manager) == 3

import sys
import threading
import time

import pytest

from flowql.compiler.plan import types as T
from flowql.runtime.budget import StateLimits
from flowql.runtime.errors import StateError
from flowql.runtime.state.columns.values import ValueLayout
from flowql.runtime.state.frozen import UnwritableState
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.restore import RowFile
from flowql.runtime.state.restored_rows import FILES_ON_TOP, FILES_ON_TOP_MAX
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.state_memory import FIRST_BYTES
from flowql.runtime.state.task_state import BatchRevoked
from flowql.runtime.state.values import encode_metadata
from tests.runtime.state.support import (
    Forgetful,
    commit,
    manager_on,
    publish,
    put,
    raised_in_thread,
    rows,
    table,
    window,
)


def test_a_look_for_lost_rows_reads_no_task_while_none_are_lost(monkeypatch):
    """The reconciler looks at each of its turns, with all tasks of an instance."""
    manager = manager_on()
    put(manager, manager.open_task("q", 0, [table()]), "T", rows(1))
    commit(manager)
    read = []
    monkeypatch.setattr(manager, "_task_record", read.append)
    assert manager.incomplete() == {}
    assert read == []


def test_a_crash_after_any_batch_of_an_apply_loses_nothing():
    physical = Forgetful()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [table(), window()])
    task.store("W").put(("old", 0), (1,))
    put(manager, task, "T", rows(10), {"at": 1})
    redo = [(1, commit(manager))]
    manager.flush()
    task.store("W").expire(500_000)
    task.store("T").put(("k1",), None)
    put(manager, task, "T", rows(2_500, start=5), {"at": 2})
    redo.append((2, commit(manager)))
    assert len(physical.since_flush) == 3
    for kept in range(4):
        again = StateManager(physical.after_crash(kept))
        assert again.applied_sequence == (2 if kept == 3 else 1)
        for sequence, payload in redo:
            again.replay_all([(sequence, payload)])
        again.replay_all([(2, redo[1][1])])  # it is there already
        found = again.open_task("q", 0, [table(), window()])
        expected = rows(2_505)
        del expected[("k1",)]
        assert dict(found.store("T").scan()) == expected
        assert found.store("W").get(("old", 0)) is None
        assert found.metadata == {"at": 2}


def test_publish_needs_the_epoch_lock_and_another_thread_is_no_owner():
    manager = manager_on()
    task = manager.open_task("q", 0, [table()])
    with pytest.raises(AssertionError, match="epoch lock must be held"):
        task.publish({})
    with manager.epoch_lock:
        error = raised_in_thread(lambda: task.publish({}))
    assert "epoch lock must be held" in str(error)


def test_nothing_uncommitted_is_in_the_physical_store():
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", rows(3), {"at": 1})
    manager.cut()
    assert list(physical.scan(b"", b"\xff" * 8)) == []
    manager.abort()
    assert list(physical.scan(b"", b"\xff" * 8)) == []


def test_an_abort_refuses_the_batch_under_way_also_of_a_task_without_stores():
    manager = manager_on()
    tasks = [manager.open_task("a", 0, [table()]), manager.open_task("b", 0, [])]
    for task in tasks:
        publish(manager, task, {"at": 1})
    commit(manager)
    tasks[0].store("T").put(("k",), (1,))
    manager.abort()
    for task in tasks:
        assert task.revoked
        with pytest.raises(BatchRevoked):
            publish(manager, task, {"at": 2})
        task.discard()  # of a part that failed, say, by a thread that has not seen the abort
        with pytest.raises(BatchRevoked):
            publish(manager, task, {"at": 2})
        task.begin_again()
        assert task.metadata == {"at": 1}
        publish(manager, task, {"at": 3})
    assert tasks[0].store("T").get(("k",)) is None


def test_a_task_that_was_withdrawn_stays_so_when_its_batch_is_discarded():
    manager = manager_on()
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", rows(1), {"at": 1})
    frozen = manager.cut()
    task.store("T").put(("k9",), (9,))
    with manager.epoch_lock:
        manager.withdraw(frozen, ["q"])
    task.discard()
    with pytest.raises(BatchRevoked) as revoked:
        publish(manager, task, {"at": 2})
    assert revoked.value.retriable, "the task begins again"


def test_only_one_epoch_is_frozen_and_sequences_rise():
    manager = manager_on()
    frozen = manager.cut()
    with pytest.raises(AssertionError, match="neither applied nor aborted"):
        manager.cut()
    manager.apply(frozen, 5)
    assert manager.applied_sequence == 5
    with pytest.raises(StateError, match="after commit 5"):
        manager.apply(manager.cut(), 5)
    manager.abort()
    with pytest.raises(AssertionError, match="nothing was cut"):
        manager.apply(frozen, 6)


def test_a_task_that_is_revoked_publishes_nothing_before_it_begins_again():
    manager = manager_on()
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", rows(1), {"at": 1})
    with manager.epoch_lock:
        task.revoke()
    assert task.revoked
    with pytest.raises(BatchRevoked):
        publish(manager, task, {"at": 2})
    task.begin_again()
    publish(manager, task, {"at": 3})
    assert task.metadata == {"at": 3}


def test_an_abort_is_seen_by_reads_whose_rows_were_remembered():
    manager = manager_on()
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", rows(2))
    commit(manager)
    put(manager, task, "T", {("k0",): (7,), ("k1",): None, ("k2",): (8,)})
    assert task.store("T").get_many([("k0",), ("k1",), ("k2",)]) == [(7,), None, (8,)]
    manager.abort()
    task.begin_again()
    assert task.store("T").get_many([("k0",), ("k1",), ("k2",)]) == [(0,), (1,), None]


def test_rows_that_are_taken_out_of_an_epoch_are_as_they_were_committed():
    manager = manager_on()
    task = manager.open_task("q", 0, [table()])
    store = task.store("T")
    put(manager, task, "T", rows(3))
    commit(manager)
    put(manager, task, "T", {("k0",): (7,), ("k1",): (8,)})
    frozen = manager.cut()
    put(manager, task, "T", {("k1",): (9,), ("k2",): (10,)})
    store.put(("k0",), (11,))
    assert store.get_many([("k0",), ("k1",), ("k2",)]) == [(11,), (9,), (10,)], "and what is read is remembered"
    with manager.epoch_lock:
        store.revert_rows(lambda key: key in (("k0",), ("k2",)))
    assert dict(store.scan()) == {("k0",): (0,), ("k1",): (9,), ("k2",): (2,)}
    assert store.get_many([("k0",), ("k1",), ("k2",)]) == [(0,), (9,), (2,)]
    assert len(frozen.stores) == 1


def test_what_a_run_has_written_is_told_as_the_commit_writes_it():
    manager = manager_on(changelog=lambda _: True)
    task = manager.open_task("q", 0, [table(), table("U"), window()])
    task.store("T").put_many(list(rows(3)), list(rows(3).values()))
    task.store("W").put(("w", 60_000), (1,))
    told = manager.batch_of("q")
    assert sorted(told) == ["T", "W"]
    publish(manager, task)
    assert manager.batch_of("q") == {}
    written = {name: (keys, values) for name, _, keys, values in manager.cut().changelog_columns()}
    assert written == told, "and no bound of time, as no row has expired"


def test_a_store_with_other_columns_or_another_retention_is_known_after_a_restart():
    physical = MemoryPhysical()
    manager = manager_on(physical)
    put(manager, manager.open_task("q", 0, [window()]), "W", {("a", 60_000): (1,)})
    commit(manager)
    manager.close_task("q")
    longer = window(retention_ms=360_000)
    publish(manager, manager.open_task("q", 0, [longer]), {"at": 1})
    commit(manager)
    assert StateManager(physical).stores() == [longer]


def test_rows_that_are_restored_under_an_open_task_and_rows_that_are_cleared_are_seen_at_once():
    """What a store or a snapshot remembers of before does not hide them."""
    source = manager_on(changelog=lambda _: True)
    put(source, source.open_task("q", 0, [table()]), "T", rows(2))
    frozen = source.cut()
    ((_, _, keys, values),) = frozen.changelog_columns()
    target = manager_on()
    task = target.open_task("q", 0, [table()])
    assert task.store("T").get_many([("k0",), ("k1",)]) == [None, None]
    target.restored.take(table(), 0, keys, values)
    assert task.store("T").get_many([("k0",), ("k1",)]) == [(0,), (1,)]
    publish(target, task, {"at": 1})
    commit(target)
    target.close_task("q")
    target.rebuild({"q": None})
    snapshot = target.snapshot()
    assert snapshot.tasks() == {}
    snapshot.close()
    assert target.open_task("q", 0, [table()]).store("T").get(("k0",)) is None


def test_a_drop_whose_commit_was_aborted_waits_for_the_next_one():
    physical = MemoryPhysical()
    manager = manager_on(physical)
    put(manager, manager.open_task("q", 0, [table()]), "T", rows(2), {"at": 1})
    commit(manager)
    manager.close_task("q")
    manager.drop_task("q")
    manager.cut()
    manager.abort()
    assert manager.committed_tasks() == ["q"]
    commit(manager)
    again = StateManager(physical)
    assert again.committed_tasks() == []
    task = again.open_task("q", 0, [table()])
    assert (task.metadata, task.store("T").get(("k0",))) == ({}, None)


def test_a_snapshot_in_memory_ends_before_its_upper_bound():
    physical = MemoryPhysical()
    physical.write_batch([b"a", b"b", b"c"], [b"1"] * 3)
    snapshot = physical.snapshot()
    physical.write_batch([b"a", b"b", b"c", b"d"], [b"2"] * 4)
    assert list(snapshot.scan(b"a", b"c")) == [(b"a", b"1"), (b"b", b"1")]
    assert list(physical.scan(b"a", b"c")) == [(b"a", b"2"), (b"b", b"2")]
    assert physical.accepts_files()


@pytest.mark.parametrize("takes", [True, False])
def test_whether_the_disk_takes_files_is_told_by_the_physical_store(takes, monkeypatch):
    physical = MemoryPhysical()
    monkeypatch.setattr(physical, "accepts_files", lambda: takes)
    assert manager_on(physical).accepts_files() is takes


def test_files_wait_while_the_store_has_many_that_are_not_merged():
    class Piled(MemoryPhysical):
        files = FILES_ON_TOP_MAX

        def property(self, name):
            return self.files if name == FILES_ON_TOP else super().property(name)

    physical = Piled()
    manager = manager_on(physical)
    entry = manager.restored.expect_files(table(), 0)
    file = RowFile(None, Writes([], [entry.bound_key(0)], [b"\0" * 8]), 1, 1)
    assert not manager.restored.take_file(entry, 0, file)
    assert physical.get(entry.bound_key(0)) is None
    for physical.files in (FILES_ON_TOP_MAX - 1, 0, None):
        assert manager.restored.take_file(entry, 0, file)
    assert physical.get(entry.bound_key(0)) is not None


def test_what_operators_hold_is_closed_with_their_task():
    """Calls of asynchronous functions under way, say: no thread waits for them any more."""
    manager, closed = manager_on(), []
    tasks = {name: manager.open_task(name, 0, []) for name in ("a", "b")}
    for name, task in tasks.items():
        for what in (1, 2):
            task.closing.append(lambda name=name, what=what: closed.append((name, what)))
    manager.close_task("a")
    assert sorted(closed) == [("a", 1), ("a", 2)]
    manager.close()
    assert sorted(closed) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_metadata_is_a_private_copy():
    manager = manager_on()
    task = manager.open_task("q", 0, [])
    mine = {"positions": {"t": 1}}
    publish(manager, task, mine)
    mine["positions"]["t"] = 99
    task.metadata["positions"]["t"] = 98
    assert task.metadata == {"positions": {"t": 1}}


def test_the_cache_stays_within_its_budget_and_reads_stay_right():
    manager = manager_on(limits=StateLimits(cache_bytes=100 * FIRST_BYTES))
    task = manager.open_task("q", 0, [table(), table("U")])
    for n in range(8):
        put(manager, task, "T", rows(60, n * 60))
        put(manager, task, "U", rows(5, n * 5))
        commit(manager)
        assert sum(s.cached for s in task.stores.values()) <= 100
    assert task.store("T").get_many([("k0",), ("k479",), ("k480",)]) == [(0,), (479,), None]
    before = task.store("T").metrics.physical
    task.store("T").get_many([("k0",), ("k480",)])
    assert task.store("T").metrics.physical == before, "an absent key is cached too"


def test_a_dropped_task_comes_back_empty_before_and_after_the_commit():
    manager = manager_on()
    task = manager.open_task("q", 3, [table(), window()])
    task.store("W").expire(70_000)
    task.store("W").put(("a", 80_000), (1,))
    put(manager, task, "T", rows(2), {"at": 1})
    commit(manager)
    other = manager.open_task("r", 4, [table()])
    put(manager, other, "T", rows(1))
    with pytest.raises(StateError, match="open"):
        manager.drop_task("q")
    with pytest.raises(StateError, match="uncommitted"):
        manager.close_task("r")
    commit(manager)
    manager.close_task("q")
    manager.drop_task("q")
    task = manager.open_task("q", 3, [table(), window()])
    manager.abort()  # the drop survives an abort of the commit that should carry it
    task.begin_again()
    for _ in range(2):
        assert task.metadata == {}
        assert task.store("T").get(("k0",)) is None
        assert list(task.store("W").scan()) == []
        task.store("W").put(("a", 1), (2,))
        task.discard()
        commit(manager)
    put(manager, task, "W", {("a", 1): (2,)})
    put(manager, task, "T", {("k1",): (9,)}, {"at": 7})
    commit(manager)
    manager.close_task("q")
    task = manager.open_task("q", 3, [table(), window()])
    assert task.store("T").get(("k1",)) == (9,)
    assert dict(task.store("W").scan()) == {("a", 1): (2,)}, "the old bound is gone"
    assert other.store("T").get(("k0",)) == (0,)
    with manager.snapshot() as snapshot:
        assert dict(snapshot.scan("T")) == {("k1",): (9,), ("k0",): (0,)}


def test_an_own_physical_row_is_found_again_after_the_drop_before_it_was_committed():
    manager = manager_on()
    put(manager, manager.open_task("p", 1, [table()]), "T", rows(1))
    put(manager, manager.open_task("q", 0, [table()]), "T", rows(2))
    commit(manager)
    manager.close_task("q")
    manager.drop_task("q")
    task = manager.open_task("q", 0, [table()])
    put(manager, task, "T", {("k1",): (9,)})
    commit(manager)
    task.store("T").forget()
    assert task.store("T").get_many([("k0",), ("k1",)]) == [None, (9,)]


def test_a_dropped_task_leaves_no_metadata():
    manager = manager_on()
    put(manager, manager.open_task("q", 0, [window()]), "W", {("a", 0): (1,)}, {"at": 1})
    commit(manager)
    manager.close_task("q")
    manager.drop_task("q")
    commit(manager)
    assert manager.open_task("q", 0, []).metadata == {}
    with manager.snapshot() as snapshot:
        assert snapshot.tasks() == {}
        assert snapshot.stores() == []


def test_a_bound_is_kept_over_a_restart():
    physical = MemoryPhysical()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [window()])
    put(manager, task, "W", {("a", t): (t,) for t in (0, 10, 20)})
    commit(manager)
    task.store("W").expire(11)
    publish(manager, task)
    commit(manager)
    again = manager_on(physical).open_task("q", 0, [window()])
    assert again.store("W").get_many([("a", 10), ("a", 20)]) == [None, (20,)]
    with manager_on(physical).snapshot() as snapshot:
        assert list(snapshot.scan("W")) == [(("a", 20), (20,))]
        assert snapshot.get("W", ("a", 10)) is None


def test_a_task_dropped_and_written_anew_in_one_commit():
    manager = manager_on()
    put(manager, manager.open_task("q", 0, [table()]), "T", rows(2), {"at": 1})
    commit(manager)
    manager.close_task("q")
    with manager.epoch_lock:  # as a deploy does it, at a cut
        manager.drop_task("q")
        task = manager.open_task("q", 0, [table()])
        task.store("T").put(("new",), (5,))
        task.publish({"at": 0})
        frozen = manager.cut()
    manager.apply(frozen, 2)
    task.store("T").forget()
    assert dict(task.store("T").scan()) == {("new",): (5,)}
    assert task.metadata == {"at": 0}


def test_a_dropped_store_gives_its_name_but_not_its_id():
    manager = manager_on()
    put(manager, manager.open_task("q", 0, [table()]), "T", rows(2))
    commit(manager)
    manager.close_task("q")
    with pytest.raises(StateError, match="another key"):
        manager.open_task("q", 0, [table("T", T.BIGINT)])
    manager.drop_task("q")
    task = manager.open_task("q", 0, [table("T", T.BIGINT)])
    put(manager, task, "T", {(1,): (1,)})
    commit(manager)
    assert list(task.store("T").scan()) == [((1,), (1,))]
    with manager.snapshot() as snapshot:
        assert list(snapshot.scan("T")) == [((1,), (1,))]


def test_what_cannot_be_kept_names_its_task_and_writes_nothing():
    physical = MemoryPhysical()
    manager = manager_on(physical)
    good, bad = manager.open_task("good", 0, [table()]), manager.open_task("bad", 0, [table("U")])
    put(manager, good, "T", rows(1))
    put(manager, bad, "U", {("k",): (object(),)})
    with pytest.raises(UnwritableState) as info:
        manager.cut().redo()
    assert (info.value.task_id, info.value.store) == ("bad", "U")
    assert physical.property("rocksdb.estimate-num-keys") == 0


def test_a_changelog_restores_a_store_and_its_bound():
    source = manager_on(changelog=lambda spec: spec.name == "W")
    task = source.open_task("q", 1, [table(), window()])
    task.store("T").put(("x",), (1,))
    put(source, task, "W", {("a", t): (t,) for t in range(0, 400_000, 50_000)})
    first = source.cut()
    records = list(first.changelog())
    source.apply(first, 1)
    task.store("W").put(("a", 350_000), None)
    task.store("W").expire(120_001)
    publish(source, task)
    second = source.cut()
    records += second.changelog()
    source.apply(second, 2)
    assert {(name, partition) for name, partition, _, _ in records} == {("W", 1)}
    # an instance whose retention, and so its segments, differ
    target = manager_on()
    wide = window(retention_ms=3_600_000)
    keys, values = [k for _, _, k, _ in records], [v for _, _, _, v in records]
    target.rebuild({"q": TaskRecord(1, ("W",), encode_metadata({"at": 9}))})
    target.restored.take(wide, 1, keys, values)
    target.end_restore("q")
    restored = target.open_task("q", 1, [wide])
    assert restored.metadata == {"at": 9}
    expected = [(("a", t), (t,)) for t in (150_000, 200_000, 250_000, 300_000)]
    assert list(restored.store("W").scan()) == expected
    assert list(task.store("W").scan()) == expected


def test_expired_segments_are_gone_physically_and_compacted(tmp_path):
    manager = manager_on(open_rocks(tmp_path / "db"))
    task = manager.open_task("q", 0, [window()])
    put(manager, task, "W", {(f"k{i}", t): (t,) for i in range(50) for t in range(0, 600_000, 60_000)})
    commit(manager)
    task.store("W").expire(300_001)
    publish(manager, task)
    commit(manager)
    entry = task.store("W").entry
    left = [k for k, _ in manager._physical.scan(*entry.partition_range(0))]
    assert len(left) == 50 * 5, "the segment of the bound is kept, its expired rows are hidden"
    assert len(list(task.store("W").scan())) == 50 * 4
    assert manager.compact() == 1
    assert manager.compact() == 0
    manager.close()


def test_range_scans_of_one_key_read_only_its_segments():
    class Counted(MemoryPhysical):
        scans = 0

        def scan(self, low, high):
            self.scans += 1
            return super().scan(low, high)

    physical = Counted()
    manager = manager_on(physical)
    task = manager.open_task("q", 0, [window("J", "join")])
    put(manager, task, "J", {(k, t): (t,) for k in "abc" for t in range(0, 6_000_000, 60_000)})
    commit(manager)
    before, physical.scans = task.store("J").metrics.physical, 0
    found = list(task.store("J").scan(low=("b", 120_000), high=("b", 240_000)))
    assert found == [(("b", 120_000), (120_000,)), (("b", 180_000), (180_000,))]
    assert task.store("J").metrics.physical - before == 2
    assert physical.scans <= 7, "three segments of a hundred: each is looked for and read"


def test_a_point_lookup_in_a_million_keys_reads_a_bounded_number_of_rows(tmp_path):
    manager = manager_on(open_rocks(tmp_path / "db"))
    manager.open_task("q", 0, [table("T", T.BIGINT)])
    commit(manager)
    codec, value = manager._catalog.get("T").codec, b"\x91\x07"
    keys = codec.encode_many([(i,) for i in range(1_000_000)])
    manager.restored.take(table("T", T.BIGINT), 0, keys, [value] * len(keys))
    put(manager, manager._tasks["q"], "T", {(-1,): (0,)})
    commit(manager)
    with manager.snapshot() as snapshot:
        assert snapshot.get("T", (777_777,)) == (7,)
        assert snapshot.get("T", (10**9,)) is None
        assert list(snapshot.scan("T", low=(500,), high=(503,))) == [((i,), (7,)) for i in (500, 501, 502)]
        assert len(list(snapshot.scan("T", limit=4))) == 4
        assert snapshot.rows_read() <= 40, "the look-ups, the range, and the first chunk of a scan"
    manager.close()


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("kind", ["memory", "rocks"])
def test_an_owner_reads_its_writes_while_another_thread_commits(kind, in_columns, tmp_path):
    """Epochs are cut and applied at random moments; the owner always sees what it wrote, snapshots a whole number of batches."""
    manager = manager_on(
        MemoryPhysical() if kind == "memory" else open_rocks(tmp_path / "db"),
        limits=StateLimits(cache_bytes=20 * FIRST_BYTES),
    )
    task = manager.open_task("q", 0, [table(), window(), table("X")])
    done, failures = threading.Event(), []

    def committing():
        try:
            while not done.is_set():
                commit(manager)
                with manager.snapshot() as snapshot:
                    if snapshot.stores():
                        values = {v for _, v in snapshot.scan("T")}
                        at = snapshot.tasks()["q"]["at"] if snapshot.tasks() else 0
                        assert len(values) <= 1, values
                        assert not values or values == {(at,)}
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=committing)
    thread.start()
    try:
        keys = [(f"k{i}",) for i in range(30)]
        end, enough = time.monotonic() + 1.0, 20
        n = 0
        while (time.monotonic() < end or n < enough) and not failures:
            n += 1
            if in_columns and n == 3:
                for store in task.stores.values():
                    store.columns(ValueLayout((("integer",),)))
            new, old = [[(f"{i} of {m}",) for i in range(200)] for m in (n, n - 1)]
            task.store("X").put_many(new, [(n,)] * 200)
            assert task.store("X").get_many(old) == [(n - 1,) if n > 1 else None] * 200
            expected = [(n - 1,)] * 30 if n > 1 else [None] * 30
            assert task.store("T").get_many(keys) == expected
            assert [v for _, v in task.store("T").scan()] == [v for v in expected if v]
            task.store("T").put_many(keys, [(n,)] * 30)
            task.store("W").put(("w", n * 1000), (n,))
            task.store("W").expire(n * 1000 - 5000)
            assert len(list(task.store("W").scan())) == min(n, 6)
            publish(manager, task, {"at": n})
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failures, failures
    manager.close()


def test_a_number_that_is_none_is_one_key_however_deep_it_is():
    manager = manager_on()
    spec = table("T", T.array(T.DOUBLE))
    task = manager.open_task("q/0_0", 0, [spec])
    for value in (1, 2):
        put(manager, task, "T", {((float("nan"), 1.0),): (value,)})
        assert task.store("T").get(((float("nan"), 1.0),)) == (value,)
    assert len(list(task.store("T").scan())) == 1
    commit(manager)
    put(manager, task, "T", {((float("nan"), 1.0),): (3,)})
    assert [value for _, value in task.store("T").scan()] == [(3,)]


def test_a_record_that_is_committed_while_its_task_is_restored_is_the_one_that_stays():
    """The end of the restoration put the record of before in its place, and with it forgot how long the task had been away."""
    physical = MemoryPhysical()
    manager = manager_on(physical)
    manager.rebuild({"q": TaskRecord(0, ("T",), encode_metadata({"at": 1}))})
    task = manager.open_task("q", 0, [table()])
    with manager.epoch_lock:
        task.publish({"at": 1, "known": 5})
    manager.apply(manager.cut(), 1)
    assert manager_on(physical).restoring()["q"].read() == {"at": 1, "known": 5}, (
        "and after a crash it is still to be restored"
    )
    assert manager_on(physical).local_record("q") is None
    manager.end_restore("q")
    record = manager.local_record("q")
    assert record is not None
    assert record.read() == {"at": 1, "known": 5}


@pytest.mark.parametrize("until", ["published", "cut", "applied"])
def test_a_task_that_publishes_as_its_restoration_ends_is_whole_after_that_commit(until):
    """The end overwrote the newer record with one that it had read before, and the task raised KeyError from then on."""
    physical = MemoryPhysical()
    manager = manager_on(physical)
    manager.rebuild({"q": TaskRecord(0, ("T",), encode_metadata({"at": 1}))})
    task, flush, frozen = manager.open_task("q", 0, [table()]), physical.flush, []

    def commit_further() -> None:
        """The commit thread, while the other waits for the disk."""
        flush()
        if not task.is_dirty and not frozen:
            with manager.epoch_lock:
                task.publish({"at": 1, "known": 5})
        if until != "published" and not frozen:
            frozen.append(manager.cut())
        if until == "applied":
            manager.apply(frozen[0], 1)

    physical.flush = commit_further
    assert not manager.end_restore("q")
    physical.flush = flush
    if until != "applied":
        assert not manager.end_restore("q")
        manager.apply(frozen[0] if frozen else manager.cut(), 1)
    assert manager.end_restore("q")
    record = manager_on(physical).local_record("q")
    assert record is not None
    assert record.read() == {"at": 1, "known": 5}
    assert not manager.restoring()


def test_a_record_that_is_committed_just_before_its_restoration_is_noted_is_the_one_on_disk():
    """A crash would find the older one, though the commit is durable."""
    physical = MemoryPhysical()
    manager = manager_on(physical)
    manager.rebuild({"q": TaskRecord(0, ("T",), encode_metadata({"at": 1}))})
    task, lock = manager.open_task("q", 0, [table()]), manager._commit_lock

    class Later(NamedLock):
        """The commit thread comes first."""

        def __enter__(self):
            manager._commit_lock = lock
            with manager.epoch_lock:
                task.publish({"at": 1, "known": 5})
            manager.apply(manager.cut(), 1)
            return lock.__enter__()

        def __exit__(self, *error):
            lock.__exit__(*error)

    manager._commit_lock = Later("commit lock", guards="as the other")
    assert not manager.end_restore("q")
    assert manager_on(physical).local_record("q").read() == {"at": 1, "known": 5}
    assert manager.end_restore("q")

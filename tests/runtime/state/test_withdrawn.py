"""What leaves an epoch that is withdrawn, aborted or abandoned, what stays for the next, and what of it readers see."""

import errno
import os

import pytest

from flowql.runtime.errors import StateError
from flowql.runtime.state.frozen import BOUND_RECORD, DROP_RECORD, Drops
from flowql.runtime.state.layout import encode_number
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.restore import place_records
from flowql.runtime.state.rocks import MIB, open_rocks
from tests.runtime.state.support import commit, manager_on, put, table, window


def shown(manager, store):
    with manager.snapshot() as snapshot:
        return dict(snapshot.scan(store))


def two_tasks(manager):
    tasks = [manager.open_task(f"q{n}/0_0", 0, [table(f"T{n}")]) for n in (0, 1)]
    for n, task in enumerate(tasks):
        put(manager, task, f"T{n}", {("a",): (1,)})
    commit(manager)
    return tasks


def test_a_withdrawn_task_is_as_it_was_committed_and_the_epoch_has_the_others_alone():
    """Also what it has published since the cut; and its rows take no room any more once the epoch is committed."""
    manager = manager_on()
    tasks = two_tasks(manager)
    for n, task in enumerate(tasks):
        put(manager, task, f"T{n}", {("a",): (2,)})
    frozen = manager.cut()
    for n, task in enumerate(tasks):
        put(manager, task, f"T{n}", {("b",): (3,)})
    with manager.epoch_lock:
        epoch = manager.withdraw(frozen, ["q0/0_0"])
        with pytest.raises(AssertionError, match="aborted or applied already"):
            manager.withdraw(frozen, ["q0/0_0"])
    manager.apply(epoch, 2)
    assert (shown(manager, "T0"), shown(manager, "T1")) == ({("a",): (1,)}, {("a",): (2,)})
    commit(manager)
    assert (shown(manager, "T0"), shown(manager, "T1")) == ({("a",): (1,)}, {("a",): (2,), ("b",): (3,)})
    tasks[0].begin_again()
    assert [tasks[0].store("T0").get((key,)) for key in "ab"] == [(1,), None]


def test_a_withdrawal_needs_the_epoch_lock():
    manager = manager_on()
    put(manager, two_tasks(manager)[0], "T0", {("a",): (2,)})
    frozen = manager.cut()
    with pytest.raises(AssertionError, match="epoch lock must be held"):
        manager.withdraw(frozen, ["q0/0_0"])
    manager.apply(frozen, 2)
    assert shown(manager, "T0") == {("a",): (2,)}


def test_after_an_abort_nothing_counts_as_uncommitted_and_drops_wait_for_the_next_commit():
    manager = manager_on()
    tasks = two_tasks(manager)
    put(manager, tasks[1], "T1", {("a",): (2,)})
    assert manager.uncommitted.size_bytes > 0
    manager.close_task("q0/0_0")
    manager.drop_task("q0/0_0")
    frozen = manager.cut()
    assert list(frozen.drops.tasks) == ["q0/0_0"]
    manager.abort()
    assert manager.uncommitted.size_bytes == 0
    frozen = manager.cut()
    assert list(frozen.drops.tasks) == ["q0/0_0"], "changelogs and the metadata topic are told of it, too"
    manager.apply(frozen, 2)
    assert list(manager.committed_tasks()) == ["q1/0_0"]
    with pytest.raises(StateError, match="there is no store T0"):
        shown(manager, "T0")


def test_drops_of_an_aborted_commit_and_newer_ones_are_made_together():
    manager = manager_on()
    specs = {name: table(name) for name in ("A", "B")}
    entries = {name: manager.restored.expect_files(spec, 0) for name, spec in specs.items()}
    older, newer = Drops(), Drops()
    older.add_task("q/0_0")
    older.add_partition(entries["A"], 0)
    newer.add_task("q/0_1")
    newer.add_partition(entries["B"], 1)
    both = older.merged(newer)
    assert list(both.tasks) == ["q/0_0", "q/0_1"]
    assert both.partitions == {("A", 0): specs["A"], ("B", 1): specs["B"]}
    assert both.ranges == older.ranges | newer.ranges
    assert both.rows == older.rows | newer.rows
    assert [both.has_partition(entries[name], p) for name, p in (("A", 0), ("A", 1), ("B", 1))] == [True, False, True]
    assert not Drops()


def test_an_abandoned_epoch_leaves_no_drop_behind():
    manager = manager_on()
    tasks = two_tasks(manager)
    put(manager, tasks[1], "T1", {("a",): (2,)})
    manager.close_task("q0/0_0")
    manager.drop_task("q0/0_0")
    manager.abandon()
    assert manager.uncommitted.size_bytes == 0
    manager.close_task("q1/0_0")
    frozen = manager.cut()
    assert (not frozen.drops, list(frozen.drops.tasks)) == (True, [])
    manager.apply(frozen, 2)
    assert sorted(manager.committed_tasks()) == ["q0/0_0", "q1/0_0"]
    assert shown(manager, "T0") == {("a",): (1,)}


@pytest.mark.parametrize("kind", ["memory", "rocks"])
def test_rows_of_the_bound_itself_are_live_and_older_ones_are_not(kind, tmp_path):
    manager = StateManager(MemoryPhysical() if kind == "memory" else open_rocks(tmp_path))
    task = manager.open_task("q/0_0", 0, [window()])
    put(manager, task, "W", {("a", ms): (ms,) for ms in (999, 1_000, 1_001)})
    commit(manager)
    task.store("W").expire(1_000)
    put(manager, task, "W", {})
    commit(manager)
    keys = [("a", ms) for ms in (999, 1_000, 1_001)]
    with manager.snapshot() as snapshot:
        assert snapshot.get_many("W", keys) == [None, (1_000,), (1_001,)]
        assert [ms for (_, ms), _ in snapshot.scan("W")] == [1_000, 1_001]
    assert [task.store("W").get(key) for key in keys] == [None, (1_000,), (1_001,)]
    manager.close()


def test_a_snapshot_of_one_task_shows_its_partition_alone():
    manager = manager_on()
    for partition in (0, 1):
        task = manager.open_task(f"q/0_{partition}", partition, [table()])
        put(manager, task, "T", {(f"k{partition}",): (partition,)}, {"of": partition})
    commit(manager)
    with manager.snapshot() as both, both.of_task("q/0_1") as one:
        assert dict(one.scan("T")) == {("k1",): (1,)}
        assert (one.get("T", ("k0",)), one.get("T", ("k1",))) == (None, (1,))
        assert one.tasks() == {"q/0_1": {"of": 1}}
        assert len(list(both.scan("T"))) == 2


def entry_of(manager, spec):
    manager.open_task("q/0_0", 0, [spec])
    frozen = manager.cut()
    manager.apply(frozen, 1)
    return next(e for e in frozen.entries.values() if e.spec.name == spec.name)


def test_of_changelog_records_only_those_since_the_last_drop_count():
    entry = entry_of(manager_on(), table())
    keys = [b"a", DROP_RECORD, b"b", BOUND_RECORD, DROP_RECORD, b"d", b"c", b"d"]
    values = [b"1", b"", b"2", encode_number(7), b"", b"3", b"4", b"5"]
    around, rows = place_records(entry, 0, keys, values)
    assert around == ([entry.partition_range(0)], [entry.bound_key(0)], [None])
    assert (rows.keys, rows.values) == (entry.place([b"c", b"d"], 0), [b"4", b"5"])
    around, rows = place_records(
        entry, 0, [b"a", BOUND_RECORD, b"b", BOUND_RECORD], [b"1", encode_number(7), None, encode_number(9)]
    )
    assert around == ([], [entry.bound_key(0)], [encode_number(9)])
    assert (rows.keys, rows.values) == (entry.place([b"a", b"b"], 0), [b"1", None])
    assert place_records(entry, 0, [b"b", b"a"], [b"2", b"1"])[1].keys == entry.place([b"a", b"b"], 0)


def test_a_disk_accepts_files_where_what_is_written_reaches_it(tmp_path, monkeypatch):
    """A file system that allocates late takes the bytes of a full disk, and refuses them when they are to be durable."""
    physical = open_rocks(tmp_path)
    assert physical.property("rocksdb.num-immutable-mem-table") == 0
    assert physical.accepts_files()

    def full(_file):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert not physical.accepts_files()
    assert physical.accepts_files()
    physical.close()


def test_rows_that_are_not_flushed_count_against_the_cache(tmp_path):
    physical = open_rocks(tmp_path, cache_bytes=64 * MIB, write_buffer_bytes=32 * MIB)
    before = physical.property("rocksdb.block-cache-usage")
    keys = [b"k%04d" % n for n in range(1000)]
    physical.write_batch(keys, [os.urandom(8_000) for _ in keys])
    assert physical.property("rocksdb.block-cache-usage") - before >= 8_000_000
    physical.close()


def test_segments_go_with_each_bound_that_leaves_one_behind():
    manager = manager_on()
    task = manager.open_task("q", 0, [window(retention_ms=60_000)])
    put(manager, task, "W", {("a", minute * 60_000): (minute,) for minute in range(6)})
    commit(manager)
    left = []
    for bound_ms in (60_001, 110_000, 120_000, 300_000):
        task.store("W").expire(bound_ms)
        with manager.epoch_lock:
            task.publish({})
        frozen = manager.cut()
        ranges = len(frozen.writes().ranges)
        manager.apply(frozen, manager.applied_sequence + 1)
        left.append((ranges, len(list(manager._physical.scan(*task.store("W").entry.partition_range(0))))))
    assert left == [(1, 5), (0, 5), (1, 4), (1, 1)]


def test_what_is_here_of_an_open_task_is_not_cleared():
    manager = manager_on()
    task, _ = two_tasks(manager)
    with pytest.raises(StateError, match="q0/0_0 is open"):
        manager.rebuild({"q0/0_0": None})
    assert dict(task.store("T0").scan()) == {("a",): (1,)}
    manager.close_task("q0/0_0")
    manager.rebuild({"q0/0_0": None})
    assert shown(manager, "T0") == {}

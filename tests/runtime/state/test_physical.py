"""One suite for every physical store."""

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flowql.runtime.errors import StateDamaged, StateError, StateFull
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import BATCH_ROWS_MAX, WriteGuard
from flowql.runtime.state.rocks import open_rocks, write_row_file
from tests.runtime.state.support import raised_in_thread


@pytest.fixture(params=["memory", "rocks"])
def store(request, tmp_path):
    physical = MemoryPhysical() if request.param == "memory" else open_rocks(tmp_path / "db")
    yield physical
    physical.close()


def key(i):
    return b"k%04d" % i


def fill(store, n, value=b"old"):
    for start in range(0, n, 1000):
        keys = [key(i) for i in range(start, min(n, start + 1000))]
        store.write_batch(keys, [value] * len(keys))


def test_rows_come_back_in_order(store):
    store.write_batch([b"b", b"a", b"c"], [b"2", b"1", b"3"])
    store.write_batch([b"b", b"d"], [None, b""])
    assert store.get(b"a") == b"1"
    assert store.get(b"b") is None
    assert store.multi_get([b"d", b"x", b"c"]) == [b"", None, b"3"]
    assert list(store.scan(b"a", b"d")) == [(b"a", b"1"), (b"c", b"3")]


def test_ranges_are_deleted_before_the_rows_of_their_batch(store):
    fill(store, 10)
    store.write_batch([key(3)], [b"new"], [(key(2), key(5))])
    assert [k for k, _ in store.scan(key(0), key(6))] == [key(0), key(1), key(3), key(5)]


def test_a_scan_is_as_of_its_call(store):
    fill(store, 5)
    rows = store.scan(key(0), key(9))
    store.write_batch([key(1), key(6)], [None, b"new"])
    assert [k for k, _ in rows] == [key(i) for i in range(5)]


def test_many_scans_at_once_keep_their_bounds(store):
    fill(store, 300)
    scans = [(i, store.scan(key(i), key(i + 3))) for i in range(290)]
    for i, rows in scans:
        assert [k for k, _ in rows] == [key(i), key(i + 1), key(i + 2)]


def test_after_a_compaction_rows_are_in_order_as_before(store):
    store.write_batch([key(3), key(1), key(2)], [b"old"] * 3)
    store.write_batch([key(2)], [None])
    store.compact(b"", b"z")
    assert [k for k, _ in store.scan(key(0), key(9))] == [key(1), key(3)]


def test_a_snapshot_does_not_move(store):
    fill(store, 600)
    old = store.snapshot()
    store.write_batch([key(1), key(2), key(700)], [b"new", None, b"new"], [(key(100), key(200))])
    middle = store.snapshot()
    store.write_batch([key(1)], [b"newest"])
    store.flush()
    store.compact(b"", b"z")
    assert old.multi_get([key(1), key(2), key(150), key(700)]) == [b"old", b"old", b"old", None]
    assert middle.multi_get([key(1), key(2), key(150), key(700)]) == [b"new", None, None, b"new"]
    assert list(old.scan(key(0), key(999))) == [(key(i), b"old") for i in range(600)]
    chunks = list(old.chunks(key(3), key(500)))
    assert all(len(keys) == len(values) > 0 for keys, values in chunks)
    assert [k for keys, _ in chunks for k in keys] == [key(i) for i in range(3, 500)]
    assert list(middle.chunks(key(100), key(200))) == []
    middle.close()
    assert old.multi_get([key(1), key(2), key(700)]) == [b"old", b"old", None]
    rows = old.scan(key(0), key(999))
    assert next(rows) == (key(0), b"old")
    assert old.scan(key(5), key(6)).__next__() == (key(5), b"old")
    assert sum(1 for _ in rows) == 599, "scans of one snapshot do not disturb each other"
    old.close()


def test_what_a_newer_snapshot_kept_serves_an_older_one_after_it(store):
    fill(store, 3)
    old, new = store.snapshot(), store.snapshot()
    store.write_batch([key(0)], [b"new"])
    new.close()
    assert old.get(key(0)) == b"old"
    assert next(old.scan(key(0), key(1))) == (key(0), b"old")
    old.close()


def test_snapshots_may_be_closed_in_any_order(store):
    fill(store, 3)
    first, second = store.snapshot(), store.snapshot()
    store.write_batch([key(0)], [b"new"])
    first.close()
    assert second.get(key(0)) == b"old"
    second.close()


def test_only_permitted_writes_pass():
    guard = WriteGuard(MemoryPhysical())
    with pytest.raises(AssertionError, match="nothing uncommitted"):
        guard.write([b"a"], [b"1"])
    with guard.permit("apply"):
        guard.write([b"a"], [b"1"])
        error = raised_in_thread(lambda: guard.write([b"b"], [b"2"]))
    assert "nothing uncommitted" in str(error)
    assert guard.inner.get(b"b") is None


def test_the_last_rows_are_in_the_last_batch_only():
    written = []

    class Recording(MemoryPhysical):
        def write_batch(self, keys, values, ranges=()):
            written.append((list(keys), list(ranges)))
            super().write_batch(keys, values, ranges)

    guard = WriteGuard(Recording())
    with guard.permit("apply"):
        guard.write([key(i) for i in range(2500)], [b"x"] * 2500, [(b"a", b"b")], ([b"m"], [b"1"]))
    assert [len(k) for k, _ in written] == [999, 999, 503]
    assert [b"m" in k for k, _ in written] == [False, False, True]
    assert [r for _, r in written] == [[(b"a", b"b")], [], []]


def test_rocks_says_why_it_cannot_open(tmp_path):
    with pytest.raises(StateError, match="no state"):
        open_rocks(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()
    first = open_rocks(tmp_path / "db")
    with pytest.raises(StateError, match="cannot be opened") as found:
        open_rocks(tmp_path / "db")
    assert not isinstance(found.value, StateDamaged), "one that is in use is whole"
    first.close()


def test_a_limit_of_the_size_of_files_is_named(tmp_path):
    """It was "State and log do not fit together", as any error of the state."""
    db = open_rocks(tmp_path / "db")
    fill(db, 1, os.urandom(200_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StateFull, match=r"File too large.*ulimit -f") as found:
            db.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found.value.code == "FQ4004"
    db.close()


def test_rows_behind_a_damaged_block_are_not_missing_without_a_word(tmp_path):
    """A scan ended there as if there were no more rows, and the next start used the same files again."""
    db = open_rocks(tmp_path / "db")
    fill(db, 5_000, bytes(range(100)))
    db.flush()
    db.close()
    _flip_in_the_middle(next((tmp_path / "db").glob("*.sst")))
    for read_only in (True, False):
        (tmp_path / "db" / "DAMAGED").unlink(missing_ok=True)
        db = open_rocks(tmp_path / "db", read_only=read_only)
        snapshot = db.snapshot()
        for read in (db.scan, snapshot.scan):
            with pytest.raises(StateDamaged, match="block checksum"):
                list(read(b"k", b"l"))
        with pytest.raises(StateDamaged, match="block checksum"):
            db.multi_get([key(i) for i in range(5_000)])
        assert [k for k, _ in db.scan(b"k", key(9))] == [key(i) for i in range(9)]
        snapshot.close()
        db.close()
        with pytest.raises(StateDamaged, match="block checksum"):
            open_rocks(tmp_path / "db")


def test_a_file_that_is_not_a_file_of_rows_is_no_damage_of_the_state(tmp_path):
    db = open_rocks(tmp_path / "db")
    fill(db, 10)
    (tmp_path / "rows.sst").write_bytes(bytes(1_000))
    with pytest.raises(StateError) as found:
        db.ingest(tmp_path / "rows.sst")
    assert not isinstance(found.value, StateDamaged)
    db.close()
    open_rocks(tmp_path / "db").close()


def _flip_in_the_middle(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_folder_of_a_state_is_for_its_owner_alone(tmp_path):
    """It has the values of the log, whose files nobody else can read."""
    (tmp_path / "older").mkdir(mode=0o755)
    for name in ("older", "deep/new"):
        open_rocks(tmp_path / name).close()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700, name


def test_a_checkpoint_is_a_copy(tmp_path):
    db = open_rocks(tmp_path / "db")
    fill(db, 10)
    db.checkpoint(tmp_path / "checkpoints" / "1")
    fill(db, 10, b"new")
    copy = open_rocks(tmp_path / "checkpoints" / "1", read_only=True)
    assert copy.get(key(9)) == b"old"
    copy.close()
    db.close()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts what a process reads")
def test_look_ups_in_a_large_file_read_blocks_and_not_its_filter(tmp_path):
    """The filter of a file with a million keys has 1.3 MB. A cache that could not keep it read it again for each look-up."""
    rows = 1_000_000
    keys = [b"k%07d" % i for i in range(rows)]
    store = open_rocks(tmp_path / "db", cache_bytes=16 << 20, write_buffer_bytes=8 << 20)
    write_row_file(tmp_path / "rows", keys, [b"value"] * rows)
    store.ingest(tmp_path / "rows")
    wanted = keys[:: rows // 2_000]
    store.multi_get(wanted)
    before = bytes_read()
    assert store.multi_get(wanted) == [b"value"] * len(wanted)
    assert (bytes_read() - before) / len(wanted) < 20_000
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts what a process reads")
def test_a_database_opened_again_has_its_cache_and_filters(tmp_path, read_only):
    """rocksdict gives options to the column families that it makes: an existing one had a cache of 8 MB and no filters."""
    cache, rows = 100 << 20, 100_000
    keys, value = [b"k%06d" % i for i in range(rows)], os.urandom(200)
    open_rocks(tmp_path / "db").close()
    store = open_rocks(tmp_path / "db", cache_bytes=cache)
    for start in range(0, rows, BATCH_ROWS_MAX):
        some = keys[start : start + BATCH_ROWS_MAX]
        store.write_batch(some, [value] * len(some))
    store.flush()  # a file with a filter
    store.close()
    del store  # a last reference keeps the database locked
    store = open_rocks(tmp_path / "db", cache_bytes=cache, read_only=read_only)
    assert store.property("rocksdb.block-cache-capacity") == cache
    absent = [k + b"x" for k in keys[:: rows // 2_000]]
    store.multi_get(absent[::2])  # reads the filter
    before = bytes_read()
    assert not any(store.multi_get(absent[1::2]))
    assert (bytes_read() - before) / len(absent[1::2]) < 300, "a look-up of an absent key reads a block"
    store.close()


MANY_FILES = """
import resource, sys
from pathlib import Path
from flowql.runtime.state.rocks import open_rocks, write_row_file
count, folder = 300, Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
keys = [b"k%04d" % i for i in range(count)]
store = open_rocks(folder / "db")
for key in keys:
    write_row_file(folder / "rows", [key], [b"value"])
    store.ingest(folder / "rows")
assert len(list(store.scan(b"k", b"l"))) == count
store.close()
del store  # a last reference keeps the database locked
store = open_rocks(folder / "db")
assert store.multi_get(keys) == [b"value"] * count
store.close()
"""


def test_a_state_has_more_files_than_a_process_may_open(tmp_path):
    done = subprocess.run([sys.executable, "-c", MANY_FILES, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def bytes_read() -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines() if "rchar" in line)

"""A physical store that is closed and opened again under those who use it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from flowql.runtime.errors import LogCorrupt, StateError, StateLost
from flowql.runtime.state import rocks
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.roll_forward import merged
from flowql.runtime.state.values import encode_metadata
from tests.crash.simulated import LossyPhysical
from tests.runtime.state.support import table

KEYS = [b"k%04d" % n for n in range(1_000)]


@pytest.fixture
def store(tmp_path):
    made = open_rocks(tmp_path)
    made.write_batch(KEYS, [b"durable"] * len(KEYS))
    made.flush()
    yield made
    made.close()


def test_what_is_brought_forward_is_there(store):
    store.reopen(lambda: store.write_batch([b"later"], [b"redone"]))
    assert store.multi_get([b"k0000", b"later"]) == [b"durable", b"redone"]
    assert store.accepts_files()


def test_a_row_that_no_redo_has_is_written_again(store):
    """The start of an instance that has opened the state was lost with it, and the next start took the state for one of another log."""
    store.keep(b"kept", b"row")
    store.write_batch([b"kept"], [None])
    store.reopen(lambda: None)
    assert store.get(b"kept") == b"row"


def test_a_snapshot_says_that_it_ended_and_a_scan_goes_on(store):
    snapshot, scan = store.snapshot(), store.scan(b"k", b"l")
    first = [next(scan)[0] for _ in range(rocks._SCAN_FIRST + 3)]
    store.reopen(lambda: None)
    for read in (lambda: snapshot.get(b"k0000"), lambda: list(snapshot.scan(b"k", b"l"))):
        with pytest.raises(StateError, match="ask again"):
            read()
    snapshot.close()
    assert first + [key for key, _ in scan] == KEYS


def test_others_wait_until_it_is_brought_forward(store):
    entered, found = threading.Event(), []

    def read():
        entered.wait()
        found.append(store.get(b"later"))

    reader = threading.Thread(target=read)
    reader.start()

    def roll_forward():
        entered.set()
        time.sleep(0.05)
        assert not found
        store.write_batch([b"later"], [b"redone"])

    store.reopen(roll_forward)
    reader.join()
    assert found == [b"redone"]


def test_what_fails_keeps_others_out_until_it_succeeds(store, monkeypatch):
    monkeypatch.setattr(rocks, "_REOPEN_WAIT_S", 0.01)

    def fail():
        raise StateError("Input/output error")

    with pytest.raises(StateError, match="Input/output"):
        store.reopen(fail)
    with pytest.raises(StateError, match="not open again yet"):
        threading_result(lambda: store.get(b"k0000"))
    store.reopen(lambda: None)
    assert threading_result(lambda: store.get(b"k0000")) == b"durable"


def test_readers_in_other_threads_never_see_anything_else(store):
    """Gets, scans and snapshots while it is opened again and again."""
    stopping, wrong = threading.Event(), []

    def read():
        while not stopping.is_set():
            try:
                assert store.multi_get(KEYS[:50]) == [b"durable"] * 50
                assert sum(1 for _ in store.scan(b"k", b"l")) == len(KEYS)
                snapshot = store.snapshot()
                try:
                    assert sum(len(keys) for keys, _ in snapshot.chunks(b"k", b"l")) == len(KEYS)
                finally:
                    snapshot.close()
            except StateError as error:
                if "ask again" not in str(error):
                    wrong.append(error)
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    done, limit = 0, time.monotonic() + 20
    while done < 5 and time.monotonic() < limit:
        try:
            store.reopen(lambda: None)
            done += 1
        except StateError:  # a call was under way
            time.sleep(0.01)
    stopping.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert done == 5


@pytest.mark.parametrize("kind", ["RocksSnapshot", "_Scan"])
def test_what_is_made_while_it_is_closed_does_not_hold_it_open(store, monkeypatch, kind):
    """It was not known yet when all were made to let go, and the database could not be opened while it lived."""
    made = getattr(rocks, kind)

    def meanwhile(*args):
        holder = made(*args)
        with suppress(StateError):  # a call is under way
            store.reopen(lambda: None)
        return holder

    with monkeypatch.context() as patch:
        patch.setattr(rocks, kind, meanwhile)
        held = store.snapshot() if kind == "RocksSnapshot" else store.scan(b"k", b"l")
    store.reopen(lambda: None)
    if kind == "RocksSnapshot":
        with pytest.raises(StateError, match="ask again"):
            held.get(b"k0000")
    else:
        assert [key for key, _ in held] == KEYS


def test_what_is_brought_forward_may_be_seen_by_a_snapshot(store):
    """It is made before others have the database."""
    taken = []
    store.reopen(lambda: taken.append(store.snapshot()))
    assert taken[0].get(b"k0000") == b"durable"
    taken[0].close()


def test_what_rocksdb_says_is_an_error_of_the_state(store):
    class Broken:
        def __getattr__(self, name):
            raise Exception("Corruption: block checksum mismatch")

        __getitem__ = __getattr__

    snapshot = store.snapshot()
    snapshot._lookup = snapshot._iterator = Broken()
    for read in (lambda: snapshot.get(b"k0000"), lambda: list(snapshot.scan(b"k", b"l"))):
        with pytest.raises(StateError, match="block checksum"):
            read()
    whole, store._db = store._db, Broken()
    try:
        with pytest.raises(StateError, match="block checksum"):
            store.scan(b"k", b"l")
    finally:
        store._db = whole


def threading_result(action):
    """Of an action in another thread."""
    found = []

    def run():
        try:
            found.append(action())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


# -- of the state manager


def committed(state, task, value):
    with state.epoch_lock:
        task.store("T").put(("k",), (value,))
        task.publish({"positions": {"in": value}})
    frozen = state.cut()
    return frozen


def prepared():
    physical = LossyPhysical()
    state = StateManager(physical)
    task = state.open_task("q/0_0", 0, [table("T")])
    redo = []
    for n in (1, 2):
        frozen = committed(state, task, n)
        redo.append((n, frozen.redo()))
        state.apply(frozen, n)
        if n == 1:
            state.flush()
    return physical, state, task, redo


def test_the_state_is_as_it_was_and_open_tasks_go_on():
    physical, state, task, redo = prepared()
    frozen = committed(state, task, 3)
    redo.append((3, frozen.redo()))
    physical.break_down()
    with pytest.raises(StateError):
        state.apply(frozen, 3)
    asked = []
    state.reopen(lambda after: asked.append(after) or [r for r in redo if r[0] > after])
    assert asked == [1]
    state.apply(frozen, 3)
    assert state.applied_sequence == 3
    with state.snapshot() as snapshot:
        assert list(snapshot.scan("T")) == [(("k",), (3,))]
    task.store("T").forget()
    assert task.store("T").get(("k",)) == (3,)
    state.apply(committed(state, task, 4), 4)


def test_without_redo_and_changelogs_the_state_is_as_of_the_commit_that_was_flushed():
    physical, state, _task, _redo = prepared()
    physical.break_down()
    state.reopen(None)
    assert state.applied_sequence == 1
    with state.snapshot() as snapshot:
        assert (snapshot.sequence, list(snapshot.scan("T"))) == (1, [(("k",), (1,))])
    lost = LossyPhysical()
    state = StateManager(lost)
    state.apply(committed(state, state.open_task("q/0_0", 0, [table("T")]), 1), 1)
    assert list(state.committed_stores()) == ["T"]
    lost.break_down()
    state.reopen(None)
    assert (state.applied_sequence, list(state.committed_stores())) == (0, [])


def test_a_commit_under_way_that_the_log_has_not_is_written_when_it_comes():
    physical, state, task, redo = prepared()
    frozen = committed(state, task, 3)
    physical.break_down()
    state.reopen(lambda after: [r for r in redo if r[0] > after])
    assert state.applied_sequence == 2
    state.apply(frozen, 3)
    assert StateManager(physical).applied_sequence == 3
    task.store("T").forget()
    assert task.store("T").get(("k",)) == (3,)


def test_a_snapshot_taken_after_the_opening_can_be_read(tmp_path):
    """The one that was current had been of the database that was closed."""
    physical = open_rocks(tmp_path)
    state = StateManager(physical)
    frozen = committed(state, state.open_task("q/0_0", 0, [table("T")]), 1)
    redo = frozen.redo()
    state.apply(frozen, 1)
    state.reopen(lambda after: [r for r in [(1, redo)] if r[0] > after])
    with state.snapshot() as snapshot:
        assert list(snapshot.scan("T")) == [(("k",), (1,))]
    state.close()


def test_redo_that_is_missing_is_not_passed_over():
    physical, state, _, _ = prepared()
    physical.break_down()
    with pytest.raises(StateLost, match="commits 2 to 2"):
        state.reopen(lambda after: [])
    physical.break_down()
    with pytest.raises(StateLost, match="commits 2 to 2"):  # also when it is tried again
        state.reopen(lambda after: [])


def test_redo_is_merged_up_to_what_can_be_read():
    def commits():
        yield 5, b"never read"
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(merged(commits(), 5))


def restored(monkeypatch, *, end_is_durable):
    """A state of one task that was restored to its end, then an I/O error; and the restored keys."""
    physical = LossyPhysical()
    state = StateManager(physical)
    state.begin_restore({"q/0_0": TaskRecord(0, ("T",), encode_metadata({}))}, [], 1)
    state.restored.take(table("T"), 0, KEYS[:3], [b"\x91\x01"] * 3)
    with monkeypatch.context() as patch:
        if not end_is_durable:
            patch.setattr(physical, "flush", lambda: None)
        state.end_restore("q/0_0")
    physical.break_down()
    return physical, state


def test_restored_rows_outlive_an_io_error(monkeypatch):
    physical, state = restored(monkeypatch, end_is_durable=True)
    before = dict(physical.scan(b"", b"\xff"))
    state.reopen(lambda after: [])
    assert dict(physical.scan(b"", b"\xff")) == before
    assert state.applied_sequence == 1
    assert not state.restoring()


def test_restored_rows_that_an_io_error_took_are_not_passed_over(monkeypatch):
    _, state = restored(monkeypatch, end_is_durable=False)
    with pytest.raises(StateLost, match="were being restored"):
        state.reopen(lambda after: [])


def test_an_opening_while_a_restoration_ends_is_not_passed_over(monkeypatch):
    """That the task is whole was lost with the old store; it ran, and the next crash would have found it to be restored."""
    physical = LossyPhysical()
    state = StateManager(physical)
    state.begin_restore({"q/0_0": TaskRecord(0, ("T",), encode_metadata({}))}, [], 1)
    state.restored.take(table("T"), 0, KEYS[:3], [b"\x91\x01"] * 3)

    def reopened_first():
        monkeypatch.undo()
        physical.break_down()
        state.reopen(None)
        state.restored.take(table("T"), 0, KEYS[:3], [b"\x91\x01"] * 3)
        physical.flush()

    monkeypatch.setattr(physical, "flush", reopened_first)
    with pytest.raises(StateError, match="opened again while"):
        state.end_restore("q/0_0")
    assert list(state.restoring()) == ["q/0_0"]
    state.end_restore("q/0_0")
    kept = physical.after_crash(0)
    assert not StateManager(kept).restoring()
    assert [key[6:] for key, _ in kept.scan(b"\0\0\0\1", b"\0\0\0\2")] == KEYS[:3]


def test_redo_that_is_damaged_is_not_asked_for_again_for_ever():
    physical, state, _, _ = prepared()

    def damaged(after):
        raise LogCorrupt("the redo payload at byte 7 is damaged")
        yield

    physical.break_down()
    with pytest.raises(StateLost, match="byte 7 is damaged"):
        state.reopen(damaged)


def test_redo_of_another_format_is_not_asked_for_again_for_ever():
    physical, state, _, _ = prepared()
    physical.break_down()
    with pytest.raises(StateLost, match=r"redo of commit 2 has format 9.* reads 1"):
        state.reopen(lambda after: [(2, b"\x92\x09\xc0")])


def test_a_snapshot_that_is_closed_says_so(store):
    snapshot = store.snapshot()
    snapshot.close()
    for read in (lambda: snapshot.get(b"k0000"), lambda: list(snapshot.scan(b"k", b"l"))):
        with pytest.raises(StateError, match="the snapshot is closed"):
            read()

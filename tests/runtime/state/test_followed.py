"""A copy of the state that redo brings forward has the rows of the state, whatever commits, merges and reads come in between."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.runtime.budget import RUN_ROWS_MIN
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import StateError
from flowql.runtime.state import held
from flowql.runtime.state.columns.packed import pack
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.copy import copied
from flowql.runtime.state.followed import FollowedState
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import open_rocks
from tests.runtime.state.support import commit, publish, put, table, window

LAYOUT = ValueLayout((("integer",),))
STORES = (table(), window())
MEMORY = 32 << 20


class Instance:
    """A state whose redo is kept."""

    def __init__(self, folder: Path) -> None:
        self.manager = StateManager(open_rocks(folder / "db"))
        self.merger = self.manager.merger(SystemClock())
        self.task = self.manager.open_task("q", 0, STORES)
        self.redo = dict[int, bytes]()

    def commit(self) -> None:
        redo = commit(self.manager)
        self.redo[self.manager.applied_sequence] = redo

    def redo_after(self, sequence: int) -> Iterator[tuple[int, bytes]]:
        return ((n, redo) for n, redo in sorted(self.redo.items()) if n > sequence)

    def change(self, rng: random.Random) -> None:
        """Some rows: many become a run, few are written one by one."""
        n = rng.choice((1, 5, RUN_ROWS_MIN + 10))
        if rng.random() < 0.6:
            rows = {(f"key {i}",): None if rng.random() < 0.2 else (n,) for i in rng.sample(range(2_000), n)}
            self._write("T", rows)
        else:
            now = self.manager.applied_sequence
            rows = {(f"key {i % 40}", (now + i // 40) * 60_000): (i,) for i in range(n)}  # type: ignore[misc]
            self._write("W", rows)
            if rng.random() < 0.3:
                self.task.store("W").expire((now - 1) * 60_000)
        publish(self.manager, self.task)

    def _write(self, name: str, rows: dict[tuple[object, ...], tuple[int] | None]) -> None:
        store = self.task.store(name)
        if len(rows) > RUN_ROWS_MIN:
            store.append(pack(store.entry.codec.encode_many(rows)), RowValues.of(LAYOUT, list(rows.values())))
        else:
            store.put_many(list(rows), list(rows.values()))


@pytest.mark.parametrize("seed", range(4))
def test_it_has_the_rows_of_each_commit(tmp_path: Path, seed: int) -> None:
    rng, instance = random.Random(seed), Instance(tmp_path)
    for _ in range(rng.randrange(1, 20)):
        instance.change(rng)
        instance.commit()
        instance.merger.run_once(0)
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), MEMORY)
    try:
        for _ in range(60):
            instance.change(rng)
            instance.commit()
            for _ in range(rng.randrange(3)):
                instance.merger.run_once(0)
            if rng.random() < 0.5:
                newest = max(list(instance.redo))  # the log has it before readers ask for it
                assert followed.snapshot_now(newest) is None
                with followed.snapshot(newest) as found, instance.manager.snapshot() as wanted:
                    assert found.sequence == wanted.sequence == newest
                    for store in STORES:
                        rows = dict(wanted.scan(store.name))
                        assert dict(found.scan(store.name)) == rows
                        keys = [
                            *rng.sample(sorted(rows), min(5, len(rows))),
                            *rng.sample(sorted(rows), min(1, len(rows))),
                        ]
                        assert found.get_many(store.name, keys) == [rows[k] for k in keys]
                    assert not followed.has_more("T", 2_500)
                    assert followed.has_more("T", 0) == bool(dict(wanted.scan("T")))
        runs = max(len(followed._physical.runs(e.prefix(0)).runs) for e in followed._stores.values())
        assert runs < 25, "they are merged"
        assert not followed.is_too_large
    finally:
        followed.close()
        instance.manager.close()
    assert not (tmp_path / "copy").exists()


def test_rows_in_memory_are_those_of_the_commit_that_a_reader_has(tmp_path: Path) -> None:
    """The newest rows were those of a reader that had begun before, or a deleted row stayed."""
    instance = Instance(tmp_path)
    put(instance.manager, instance.task, "T", {(f"k{i}",): (i,) for i in range(10)})
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), MEMORY)
    first = followed.snapshot(1)
    before = dict(first.scan("T"))
    put(instance.manager, instance.task, "T", {("k1",): (100,), ("k2",): None, ("new",): (5,)})
    instance.commit()
    with first, followed.snapshot(2) as second, instance.manager.snapshot() as wanted:
        assert dict(first.scan("T")) == before, "nothing but what it had"
        assert list(second.scan("T")) == list(wanted.scan("T"))
        assert dict(first.scan("T")) == before
        assert second.rows_read() == len(before)
    followed.close()
    instance.manager.close()


def test_of_stores_in_memory_only_changed_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, read = Instance(tmp_path), list[int]()
    put(instance.manager, instance.task, "T", {(f"k{i}",): (i,) for i in range(500)})
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    decode = held.decode_values
    monkeypatch.setattr(held, "decode_values", lambda rows: (read.append(len(rows)), decode(rows))[1])
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), MEMORY)
    for commit_, changed in enumerate((0, 1, 3), 1):
        if changed:
            put(instance.manager, instance.task, "T", {(f"k{i}",): (-i,) for i in range(1, 1 + changed)})
            instance.commit()
        with followed.snapshot(commit_) as found, instance.manager.snapshot() as wanted:
            assert list(found.scan("T")) == list(wanted.scan("T"))
        assert sum(read) == (changed or 500)
        read.clear()
    followed.close()
    instance.manager.close()


def test_threads_read_stores_in_memory_while_commits_change_them(tmp_path: Path) -> None:
    """Each commit writes its number into all rows, and a row of its own."""
    instance, commits, failed = Instance(tmp_path), 40, list[BaseException]()

    def change(number: int) -> None:
        rows = {(f"k{i}",): (number,) for i in range(30)}
        put(instance.manager, instance.task, "T", {**rows, (f"own {number}",): (number,), (f"own {number - 1}",): None})
        instance.commit()

    def read() -> None:
        try:
            newest = 0
            while newest < commits:
                newest = max(list(instance.redo))  # the log has it before readers ask for it
                with followed.snapshot(newest) as found:
                    rows = dict(found.scan("T"))
                    assert len(rows) == 31
                    assert set(rows.values()) == {(found.sequence,)}
        except BaseException as error:
            failed.append(error)

    change(1)
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", lambda n: iter(list(instance.redo_after(n))), SystemClock(), MEMORY)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(2, commits + 1):
            change(number)
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert failed == []
    followed.close()
    instance.manager.close()


def test_a_store_that_does_not_fit_into_memory_is_read_each_time(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    put(instance.manager, instance.task, "T", {(f"k{i}",): (i,) for i in range(500)})
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), 100 << 10)
    with followed.snapshot(1) as found, instance.manager.snapshot() as wanted:
        for _ in range(2):
            assert list(found.scan("T")) == list(wanted.scan("T"))
    assert not followed._held._held
    followed.close()
    instance.manager.close()


def test_large_values_that_no_query_asks_for_do_not_wait_in_memory(tmp_path: Path) -> None:
    """Each changed row counted as 300 bytes, whatever its value."""
    instance = Instance(tmp_path)
    put(instance.manager, instance.task, "T", {("k",): ("",)})
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), 1 << 20)
    with followed.snapshot(1) as found:
        assert len(list(found.scan("T"))) == 1
    assert followed._held._held
    for number in range(2, 32):
        put(instance.manager, instance.task, "T", {("k",): (str(number) * 50_000,)})
        instance.commit()
        with followed.snapshot(number) as found:
            assert list(found.scan("W")) == []
    assert "T" not in followed._held._held
    followed.close()
    instance.manager.close()


def test_it_follows_no_commit_with_other_stores(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    put(instance.manager, instance.task, "T", {("a",): (1,)})
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), MEMORY)
    other = instance.manager.open_task("other", 0, [table("OTHER")])
    put(instance.manager, other, "OTHER", {("a",): (1,)})
    instance.commit()
    with pytest.raises(StateError, match="other stores"):
        followed.snapshot(2)
    followed.close()
    with pytest.raises(StateError, match="closed"):
        followed.snapshot(1)
    instance.manager.close()


def test_a_commit_without_changes_has_no_redo(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    put(instance.manager, instance.task, "T", {("a",): (1,)})
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), MEMORY)
    with followed.snapshot(7) as found:
        assert (found.sequence, found.get("T", ("a",))) == (7, (1,))
    followed.close()
    instance.manager.close()


def test_tables_of_runs_that_look_ups_have_read_have_a_part_of_the_memory(tmp_path: Path) -> None:
    """Their filters and fences grow with the state. The gateway would have kept those of any state."""
    instance = Instance(tmp_path)
    rows: dict[tuple[object, ...], tuple[int] | None] = {(f"k{i:06}",): (i,) for i in range(8_000)}
    instance._write("T", rows)
    publish(instance.manager, instance.task)
    instance.commit()
    copied(instance.manager, tmp_path / "copy")
    followed = FollowedState(tmp_path / "copy", instance.redo_after, SystemClock(), 16 << 10)
    with followed.snapshot(1) as found:
        assert not followed.is_too_large, "nothing was read"
        assert found.get("T", ("k000007",)) == (7,)
    assert followed.is_too_large
    followed.close()
    instance.manager.close()

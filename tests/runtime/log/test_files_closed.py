"""Whatever the embedded log opens it closes: an instance runs for months, and a system lets a process open some hundred files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.runtime.errors import InstanceRunning, LogCorrupt, LogFull
from flowql.runtime.log import files
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger, segment
from flowql.runtime.log.embedded.journal import Journal
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.named import damages, held_still
from flowql.runtime.log.embedded.pins import pinned_files
from flowql.runtime.log.files import DiskFiles
from tests.runtime.log.records import produce, read_all, values
from tests.runtime.log.workload import A0, observe, steps

T0 = TopicPartition("T", 0)
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0"}


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[object]]:
    """Files and locks that are open."""
    found: set[object] = set()

    class File(files.DiskFile):
        def __init__(self, path: str, flags: int) -> None:
            super().__init__(path, flags)
            found.add(self)

        def close(self) -> None:
            super().close()
            found.discard(self)

        def __repr__(self) -> str:
            return self.path

    class Lock(files.DiskLock):
        def __init__(self, fd: int) -> None:
            super().__init__(fd)
            found.add(self)

        def release(self) -> None:
            super().release()
            found.discard(self)

    monkeypatch.setattr(files, "DiskFile", File)
    monkeypatch.setattr(files, "DiskLock", Lock)
    yield found
    assert found == set()


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("topics/*/*.arrows"))


def test_a_log_that_is_written_to_by_two_and_kept_up_leaves_none_open(
    open_files: set[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "ROLL_BYTES", 300)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    monkeypatch.setattr(segment, "_APPENDERS_KEPT", 2)
    logs = [EmbeddedLog(tmp_path / "log") for _ in range(2)]
    for n, step in enumerate(steps()):
        step(logs[n % 2])
        assert observe(logs[0]) == observe(logs[1])
    logs[0].create_topic("T", 1, COMPACT)
    for n in range(8):
        produce(logs[n % 2], "p", (T0, [(n, b"%d" % (n % 3), b"v" * 50)] * 3))
        logs[n % 2].maintain(n)
    assert [r[0] for r in read_all(logs[1], T0)] == sorted({r[0] for r in read_all(logs[0], T0)})
    assert logs[0].verify().damages == []
    assert logs[0].is_complete(T0)
    logs[0].pin(tmp_path / "pin")
    assert pinned_files(DiskFiles(), str(tmp_path / "pin"))
    with held_still(DiskFiles(), str(tmp_path / "log")) as state:
        assert state is not None
        assert list(damages(DiskFiles(), state, str(tmp_path / "log"))) == []
    kept = len(open_files)
    assert kept <= 2 * 2 + 2, "two segments of each, and a commit log of each"
    for log in logs:
        log.close()


def test_a_log_that_is_held_by_another_instance_leaves_none_open(open_files: set[object], tmp_path: Path) -> None:
    first, second = EmbeddedLog(tmp_path), EmbeddedLog(tmp_path)
    first.hold("app")
    before = set(open_files)
    with pytest.raises(InstanceRunning, match=f"process {os.getpid()} runs app on {tmp_path}"):
        second.hold("app")
    assert open_files == before
    second.close()
    first.close()
    first.close()
    again = EmbeddedLog(tmp_path)
    again.hold("app")
    again.close()


def test_damage_leaves_none_open(open_files: set[object], tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"x" * 100]), redo=b"r")
    log.close()
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with held_still(DiskFiles(), str(tmp_path)) as state:
        assert state is not None
        assert len(list(damages(DiskFiles(), state, str(tmp_path)))) == 1
    assert open_files == set()
    path.write_bytes(b"no segment".ljust(len(whole)))
    for damaged in (b"no segment".ljust(len(whole)), whole[:-30]):
        path.write_bytes(damaged)
        log = EmbeddedLog(tmp_path, damaged=True)
        before = set(open_files)
        assert len(log.verify().damages) == 1
        with pytest.raises(LogCorrupt):
            values(log, A0)
        assert open_files == before
        log.close()
    path.write_bytes(whole)
    (tmp_path / "redo-000000000000.bin").write_bytes(b"x")
    log = EmbeddedLog(tmp_path)
    before = set(open_files)
    with pytest.raises(LogCorrupt):
        list(log.redo_after("p", 0))
    assert len(log.verify().other) == 1
    assert open_files == before
    log.close()


def test_a_commit_log_that_is_none_leaves_none_open(open_files: set[object], tmp_path: Path) -> None:
    EmbeddedLog(tmp_path).close()
    (path,) = tmp_path.glob("commits-*")
    path.write_bytes(b"something else".ljust(64))
    with pytest.raises(LogCorrupt, match="does not begin as a commit log does"):
        EmbeddedLog(tmp_path)
    assert open_files == set()


def test_a_transaction_that_finds_no_space_leaves_none_open(
    open_files: set[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]))
    before = {f.path for f in open_files if isinstance(f, files.DiskFile)}  # the commit log and the segment

    def full(self: object, offset: int, parts: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.DiskFile, "pwrite", full)
        producer_of = log.producer  # a producer is a record of the commit log
        with pytest.raises(LogFull):
            producer_of("p")
        image = log._state.snapshot()
        with pytest.raises(OSError, match="No space"):
            Journal.create(DiskFiles(), str(tmp_path), 9, image)
    assert {f.path for f in open_files if isinstance(f, files.DiskFile)} == before
    producer = log.producer("p")
    producer.begin()
    with monkeypatch.context() as patch:
        patch.setattr(files.DiskFile, "pwrite", full)
        producer.attach_redo(b"r")
        with pytest.raises(LogFull):
            producer.commit()
    assert {f.path for f in open_files if isinstance(f, files.DiskFile)} == before
    assert values(log, A0) == [b"1"]
    log.close()

"""Bytes that the disk has changed: named, never believed."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from flowql.runtime.errors import BatchDamaged, LogCorrupt, LogError, LogIOError
from flowql.runtime.log.base import RECORD_SCHEMA, Position, TopicPartition
from flowql.runtime.log.embedded import journal, segment, writer
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.verify import Damage
from tests.runtime.log.records import produce, read_all, values
from tests.runtime.log.workload import A0, A1
from tests.simulated_disk import SimulatedDisk


def small_log() -> SimulatedDisk:
    """Two topics, a few commits, positions, redo, and a commit log that has been rolled, so that there are index files."""
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 2)
    produce(log, "p", (A0, [b"1", b"2"]), (A1, [b"3"]), redo=b"first")
    with log._ledger.appending():
        for topic in log._ledger.state.topics.values():
            for partition in topic.partitions:
                for each in partition.segments:
                    log._ledger.segments.write_index(each)
        newer = journal.Journal.create(disk, "/log", 1, log._ledger.state.snapshot())
        log._ledger._journal = newer
    produce(log, "p", (A0, [b"4"]), (A1, [b"5", b"6"]), positions={"g": {A0: Position(3, "x")}}, redo=b"second")
    log.close()
    return disk


def contents(disk: SimulatedDisk) -> object:
    log = EmbeddedLog("/log", disk)
    topics = {n: (i.partitions, dict(i.config)) for n, i in log.topics().items()}
    return topics, read_all(log, A0), read_all(log, A1), log.committed("g"), list(log.redo_after("p", 0))


def contents_or_error(disk: SimulatedDisk) -> object:
    try:
        return contents(disk)
    except LogError as error:
        return str(error)


def files_of(disk: SimulatedDisk) -> list[str]:
    return sorted(p for p in disk._nodes if disk.open(p).size())


@pytest.mark.turns("disks")
def test_every_byte_flipped_is_an_error_that_names_the_place_or_the_exact_records() -> None:
    disk = small_log()
    expected = contents(disk)
    paths = files_of(disk)
    kinds = {os.path.splitext(p)[1] for p in paths}
    assert {".log", ".arrows", ".bin", ".index", ".lock"} <= kinds
    named = 0
    for path in paths:
        for at in range(disk.open(path).size()):
            copy = disk.after_power_loss("all")
            file = copy.open(path)
            for flip in (0xFF, 0x01):
                file.pwrite(at, [bytes([disk.open(path).pread(at, 1)[0] ^ flip])])
                found = contents_or_error(copy)
                named += isinstance(found, str)
                assert path in found if isinstance(found, str) else found == expected, (path, at, found)
                file.pwrite(at, [disk.open(path).pread(at, 1)])
    assert named > 1000, "most bytes carry something"


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[EmbeddedLog, str, int]:
    """A log with ten batches in a partition, of which the fifth is damaged: its file, and where."""
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1)
    for i in range(10):
        produce(log, "p", (A0, [b"%d-%d" % (i, j) for j in range(3)]))
    (path,) = [s.path for s in log._state.topics["A"].partitions[0].segments]
    start = log._state.topics["A"].partitions[0].segments[0].starts[4]
    log.close()
    with open(path, "r+b") as file:
        file.seek(start + 600)
        byte = file.read(1)
        file.seek(start + 600)
        file.write(bytes([byte[0] ^ 4]))
    return EmbeddedLog(tmp_path / "log"), path, start


def test_a_damaged_batch_stops_its_readers_with_its_place(damaged: tuple[EmbeddedLog, str, int]) -> None:
    log, path, start = damaged
    with pytest.raises(BatchDamaged) as caught:
        read_all(log, A0)
    text = str(caught.value)
    assert path in text
    assert f"byte {start} (offsets 12 to 14 of A-0)" in text
    assert "flowql log verify --skip-damaged" in text
    reader = log.reader(A0, 15)
    assert reader.read(100, 1 << 20).first_offset == 15, "others are read"


def test_verify_names_damage_and_what_is_skipped_stays_so(
    damaged: tuple[EmbeddedLog, str, int], tmp_path: Path
) -> None:
    log, path, start = damaged
    found = log.verify()
    assert [(d.tp, d.path, d.start, d.first, d.end, d.skipped) for d in found.damages] == [
        (A0, path, start, 12, 15, False)
    ]
    assert (found.segments, found.batches, found.other) == (1, 10, [])
    log.skip_damaged(found.damages)
    expected = [b"%d-%d" % (i, j) for i in range(10) for j in range(3) if i != 4]
    assert values(log, A0) == expected
    log.close()
    again = EmbeddedLog(tmp_path / "log")
    assert values(again, A0) == expected
    assert again.skipped(A0) == [(12, 15)]
    assert [d.skipped for d in again.verify().damages] == [True]
    consumer = again.consumer("c")
    consumer.assign({A0: 12})
    assert consumer.poll(100, 1 << 20)[0].first_offset == 15


def test_a_partition_that_cannot_be_read_fails_the_next_poll_while_others_have_records(
    damaged: tuple[EmbeddedLog, str, int],
) -> None:
    """What was read before it in the same poll is given first; nobody would hear of the damage while the others go on."""
    log, _, _ = damaged
    log.create_topic("B", 1)
    b0 = TopicPartition("B", 0)
    produce(log, "p", (b0, [b"1"]))
    consumer = log.consumer("c")
    consumer.assign({b0: 0, A0: 12})
    assert [batch.tp for batch in consumer.poll(100, 1 << 20)] == [b0]
    produce(log, "p", (b0, [b"2"]))
    with pytest.raises(LogCorrupt):
        consumer.poll(100, 1 << 20)
    assert [batch.tp for batch in consumer.poll(100, 1 << 20)] == [b0]


def test_a_reader_passes_a_skipped_end(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]))
    produce(log, "p", (A0, [b"2"]))
    assert log.verify().damages == []
    log.skip_damaged([Damage(A0, "", 0, 1, 2, "")])
    consumer = log.consumer("c")
    consumer.assign({A0: 0})
    assert [(b.rows, b.next_offset) for _ in range(3) for b in consumer.poll(100, 1 << 20)] == [(1, 1), (0, 2)]


@pytest.mark.parametrize("is_missing", [False, True])
def test_compaction_stops_at_damage_and_drops_what_is_skipped(tmp_path: Path, is_missing: bool) -> None:
    """A missing segment was taken for one that another process had removed: its topic was compacted no more, without a word."""
    log = EmbeddedLog(tmp_path / "log")
    config = {"cleanup.policy": "compact", "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"}
    log.create_topic("A", 1, config)
    for i in range(4):
        produce(log, "p", (A0, [(i, b"k%d" % (i % 2), b"%d" % i)]))
    path = log._state.topics["A"].partitions[0].segments[1].path
    data = bytearray(Path(path).read_bytes())
    data[-3] ^= 1
    log.close()
    Path(path).write_bytes(data)
    if is_missing:
        Path(path).unlink()
    log = EmbeddedLog(tmp_path / "log")
    with pytest.raises(BatchDamaged, match=r"restore a backup"):
        log.maintain(10)
    assert Path(path).exists() is not is_missing
    log.skip_damaged(log.verify().damages)
    log.maintain(10)
    assert not Path(path).exists()
    assert values(log, A0) == [b"2", b"3"]


def test_a_log_from_before_there_were_checksums_is_read_and_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(segment, "HEADER", segment.OLD_HEADER)
        before.setattr(writer, "HEADER", segment.OLD_HEADER)
        before.setattr(segment, "sealed", lambda pieces: pieces)
        before.setattr(journal, "FORMAT_VERSION", 1)
        old = EmbeddedLog(tmp_path / "log")
        old.create_topic("A", 1)
        produce(old, "p", (A0, [b"1", b"2"]))
        old.close()
    log = EmbeddedLog(tmp_path / "log")
    assert values(log, A0) == [b"1", b"2"]
    produce(log, "p", (A0, [b"3"]))
    log.close()
    log = EmbeddedLog(tmp_path / "log")
    assert values(log, A0) == [b"1", b"2", b"3"]
    assert log.verify().damages == []
    (found,) = log._state.topics["A"].partitions[0].segments
    data = bytearray(Path(found.path).read_bytes())
    data[-3] ^= 1  # a new batch in an old file has its checksum
    Path(found.path).write_bytes(data)
    with pytest.raises(LogCorrupt):
        values(EmbeddedLog(tmp_path / "log"), A0)


def test_a_segment_is_an_arrow_stream_for_others(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1", b"2"]))
    (found,) = log._state.topics["A"].partitions[0].segments
    table = pa.ipc.open_stream(found.path).read_all()
    assert table.schema == RECORD_SCHEMA
    assert table.column("value").to_pylist() == [b"1", b"2"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "deep" / "log").mkdir(parents=True)
    (tmp_path / "deep").chmod(0o700)
    (tmp_path / "deep" / "log").chmod(0o755)  # as older versions made it
    log = EmbeddedLog(tmp_path / "deep" / "log")
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]), redo=b"r")
    for folder, _, files in os.walk(tmp_path / "deep"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
        for name in files:
            assert stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) == 0o600, name


def test_checksums_are_those_of_zlib_whichever_library_computes_them() -> None:
    """A log that is written with one of them is read with the other."""
    data = bytes(range(256)) * 41
    for start in (0, 1, 7):
        assert segment.crc32(memoryview(data)[start:]) == zlib.crc32(data[start:])
        assert segment.crc32(pa.py_buffer(data), 12_345) == zlib.crc32(data, 12_345)
    assert segment.crc32(b"", 99) == zlib.crc32(b"", 99)


@pytest.mark.parametrize(("length", "lost"), [(None, 10), (0, 10), (100, 10), (-1, 1), ("of 7", 3), ("in 7", 4)])
@pytest.mark.parametrize("known", ["in memory", "in the index", "nowhere"])
def test_a_log_goes_on_without_records_of_a_segment_that_is_not_whole(
    tmp_path: Path, length: int | str | None, lost: int, known: str
) -> None:
    """A missing segment stopped all of a target, `log verify` too, also for those who never read it."""
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 2)
    for i in range(10):
        produce(log, "p", (A0, [b"%d" % i]))
    produce(log, "p", (A1, [b"other"]))
    (segment_,) = log._state.topics["A"].partitions[0].segments
    sizes = {"of 7": segment_.starts[7], "in 7": segment_.starts[7] - 1, -1: segment_.length - 1}
    path = segment_.path
    if known != "in memory":
        with log._ledger.appending():
            log._ledger.segments.write_index(segment_)
            log._ledger._journal = journal.Journal.create(
                log._files, str(tmp_path / "log"), 1, log._ledger.state.snapshot()
            )
    log.close()
    if known == "nowhere":
        Path(segment.index_path(path)).unlink()
    Path(path).unlink() if length is None else os.truncate(path, sizes.get(length, length))
    with pytest.raises(LogCorrupt, match=r"flowql log verify --skip-damaged"):
        EmbeddedLog(tmp_path / "log")
    log = EmbeddedLog(tmp_path / "log", damaged=True)
    found = log.verify().damages
    assert (min(d.first for d in found), max(d.end for d in found)) == (10 - lost, 10)
    log.skip_damaged(found)
    log.close()
    expected = [b"%d" % i for i in range(10 - lost)]
    for turn in range(3):
        log = EmbeddedLog(tmp_path / "log")
        assert (values(log, A0), values(log, A1)) == (expected, [b"other"])
        produce(log, "p", (A0, [b"more"]))
        expected.append(b"more")
        assert values(log, A0) == expected
        assert all(d.skipped for d in log.verify().damages)
        log.pin(tmp_path / f"pinned-{turn}")
        log.close()


def test_a_directory_that_was_moved_is_not_called_damaged(tmp_path: Path) -> None:
    """The advice was to restore a backup, or to leave records out."""
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]))
    (tmp_path / "log").rename(tmp_path / "moved")
    with pytest.raises(LogIOError, match=r"log is missing: it was moved or removed"):
        values(log, A0)
    log.close()
    assert values(EmbeddedLog(tmp_path / "moved"), A0) == [b"1"]


def test_a_missing_segment_before_the_last_one_is_found_and_named(tmp_path: Path) -> None:
    """`log verify` took it for one that was compacted meanwhile, and said that all was well."""
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 1, {"segment.bytes": "1"})
    for i in range(3):
        produce(log, "p", (A0, [b"%d" % i]))
    path = Path(log._state.topics["A"].partitions[0].segments[1].path)
    path.unlink()
    assert [(d.path, d.first, d.end) for d in log.verify().damages] == [(str(path), 1, 2)]
    log.close()
    log = EmbeddedLog(tmp_path / "log")
    with pytest.raises(BatchDamaged, match=r"the file is missing.*log verify --skip-damaged"):
        read_all(log, A0)
    log.skip_damaged(log.verify().damages)
    assert values(log, A0) == [b"0", b"2"]

"""What an embedded log says of records that are damaged, missing or left out, of its redo, and of the starts of instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.runtime.errors import LogCorrupt, LogFull, LogIOError, OffsetOutOfRange
from flowql.runtime.log import policy
from flowql.runtime.log.base import TopicPartition, even_share
from flowql.runtime.log.embedded import ledger, writer
from flowql.runtime.log.embedded.log import EmbeddedLog, incomplete, left_out, skipped_records
from flowql.runtime.log.embedded.named import Named, damaged_redo, damages, named_files
from flowql.runtime.log.embedded.segment import HEADER
from flowql.runtime.log.embedded.verify import Damage
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.log.repartition import misplaced
from tests.runtime.log.records import produce, read_all, values
from tests.simulated_disk import SimulatedDisk

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


def skip(tp: TopicPartition, first: int, end: int) -> Damage:
    return Damage(tp, "", 0, first, end, "bad")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> EmbeddedLog:
    """A has ten records in each partition, five in each segment; B has none."""
    monkeypatch.setattr(policy, "SEGMENT_BYTES", 1)
    log = EmbeddedLog("/log", SimulatedDisk())
    log.create_topic("A", 2)
    log.create_topic("B", 1)
    for n in range(2):
        produce(log, "p", (A0, [b"%d" % n] * 5), (A1, [b"%d" % n] * 5))
    return log


def paths(log: EmbeddedLog, tp: TopicPartition) -> list[str]:
    return [s.path for s in log._state.topics[tp.topic].partitions[tp.partition].segments]


def test_damaged_records_that_are_left_out_are_counted_up_to_a_position(log: EmbeddedLog) -> None:
    assert left_out(log.admin(), ["A", "B"]) == ""
    log.skip_damaged([skip(A0, 0, 5), skip(A0, 7, 9)])
    assert log.skipped(A0) == [(0, 5), (7, 9)]
    for at, count in ((0, 0), (1, 1), (5, 5), (7, 5), (8, 6), (10, 7)):
        assert skipped_records(log, {A0: at, A1: at}) == count, at
    assert left_out(log.admin(), ["B", "A"]) == "damaged records of A-0 are left out"
    assert left_out(log.admin(), ["B"]) == left_out(MemoryLog(), ["A"]) == ""
    assert (skipped_records(MemoryLog(), {A0: 9}), log.skipped(A1)) == (0, [])
    assert left_out(EmbeddedLog("/log", log._files).admin(), ["A"]) != "", "by whoever opens the log"  # type: ignore[arg-type]


def test_a_partition_that_lacks_bytes_is_named(log: EmbeddedLog) -> None:
    disk = log._files
    assert log.is_complete(A0)
    assert incomplete(log.admin(), ["A", "B"]) == incomplete(MemoryLog(), ["A"]) == ""
    file = disk.open(paths(log, A1)[0])
    file.truncate(file.size() - 1)
    assert (log.is_complete(A0), log.is_complete(A1)) == (True, False)
    assert incomplete(log.admin(), ["A"]) == "records of A-1 are gone: a segment is missing or too short"
    assert incomplete(log.admin(), ["B"]) == ""
    disk.unlink(paths(log, A0)[1])
    assert not log.is_complete(A0)
    found = list(damages(disk, log._state, "/log"))
    assert [text.partition(" ")[0] for text in found] == [paths(log, A0)[1], paths(log, A1)[0]]
    assert "is missing, but" in found[0]
    assert "bytes, but" in found[1]


def test_files_that_the_log_needs_are_named_with_their_committed_bytes(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {p: log._files.open(p).size() for tp in (A0, A1) for p in paths(log, tp)}
    assert list(named_files(log._state, "/log")) == [Named(p, size) for p, size in sizes.items()]
    assert log.stored_bytes() == sum(sizes.values())
    monkeypatch.setattr(ledger, "ROLL_BYTES", 1)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    produce(log, "p", redo=b"12345")
    segments = [n for n in named_files(log._state, "/log") if n.path.endswith(".arrows")]
    indexes = [n for n in named_files(log._state, "/log") if n.path.endswith(".index")]
    assert [n.required for n in segments] == [True] * 4
    assert [(n.length, n.required) for n in indexes] == [(8 + 16, False)] * 4, "an index is made anew"
    assert list(named_files(log._state, "/log"))[-1] == Named("/log/redo-000000000000.bin", 5)
    log.skip_damaged([skip(A0, 5, 10)])
    cut = next(n for n in named_files(log._state, "/log") if n.path == paths(log, A0)[1])
    assert not cut.required, "readers leave out its end"


def test_a_segment_that_is_gone_is_damage_or_the_work_of_retention(log: EmbeddedLog) -> None:
    reader = log.reader(A0, 0)
    log._files.unlink(paths(log, A0)[0])
    with pytest.raises(LogCorrupt, match=r"from offset 0 of A-0 on\) is damaged: the file is missing"):
        reader.read(1, 1 << 20)
    other = EmbeddedLog("/log", log._files, damaged=True)  # type: ignore[arg-type]
    late = other.reader(A1, 0)
    log.drop_before(A1, 5)
    with pytest.raises(OffsetOutOfRange, match="records 0 to 4 are gone"):
        late.read(1, 1 << 20)


def test_a_log_whose_directory_was_moved_away_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = EmbeddedLog(path)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]))
    reader = log.reader(A0)
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(LogIOError, match="it was moved or removed while this process has it open"):
        reader.read(1, 1 << 20)
    log.close()


# Redo


def test_redo_goes_to_another_file_when_one_is_full_and_files_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "REDO_FILE_BYTES", 8)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    redo = lambda: [n for n in disk.listdir("/log") if n.startswith("redo-")]  # noqa: E731
    for n in range(5):
        produce(log, "p", redo=b"%04d" % n)
    assert redo() == [f"redo-{n:012}.bin" for n in range(3)], "two of four bytes each"
    assert log.redo_place("p", 3) == "/log/redo-000000000001.bin, byte 0"
    assert log.redo_place("p", 4) == "/log/redo-000000000001.bin, byte 4"
    assert log.redo_place("p", 9) == log.redo_place("q", 1) == "/log"
    log.trim_redo("q", 9)
    log.trim_redo("p", 3)
    assert redo() == [f"redo-{n:012}.bin" for n in (1, 2)]
    assert list(log.redo_after("p", 3)) == [(4, b"0003"), (5, b"0004")]
    assert list(log.redo_after("q", 0)) == []
    with pytest.raises(LogCorrupt, match="redo of p after commit 2 is asked for, but it was trimmed up to 3"):
        log.redo_after("p", 2)
    log.trim_redo("p", 3)
    log.trim_redo("p", 5)
    assert redo() == [], "nothing of the last one is asked for any more"
    produce(log, "p", redo=b"0005")
    assert list(log.redo_after("p", 5)) == [(6, b"0005")]
    known = log._state.producers["p"].redo
    assert list(damaged_redo(disk, "/log", known)) == []
    disk.open("/log/redo-000000000003.bin").pwrite(1, [b"x"])
    assert list(damaged_redo(disk, "/log", known)) == [
        "/log/redo-000000000003.bin: the redo payload at byte 0 is damaged"
    ]


def test_a_transaction_without_space_leaves_its_files_as_long_as_they_were(log: EmbeddedLog) -> None:
    disk = log._files
    assert isinstance(disk, SimulatedDisk)
    produce(log, "p", redo=b"1")
    before = {p: len(node.data) for p, node in disk._nodes.items() if not p.endswith(".lock")}
    producer = log.producer("p")
    producer.begin()
    producer.attach_redo(b"22")
    disk.full_at, disk.full_for = disk.writes + 1, 1
    with pytest.raises(LogFull):
        producer.commit()
    after = {p: len(node.data) for p, node in disk._nodes.items() if not p.endswith(".lock")}
    assert {p: n for p, n in after.items() if "commits" not in p} == {
        p: n for p, n in before.items() if "commits" not in p
    }
    producer.begin()
    producer.attach_redo(b"333")
    assert producer.commit() == log.last_sequence("p") == 4


# Starts of instances


def test_a_state_is_of_the_start_by_which_its_producer_was_made(log: EmbeddedLog) -> None:
    assert log.why_foreign("app", 0, 7) == ""
    assert "they do not belong together" in log.why_foreign("app", 1, 7), "nothing was committed"
    log.begin_run("app", 7)
    produce(log, "app", (B0, [b"1"]))
    log.begin_run("app", 8)
    produce(log, "app", (B0, [b"2"]))
    again = EmbeddedLog("/log", log._files)  # type: ignore[arg-type]
    for sight in (log, again):
        assert [sight.why_foreign("app", n, run) == "" for n, run in ((1, 7), (2, 8), (2, 7), (0, 7))] == [
            *(True, True, False, True)
        ]


# Partitions


def test_a_record_whose_key_belongs_elsewhere_is_found() -> None:
    log = MemoryLog()
    log.create_topic("A", 2)
    keys = {p: next(b"%d" % n for n in range(99) if partition_for(b"%d" % n, 2) == p) for p in (0, 1)}
    produce(log, "p", (A0, [(0, keys[0], b"v"), (1, None, b"v")]), (A1, [(0, keys[1], b"v"), (1, None, b"v")]))
    assert misplaced(log, "A", 2) is None
    produce(log, "p", (A1, [(0, keys[1], b"v"), (2, keys[0], b"v")]))
    assert misplaced(log, "A", 2) == A1
    assert misplaced(log, "A", 1) is None


def test_parts_are_even() -> None:
    assert [even_share(rows, 30) for rows in (0, 1, 30, 31, 60, 61)] == [0, 1, 30, 16, 30, 21]


# Files that nobody names


def test_what_a_crash_has_left_is_removed_when_the_log_is_first_written_to(log: EmbeddedLog) -> None:
    disk = log._files
    assert isinstance(disk, SimulatedDisk)
    produce(log, "p", redo=b"1")
    (folder,) = {path.rpartition("/")[0] for path in paths(log, A0)}
    left = ["/log/redo-000000000009.bin", f"{folder}/0-00000000000000000099.arrows", "/log/topics/gone.9/0-0.arrows"]
    disk.makedirs("/log/topics/gone.9")
    for path in left:
        disk.open(path, create=True)
    index = paths(log, A0)[0].removesuffix(".arrows") + ".index"
    disk.open(index, create=True)
    again = EmbeddedLog("/log", disk)
    assert all(map(disk.exists, left)), "to look changes nothing"
    again.producer("q")
    assert [path for path in left if disk.exists(path)] == []
    assert not disk.exists("/log/topics/gone.9")
    assert disk.exists(index)
    disk.open(left[0], create=True)
    again.producer("q")
    assert disk.exists(left[0]), "it is looked for once"
    assert list(again.redo_after("p", 0)) == [(3, b"1")]
    assert len(read_all(again, A0)) == 10
    assert log.stored_bytes() > 4 * HEADER.size
    assert values(again, A1) == values(log, A1)


def test_locks_go_with_their_topics_and_no_topic_that_is_owned_is_touched(tmp_path: Path) -> None:
    """A process that waits for a lock whose file was removed would own the topic beside the next one that locks it."""
    log = EmbeddedLog(tmp_path)
    log.create_topic("A", 1)
    produce(log, "p", (A0, [b"1"]))
    for name in ("gone.9", "owned.8"):
        (tmp_path / "topics" / name).mkdir()
        (tmp_path / "topics" / name / "0-0.arrows").touch()
        (tmp_path / "owners" / f"{name}.lock").touch()
    owner = DiskFiles().lock(str(tmp_path / "owners" / "owned.8.lock"), wait=False)
    assert owner is not None
    again = EmbeddedLog(tmp_path)
    again.producer("q")
    assert sorted(p.name for p in (tmp_path / "owners").iterdir()) == ["A.1.lock", "owned.8.lock", "redo.lock"]
    assert sorted(p.name for p in (tmp_path / "topics").iterdir()) == ["A.1", "owned.8"]
    assert (tmp_path / "topics" / "owned.8" / "0-0.arrows").exists()
    owner.release()
    for each in (log, again):
        each.close()


def test_a_commit_log_is_replaced_when_it_has_grown_by_a_size_or_some_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    generations = lambda: [n for n in disk.listdir("/log") if n.startswith("commits-")]  # noqa: E731
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    for most in (300, 301):
        journal = log._ledger._journal
        monkeypatch.setattr(ledger, "ROLL_BYTES", most)
        monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
        while log._ledger._journal is journal:
            grown = journal.end - journal.snapshot_end
            assert grown <= most
            produce(log, "p", (A0, [b"1"]))
        assert journal.end - journal.snapshot_end > most
        assert generations() == [f"commits-{log._ledger._journal.generation:012}.log"]
    journal = log._ledger._journal
    monkeypatch.setattr(ledger, "ROLL_BYTES", 1)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 2)
    while log._ledger._journal is journal:
        produce(log, "p", (A0, [b"1"]))
    assert journal.end - journal.snapshot_end > 2 * journal.snapshot_end

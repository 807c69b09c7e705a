"""The commit log, frame by frame: what is whole, what a crash left, and what another process has taken back."""

from __future__ import annotations

import zlib

import pytest

from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.embedded.journal import _FRAME, _HEADER, InDoubt, Journal, find_generations, journal_path
from flowql.runtime.log.embedded.records import DeleteTopic, Snapshot, encode
from tests.simulated_disk import SimulatedDisk

NOTHING = Snapshot(1, [], [], [], 0, 0)
PATH = journal_path("/log", 3)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def made(disk: SimulatedDisk) -> Journal:
    return Journal.create(disk, "/log", 3, NOTHING)


def opened(disk: SimulatedDisk) -> Journal:
    found = Journal.open(disk, "/log")
    assert found is not None
    return found


def append(journal: Journal, topic: int) -> None:
    journal.advance(journal.append(DeleteTopic(topic)))


def content(disk: SimulatedDisk) -> bytes:
    return disk.open(PATH).pread(0, 1 << 20)


def test_a_journal_is_read_as_it_was_written_and_as_it_grows(disk: SimulatedDisk) -> None:
    writer = made(disk)
    append(writer, 1)
    reader = opened(disk)
    assert (reader.generation, reader.end, reader.snapshot_end, reader.has_new()) == (3, _HEADER.size, 0, True)
    assert reader.read(locked=True) == [NOTHING, DeleteTopic(1)]
    assert (reader.end, reader.snapshot_end, reader.mark) == (writer.end, writer.snapshot_end, writer.mark)
    assert (reader.has_new(), reader.read(locked=False), reader.is_current()) == (False, [], True)
    append(writer, 2)
    append(writer, 4)
    assert reader.has_new()
    assert reader.read(locked=False) == [DeleteTopic(2), DeleteTopic(4)]
    append(reader, 5)
    assert writer.read(locked=True) == [DeleteTopic(5)]
    assert len(content(disk)) == writer.end == reader.end


def test_the_newest_generation_is_opened_and_older_ones_are_removed(disk: SimulatedDisk) -> None:
    assert Journal.open(disk, "/log") is None
    older = made(disk)
    newer = Journal.create(disk, "/log", 4, NOTHING)
    for name in ("commits-1.log", "commits.new", "commits-000000000009.log.gz"):
        disk.open(f"/log/{name}", create=True)
    assert find_generations(disk, "/log") == [3, 4]
    assert (opened(disk).generation, older.is_current(), newer.is_current()) == (4, False, True)
    newer.remove_older()
    assert find_generations(disk, "/log") == [4]
    assert (older.is_current(), older.has_new(), newer.has_new()) == (False, True, False)


def test_a_new_generation_is_durable_with_its_name_before_anything_is_written_to_it(disk: SimulatedDisk) -> None:
    """Older ones are removed then: a power loss would take both, or all that was committed since."""
    made(disk)
    assert opened(disk.after_power_loss("none")).read(locked=True) == [NOTHING]


def test_a_name_of_a_commit_log_is_no_commit_log(disk: SimulatedDisk) -> None:
    made(disk)
    whole = content(disk)
    for damaged in (b"", whole[: _HEADER.size - 1], b"x" + whole[1:]):
        file = disk.open(PATH)
        file.truncate(0)
        file.pwrite(0, [damaged])
        with pytest.raises(LogCorrupt, match="does not begin as a commit log does"):
            opened(disk)


def test_what_a_crash_has_left_of_a_new_commit_log_is_no_part_of_the_next(disk: SimulatedDisk) -> None:
    """A frame might be whole in it, by chance or because the same was written again."""
    disk.open("/log/commits.new", create=True).pwrite(0, [b"x" * 5_000])
    journal = made(disk)
    assert len(content(disk)) == journal.end == journal.snapshot_end
    assert (journal.has_new(), disk.exists("/log/commits.new")) == (False, False)


@pytest.mark.parametrize("cut", [1, 3, _FRAME.size, _FRAME.size + 1])
def test_the_rest_of_a_crash_is_left_alone_until_somebody_writes(disk: SimulatedDisk, cut: int) -> None:
    writer = made(disk)
    append(writer, 1)
    end = writer.end
    append(writer, 2)
    disk.open(PATH).truncate(end + cut)
    reader = opened(disk)
    for locked in (False, True):
        assert reader.read(locked=locked) == ([NOTHING, DeleteTopic(1)] if not locked else [])
        assert (reader.end, reader.has_new()) == (end, True)
    reader.cut_tail()
    assert (len(content(disk)), reader.has_new()) == (end, False)
    append(reader, 3)
    assert opened(disk).read(locked=True) == [NOTHING, DeleteTopic(1), DeleteTopic(3)]


def test_damage_before_a_frame_that_follows_it_is_no_crash(disk: SimulatedDisk) -> None:
    writer = made(disk)
    at = writer.end
    append(writer, 1)
    append(writer, 2)
    file = disk.open(PATH)
    file.pwrite(at + _FRAME.size, [b"\xff"])
    reader = opened(disk)
    assert reader.read(locked=False) == [NOTHING], "it may be at work"
    with pytest.raises(LogCorrupt, match=f"the frame at byte {at} is damaged, though later ones are whole"):
        reader.read(locked=True)


def test_a_frame_that_is_no_record_is_damage(disk: SimulatedDisk) -> None:
    writer = made(disk)
    payload = b"\xc1"
    crc = zlib.crc32(payload, writer._crc)
    disk.open(PATH).pwrite(writer.end, [_FRAME.pack(1, crc), payload])
    with pytest.raises(LogCorrupt, match=f"no record at byte {writer.end}"):
        writer.read(locked=False)


def test_a_record_that_its_writer_has_taken_back_was_read_by_others(disk: SimulatedDisk) -> None:
    """Its fsync failed: what this process knows is not what the log says."""
    writer = made(disk)
    end, crc = writer.end, writer._crc
    reader = opened(disk)
    append(writer, 1)
    assert reader.read(locked=True) == [NOTHING, DeleteTopic(1)]
    assert reader.read(locked=True) == []
    disk.open(PATH).truncate(end)
    with pytest.raises(LogCorrupt, match="a record that was read from it has been taken back"):
        reader.read(locked=True)
    writer.end, writer._crc = end, crc
    append(writer, 2)
    assert reader.read(locked=False) == [], "of the same length"
    with pytest.raises(LogCorrupt, match="taken back"):
        reader.read(locked=True)
    assert writer.read(locked=True) == []
    fresh = made(disk)
    assert fresh.read(locked=True) == [], "it has read nothing"


# The mark of how far it is durable


def test_a_mark_says_how_far_a_generation_was_committed(disk: SimulatedDisk) -> None:
    writer = made(disk)
    before = writer.mark.encode()
    append(writer, 1)
    after = writer.mark.encode()
    generation, end, crc, own = after.split()
    assert (int(generation), int(end), int(crc)) == (3, writer.end, writer._crc)
    assert int(own) == zlib.crc32(b" ".join([generation, end, crc]))
    for mark in (before, after, b"", b"1 2 3", b"\xff", after[:-1], b"9" + after[1:], after + b" 7"):
        writer.check_mark(mark)
    reader = opened(disk)
    disk.open(PATH).truncate(writer.end - 1)
    reader.read(locked=True)
    reader.check_mark(before)
    with pytest.raises(LogCorrupt, match=f"is damaged: it was committed, up to byte {writer.end}"):
        reader.check_mark(after)
    reader.generation = 4
    reader.check_mark(after)


# Frames in doubt


@pytest.mark.parametrize("left", ["nothing", "a part", "all", "another frame"])
def test_a_frame_in_doubt_is_there_or_never_was(disk: SimulatedDisk, left: str) -> None:
    journal = made(disk)
    append(journal, 1)
    journal.resolve()
    other = opened(disk)
    other.read(locked=True)
    disk.error_at, disk.error_for = disk.calls + 2, 2  # the fsync of the frame, and what takes it back
    with pytest.raises(InDoubt, match="could be neither written nor removed"):
        journal.append(DeleteTopic(2))
    assert journal.is_in_doubt
    end = journal.end
    if left != "all":
        disk.open(PATH).truncate(end + 5 * (left == "a part"))
    if left == "another frame":
        append(other, 3)
    journal.resolve()
    assert not journal.is_in_doubt
    found = {"all": [DeleteTopic(2)], "another frame": [DeleteTopic(3)]}.get(left, [])
    assert journal.read(locked=True) == found
    assert len(content(disk)) == journal.end
    if left != "another frame":
        assert disk.after_power_loss("none").open(PATH).size() == journal.end, "and it is durable"
    append(journal, 4)
    assert opened(disk).read(locked=True) == [NOTHING, DeleteTopic(1), *found, DeleteTopic(4)]


def test_a_frame_that_is_not_written_is_taken_back(disk: SimulatedDisk) -> None:
    journal = made(disk)
    end = journal.end
    disk.full_at = disk.writes + 1
    with pytest.raises(OSError, match="No space"):
        journal.append(DeleteTopic(1))
    assert (len(content(disk)), journal.is_in_doubt) == (end, False)
    append(journal, 2)
    assert opened(disk).read(locked=True) == [NOTHING, DeleteTopic(2)]
    assert len(encode(NOTHING)) == journal.snapshot_end - _HEADER.size - _FRAME.size

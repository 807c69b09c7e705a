"""The commit log: framed records in a file per generation. A transaction is committed when its frame is durable.

A frame is (length, crc32, payload); each crc continues the one before, so that bytes left over from an earlier life of
the file are never taken for frames. Every generation starts with a snapshot, which makes older ones superfluous.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

import msgspec

from flowql.runtime.errors import LogCorrupt, LogError
from flowql.runtime.log.embedded.records import Record, Snapshot, decode, encode
from flowql.runtime.log.files import File, Files

MAGIC = b"FLOWQLOG"
# 1 had no checksums of batches and no `skip`, 2 no links. They are read, and the next generation is written as 3.
FORMAT_VERSION = 3
_READ = (1, 2, FORMAT_VERSION)
_HEADER = struct.Struct("<8sIIQ")  # magic, format version, zero, generation
_FRAME = struct.Struct("<II")  # payload length, crc32
_MARK_WIDTH = 64
_NAME = re.compile(r"commits-(\d{12})\.log")


class InDoubt(LogError):
    """It is not known whether a frame is durable. `Journal.resolve` decides it."""

    is_outcome_unknown = True


@dataclass(frozen=True, slots=True)
class Written:
    """A frame that is durable but not yet part of the reader's position."""

    end: int
    crc: int


def check_none_lost(files: Files, directory: str) -> None:
    """LogCorrupt if a directory without a commit log has topics: they are never made before it, and the first append would remove them."""
    if files.listdir(f"{directory}/topics"):
        raise LogCorrupt(
            f"{directory} has topics, but no commit log ({journal_path(directory, 0).rpartition('/')[2]}, or one with a higher number): "
            "it was removed, or not copied with them; put it back, or restore a backup (flowql restore)"
        )


class Journal:
    """One generation, read up to `end`. The caller serialises all calls; writing also needs the log's append lock."""

    def __init__(self, files: Files, directory: str, generation: int, file: File) -> None:
        self._files, self._directory, self._file = files, directory, file
        self.generation = generation
        self.end = _HEADER.size
        self.snapshot_end = 0
        self._crc = 0
        self._last_frame = 0  # where the last frame read begins; 0: none yet
        self._in_doubt: bytes | None = None  # the frame at `end`, while it may or may not be durable

    @classmethod
    def create(cls, files: Files, directory: str, generation: int, snapshot: Snapshot) -> Journal:
        """Write a generation that starts with a snapshot, make it durable, then give it its name."""
        path, temporary = journal_path(directory, generation), f"{directory}/commits.new"
        header = _HEADER.pack(MAGIC, FORMAT_VERSION, 0, generation)
        payload = encode(snapshot)
        crc = zlib.crc32(payload, zlib.crc32(header))
        file = files.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(0, [header, _FRAME.pack(len(payload), crc), payload])
            file.fsync()
            files.rename(temporary, path)
            files.fsync_dir(directory)
        except OSError:
            file.close()
            raise
        journal = cls(files, directory, generation, file)
        journal.end = journal.snapshot_end = _HEADER.size + _FRAME.size + len(payload)
        journal._crc = crc
        return journal

    @classmethod
    def open(cls, files: Files, directory: str) -> Journal | None:
        """The newest generation, nothing read yet; None if there is none."""
        while generations := find_generations(files, directory):
            path = journal_path(directory, generations[-1])
            try:
                file = files.open(path, write=True)
            except FileNotFoundError:
                continue  # replaced by a newer one between listing and opening
            journal = cls(files, directory, generations[-1], file)
            try:
                journal._read_header()
            except BaseException:
                file.close()
                raise
            return journal
        return None

    def _read_header(self) -> None:
        header, path = self._file.pread(0, _HEADER.size), self._file.path
        if len(header) < _HEADER.size or header[:8] != MAGIC:
            raise LogCorrupt(f"{path} does not begin as a commit log does")
        _, version, _, generation = _HEADER.unpack(header)
        if version not in _READ or generation != self.generation:
            raise LogCorrupt(
                f"{path} has format version {version} and generation {generation}; "
                f"this program reads versions up to {FORMAT_VERSION} and expected generation {self.generation}"
            )
        self._crc = zlib.crc32(header)

    @property
    def mark(self) -> str:
        """How far this generation is durable, for `check_mark`."""
        text = f"{self.generation} {self.end} {self._crc}"
        return f"{text} {zlib.crc32(text.encode())}".ljust(_MARK_WIDTH)  # so that the file never gets shorter

    def check_mark(self, mark: bytes) -> None:
        """LogCorrupt if a frame that was durable once is not whole any more: it is the last one, or a crash would explain it."""
        words = mark.decode(errors="replace").split()
        if len(words) != 4 or str(zlib.crc32(" ".join(words[:3]).encode())) != words[3]:
            return
        if int(words[0]) == self.generation and int(words[1]) > self.end:
            raise LogCorrupt(
                f"{self._file.path}: the frame at byte {self.end} is damaged: it was committed, up to byte {words[1]}"
            )

    def is_current(self) -> bool:
        return self._file.linked_size() is not None and not self._files.exists(
            journal_path(self._directory, self.generation + 1)
        )

    def has_new(self) -> bool:
        """Something was written after `end`, or this generation was replaced. One cheap system call."""
        size = self._file.linked_size()
        return size is None or size > self.end

    def read(self, *, locked: bool) -> list[Record]:
        """Whole frames after `end`; moves `end`. locked: the caller has the append lock, so that a frame that is not
        whole is the remainder of a crash; raises LogCorrupt if whole frames follow it.
        """
        if locked:
            self._check_not_rolled_back()
        size = self._file.size()
        data = memoryview(self._file.pread(self.end, size - self.end) if size > self.end else b"")
        records: list[Record] = []
        at = 0
        while (frame := _frame(data, at, self._crc)) is not None:
            stop, crc = frame
            try:
                record = decode(data[at + _FRAME.size : stop])
            except msgspec.DecodeError as e:
                raise LogCorrupt(f"{self._file.path}: no record at byte {self.end + at}: {e}") from e
            records.append(record)
            if isinstance(record, Snapshot):
                self.snapshot_end = self.end + stop
            self._last_frame = self.end + at
            self._crc, at = crc, stop
        if locked and _frame_after_bad(data, at):
            raise LogCorrupt(
                f"{self._file.path}: the frame at byte {self.end + at} is damaged, though later ones are whole"
            )
        self.end += at
        return records

    def cut_tail(self) -> None:
        """Remove what a crash left after `end`."""
        if self._file.size() > self.end:
            self._file.truncate(self.end)

    def fsync(self) -> None:
        self._file.fsync()

    def append(self, record: Record) -> Written:
        """Make a record durable at `end`: the commit point. `advance` makes it part of this journal's position.

        An OSError means that the frame is not there (it was taken back); any error while taking it back leaves the
        outcome unknown until `resolve` and comes as InDoubt.
        """
        assert not self.is_in_doubt, "the frame before is resolved first"
        payload = encode(record)
        crc = zlib.crc32(payload, self._crc)
        frame = _FRAME.pack(len(payload), crc)
        try:
            self._file.pwrite(self.end, [frame, payload])
            self._file.fsync()
        except OSError:
            try:
                self._cut()
            except OSError as e:
                self._in_doubt = frame + payload
                raise InDoubt(f"{self._file.path}: a frame could be neither written nor removed: {e}") from e
            raise
        return Written(self.end + _FRAME.size + len(payload), crc)

    @property
    def is_in_doubt(self) -> bool:
        return self._in_doubt is not None

    def resolve(self) -> None:
        """Decides a frame in doubt: one that is whole becomes durable, any other is removed. Needs the append lock.

        Whole, others may have read it meanwhile. It is written once more, as a system may forget what a failed fsync should have
        written, and the next one succeeds. What others have written in its place is left as it is.
        """
        frame = self._in_doubt
        if frame is None:
            return
        data = self._file.pread(self.end, max(0, self._file.size() - self.end))
        if data.startswith(frame):
            self._file.pwrite(self.end, [frame])
            self._file.fsync()
        elif _frame(memoryview(data), 0, self._crc) is None:
            self._cut()
        self._in_doubt = None

    def advance(self, written: Written) -> None:
        self._last_frame = self.end
        self.end, self._crc = written.end, written.crc

    def remove_older(self) -> None:
        """Unlink generations before this one, and a half-written next one."""
        for generation in find_generations(self._files, self._directory):
            if generation < self.generation:
                self._files.unlink(journal_path(self._directory, generation))

    def close(self) -> None:
        self._file.close()

    def _check_not_rolled_back(self) -> None:
        """A frame seen by this process may have been taken back by its writer, whose fsync failed."""
        if self._last_frame:
            frame = self._file.pread(self._last_frame, _FRAME.size)
            if len(frame) < _FRAME.size or _FRAME.unpack(frame)[1] != self._crc:
                raise LogCorrupt(f"{self._file.path}: a record that was read from it has been taken back")

    def _cut(self) -> None:
        self._file.truncate(self.end)
        self._file.fsync()


def find_generations(files: Files, directory: str) -> list[int]:
    return sorted(int(m[1]) for name in files.listdir(directory) if (m := _NAME.fullmatch(name)))


def journal_path(directory: str, generation: int) -> str:
    return f"{directory}/commits-{generation:012}.log"


def _frame(data: memoryview, at: int, crc: int) -> tuple[int, int] | None:
    """(end, crc) of the whole frame at `at`, or None."""
    if len(data) - at < _FRAME.size:
        return None
    length, expected = _FRAME.unpack_from(data, at)
    stop = at + _FRAME.size + length
    if length == 0 or stop > len(data) or zlib.crc32(data[at + _FRAME.size : stop], crc) != expected:
        return None
    return stop, expected


def _frame_after_bad(data: memoryview, at: int) -> bool:
    """Whether the frame at `at`, which is not whole, is followed by one that continues it."""
    if len(data) - at < _FRAME.size:
        return False
    length, crc = _FRAME.unpack_from(data, at)
    return _frame(data, at + _FRAME.size + length, crc) is not None

"""Segment files: Arrow IPC streams. How batches become bytes, and how bytes become batches without a copy.

A segment is the schema message and then record-batch messages, each aligned to eight bytes: pyarrow reads it as a
stream. Bodies are not compressed (figures in FORMAT.md), so a batch read is a view of the mapped file. Each message carries a
checksum, which is verified before the first batch made of its bytes is handed out.
"""

from __future__ import annotations

import errno
import resource
import struct
import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from flowql.runtime.errors import BatchDamaged, LogCorrupt
from flowql.runtime.log.base import RECORD_SCHEMA
from flowql.runtime.log.embedded.state import Segment, Stored, after_ranges
from flowql.runtime.log.files import PAGE, File, Files

BufferLike: TypeAlias = "pa.Buffer | bytes"
_PREFIX = struct.Struct("<II")  # continuation marker, size of the metadata
# CRC-32 of zlib, as in the commit log and the redo files. The library `isal` computes it ten times as fast as zlib.
_MAGIC = b"CRC1"
_SEAL_BYTES = 8
_COPIED_BYTES = 1 << 16


def sealed(message: Sequence[BufferLike]) -> list[BufferLike]:
    """A record-batch message in pieces, with its checksum: of all its bytes but the four that hold it.

    It stands at the end of the metadata of an Arrow message, where any reader of Arrow expects padding.
    """
    head, body = b"", 0
    while len(head) < _PREFIX.size or len(head) < _PREFIX.size + _PREFIX.unpack_from(head)[1]:
        head += bytes(message[body])
        body += 1
    marker, size = _PREFIX.unpack_from(head)
    assert len(head) == _PREFIX.size + size, "the metadata ends with a piece"
    head = _PREFIX.pack(marker, size + _SEAL_BYTES) + head[_PREFIX.size :] + _MAGIC
    crc = crc32(head)
    for piece in message[body:]:
        crc = crc32(piece, crc)
    return [head + struct.pack("<I", crc), *message[body:]]


def damage(message: pa.Buffer, *, must_be_sealed: bool) -> str | None:
    """Describes the damage to the bytes of a message. Messages that are whole give None, as do those without a checksum."""
    view = memoryview(message)
    size = _PREFIX.unpack_from(view)[1] if len(view) >= _PREFIX.size else 0
    end = _PREFIX.size + size
    if not _SEAL_BYTES <= size <= len(view) - _PREFIX.size or view[end - _SEAL_BYTES : end - 4] != _MAGIC:
        return "its checksum is missing" if must_be_sealed else None
    (expected,) = struct.unpack_from("<I", view, end - 4)
    found = crc32(view[end:], crc32(view[: end - 4]))
    return None if found == expected else "its checksum does not match"


MISSING = "the file is missing"
_WAYS = "; restore a backup (flowql restore), or continue without its records:  flowql log verify --skip-damaged"
OLD_HEADER: pa.Buffer = RECORD_SCHEMA.serialize()  # segments from before there were checksums
HEADER: pa.Buffer = RECORD_SCHEMA.with_metadata({"flowql.checksum": "crc32"}).serialize()
# Batches are mapped through windows of this size: large enough that many small batches share one, small enough that
# unused windows give their pages back soon. At most this many are kept open without use.
WINDOW_BYTES = 8 << 20
WINDOWS_KEPT = 16
VERIFIED_KEPT = 65_536
# Segments kept open for writing: a share of what the system lets a process open.
_APPENDERS_KEPT = max(16, min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
_BLOCK = struct.Struct("<II")  # entries, crc32 of them
_ENTRY_BYTES = 16


def numbered(base_offset: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """Records (PRODUCE_SCHEMA) with their offsets (RECORD_SCHEMA)."""
    offsets = pa.array(np.arange(base_offset, base_offset + records.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([offsets, *records.columns], schema=RECORD_SCHEMA)


def _shifted(batch: pa.RecordBatch, by: int) -> pa.RecordBatch:
    """A batch (RECORD_SCHEMA) with higher offsets."""
    if not by:
        return batch
    return pa.RecordBatch.from_arrays([pc.add(batch.column(0), by), *batch.columns[1:]], schema=RECORD_SCHEMA)


class _CapturedBuffers:
    """A file that keeps what Arrow's stream writer writes to it, but for the schema, as the pieces in which it comes."""

    closed = False

    def __init__(self) -> None:
        self.taken: list[BufferLike] = []
        self._schema_bytes = OLD_HEADER.size

    def write(self, piece: BufferLike) -> None:
        if self._schema_bytes:
            self._schema_bytes -= len(piece)
            assert self._schema_bytes >= 0, "the schema message is not what segments begin with"
        else:
            self.taken.append(piece)


def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[list[BufferLike]]:
    """Batches (RECORD_SCHEMA) as record-batch messages, each in pieces: columns are written from where they are, without a copy.

    Small batches are copied, which takes half as long as one call of Python for each piece.
    """
    pieces, writer = _CapturedBuffers(), None
    for batch in batches:
        tight = pa.RecordBatch.from_arrays([*batch.columns[:-1], _tight(batch.columns[-1])], schema=RECORD_SCHEMA)
        if tight.nbytes < _COPIED_BYTES:
            whole = tight.serialize()
            end = _PREFIX.size + _PREFIX.unpack_from(whole)[1]
            yield sealed([whole.slice(0, end), whole.slice(end)])
            continue
        if writer is None:
            writer = pa.ipc.new_stream(pieces, RECORD_SCHEMA)
        writer.write_batch(tight)
        message, pieces.taken = pieces.taken, []
        yield sealed(message)


def _tight(column: pa.Array) -> pa.Array:
    """Headers without what a slice does not show of them: of some slices the IPC writer stores those of all rows."""
    if column.null_count == len(column):
        return _no_lists(len(column), column.type)
    if column.nbytes * 2 < sum(b.size for b in column.buffers() if b is not None):
        return pa.concat_arrays([column, column.slice(0, 0)])
    return column


@lru_cache(maxsize=1_024)
def _no_lists(n: int, kind: pa.DataType) -> pa.Array:
    """N nulls. `pa.nulls` makes as many elements of lists, too, which takes three times the bytes."""
    zeros = [pa.py_buffer(bytes((n + 7) // 8)), pa.py_buffer(bytes(4 * (n + 1)))]
    return pa.Array.from_buffers(kind, n, zeros, n, 0, [pa.nulls(0, kind.value_type)])


class SegmentFiles:
    """Reads and writes segment files and their indexes. Reading is for any thread; each file has one writer at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()  # guards _windows
        # Each with how long the file was seen to be: what a window shows behind the end of its file must not be touched.
        self._windows: OrderedDict[tuple[str, int], tuple[pa.Buffer, int]] = OrderedDict()
        self._headers: dict[str, int] = {}  # path -> size of the header of a segment that has been looked at
        # Batches whose bytes have been verified, the newest last: one is read in pieces, and by many.
        self._verified: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._handles = threading.Lock()  # guards the two fields below
        self._appenders: OrderedDict[str, File] = OrderedDict()
        self._in_use: set[str] = set()  # written or synced at this moment: not to be closed

    def read(self, stored: Stored) -> pa.RecordBatch:
        """A stored batch as a view of the mapped file. FileNotFoundError if the segment is gone."""
        window, at = self._window(stored.path, stored.start, stored.stop)
        message = window.slice(at, stored.stop - stored.start)
        self._verify(stored.path, stored.start, message)
        try:
            batch = pa.ipc.read_record_batch(message, RECORD_SCHEMA)
        except (pa.ArrowInvalid, OSError) as e:
            raise BatchDamaged(stored.path, stored.start, f"no Arrow batch: {e}") from e
        if batch.num_rows == 0 or batch.column(0)[0].as_py() != stored.base - stored.shift:
            raise BatchDamaged(stored.path, stored.start, f"it does not begin with offset {stored.base - stored.shift}")
        return _shifted(batch, stored.shift)

    def batches(self, segment: Segment, skipped: Sequence[tuple[int, int]] = ()) -> Iterator[pa.RecordBatch]:
        """All of a segment, in order, as views of the mapped file. FileNotFoundError if it is gone, BatchDamaged.

        skipped: ranges of offsets that are left out, each of whole batches.
        """
        if after_ranges(skipped, segment.base) >= segment.end_offset:
            return
        header = self.header_size(segment.path)
        file = self._files.open(segment.path)
        try:
            mapped = file.map(0, min(segment.length, file.size()))
        finally:
            file.close()
        bases, starts = self._places(segment)
        for i, start in enumerate(starts):
            if any(first <= bases[i] < end for first, end in skipped):
                continue
            stop = starts[i + 1] if i + 1 < len(starts) else segment.length
            assert start >= header, "a batch begins behind the header"
            if stop > mapped.size:
                raise BatchDamaged(segment.path, start, ends_early(mapped.size))
            message = mapped.slice(start, stop - start)
            self._verify(segment.path, start, message)
            try:
                yield _shifted(pa.ipc.read_record_batch(message, RECORD_SCHEMA), segment.shift or 0)
            except (pa.ArrowInvalid, OSError) as e:
                raise BatchDamaged(segment.path, start, f"no Arrow batch: {e}") from e

    def _places(self, segment: Segment) -> tuple[array[int], array[int]]:
        """Bases and starts of all batches, without a change to what the segment knows."""
        if segment.is_loaded:
            return segment.bases, segment.starts
        later, places = segment.starts, segment.bases
        limit = later[0] if later else segment.length
        bases, starts = self._read_index(segment, limit)
        self._scan(segment, bases, starts, limit)
        return bases + places, starts + later

    def _verify(self, path: str, start: int, message: pa.Buffer) -> None:
        key = (path, start)
        with self._lock:
            if key in self._verified:
                return
        must = self.header_size(path) != OLD_HEADER.size
        if (problem := damage(message, must_be_sealed=must)) is not None:
            raise BatchDamaged(path, start, problem)
        with self._lock:
            self._verified[key] = None
            while len(self._verified) > VERIFIED_KEPT:
                self._verified.popitem(last=False)

    def forget_verified(self) -> None:
        """Makes later reads verify checksums again."""
        with self._lock:
            self._verified.clear()
            self._headers.clear()

    def header_size(self, path: str) -> int:
        """Where the first batch of a segment begins; of an old segment it says that its first batches have no checksums."""
        known = self._headers.get(path)
        if known is None:
            file = self._files.open(path)
            try:
                data = file.pread(0, max(HEADER.size, OLD_HEADER.size))
            finally:
                file.close()
            for header in (HEADER, OLD_HEADER):
                if data[: header.size] == header.to_pybytes():
                    known = self._headers[path] = header.size
                    break
            else:
                raise BatchDamaged(path, 0, "the file does not begin as a segment does")
        return known

    def load_index(self, segment: Segment) -> None:
        """Bring the places of all batches of a segment into memory: from its index file, where that is not whole (it
        is written without fsync) from the segment itself.
        """
        limit = segment.starts[0] if segment.starts else segment.length
        bases, starts = self._read_index(segment, limit)
        self._scan(segment, bases, starts, limit)
        segment.bases, segment.starts = bases + segment.bases, starts + segment.starts
        segment.is_loaded = True

    def write_index(self, segment: Segment) -> None:
        """Add to the index file what it lacks; the next snapshot says how long it is."""
        bases, starts = segment.not_indexed()
        if not bases:
            return
        if not segment.is_indexed:
            earlier = self._never_indexed(segment)
            if earlier is None:  # readers find its batches in the segment itself
                return
            bases, starts = earlier[0] + bases, earlier[1] + starts
        block = np.stack([np.asarray(bases, "<i8"), np.asarray(starts, "<i8")], axis=1).tobytes()
        file = self._files.open(index_path(segment.path), create=True)
        try:
            file.pwrite(segment.index_bytes, [_BLOCK.pack(len(bases), zlib.crc32(block)), block])
        finally:
            file.close()
        segment.index_bytes += _BLOCK.size + len(block)
        segment.indexed_to, segment.is_indexed = segment.length, True

    def _never_indexed(self, segment: Segment) -> tuple[array[int], array[int]] | None:
        """The batches before `indexed_to` that the index file lacks; None if a batch before that is damaged.

        Without them the index would have a hole, in which readers see nothing.
        """
        bases, starts = self._read_index(segment, segment.indexed_to)
        count = len(starts)
        if not self._scan(segment, bases, starts, segment.indexed_to):
            return None
        return bases[count:], starts[count:]

    def link(self, segment: Segment, path: str) -> None:
        """Give a segment another name. What has that name is the remainder of a transaction that failed."""
        self.remove(path)
        self._files.link(segment.path, path)

    def appender(self, path: str, committed: int) -> tuple[File, bool]:
        """The segment for writing, and whether its name may not be durable yet. Bytes after `committed` are removed.

        Until `written` is called it stays open.
        """
        fresh = committed == 0  # also one that an earlier attempt has made, which failed
        if fresh and self._files.exists(path):  # never written to: it may be a link to a segment of another partition
            self.remove(path)
        with self._handles:
            file = self._appenders.get(path)
            if file is None:
                file = self._files.open(path, create=fresh, write=True)
                self._close_some()
                self._appenders[path] = file
            self._appenders.move_to_end(path)
            self._in_use.add(path)
        size = file.size()
        if size < committed:
            raise LogCorrupt(f"{path} has {size} bytes, but {committed} are committed")
        if size > committed:  # left by a crash or an aborted commit
            file.truncate(committed)
        return file, fresh

    def _close_some(self) -> None:
        for path in [p for p in self._appenders if p not in self._in_use]:
            if len(self._appenders) < _APPENDERS_KEPT:
                return
            file = self._appenders.pop(path)
            file.fsync()  # it may have been written by a transaction that is not durable yet
            file.close()

    def written(self, path: str) -> None:
        """For now nothing more is written to a segment."""
        with self._handles:
            self._in_use.discard(path)

    def fsync(self, paths: Sequence[str]) -> None:
        """Makes everything that was written to these segments durable."""
        with self._handles:
            files = {p: self._appenders[p] for p in paths if p in self._appenders}
            self._in_use |= files.keys()
        try:
            self._files.fsync_all(list(files.values()))
        finally:
            with self._handles:
                self._in_use -= files.keys()

    def check_length(self, segment: Segment) -> None:
        """LogCorrupt if a committed byte is missing."""
        try:
            file = self._files.open(segment.path)
        except FileNotFoundError as e:
            raise LogCorrupt(f"{segment.path} is missing, but {segment.length} bytes of it are committed{_WAYS}") from e
        size = file.size()
        file.close()
        if size < segment.length:
            raise LogCorrupt(f"{segment.path} has {size} bytes, but {segment.length} are committed{_WAYS}")

    def remove(self, path: str) -> None:
        """Unlink a segment and its index. Batches already read stay valid."""
        self.forget(path)
        with self._lock:
            for key in [k for k in self._windows if k[0] == path]:
                del self._windows[key]
            self._headers.pop(path, None)
        self._files.unlink(path)
        self._files.unlink(index_path(path))

    def forget(self, path: str) -> None:
        """Close the writing handle of a segment."""
        with self._handles:
            file = self._appenders.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for path in list(self._appenders):
            self.forget(path)
        with self._lock:
            self._windows.clear()

    def _window(self, path: str, start: int, stop: int) -> tuple[pa.Buffer, int]:
        """A mapped buffer with bytes [start, stop) of a file, and where in it `start` is."""
        first = start // WINDOW_BYTES * WINDOW_BYTES
        key = (path, first)
        with self._lock:
            window, size = self._windows.get(key, (None, 0))
            if window is not None and min(first + window.size, size) >= stop:
                self._windows.move_to_end(key)
                return window, start - first
        file = self._files.open(path)
        try:
            if (size := file.size()) < stop:
                raise BatchDamaged(path, start, ends_early(size))
            if stop - first > 2 * WINDOW_BYTES:  # one large batch: its own mapping, gone with its last reader
                own = start // PAGE * PAGE
                return file.map(own, stop - own), start - own
            if window is None or first + window.size < stop:
                window = file.map(first, max(stop - first, WINDOW_BYTES))
        finally:
            file.close()
        with self._lock:
            self._windows[key] = window, size
            while len(self._windows) > WINDOWS_KEPT:
                self._windows.popitem(last=False)
        return window, start - first

    def _read_index(self, segment: Segment, limit: int) -> tuple[array[int], array[int]]:
        bases, starts = array("q"), array("q")
        if not segment.index_bytes or not self._files.exists(index_path(segment.path)):
            return bases, starts
        file = self._files.open(index_path(segment.path))
        try:
            data = file.pread(0, segment.index_bytes)
        finally:
            file.close()
        at = 0
        while at + _BLOCK.size <= len(data):
            count, crc = _BLOCK.unpack_from(data, at)
            block = data[at + _BLOCK.size : at + _BLOCK.size + count * _ENTRY_BYTES]
            if count == 0 or len(block) < count * _ENTRY_BYTES or zlib.crc32(block) != crc:
                break
            entries = np.frombuffer(block, "<i8").reshape(-1, 2)
            entries = entries[entries[:, 1] < limit]
            bases.extend(entries[:, 0].tolist())
            starts.extend(entries[:, 1].tolist())
            at += _BLOCK.size + count * _ENTRY_BYTES
        if starts and starts[0] != self.header_size(segment.path):  # written after a restore, before this was known
            return array("q"), array("q")
        return bases, starts

    def _scan(self, segment: Segment, bases: array[int], starts: array[int], limit: int) -> bool:
        """Append the batches of bytes [end of the last one in `starts`, limit), read from the segment; whether all are whole."""
        # The last known batch is read again, because its end is not known. What cannot be read counts as one batch, with all behind it.
        header = self.header_size(segment.path)
        at = starts.pop() if starts else header
        base = bases.pop() if bases else segment.base
        wanted, limit = limit, min(limit, self._size(segment.path))
        window, shift = self._window(segment.path, at, limit) if limit > at else (pa.py_buffer(b""), 0)
        source = pa.BufferReader(window.slice(shift, max(0, limit - at)))
        reader = pa.ipc.MessageReader.open_stream(source)
        while at + source.tell() < limit:
            start = at + source.tell()
            try:
                message = reader.read_next_message()
                whole = window.slice(shift + start - at, at + source.tell() - start)
                self._verify(segment.path, start, whole)
                offsets = pa.ipc.read_record_batch(message, RECORD_SCHEMA).column(0)
                first, last = (offsets[i].as_py() + (segment.shift or 0) for i in (0, -1))
            except (BatchDamaged, StopIteration, pa.ArrowInvalid, OSError, IndexError):
                bases.append(base)
                starts.append(start)
                return False
            bases.append(first)
            starts.append(start)
            base = last + 1
        if limit < wanted:
            bases.append(base)
            starts.append(max(at, limit))
        return limit == wanted

    def _size(self, path: str) -> int:
        file = self._files.open(path)
        try:
            return file.size()
        finally:
            file.close()


def ends_early(size: int) -> str:
    """The damage of a segment that is shorter than its committed records."""
    return f"the file ends at byte {size}"


def index_path(segment_path: str) -> str:
    return segment_path.removesuffix(".arrows") + ".index"


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

"""Uploads files by what is new of them. Segments, indexes and redo files only grow, so a file that grows becomes pieces that follow each other.

Small pieces are merged as they become many: a new piece takes in the one before it if that is small and no larger. So a file has at most one piece for
each 4 MiB and about twenty more, and a byte is uploaded a few times at most.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flowql.runtime.backup.manifest import FileEntry, Manifest, Piece, piece_name
from flowql.runtime.errors import LogCorrupt
from flowql.runtime.remote.objects import Objects

PIECE_BYTES = 8 << 20  # in memory at once
MERGED_BYTES = 4 << 20  # a piece of so many bytes stays as it is


class Source(NamedTuple):
    """The first `size` bytes of a file here. path: in the data directory. grows: bytes that are there are never changed."""

    local: str
    path: str
    size: int
    grows: bool


@dataclass(slots=True)
class _Known:
    """Pieces of a file that are in the store. identity: of the file here that has these bytes; None if nobody has compared it."""

    pieces: list[Piece]
    identity: Hashable


class PieceUploads:
    """Tracks which bytes of one data directory the store has, and uploads the others. put: called with the name of each new object."""

    def __init__(
        self, objects: Objects, folder: str, term: int, put: Callable[[str], None] = lambda name: None
    ) -> None:
        self._objects, self._folder, self._put = objects, folder, put
        self.term = term
        self._known: dict[str, _Known] = {}
        self.bytes = self.requests = 0  # uploaded, since the start

    def learn(self, manifest: Manifest, *, same: Callable[[str], str | None] = lambda path: None) -> None:
        """The store has the pieces of a manifest. same: the file here that has the same bytes for certain, else they are compared."""
        for entry in manifest.files:
            local = same(entry.path)
            identity = None if local is None else _identity(local, grows=True)
            self._known[entry.path] = _Known(list(entry.pieces), identity)

    def waiting(self, sources: Sequence[Source]) -> int:
        """Bytes that are not in the store, as far as is known without reading the files."""
        return sum(max(0, s.size - self._covered(s)) for s in sources)

    def _covered(self, source: Source) -> int:
        known = self._known.get(source.path)
        return 0 if known is None or not known.pieces else known.pieces[-1].end

    def keep_only(self, paths: Sequence[str]) -> None:
        """Forgets files that are gone."""
        gone = self._known.keys() - set(paths)
        for path in gone:
            del self._known[path]

    def upload(self, source: Source) -> Iterator[int]:
        """Makes the store have a file; yields the bytes that each step has read. RemoteError, LogCorrupt."""
        known = self._known.setdefault(source.path, _Known([], None))
        identity = _identity(source.local, grows=source.grows)
        if known.identity != identity:
            yield from self._compare(source, known)
            known.identity = identity
        while known.pieces and known.pieces[-1].end > source.size:
            known.pieces.pop()
        begin = known.pieces[-1].end if known.pieces else 0
        if begin == source.size:
            return
        while known.pieces and known.pieces[-1].length <= min(source.size - begin, MERGED_BYTES - 1):
            begin = known.pieces.pop().start
        for start in range(begin, source.size, PIECE_BYTES):
            data = read_part(source.local, start, min(PIECE_BYTES, source.size - start))
            piece = Piece(start, len(data), hashlib.sha256(data).hexdigest(), self.term)
            name = piece_name(self._folder, source.path, piece)
            if self._objects.put_new(name, data):  # else an earlier attempt has written the same
                self._put(name)
            self.bytes, self.requests = self.bytes + len(data), self.requests + 1
            known.pieces.append(piece)
            yield len(data)

    def _compare(self, source: Source, known: _Known) -> Iterator[int]:
        """Keeps the pieces whose bytes the file here has."""
        there, known.pieces = known.pieces, []
        for piece in there:
            if piece.end > source.size:
                break
            data = read_part(source.local, piece.start, piece.length)
            if hashlib.sha256(data).hexdigest() != piece.sha256:
                break
            known.pieces.append(piece)
            yield len(data)

    def entry(self, source: Source) -> FileEntry:
        """After `upload`."""
        pieces = tuple(self._known[source.path].pieces)
        assert (pieces[-1].end if pieces else 0) == source.size, "the pieces are the whole file"
        return FileEntry(source.path, source.size, pieces)


def read_part(path: str, start: int, length: int) -> bytes:
    """LogCorrupt if the file has fewer bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, length, start)
    finally:
        os.close(fd)
    if len(data) < length:
        raise LogCorrupt(f"{path} has {start + len(data)} bytes, but {start + length} are committed")
    return data


def _identity(path: str, *, grows: bool) -> Hashable:
    """Differs where another file has taken the name, or its bytes have changed. A file that grows keeps its identity."""
    about = os.stat(path)
    return (about.st_dev, about.st_ino) if grows else (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)

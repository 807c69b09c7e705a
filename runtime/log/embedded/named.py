"""The files that the commit log names, and whether they hold what it says. Reads only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from flowql.runtime.errors import LogCorrupt, LogHeld
from flowql.runtime.log.embedded.journal import Journal, check_none_lost
from flowql.runtime.log.embedded.records import Redo
from flowql.runtime.log.embedded.segment import index_path
from flowql.runtime.log.embedded.state import LogState
from flowql.runtime.log.embedded.writer import read_redo, redo_path
from flowql.runtime.log.files import Files, Lock

HELD_S = 5.0  # a commit takes milliseconds; a process that is suspended in one holds the lock until it goes on


@dataclass(frozen=True, slots=True)
class Named:
    """A file and its first `length` bytes, which are committed.

    required: False for what may be missing or shorter: indexes, and segments of which readers leave out the end.
    """

    path: str
    length: int
    required: bool = True


def named_files(state: LogState, directory: str) -> Iterator[Named]:
    """Segments, their indexes and redo files."""
    for topic in state.topics.values():
        for partition in topic.partitions:
            for segment in partition.segments:
                yield Named(segment.path, segment.length, required=not partition.is_cut_off(segment))
                if segment.index_bytes:
                    yield Named(index_path(segment.path), segment.index_bytes, required=False)
    yield from _redo_files(state, directory)


def _redo_files(state: LogState, directory: str) -> Iterator[Named]:
    lengths = {state.redo_file: state.redo_end}
    for redo in (r for p in state.producers.values() for r in p.redo):
        lengths[redo.file] = max(lengths.get(redo.file, 0), redo.start + redo.length)
    for number, length in sorted(lengths.items()):
        if length:
            yield Named(redo_path(directory, number), length)


@contextlib.contextmanager
def held_still(files: Files, directory: str, *, still: bool = True) -> Iterator[LogState | None]:
    """The state in the commit log; no process commits to the log or removes its files within. None if the directory holds no log.

    still: False does not wait for a process that commits, which may be suspended, and reads what is there.

    Raises LogHeld if another process holds the append lock for HELD_S. Raises LogCorrupt if a record is damaged, or the commit log is missing or ends before what was committed. An incomplete last record, which a crash leaves, stays as it is.
    """
    path = f"{directory}/append.lock"
    lock = _append_lock(files, path) if still and files.exists(path) else None
    try:
        journal = Journal.open(files, directory)
        if journal is None:
            check_none_lost(files, directory)
            yield None
            return
        try:
            state = LogState(f"{directory}/topics")
            for record in journal.read(locked=lock is not None):
                state.apply(record)
            if lock is not None:
                journal.check_mark(_mark(files, path))
        finally:
            journal.close()
        yield state
    finally:
        if lock is not None:
            lock.release()


def _append_lock(files: Files, path: str) -> Lock:
    lock = files.lock(path, wait=True, within_s=HELD_S)
    if lock is None:
        raise LogHeld(path, files.holder(path), HELD_S)
    return lock


def _mark(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(0, 200)
    finally:
        file.close()


def damages(files: Files, state: LogState, directory: str) -> Iterator[str]:
    """A sentence for each file that is missing or lacks committed bytes."""
    for named in named_files(state, directory):
        if not named.required:
            continue
        try:
            file = files.open(named.path)
        except FileNotFoundError:
            yield f"{named.path} is missing, but {named.length} bytes of it are committed"
            continue
        size = file.size()
        file.close()
        if size < named.length:
            yield f"{named.path} has {size} bytes, but {named.length} are committed"


def damaged_redo(files: Files, directory: str, wanted: list[Redo]) -> Iterator[str]:
    """A sentence for each payload that is not what was written."""
    for redo in wanted:
        try:
            read_redo(files, directory, redo)
        except LogCorrupt as error:
            yield str(error)

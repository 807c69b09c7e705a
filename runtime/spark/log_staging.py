"""Staged files: the results of one Spark task, between the worker that made them and the commit that appends them. No pyspark.

A file holds Arrow record-batch messages one after the other, aligned, without headers; what and where they are travels in
the `Staged` that Spark carries from worker to commit. The commit maps the file, so no record passes through Java or is copied
before it is written to the log. Files are not fsynced: without a commit in the log Spark computes the epoch again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from flowql.runtime.log.base import PRODUCE_SCHEMA
from flowql.runtime.log.transaction import conform
from flowql.runtime.spark.folders import HadoopPath
from flowql.runtime.spark.log_append import EmittedRecords, split

_SUFFIX = ".arrow"


class Entry(NamedTuple):
    """Where a piece lies in its file."""

    kind: str
    topic: str
    partition: int
    source: int
    seq: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Staged:
    """One task's staged results: a file (none if there are no records) and its table of contents."""

    path: str | None
    entries: tuple[Entry, ...]
    notes: tuple[Mapping[str, Any], ...]


class Staging(NamedTuple):
    """A folder that the driver reads, and workers write. at: an address that workers write instead, as they do not see the folder."""

    folder: Path
    at: HadoopPath | None = None

    def at_of(self, query: str) -> HadoopPath | None:
        return None if self.at is None else self.at / quote(query, safe="")

    def clear(self, query: str) -> None:
        """Removes what a crash left. Call before the query starts."""
        shutil.rmtree(staging_of(self.folder, query), ignore_errors=True)
        if (there := self.at_of(query)) is not None:
            there.remove()


def staging_of(directory: Path, query: str) -> Path:
    """Where a query's staged files are: a folder of its own, since all of it is swept after a commit."""
    return directory / quote(query, safe="")


def stage(directory: Path, query: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Write the EMITTED rows of one task. In a worker."""
    path, opened = _new_file(staging_of(directory, query))
    entries: list[Entry] = []
    notes: list[Mapping[str, Any]] = []
    at = 0
    with opened as file:
        for batch in batches:
            pieces, found = split([batch])
            notes += found
            for p in pieces:
                message = conform(p.records).serialize()
                file.write(message)
                entries.append(Entry(p.kind, p.topic, p.partition, p.source, p.seq, at, message.size))
                at += message.size
    if not entries:
        path.unlink()
    return Staged(str(path) if entries else None, tuple(entries), tuple(notes))


def _new_file(folder: Path) -> tuple[Path, BinaryIO]:
    """A file that no other worker, living or dead, has made."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in count():
        path = folder / f"{os.getpid()}-{n}{_SUFFIX}"
        with suppress(FileExistsError):
            return path, path.open("xb")
    raise AssertionError("unreachable")


def pieces_of(staged: Iterable[Staged]) -> Iterator[EmittedRecords]:
    """The records of staged files, as views of the mapped files."""
    for one in staged:
        if one.path is None:
            continue
        with pa.memory_map(one.path) as file:
            data = file.read_buffer()
        for e in one.entries:
            records = pa.ipc.read_record_batch(data.slice(e.start, e.length), PRODUCE_SCHEMA)
            yield EmittedRecords(e.kind, e.topic, e.partition, e.source, e.seq, records)


def sweep(directory: Path, query: str) -> None:
    """Remove an epoch's files after its commit, and those of failed attempts: nothing else writes for this query now.

    A task that is still dying may leave one more; it goes with the next commit or start.
    """
    for path in staging_of(directory, query).glob(f"*{_SUFFIX}"):
        path.unlink(missing_ok=True)

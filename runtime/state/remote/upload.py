"""Uploads one checkpoint of a task: its runs as far as they are not there yet, rows that are in none, and the manifest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from flowql.runtime.remote.objects import Objects, ObjectWriter
from flowql.runtime.state.layout import MARKER, StoreEntry, TaskRecord, decode_number
from flowql.runtime.state.positions import position_from_record
from flowql.runtime.state.remote.manifest import (
    INLINE_BYTES,
    Manifest,
    Rows,
    RunObject,
    StoreSection,
    encode_manifest,
    encode_rows,
    manifest_name,
    newest_manifests,
    place_of,
    read_manifest,
    rows_object_name,
    run_object_name,
    take_term,
)
from flowql.runtime.state.remote.pace import Pace, Walk, awaited
from flowql.runtime.state.runs.objects import ObjectTail
from flowql.runtime.state.runs.reader import RunsReader
from flowql.runtime.state.runs.run import Run

PART_BLOCKS = 32  # about 256 KB at a time
WHOLE_BYTES = 4 << 20  # an object below this is put at once

RunIdentity = tuple[str, int, bytes, int, int]
"""Store, partition, name of the run, rows and checksum: what says that two runs are the same."""


@dataclass(slots=True)
class TaskUploads:
    """The state of uploads of a task that is owned here. term: 0 until it is taken; number: of the last manifest of it.

    known: objects of runs, of this and of former terms. rows: by store, the last rows object and the version of the rows in it.
    waiting_bytes: of runs that are still to be uploaded. applied: the last commit here when the newest manifest was made.
    """

    folder: str
    term: int = 0
    number: int = 0
    known: dict[RunIdentity, RunObject] = field(default_factory=dict)
    rows: dict[tuple[str, int], tuple[int, StoreSection]] = field(default_factory=dict)
    newest: Manifest | None = None
    waiting_bytes: int = 0
    applied: int = 0

    def forget(self, objects: Collection[str]) -> None:
        """These are deleted: no manifest has named them for long, and none must."""
        gone = set(objects)
        self.known = {identity: run for identity, run in self.known.items() if run.name not in gone}
        self.rows = {
            place: of for place, of in self.rows.items() if not (isinstance(of[1].rows, str) and of[1].rows in gone)
        }


class PartsUpload:
    """One object: put at once, or in parts if `write` was called."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects, self._name = objects, name
        self._writer: ObjectWriter | None = None
        self._last: Future[None] | None = None  # a part on its way

    def write(self, data: bytes) -> Walk[None]:
        """RemoteError."""
        if self._writer is None:
            self._writer = yield from awaited(self._objects.submit(self._objects.writer, self._name))
        self._last = self._objects.submit(self._writer.write, data)
        yield from awaited(self._last)

    def end(self, data: bytes) -> Walk[None]:
        """With the last part. RemoteError."""
        if self._writer is None:
            yield from awaited(self._objects.submit(self._objects.put_new, self._name, data))
            return
        yield from self.write(data)
        self._last = self._objects.submit(self._writer.close)
        yield from awaited(self._last)
        self._writer = None

    def let_go(self) -> None:
        """Ends an unfinished upload and leaves nothing behind."""
        writer, self._writer = self._writer, None
        if writer is not None and self._last is not None:
            self._last.add_done_callback(lambda _: writer.abandon())  # not while a part is written


@dataclass(slots=True)
class Uploaded:
    """Counters since the start."""

    bytes: int = 0
    requests: int = 0
    manifests: int = 0


class TaskUpload:
    """One checkpoint of one task, out of one snapshot. The snapshot stays open as long as the walk."""

    def __init__(
        self, objects: Objects, uploads: TaskUploads, reader: RunsReader, counters: Uploaded, pace: Pace, task: str
    ) -> None:
        self._objects, self._uploads, self._reader = objects, uploads, reader
        self._counters, self._pace, self._task = counters, pace, task

    def learn(self) -> Walk[None]:
        """Reads what former owners have uploaded, and takes the next term. RemoteError."""
        objects, uploads = self._objects, self._uploads
        names = yield from awaited(objects.submit(newest_manifests, objects, uploads.folder))
        self._counters.requests += 1
        above = place_of(names[0])[0] if names else 0
        term = yield from awaited(objects.submit(take_term, objects, uploads.folder, above))
        self._counters.requests += 2
        for name in names[:1]:
            try:
                manifest = yield from awaited(objects.submit(read_manifest, objects, name))
            except Exception:  # whatever it is, the runs are uploaded once more
                continue
            self._counters.requests += 1
            uploads.known |= _uploaded(manifest.stores)
        uploads.term, uploads.number = term, 0

    def upload(
        self, record: TaskRecord, entries: Sequence[StoreEntry], versions: Mapping[bytes, int], now_ms: int
    ) -> Walk[Manifest]:
        """versions: of the rows that are in no run, by prefix, where they are known. now_ms: wall clock. RemoteError."""
        uploads, reader = self._uploads, self._reader
        runs = {e.spec.name: reader.runs(e.prefix(record.partition)) for e in entries}
        self._count_waiting([(e.spec.name, record.partition, run) for e in entries for run in runs[e.spec.name].runs])
        number = uploads.number = (
            uploads.number + 1
        )  # also of one that is lost on its way: a number is never used again
        sections = []
        for entry in entries:
            name, prefix = entry.spec.name, entry.prefix(record.partition)
            objects = []
            for run in runs[name].runs:
                objects.append((yield from self._run(name, record.partition, run)))
            rows, rows_bytes = yield from self._rows(name, record.partition, prefix, number, versions.get(prefix))
            sections.append(
                StoreSection(
                    name,
                    record.partition,
                    entry.record(),
                    reader.get(entry.bound_key(record.partition)),
                    runs[name].floor,
                    reader.get(entry.position_key(record.partition)),
                    objects,
                    rows,
                    rows_bytes,
                )
            )
        writer, commit = _last_commit(sections, decode_number(reader.get(MARKER), 0))
        manifest = Manifest(self._task, uploads.term, number, writer, commit, now_ms, record.record(), sections)
        data = encode_manifest(manifest)
        name = manifest_name(uploads.folder, uploads.term, number)
        if not (yield from awaited(self._objects.submit(self._objects.put_new, name, data))):
            uploads.term = 0  # another process has this term: this one takes the next
            return manifest
        self._count(len(data))
        self._counters.manifests += 1
        uploads.newest = manifest
        uploads.known = _uploaded(sections)  # without runs that were merged
        return manifest

    def _run(self, store: str, partition: int, run: Run) -> Walk[RunObject]:
        identity = _identity(store, partition, run)
        known = self._uploads.known.get(identity)
        if known is None:
            name = run_object_name(
                self._uploads.folder, store, partition, run.name, run.head.checksum, self._uploads.term
            )
            size, tail_bytes = yield from self._upload_run(run, name)
            known = RunObject(run.name, name, size, tail_bytes, run.head.rows, run.head.checksum)
            self._uploads.known[identity] = known
            self._uploads.waiting_bytes -= run.head.size
        return known

    def _upload_run(self, run: Run, name: str) -> Walk[tuple[int, int]]:
        """Bytes of the object and of its tail."""
        tail, parts, size, upload = ObjectTail(), list[bytes](), 0, PartsUpload(self._objects, name)
        inner = self._reader.inner
        count = len(run.fences(inner))
        try:
            for begin in range(0, count, PART_BLOCKS):
                blocks = run.blocks(inner, range(begin, min(count, begin + PART_BLOCKS)))
                tail.add(blocks)
                parts += blocks
                moved = sum(map(len, blocks))
                size += moved
                self._pace.moved += moved
                if size > WHOLE_BYTES:
                    yield from upload.write(b"".join(parts))
                    parts = []
                yield
            end = tail.encode(*run.encoded(inner))
            parts.append(end)
            self._pace.moved += len(end)
            yield from upload.end(b"".join(parts))
        finally:
            upload.let_go()
        self._count(size + len(end))
        return size + len(end), len(end)

    def _rows(
        self, store: str, partition: int, prefix: bytes, number: int, version: int | None
    ) -> Walk[tuple[Rows | str, int]]:
        """Rows in no run, themselves or the name of their object."""
        uploads, place = self._uploads, (store, partition)
        last = uploads.rows.get(place)
        if last is not None and version is not None and last[0] == version:
            return last[1].rows, last[1].rows_bytes
        keys: list[bytes] = []
        values: list[bytes] = []
        for some_keys, some_values in self._reader.rows_in_no_run(prefix):
            keys += some_keys
            values += some_values
            yield
        size = sum(map(len, keys)) + sum(map(len, values))
        found: Rows | str = keys, values
        if size > INLINE_BYTES:
            data = encode_rows((keys, values))
            size, found = len(data), rows_object_name(uploads.folder, store, partition, uploads.term, number)
            self._pace.moved += size
            yield from awaited(self._objects.submit(self._objects.put_new, found, data))
            self._count(size)
        else:
            size = 0  # it counts with the manifest
        if version is not None:
            section = StoreSection(store, partition, b"", None, b"", None, [], found, size)
            uploads.rows[place] = version, section
        return found, size

    def _count_waiting(self, runs: Sequence[tuple[str, int, Run]]) -> None:
        known = self._uploads.known
        self._uploads.waiting_bytes = sum(r.head.size for s, p, r in runs if _identity(s, p, r) not in known)

    def _count(self, size: int) -> None:
        self._counters.bytes += size
        self._counters.requests += 1


def _identity(store: str, partition: int, run: Run) -> RunIdentity:
    return store, partition, run.name, run.head.rows, run.head.checksum


def _uploaded(sections: Sequence[StoreSection]) -> dict[RunIdentity, RunObject]:
    return {(s.store, s.partition, r.run, r.rows, r.checksum): r for s in sections for r in s.runs}


def _last_commit(sections: Sequence[StoreSection], applied: int) -> tuple[str, int]:
    """Who wrote the newest of these rows, and in which commit; without positions the last commit that is applied here."""
    positions = [position_from_record(s.position) for s in sections if s.position is not None]
    newest = max(positions, key=lambda p: p.as_of_ms, default=None)
    return ("", applied) if newest is None else (newest.writer, newest.sequence)

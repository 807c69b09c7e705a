"""Files of JSON lines, CSV or Parquet into a topic, in bulk: columns in DuckDB and Arrow, no Python per record.

A file is imported in transactions of about `TRANSACTION_BYTES`; a small one in one. Each carries how far the file was read
(`import_progress`), so that every record is in the topic once, however often the import is tried.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from flowql.errors import CommandError
from flowql.runtime.batch import Batch, Ints
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, Log, Position, Producer, TopicPartition
from flowql.runtime.log.murmur2 import partitions as partitions_of
from flowql.runtime.log.policy import import_groups
from flowql.runtime.task.dead_letters import IMPORT, short
from flowql.runtime.task.dead_letters import SCHEMA as LETTER_SCHEMA
from flowql.topics.codecs import KeyWriter
from flowql.topics.import_files import chunks
from flowql.topics.import_job import NOT_IMPORTED, Bad, Chunk, FilePosition, Job
from flowql.topics.import_values import Reasons, Values, encoded_keys

# --- How far a file was imported into a topic: the committed position of a consumer group, moved by the transactions that append the records ---
#
# A retry continues exactly after the last commit, however the import ended. A hash of the bytes before that position shows whether they are still
# the same; lines after it may be corrected between two attempts. When the topic is deleted its positions are deleted with it.
# A file in the project's folder is known by its path from there, so that the folder can be moved and a backup be restored elsewhere.

CHANGED = "FQ5014"

_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """The committed part of a file. digest: of its bytes up to `at`. records, skipped, dead: how many lines became records, were skipped, are dead letters.

    options: of the import's first attempt. done: the end of the file was reached. path: of the file, as `Job.place`.
    """

    at: int
    line: int
    digest: str
    records: int
    skipped: int
    dead: int
    options: str
    done: bool
    path: str

    @property
    def position(self) -> FilePosition:
        return FilePosition(self.at, self.line)


def group_of(job: Job) -> str:
    """The consumer group, and the transactional id: of two concurrent imports of a file the older one is fenced."""
    identity = f"{job.topic}\0{job.place}".encode()
    return f"{import_groups(job.topic)}{hashlib.blake2b(identity, digest_size=_ID_BYTES).hexdigest()}"


def groups_of(log: Log, topic: str) -> list[str]:
    """The progress of all files that were imported into a topic."""
    prefix = import_groups(topic)
    return [g for g in log.admin().groups(prefix) if len(g) == len(prefix) + 2 * _ID_BYTES]


def options_of(job: Job) -> str:
    """The options that decide how lines become records."""
    return " ".join([job.format, ",".join(job.keys), job.timestamp or "", job.key_format or "", ",".join(job.nulls)])


def format_of(progress: Progress) -> str:
    return progress.options.partition(" ")[0]


def read_progress(log: Log, job: Job) -> Progress | None:
    return progress_of(log, job.topic, group_of(job))


def progress_of(log: Log, topic: str, group: str) -> Progress | None:
    tp = TopicPartition(topic, 0)
    position = log.admin().stable_positions(group, [tp]).get(tp)
    return Progress(**orjson.loads(position.metadata)) if position is not None and position.metadata else None


def send_progress(producer: Producer, job: Job, progress: Progress) -> None:
    position = Position(progress.records, orjson.dumps(asdict(progress)).decode())
    producer.send_positions(group_of(job), {TopicPartition(job.topic, 0): position})


class Digest:
    """The digest of the bytes that were read; for a Parquet file, of the whole file."""

    def __init__(self, job: Job) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._whole = job.format == "parquet"
        if self._whole:
            self._read(job.file, None)

    def _read(self, file: Path, size: int | None) -> None:
        with file.open("rb") as stream:
            left = size
            while data := stream.read(_PIECE if left is None else min(_PIECE, left)):
                self._hash.update(data)
                left = None if left is None else left - len(data)
                if left == 0:
                    break

    def skip(self, file: Path, size: int) -> None:
        """The first `size` bytes are not read again."""
        if not self._whole and size:
            self._read(file, size)

    def add(self, data: bytes) -> None:
        self._hash.update(data)

    def text(self) -> str:
        return self._hash.hexdigest()


def resume(job: Job, before: Progress | None) -> tuple[Progress | None, Digest]:
    """Where to go on: None for the beginning of the file. Raises CommandError if the file is another one by now."""
    digest = Digest(job)
    if before is None or (before.done and job.again):
        return None, digest
    digest.skip(job.file, before.at)
    same = digest.text() == before.digest
    if same and before.options == options_of(job):
        return before, digest
    if job.again:
        return None, Digest(job)
    what = "with other options" if same else f"and has changed since, before its line {before.line:,}"
    title = f"{job.file.name} was imported into topic {job.topic} before {what}: {before.records:,} records"
    raise CommandError(
        title, code=CHANGED, help="--again  imports all of it again, in addition to the existing records"
    )


TRANSACTION_BYTES = 256 << 20
SHOWN_ROWS = 10
PATH_CHARS = 1000  # brokers take 4,096 bytes of metadata with a position
NO_TIME_HELP = "milliseconds since 1970, or ISO-8601 such as 2013-01-01T05:00:00Z"
BAD_RECORD = "FQ4020"


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome for a file: records written, skipped and made dead letters by this import; `before`: written by earlier tries."""

    records: int = 0
    skipped: int = 0
    dead: int = 0
    before: int = 0
    was_done: bool = False


@dataclass(slots=True)
class Preview:
    """The effect of an import before it runs. rows: the first records; bad: the first bad ones (line, reason)."""

    records: int = 0
    bad_records: int = 0
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    decoded: Batch | None = None
    bad: list[Bad] = field(default_factory=list)


def import_file(log: Log, job: Job, advance: Callable[[int], None]) -> ImportResult:
    """Write the records of a file to the topic, which exists. Raises CommandError.

    advance: told of bytes read. A failure leaves the transactions that were committed before it, and the next import of the
    file goes on behind them.
    """
    producer = log.producer(group_of(job))  # fences another import of the file before its progress is read
    producer.expect_partitions(job.topic, job.partitions)
    try:
        before = read_progress(log, job)
        carried = None if before is not None or job.again else carried_over(log, job)
        before, digest = resume(job, before or carried)
        letter_bytes = log.record_bytes_max(job.dead_letters)
        return _Import(job, producer, before, digest, letter_bytes, is_own=carried is None).run(advance)
    finally:
        producer.close()


def preview(job: Job, advance: Callable[[int], None]) -> Preview:
    """Read the whole file and write nothing."""
    found = Preview()
    reader = _Records(job)
    for chunk in chunks(job, reader.keys, FilePosition()):
        piece = reader.read(chunk)
        missing = SHOWN_ROWS - len(found.bad)
        found.records += piece.records.num_rows
        found.bad_records += len(piece.bad)
        found.bad += piece.bad[: max(missing, 0)]
        if found.decoded is None and not found.rows and piece.records.num_rows:
            first = piece.records.slice(0, SHOWN_ROWS)
            found.decoded = reader.values.rows(*first.columns[:3])
            found.rows = [orjson.loads(v) for v in first.column("value").to_pylist()] if found.decoded is None else []
        advance(chunk.read_bytes)
    return found


@dataclass(frozen=True, slots=True)
class _CheckedChunk:
    """Good records (PRODUCE_SCHEMA) of a chunk, and the bad ones by line."""

    records: pa.RecordBatch
    bad: list[Bad]


class _Records:
    """Makes records of the pieces of a file."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.keys = KeyWriter(job.source, job.key_format)
        self.values = Values(job.source, job.format)

    def read(self, chunk: Chunk) -> _CheckedChunk:
        columns = chunk.columns
        keys, bad = encoded_keys(columns.column("key").combine_chunks(), self.keys)
        values, bad_values = self.values.encode(columns.column("value").combine_chunks().cast(pa.binary()))
        times, bad_times = self._times(chunk)
        reasons = bad_times | bad_values | bad
        records = pa.RecordBatch.from_arrays(
            [times, keys, values, pa.nulls(len(values), HEADERS_TYPE)], schema=PRODUCE_SCHEMA
        )
        rows = _others(len(values), reasons)
        if reasons:
            records = records.take(pa.array(rows))
        judged, unreadable = self.values.judge(*records.columns[:3])
        reasons |= {int(rows[i]): why for i, why in unreadable.items()}
        records = pa.RecordBatch.from_arrays(
            [records.column(0), records.column(1), judged, records.column(3)], schema=PRODUCE_SCHEMA
        )
        if unreadable:
            records = records.take(pa.array(_others(len(judged), unreadable)))
        found = [*chunk.bad, *(Bad(chunk.line(row), why, chunk.raw(row)) for row, why in reasons.items())]
        return _CheckedChunk(records, sorted(found, key=lambda b: b.line))

    def _times(self, chunk: Chunk) -> tuple[pa.Array, Reasons]:
        job, n = self._job, chunk.columns.num_rows
        if job.timestamp is None:
            return pa.array(np.full(n, job.recorded_ms, np.int64)), {}
        time = chunk.columns.column("time").combine_chunks().cast(pa.int64())
        missing = np.flatnonzero(time.is_null().to_numpy(zero_copy_only=False)).tolist()
        return time.fill_null(0), dict.fromkeys(missing, f"`{job.timestamp}` is not a time ({NO_TIME_HELP})")


def _others(n: int, of: Mapping[int, object]) -> Ints:
    chosen = np.ones(n, bool)
    chosen[list(of)] = False
    return np.flatnonzero(chosen)


class _Import:
    """One run of an import, from a place of the file to its end. is_own: `before` is committed for the path of the file."""

    def __init__(
        self,
        job: Job,
        producer: Producer,
        before: Progress | None,
        digest: Digest,
        letter_bytes: int | None,
        *,
        is_own: bool,
    ) -> None:
        self._is_own = is_own
        self._letter_bytes = letter_bytes
        self._job, self._producer, self._digest = job, producer, digest
        self._reader = _Records(job)
        empty = Progress(0, 1, digest.text(), 0, 0, 0, options_of(job), done=False, path="")
        self._start = self._now = replace(before or empty, path=job.place[-PATH_CHARS:])
        self._committed = self._start
        self._pending = 0

    def run(self, advance: Callable[[int], None]) -> ImportResult:
        start = self._start
        self._producer.begin()
        for chunk in chunks(self._job, self._reader.keys, start.position):
            self._send(chunk)
            advance(chunk.read_bytes)
            if self._pending > TRANSACTION_BYTES:
                self._commit(done=False)
                self._producer.begin()
        unchanged = start.done and self._now.position == start.position
        if not unchanged or not self._is_own:
            self._commit(done=True)
        now = self._now
        return ImportResult(
            now.records - start.records, now.skipped - start.skipped, now.dead - start.dead, start.records, unchanged
        )

    def _send(self, chunk: Chunk) -> None:
        job, now = self._job, self._now
        piece = self._reader.read(chunk)
        if piece.bad and job.on_error == "fail":
            raise self._failure(piece.bad)
        for partition, records in _by_partition(piece.records, job, now.records):
            self._producer.send(TopicPartition(job.topic, partition), records)
            self._pending += records.nbytes
        self._digest.add(chunk.taken)
        rows, bad = piece.records.num_rows, len(piece.bad)
        dead = bad if job.on_error == "dead-letter" else 0
        if dead:
            self._producer.send(TopicPartition(job.dead_letters, 0), _letters(piece.bad, job, self._letter_bytes))
        self._now = Progress(
            chunk.end.at,
            chunk.end.line,
            self._digest.text(),
            now.records + rows,
            now.skipped + bad - dead,
            now.dead + dead,
            now.options,
            done=False,
            path=now.path,
        )

    def _commit(self, *, done: bool) -> None:
        self._now = replace(self._now, done=done)
        send_progress(self._producer, self._job, self._now)
        self._producer.commit()
        self._committed, self._pending = self._now, 0

    def _failure(self, bad: Sequence[Bad]) -> CommandError:
        title = f"{self._job.file.name}:{bad[0].line}: {bad[0].reason}"
        there = self._committed.records
        help_ = "mend the line and try again, or leave such records out:  --on-error skip  or  --on-error dead-letter"
        if there:
            help_ += f"; {there:,} records before it are in the topic, and the next try continues after them"
        return CommandError(title, code=NOT_IMPORTED, help=help_)


def _by_partition(records: pa.RecordBatch, job: Job, before: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records per partition, in the order of the file. before: records of earlier chunks."""
    rows = records.num_rows
    spread = (np.arange(rows) + before) % job.partitions  # records without a key take turns
    partition = partitions_of(records.column("key"), job.partitions, spread)
    for p in range(job.partitions):
        chosen = np.flatnonzero(partition == p)
        if len(chosen):
            yield p, records if len(chosen) == rows else records.take(pa.array(chosen))


def _letters(bad: Sequence[Bad], job: Job, bytes_max: int | None) -> pa.RecordBatch:
    """Dead letters of lines: they have no place in the topic, so the message names that in the file. bytes_max: as of `encode`."""
    n = len(bad)
    values: list[dict[str, object]] = [
        dict.fromkeys(f.name for f in LETTER_SCHEMA)
        | {
            "QUERY": IMPORT,
            "TOPIC": job.topic,
            "ROWTIME": job.now_ms,
            "CODE": BAD_RECORD,
            "MESSAGE": f"{job.file.name}:{b.line}: {b.reason}",
            "VALUE": base64.b64encode(b.raw).decode(),
            "GENERATION": 1,
        }
        for b in bad
    ]
    if bytes_max is not None:
        values = [v if len(orjson.dumps(v)) <= bytes_max else short(v) for v in values]
    columns = [
        pa.array(np.full(n, job.now_ms, np.int64)),
        pa.nulls(n, pa.binary()),
        pa.array([orjson.dumps(v) for v in values], pa.binary()),
        pa.nulls(n, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


# Whether a file that was never imported begins with what another path was imported as: the file was moved, or this is a copy.

SAME_RECORDS = "FQ5018"
_PIECE = 4 << 20


def carried_over(log: Log, job: Job) -> Progress | None:
    """The progress of a file without one of its own: of its former path where the user says `--moved`, else None.

    Raises CommandError if its first records were imported from another path, so that they would be in the topic twice.
    """
    found = _origin(log, job)
    if found is not None and job.moved:
        return found
    if found is not None:
        title = f"{job.file.name} begins with {found.records:,} records that are in topic {job.topic} already: they were imported from {found.path}"
        help_ = "--moved  if it is that file under another path: continues after them;  --again  imports all of it, beside the existing records"
        raise CommandError(title, code=SAME_RECORDS, help=help_)
    if job.moved:
        title = f"nothing in topic {job.topic} was imported from a file that begins as {job.file.name} does"
        help_ = "without --moved it is imported from its beginning"
        raise CommandError(title, code=SAME_RECORDS, help=help_)
    return None


def _origin(log: Log, job: Job) -> Progress | None:
    """The earlier import that has read most of the bytes with which the file begins."""
    found = [progress_of(log, job.topic, group) for group in groups_of(log, job.topic)]
    known = [p for p in found if p is not None and p.records and format_of(p) == job.format]
    same = _digests(job, {p.at for p in known})
    return max((p for p in known if same.get(p.at) == p.digest), key=lambda p: p.records, default=None)


def _digests(job: Job, ends: Collection[int]) -> dict[int, str]:
    """The digest of the bytes before each of these places, as far as the file is that long; one pass."""
    if not ends:
        return {}
    digest, found, at = Digest(job), dict[int, str](), 0
    if job.format == "parquet":
        return dict.fromkeys(ends, digest.text())
    with job.file.open("rb") as stream:
        for end in sorted(ends):
            while at < end and (data := stream.read(min(_PIECE, end - at))):
                digest.add(data)
                at += len(data)
            if at < end:
                break
            found[end] = digest.text()
    return found

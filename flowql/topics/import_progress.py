"""How far a file was imported into a topic: the committed position of a consumer group, moved by the transactions that append the records.

A retry continues exactly after the last commit, however the import ended. A hash of the bytes before that position shows whether they are still
the same; lines after it may be corrected between two attempts. When the topic is deleted its positions are deleted with it.
A file in the project's folder is known by its path from there, so that the folder can be moved and a backup be restored elsewhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from flowql.errors import CommandError
from flowql.runtime.log.base import Log, Position, Producer, TopicPartition
from flowql.runtime.log.policy import import_groups
from flowql.topics.import_job import FilePosition, Job

CHANGED = "FQ5014"
_PIECE = 4 << 20
_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """The committed part of a file. digest: of its bytes up to `at`. records, skipped, dead: how many lines became records, were skipped, are dead letters.

    options: of the import's first attempt. done: the end of the file was reached. path: of the file, as `Job.place`; "" of imports by
    releases that did not keep it.
    """

    at: int
    line: int
    digest: str
    records: int
    skipped: int
    dead: int
    options: str
    done: bool
    path: str = ""

    @property
    def position(self) -> FilePosition:
        return FilePosition(self.at, self.line)


def group_of(job: Job) -> str:
    """The consumer group, and the transactional id: of two concurrent imports of a file the older one is fenced."""
    return group_of_path(job.topic, job.place)


def group_of_path(topic: str, path: str) -> str:
    identity = f"{topic}\0{path}".encode()
    return f"{import_groups(topic)}{hashlib.blake2b(identity, digest_size=_ID_BYTES).hexdigest()}"


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

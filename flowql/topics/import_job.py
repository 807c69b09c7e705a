"""An import of a file, and the chunks in which it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.topology import SourceDef
from flowql.errors import CommandError
from flowql.runtime.log.base import Log
from flowql.runtime.log.policy import TopicPolicy
from flowql.topics.codecs import KeyWriter
from flowql.topics.keeping import retention_text

FileFormat = Literal["csv", "jsonl", "parquet"]
OnError = Literal["fail", "skip", "dead-letter"]
NOT_IMPORTED, TOO_OLD = "FQ5010", "FQ5015"
BEGINNING_MS = 0  # the time of a table's records that have none: a join finds the row for events of any time
FOR_EVER = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Job:
    """One import. keys: columns of the key, empty for those the source declares. timestamp: a column; without one records have `time_ms`, else
    `now_ms`.

    on_error: what becomes of records that the source's declaration cannot read. nulls: texts of a CSV file that stand for NULL in
    STRING columns, besides the empty one. again: begin anew what was imported before. dead_letters: the topic they go to. root: the
    project's folder. moved: the file was imported under another path.
    """

    topic: str
    partitions: int
    file: Path
    format: FileFormat
    source: SourceDef | None
    now_ms: int
    keys: tuple[str, ...] = ()
    timestamp: str | None = None
    key_format: str | None = None
    on_error: OnError = "fail"
    nulls: tuple[str, ...] = ()
    again: bool = False
    dead_letters: str = ""
    time_ms: int | None = None
    root: Path | None = None
    moved: bool = False

    @property
    def place(self) -> str:
        """The path that the import is known by: from the project's folder on for files in it, else the absolute one."""
        file, root = self.file.resolve(), self.root.resolve() if self.root is not None else None
        return file.relative_to(root).as_posix() if root is not None and file.is_relative_to(root) else str(file)

    @property
    def recorded_ms(self) -> int:
        """The time of records where no column is."""
        return self.now_ms if self.time_ms is None else self.time_ms


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far a file was read. at: bytes (rows of a Parquet file); line: the number of the next line or row."""

    at: int = 0
    line: int = 1


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that cannot be imported. line: where it begins; raw: as it stands in the file."""

    line: int
    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records in columns: value (JSON bytes), key (JSON object of the key columns, or null), time (ms, or null), line.

    bad: those of the piece that are no records at all. raw: a record of the columns as it stands in the file. end: what is behind
    the piece. taken: its bytes, empty for a Parquet file.
    """

    columns: pa.Table
    bad: Sequence[Bad]
    raw: Callable[[int], bytes]
    end: FilePosition
    taken: bytes
    read_bytes: int

    def line(self, row: int) -> int:
        return int(self.columns.column("line")[row].as_py())


@dataclass(frozen=True, slots=True)
class Named:
    """Which columns of the file are the key (key column, name in the file) and the time.

    Of a key column that the file spells in several ways, the exact one comes first.
    """

    keys: tuple[tuple[str, str], ...]
    time: str | None

    def key_texts(self, text: Callable[[str], str]) -> list[tuple[str, str]]:
        """Each key column with the SQL of its text. text: of a column of the file."""
        spellings: dict[str, list[str]] = {}
        for column, name in self.keys:
            spellings.setdefault(column, []).append(text(name))
        return [(c, some[0] if len(some) == 1 else f"coalesce({', '.join(some)})") for c, some in spellings.items()]


def named_columns(job: Job, keys: KeyWriter, names: Sequence[str]) -> Named:
    """CommandError for a column that the file lacks, or another number of key columns than is declared."""
    time = _find(job.timestamp, names, job) if job.timestamp is not None else None
    if not job.keys:  # those the source declares, as far as the file has them
        same = [(c, n) for c in keys.columns if job.source is not None for n in names if n.upper() == c.upper()]
        return Named(tuple(sorted(same, key=lambda pair: (keys.columns.index(pair[0]), pair[0] != pair[1]))), time)
    if len(job.keys) != len(keys.columns):
        declared = (
            f"{job.source.name} declares {len(keys.columns)}"
            if job.source is not None
            else "without a declared source there is one"
        )
        raise CommandError(f"--key names {len(job.keys)} columns, and {declared}", code=NOT_IMPORTED)
    given = {k.upper(): k for k in job.keys}
    by_name = all(c.upper() in given for c in keys.columns)
    pairs = [(c, given[c.upper()]) for c in keys.columns] if by_name else list(zip(keys.columns, job.keys, strict=True))
    return Named(tuple((c, _find(k, names, job)) for c, k in pairs), time)


def _find(wanted: str, names: Sequence[str], job: Job) -> str:
    """The file's spelling of a column; CommandError when it has none such."""
    if wanted in names:
        return wanted
    for name in names:
        if name.upper() == wanted.upper():
            return name
    hint = did_you_mean(wanted, names) or f"it has {', '.join(names)}"
    raise CommandError(f"{job.file.name} has no column `{wanted}`", code=NOT_IMPORTED, help=hint)


def from_the_beginning(source: SourceDef | None, timestamp: str | None) -> bool:
    """Whether records get the time BEGINNING_MS: those of a declared table without a time column."""
    return source is not None and source.kind == "table" and timestamp is None and source.timestamp is None


def make_topic(log: Log, job: Job) -> None:
    """Makes the topic if it is missing. Raises CommandError if it would drop records for their age at once."""
    admin = log.admin()
    known = admin.topics().get(job.topic)
    timeless = job.time_ms == BEGINNING_MS and job.timestamp is None
    if known is not None and timeless:
        policy = TopicPolicy.of(known.config)
        if policy.retention_ms >= 0 and policy.deletes:
            title = (
                f"records of table {job.source.name if job.source else job.topic} without a time count from 1970, and topic {job.topic} "
                f"would drop them at once: {retention_text(known.config)}"
            )
            help_ = f"name the column that is the time (--timestamp COLUMN), or  flowql topic retention {job.topic} forever --compact"
            raise CommandError(title, code=TOO_OLD, help=help_)
    new_config = FOR_EVER if timeless and known is None and not log.supports_redo else None  # brokers drop after a week
    admin.create_topic(job.topic, job.partitions, new_config)

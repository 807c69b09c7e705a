"""What `flowql topic import` says: the outcome, or what it would be."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from flowql.cli.progress import progress
from flowql.cli.render import note, print_rows, print_text
from flowql.cli.results import answer_lines
from flowql.runtime.config import LetterRetention
from flowql.runtime.log.base import Log
from flowql.runtime.task.dead_letters import topic_config
from flowql.topics.import_job import Job
from flowql.topics.import_times import BEGINNING_MS, make_topic
from flowql.topics.importing import ImportResult, Preview, import_file, preview


def import_and_tell(log: Log, job: Job, kept: LetterRetention) -> None:
    """kept: dead letters, where their topic does not exist yet."""
    make_topic(log, job)
    if job.on_error == "dead-letter":
        log.admin().create_topic(job.dead_letters, 1, topic_config(kept))
    began = time.monotonic()
    with progress(f"import {job.file.name}", _size(job), in_bytes=True) as advance:
        outcome = import_file(log, job, advance)
    for line in _outcome_lines(outcome, job, time.monotonic() - began):
        note(line)


def show_preview(job: Job) -> None:
    with progress(f"read {job.file.name}", _size(job), in_bytes=True) as advance:
        found = preview(job, advance)
    _print_rows(found)
    what = f"{_records(found.records)} of {job.file.name}"
    note(f"{what} can be imported into topic {job.topic}; nothing was written")
    if found.bad_records:
        note(f"{_records(found.bad_records)} cannot be read:")
    for bad in found.bad:
        note(f"  {job.file.name}:{bad.line}: {bad.reason}")
    if found.bad_records > len(found.bad):
        note(f"  ... and {found.bad_records - len(found.bad):,} more")


def _size(job: Job) -> int | None:
    return job.file.stat().st_size if job.format != "parquet" else None


def _outcome_lines(outcome: ImportResult, job: Job, seconds: float) -> Iterator[str]:
    if outcome.was_done:
        yield (
            f"nothing new: all {outcome.before:,} records of {job.file.name} are in topic {job.topic} already "
            "(--again imports them once more)"
        )
        return
    partitions = f"({job.partitions} {'partition' if job.partitions == 1 else 'partitions'}), {seconds:.1f} s"
    yield f"{_records(outcome.records)} of {job.file.name} in topic {job.topic} {partitions}"
    if outcome.before:
        yield f"{outcome.before:,} records before them were imported by an earlier try"
    if outcome.skipped:
        yield f"{_records(outcome.skipped)} skipped that could not be read (--dry-run shows them)"
    if outcome.dead:
        yield f"{_records(outcome.dead)} that could not be read: in the table DEAD_LETTERS"
    if job.time_ms == BEGINNING_MS and job.timestamp is None and job.source is not None:
        yield f"{job.source.name} is a table, and no column is its time: these rows count from the beginning, for events of all times"


def _records(n: int) -> str:
    return f"{n:,} {'record' if n == 1 else 'records'}"


def _print_rows(found: Preview) -> None:
    if found.decoded is None:
        names = list(dict.fromkeys(name for row in found.rows for name in row))
        print_rows(names, [[row.get(n) for n in names] for row in found.rows])
        return
    batch = found.decoded
    times = pa.array(batch.rowtime).cast(pa.timestamp("ms", "UTC"))
    arrow = batch.arrow()
    table = pa.RecordBatch.from_arrays([*arrow.columns, times], names=[*arrow.schema.names, "ROWTIME"])
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    print_text("\n".join(answer_lines(table.schema, rows)))

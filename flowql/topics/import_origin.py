"""Whether a file that was never imported begins with what another path was imported as: the file was moved, or this is a copy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from flowql.errors import CommandError
from flowql.runtime.log.base import Log
from flowql.topics.import_job import Job
from flowql.topics.import_progress import Digest, Progress, format_of, group_of_path, groups_of, progress_of

SAME_RECORDS = "FQ5018"
_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """An earlier import of the bytes that a file begins with. own: of the same path, as releases named it that knew absolute paths alone."""

    progress: Progress
    own: bool


def carried_over(log: Log, job: Job) -> Progress | None:
    """The progress of a file without one of its own: of its former path where the user says `--moved`, else None.

    Raises CommandError if its first records were imported from another path, so that they would be in the topic twice.
    """
    found = _origin(log, job)
    if found is not None and (found.own or job.moved):
        return found.progress
    if found is not None:
        progress = found.progress
        title = (
            f"{job.file.name} begins with {progress.records:,} records that are in topic {job.topic} already: they were imported from "
            f"{progress.path or 'another path'}"
        )
        help_ = "--moved  if it is that file under another path: continues after them;  --again  imports all of it, beside the existing records"
        raise CommandError(title, code=SAME_RECORDS, help=help_)
    if job.moved:
        title = f"nothing in topic {job.topic} was imported from a file that begins as {job.file.name} does"
        help_ = "without --moved it is imported from its beginning"
        raise CommandError(title, code=SAME_RECORDS, help=help_)
    return None


def _origin(log: Log, job: Job) -> Origin | None:
    """The import that has read most of what the file begins with."""
    by_group = {group: progress_of(log, job.topic, group) for group in groups_of(log, job.topic)}
    known = {g: p for g, p in by_group.items() if p is not None and p.records and format_of(p) == job.format}
    same = _digests(job, {p.at for p in known.values()})
    own = group_of_path(job.topic, str(job.file.resolve()))
    found = [Origin(p, g == own) for g, p in known.items() if same.get(p.at) == p.digest]
    return max(found, key=lambda origin: (origin.own, origin.progress.records), default=None)


def _digests(job: Job, ends: Collection[int]) -> dict[int, str]:
    """Of the bytes of the file up to each of these places, as far as it is that long; one pass."""
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

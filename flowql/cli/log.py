"""`flowql log`: the embedded log of a target, its files and their checksums."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Annotated

import typer

from flowql.cli.options import Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.render import note, print_json, print_rows
from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.generations import topics_read
from flowql.config.storage import open_log
from flowql.errors import CommandError
from flowql.runtime.app.lost_record import forget_deployed
from flowql.runtime.app.plan_topic import read_deployed, topic_name
from flowql.runtime.clock import SystemClock
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.verify import Damage, Verified
from flowql.runtime.log.repairs import topic_name as repairs_topic

app = typer.Typer(help="The embedded log and its files.", no_args_is_help=True, rich_markup_mode=None)
NO_FILES, DAMAGED = "FQ5016", "FQ4051"
_COLUMNS = ("partition", "first", "last", "records", "file", "byte", "what")


@app.callback()
def _group() -> None:
    """A single command would otherwise stand for the whole group."""


@app.command("verify")
@scoped("project target output var")
def verify_log(
    scope: Scope,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Mark damaged records; readers and rebuilds skip them."),
    ] = False,
) -> None:
    """Verify the checksums of all records, also while an instance runs.

    flowql log verify
    flowql log verify --skip-damaged      # skip and count unrecoverable records
    """
    loaded = scope.load()
    log, forgotten, application_id = open_log(loaded, damaged=True), False, loaded.target.application_id(loaded.name)
    concerned: list[str] = []
    with closing(log):
        if not isinstance(log, EmbeddedLog):
            raise CommandError("the target's log is on Kafka, whose brokers verify it", code=NO_FILES)
        with progress("reading the log", log.stored_bytes(), in_bytes=True) as advance:
            found = log.verify(advance)
        new = [d for d in found.damages if not d.skipped]
        if skip_damaged and new:
            log.skip_damaged(new)
            of_plans = [d.end for d in new if d.tp.topic == topic_name(application_id)]
            forgotten = forget_deployed(log, application_id, of_plans, SystemClock().wall_ms())
            concerned = [] if forgotten else list(_concerned(log, application_id, {d.tp.topic for d in new}))
    if scope.as_json:
        print_json(_as_data(found, left_out=skip_damaged))
    else:
        _tell(found, new, left_out=skip_damaged)
    for sentence in concerned:
        note(sentence)
    if forgotten:
        note("with them the deployments; flowql deploy, after flowql stop, computes all queries from the beginning")
    if (new and not skip_damaged) or found.other:
        raise typer.Exit(1)


def _tell(found: Verified, new: list[Damage], *, left_out: bool) -> None:
    if found.damages:
        print_rows(_COLUMNS, [_row(d) for d in found.damages])
    for sentence in found.other:
        note(sentence)
    note(f"{found.segments:,} segments, {found.batches:,} batches, {found.bytes:,} bytes: {_verdict(found)}")
    records = sum(d.end - d.first for d in new)
    if records and left_out:
        note(f"{records:,} records are skipped by readers and rebuilds")
    elif records:
        note("restore a backup (flowql restore), or leave these records out:  flowql log verify --skip-damaged")


def _concerned(log: EmbeddedLog, application_id: str, topics: Collection[str]) -> Iterator[str]:
    """A sentence for each topic: which queries made or read what is left out, and what becomes of their results."""
    deployed = read_deployed(log, application_id) or Deployed()
    plan = running_plan(deployed)
    for topic in sorted(topics):
        makers = [q.id.partition("@")[0] for q in plan.queries if q.topic == topic]
        readers = [q.id for q in plan.queries if topic in topics_read(q)]
        if makers:
            refresh = " ".join(f"--full-refresh {q}" for q in dict.fromkeys(makers))
            yield f"{topic} is computed by {', '.join(makers)}: to have its records computed again:  flowql deploy {refresh}"
        elif topic == repairs_topic(application_id):
            yield f"{topic} held repairs and marks of appended records (flowql dlq replay): a rebuild reads those records as they were written"
        elif readers:
            yield f"{topic} is read by {', '.join(readers)}: results keep what was read of these records before, until a rebuild"


def _verdict(found: Verified) -> str:
    return f"{len(found.damages)} damaged" if found.damages else "all as they were written"


def _row(d: Damage) -> tuple[object, ...]:
    what = f"{d.problem}; left out" if d.skipped else d.problem
    return (str(d.tp), d.first, d.end - 1, d.end - d.first, d.path.rpartition("/")[2], d.start, what)


def _as_data(found: Verified, *, left_out: bool) -> dict[str, object]:
    return {
        "segments": found.segments,
        "batches": found.batches,
        "bytes": found.bytes,
        "damages": [
            {
                "topic": d.tp.topic,
                "partition": d.tp.partition,
                "first": d.first,
                "last": d.end - 1,
                "file": d.path,
                "byte": d.start,
                "problem": d.problem,
                "skipped": d.skipped or left_out,
            }
            for d in found.damages
        ],
        "other": found.other,
    }

"""`flowql topic`: topics of the target's log, and the records in them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, cast, get_args

import pyarrow as pa
import typer

from flowql.cli.options import OR_CSV, Output, Scope, scoped
from flowql.cli.progress import progress
from flowql.cli.query import ResultOption
from flowql.cli.render import counted, note, print_json, print_rows, print_text
from flowql.cli.results import answer_lines, destination, write_answer
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.deploy.settings import settings_of, writer_here
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.runtime.app.plan_topic import read_plan
from flowql.runtime.config import LetterRetention
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import Log, TopicInfo, TopicPartition
from flowql.runtime.task.dead_letters import topic_config
from flowql.runtime.task.dead_letters import topic_name as dead_letter_topic
from flowql.topics.codecs import KeyWriter, RecordReader, ValueWriter, refuse_unwritable, source_over
from flowql.topics.describing import PARTITION_COLUMNS, describe, refuse_if_used
from flowql.topics.import_files import file_format
from flowql.topics.import_job import BEGINNING_MS, FileFormat, Job, OnError, from_the_beginning, make_topic
from flowql.topics.importing import ImportResult, Preview, import_file, preview
from flowql.topics.keeping import retention_changes, retention_text
from flowql.topics.records import (
    SCHEMA,
    Piped,
    RecordWriter,
    exported,
    json_lines,
    parsed,
    partitions_of,
    read_records,
    topic_named,
    write_lines,
)

app = typer.Typer(help="Topics and their records.", no_args_is_help=True, rich_markup_mode=None)
Topic = Annotated[str, typer.Argument(help="A topic, or the stream or table over it.", metavar="TOPIC")]
Partitions = Annotated[int | None, typer.Option("--partitions", min=1, help="Partitions of a new topic.")]
_WAIT_S = 0.05
INTERRUPTED = 130


@app.command("ls")
@scoped("project target output var", outputs=OR_CSV)
def list_topics(scope: Scope) -> None:
    """List topics with number of records and declarations."""
    found, plan, log = _open(scope)
    with_names: dict[str, list[str]] = {}
    for s in plan.sources:
        with_names.setdefault(s.topic, []).append(s.name)
    rows = []
    for info in sorted(log.admin().topics().values(), key=lambda t: t.name):
        tps = [TopicPartition(info.name, p) for p in range(info.partitions)]
        records = sum(log.admin().end_offset(tp) - log.admin().begin_offset(tp) for tp in tps)
        rows.append((info.name, info.partitions, records, with_names.get(info.name, [])))
    log.close()
    if not rows:
        note(f"the log of target `{found.target.name}` has no topics yet")
    if scope.output is Output.JSON:
        print_json([{"topic": t, "partitions": p, "records": n, "sources": s} for t, p, n, s in rows])
    elif rows:
        print_rows(
            ("topic", "partitions", "records", "sources"),
            [(*r[:3], " ".join(r[3])) for r in rows],
            output=scope.output.value,
        )


@app.command("create")
@scoped("project target var")
def create_topic(
    scope: Scope,
    topic: Topic,
    partitions: Partitions = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", help="Setting of Kafka, such as cleanup.policy=compact. Repeatable.", metavar="KEY=VALUE"
        ),
    ] = None,
) -> None:
    """Create a topic, unless it exists with this number of partitions."""
    wanted = _config(config or [])
    found, plan, log = _open(scope)
    with closing(log):
        name = topic_named(topic, plan, log)
        info = log.admin().create_topic(name, partitions or partitions_of(name, plan, log, found.partitions), wanted)
    note(f"topic {info.name}: {counted(info.partitions, 'partition')}")
    if any(info.config.get(k) != v for k, v in wanted.items()):
        note("it existed before: its configuration is unchanged")


@app.command("describe")
@scoped("project target output var")
def describe_topic(scope: Scope, topic: Topic) -> None:
    """Show a topic's partitions, configuration, writers and readers."""
    _, plan, log = _open(scope)
    with closing(log):
        name = topic_named(topic, plan, log)
        found = describe(log, _existing(name, log), plan)
    if scope.as_json:
        print_json(found.to_data())
        return
    print_text("\n".join(found.lines()))
    print_rows(PARTITION_COLUMNS, found.partitions)


@app.command("retention")
@scoped("project target var")
def set_retention(
    scope: Scope,
    topic: Topic,
    age: Annotated[
        str | None, typer.Argument(help="Maximum age, such as '7 days', or forever.", metavar="[AGE]")
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", help="Maximum size of a partition, such as '1 GB', or unlimited.")
    ] = None,
    compact: Annotated[
        bool | None, typer.Option("--compact/--no-compact", help="Keep the last record of each key, at any age.")
    ] = None,
) -> None:
    """Show, or change at once, how long a topic keeps records. Age counts from the time of a record.

    flowql topic retention orders               the current setting
    flowql topic retention orders '7 days'      delete older ones in steps of an eighth of that age
    flowql topic retention users --compact      keep the last record of each key
    """
    _, plan, log = _open(scope)
    with closing(log):
        info = _existing(topic_named(topic, plan, log), log)
        if changes := retention_changes(info.config, age, size, compact):
            info = log.admin().alter_topic(info.name, changes)
    print_text(f"{info.name}: {retention_text(info.config)}")


@app.command("delete")
@scoped("project target var")
def delete_topic(
    scope: Scope, topic: Topic, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Delete a topic that no deployed query uses."""
    found, plan, log = _open(scope)
    with closing(log):
        name = topic_named(topic, plan, log)
        info = _existing(name, log)
        settings = settings_of(found)
        refuse_if_used(name, read_plan(log, settings.application_id) or Plan(), settings.application_id)
        if not yes and not sys.stdin.isatty():
            raise typer.BadParameter(f"add --yes to delete topic {name}: there is no terminal to ask for confirmation")
        records = describe(log, info, plan).records
        if not yes and not typer.confirm(f"delete topic {name} with {records:,} records?"):
            raise typer.Exit(1)
        log.admin().delete_topic(name)
    note(f"deleted topic {name}: {records:,} records")


@app.command("export")
@scoped("project target var")
def export_topic(
    scope: Scope,
    topic: Topic,
    start: Annotated[
        str, typer.Option("--from", help="earliest or an offset.", metavar="earliest|OFFSET")
    ] = "earliest",
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this one.")] = None,
    output: ResultOption = None,
) -> None:
    """Write all existing records to a file or a pipe.

    Columns are partition, offset, timestamp, key and value (as JSON), and headers.

    flowql topic export orders -o orders.parquet
    """
    form, file = destination(output or [], scope.output)
    if start != "earliest" and not start.isdigit():
        raise typer.BadParameter(f"--from takes earliest or an offset, not {start}")
    _, plan, log = _open(scope)
    with closing(log):
        name = topic_named(topic, plan, log)
        positions, ends = _range(log, _existing(name, log), start, partition)
        records = exported(log, positions, ends, RecordReader(source_over(plan, name)))
        rows = write_answer(Answer(SCHEMA, records), form, file)
    if file is not None:
        note(f"{rows:,} records of topic {name} in {file}")


@app.command("import")
@scoped("project target var")
def import_topic(
    scope: Scope,
    topic: Topic,
    file: Annotated[
        Path, typer.Argument(help="JSON lines, CSV or Parquet.", metavar="FILE", exists=True, dir_okay=False)
    ],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="Key column. Repeatable.", metavar="COLUMN"),
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", help="Time column: ms or ISO-8601.", metavar="COLUMN")
    ] = None,
    partitions: Partitions = None,
    form: Annotated[str | None, typer.Option("--format", help="csv, jsonl or parquet; default: by file name.")] = None,
    key_format: Annotated[str | None, typer.Option("--key-format", help="kafka or json; default: as declared.")] = None,
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null", help="String that is NULL in STRING columns of CSV, besides the empty one.", metavar="TEXT"
        ),
    ] = None,
    on_error: Annotated[
        str,
        typer.Option("--on-error", help="Handling of records that do not convert: fail, skip or dead-letter."),
    ] = "fail",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the whole file, show ten decoded rows, write nothing.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Import records again.")] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="The file was renamed: continue that import."),
    ] = False,
) -> None:
    """Import a file into a topic, each record once, even if repeated. A missing topic is created.

    Strings become the declared types: ISO dates and times, yes and no, spellings of NULL. A column without a
    declaration is JSON. The position in the file is committed with its records, so a second attempt continues after
    the first.

    flowql topic import orders orders.parquet --key CUSTOMER --timestamp AT
    flowql topic import orders orders.csv --dry-run
    flowql topic import orders orders.csv --on-error dead-letter
    """
    for given, words, option in (
        (form, get_args(FileFormat), "--format"),
        (key_format, ("kafka", "json"), "--key-format"),
        (on_error, get_args(OnError), "--on-error"),
    ):
        if given is not None and given not in words:
            raise typer.BadParameter(f"{option} is {' or '.join(words)}, not {given}")
    found, plan, log = _open(scope)
    with closing(log):
        name = topic_named(topic, plan, log)
        source = source_over(plan, name)
        refuse_unwritable(source)
        note_misspelt(name, plan, log)
        job = Job(
            topic=name,
            partitions=partitions or partitions_of(name, plan, log, found.partitions),
            file=file,
            format=cast("FileFormat", form) if form is not None else file_format(file),
            source=source,
            now_ms=_now_ms(),
            keys=tuple(key or ()),
            timestamp=timestamp,
            key_format=key_format,
            on_error=cast("OnError", on_error),
            nulls=tuple(null or ()),
            again=again,
            root=found.root,
            moved=moved,
            dead_letters=dead_letter_topic(settings_of(found).application_id),
            time_ms=BEGINNING_MS if from_the_beginning(source, timestamp) else None,
        )
        if dry_run:
            show_preview(job)
        else:
            import_and_tell(log, job, settings_of(found).dead_letters)


@app.command("produce")
@scoped("project target var")
def produce(
    scope: Scope,
    topic: Topic,
    records: Annotated[
        list[str] | None,
        typer.Argument(
            help="KEY:VALUE (JSON, null for a tombstone), or JSON as `consume` prints it; default: lines of stdin.",
            metavar="[RECORD]...",
        ),
    ] = None,
    partitions: Partitions = None,
) -> None:
    """Write records to a topic, creating a missing one. Records given as arguments are written in one transaction.

    Lines of stdin are committed every 0.2 s or 10,000 lines, and after Ctrl-C. A malformed line ends the command;
    earlier records are written.
    """
    found, plan, log = _open(scope)
    piped = Piped(sys.stdin.fileno()) if not records else None
    with closing(log):
        name = topic_named(topic, plan, log)
        source = source_over(plan, name)
        refuse_unwritable(source)
        note_misspelt(name, plan, log)
        keys, values = KeyWriter(source), ValueWriter(source)
        given = parsed(records, keys, values, _now_ms()) if records else []
        info = log.admin().create_topic(name, partitions or partitions_of(name, plan, log, found.partitions))
        with RecordWriter(log, name, info.partitions, _transactional_id(found)) as writer:
            if piped is None:
                writer.write(given)
            else:
                write_lines(piped.groups(), writer, keys, values, _now_ms)
    interrupted = piped is not None and piped.interrupted
    note(f"{counted(writer.written, 'record')} in topic {name}{', interrupted' * interrupted}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command("consume")
@scoped("project target output var")
def consume(
    scope: Scope,
    topic: Topic,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest or an offset.", metavar="earliest|latest|OFFSET")
    ] = "earliest",
    most: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this one.")] = None,
) -> None:
    """Print all existing records, one JSON object per line."""
    if start not in ("earliest", "latest") and not start.isdigit():
        raise typer.BadParameter(f"--from takes earliest, latest or an offset, not {start}")
    _, plan, log = _open(scope)
    name = topic_named(topic, plan, log)
    info = _existing(name, log)
    if partition is not None and partition >= info.partitions:
        raise CommandError(f"topic {name} has partitions 0 to {info.partitions - 1}", code="FQ5011")
    positions, ends = _range(log, info, start, partition)
    reader = RecordReader(source_over(plan, name))
    left = most
    for batch in read_records(log, positions, None if follow else ends):
        if batch is None:
            sys.stdout.flush()
            time.sleep(_WAIT_S)
            continue
        lines = list(json_lines(batch, reader))[:left]
        sys.stdout.buffer.write(b"".join(lines))
        left = None if left is None else left - len(lines)
        if left == 0:
            break
    sys.stdout.flush()
    log.close()


def _open(scope: Scope) -> tuple[Project, Plan, Log]:
    """The project, what its sources declare, and the log. Mistakes in queries do not matter here."""
    project = scope.load()
    compiled = compile_sources(project)
    if not compiled.ok:
        note(
            "the project has mistakes (flowql validate shows them); topics without a readable declaration are taken as text"
        )
    return project, compiled.plan, open_log(project)


def _existing(topic: str, log: Log) -> TopicInfo:
    topics = log.admin().topics()
    if topic not in topics:
        hint = did_you_mean(topic, topics)
        raise TopicMissing(f"there is no topic {topic}{'; ' if hint else ''}{hint}")
    return topics[topic]


def _range(
    log: Log, info: TopicInfo, start: str, partition: int | None
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Where to begin and where it ends now, per partition."""
    admin = log.admin()
    tps = [TopicPartition(info.name, p) for p in range(info.partitions) if partition in (None, p)]
    ends = {tp: admin.end_offset(tp) for tp in tps}
    begins = {tp: admin.begin_offset(tp) for tp in tps}
    if start == "latest":
        return ends, ends
    return begins if start == "earliest" else {tp: max(begins[tp], int(start)) for tp in tps}, ends


def note_misspelt(topic: str, plan: Plan, log: Log) -> None:
    """A note before a new topic is created that no source reads, if its name is close to a source's."""
    hint = did_you_mean(topic, (name for s in plan.sources for name in (s.topic, s.name)))
    if hint and source_over(plan, topic) is None and topic not in log.admin().topics():
        note(f"{topic} is a new topic, and no stream or table of the project reads it; {hint}")


def _config(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not sign or not key for key, sign, _ in pairs):
        raise typer.BadParameter("--config takes KEY=VALUE, as in  --config retention.ms=604800000")
    return {key: value for key, _, value in pairs}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _transactional_id(project: Project) -> str:
    return f"{project.target.application_id(project.name)}-{writer_here('cli')}"


# The output of `flowql topic import`: the outcome, or the expected outcome.


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
    what = f"{counted(found.records, 'record')} of {job.file.name}"
    note(f"{what} can be imported into topic {job.topic}; nothing was written")
    if found.bad_records:
        note(f"{counted(found.bad_records, 'record')} cannot be read:")
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
    partitions = f"({counted(job.partitions, 'partition')}), {seconds:.1f} s"
    yield f"{counted(outcome.records, 'record')} of {job.file.name} in topic {job.topic} {partitions}"
    if outcome.before:
        yield f"{outcome.before:,} records before them were imported by an earlier try"
    if outcome.skipped:
        yield f"{counted(outcome.skipped, 'record')} skipped that could not be read (--dry-run shows them)"
    if outcome.dead:
        yield f"{counted(outcome.dead, 'record')} that could not be read: in the table DEAD_LETTERS"
    if job.time_ms == BEGINNING_MS and job.timestamp is None and job.source is not None:
        yield f"{job.source.name} is a table, and no column is its time: these rows count from the beginning, for events of all times"


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

"""`flowql dlq`: dead letters, which are records that queries could not read: look at them, repair them, replay them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from flowql.cli.building import await_built
from flowql.cli.options import OR_CSV, Output, Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.query import ResultOption
from flowql.cli.render import counted, note, print_json, print_rows, print_text
from flowql.cli.results import destination, write_answer
from flowql.compiler.plan.topology import Plan
from flowql.deploy.settings import UNSUPPORTED_TARGET, settings_of
from flowql.dlq.repair import NOT_HERE, Repaired, assignment_of, matching, repaired
from flowql.dlq.replay import append, queries_of, replay
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.dead_letters import (
    LISTED,
    WITH_VALUES,
    Letter,
    at_place,
    shown_bytes,
    shown_time,
    table_of,
)
from flowql.server.spawn import spawn
from flowql.topics.keeping import letters_kept

app = typer.Typer(
    help="List, repair and replay dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        help="Only records that satisfy this SQL condition, over the source's columns as strings, and topic, partition, "
        '"offset", rowtime, queries, code, message, key, value.',
        metavar="SQL",
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of records, the last ones.")]
_SHOWN = 20
_WIDTH = 60  # of a value in a table


@app.command("ls")
@scoped("project target output var", outputs=OR_CSV)
def list_letters(scope: Scope, where: Where = None, limit: Limit = _SHOWN) -> None:
    """List open dead letters, each record once.

    A line names the queries that could not process the record, and the first reason. A rebuild closes a query's dead
    letters. All, in SQL: SELECT * FROM DEAD_LETTERS

    flowql dlq ls --where "message LIKE '%AMOUNT%'"
    """
    place = place_of(scope.load())
    sql = LISTED if where is None and scope.output is not Output.JSON else WITH_VALUES
    letters = matching(place.letters(sql), where, place.deployed().plan)
    last = letters[-limit:]
    if scope.output is Output.JSON:
        print_json([x.to_data() for x in last])
        return
    columns = ("record", "time", "queries", "code", "why")
    rows = [
        (x.name, shown_time(x.timestamp_ms), " ".join(x.queries), x.failures[0].code, x.failures[0].message)
        for x in last
    ]
    if rows:
        print_rows(columns, rows, output=scope.output.value)
    note(f"{_counted(letters, len(last))}; dead letters are {letters_kept(place.retention())}")


@app.command("show")
@scoped("project target output var")
def show_letter(
    scope: Scope,
    record: Annotated[str, typer.Argument(help="As shown by `flowql dlq ls`.", metavar="TOPIC/PARTITION@OFFSET")],
) -> None:
    """Show one record's bytes, and why each query could not process it.

    flowql dlq show orders/0@17
    """
    place = place_of(scope.load())
    (letter,) = place.whole([at_place(place.letters(WITH_VALUES), record)])
    if scope.as_json:
        print_json(letter.to_data())
        return
    lines = [
        f"record  {letter.name}",
        f"time    {shown_time(letter.timestamp_ms)}",
        f"key     {shown_bytes(letter.key)}",
        f"value   {shown_bytes(letter.value)}",
        *(f"{f.query}: {f.code}: {f.message}" for f in letter.failures),
    ]
    print_text("\n".join(lines))


@app.command("export")
@scoped("project target var")
def export_letters(scope: Scope, where: Where = None, output: ResultOption = None) -> None:
    """Write open dead letters to a file, one row per record. Key and value are strings.

    flowql dlq export -o bad.parquet
    """
    form, file = destination(output or [], scope.output)
    place = place_of(scope.load())
    letters = matching(place.whole(place.letters(WITH_VALUES)), where, place.deployed().plan)
    table = table_of(letters).drop_columns(["number"])
    rows = write_answer(Answer(table.schema, iter(table.to_batches())), form, file)
    if file is not None:
        note(f"{counted(rows, 'record')} in {file}")


@app.command("replay")
@scoped("project target output var")
def replay_letters(
    scope: Scope,
    where: Where = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Repair a column of the source, or the record's KEY, VALUE or ROWTIME. Repeatable.",
            metavar="COLUMN=SQL",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the repaired records.")] = False,
    once: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Deliver the records now to the queries that skipped them, without a rebuild.",
        ),
    ] = False,
    to_test: Annotated[
        Path | None,
        typer.Option(
            "--to-test",
            help="Only write a project test from the repaired records.",
            metavar="FILE",
        ),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before rebuilt queries serve.")] = False,
) -> None:
    """Repair records and rebuild the queries that skipped them. Results are as if the records had been correct.

    The topic is unchanged; the repair replaces the record in every later read and rebuild. Nothing happens if a
    query still fails on a record. Expressions are DuckDB SQL over the source's columns as strings, and key, value,
    rowtime, topic, partition, "offset".

    flowql dlq replay --set "AMOUNT = replace(AMOUNT, ',', '.')::DOUBLE" --dry-run
    """
    project = scope.load()
    place = place_of(project)
    if project.target.engine == "spark":
        title = "repairs are not supported on Spark: its jobs would read the records as they were written"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="use a target with `engine: runtime`")
    plan = place.deployed().plan
    letters = matching(place.whole(place.letters(WITH_VALUES)), where, plan)
    if not letters:
        note("no open dead letters: nothing to replay")
        return
    repairs = repaired(letters, [assignment_of(a) for a in assignments or ()], plan)
    queries = queries_of(letters)
    if scope.as_json:
        print_json({"applied": not dry_run, "queries": queries, "records": [_change(r) for r in repairs]})
    else:
        if rows := list(_shown(repairs[-_SHOWN:])):
            print_rows(("record", "what", "was", "is read as"), rows)
        what = "to be given to" if once else "to be rebuilt"
        note(f"{_counted(letters, min(_SHOWN, len(repairs)))}; {what}: {', '.join(queries)}")
    if dry_run:
        note("nothing was done (--dry-run)")
        return
    if to_test is not None:
        _write_test(to_test, repairs, plan)
        return
    with closing(place.connect() or spawn(settings_of(project))) as client:
        if once:
            for line in _appended(append(client, repairs, plan)):
                note(line)
            return
        replay(client, repairs)
        if not no_wait and not await_built(client):
            raise typer.Exit(130)


def _write_test(path: Path, repairs: Sequence[Repaired], plan: Plan) -> None:
    from flowql.dlq.to_test import test_of  # loads the engine, which runs the queries

    if path.exists():
        raise CommandError(f"{path} is there already", code=NOT_HERE, help="name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(test_of(repairs, plan), encoding="utf-8")
    note(f"a test of {len(repairs):,} records is in {path}; nothing else was done. To run it:  flowql test")


def _appended(done: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line per query, and what its results may not be what a rebuild would give."""
    for query, said in sorted(done.items()):
        yield f"{query}: {said['rows']:,} rows"
        if said["late"]:
            yield f"{query}: {said['late']:,} of them are late: their windows are closed, and count without them"
        if said["older"]:
            yield (
                f"{query}: {said['older']:,} of them are older than what it has read: joins and what depends on the order, as "
                "LATEST_BY_OFFSET, take them as the newest"
            )
        if said["table"]:
            yield f"{query}: it reads a table, where they replace newer records of their keys"


def _counted(letters: Sequence[Letter], shown: int) -> str:
    n = len(letters)
    text = counted(n, "record") if n else "no open dead letters"
    return text if shown == n else f"{text}, the last {shown:,} are shown"


def _shown(repairs: Sequence[Repaired]) -> Iterator[tuple[str, ...]]:
    """A row for each thing that is set."""
    for r in repairs:
        for what, was, new in r.changes:
            yield r.letter.name, what, _short(was or ""), _short(new or "")


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _change(r: Repaired) -> dict[str, Any]:
    new = {
        "time": shown_time(r.repair.timestamp_ms),
        "key": shown_bytes(r.repair.key),
        "value": shown_bytes(r.repair.value),
    }
    return r.letter.to_data() | {"repaired": new}

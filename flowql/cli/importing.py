"""`flowql import`: loads files into local tables, and converts projects of ksqlDB and statements of other dialects."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from typer.core import TyperGroup

from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import counted, note, print_json, print_text, show_diagnostics, table_lines
from flowql.compiler.analyze.registered import REGISTRY
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.dialect.standard.write_expressions import quoted
from flowql.compiler.dialect.standard.write_expressions import text as constant
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, Priority
from flowql.compiler.schemas.ref import NO_SCHEMAS
from flowql.config.compile import compile_sources
from flowql.config.load import load_project, shown_path
from flowql.errors import CommandError, CompileError
from flowql.foreign.scripts import Translated, translated
from flowql.ksqldb import report
from flowql.ksqldb.project import Imported, Wishes, project_of
from flowql.ksqldb.replay import Replay
from flowql.ksqldb.scripts import Found, find_scripts
from flowql.runtime.serde.registry import registry_at

# --- `flowql import FILE... --table T`: rows of files into a local table ---

NAME = "files"
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class FilesFirst(TyperGroup):
    """A group whose first argument is a file unless it names a command."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Inserts the command for files if no command is named."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [NAME, *args]
        return super().parse_args(ctx, args)


@scoped("project target output var")
def import_files(
    scope: Scope,
    files: Annotated[
        list[Path], typer.Argument(help="CSV, JSON lines, Parquet, or PostgreSQL's text format.", metavar="FILE...")
    ],
    table: Annotated[str, typer.Option("--table", help="The local table.", show_default=False, metavar="TABLE")],
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="The columns of the file, in order, separated by commas.", metavar="A,B"),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv, json, parquet or text; default: by file name.")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether CSV and text begin with the names of columns.")
    ] = True,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter", help="Character between fields; default: a comma in CSV, a tab in text.", metavar="CHARACTER"
        ),
    ] = None,
    null: Annotated[
        str | None,
        typer.Option(
            "--null", help="Unquoted field that means NULL; default: empty in CSV, \\N in text.", metavar="TEXT"
        ),
    ] = None,
) -> None:
    """Load files into a local table, each file as one transaction.

    Columns are matched by the names in the file. A row that does not fit is an error with its line, and nothing of
    its file is written; the files before it stay. COPY in `flowql exec` does the same. For topics: flowql topic import.

    flowql import users.csv --table users
    flowql import files part-*.parquet --table orders
    flowql import users.txt --table users --no-header --delimiter ';' --columns id,name
    """
    options = [f"FORMAT {quoted(form)}"] if form is not None else []
    options += ["HEADER"] if header else []
    options += [f"{n} {constant(v)}" for n, v in (("DELIMITER", delimiter), ("NULL", null)) if v is not None]
    listed = f" ({', '.join(_as_sql(c.strip()) for c in columns.split(','))})" if columns is not None else ""
    behind = f" WITH ({', '.join(options)})" if options else ""
    place, began, rows = place_of(scope.load()), time.monotonic(), 0
    documents: list[dict[str, object]] = []
    for file in files:
        (done,) = place.execute(f"COPY {_as_sql(table)}{listed} FROM {constant(str(file))}{behind}")
        rows += done.rows
        documents.append({"file": str(file), "table": done.table, "rows": done.rows})
        if not scope.as_json:
            note(f"{counted(done.rows, 'row')} of {file} in {done.table}")
    if scope.as_json:
        print_json(documents)
    elif len(files) > 1:
        note(f"{rows:,} rows in all, {time.monotonic() - began:.1f} s")


def _as_sql(name: str) -> str:
    """A column or table as SQL reads it: unquoted names are lower case."""
    return quoted(name.lower() if _WORD.fullmatch(name) else name)


app = typer.Typer(
    help="Load files into tables, and import SQL of other systems.",
    cls=FilesFirst,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(NAME)(import_files)


@app.command("ksql")
@scoped("output var")
def ksql(
    scope: Scope,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Scripts, folders of scripts or migrations, a .properties file of a server.", metavar="FILE..."
        ),
    ],
    into: Annotated[Path, typer.Option("--into", help="The folder of the new project.", metavar="DIR")] = Path(
        "imported"
    ),
    name: Annotated[str, typer.Option("--name", help="The project's name.", show_default="the folder's name")] = "",
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", help="Address of the brokers.", metavar="HOST:PORT", show_default=False)
    ] = "",
    registry: Annotated[
        str, typer.Option("--registry", help="A schema registry.", metavar="URL", show_default=False)
    ] = "",
    priority: Annotated[
        list[str] | None,
        typer.Option("--priority", help="A query's class. Repeatable.", metavar="QUERY=CLASS"),
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Omit statements with mistakes, with a note for each.")
    ] = False,
) -> None:
    """Convert ksqlDB scripts to a project.

    Applies statements in order, as a ksqlDB server does; the final objects become the project. Migrations
    (V000001__name.sql) are applied by version. IMPORT.md lists every statement, omissions and differences. After
    mistakes, all are shown and nothing is written.

    flowql import ksql fraud.sql --into fraud
    flowql import ksql ksql-migrations/ --into shop --bootstrap broker:9092
    flowql import ksql queries.sql ksql-server.properties --priority ALERTS=critical
    """
    classes = _classes(priority or [])
    _refuse_overwriting(into)
    found = find_scripts(files)
    url = registry or found.server.get(REGISTRY, ("", None))[0]
    replay = Replay(found, scope.variables, registry_at(url) if url else NO_SCHEMAS, lenient=leave_out)
    replay.run()
    if replay.mistakes:
        raise CompileError(*replay.mistakes)
    wishes = Wishes(name or _name(into), bootstrap, registry, classes)
    imported = project_of(replay, wishes)
    _check_priorities(classes, replay)
    _write(imported, found, into)
    compiled = compile_sources(load_project(into))
    if not compiled.ok:
        note(f"the project in {shown_path(into)} does not compile yet:")
        raise CompileError(*compiled.diagnostics)
    if scope.as_json:
        print_json(_as_data(imported, into))
    else:
        _tell(imported, into)


Foreign = Literal["snowflake", "bigquery", "spark", "trino", "risingwave", "materialize", "flink", "postgres", "duckdb"]


@app.command("sql")
@scoped("output")
def sql(
    scope: Scope,
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of statements.", metavar="FILE..."),
    ],
    dialect: Annotated[Foreign, typer.Option("--from", help="Their dialect.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option("--to", help="New file for the translation.", show_default="stdout", metavar="FILE")
    ] = None,
) -> None:
    """Translate statements of another SQL dialect.

    CREATE, INSERT and SELECT become statements of FlowQL's standard dialect. Statements without a translation, or
    that do not compile, are listed with their reason and omitted; then the exit code is 1.

    flowql import sql --from snowflake models.sql --to queries.sql
    flowql import sql --from flink job.sql
    """
    if to is not None and to.exists():
        raise CommandError(f"{shown_path(to)} exists: nothing was written", code="FQ5004", help="choose another file")
    made = translated([_source(f) for f in files], dialect)
    if to is not None:
        to.write_text(made.script(), encoding="utf-8")
    if scope.as_json:
        print_json(_translation_as_data(made))
    else:
        _tell_translation(made, files, to)
    if made.listed:
        raise typer.Exit(1)


def _source(file: Path) -> SourceText:
    """Raises CommandError."""
    try:
        return SourceText(shown_path(file), file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise CommandError(f"{shown_path(file)} cannot be read: {error}", code="FQ3015") from error


def _tell_translation(made: Translated, files: Sequence[Path], to: Path | None) -> None:
    """The text on stdout, unless it is in a file; what is listed and how many statements there are on stderr."""
    if to is None:
        print_text(made.script())
    show_diagnostics(made.listed)
    counts = [(shown_path(f), *(str(n) for n in made.counts(shown_path(f)))) for f in files]
    for line in table_lines(("file", "translated", "listed"), counts, right=(False, True, True)):
        note(line)


def _translation_as_data(made: Translated) -> dict[str, object]:
    return {
        "statements": [
            {
                "path": o.span.path,
                "line": o.span.line,
                "sql": o.text or None,
                "listed": [
                    {
                        "code": d.code,
                        "line": d.span.line,
                        "column": d.span.column,
                        "title": d.title,
                        "why": d.why,
                        "help": d.help,
                    }
                    for d in o.listed
                ],
            }
            for o in made.outcomes
        ]
    }


def _name(into: Path) -> str:
    return re.sub(r"\W+", "_", into.resolve().name).strip("_") or "project"


def _classes(given: Sequence[str]) -> dict[str, Priority]:
    found: dict[str, Priority] = {}
    for text in given:
        query, sign, chosen = text.partition("=")
        if not sign or chosen not in PRIORITY_WEIGHTS:
            hint = did_you_mean(chosen, PRIORITY_WEIGHTS) or f"classes are {', '.join(PRIORITY_WEIGHTS)}"
            raise typer.BadParameter(f"--priority takes QUERY=CLASS, not {text!r}; {hint}")
        found[query] = cast(Priority, chosen)
    return found


def _check_priorities(classes: dict[str, Priority], replay: Replay) -> None:
    known = [n for q in replay.session.plan.queries for n in (q.id, q.sink)]
    for name in classes:
        if name.casefold() not in [k.casefold() for k in known]:
            hint = did_you_mean(name, known)
            raise CommandError(f"--priority names {name}, but there is no query of that name", code="FQ3011", help=hint)


def _refuse_overwriting(into: Path) -> None:
    if into.is_file() or (into.is_dir() and any(into.iterdir())):
        title = f"{shown_path(into)} is there already and not empty: nothing was written"
        raise CommandError(title, code="FQ5004", help="choose another folder:  --into my_project")


def _write(imported: Imported, found: Found, into: Path) -> None:
    scripts = [s.source.path for s in found.scripts]
    for path, text in {**imported.files, report.FILE: report.report(imported, scripts)}.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_text(text, encoding="utf-8")


def _tell(imported: Imported, into: Path) -> None:
    files = ", ".join([*imported.files, report.FILE])
    print_text(f"{report.summary(imported)} in {shown_path(into)}: {files}")
    if imported.notes:
        print_text(f"\nnotes, in full in {report.FILE}:")
        print_text("\n".join(report.note_lines(imported.notes)))
    enter = [] if into.resolve() == Path.cwd() else [f"cd {into}"]
    print_text("\nnow type:\n" + "".join(f"  {s}\n" for s in (*enter, *report.steps())))


def _as_data(imported: Imported, into: Path) -> dict[str, object]:
    return {
        "folder": str(into),
        "files": [*imported.files, report.FILE],
        "definitions": [
            {"name": d.name, "role": d.role, "query": d.query, "path": d.span.path, "line": d.span.line, "file": file}
            for d, file in imported.made
        ],
        "priorities": {
            q: {"priority": w.priority, "latency_target_ms": w.latency_target_ms, "why": w.why}
            for q, w in imported.priorities.items()
        },
        "notes": [
            {"kind": n.kind, "text": n.text, "path": n.span.path, "line": n.span.line, "help": n.help}
            for n in imported.notes
        ],
    }

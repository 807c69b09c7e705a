"""`flowql import FILE... --table T`: rows of files into a local table."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import note, print_json
from flowql.compiler.dialect.standard.write_expressions import quoted

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
    options += [f"{n} {_text(v)}" for n, v in (("DELIMITER", delimiter), ("NULL", null)) if v is not None]
    listed = f" ({', '.join(_name(c.strip()) for c in columns.split(','))})" if columns is not None else ""
    behind = f" WITH ({', '.join(options)})" if options else ""
    place, began, rows = place_of(scope.load()), time.monotonic(), 0
    documents: list[dict[str, object]] = []
    for file in files:
        (done,) = place.execute(f"COPY {_name(table)}{listed} FROM {_text(str(file))}{behind}")
        rows += done.rows
        documents.append({"file": str(file), "table": done.table, "rows": done.rows})
        if not scope.as_json:
            note(f"{done.rows:,} {'row' if done.rows == 1 else 'rows'} of {file} in {done.table}")
    if scope.as_json:
        print_json(documents)
    elif len(files) > 1:
        note(f"{rows:,} rows in all, {time.monotonic() - began:.1f} s")


def _name(name: str) -> str:
    """A column or table as SQL reads it: unquoted names are lower case."""
    return quoted(name.lower() if _WORD.fullmatch(name) else name)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

"""`flowql state`: what queries have remembered, by key. Every command is an interactive query, whose key conditions reach the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from flowql.api.querying import answer_of
from flowql.cli import remote_state
from flowql.cli.names import STORES, Names, find
from flowql.cli.options import Output, Scope, scoped
from flowql.cli.query import ResultOption, say_apart
from flowql.cli.render import counted, note
from flowql.cli.results import BINARY, destination, write_answer
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Field
from flowql.compiler.plan.topology import Plan, SourceDef, StoreSpec
from flowql.compiler.plan.types import BIGINT, Kind
from flowql.compiler.plan.visit import visible_keys
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError
from flowql.query.errors import UNKNOWN, QueryError
from flowql.query.options import QueryOptions
from flowql.server.following import deployed
from flowql.server.undeployed import telling_undeployed

app = typer.Typer(help="Read the state stores of queries.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(remote_state.app, name="remote")
Store = Annotated[str, typer.Argument(help="A table or an internal store (flowql state ls).", metavar="STORE")]
Keys = Annotated[
    list[str] | None,
    typer.Argument(help="Values of the first key columns, in order.", metavar="[KEY]..."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of rows.")]
BAD_KEY = "FQ5107"
_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)


@app.command("ls")
@scoped("project target output var", outputs=tuple(Output))
def list_stores(scope: Scope) -> None:
    """List stores with their query, number of rows and bytes.

    A bucket of a join, and all sessions of a key, count as one row. In SQL: SELECT * FROM FLOWQL_STORES
    """
    _answer(settings_of(scope.load()), f"SELECT * FROM {STORES} ORDER BY QUERY, STORE", scope.output, None)


@app.command("get")
@scoped("project target output var", outputs=tuple(Output))
def get(
    scope: Scope,
    store: Store,
    key: Annotated[list[str], typer.Argument(help="Values of the key columns, in order.", metavar="KEY...")],
) -> None:
    """Print a key's row, or its rows in all windows. Exit code 1 if there is none.

    flowql state get SPENT_PER_HOUR ada
    """
    settings = settings_of(scope.load())
    place = _place(settings, store)
    if not place.keys:
        title, help = f"{place.name} shows no column of its key", f'flowql query "SELECT * FROM {place.name} WHERE ..."'
        raise CommandError(title, code=BAD_KEY, help=help)
    if len(key) != len(place.keys):
        names = ", ".join(f.name for f in place.keys)
        raise CommandError(
            f"the key of {place.name} is {names}",
            code=BAD_KEY,
            help=f"flowql state scan {place.name} ...  takes the first of them",
        )
    if not _answer(settings, place.select(_equal(place.keys, key)), scope.output, None):
        raise typer.Exit(1)


@app.command("scan")
@scoped("project target output var", outputs=tuple(Output))
def scan(
    scope: Scope,
    store: Store,
    key: Keys = None,
    low: Annotated[
        str | None, typer.Option("--from", help="The next key column is at least this.", metavar="VALUE")
    ] = None,
    high: Annotated[
        str | None, typer.Option("--to", help="The next key column is below this.", metavar="VALUE")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="The next key column starts with this.", metavar="TEXT")
    ] = None,
    window_from: Annotated[
        str | None,
        typer.Option("--window-from", help="Windows that start at or after this time: ms or ISO-8601.", metavar="TIME"),
    ] = None,
    window_to: Annotated[
        str | None, typer.Option("--window-to", help="Windows that start before this time.", metavar="TIME")
    ] = None,
    limit: Limit = None,
) -> None:
    """Print rows by first key columns, a range of the next, or window.

    flowql state scan SPENT_PER_HOUR --prefix a --window-from 2026-01-01T09:00:00Z --limit 20
    """
    settings = settings_of(scope.load())
    place = _place(settings, store)
    given = key or []
    if len(given) > len(place.keys):
        raise CommandError(f"the key of {place.name} has {len(place.keys)} columns", code=BAD_KEY)
    conditions = _equal(place.keys, given)
    conditions += _between(place.keys[len(given) :], low, high, prefix, place.name)
    conditions += _windows(place, window_from, window_to)
    _answer(settings, place.select(conditions, limit), scope.output, None)


@app.command("export")
@scoped("project target var")
def export(scope: Scope, store: Store, output: ResultOption = None) -> None:
    """Write all rows of a store, as of one commit, to a file or a pipe.

    flowql state export SPENT_PER_HOUR -o spent.parquet
    """
    form, file = destination(output or [], scope.output)
    settings = settings_of(scope.load())
    place = _place(settings, store)
    rows = _answer(settings, place.select([]), form, file)
    if file is not None:
        note(f"{counted(rows, 'row')} of {place.name} in {file}")


def _answer(settings: Settings, sql: str, form: Output, file: Path | None) -> int:
    if file is None and form in BINARY:
        form, file = destination([form.value], form)  # not on a terminal
    with answer_of(settings, sql, QueryOptions("duckdb")) as answer:
        say_apart(answer)
        return write_answer(answer, form, file)


class _KeyedRelation:
    """A table or store: its name and its key columns as interactive queries see them. windowed: rows have a WINDOWSTART."""

    def __init__(self, name: str, keys: Sequence[Field], *, windowed: bool) -> None:
        self.name, self.keys, self.windowed = name, keys, windowed

    def select(self, conditions: Iterable[str], limit: int | None = None) -> str:
        where = " AND ".join(conditions)
        return (
            f"SELECT * FROM {quoted(self.name)}"
            + (f" WHERE {where}" if where else "")
            + (f" LIMIT {limit}" if limit is not None else "")
        )


def _place(settings: Settings, name: str) -> _KeyedRelation:
    with telling_undeployed(settings.project_dir):
        return _keyed(deployed(settings).plan, name)


def _keyed(plan: Plan, name: str) -> _KeyedRelation:
    if name.casefold() == STORES.casefold():
        return _KeyedRelation(STORES, (), windowed=False)
    found = find(plan, name)
    if found is None:
        hint = did_you_mean(name, Names.of(plan).relations) or "flowql state ls"
        raise QueryError(f"there is no table or store {name}", code=UNKNOWN, help=hint)
    if isinstance(found, StoreSpec):
        bounds = (WINDOW_START, WINDOW_END)
        keys = [f for f in found.key.fields if f.name not in bounds]
        return _KeyedRelation(found.name, keys, windowed=len(keys) < len(found.key.fields))
    if found.kind == "stream":
        title = f"{found.name} is a stream, which has no state"
        raise QueryError(
            title, code=UNKNOWN, help=f"flowql topic consume {found.name}   # or: flowql subscribe {found.name}"
        )
    return _KeyedRelation(found.name, _visible_key(plan, found), windowed=found.schema.window is not None)


def _visible_key(plan: Plan, table: SourceDef) -> Sequence[Field]:
    """The key of a table; of a view, whose own key is hidden, the columns that equal its parts."""
    if not table.relation:
        return table.schema.key
    key = [f.name for f in table.schema.key]
    query = next((q for q in plan.queries if q.id == table.query), None)
    equal = {} if query is None else visible_keys(query.logical, key, table.visible)
    names = dict.fromkeys(equal.get(name, name) for name in key)
    return [f for name in names if name in table.visible and (f := table.shown.get(name))]


def _equal(keys: Sequence[Field], given: Sequence[str]) -> list[str]:
    return [f"{quoted(f.name)} = {_literal(f, text)}" for f, text in zip(keys, given, strict=False)]


def _between(keys: Sequence[Field], low: str | None, high: str | None, prefix: str | None, name: str) -> list[str]:
    """Conditions on the first key column that has no value yet."""
    if low is None and high is None and prefix is None:
        return []
    if not keys:
        raise CommandError(f"all key columns of {name} are given, and no one is left for a range", code=BAD_KEY)
    field, column = keys[0], quoted(keys[0].name)
    found = [] if low is None else [f"{column} >= {_literal(field, low)}"]
    found += [] if high is None else [f"{column} < {_literal(field, high)}"]
    if prefix is not None:
        if field.type.kind is not Kind.STRING:
            raise CommandError(f"--prefix is for strings, and {field.name} is {field.type}", code=BAD_KEY)
        found += [f"{column} >= {_literal(field, prefix)}", f"starts_with({column}, {_literal(field, prefix)})"]
    return found


def _windows(place: _KeyedRelation, low: str | None, high: str | None) -> list[str]:
    if low is None and high is None:
        return []
    if not place.windowed:
        raise CommandError(f"{place.name} has no windows", code=BAD_KEY)
    at = Field(WINDOW_START, BIGINT)
    found = [] if low is None else [f"{WINDOW_START} >= {_literal(at, _ms(low))}"]
    return found + ([] if high is None else [f"{WINDOW_START} < {_literal(at, _ms(high))}"])


def _ms(text: str) -> str:
    if text.lstrip("-").isdigit():
        return text
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        title = f"{text} is not a time"
        raise CommandError(
            title, code=BAD_KEY, help="milliseconds since 1970, or ISO-8601 such as 2026-01-01T09:00:00Z"
        ) from None
    return str(int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000))


def _literal(field: Field, text: str) -> str:
    """A value as SQL: of texts and whole numbers, which the store can look up, as they are, of others with their type."""
    quoted = "'" + text.replace("'", "''") + "'"
    if field.type.kind is Kind.STRING:
        return quoted
    if field.type.kind in _NUMBERS:
        try:
            float(text)
        except ValueError:
            raise CommandError(f"{field.name} is {field.type}, and {text!r} is not a number", code=BAD_KEY) from None
        return text
    if field.type.kind is Kind.BOOLEAN and text.lower() in ("true", "false"):
        return text
    return f"CAST({quoted} AS {field.type})"

"""INSERT INTO ... VALUES of one row: its values, fitted to the columns of the target."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.scope import Scope
from flowql.compiler.analyze.values import assigned
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import correction, did_you_mean, listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import (
    Ast,
    InsertRow,
)
from flowql.compiler.plan.expr import Expr, Literal
from flowql.compiler.plan.partitioners import MURMUR2
from flowql.compiler.plan.topology import InsertValues, SourceDef
from flowql.compiler.schemas.ref import DEBEZIUM


def insert_row(statement: InsertRow, catalog: Catalog, at: Span) -> InsertValues:
    """Raises CompileError."""
    target = known_target(statement.target, catalog, at)
    check_writable(target, at, "insert values into")
    if target.schema.window is not None:
        raise mistake(
            "FQ2040", f"cannot insert values into windowed {target.kind} {target.name}", at, "its key has a window"
        )
    writable = [f for f in target.schema if f.role in ("key", "value")]
    names = statement.columns or tuple(f.name for f in writable)
    _check_columns(statement, target, names, at)
    binder = Binder(Scope((), ()), catalog, "VALUES")
    known = {f.name: f for f in writable}
    rowtime: int | None = None
    columns: list[str] = []
    values: list[Expr] = []
    for name, node in zip(names, statement.values, strict=True):
        if name == "ROWTIME":
            rowtime = _rowtime(binder.bind(node), node)
            continue
        columns.append(name)
        values.append(assigned(node, binder, known[name]))
    given = {n for n, v in zip(columns, values, strict=True) if not (isinstance(v, Literal) and v.value is None)}
    missing = [f.name for f in target.schema.key if f.name not in given]
    if target.kind == "table" and missing:
        raise mistake(
            "FQ2040",
            f"failed to insert values into {target.name}: value for primary key column(s) {listing(missing)} is required",
            at,
            "no key",
        )
    return InsertValues(target.name, tuple(columns), tuple(values), rowtime)


def _check_columns(statement: InsertRow, target: SourceDef, names: Sequence[str], at: Span) -> None:
    checked_columns([n for n in names if n != "ROWTIME"], target, at)
    if names.count("ROWTIME") > 1:
        raise mistake("FQ2004", f"the time of a record of {target.name} is given twice", at, "given twice")
    if len(names) != len(statement.values):
        title = f"expected {len(names)} values for {target.name} ({', '.join(names)}), got {len(statement.values)}"
        raise mistake("FQ2040", title, at, "another number of values")


def checked_columns(names: Sequence[str], target: SourceDef, at: Span) -> tuple[str, ...]:
    """The columns of a stream or table that an INSERT names. Raises CompileError for one that cannot be given."""
    known = {f.name for f in target.schema if f.role in ("key", "value")}
    for name in names:
        found = target.schema.get(name)
        if found is not None and found.role == "header":
            raise mistake("FQ2040", f"cannot insert into HEADER columns: {name}", at, "a header column")
        if name not in known:
            hint = did_you_mean(name, known) or f"columns are {listing(sorted(known))}"
            raise mistake("FQ2002", f"column {name} does not exist in {target.name}", at, "unknown column", help=hint)
    if len(set(names)) < len(names):
        raise mistake("FQ2004", f"a column of {target.name} is given twice", at, "given twice")
    return tuple(names)


def _rowtime(e: Expr, node: Ast) -> int:
    if isinstance(e, Literal) and isinstance(e.value, int) and not isinstance(e.value, bool):
        return e.value
    raise mistake("FQ2005", "ROWTIME needs a whole number of milliseconds", node.span, "not milliseconds")


def check_writable(target: SourceDef, at: Span, verb: str) -> None:
    """Raises CompileError for what is only read. verb: what is tried, for the message."""
    if target.read_only:
        raise mistake("FQ2040", f"cannot {verb} read-only {target.kind}: {target.name}", at, "created with SOURCE")
    if target.partitioner not in ("", MURMUR2):
        title = f"cannot {verb} {target.name}, whose records are placed by {target.partitioner}: FlowQL places records by {MURMUR2}"
        help_ = "write to another topic, or write records with the producers of this one"
        raise mistake("FQ4089", title, at, f"declared with PARTITIONER = '{target.partitioner}'", help=help_)
    if target.value_format.name == DEBEZIUM:
        raise mistake("FQ2040", f"cannot {verb} {target.name}, whose rows Debezium writes", at, "change their source")


def known_target(name: str, catalog: Catalog, at: Span) -> SourceDef:
    """The stream or table of that name. Raises CompileError."""
    target = catalog.sources.get(name)
    if target is None:
        hint = did_you_mean(name, catalog.sources)
        title = f"cannot insert values into an unknown stream/table: `{name}`"
        edit = correction(at, name, catalog.sources)
        raise mistake("FQ2001", title, at, "unknown source", help=hint, edit=edit)
    return target

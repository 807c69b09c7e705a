"""The rows of a query in the columns of the stream that INSERT INTO names."""

from __future__ import annotations

from flowql.compiler.analyze.formats import describe
from flowql.compiler.analyze.insert_row import check_writable, checked_columns
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relation import project, sink_schema, with_key_roles
from flowql.compiler.analyze.relations.streams import keyed
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.functions.assignment import advice, assigned
from flowql.compiler.functions.coercion import convert
from flowql.compiler.plan.expr import Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr, Node
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind, SqlType


def check_insertable(target: SourceDef, at: Span) -> None:
    """Raises CompileError for what no query may insert into."""
    if target.kind == "table":
        raise mistake(
            "FQ2040", f"INSERT INTO can only be used to insert into a stream. {target.name} is a table.", at, "a table"
        )
    check_writable(target, at, "insert into")
    headers = [f.name for f in target.schema.fields if f.role == "header"]
    if headers:
        raise mistake(
            "FQ2040",
            f"cannot insert into {target.name} because it has header columns: {listing(headers)}",
            at,
            "has header columns",
        )


def placed(node: Node, columns: tuple[str, ...], named: tuple[str, ...], target: SourceDef, at: Span) -> Node:
    """The rows in the columns of a stream, by their places: those that are named, or the first ones. Others are NULL."""
    wanted = {f.name: f for f in target.schema.fields if f.role in ("key", "value")}
    names = checked_columns(named, target, at) or tuple(wanted)
    if len(columns) > len(names) or (named and len(columns) < len(names)):
        title = f"expected {len(names)} columns for {target.name} ({', '.join(names)}), got {len(columns)}"
        raise mistake("FQ2040", title, at, "another number of columns", help="select one value for each column")
    if target.schema.window is not None:
        raise mistake("FQ2040", f"cannot insert into windowed stream {target.name}", at, "its key has a window")
    moved = [(n, c) for n, c in zip(names, columns, strict=False) if n != c and c in wanted and not named]
    if moved:
        title = f"column {moved[0][1]} of the query is at the position of {moved[0][0]} of {target.name}"
        why = f"columns go by their places, which are {', '.join(names)}"
        help = f"write  INSERT INTO {target.name} ({', '.join(columns)}) SELECT ..."
        raise mistake("FQ2040", title, at, "at another place", why=why, help=help)
    types = {f.name: f.type for f in node.schema}
    given: dict[str, Expr] = {}
    for name, column in zip(names, columns, strict=False):
        e = assigned(Column(types[column], column), wanted[name].type)
        if e is None:
            title = (
                f"column {name} of {target.name} is {wanted[name].type}, and {column} of the query is {types[column]}"
            )
            help = advice(types[column], wanted[name].type).replace("...", column)
            raise mistake("FQ2040", title, at, "cannot be assigned", help=help)
        given[name] = e
    made = project(node, [NamedExpr(n, given.get(n, Literal(f.type, None))) for n, f in wanted.items()])
    return keyed(made, [f.name for f in target.schema.key])


def fitted(node: Node, target: SourceDef, at: Span, *, standard: bool) -> Node:
    """The result in the target's columns: same names, types equal or widened, in standard SQL assigned."""
    result = sink_schema(node.schema)
    wanted = [f for f in target.schema.fields if f.role in ("key", "value")]
    roles = [(f.name, f.role) for f in result]
    values = [_stored(a, b, standard=standard) for a, b in zip(result.fields, wanted, strict=False)]
    same = roles == [(f.name, f.role) for f in wanted] and None not in values
    if not same or result.window != target.schema.window:
        title = f"incompatible schema between results and sink {target.name}: result schema is {describe(result.fields)}; sink schema is {describe(wanted)}"
        raise mistake(
            "FQ2040", title, at, "other columns", help="select the columns of the sink, in its order and by its names"
        )
    if all(isinstance(e, Column) for e in values):
        return node
    stored = {f.name: e for f, e in zip(wanted, values, strict=True) if e is not None}
    columns = [NamedExpr(f.name, stored.get(f.name, Column(f.type, f.name))) for f in node.schema.fields]
    return with_key_roles(project(node, columns), [f.name for f in wanted if f.role == "key"])


def _stored(given: Field, wanted: Field, *, standard: bool) -> Expr | None:
    """A column of the result as one of the target; None if it needs a CAST."""
    column = Column(given.type, given.name)
    if standard:
        return assigned(column, wanted.type)
    return convert(column, wanted.type) if _widens(given.type, wanted.type) else None


def _widens(a: SqlType, b: SqlType) -> bool:
    order = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
    if a == b:
        return True
    if a.kind is b.kind is Kind.DECIMAL:
        return a.scale <= b.scale and a.precision - a.scale <= b.precision - b.scale
    return a.kind in order and b.kind in order and a.kind is not b.kind and order.index(a.kind) < order.index(b.kind)

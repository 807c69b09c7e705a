"""Rows that are in no table: the one row of a query without FROM, VALUES, UNNEST (in the select list too) and generate_series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import kept as kept_value
from flowql.compiler.analyze.relation import retracting, scan
from flowql.compiler.analyze.relations.expressions import Placeholders, RelBinder
from flowql.compiler.analyze.relations.relation import (
    Names,
    Rel,
    RelColumn,
    column_of,
    extended,
    selected,
    with_identity,
)
from flowql.compiler.analyze.standard_functions import beside_typed
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import CastTo, Func, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.functions.coercion import unify
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.sql_jsonb import ROWS as ROWS_OF_JSONB
from flowql.compiler.plan.changes import GroupAggregate, GroupCall
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.logical import Explode, Filter, NamedExpr, Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT, BOOLEAN, STRING, Kind, array, struct

# As those of JSONB: the arrays whose elements are the columns, and the names of these.
ROWS = ROWS_OF_JSONB | {
    "regexp_split_to_table": (("REGEXP_SPLIT_TO_ARRAY",), ("regexp_split_to_table",)),
    "string_to_table": (("STRING_TO_ARRAY",), ("string_to_table",)),
    "jsonb_populate_recordset": (("JSONB_RECORDS",), ("jsonb_populate_recordset",)),
}
_FUNCTIONS = ("unnest", "generate_series", *ROWS)
VALUES_MAX = 10_000


def one_row(source: SourceDef, names: Names) -> Rel:
    """One row without columns: the aggregation, without keys, of no row of a table. It is there before the table has rows."""
    node = retracting(scan(source, {}))
    none = Node(Filter(Literal(BOOLEAN, False)), (node,), node.schema, "retract")
    call = GroupCall(names.fresh("rows"), "COUNT", (), BIGINT)
    made = Node(GroupAggregate((), (call,)), (none,), Schema((Field(call.name, BIGINT),)), "retract")
    return Rel(with_identity(made, names), ())


def values(rows: Sequence[Sequence[t.Expr]], node: t.Values, rel: Rel, binder: RelBinder, names: Names) -> Rel:
    """VALUES for each row of `rel`, which carries its columns on."""
    if len(rows) > VALUES_MAX:
        unsupported(f"VALUES of more than {VALUES_MAX} rows", node.span, "insert them into a table")
    columns: list[list[Expr]] = []
    for n, written in enumerate(zip(*rows, strict=True), 1):
        try:
            common, converted = unify(beside_typed([binder.bind(e) for e in written]), strict=True)
        except FunctionTypeError as problem:
            title = f"the values of column {n} have no common type: {problem}"
            raise mistake("FQ2005", title, node.span, help=problem.hint) from None
        if common.kind is Kind.NULL:  # a bare NULL is a text, as in PostgreSQL
            converted = tuple(Literal(STRING, None) for _ in converted)
        columns.append(list(converted))
    named = [f"column{n}" for n in range(1, len(columns) + 1)]
    if len(rows) == 1:
        return selected(rel, [(n, c[0]) for n, c in zip(named, columns, strict=True)], names)
    lists = [Call(array(c[0].type), "array", tuple(c)) for c in (list(map(kept_value, column)) for column in columns)]
    made, exprs, _ = exploded(rel, lists, names, kept=False)
    return selected(made, list(zip(named, exprs, strict=True)), names)


def exploded(rel: Rel, lists: Sequence[Expr], names: Names, *, kept: bool) -> tuple[Rel, list[Expr], Expr]:
    """A row per element of the longest list, the others padded with NULL; their columns, and that of the place, from 1.

    kept: a row without any element stays, with NULLs. The row identity is that of the row and the place.
    """
    place = names.fresh("__place")
    places = Call(array(BIGINT), f"sql_places{'_or_null' if kept else ''}", tuple(lists))
    made = [NamedExpr(names.fresh("element"), Call(e.type.element, "EXPLODE", (e,))) for e in lists]
    functions = (NamedExpr(place, Call(BIGINT, "EXPLODE", (places,))), *made)
    keys = (*rel.node.schema.key, Field(place, BIGINT, "key"))
    rest = [f for f in rel.node.schema if f.role != "key"]
    schema = Schema((*keys, *rest, *(Field(f.name, f.expr.type) for f in made)))
    node = Node(Explode(functions), (rel.node,), schema, "retract")
    return Rel(node, rel.columns), [column_of(Field(f.name, f.expr.type)) for f in made], column_of(keys[-1])


def gives_rows(function: t.TableFunction) -> bool:
    """Whether it is a function whose rows depend on its arguments alone."""
    return function.call.name[-1].lower() in _FUNCTIONS and len(function.call.name) == 1


def from_function(
    function: t.TableFunction, rel: Rel, binder: RelBinder, names: Names, *, kept: bool
) -> tuple[Rel, tuple[RelColumn, ...]]:
    """Each row of `rel` with the rows of the function, and the columns of these. kept: as in LEFT JOIN ... ON TRUE."""
    call, written = function.call, function.alias
    if call.star or call.distinct or call.order_by or call.filter is not None or call.over is not None:
        unsupported("a clause of aggregates in a function of FROM", call.span)
    if call.name == ("jsonb_populate_recordset",):
        unsupported(
            "JSONB_POPULATE_RECORDSET in FROM", call.span, "write it in a SELECT list, and  (row).field  around that"
        )
    lists = _lists(call, binder)
    if not lists:
        raise mistake("FQ2005", "UNNEST takes an array", call.span)
    made, exprs, place = exploded(rel, lists, names, kept=kept)
    alias = written.name if written is not None else call.name[-1]
    # A function of one column gives it its own name or that of its alias.
    given = ROWS[call.name[-1]][1] if call.name[-1] in ROWS else ()
    own = given if len(given) > 1 or written is None else (alias,) * len(exprs)
    own = own or (alias if len(exprs) == 1 else call.name[-1],) * len(exprs)
    columns = [RelColumn(alias, n, e.type, "") for n, e in zip(own, exprs, strict=True)]
    if function.ordinality:
        columns.append(RelColumn(alias, "ordinality", BIGINT, ""))
        exprs = [*exprs, place]
    renamed = written.columns if written is not None else ()
    if len(renamed) > len(columns):
        assert written is not None
        title = f"{alias} has {len(columns)} columns, not {len(renamed)}"
        raise mistake("FQ2004", title, written.span, "too many names")
    columns = [replace(c, name=n) for c, n in zip(columns, renamed, strict=False)] + columns[len(renamed) :]
    columns = [replace(c, column=names.fresh(c.name)) for c in columns]
    made = extended(made, [NamedExpr(c.column, e) for c, e in zip(columns, exprs, strict=True)])
    return made, tuple(columns)


def _lists(call: t.Call, binder: RelBinder) -> list[Expr]:
    """The arrays whose elements are the columns of a function in FROM."""
    (name,) = call.name
    if name in ROWS:
        return [binder.bind(Func(of, call.args, call.span)) for of in ROWS[name][0]]
    return [_list(e, call, binder) for e in call.args] if name == "unnest" else [_series(call, binder)]


def unnested(
    rel: Rel, items: tuple[t.Item, ...], binder: RelBinder, names: Names, placeholders: Placeholders
) -> tuple[Rel, tuple[t.Item, ...]]:
    """A row per element of the arrays that a select list has UNNEST of, and the items with placeholders for the elements.

    Several run in lockstep, the shorter ones padded with NULL; a row all of whose arrays are empty or NULL is not in the result.
    """
    calls: dict[t.Call, list[Expr]] = {}
    for item in items:
        call = item.expr.operand if isinstance(item.expr, CastTo) else item.expr
        if isinstance(call, t.Call) and is_unnest(call):
            if len(call.args) != 1 and call.name == ("unnest",):
                unsupported("UNNEST of several arrays in a SELECT list", call.span, "write one UNNEST for each")
            calls[call] = [_list(call.args[0], call, binder)] if call.name == ("unnest",) else _lists(call, binder)
    if not calls:
        return rel, items
    rel, elements, _ = exploded(rel, [e for lists in calls.values() for e in lists], names, kept=False)
    rest = iter(elements)
    of_call = {call: _element(call, [next(rest) for _ in lists]) for call, lists in calls.items()}
    taken = walks.rebuilt(items, lambda n: placeholders.add(n, of_call[n]) if n in of_call else None, t.Call)
    return rel, taken


def _element(call: t.Call, parts: list[Expr]) -> Expr:
    """The value that a function in a select list gives: of several columns a row, which is NULL behind the last one."""
    if len(parts) == 1:
        return parts[0]
    names = ROWS[call.name[0]][1]
    record = Call(struct(*((n, e.type) for n, e in zip(names, parts, strict=True))), "struct", tuple(parts), call.span)
    is_there = Call(BOOLEAN, "is_not_null", (parts[0],))
    return Call(record.type, "case", (is_there, record, Literal(record.type, None)), call.span)


def is_unnest(node: t.Node) -> bool:
    """Whether it is UNNEST(...), generate_series(...), or another function that gives rows, as a value."""
    return isinstance(node, t.Call) and node.name[0] in _FUNCTIONS and len(node.name) == 1 and node.over is None


def as_query(function: t.TableFunction) -> t.Derived:
    """The function as a lateral query."""
    alias = function.alias or t.Alias(function.call.name[-1], span=function.span)
    select = t.Select((t.Item(Star(span=function.span)),), replace(function, alias=alias), span=function.span)
    alias = replace(alias, columns=())
    return t.Derived(t.Query(select, span=function.span), alias, lateral=True, span=function.span)


def _list(e: t.Expr, call: t.Call, binder: RelBinder) -> Expr:
    bound = binder.bind(e)
    if bound.type.kind is not Kind.ARRAY:
        raise mistake("FQ2005", f"UNNEST takes an array, not {bound.type}", e.span, "no array")
    if bound.type.element.kind in (Kind.ARRAY, Kind.STRUCT):
        what = "an array of arrays" if bound.type.element.kind is Kind.ARRAY else "an array of rows"
        unsupported(f"UNNEST of {what}", call.span)
    return bound


def _series(call: t.Call, binder: RelBinder) -> Expr:
    for e in call.args:
        if isinstance(e, t.Named):
            unsupported("a named argument of generate_series", e.span, "write its value alone")
    try:
        return binder.bind(Func("sql_series", call.args, call.span))
    except CompileError as error:  # the function is called otherwise than it is written
        (first, *_) = error.diagnostics
        title = first.title.removeprefix("error processing expression ").replace("SQL_SERIES", "GENERATE_SERIES", 1)
        raise type(error)(replace(first, title=title)) from None

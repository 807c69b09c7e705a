"""Values that are stored in columns: SQL's assignment, which converts less than CAST does."""

from __future__ import annotations

import functools
from typing import NoReturn

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import kept
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Ast, CastTo, Func, Lit, TypeRef
from flowql.compiler.dialect.standard.intervals import read_interval
from flowql.compiler.functions.casts import can_cast
from flowql.compiler.functions.coercion import convert
from flowql.compiler.functions.evaluate import RowFunction, compile_row
from flowql.compiler.functions.registry import FAILURES
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.sql_casts import sql_cast
from flowql.compiler.functions.sql_intervals import interval_text
from flowql.compiler.functions.sql_micros import finer
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import SPAN, Kind, SqlType

_NESTED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)
_DATES = (Kind.DATE, Kind.TIMESTAMP, Kind.MICROS)


def assigned(node: Ast, binder: Binder, field: Field) -> Expr:
    """`node` as a value of the column: a literal in quotes is read as its type, numbers are rounded, all else must be of the type.

    Constants are computed. Raises CompileError.
    """
    if isinstance(node, Func) and node.name == "row" and field.type.kind is Kind.STRUCT:
        return _row(node, binder, field)
    e = kept(binder.bind(node)) if field.type == SPAN else binder.bind(node)
    if field.type == SPAN and isinstance(e, Literal) and isinstance(e.value, str):
        e = _interval(e, field)
    if e.type == field.type:
        return _computed(e)
    if isinstance(e, Literal) and e.value is None:
        return Literal(field.type, None, e.span)
    if e.type.kind in _NESTED and e.type.kind is field.type.kind:
        try:
            return convert(e, field.type)
        except FunctionTypeError as problem:
            _refuse(node, e, field, f": {problem}")
    in_quotes = isinstance(node, Lit) and node.kind == "string"
    castable = can_cast(e.type, field.type) or sql_cast(e.type, field.type) != ""
    if not (in_quotes or _assignable(e.type, field.type)) or not castable:
        _refuse(node, e, field)
    return _computed(binder.bind(CastTo(node, TypeRef(known=field.type), getattr(node, "span", NOWHERE))))


def _row(node: Func, binder: Binder, field: Field) -> Expr:
    """ROW(...) as a struct: its values belong to the fields in their order."""
    fields = field.type.fields
    if len(node.args) != len(fields):
        title = f"column {field.name} is {field.type}, which has {len(fields)} fields, and the ROW has {len(node.args)}"
        raise mistake("FQ2005", title, node.span, "not so many")
    values = (assigned(a, binder, Field(f"{field.name}.{n}", t)) for a, (n, t) in zip(node.args, fields, strict=True))
    return Call(field.type, "struct", tuple(values), node.span)


def _interval(e: Literal, field: Field) -> Literal:
    """A text in quotes as a column of intervals has it."""
    assert isinstance(e.value, str)
    found = read_interval(e.value)
    if found is None:
        title = f"column {field.name} is INTERVAL, and '{e.value}' is not an interval"
        raise mistake("FQ2005", title, e.span, "not an interval", help="write  INTERVAL '5' MINUTE")
    return Literal(SPAN, interval_text((found.months, found.days, found.micros)), e.span)


def _assignable(source: SqlType, target: SqlType) -> bool:
    if source.is_numeric and target.is_numeric:
        return True
    if source.kind in _DATES and target.kind in _DATES:
        return (source.kind, target.kind) != (Kind.MICROS, Kind.TIMESTAMP)  # parts of a millisecond would be lost
    return target.kind is Kind.STRING and source.kind is not Kind.BYTES


def _refuse(node: Ast, e: Expr, field: Field, why: str = "") -> NoReturn:
    span = getattr(node, "span", NOWHERE)
    title = f"column {field.name} is {field.type}, the value is {e.type}{why}"
    help = f"write  CAST(... AS {field.type})"
    if e.type.kind is Kind.MICROS and field.type.kind is Kind.TIMESTAMP:
        help = f"declare the column {finer(field.type)}, or write  CAST(... AS {field.type}(3))  to round"
    raise mistake("FQ2005", title, span, f"this is {e.type}", help=help)


def _computed(e: Expr) -> Expr:
    """A conversion of a literal as a literal; one that fails stays, and is reported with others."""
    if not isinstance(e, Call) or len(e.args) != 1 or not (e.name == "cast" or e.name.startswith("sql_to_")):
        return e
    (given,) = e.args
    if not isinstance(given, Literal):
        return e
    try:
        (value,) = _conversion(e.name, given.type, e.type)((given.value,))
    except (*FAILURES, _Failed):
        return e
    return e if isinstance(value, (list, dict)) else Literal(e.type, value, e.span)


class _Failed(Exception):
    """A conversion has no value."""


@functools.lru_cache(maxsize=1_000)
def _conversion(name: str, source: SqlType, target: SqlType) -> RowFunction:
    """The function of a conversion: made once, as thousands of values may follow."""
    return compile_row([Call(target, name, (Column(source, "v"),))], ["v"], on_error=_fail)


def _fail(_index: int, error: Exception) -> None:
    raise _Failed from error

"""Values of VALUES, SET and DEFAULT as their columns store them: assignment, which converts less than CAST does."""

from __future__ import annotations

import functools
from typing import NoReturn

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import kept
from flowql.compiler.dialect.ast import Ast, Func
from flowql.compiler.dialect.standard.tree import is_row
from flowql.compiler.functions import assignment
from flowql.compiler.functions.casts import can_cast
from flowql.compiler.functions.coercion import convert
from flowql.compiler.functions.evaluate import RowFunction, compile_row
from flowql.compiler.functions.interval_texts import read_interval
from flowql.compiler.functions.registry import FAILURES
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.sql_intervals import interval_text
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import SPAN, Kind, SqlType


def assigned(node: Ast, binder: Binder, field: Field) -> Expr:
    """`node` as a value of the column, by the assignment of the dialect. Constants are computed. Raises CompileError.

    In standard SQL that is `flowql.compiler.functions.assignment`, in ksqlDB's the conversion of its INSERT VALUES.
    """
    if not binder.standard:
        return _in_ksql(binder.bind(node), field, node)
    if is_row(node) and field.type.kind is Kind.STRUCT:
        return _row(node, binder, field)
    if isinstance(node, Func) and node.name == "array" and not node.args and field.type.kind is Kind.ARRAY:
        return Call(field.type, "array", (), node.span)  # it has no element that tells its type
    e = kept(binder.bind(node)) if field.type == SPAN else binder.bind(node)
    if field.type == SPAN and isinstance(e, Literal) and isinstance(e.value, str):
        e = _interval(e, field)
    made = stored(e, field.type)
    if made is None:
        _refuse(node, e, field)
    return made


def stored(e: Expr, to: SqlType) -> Expr | None:
    """`e` as a value of a column of standard SQL; a constant is computed unless that fails. None if it needs a CAST. Intervals are for the caller."""
    made = assignment.assigned(e, to)
    return None if made is None else _computed(made)


def _in_ksql(e: Expr, field: Field, node: Ast) -> Expr:
    """Numbers widen and never lose a fraction, texts are read as what the column is, literals of any type become texts."""
    if isinstance(e, Call) and e.name == "cast" and e.type == field.type:
        return e
    to_text = field.type.kind is Kind.STRING and e.type.kind is not Kind.STRING and not isinstance(e, Literal)
    loses = e.type.kind in (Kind.DECIMAL, Kind.DOUBLE) and field.type.kind in (Kind.INT, Kind.BIGINT)
    unknown = field.type.kind is Kind.STRUCT and any(field.type.field(n) is None for n, _ in e.type.fields)
    span = node.span
    if loses or unknown or to_text or not can_cast(e.type, field.type):
        title = f"expected type {field.type} for column {field.name}, got {e.type}"
        raise mistake("FQ2005", title, span, f"this is {e.type}")
    try:
        return convert(e, field.type)
    except FunctionTypeError as problem:
        raise mistake("FQ2005", f"column {field.name}: {problem}", span, f"not a {field.type}") from None


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


def _refuse(node: Ast, e: Expr, field: Field) -> NoReturn:
    span = node.span
    title = f"column {field.name} is {field.type}, the value is {e.type}"
    raise mistake("FQ2005", title, span, f"this is {e.type}", help=assignment.advice(e.type, field.type))


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

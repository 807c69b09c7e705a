"""One type for several expressions: elements of ARRAY, values of MAP, the list of IN, branches of CASE.

Literals adapt to their company: a text literal beside numbers is read as a number (`ARRAY[1, '2']`). In ksqlDB's dialect a number
literal beside text columns becomes text; standard SQL has no common type for them (`strict`). Columns widen among numbers, and in standard
SQL among dates and timestamps: a date is its midnight, and a timestamp without a zone is one of UTC. Structs take the union of their fields.
The analyzer calls `unify` on bound expressions, because types alone cannot tell a literal from a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from flowql.compiler.functions.casts import can_cast, caster, parse_boolean_exact, parse_decimal
from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN
from flowql.compiler.functions.signatures import FunctionTypeError, common_numeric
from flowql.compiler.functions.sql_calendar import common_moment
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.types import (
    BIGINT,
    DATE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)

# A text literal whose type its company decides; never leaves this module.
_WEAK = SqlType(Kind.NULL, precision=1)
_TEMPORAL = frozenset({Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
_MOMENTS = (DATE, TIMESTAMP, TIMESTAMPTZ)  # in standard SQL each becomes those behind it


def unify(exprs: Sequence[Expr], *, strict: bool = False) -> tuple[SqlType, tuple[Expr, ...]]:
    """The common type and the expressions converted to it. Raises FunctionTypeError. All NULL gives NULL.

    strict: as in standard SQL no number or truth value becomes a text, and dates and timestamps have a common type.
    """
    if not exprs:
        return NULL, ()
    common = _solid(_merge_all([_loose(e, strict) for e in exprs], exprs, strict))
    return common, tuple(convert(e, common) for e in exprs)


def convert(e: Expr, target: SqlType) -> Expr:
    """`e` as a `target`: literals are rewritten, constructors converted inside, the rest is cast."""
    if e.type == target:
        return e
    if isinstance(e, Literal):
        return _convert_literal(e, target)
    if isinstance(e, Call) and e.name in ("array", "map", "struct") and e.type.kind is target.kind:
        return _convert_constructor(e, target)
    if not can_cast(e.type, target):
        raise FunctionTypeError(f"operator does not exist: {target} = {e.type}", "add an explicit CAST")
    return Call(target, "cast", (e,))


def _convert_literal(e: Literal, target: SqlType) -> Expr:
    if e.value is None:
        return replace(e, type=target)
    if e.type.kind is Kind.STRING and isinstance(e.value, str) and (target.is_numeric or target.kind is Kind.BOOLEAN):
        return _parse_literal(e, e.value, target)
    if not can_cast(e.type, target):
        raise FunctionTypeError(f"operator does not exist: {target} = {e.type}", "add an explicit CAST")
    try:
        return replace(e, type=target, value=caster(e.type, target)(e.value))
    except (ValueError, ArithmeticError):
        return Call(target, "cast", (e,))  # fails when it runs, as a column of that value would


def _parse_literal(e: Literal, text: str, target: SqlType) -> Expr:
    try:
        value = parse_boolean_exact(text) if target.kind is Kind.BOOLEAN else parse_decimal(text)
    except ValueError as problem:
        kind = "INTEGER" if target.kind is Kind.INT else target.kind.value
        raise FunctionTypeError(f'invalid input syntax for type {kind}: "{text}"') from problem
    if isinstance(value, bool):
        return replace(e, type=target, value=value)
    number = _number_literal(e, value)
    return number if number.type == target else _convert_literal(number, target)


def _number_literal(e: Literal, value: Decimal) -> Literal:
    """A number read from text: an integer if it is written as one, else a DECIMAL ('2e1' is one without a scale, as in ksqlDB)."""
    if not value.as_tuple().exponent and BIGINT_MIN <= value <= BIGINT_MAX:
        n = int(value)
        return replace(e, type=INT if INT_MIN <= n <= INT_MAX else BIGINT, value=n)
    return replace(e, type=_text_number_type(value), value=value)


def _convert_constructor(e: Call, target: SqlType) -> Expr:
    if e.name == "array":
        return Call(target, "array", tuple(convert(a, target.element) for a in e.args), e.span)
    if e.name == "map":
        return Call(target, "map", tuple(convert(a, target.args[i % 2]) for i, a in enumerate(e.args)), e.span)
    given = {n: a for (n, _), a in zip(e.type.fields, e.args, strict=True)}
    fields = (convert(given.get(n, Literal(NULL, None)), t) for n, t in target.fields)
    return Call(target, "struct", tuple(fields), e.span)


def _loose(e: Expr, strict: bool) -> SqlType:
    """The type of `e` with text literals left open, also inside constructors."""
    if isinstance(e, Literal) and e.type == STRING:
        return _WEAK
    if isinstance(e, Call) and e.name == "array" and e.args:
        return array(_merge_all([_loose(a, strict) for a in e.args], e.args, strict))
    if isinstance(e, Call) and e.name == "map" and e.args:
        parts = (e.args[i::2] for i in (0, 1))
        return map_of(*(_merge_all([_loose(a, strict) for a in part], part, strict) for part in parts))
    if isinstance(e, Call) and e.name == "struct":
        return struct(*((n, _loose(a, strict)) for (n, _), a in zip(e.type.fields, e.args, strict=True)))
    return e.type


def _solid(t: SqlType) -> SqlType:
    if t == _WEAK:
        return STRING
    return replace(t, args=tuple(map(_solid, t.args)), fields=tuple((n, _solid(f)) for n, f in t.fields))


def _merge_all(types: Sequence[SqlType], exprs: Sequence[Expr], strict: bool) -> SqlType:
    common = NULL
    for t, e in zip(types, exprs, strict=True):
        if t == _WEAK and common.is_numeric:
            t = _weak_number(e, common)
        merged = _merge(common, t, strict)
        if merged is None and not strict:
            merged = _text(common, t, e, exprs)
        if merged is None:
            raise FunctionTypeError(f"operator does not exist: {_solid(common)} = {_solid(t)}", "add an explicit CAST")
        common = merged
    return common


def _text(common: SqlType, t: SqlType, e: Expr, exprs: Sequence[Expr]) -> SqlType | None:
    """STRING where ksqlDB makes literals of any simple type texts: beside a text column."""
    beside = isinstance(e, Literal) and common.kind is Kind.STRING
    return STRING if beside or (t.kind is Kind.STRING and _all_literal_before(exprs, e)) else None


def _all_literal_before(exprs: Sequence[Expr], e: Expr) -> bool:
    before = exprs[: next(i for i, x in enumerate(exprs) if x is e)]
    return all(isinstance(x, Literal) for x in before)


def _weak_number(e: Expr, common: SqlType) -> SqlType:
    """The type a text literal has among numbers; the error names the type that was expected."""
    assert isinstance(e, Literal)
    if e.value is None:  # CAST(NULL AS STRING)
        return common
    assert isinstance(e.value, str)
    _parse_literal(e, e.value, common)
    return _number_literal(e, parse_decimal(e.value)).type


def _text_number_type(value: Decimal) -> SqlType:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return decimal(min(38, max(len(digits) + max(0, int(exponent)), scale)), min(38, scale))


def _merge(a: SqlType, b: SqlType, strict: bool) -> SqlType | None:
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if _WEAK in (a, b):
        other = b if a == _WEAK else a
        simple = other.is_numeric or other.kind in (Kind.BOOLEAN, Kind.STRING) or other.kind in _TEMPORAL
        return other if simple else None
    if strict and a in _MOMENTS and b in _MOMENTS:
        return max(a, b, key=_MOMENTS.index)
    if strict and (moment := common_moment(a, b)) is not None:
        return moment
    if a.kind is not b.kind or a.kind is Kind.DECIMAL:
        return common_numeric(a, b)
    if a.kind is Kind.STRUCT:
        return _merge_structs(a, b, strict)
    parts = [_merge(x, y, strict) for x, y in zip(a.args, b.args, strict=True)]
    return None if not parts or None in parts else replace(a, args=tuple(p for p in parts if p is not None))


def _merge_structs(a: SqlType, b: SqlType, strict: bool) -> SqlType | None:
    fields: list[tuple[str, SqlType]] = []
    for name, t in a.fields:
        other = b.field(name)
        merged = t if other is None else _merge(t, other, strict)
        if merged is None:
            return None
        fields.append((name, merged))
    return struct(*fields, *((n, t) for n, t in b.fields if a.field(n) is None))

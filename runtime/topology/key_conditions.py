"""The rows of its table that a statement reads: those of some keys, if its condition says which, or all."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from math import isnan, prod
from typing import Any

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, columns_of, conjuncts
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.tables import HIDDEN, ROW_NUMBER, TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import UUID, Kind, SqlType
from flowql.runtime.batch import Row

KEYS_MAX = 10_000  # a condition that leaves more is checked row by row
_ONE_FORM = (
    *(Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING),
    *(Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS),
)
_EQUAL, _IN, _OR = ("sql_eq", "eq"), "sql_in", "or"


class _Unknown(Exception):
    """The condition says nothing about the column."""


def keys_read(source: SourceDef, change: TableChange, selected: Sequence[Row] | None) -> list[Row] | None:
    """The keys of the rows that an UPDATE or DELETE reads; None if it reads all rows. selected: rows of the statement's query, if it has one."""
    if selected is None:
        return keys_of(source, change.where)
    key = source.schema.key
    return [row[: len(key)] for row in selected] if _chosen_by_key(source) else None


def reads_text(source: SourceDef, change: TableChange) -> str:
    """The rows of its table that a statement reads, in words."""
    if change.kind == "insert":
        if source.schema.get(ROW_NUMBER) is not None:
            return "reads no rows"
        return "looks up the keys of its query" if change.select else f"looks up {_keys(len(change.rows))}"
    if change.select:
        by_key = _chosen_by_key(source)
        return (
            "looks up the keys that its query chooses" if by_key else "reads all rows, for those that its query chooses"
        )
    keys = keys_of(source, change.where)
    return "reads all rows" if keys is None else f"looks up {_keys(len(keys))}"


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count:,} keys"


def _chosen_by_key(source: SourceDef) -> bool:
    """Whether the query of a statement tells the rows to change apart by their key."""
    return source.identity == tuple(f.name for f in source.schema.key)


def keys_of(source: SourceDef, where: Expr | None) -> list[Row] | None:
    """Values of the key columns of all rows that can meet the condition; None if the condition does not say.

    A row with such a key may still fail the condition.
    """
    fields = source.schema.key
    if where is None or any(f.name.startswith(HIDDEN) for f in fields):
        return None
    found: dict[str, list[Any]] = {}
    for part in conjuncts(where):
        try:
            name, values = _values(part, fields)
        except _Unknown:
            continue
        before = found.get(name)
        found[name] = values if before is None else [v for v in before if v in values]
    if found.keys() != {f.name for f in fields} or prod(map(len, found.values())) > KEYS_MAX:
        return None
    return list(product(*(found[f.name] for f in fields)))


def _values(e: Expr, fields: Sequence[Field]) -> tuple[str, list[Any]]:
    """A key column and the values that it must have one of. Raises _Unknown."""
    if not isinstance(e, Call):
        raise _Unknown
    if e.name == _OR:
        parts = [_values(a, fields) for a in e.args]
        if len({name for name, _ in parts}) != 1:
            raise _Unknown
        return parts[0][0], list(dict.fromkeys(v for _, values in parts for v in values))
    if e.name not in (*_EQUAL, _IN):
        raise _Unknown
    column, *constants = e.args if isinstance(e.args[0], Column) else reversed(e.args)
    field = next((f for f in fields if isinstance(column, Column) and f.name == column.name), None)
    if field is None or (e.name == _IN and column is not e.args[0]) or columns_of(*constants):
        raise _Unknown
    if not _has_one_form(field.type) or any(_as(c.type) != _as(field.type) for c in constants):
        raise _Unknown
    values = [_as_stored(v, field) for v in _evaluated(constants)]
    return field.name, list(dict.fromkeys(v for v in values if v is not None))


def _evaluated(constants: Sequence[Expr]) -> Row:
    if all(isinstance(c, Literal) for c in constants):
        return tuple(c.value for c in constants if isinstance(c, Literal))
    try:
        return compile_row(constants, [], on_error=_failed, constants_apart=True)(())
    except Exception as error:  # the condition fails where it is checked, if a row is there
        raise _Unknown from error


def _failed(_index: int, error: Exception) -> None:
    raise _Unknown from error


def _has_one_form(t: SqlType) -> bool:
    """Whether equal values of the type are stored alike."""
    return t.kind in _ONE_FORM and t.form in ("", UUID.form)


def _as(t: SqlType) -> tuple[Kind, str]:
    return t.kind, t.form


def _as_stored(value: Any, field: Field) -> Any:
    """The value of a key column that equals a constant; None if no value does. Raises _Unknown for NaN."""
    if value is None:
        return None
    kind = field.type.kind
    if kind is Kind.DECIMAL:
        scaled = Decimal(value).quantize(Decimal(1).scaleb(-field.type.scale)) if _fits(value, field) else None
        return scaled if scaled == value else None
    if kind is Kind.DOUBLE:
        if isnan(value):
            raise _Unknown
        return float(value) + 0.0  # zero has no sign
    return value


def _fits(value: Any, field: Field) -> bool:
    return abs(Decimal(value)) < Decimal(10) ** (field.type.precision - field.type.scale)

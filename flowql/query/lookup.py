"""Conditions as keys: which part of a store an interactive query can need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from flowql.compiler.functions.json_values import uuid_text
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import STRING, UUID, Kind
from flowql.query.statement import Condition, Literal
from flowql.runtime.state.rows import Key

POINTS_MAX = 10_000  # more keys than this are read as a range
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Points:
    """A set of single keys."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Keys with low <= key < high; None is open."""

    low: Key | None = None
    high: Key | None = None


def access(key: Sequence[Field | None], conditions: Iterable[Condition]) -> Points | Range:
    """The least part of a store known to hold every row that meets the conditions. key: its key parts, None = no column."""
    by_column: dict[str, list[Condition]] = {}
    for c in conditions:
        by_column.setdefault(c.column, []).append(c)
    fixed: list[list[Any]] = []
    for part in key:
        values = None if part is None else _equal(part, by_column.get(part.name.casefold(), ()))
        if values is None:
            break
        fixed.append(values)
    count = 1
    for values in fixed:
        count *= len(values)
    if len(fixed) == len(key) and key and count <= POINTS_MAX:
        return Points(tuple(product(*fixed)))
    prefix: list[Any] = []
    for values in fixed:
        if len(values) != 1:
            break
        prefix.append(values[0])
    return _range(tuple(prefix), key, by_column)


def _range(prefix: Key, key: Sequence[Field | None], by_column: dict[str, list[Condition]]) -> Range:
    low, high = prefix, (*prefix[:-1], _after(prefix[-1])) if prefix else None
    part = key[len(prefix)] if len(prefix) < len(key) else None
    for c in by_column.get(part.name.casefold(), ()) if part is not None else ():
        assert part is not None
        bounds = [_value(part, v) for v in c.values]
        if any(b is None for b in bounds):
            continue
        if c.operator == "=":
            low, high = (*prefix, min(bounds)), (*prefix, _after(max(bounds)))
        elif c.operator in (">", ">="):
            low = (*prefix, bounds[0])
        elif c.operator == "<":
            high = (*prefix, bounds[0])
        elif c.operator == "<=":
            high = (*prefix, _after(bounds[0]))
    return Range(low or None, high)


def _equal(part: Field, conditions: Iterable[Condition]) -> list[Any] | None:
    """The values a key part can have; None for any."""
    found: list[Any] | None = None
    for c in conditions:
        if c.operator != "=":
            continue
        values = [_value(part, v) for v in c.values]
        if all(v is not None for v in values):
            values = list(dict.fromkeys(values))
            found = values if found is None else [v for v in found if v in values]
    return found


def _value(part: Field, literal: Literal) -> Any:
    """A literal as a key part; None where DuckDB would compare in another type than the key's."""
    if part.type.kind in (Kind.INT, Kind.BIGINT) and literal.kind == "INTEGER":
        number = int(literal.text)
        return number if _INT64_MIN <= number < _INT64_MAX else None
    if part.type == STRING and literal.kind == "STRING":
        return literal.text
    if part.type == UUID and literal.kind == "STRING":
        try:
            return uuid_text(literal.text)
        except ValueError:
            return None
    return None


def _after(value: Any) -> Any:
    """The least value above: keys are ordered as their values."""
    return value + 1 if isinstance(value, int) else value + "\0"

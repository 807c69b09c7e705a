"""What one way says to one statement, and whether two ways say the same."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Row = tuple[Any, ...]
RELATIVE, DIGITS = 1e-12, Decimal("1e-15")
NAN = "NaN"


@dataclass(frozen=True, slots=True)
class Answer:
    """rows: those that are there, as plain values. refused: the statement is not taken. failed: a row has no value. text: why."""

    kind: Literal["rows", "refused", "failed"]
    rows: tuple[Row, ...] = ()
    types: tuple[str, ...] = ()
    text: str = ""

    @property
    def code(self) -> str:
        return self.text.split(" ", 1)[0]


def of_table(table: pa.Table) -> Answer:
    columns = [list(map(_value, _plain(c))) for c in table.columns]
    rows = tuple(zip(*columns, strict=True)) if columns else ((),) * table.num_rows
    return Answer("rows", rows, tuple(str(f.type).replace("large_", "") for f in table.schema))


def of_values(rows: Sequence[Sequence[Any]]) -> Answer:
    """Rows of Python's values, whose types are not known."""
    return Answer("rows", tuple(tuple(_value(_time(v)) for v in row) for row in rows))


def _time(v: Any) -> Any:
    match v:
        case datetime():
            since = v.replace(tzinfo=None) - datetime(1970, 1, 1)
            return ("at", (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
        case date():
            return ("day", (v - date(1970, 1, 1)).days)
        case list():
            return [_time(x) for x in v]
    return v


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Moments as microseconds since 1970: years that Python does not know are values, too."""
    if pa.types.is_timestamp(column.type):
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(column.type.unit, 1)
        return [("at", v * factor) if v is not None else None for v in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_date(column.type):
        return [("day", v) if v is not None else None for v in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_list(column.type):
        flat = pc.list_flatten(column)
        if pa.types.is_timestamp(flat.type) or pa.types.is_date(flat.type):
            values = iter(_plain(flat))
            lengths = pc.list_value_length(column).to_pylist()
            return [None if n is None else [next(values) for _ in range(n)] for n in lengths]
    found: list[Any] = column.to_pylist()
    return found


def _value(v: Any) -> Any:
    """A value that is equal to another one exactly if both are the same: doubles bit by bit."""
    match v:
        case bool() | None | str() | bytes():
            return v
        case float():
            return NAN if math.isnan(v) else Double(v)
        case int() | Decimal():
            return Decimal(v).normalize() + 0 if v else Decimal(0)
        case dict():
            return tuple((k, _value(x)) for k, x in v.items())
        case list() | tuple():
            return tuple(map(_value, v)) if not (v and v[0] in ("at", "day")) else tuple(v)
    return v


@dataclass(frozen=True, slots=True)
class Double:
    """Equal to the same bits."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Double) and struct.pack("d", self.value) == struct.pack("d", other.value)

    def __hash__(self) -> int:
        return hash(struct.pack("d", self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def difference(a: Answer, b: Answer, *, close: bool = False, types: bool = True) -> str:
    """What kind of difference there is between two answers; empty if there is none.

    close: numbers may differ in their last digits. types: of columns count, too.
    """
    if "refused" in (a.kind, b.kind):
        return ""
    if a.kind != b.kind:
        return f"{'fails' if a.kind == 'failed' else 'rows'} against {'fails' if b.kind == 'failed' else 'rows'}"
    if a.kind == "failed":
        return ""
    if types and len(a.types) != len(b.types):
        return f"{len(a.types)} columns against {len(b.types)}"
    left, right = missing(a.rows, b.rows, close=close)
    if left or right:
        return _kind(left, right)
    if types and not close and a.types != b.types:
        pairs = {f"{x} against {y}" for x, y in zip(a.types, b.types, strict=True) if x != y}
        return "types: " + ", ".join(sorted(pairs))
    return ""


def missing(a: Sequence[Row], b: Sequence[Row], *, close: bool) -> tuple[list[Row], list[Row]]:
    """The rows of each that the other has not."""
    there, here = Counter(a), Counter(b)
    left, right = list((there - here).elements()), list((here - there).elements())
    if close:
        for row in list(left):
            found = next((r for r in right if len(r) == len(row) and all(map(near, row, r))), None)
            if found is not None:
                left.remove(row)
                right.remove(found)
    return left, right


def near(a: Any, b: Any) -> bool:
    """Whether PostgreSQL's value is ours: to 1e-12, its decimals have other digits, and its zero has one sign in some places."""
    match a, b:
        case Double(), Double():
            return a.value == b.value or math.isclose(a.value, b.value, rel_tol=RELATIVE, abs_tol=RELATIVE)
        case Decimal(), Decimal():
            return a == b or abs(a - b) <= max(abs(a), abs(b), Decimal(1)) * DIGITS
        case tuple(), tuple():
            return len(a) == len(b) and all(map(near, a, b))
    return bool(a == b)


def _kind(left: list[Row], right: list[Row]) -> str:
    if len(left) != len(right):
        return "other rows"
    kinds = set[str]()
    for a, b in zip(sorted(left, key=repr), sorted(right, key=repr), strict=True):
        kinds |= {_of_value(x, y) for x, y in zip(a, b, strict=True) if x != y}
    return "other values: " + ", ".join(sorted(kinds))


def _of_value(a: Any, b: Any) -> str:
    if a is None or b is None:
        return "NULL"
    if isinstance(a, Double) and isinstance(b, Double):
        return "bits of a double" if near(a, b) else "double"
    name, other = (type(v).__name__.lower() for v in (a, b))
    return name if name == other else f"{name}/{other}"

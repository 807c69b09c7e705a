"""Compares as values the rows whose bytes differ: pairs that are equal after all, and differences worth showing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.log.base import Log
from flowql.verify.leftover import Bytes, StreamLeftover, TableLeftover, stream_leftover, table_leftover
from flowql.verify.report import SHOWN, Row, RowDifference, SinkReport
from flowql.verify.values import Canonical, Columns, canonical, close

ROWTIME = "ROWTIME"
_PAIRS_MAX = 10_000


def compare_sink(source: SourceDef, first: Log, second: Log, tolerance: float) -> SinkReport:
    """One result in two logs: a table by its final rows, a stream as a multiset of (key, value, time)."""
    if source.kind == "table":
        return compare_tables(source, table_leftover(first, second, source.topic), tolerance)
    return compare_streams(source, stream_leftover(first, second, source.topic), tolerance)


# Tables.


@dataclass(slots=True)
class _Pair:
    """A key of a table with its values in both results."""

    key: Row
    first: Bytes = None
    second: Bytes = None


def compare_tables(source: SourceDef, left: TableLeftover, tolerance: float) -> SinkReport:
    columns = Columns(source)
    pairs: dict[Any, _Pair] = {}
    for key, first, second in left.records:  # the same key may be spelled in two ways
        row = columns.key(key)
        shape = canonical(row)
        pair = pairs.setdefault((shape.shape, shape.doubles), _Pair(row))
        pair.first = first if first is not None else pair.first
        pair.second = second if second is not None else pair.second
    missing: list[RowDifference] = []
    extra: list[RowDifference] = []
    different: list[RowDifference] = []
    for pair in pairs.values():
        one, two = columns.value(pair.first), columns.value(pair.second)
        found = RowDifference(pair.key, one, two)
        if two is None:
            missing.append(found)
        elif one is None:
            extra.append(found)
        elif not canonical(one).same(canonical(two), tolerance):
            different.append(found)
    examples = (*different[:SHOWN], *missing[:SHOWN], *extra[:SHOWN])
    return SinkReport(source.name, "table", left.rows, len(missing), len(extra), len(different), examples)


# Streams.


@dataclass(frozen=True, slots=True)
class _Appended:
    """One record of a stream."""

    key: Row
    value: Row | None
    time: int
    form: Canonical


def compare_streams(source: SourceDef, left: StreamLeftover, tolerance: float) -> SinkReport:
    """Records are equal when key, value and time are; DOUBLEs within the tolerance, whatever their order."""
    columns = Columns(source)
    sides: tuple[dict[Any, list[_Appended]], dict[Any, list[_Appended]]] = {}, {}
    for key, value, time, n in left.records:
        key_row, value_row = columns.key(key), columns.value(value)
        record = _Appended(key_row, value_row, time, canonical((key_row, value_row, time)))
        sides[0 if n > 0 else 1].setdefault(record.form.shape, []).extend([record] * abs(n))
    missing: list[_Appended] = []
    extra: list[_Appended] = []
    for shape in dict.fromkeys((*sides[0], *sides[1])):
        ones, twos = _unmatched(sides[0].get(shape, []), sides[1].get(shape, []), tolerance)
        missing += ones
        extra += twos
    return SinkReport(source.name, "stream", left.rows, len(missing), len(extra), 0, tuple(_resembling(missing, extra)))


def _unmatched(
    ones: Sequence[_Appended], twos: Sequence[_Appended], tolerance: float
) -> tuple[list[_Appended], list[_Appended]]:
    """Records of one shape that find no partner. In order of their DOUBLEs, partners stand at the same place."""
    left, right = (sorted(side, key=lambda r: r.form.doubles) for side in (ones, twos))
    missing: list[_Appended] = []
    extra: list[_Appended] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i].form.doubles, right[j].form.doubles
        if all(close(x, y, tolerance) for x, y in zip(a, b, strict=True)):
            i, j = i + 1, j + 1
        elif a < b:
            missing.append(left[i])
            i += 1
        else:
            extra.append(right[j])
            j += 1
    return _pairwise(missing + left[i:], extra + right[j:], tolerance)


def _pairwise(
    missing: list[_Appended], extra: list[_Appended], tolerance: float
) -> tuple[list[_Appended], list[_Appended]]:
    """Partners the order has missed: several DOUBLEs of which the first are nearly equal. Each with each, while they are few."""
    if not missing or not extra or len(missing) * len(extra) > _PAIRS_MAX:
        return missing, extra
    alone: list[_Appended] = []
    for record in missing:
        at = next((n for n, other in enumerate(extra) if record.form.same(other.form, tolerance)), None)
        if at is None:
            alone.append(record)
        else:
            extra = extra[:at] + extra[at + 1 :]
    return alone, extra


def _resembling(missing: Sequence[_Appended], extra: Sequence[_Appended]) -> Iterable[RowDifference]:
    """The first differences; a missing record beside an extra one of its key and time, if there is one."""
    waiting: dict[Any, list[_Appended]] = {}
    for record in extra:
        waiting.setdefault(_place(record), []).append(record)
    found: list[RowDifference] = []
    for record in missing:
        partners = waiting.get(_place(record))
        partner = partners.pop(0) if partners else None
        found.append(_shown(record, record, partner))
    alone = [_shown(r, None, r) for records in waiting.values() for r in records]
    both = [d for d in found if d.second is not None]
    return (*both[:SHOWN], *[d for d in found if d.second is None][:SHOWN], *alone[:SHOWN])


def _place(record: _Appended) -> Any:
    form = canonical((record.key, record.time))
    return form.shape, form.doubles


def _shown(at: _Appended, first: _Appended | None, second: _Appended | None) -> RowDifference:
    def value(r: _Appended | None) -> Row | None:
        return None if r is None else (r.value if r.value is not None else {})

    return RowDifference({**at.key, ROWTIME: at.time}, value(first), value(second))

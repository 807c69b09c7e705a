"""Expected against found, in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.testing.case import Expected, Finding, Row
from flowql.testing.run import RunResults
from flowql.testing.times import as_shown, is_time

SHOWN_MAX = 12  # rows of a kind in a report
_CLOSE = 1e-9  # of sums of DOUBLE, whose last digits depend on the order of rows


def findings(expect: Sequence[Expected], state: Sequence[Expected], outcome: RunResults) -> list[Finding]:
    """The expectations that a test run does not meet."""
    found = []
    for e in expect:
        name = next((n for n in (e.name, e.name.upper(), e.name.lower()) if n in outcome.records), None)
        if name is None:
            found.append(_unknown(e, outcome.records, "result"))
            continue
        if name in outcome.views:
            found += _of_view(_typed(e, outcome.final[name]), outcome.final[name])
            continue
        table = e.order == "any" and name in outcome.final
        actual = outcome.final[name] if table else outcome.records[name]
        found += _compared(_typed(e, actual), actual)
    for e in state:
        if e.name not in outcome.state:
            found.append(_unknown(e, outcome.state, "store"))
        else:
            found += _compared(e, outcome.state[e.name])
    return found


def _typed(e: Expected, actual: Sequence[Row]) -> Expected:
    """The expectation with the types of the result, so that both show times alike."""
    types = actual[0].types if actual else {}
    return replace(e, rows=tuple(replace(r, types=types) for r in e.rows))


def _unknown(e: Expected, known: Mapping[str, Any], what: str) -> Finding:
    hint = did_you_mean(e.name, list(known)) or (f"there are {listing(sorted(known))}" if known else "")
    return Finding(f"there is no {what} `{e.name}`{'; ' + hint if hint else ''}", (), e)


def _of_view(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    """The rows of a view over tables that change, as they are at the end."""
    if any(r.tombstone for r in e.rows):
        title = (
            f"{e.name} is a view over tables, which is compared by its rows at the end: leave out rows that are deleted"
        )
        return [Finding(title, (), e, tuple(actual))]
    return _as_set(e, actual)


def _compared(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    return _in_order(e, actual) if e.order == "exact" else _as_set(e, actual)


def _in_order(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    for n, (want, got) in enumerate(zip(e.rows, actual, strict=False)):
        if not matches(want, got):
            lines = [f"record {n + 1}", *_pair(want, got)]
            return [Finding(f"{e.name}: record {n + 1} is another", tuple(lines), e, tuple(actual))]
    if len(e.rows) == len(actual):
        return []
    extra = actual[len(e.rows) :]
    rest = [f"  - {text(r)}" for r in e.rows[len(actual) :]] or [f"  + {text(r)}" for r in extra]
    title = f"{e.name}: {len(e.rows)} records expected, {len(actual)} found"
    return [Finding(title, tuple(rest[:SHOWN_MAX]), e, tuple(actual))]


def _as_set(e: Expected, actual: Sequence[Row]) -> list[Finding]:
    missing, left = [], list(actual)
    for want in sorted(e.rows, key=lambda r: -len(r.values)):  # the most precise ones choose first
        got = next((r for r in left if matches(want, r)), None)
        if got is None:
            missing.append(want)
        else:
            left.remove(got)
    if not missing and not left:
        return []
    lines: list[str] = []
    for want in [r for r in e.rows if any(r is m for m in missing)][:SHOWN_MAX]:
        near = _nearest(want, left)
        lines += _pair(want, near) if near is not None else [f"  - {text(want)}   expected, not found"]
        left = [r for r in left if r is not near]
    lines += [f"  + {text(r)}   found, not expected" for r in left[:SHOWN_MAX]]
    title = (
        f"{e.name}: {_count(len(e.rows), 'row')} expected, {len(actual)} found, {_count(len(missing), 'row')} missing"
    )
    return [Finding(title, tuple(lines), e, tuple(actual))]


def _nearest(want: Row, left: Sequence[Row]) -> Row | None:
    """The row that agrees in most columns, if it agrees in any."""
    scored = [(sum(_same(v, _value(r, c)) for c, v in want.values.items()), -n) for n, r in enumerate(left)]
    best = max(scored, default=(0, 0))
    return left[-best[1]] if best[0] else None


def _pair(want: Row, got: Row) -> list[str]:
    """Two rows that should be the same, and the columns in which they are not."""
    wrong = [
        f"{c}: {_shown_as(want, c, v)} expected, {_found(got, c)}"
        for c, v in want.values.items()
        if not _same(v, _value(got, c)) or not _has(got, c)
    ]
    if want.tombstone != got.tombstone:
        wrong.append("a deletion expected" if want.tombstone else "a deletion found")
    if want.rowtime_ms is not None and want.rowtime_ms != got.rowtime_ms:
        wrong.append(f"ROWTIME: {want.rowtime_ms} expected, {got.rowtime_ms} found")
    return [f"  - {text(want)}", f"  + {text(got)}", f"      {'; '.join(wrong)}"]


def matches(want: Row, got: Row) -> bool:
    """Whether a row is as expected, in the columns that the expectation names."""
    if want.tombstone != got.tombstone or (want.rowtime_ms is not None and want.rowtime_ms != got.rowtime_ms):
        return False
    return all(_same(v, _value(got, c)) for c, v in want.values.items())


def _value(row: Row, column: str) -> Any:
    """By the column's name as written, else as an unquoted name."""
    return row.values.get(column, row.values.get(column.upper()))


def _has(row: Row, column: str) -> bool:
    return column in row.values or column.upper() in row.values


def _found(got: Row, column: str) -> str:
    if got.tombstone or _has(got, column):
        return f"{_shown_as(got, column, _value(got, column))} found"
    hint = did_you_mean(column.upper(), got.values)
    return f"there is no such column{'; ' + hint if hint else ''}"


def _same(want: Any, got: Any) -> bool:
    if isinstance(want, bool) or isinstance(got, bool) or want is None or got is None:
        return want is got
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(_same(v, got[k]) for k, v in want.items())
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(_same, want, got))
    if isinstance(want, float) and isinstance(got, (int, float, Decimal)):
        return math.isclose(want, got, rel_tol=_CLOSE) or (math.isnan(want) and math.isnan(got))
    if isinstance(want, (int, float, Decimal)) or isinstance(got, (int, float, Decimal)):
        try:
            return Decimal(str(want)) == Decimal(str(got))
        except InvalidOperation:
            return isinstance(want, str) and isinstance(got, int) and is_time(want, got)
    return bool(want == got)


def text(row: Row) -> str:
    """A row on a line.

    >>> text(Row({"K": 1}, tombstone=True))
    'K=1 deleted'
    """
    parts = [f"{c}={_shown_as(row, c, v)}" for c, v in row.values.items()]
    if row.rowtime_ms is not None:
        parts.append(f"ROWTIME={row.rowtime_ms}")
    return " ".join([*parts, "deleted"] if row.tombstone else parts)


def _shown_as(row: Row, column: str, value: Any) -> str:
    """A date or time as a text, as commands print it."""
    type_ = row.types.get(column) or row.types.get(column.upper())
    return _shown(value if type_ is None else as_shown(value, type_))


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    plain = isinstance(value, str) and value and " " not in value
    return str(value) if plain else json.dumps(value, ensure_ascii=False, default=str)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"

"""Tests in YAML: one test per file, or several under `tests`.

name: counts per key
given:
  ORDERS:
    - {ID: 1, AMOUNT: 5, ROWTIME: 2026-01-01T00:00:00Z}
    - {ID: 1, TOMBSTONE: true}
expect:
  TOTALS:
    - {ID: 1, N: 1}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import yaml

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item, Reader, compose, made, under
from flowql.config.shape import Anything, Choice, Fragment, Key, ListOf, MapOf, Record, Text, Whole
from flowql.config.texts import ProjectTexts, Variables
from flowql.testing.case import Case, Expected, ExpectedError, Given, Order, Row

_LIST = ListOf(Anything())
_EXPECTED = MapOf(
    Record(
        "expectation",
        {
            "rows": Key(_LIST, "The rows, with the columns that matter."),
            "order": Key(Choice(("any", "exact")), "`exact`: every record in order, deletions included."),
        },
        short="rows",
    ),
    "a stream or table",
)
TEST = Record(
    "test",
    {
        "name": Key(Text("a name"), "What the test shows."),
        "given": Key(MapOf(_LIST, "a stream or table"), "Rows of sources, by source."),
        "when": Key(Fragment("SQL statements", script=True), "Statements beside those of the project."),
        "expect": Key(_EXPECTED, "Rows of results, by stream or table."),
        "expect_state": Key(_EXPECTED, "Rows of internal stores, by store."),
        "expect_error": Key(
            Record(
                "error",
                {
                    "code": Key(Text("a code"), "Such as FQ2001."),
                    "line": Key(Whole(1), "Line in its file."),
                    "column": Key(Whole(1), "Column in its file."),
                    "text": Key(Text("a string"), "A part of the message."),
                },
                short="code",
            ),
            "What the statements are refused with.",
        ),
        "partitions": Key(Whole(1, 1000), "Of the topics of sources."),
        "arrival": Key(Choice(("time", "any")), "`any`: try other orders in which sources may be read, too."),
    },
)
FILE = Record("test file", {**TEST.keys, "tests": Key(ListOf(TEST), "Several tests.")})


def read_yaml(path: str, text: str, places: ProjectTexts) -> tuple[list[Case], list[Diagnostic]]:
    """The tests of a file, and every mistake in it."""
    places.add_file(path, text)
    node, problems = compose(path, text)
    if node is None:
        return [], problems
    reader = Reader(path, text, places, Variables({}, {}))
    item = reader.read(node, FILE, "test file")
    if item is None:
        return [], reader.diagnostics
    return [_case(path, n, i) for n, i in enumerate(_tests(item), 1)], reader.diagnostics


def _tests(item: Item) -> Iterator[Item]:
    if "tests" in item.value:
        yield from item.value["tests"].value
    if any(k in item.value for k in ("given", "expect", "expect_state", "expect_error", "when")):
        yield item


def _case(path: str, number: int, item: Item) -> Case:
    keys: Mapping[str, Item] = item.value
    return Case(
        file=path,
        line=item.span.line,
        given=tuple(Given(name, _rows(rows), rows.key) for name, rows in under(keys, "given").items()),
        expect=tuple(_expected(name, i) for name, i in under(keys, "expect").items()),
        state=tuple(_expected(name, i) for name, i in under(keys, "expect_state").items()),
        error=made(ExpectedError, keys["expect_error"].value) if "expect_error" in keys else None,
        **{
            "name": f"test {number}",
            **{k: keys[k].value for k in ("name", "when", "partitions", "arrival") if k in keys},
        },
    )


def _expected(name: str, item: Item) -> Expected:
    keys: Mapping[str, Item] = item.value
    rows = keys.get("rows")
    order: Order = keys["order"].value if "order" in keys else "any"
    return Expected(name, _rows(rows) if rows else (), order, item.key, rows.at if rows else None)


def _rows(item: Item) -> tuple[Row, ...]:
    return tuple(map(_row, item.value))


def _row(item: Item) -> Row:
    values = dict(item.value) if isinstance(item.value, dict) else {"": item.value}
    rowtime, tombstone, raw = values.pop("ROWTIME", None), values.pop("TOMBSTONE", False), values.pop("RAW", None)
    return Row(
        {k: _plain(v) for k, v in values.items()},
        None if rowtime is None else milliseconds(rowtime),
        bool(tombstone),
        None if raw is None else str(raw).encode(),
        item.span,
    )


def milliseconds(value: Any) -> int:
    """A time as ms since 1970: a number, or a date and time in ISO-8601 (UTC unless it says so).

    >>> milliseconds("1970-01-01T00:00:01Z")
    1000
    """
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return round(at.timestamp() * 1000)
    return int(value)


def _plain(value: Any) -> Any:
    """Values as JSON has them: YAML knows dates of its own."""
    if isinstance(value, datetime):
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return at.replace(tzinfo=None).isoformat(timespec="microseconds" if at.microsecond % 1000 else "milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def rows_text(rows: list[dict[str, Any]], indent: int | None) -> str:
    """Rows as the block list that stands at this indentation, or as a list in brackets if there is none."""
    written = [{c: _number(v) for c, v in r.items()} for r in rows]
    lines = [yaml.safe_dump(r, default_flow_style=True, sort_keys=False, width=10_000).strip() for r in written]
    if not rows or indent is None:
        return f"[{', '.join(lines)}]"
    return ("\n" + " " * indent).join(f"- {line}" for line in lines)


def _number(value: Any) -> Any:
    """A DECIMAL as a number, or as a text where a number of YAML would lose digits."""
    if not isinstance(value, Decimal):
        return value
    return float(value) if Decimal(repr(float(value))) == value else str(value)

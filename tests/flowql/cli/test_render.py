"""Values and tables as they are written."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from flowql.cli.options import Output
from flowql.cli.render import json_value, print_rows
from flowql.cli.results import write_answer
from flowql.query.answer import Answer


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1E+3"), "1000"),
        (Decimal("0.10"), "0.10"),
        (b"\x00\xff", "AP8="),
        (datetime(2026, 1, 2, 3, 4, 5, 678_000), "2026-01-02T03:04:05.678Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_901), "2026-01-02T03:04:05.678901Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:00:00.000Z"),
        (date(2026, 1, 2), "2026-01-02"),
        (math.nan, "nan"),
        ({"A": [Decimal(1), None]}, {"A": ["1", None]}),
        ([("k", b"x")], {"k": "eA=="}),
        (True, True),
    ],
)
def test_json_values(value: Any, expected: Any) -> None:
    assert json_value(value) == expected


def table() -> pa.Table:
    return pa.table(
        {
            "N": pa.array([1, None], pa.int64()),
            "Amount": pa.array([Decimal("1.50"), Decimal("-2.00")]),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("ms")),
            "s": pa.array(["x, y", "[bold]"]),
        }
    )


def print_arrow(table: pa.Table, *, output: str) -> None:
    """In pieces of one row, as answers come."""
    write_answer(Answer(table.schema, (b for b in table.to_batches(1))), Output(output))


@pytest.mark.parametrize("output", ["json", "csv", "table"])
def test_no_output_cuts_microseconds(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_arrow(pa.table({"at": [datetime(1969, 12, 31, 23, 59, 59, 123_456)]}), output=output)
    assert "1969-12-31T23:59:59.123456Z" in capsys.readouterr().out


def test_rows_as_json_are_one_array_of_objects(capsys: pytest.CaptureFixture[str]) -> None:
    print_arrow(table(), output="json")
    assert json.loads(capsys.readouterr().out) == [
        {"N": 1, "Amount": "1.50", "at": "2026-01-01T00:00:00.000Z", "s": "x, y"},
        {"N": None, "Amount": "-2.00", "at": None, "s": "[bold]"},
    ]
    print_rows(("A",), [], output="json")
    assert json.loads(capsys.readouterr().out) == []


def test_rows_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    print_arrow(table(), output="csv")
    assert capsys.readouterr().out == 'N,Amount,at,s\n1,1.50,2026-01-01T00:00:00.000Z,"x, y"\n,-2.00,,[bold]\n'


def test_rows_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_arrow(table(), output="table")
    assert capsys.readouterr().out.splitlines() == [
        "   N  Amount  at                        s",
        "   1    1.50  2026-01-01T00:00:00.000Z  x, y",
        "NULL   -2.00  NULL                      [bold]",
    ]


def test_rows_as_arrow(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_arrow(table(), output="arrow")
    assert pa.ipc.open_stream(capfdbinary.readouterr().out).read_all() == table()

"""Values of Python, frames and JSON documents: what SQL stores of the same value, or refused. They are never cut off or rounded by halves."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from flowql.errors import CommandError
from flowql.topics.import_values import Values
from flowql.topics.producing import RowWriter
from tests.assignment.postgres import REFUSED
from tests.assignment.routes import Refused, Ways

MS = datetime(2024, 1, 1, 12, 0, 0, 123_000)
# Type of the column -> the value, and how SQL writes it.
VALUES: dict[str, list[tuple[Any, str]]] = {
    "INT": [
        *((2.7, "2.7"), (2.5, "2.5e0"), (3e9, "3e9"), (2**31, "2147483648"), (12.0, "12.0"), (12, "12"), (True, "TRUE"), (None, "NULL")),
        *((Decimal("2.5"), "2.5"), (Decimal("12.0"), "12.0"), ("12", "'12'"), (" 12 ", "' 12 '"), ("2.7", "'2.7'"), ("abc", "'abc'")),
        *((float("nan"), "CAST('NaN' AS DOUBLE PRECISION)"), (date(2024, 1, 1), "DATE '2024-01-01'")),
    ],
    "NUMERIC(5, 2)": [
        *((Decimal("123.45"), "123.45"), (Decimal("123.456"), "123.456"), (1000, "1000"), (1, "1"), (True, "TRUE"), ("12.345", "'12.345'")),
        *((123.456, "CAST(123.456 AS DOUBLE PRECISION)"), (Decimal("999.995"), "999.995")),
    ],
    "DOUBLE PRECISION": [(1, "1"), ("NaN", "'NaN'"), ("1.5", "'1.5'"), (True, "TRUE"), (0.1, "0.1")],
    "TEXT": [(12, "12"), (True, "TRUE"), ("ä", "'ä'"), (date(2024, 1, 2), "DATE '2024-01-02'")],
    "BOOLEAN": [(True, "TRUE"), (1, "1"), (0, "0"), ("yes", "'yes'"), ("maybe", "'maybe'"), (date(2024, 1, 1), "DATE '2024-01-01'")],
    "DATE": [
        *(("2024-02-29", "'2024-02-29'"), ("2023-02-29", "'2023-02-29'"), (date(1969, 12, 31), "DATE '1969-12-31'")),
        *((datetime(2024, 1, 1, 5), "TIMESTAMP '2024-01-01 05:00:00'"), (datetime(1969, 12, 31), "TIMESTAMP '1969-12-31'")),
    ],
    "TIMESTAMP(3)": [
        *((MS, "TIMESTAMP '2024-01-01 12:00:00.123'"), (MS.replace(microsecond=123_456), "TIMESTAMP '2024-01-01 12:00:00.123456'")),
        *((datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), "TIMESTAMPTZ '2024-01-01 12:00:00+02'"),),
        *((datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "TIMESTAMPTZ '1969-12-31 23:59:59+00'"), (date(2024, 1, 1), "DATE '2024-01-01'")),
    ],
    "TIME": [(time(12, 34), "TIME '12:34'"), (time(12, 34, 0, 5), "'12:34:00.000005'")],
    "INT[]": [([2.7], "ARRAY[2.7]"), ([1, None], "ARRAY[1, NULL]"), ([2**31], "ARRAY[2147483648]"), ([Decimal("2.5")], "ARRAY[2.5]")],
}  # fmt: skip


@pytest.mark.parametrize("column", VALUES)
def test_a_value_of_python_is_that_of_sql_or_refused(column: str) -> None:
    ways, taken = Ways(column), 0
    try:
        for value, sql in VALUES[column]:
            wanted = _outcome(lambda sql=sql: ways.stream(sql))
            for name, rows in (("dict", [{"id": 1, "v": value}]), ("frame", _frame(value)), ("JSON", None)):
                found = _outcome(lambda rows=rows, value=value: _written(ways, rows, value))
                assert found in (wanted, REFUSED), f"{value!r} of a {name} in {column} is {found}, and {wanted} in SQL"
                taken += found not in (None, REFUSED)
    finally:
        ways.close()
    assert taken > 1


def _frame(value: Any) -> pa.Table:
    return pa.table({"id": [1], "v": pa.array([value])})


def _written(ways: Ways, rows: Any, value: Any) -> str | None:
    """rows: None for a JSON document of the value."""
    if rows is not None:
        (batch,) = RowWriter(ways.source).records(rows)
        return ways.read(batch.column("value")[0].as_py())
    if value != value or not all(
        isinstance(v, bool | int | float | str | None) for v in (value if isinstance(value, list) else [value])
    ):
        raise Refused("no value of JSON")
    values = Values(ways.source, "jsonl")
    document = pa.array([json.dumps({"id": 1, "v": value}).encode()])
    made, bad = values.judge(pa.array([0]), pa.array([None], pa.binary()), values.encode(document)[0])
    if bad:
        raise Refused(bad[0])
    return ways.read(made[0].as_py())


def _outcome(way: Any) -> str | None:
    try:
        found: str | None = way()
    except (Refused, CommandError):
        return REFUSED
    return found

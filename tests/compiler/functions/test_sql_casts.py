"""Casts of standard SQL: DuckDB rounds alike; texts are those that PostgreSQL writes and reads."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, compile_project
from flowql.compiler.functions.sql_casts import FALSE, TRUE, sql_cast
from flowql.compiler.plan.expr import Call
from flowql.compiler.plan.logical import Project, walk_nodes
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, SqlType, decimal
from tests.compiler.functions.test_sql_arithmetic import run

NUMBERS: list[tuple[SqlType, SqlType, list[Any]]] = [
    (
        DOUBLE,
        INT,
        [0.5, 1.5, 2.5, -0.5, -2.5, 2147483647.4, 2147483647.5, -2147483648.5, 1e20, math.nan, -math.inf, None],
    ),
    (DOUBLE, BIGINT, [0.5, -1.5, 4503599627370497.5, 2.0**63, -(2.0**63), math.inf]),
    (BIGINT, INT, [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1]),
    (
        decimal(12, 2),
        INT,
        [Decimal("2.50"), Decimal("-2.50"), Decimal("2.49"), Decimal("2147483647.49"), Decimal("2147483647.50")],
    ),
    (
        decimal(38, 1),
        BIGINT,
        [Decimal(2**63 - 1) + Decimal("0.4"), Decimal(2**63 - 1) + Decimal("0.5"), Decimal("0.5")],
    ),
]


@pytest.mark.parametrize(("source", "target", "values"), NUMBERS, ids=str)
def test_numbers_are_rounded_and_checked(source: SqlType, target: SqlType, values: list[Any]) -> None:
    db = duckdb.connect()
    sql = {"INT": "INTEGER", "BIGINT": "BIGINT"}[target.kind.value]
    for v in values:
        (expected,) = db.execute(f"SELECT TRY_CAST(CAST(? AS {source}) AS {sql})", [v]).fetchone() or ()
        wanted = "error" if expected is None and v is not None else expected
        assert run(sql_cast(source, target), (source,), (v,)) == wanted, v


def test_truth_values_are_read_exactly() -> None:
    assert all(run("sql_to_boolean", (STRING,), (w.upper(),)) is True for w in TRUE)
    assert all(run("sql_to_boolean", (STRING,), (f" {w} ",)) is False for w in FALSE)
    with pytest.raises(AssertionError):  # ValueError, which `run` takes for no arithmetic
        run("sql_to_boolean", (STRING,), ("maybe",))
    assert [run("sql_to_boolean", (INT,), (v,)) for v in (0, 1, -5, None)] == [False, True, True, None]
    assert [run("sql_to_int", (BOOLEAN,), (v,)) for v in (False, True)] == [0, 1]


@pytest.mark.parametrize(
    ("v", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (2.0, "2"),
        (0.1, "0.1"),
        (-1234.5, "-1234.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (123456789012345.0, "123456789012345"),
        (1e15, "1e+15"),
        (1.5e300, "1.5e+300"),
        (5e-324, "5e-324"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_doubles_are_written_as_postgresql_writes_them(v: float, text: str) -> None:
    assert run("sql_to_text", (DOUBLE,), (v,)) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2024-05-01 12:00:00", "2024-05-01 12:00:00"),
        ("2024-05-01T12:00:00.120", "2024-05-01 12:00:00.12"),
        ("2024-05-01", "2024-05-01 00:00:00"),
    ],
)
def test_moments_are_read_and_written_with_a_blank(text: str, shown: str) -> None:
    assert run("sql_to_text", (TIMESTAMP,), (run("sql_to_timestamp", (STRING,), (text,)),)) == shown


@pytest.mark.parametrize(("dialect", "wanted"), [("standard", "sql_to_int"), ("ksql", "cast")])
def test_each_dialect_has_its_cast(dialect: DialectName, wanted: str) -> None:
    text = "CREATE STREAM s (k INT KEY, d DOUBLE) WITH (kafka_topic='s', value_format='JSON'); CREATE STREAM o AS SELECT k, CAST(d AS INT) AS i FROM s;"
    result = compile_project([SourceText("s.sql", text)], dialect=dialect)
    assert result.ok
    specs = [n.spec for n in walk_nodes(result.plan.queries[0].logical)]
    found = [c.expr.name for s in specs if isinstance(s, Project) for c in s.columns if isinstance(c.expr, Call)]
    assert found == [wanted]
    assert sql_cast(STRING, INT) == sql_cast(INT, BIGINT) == ""

"""Functions of standard SQL as PostgreSQL's manual describes them, at their edges."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from tests.compiler.functions.test_sql_values import bound, evaluated

NULLS = "CAST(NULL AS INT)"


def value(text: str) -> object:
    (found,) = evaluated(bound(text))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 << 31", -(2**31)),
        ("1 << 32", 1),
        ("(-1) >> 40", -1),
        ("CAST(1 AS BIGINT) << 40", 2**40),
        ("2147483647 # -1", -(2**31)),
        ("~(-1)", 0),
        ("@ (-5)", 5),
        ("2 = ANY (ARRAY[1, NULL])", None),
        ("1 = ANY (ARRAY[1, NULL])", True),
        ("2 <> ALL (ARRAY[1, NULL])", None),
        ("1 <> ALL (ARRAY[1, NULL])", False),
        (f"{NULLS} = ANY (CAST('{{}}' AS INT[]))", False),
        ("1 < ALL (CAST('{}' AS INT[]))", True),
        ("CAST('{1, NULL, \"3\"}' AS INT[])", [1, None, 3]),
        ("CAST('{{1,2},{3,4}}' AS INT[][])", [[1, 2], [3, 4]]),
        ("CAST('{a b , \"c,\\\"d\", null, \"NULL\"}' AS TEXT[])", ["a b", 'c,"d', None, "NULL"]),
        ("ARRAY[1, 2] || 3", [1, 2, 3]),
        ("0 || ARRAY[1]", [0, 1]),
        ("ARRAY[1] || ARRAY[2] || '{3,4}'", [1, 2, 3, 4]),
        ("ARRAY_APPEND(CAST(NULL AS INT[]), 1)", [1]),
        ("ARRAY_POSITION(ARRAY[1, NULL], NULL)", 2),
        ("ARRAY[1, 2] @> ARRAY[2, 2]", True),
        ("DIV(-7, 2)", -3),
        ("GCD(0, 0)", 0),
        ("TRY_CAST('x' AS INT)", None),
        ("TRY_CAST('12' AS SMALLINT)", 12),
        ("TRY_CAST(70000 AS SMALLINT)", None),
        ("TRY(1 / 0)", None),
        ("COALESCE(TRY_CAST('2024-02-30' AS DATE), DATE '2024-03-01') = DATE '2024-03-01'", True),
        ("WIDTH_BUCKET(5.35, 10.06, 0.024, 5)", 3),
        ("FORMAT('%2$s %s|%1$-3s|%s|%%|%I %L', 'a', 'b', 'x y', 'select', 'it''s')", "b x y|a  |b|%|\"x y\" 'select'"),
        ("(1, NULL) < (2, 3)", True),
        ("(1, NULL) < (1, 3)", None),
        ("(TIME '01:00', TIME '02:00') OVERLAPS (TIME '02:00', TIME '03:00')", False),
        ("(TIME '02:00', TIME '01:00') OVERLAPS (TIME '01:30', CAST(NULL AS TIME))", True),
        ("(TIME '01:00', CAST(NULL AS TIME)) OVERLAPS (TIME '02:00', TIME '03:00')", None),
        ("TIMESTAMPDIFF(MONTH, TIMESTAMP '2024-03-31 10:00', TIMESTAMP '2024-02-29 11:00')", -1),
        ("TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-03-31 10:00:01', TIMESTAMP '2024-03-31 10:00:00.5')", 0),
        ("FLOOR(TIMESTAMP '2024-05-05 10:59' TO HOUR) = TIMESTAMP '2024-05-05 10:00'", True),
    ],
)  # fmt: skip
def test_a_function_gives_what_postgresql_gives(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    ["CAST('{1,,2}' AS INT[])", "CAST('{1' AS INT[])", "CAST('1,2' AS INT[])", "CAST('{1}}' AS INT[])", "CAST('{{1},2}' AS INT[][])",
     "CAST('{{1}}' AS INT[])", "CAST('{x}' AS INT[])", "CAST('{1} {2}' AS INT[])", "ARRAY['a'] || 'b'", "LCM(2147483647, 2)", "DIV(1, 0)",
     "FACTORIAL(34)", "FORMAT('%x', 1)", "FORMAT('%s')", "WIDTH_BUCKET(1, 1, 1, 3)", "TIMESTAMPDIFF('AGE', TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-01')"],
)  # fmt: skip
def test_a_constant_that_has_no_value_is_refused(text: str) -> None:
    with pytest.raises(CompileError) as refused:
        bound(text)
    assert refused.value.diagnostics[0].code == "FQ2026"


@pytest.mark.parametrize(
    ("frame", "named"),
    [("RANGE 10 PRECEDING", "INTERVAL"), ("ROWS INTERVAL '1' DAY PRECEDING", "RANGE over times"), ("RANGE INTERVAL '1' MONTH PRECEDING", "months")],
)  # fmt: skip
def test_the_distance_of_a_range_over_times_is_an_interval(frame: str, named: str) -> None:
    session = Session(dialect="standard")
    session.execute(SourceText("t.sql", "CREATE TABLE t (i INT, z TIME)"))
    with pytest.raises(CompileError, match=named):
        session.execute(SourceText("v.sql", f"CREATE VIEW v AS SELECT SUM(i) OVER (ORDER BY z {frame}) AS s FROM t"))

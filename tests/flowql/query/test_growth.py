"""Functions that make as much of a row as a number says: limited, and otherwise exactly those of DuckDB."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

from flowql.query.errors import REFUSED, TOO_LARGE, QueryError
from flowql.query.growth import MACROS, MADE_MAX, REPLACED_MAX
from flowql.query.session import evaluate
from tests.flowql.query.harness import QueryHarness

SQL = "CREATE STREAM S (K STRING KEY, V STRING) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');"
# Arguments of each, within the limit: all signatures, both directions, dates, NULL in each position.
WITHIN = [
    "repeat('ab', 3)", "repeat('ä', 10000)", "repeat('', 5)", "repeat('ab', -1)", "repeat('a'::BLOB, 3)", "repeat([1, 2], 3)", "'x'.repeat(2)",
    "repeat(NULL, 3)", "repeat('a', NULL)",
    "lpad('a', 5, 'xy')", "rpad('a', 10000, '.')", "lpad('abc', 2, ' ')", "lpad(NULL, 2, ' ')", "rpad('a', NULL, ' ')", "rpad('a', 5, NULL)",
    "range(5)", "range(10000)", "range(-3)", "range(2, 5)", "range(5, 2)", "range(5, 1, -2)", "range(1, 5, -1)", "range(NULL)", "range(NULL, 3)",
    "range(1, NULL)", "range(1, 3, NULL)", "range(0, 9000000000000000000, 1000000000000000)", "generate_series(3)", "generate_series(1, 3)",
    "generate_series(7, 1, -3)", "generate_series(DATE '2024-01-01', DATE '2024-03-01', INTERVAL 1 DAY)",
    "generate_series(TIMESTAMP '2024-02-01', TIMESTAMP '2023-01-01', INTERVAL '-1 month')",
    "range(TIMESTAMPTZ '2024-01-01 00:00:00+00', TIMESTAMPTZ '2025-03-01 00:00:00+00', INTERVAL 100 DAY)",
    "list_resize([1], 3)", "array_resize([1], 3, 7)", "list_resize([1, 2], 0)", "list_resize(NULL, 3)", "list_resize([1], NULL)",
    "bitstring('0110', 8)", "printf('%5d|%-9s|%.3f %% 100000', 7, 'x', 1.5)", "format('{:>5} {{100000}} {:.2f}', 1, 2.5)",
    "[x * 2 for x in range(3)]",
    "replace('abcabc', 'b', 'xy')", "replace('abc', '', 'xy')", "replace(NULL, 'b', 'x')", "replace('abc', NULL, 'x')", "replace('abc', 'b', NULL)",
    "length(replace(repeat('a', 9000), 'a', repeat('b', 5000)))", "regexp_replace('abcb', 'b', 'x')", "regexp_replace('abcb', 'b', 'x', 'g')",
    "regexp_replace('abcb', '([bc])', '<\\1>', 'g')", "regexp_replace('aBc', 'b', 'x', 'i')", "regexp_replace(NULL, 'b', 'x', 'g')",
    "regexp_replace('abc', 'b', NULL)",
]  # fmt: skip
BEYOND = [
    "repeat('ab', 1000000000)", "repeat('0123456789', 1001)", "repeat([1, 2], 100000000)", "lpad('a', 1000000000, 'b')",
    "rpad('a', 10001, 'b')", "range(1000000000)", "range(0, 10001)", "range(-9000000000000000000, 9000000000000000000)", "range(10001, 0, -1)",
    "generate_series(1000000000)", "generate_series(TIMESTAMP '1900-01-01', TIMESTAMP '2200-01-01', INTERVAL 1 SECOND)",
    "generate_series(TIMESTAMP '2200-01-01', TIMESTAMP '1900-01-01', INTERVAL '-1 second')", "list_resize([1], 1000000000)",
    "array_resize([1], 1000000000, 2)", "bitstring('1', 1000000000)", "replace(repeat('a', 9999), 'a', repeat('b', 9999))",
    "replace(replace(repeat('a', 9000), 'a', repeat('b', 5000)), 'b', 'cd')", "regexp_replace(repeat('a', 9999), '', repeat('b', 9999), 'g')",
]  # fmt: skip


@pytest.fixture(scope="module")
def world() -> QueryHarness:
    return QueryHarness(SQL)


def test_within_the_limit_they_are_those_of_duckdb(world: QueryHarness) -> None:
    plain = duckdb.connect()
    plain.execute("SET TimeZone = 'UTC'")
    for call in WITHIN:
        for sql in (f"SELECT {call} AS X", f"SELECT {call} AS X FROM range(2)"):
            assert evaluate(sql, world.commit).to_pylist() == plain.sql(sql).to_arrow_table().to_pylist(), call


@pytest.mark.parametrize("call", BEYOND)
@pytest.mark.parametrize("source", ["", " FROM range(3) AS R(N)", " WHERE 1 = 0 OR 1 = 1"])
def test_beyond_it_they_are_an_error_that_names_them(world: QueryHarness, call: str, source: str) -> None:
    with pytest.raises(QueryError, match=rf"{call.partition('(')[0]}\(\) makes at most [0-9,]+") as error:
        evaluate(f"SELECT length(({call})::VARCHAR) AS X{source}", world.commit)
    assert error.value.code == TOO_LARGE
    assert f"{REPLACED_MAX if 'replace' in call else MADE_MAX:,}" in error.value.title


@pytest.mark.parametrize(
    "call",
    [
        "system.main.repeat('a', 2)", "main.lpad('a', 2, 'b')", "printf('%100000d', 1)", "printf('%*d', 5, 1)", "printf(V, 1)",
        "format('{:>100000}', 1)", "format('{:>{}}', 1, 5)", "format('{:.100000f}', 1.5)", "format(V, 1)",
    ],
)  # fmt: skip
def test_what_would_get_around_it_is_refused(world: QueryHarness, call: str) -> None:
    with pytest.raises(QueryError) as error:
        evaluate(f"SELECT {call} FROM S", world.commit)
    assert error.value.code == REFUSED


def test_rows_have_no_such_limit(world: QueryHarness) -> None:
    sql = "SELECT COUNT(*) AS N FROM (SELECT * FROM range(100000)), (VALUES (20000)) AS V(M), generate_series(1, M) LIMIT 1"
    assert evaluate(sql, world.commit).to_pylist() == [{"N": 2_000_000_000}]


def test_beyond_it_nothing_is_made() -> None:
    """Constants are folded while a statement is planned, the inner calls first: a check around a call would come too late."""
    program = f"""
import duckdb, resource
from flowql.query.growth import MACROS
c = duckdb.connect()
for macro in MACROS:
    c.execute(macro)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for call in {BEYOND!r}:
    try:
        c.sql("SELECT " + call).fetchall()
    except duckdb.InvalidInputException:
        pass
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000  # kB
"""
    assert MACROS
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

"""Standard SQL: the same SELECT over the same rows in DuckDB, whatever pieces the rows arrive in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.testing.case import Case, Given, Row
from flowql.testing.feed import records_of, timings
from flowql.testing.run import partitions_of, run

SEED = int(os.environ.get("FLOWQL_SEED", "11"))
STREAM = "CREATE STREAM s (k VARCHAR KEY, g INT, v INT, t VARCHAR, b BOOLEAN) WITH (kafka_topic='s', partitions={p}, value_format='JSON', key_format='JSON');"
TABLE = "CREATE TABLE r (k VARCHAR PRIMARY KEY, g INT, name VARCHAR) WITH (kafka_topic='r', partitions={p}, value_format='JSON', key_format='JSON');"

# One SELECT each, as both read it. `s` is a stream of rows with NULLs, `r` a table whose rows change and go.
QUERIES = {
    "distinct": "SELECT g, COUNT(DISTINCT v) AS a, COUNT(v) AS c, MIN(DISTINCT v) AS m FROM s GROUP BY g",
    "distinct of an expression": "SELECT g, COUNT(DISTINCT v % 3) AS a, COUNT(DISTINCT UPPER(t)) AS d FROM s GROUP BY g",
    "filter": "SELECT g, COUNT(*) FILTER (WHERE v > 3) AS a, COUNT(t) FILTER (WHERE b) AS c, "
    "MAX(v) FILTER (WHERE t = 'x' OR b IS NULL) AS m, COUNT(*) AS n FROM s GROUP BY g",
    "filter and distinct": "SELECT g, COUNT(DISTINCT t) FILTER (WHERE v BETWEEN 1 AND 6) AS a FROM s GROUP BY g",
    "filter in having": "SELECT g, COUNT(*) AS n FROM s GROUP BY g HAVING COUNT(*) FILTER (WHERE b) > 4",
    "unknown conditions": "SELECT k, v, t FROM s WHERE NOT (v = 3) AND v NOT IN (1, g) AND g NOT BETWEEN v AND 1",
    "a list with NULL": "SELECT k, v FROM s WHERE v NOT IN (1, NULL) OR v = 2",
    "unknown in having": "SELECT t, SUM(v) AS a FROM s GROUP BY t HAVING NOT (SUM(v) = 4) AND MAX(g) <> 0",
    "unknown beside a join": "SELECT s.k AS k, s.v, r.g AS h FROM s JOIN r ON s.k = r.k AND NOT (s.t = r.name)",
    "sums of nothing": "SELECT k, t, SUM(v) AS a, AVG(v) AS m, MIN(v) AS l, COUNT(v) AS n FROM s GROUP BY k, t",
    "texts with NULL": "SELECT k, t || 'x' AS a, t || NULL AS c, COALESCE(t || name, k) AS d FROM "
    "(SELECT s.k AS k, s.t AS t, r.name AS name FROM s LEFT JOIN r ON s.k = r.k)",
    "filter over a table": "SELECT g, COUNT(*) FILTER (WHERE name <> 'x') AS a, COUNT(*) AS n FROM r GROUP BY g",
    "nested": "SELECT k, v + 1 AS w FROM (SELECT k, v, t FROM s WHERE v > 2) WHERE t IS NOT NULL",
    "nested with an alias": "SELECT x.k, x.w * 2 AS w2 FROM (SELECT k, v + g AS w FROM s) AS x WHERE x.w > 5",
    "nested twice": "SELECT k, n FROM (SELECT k, v AS n, b FROM (SELECT k, v, b FROM s WHERE g = 1) WHERE v < 7) WHERE b",
    "a group of a nested query": "SELECT h, COUNT(*) AS n, SUM(w) AS s FROM (SELECT k, g % 2 AS h, v * 10 AS w FROM s WHERE v IS NOT NULL) GROUP BY h",
    "a group of groups": "SELECT n, COUNT(*) AS groups FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) GROUP BY n",
    "a sum of counts": "SELECT h, SUM(n) AS n FROM (SELECT g, g % 2 AS h, COUNT(DISTINCT v) AS n FROM s GROUP BY g) GROUP BY h",
    "a nested query without its key": "SELECT g, COUNT(DISTINCT v) AS n FROM (SELECT g, v FROM s WHERE t IS NOT NULL) GROUP BY g",
    "a nested group filtered": "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) WHERE n > 9",
    "a nested table": "SELECT g, COUNT(*) AS n FROM (SELECT k, g, name FROM r WHERE name IS NOT NULL) GROUP BY g",
    "a stream joined with a nested table": "SELECT s.k AS k, s.v, q.name FROM s JOIN (SELECT k, name FROM r WHERE g > 0) q ON s.k = q.k",
    "groups joined with a table": "SELECT q.k AS k, q.n, r.name FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) q LEFT JOIN r ON q.k = r.k",
    "groups joined with groups": "SELECT a.k AS k, a.n, c.m FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) a "
    "JOIN (SELECT k, COUNT(*) AS m FROM s WHERE v > 5 GROUP BY k) c ON a.k = c.k",
}

# As above, of windows; DuckDB has none, so its SELECT is another one. ts is the time of a row in ms.
_TUMBLE = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(rowtime), INTERVAL '20' MILLISECONDS))"
_HOP = "TABLE(HOP(TABLE s, DESCRIPTOR(rowtime), INTERVAL '10' MILLISECONDS, INTERVAL '30' MILLISECONDS))"
_HOPS = "(SELECT *, unnest([ts // 10 * 10, ts // 10 * 10 - 10, ts // 10 * 10 - 20]) AS w FROM s)"
WINDOWS = {
    "a group of windows": (
        f"SELECT g, COUNT(*) AS n, SUM(c) AS c FROM (SELECT g, window_start AS w, COUNT(*) AS c FROM {_TUMBLE} "
        "GROUP BY g, window_start, window_end) GROUP BY g",
        "SELECT g, COUNT(*) AS n, SUM(c) AS c FROM (SELECT g, ts // 20 AS w, COUNT(*) AS c FROM s GROUP BY ALL) GROUP BY g",
    ),
    "how many groups a window has": (
        f"SELECT w, COUNT(*) AS n, SUM(c) AS c FROM (SELECT k, CAST(EXTRACT(EPOCH FROM window_start) * 1000 AS BIGINT) AS w, COUNT(*) FILTER (WHERE b) AS c FROM {_HOP} "
        "GROUP BY k, window_start, window_end) GROUP BY w",
        f"SELECT w, COUNT(*) AS n, SUM(c) AS c FROM (SELECT k, w, COUNT(*) FILTER (WHERE b) AS c FROM {_HOPS} GROUP BY ALL) GROUP BY w",
    ),
}


def rows(chance: Random) -> tuple[list[Row], list[Row]]:
    """Of the stream, and changes of the table: all of them earlier, so that a join does not depend on when rows come."""
    stream, table = [], []
    for n in range(70):
        values = {
            "k": chance.choice("abcdefgh"),
            "g": chance.choice([0, 1, 2, 3]),
            "v": chance.choice([None, *range(9)]),
            "t": chance.choice([None, "x", "Y", "y", ""]),
            "b": chance.choice([None, True, False]),
        }
        stream.append(Row(values, 10_000 + n))
    for n in range(20):
        key = {"k": chance.choice("abcdefghij")}
        gone = chance.random() < 0.2
        others = {} if gone else {"g": chance.choice([0, 1, 2]), "name": chance.choice([None, "x", "y"])}
        table.append(Row(key | others, n, gone))
    return stream, table


def expected(select: str, stream: Sequence[Row], table: Sequence[Row]) -> tuple[list[str], Counter[tuple[Any, ...]]]:
    """The columns and rows that DuckDB gives."""
    last = {r.values["k"]: r for r in table}
    db = duckdb.connect()
    db.execute("CREATE TABLE s (k VARCHAR, g INT, v INT, t VARCHAR, b BOOLEAN, ts BIGINT)")
    db.execute("CREATE TABLE r (k VARCHAR, g INT, name VARCHAR)")
    db.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", [[*r.values.values(), r.rowtime_ms] for r in stream])
    db.executemany(
        "INSERT INTO r VALUES (?, ?, ?)", [list(r.values.values()) for r in last.values() if not r.tombstone]
    )
    found = db.execute(select)
    return [d[0].casefold() for d in found.description or ()], Counter(found.fetchall())


PAIRS = {n: (q, q) for n, q in QUERIES.items()} | WINDOWS


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("name", "partitions"), [*((n, 3) for n in PAIRS), *((n, 1) for n in list(PAIRS)[::3])])
def test_a_query_gives_what_duckdb_gives(name: str, partitions: int) -> None:
    print(f"FLOWQL_SEED={SEED}")
    ours, theirs = PAIRS[name]
    stream, table = rows(Random(SEED))
    columns, want = expected(theirs, stream, table)
    assert len(want) > 1
    plan = compiled(ours, partitions)
    read = {s.name: s for s in plan.sources}
    given = [Given(n, tuple(r)) for n, r in (("s", stream), ("r", table)) if n in read]
    case = Case(name, "", 1, tuple(given), partitions=partitions)
    sources = records_of(case, plan, partitions_of(case, plan))
    _, at_once, in_pieces = timings(case, sources, 1, SEED)
    outcome = run(case, plan, at_once if partitions == 1 else in_pieces, ())
    found = outcome.final["result"] if read["result"].kind == "table" else outcome.records["result"]
    assert Counter(tuple(_whole(r.values[c]) for c in columns) for r in found) == Counter(
        {tuple(map(_whole, row)): n for row, n in want.items()}
    )


def compiled(select: str, partitions: int = 1) -> Plan:
    text = (STREAM + TABLE).format(p=partitions) + f"CREATE VIEW result AS {select};"
    result = compile_project([SourceText("view.sql", text)], dialect="standard")
    assert result.ok, [f"{d.code} {d.title}" for d in result.diagnostics]
    return result.plan


def _whole(value: Any) -> Any:
    """One value for numbers that differ in type alone; DuckDB's averages are doubles."""
    if isinstance(value, Decimal):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize(
    ("select", "code", "said"),
    [
        ("SELECT g, COUNT(DISTINCT) AS a FROM s GROUP BY g", "FQ2005", "COUNT(DISTINCT x)"),
        ("SELECT g, COUNT(DISTINCT v, t) AS a FROM s GROUP BY g", "FQ2005", "COUNT(DISTINCT ROW("),
        ("SELECT g, COLLECT_LIST(v) AS a FROM s GROUP BY g", "FQ1901", "ARRAY_AGG(x)"),
        ("SELECT g, TOPK(v, 3) AS a FROM s GROUP BY g", "FQ1901", "ARRAY_AGG(x ORDER BY x DESC)"),
        ("SELECT k, EXPLODE(ARRAY[v, g]) AS a FROM s", "FQ1901", "UNNEST(array)"),
        ("SELECT g, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY g", "FQ1901", "FROM TUMBLE("),
        ("SELECT g, COUNT(*) AS n FROM s GROUP BY g EMIT FINAL", "FQ1901", "EMIT ON WINDOW CLOSE"),
        ("SELECT k, v FROM s PARTITION BY v", "FQ1901", "CREATE STREAM ... AS"),
        ("SELECT s.k, s.v FROM s JOIN s b WITHIN 1 HOUR ON s.k = b.k", "FQ1901", "compare the times in ON"),
        ("SELECT g, COUNT(*) FILTER (WHERE v) AS a FROM s GROUP BY g", "FQ2007", ""),
        ("SELECT k, UPPER(DISTINCT t) AS a FROM s", "FQ2020", "leave DISTINCT out"),
        ("SELECT k, w FROM (SELECT k, v FROM s) q", "FQ2002", "v"),
        ("SELECT k, v FROM (SELECT k, v FROM nowhere)", "FQ2001", ""),
        ("SELECT k, v FROM (SELECT v FROM s)", "FQ2002", "k"),
    ],
)
def test_what_cannot_be_says_what_to_write(select: str, code: str, said: str) -> None:
    text = (STREAM + TABLE).format(p=1) + f"\nCREATE VIEW result AS {select};"
    (found,) = compile_project([SourceText("view.sql", text)], dialect="standard").diagnostics
    assert found.code == code, found.title
    assert said in f"{found.title} {found.help}"
    assert found.span.line == 2


def test_a_view_of_a_table_is_a_table() -> None:
    assert {s.name: s.kind for s in compiled("SELECT k, name FROM r").sources}["result"] == "table"


def test_what_a_nested_query_reads_cannot_be_dropped() -> None:
    text = (STREAM + TABLE).format(p=1) + "CREATE VIEW result AS SELECT k, v FROM (SELECT k, v FROM s); DROP STREAM s;"
    (found,) = compile_project([SourceText("view.sql", text)], dialect="standard").diagnostics
    assert found.code == "FQ2051"

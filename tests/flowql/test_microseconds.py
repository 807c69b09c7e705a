"""TIMESTAMP(6) and TIMESTAMPTZ(6) in tables, views and interactive queries of standard SQL; the answers are PostgreSQL's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.query.errors import QueryError
from flowql.runtime.errors import StatementFailed
from tests.slt.rows import difference, rendered
from tests.slt.session import Shape, SqlSession

SETUP = """
CREATE TABLE t (id INT PRIMARY KEY, m TIMESTAMP(6), z TIMESTAMPTZ(6), ts TIMESTAMP, d DATE, i INTERVAL, x TEXT)
INSERT INTO t VALUES (1, '2024-01-01 00:00:00.123456', '2024-01-01 00:00:00.123456+01', '2024-01-01 00:00:00.123', '2024-01-01', '1 mon 0.000001 second', '2024-01-01 00:00:00.123456')
INSERT INTO t VALUES (2, '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999', '1969-12-31', '-0.000001 second', '1969-12-31 23:59:59.9995')
INSERT INTO t VALUES (3, NULL, NULL, NULL, NULL, NULL, NULL), (4, '0001-01-01', '9999-12-31 23:59:59.999999', '2024-01-01', '2024-01-01', '0', '2024-01-01')
""".strip().splitlines()
# Expressions, and what they are in the rows 1 to 4.
VALUES = {
    "m": ["2024-01-01 00:00:00.123456", "1969-12-31 23:59:59.999999", "NULL", "0001-01-01 00:00:00"],
    "z": ["2023-12-31 23:00:00.123456+00", "1969-12-31 23:59:59.999999+00", "NULL", "9999-12-31 23:59:59.999999+00"],
    "z::text": ["2023-12-31 23:00:00.123456+00", "1969-12-31 23:59:59.999999+00", "NULL", "9999-12-31 23:59:59.999999+00"],
    "array[m]::text": ['{"2024-01-01 00:00:00.123456"}', '{"1969-12-31 23:59:59.999999"}', "{NULL}", '{"0001-01-01 00:00:00"}'],
    "to_jsonb(z)": ['"2023-12-31T23:00:00.123456+00:00"', '"1969-12-31T23:59:59.999999+00:00"', "NULL", '"9999-12-31T23:59:59.999999+00:00"'],
    "to_char(m, 'SS.US MS FF1')": ["00.123456 123 1", "59.999999 999 9", "NULL", "00.000000 000 0"],
    "extract(microseconds from m)": ["123456", "59999999", "NULL", "0"],
    "extract(milliseconds from m)": ["123.456", "59999.999", "NULL", "0"],
    "extract(second from m)": ["0.123456", "59.999999", "NULL", "0"],
    "extract(epoch from m)": ["1704067200.123456", "-0.000001", "NULL", "-62135596800"],
    "date_trunc('microseconds', m)": ["2024-01-01 00:00:00.123456", "1969-12-31 23:59:59.999999", "NULL", "0001-01-01 00:00:00"],
    "date_trunc('milliseconds', m)": ["2024-01-01 00:00:00.123", "1969-12-31 23:59:59.999", "NULL", "0001-01-01 00:00:00"],
    "date_trunc('hour', z)": ["2023-12-31 23:00:00+00", "1969-12-31 23:00:00+00", "NULL", "9999-12-31 23:00:00+00"],
    "m + i": ["2024-02-01 00:00:00.123457", "1969-12-31 23:59:59.999998", "NULL", "0001-01-01 00:00:00"],
    "z - i": ["2023-11-30 23:00:00.123455+00", "1970-01-01 00:00:00+00", "NULL", "9999-12-31 23:59:59.999999+00"],
    "m - ts": ["00:00:00.000456", "00:00:00.000999", "NULL", "-738885 days"],
    "d - m": ["-00:00:00.123456", "-23:59:59.999999", "NULL", "738885 days"],
    "age(m, ts)": ["00:00:00.000456", "00:00:00.000999", "NULL", "-2023 years"],
    "m > ts": ["t", "t", "NULL", "f"],
    "m < d": ["f", "f", "NULL", "t"],
    "m >= '2024-01-01 00:00:00.123456'": ["t", "f", "NULL", "f"],
    "ts = '2024-01-01 00:00:00.123456'": ["f", "f", "NULL", "f"],
    "ts < '2024-01-01 00:00:00.123456'": ["t", "t", "NULL", "t"],
    "ts in ('2024-01-01 00:00:00.123456', '2024-01-01 00:00:00.123')": ["t", "f", "NULL", "f"],
    "m between '2024-01-01' and '2024-01-01 00:00:00.123456'": ["t", "f", "NULL", "f"],
    "m is distinct from z": ["t", "f", "f", "t"],
    "m::date": ["2024-01-01", "1969-12-31", "NULL", "0001-01-01"],
    "m::timestamp": ["2024-01-01 00:00:00.123456", "1969-12-31 23:59:59.999999", "NULL", "0001-01-01 00:00:00"],
    "m::timestamp(3)": ["2024-01-01 00:00:00.123", "1970-01-01 00:00:00", "NULL", "0001-01-01 00:00:00"],
    "m::timestamp(4)": ["2024-01-01 00:00:00.1235", "1970-01-01 00:00:00", "NULL", "0001-01-01 00:00:00"],
    "ts::timestamp(1)": ["2024-01-01 00:00:00.1", "1970-01-01 00:00:00", "NULL", "2024-01-01 00:00:00"],
    "x::timestamptz(6)": ["2024-01-01 00:00:00.123456+00", "1969-12-31 23:59:59.9995+00", "NULL", "2024-01-01 00:00:00+00"],
    "timestamp '1999-12-31 23:59:59.9995'::timestamp(3)": ["1999-12-31 23:59:59.999"] * 4,
    "timestamp(3) '2024-01-01 00:00:00.0005'": ["2024-01-01 00:00:00.001"] * 4,
    "coalesce(ts, m)": ["2024-01-01 00:00:00.123", "1969-12-31 23:59:59.999", "NULL", "2024-01-01 00:00:00"],
    "case when id = 1 then ts else '2024-01-01 00:00:00.123456' end": ["2024-01-01 00:00:00.123", *["2024-01-01 00:00:00.123456"] * 3],
    "greatest(m, ts, d)": ["2024-01-01 00:00:00.123456", "1969-12-31 23:59:59.999999", "NULL", "2024-01-01 00:00:00"],
    "m at time zone 'UTC'": ["2024-01-01 00:00:00.123456+00", "1969-12-31 23:59:59.999999+00", "NULL", "0001-01-01 00:00:00+00"],
    "date_bin('0.000007 second', m, timestamp '0001-01-01')": ["2024-01-01 00:00:00.123452", "1969-12-31 23:59:59.999996", "NULL", "0001-01-01 00:00:00"],
    "lag(m) over (order by id)": ["NULL", "2024-01-01 00:00:00.123456", "1969-12-31 23:59:59.999999", "NULL"],
}  # fmt: skip
QUERIES = {
    "SELECT MIN(m) AS a, MAX(m) AS b, COUNT(DISTINCT m) AS c, MAX(z) AS d FROM t WHERE id < 3": ["1969-12-31 23:59:59.999999 2024-01-01 00:00:00.123456 2 2023-12-31 23:00:00.123456+00"],
    "SELECT m, COUNT(*) AS n FROM t GROUP BY m": ["2024-01-01 00:00:00.123456 1", "1969-12-31 23:59:59.999999 1", "NULL 1", "0001-01-01 00:00:00 1"],
    "SELECT DISTINCT date_trunc('milliseconds', m) AS x FROM t WHERE id < 3": ["2024-01-01 00:00:00.123", "1969-12-31 23:59:59.999"],
    "SELECT id FROM t ORDER BY m DESC LIMIT 2": ["3", "1"],
    "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.m = b.z": ["2 2"],
    "SELECT a.id FROM t AS a JOIN t AS b ON a.ts = date_trunc('milliseconds', b.m)": ["1", "2"],
    "SELECT id, m FROM t WHERE id = 1 UNION ALL SELECT id, ts FROM t WHERE id = 4": ["1 2024-01-01 00:00:00.123456", "4 2024-01-01 00:00:00"],
    "SELECT id, MAX(m) OVER (PARTITION BY id % 2) AS x FROM t WHERE id < 4": ["1 2024-01-01 00:00:00.123456", "2 1969-12-31 23:59:59.999999", "3 2024-01-01 00:00:00.123456"],
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    for statement in SETUP:
        made.execute(statement)
    yield made
    made.close()


def test_views_and_interactive_queries_answer_as_postgresql(world: SqlSession) -> None:
    select = f"SELECT id, {', '.join(f'{e} AS v{i}' for i, e in enumerate(VALUES) if 'over' not in e)} FROM t"
    over = {f"SELECT id, {e} AS x FROM t": wanted for e, wanted in VALUES.items() if "over" in e}
    queries = QUERIES | {sql: [f"{id_} {v}" for id_, v in enumerate(wanted, 1)] for sql, wanted in over.items()}
    views = [f"CREATE VIEW v AS {select}", *(f"CREATE VIEW w{i} AS {sql}" for i, sql in enumerate(queries))]
    assert world.define(views) == [None] * len(views)
    wrong = []
    for sql in ("SELECT * FROM v", select):
        table = world.ask(sql)
        for i, (e, wanted) in enumerate(VALUES.items()):
            rows = [f"{id_} {value}" for id_, value in enumerate(wanted, 1)]
            found = rendered(table.select(["id", f"v{i}"])) if f"v{i}" in table.column_names else rows
            if apart := difference(rows, found, ordered=False):
                wrong.append(f"{e} in {sql[:20]}: {apart}")
    for i, (sql, wanted) in enumerate(queries.items()):
        for asked in (f"SELECT * FROM w{i}", sql):
            if apart := difference(wanted, rendered(world.ask(asked)), ordered=False):
                wrong.append(f"{asked} ({sql}): {apart}")
    assert not wrong, "\n".join(wrong)


def test_statements_change_them_and_views_follow(world: SqlSession) -> None:
    world.execute(
        "CREATE TABLE c (m TIMESTAMP(6) PRIMARY KEY, z TIMESTAMPTZ(6) DEFAULT '2024-01-01 00:00:00.000001', n INT)"
    )
    world.execute("CREATE VIEW last_of AS SELECT n, MAX(m) AS m, MIN(z) AS z, COUNT(*) AS k FROM c GROUP BY n")
    world.execute("INSERT INTO c (m, n) VALUES ('2024-01-01 00:00:00.123456', 1), ('2024-01-01 00:00:00.123457', 1)")
    world.execute(
        "INSERT INTO c SELECT m + INTERVAL '0.000002 second', z, 1 FROM c WHERE m > '2024-01-01 00:00:00.123456'"
    )
    assert rendered(world.ask("SELECT * FROM last_of")) == [
        "1 2024-01-01 00:00:00.123459 2024-01-01 00:00:00.000001+00:00 3"
    ]
    world.execute("UPDATE c SET z = z - INTERVAL '0.000001 second' WHERE m = '2024-01-01 00:00:00.123456'")
    world.execute("DELETE FROM c WHERE m = TIMESTAMP '2024-01-01 00:00:00.123459'")
    assert rendered(world.ask("SELECT * FROM last_of")) == ["1 2024-01-01 00:00:00.123457 2024-01-01 00:00:00+00:00 2"]
    with pytest.raises(StatementFailed):  # the key is there
        world.execute("INSERT INTO c (m) VALUES ('2024-01-01 00:00:00.123456')")


@pytest.mark.parametrize(
    ("sql", "help_"),
    [
        ("INSERT INTO t (id, ts) VALUES (9, '2024-01-01 00:00:00.123456')", "declare the column TIMESTAMP(6)"),
        (
            "INSERT INTO t (id, ts) VALUES (9, TIMESTAMP '2024-01-01 00:00:00.123456')",
            "declare the column TIMESTAMP(6)",
        ),
        ("CREATE TABLE n (a TIMESTAMP(4))", "write  TIMESTAMP(6)"),
        ("CREATE TABLE n (a TIMESTAMPTZ(0))", "write  TIMESTAMPTZ"),
        ("CREATE TABLE n (a TIMESTAMP(7))", "write  TIMESTAMP(6)"),
        ("CREATE TABLE n (a TIMESTAMP(6), WATERMARK FOR a AS a)", "write  a TIMESTAMP(3)"),
        ("UPDATE t SET ts = m", "declare the column TIMESTAMP(6)"),
    ],
)
def test_what_would_cut_or_round_is_refused(world: SqlSession, sql: str, help_: str) -> None:
    with pytest.raises(CompileError) as refused:
        world.execute(sql)
    assert help_ in "".join(d.help for d in refused.value.diagnostics)


def test_views_that_would_fail_for_every_row_or_have_no_meaning_are_refused(world: SqlSession) -> None:
    """A time in milliseconds that is moved by microseconds was a dead letter of each row."""
    refused = world.define(
        [
            "CREATE VIEW moved AS SELECT id, ts + INTERVAL '1 microsecond' AS x FROM t",
            "CREATE VIEW windows AS SELECT window_start, COUNT(*) AS n FROM TUMBLE(t, m, INTERVAL '1' MINUTE) GROUP BY window_start",
            "CREATE VIEW average AS SELECT AVG(m) AS x FROM t",
        ]
    )
    told = ["CAST it to TIMESTAMP(6) first", "the time column of TUMBLE is TIMESTAMP(6)", "TIMESTAMP(6)"]
    assert [what in str(why) for what, why in zip(told, refused, strict=True)] == [True] * 3, refused


def test_a_frame_is_a_distance_in_microseconds(world: SqlSession) -> None:
    world.execute("CREATE TABLE f (id INT PRIMARY KEY, m TIMESTAMP(6))")
    world.execute(
        "INSERT INTO f VALUES (1, '2024-01-01 00:00:00.000001'), (2, '2024-01-01 00:00:00.001001'), (4, '2024-01-01 00:00:00.001002')"
    )
    sql = "SELECT id, SUM(id) OVER (ORDER BY m RANGE BETWEEN INTERVAL '0.001' SECOND PRECEDING AND CURRENT ROW) AS s FROM f"
    assert world.define([f"CREATE VIEW framed AS {sql}"]) == [None]
    for asked in ("SELECT * FROM framed", sql):
        assert sorted(rendered(world.ask(asked))) == ["1 1", "2 3", "4 6"]


def test_the_query_of_an_insert_cuts_nothing(world: SqlSession) -> None:
    with pytest.raises(QueryError, match=r"the query gives TIMESTAMP\(6\)") as refused:
        world.execute("INSERT INTO t (id, ts) SELECT 9, m FROM t WHERE id = 1")
    assert "declare the column TIMESTAMP(6)" in refused.value.help
    with pytest.raises(QueryError, match=r"TIMESTAMP\(7\) is not a type"):
        world.ask("SELECT m::timestamp(7) FROM t")


def test_a_time_of_day_with_smaller_parts_has_no_value_in_a_view(world: SqlSession) -> None:
    assert world.define(["CREATE VIEW clock AS SELECT id, m::time AS x FROM t"]) == [None]
    assert rendered(world.ask("SELECT * FROM clock")) == ["3 NULL", "4 00:00:00"]

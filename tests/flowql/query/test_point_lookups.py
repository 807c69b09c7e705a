"""Point look-ups: the rows and types that DuckDB gives, without DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from flowql.query import session as answering
from flowql.query.errors import QueryError
from flowql.query.kept import KeptTopics
from flowql.query.looking_up import looked_up_now
from flowql.query.point_lookups import WAY, PointLookups, Shape
from flowql.query.session import evaluate
from tests.flowql.query.harness import QueryHarness
from tests.slt.session import DATABASE, SqlSession
from tests.slt.session import Shape as SessionShape

COLUMNS = {
    "i": "INT",
    "b": "BIGINT",
    "x": "DOUBLE PRECISION",
    "c": "DECIMAL(20, 4)",
    "s": "TEXT",
    "d": "DATE",
    "tm": "TIME",
    "at": "TIMESTAMP(6)",
    "tz": "TIMESTAMPTZ(3)",
    "ok": "BOOLEAN",
    "raw": "BYTEA",
    "u": "UUID",
    "doc": "JSONB",
    "span": "INTERVAL",
    "list": "BIGINT[]",
    "words": "TEXT[]",
}
VALUES = {
    "i": ["-2147483648", "7"],
    "b": ["-9223372036854775807", "0"],
    "x": ["1.5", "-0.0", "1e300", "'NaN'"],
    "c": ["10.50", "-0.0001"],
    "s": ["''", "'it''s'", "'Ünï €'", "'k1'"],
    "d": ["'2024-02-29'", "'1901-12-31'"],
    "tm": ["'10:00:00.25'", "'23:59:59.999'"],
    "at": ["'2024-01-01 10:00:00.123456'", "'1969-12-31 23:59:59.5'"],
    "tz": ["'2024-01-01 10:00:00+02'"],
    "ok": ["TRUE", "FALSE"],
    "raw": [r"'\x00ff'", "''"],
    "u": ["'00000000-0000-0000-0000-00000000000a'"],
    "doc": ["""'{"a": [1, null, 1.50]}'""", "'\"s\"'", "'{}'"],
    "span": ["'1 year 2 mons -3 days 04:05:06.7'"],
    "list": ["ARRAY[1, NULL, 3]", "'{}'"],
    "words": ["ARRAY['a b', '', NULL]"],
}
DECLARED = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
PROJECT = f"""
CREATE TABLE ints (k INT PRIMARY KEY, {DECLARED});
CREATE TABLE bigs (k BIGINT PRIMARY KEY, {DECLARED});
CREATE TABLE texts (k TEXT PRIMARY KEY, {DECLARED});
CREATE TABLE ids (k UUID PRIMARY KEY, {DECLARED});
CREATE TABLE pairs (k TEXT, n INT, {DECLARED}, PRIMARY KEY (n, k));
CREATE TABLE keyless (k INT, v INT);
CREATE VIEW copied AS SELECT {", ".join(COLUMNS)}, k AS name, k AS k FROM texts;
CREATE VIEW above AS SELECT name, words, doc FROM copied WHERE i IS NOT NULL;
CREATE VIEW counted AS SELECT s, COUNT(*) AS n, MAX(c) AS most FROM ints GROUP BY s;
CREATE VIEW joined AS SELECT a.k, b.k AS other, b.x FROM ints a LEFT JOIN bigs b ON a.i = b.i;
"""
KEYS = {
    "ints": ["1", "-5", "2147483647", "3000000000"],
    "bigs": ["1", "-1", "9223372036854775806"],
    "texts": ["''", "'k1'", "'it''s'", "'Ünï €'"],
    "ids": ["'00000000-0000-0000-0000-00000000000A'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
}


@pytest.fixture(scope="module")
def session() -> Iterator[SqlSession]:
    DATABASE.lookups = PointLookups()
    made = SqlSession(SessionShape())
    made.execute(PROJECT)
    yield made
    made.close()


class Ways:
    """Counts which queries were answered as look-ups."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found = list[bool]()
        usual = answering.looked_up

        def counted(*args: Any) -> Any:
            found = usual(*args)
            self.found.append(found is not None)
            return found

        monkeypatch.setattr(answering, "looked_up", counted)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


def told(table: pa.Table) -> tuple[pa.Schema, list[str]]:
    return table.schema, sorted(map(repr, table.to_pylist()))


def looked_up(session: SqlSession, sql: str) -> tuple[pa.Schema, list[str]]:
    """The answer of a thread, which is that of the loop of a server as well."""
    found = told(session.ask(sql))
    at_once = looked_up_now(sql, "standard", lambda name: session.commit([name]), DATABASE)
    assert at_once is not None, sql
    assert told(at_once.table()) == found, sql
    return found


rows = st.fixed_dictionaries({name: st.sampled_from(["NULL", *values]) for name, values in VALUES.items()})
changes = st.lists(
    st.tuples(st.sampled_from(sorted(KEYS)), st.integers(0, 3), st.booleans(), rows), min_size=1, max_size=6
)


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(changes=changes, columns=st.lists(st.sampled_from(sorted(COLUMNS)), max_size=3), wanted=st.integers(0, 3))
def test_a_look_up_gives_what_duckdb_gives(
    session: SqlSession, changes: list[tuple[str, int, bool, dict[str, str]]], columns: list[str], wanted: int
) -> None:
    latest = {(table, KEYS[table][n % len(KEYS[table])]): (deletes, row) for table, n, deletes, row in changes}
    latest.pop(("ints", "3000000000"), None)
    statements = [f"DELETE FROM {table} WHERE k = {key};" for table, key in latest]
    statements += [
        f"INSERT INTO {table} VALUES ({key}, {', '.join(row[c] for c in COLUMNS)});"
        for (table, key), (deletes, row) in latest.items()
        if not deletes
    ]
    for statement in statements:
        session.carry_out(statement)
    shown = ", ".join(["k", *columns])
    for table, keys in KEYS.items():
        key = keys[wanted % len(keys)]
        for sql in (
            f"SELECT * FROM {table} WHERE k = {key}",
            f"SELECT {shown} FROM {table} AS q WHERE {key} = q.k",
            f"SELECT {shown} FROM {table} WHERE k IN ({', '.join(keys)})",
        ):
            assert looked_up(session, sql) == told(session.ask(f"{sql} AND 1 = 1")), sql
    for sql in (
        "SELECT * FROM copied WHERE name = 'k1'",
        "SELECT words, doc AS d FROM above WHERE name = 'it''s'",
        "SELECT n, most FROM counted WHERE s IN ('', 'k1')",
        "SELECT * FROM joined WHERE k = 1 AND other = 1",
    ):
        assert looked_up(session, sql) == told(session.ask(f"{sql} AND 1 = 1")), sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM ints WHERE k = 1",
        "select b, k AS z from ints as q where (q.k) = -5;",
        "SELECT k FROM ints WHERE k = 3000000000",
        "SELECT k FROM ints WHERE k = CAST(1 AS BIGINT)",
        "SELECT k FROM bigs WHERE k IN (1, 2, 3)",
        "SELECT k FROM ids WHERE k = '00000000-0000-0000-0000-00000000000a'",
        "SELECT x FROM pairs WHERE k = 'a' AND n = 1",
        "SELECT n FROM pairs WHERE n IN (1, 2) AND 'b' = k",
        "SELECT * FROM copied WHERE k = 'a'",
        "SELECT * FROM copied WHERE name = 'a'",
        "SELECT words FROM above WHERE name = 'a'",
        "SELECT * FROM counted WHERE s = 'a'",
        "SELECT * FROM joined WHERE k = 1 AND other = 2",
        "SELECT k FROM ints WHERE k = 1 LIMIT 1",
        "SELECT k FROM (SELECT k FROM ints) AS q WHERE k = 1",
        'SELECT "k" FROM "ints" WHERE "k" = 1',
    ],
)
def test_what_is_a_look_up(session: SqlSession, ways: Ways, sql: str) -> None:
    for _ in range(2):
        session.ask(sql)
    assert session.ask(f"EXPLAIN {sql}").to_pylist() == [{"explain_key": "way", "explain_value": WAY}]
    assert all(ways.found)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k + 1 FROM ints WHERE k = 1",
        "SELECT k FROM ints WHERE k > 1",
        "SELECT k FROM ints WHERE k = 1 AND i = 7",
        "SELECT k FROM ints WHERE k = 1 OR k = 7",
        "SELECT k FROM ints WHERE k IN (1, 7) LIMIT 1",
        "SELECT k FROM ints WHERE k = 1 OFFSET 1",
        "SELECT k FROM ints WHERE k = 1 ORDER BY i",
        "SELECT DISTINCT i FROM ints WHERE k = 1",
        "SELECT COUNT(*) FROM ints WHERE k = 1",
        "SELECT a.k FROM ints a JOIN bigs b USING (k) WHERE a.k = 1",
        "SELECT k FROM ints WHERE k = 1 UNION SELECT 1",
        "SELECT k FROM ints WHERE NOT k = 1",
        "SELECT k, 2 FROM ints WHERE k = 1",
        "SELECT k FROM ints WHERE k = 1 + 1",
        "SELECT k FROM ints WHERE k = 1.0",
        "SELECT k FROM texts WHERE k = LOWER('a')",
        "SELECT k FROM texts WHERE k = TRIM('a')",
        "SELECT k FROM texts WHERE k = 'a' || 'b'",
        "SELECT k FROM texts WHERE LOWER(k) = 'a'",
        "SELECT x FROM pairs WHERE k = 'a'",
        "SELECT k FROM ints WHERE i = 1",
        "SELECT v FROM keyless WHERE k = 1",
        "SELECT * FROM joined WHERE k = 1",
        "SELECT * FROM (SELECT k FROM ints WHERE ok) AS q WHERE k = 1",
        "SELECT k FROM ints WHERE k = 1 -- a comment",
        "SELECT k FROM texts WHERE k = E'a'",
    ],
)
def test_what_is_none(session: SqlSession, ways: Ways, sql: str) -> None:
    session.ask(sql)
    session.ask(sql)
    assert not any(ways.found)


def test_a_constant_that_is_no_key_is_an_error_as_ever(session: SqlSession, ways: Ways) -> None:
    key = UUID(int=1)
    session.execute(f"INSERT INTO ids (k) VALUES ('{key}') ON CONFLICT (k) DO NOTHING")
    assert session.ask(f"SELECT k FROM ids WHERE k = '{key}'").num_rows == 1
    with pytest.raises(QueryError, match="not a uuid"):
        session.ask("SELECT k FROM ids WHERE k = 'not a uuid'")
    assert ways.found == [True, False]


def test_tables_that_loops_look_up_are_the_last_to_be_forgotten(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory ran out: a table that only loops asked for was forgotten first, and then read again from its beginning."""
    kept = KeptTopics(1 << 30, DATABASE.share)
    monkeypatch.setattr(DATABASE, "kept", kept)
    tables = {"ints": "12", "bigs": "12", "texts": "'twelve'"}
    for name, key in tables.items():
        session.execute(f"INSERT INTO {name} (k) VALUES ({key}) ON CONFLICT (k) DO NOTHING")
        session.ask(f"SELECT k FROM {name} WHERE k = {key}")

    def at_once(name: str) -> bool:
        sql = f"SELECT k FROM {name} WHERE k = {tables[name]}"
        return looked_up_now(sql, "standard", lambda table: session.commit([table]), DATABASE) is not None

    assert at_once("ints")
    kept._bytes_max = sum(k.size for k in kept._kept.values()) - 1
    kept.trim()
    assert [at_once(name) for name in tables] == [True, False, True]


def test_a_deployment_changes_what_is_looked_up(ways: Ways) -> None:
    DATABASE.lookups = PointLookups()
    table, made = "CREATE TABLE t (k INT PRIMARY KEY, v INT);", SqlSession(SessionShape())
    made.execute(table)
    made.execute("INSERT INTO t VALUES (1, 10), (2, 10)")
    for view, wanted, is_look_up in (
        ("SELECT k AS a, v FROM t", [{"a": 1, "v": 10}], True),
        ("SELECT v - 9 AS a, k FROM t", [{"a": 1, "k": 1}, {"a": 1, "k": 2}], False),
        ("SELECT k AS a, v + 1 AS v FROM t", [{"a": 1, "v": 11}], True),
    ):
        made.redefine(f"{table}\nCREATE VIEW w AS {view};")
        for _ in range(2):  # the first query sees that there is another plan
            assert made.ask("SELECT * FROM w WHERE a = 1").to_pylist() == wanted
        assert ways.found[-1] is is_look_up
    made.close()


def test_the_shape_of_a_text() -> None:
    """Names and quotes are no constants; what is not understood has no shape."""
    found = Shape.of("""SELECT "a 1", c2 FROM t3 WHERE x='it''s' AND y IN (1, -3000000000)""")
    assert found is not None
    assert found.constants == ("it's", "1", "3000000000")
    assert found.text == """SELECT "a 1", c2 FROM t3 WHERE x=\0s AND y IN (\0i, -\0l)"""
    for other in (
        "SELECT 1 FROM t",
        "SELECT * FROM t WHERE x = $1",
        "SELECT * FROM t WHERE x = 1e5",
        "SELECT * FROM t WHERE x = .5",
        "SELECT * FROM t WHERE x = 99999999999999999999",
        "SELECT * FROM t WHERE x = 'a",
        "DELETE FROM t WHERE x = 1",
        "SELECT * FROM t WHERE x = 1 /* c */",
        "SELECT * FROM t WHERE x = '" + "a" * 5_000 + "'",
    ):
        assert Shape.of(other) is None, other


KSQL = """
CREATE STREAM S (K STRING KEY, V BIGINT, D DOUBLE, AT TIMESTAMP, DAY DATE, NOTE STRING) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL, LATEST_BY_OFFSET(D) AS D, LATEST_BY_OFFSET(AT) AS AT, LATEST_BY_OFFSET(DAY) AS DAY,
  LATEST_BY_OFFSET(NOTE) AS NOTE FROM S GROUP BY K;
CREATE TABLE BY_V AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
"""


@pytest.fixture(scope="module")
def ksql() -> QueryHarness:
    made = QueryHarness(KSQL)
    made.feed(
        "s",
        [
            ("a", {"V": 1, "D": 1.5, "AT": "2024-01-01T10:00:00.123", "DAY": "2024-02-29", "NOTE": "x"}, 1_000),
            ("b", {"V": 2, "D": None, "AT": None, "DAY": None, "NOTE": None}, 2_000),
            ("it's", {"V": None, "D": -0.0, "AT": "1969-12-31T23:59:59", "DAY": None, "NOTE": ""}, 3_000),
        ],
    )
    return made


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM T WHERE K = 'a'",
        "select n, note, d, day, k from t where k = 'it''s';",
        "SELECT N FROM \"T\" WHERE \"K\" IN ('a', 'b', 'c')",
        "SELECT * FROM BY_V WHERE V IN (1, 2)",
    ],
)
def test_look_ups_in_ksqldbs_dialect(ksql: QueryHarness, ways: Ways, sql: str) -> None:
    for _ in range(2):
        usual = f"{sql.rstrip(';')} AND 1 = 1"
        assert told(evaluate(sql, ksql.commit)) == told(evaluate(usual, ksql.commit))
    assert ksql.ask(f"EXPLAIN {sql}") == [{"explain_key": "way", "explain_value": WAY}]
    assert ways.found == [True, False, True, False, True]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT N + 1 FROM T WHERE K = 'a'",
        "SELECT N AS M FROM T WHERE K = 'a'",
        "SELECT N FROM T WHERE K = 'a' OR N = 1",
        "SELECT N FROM T WHERE N = 1",
        "SELECT COUNT(*) FROM T WHERE K = 'a'",
        "SELECT * FROM S WHERE K = 'a'",
        "SELECT N FROM BY_V WHERE V = -1",
    ],
)
def test_other_queries_in_ksqldbs_dialect(ksql: QueryHarness, ways: Ways, sql: str) -> None:
    ksql.ask(sql)
    assert not any(ways.found)

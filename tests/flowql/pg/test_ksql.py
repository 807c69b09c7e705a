"""A project in ksqlDB's dialect: its tables are stores of the instance, which answers for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flowql.pg.conftest import Shop, started
from tests.flowql.pg.test_catalogue import psql, psql_is_here
from tests.flowql.pg.wire import SYNC, Failed, bind, describe, execute, parse, rows_of, tags

SQL = """
CREATE STREAM ORDERS (ID BIGINT KEY, CUSTOMER STRING, AMOUNT DOUBLE, AT TIMESTAMP, TAGS ARRAY<STRING>, PLACE STRUCT<CITY STRING, N INT>)
  WITH (KAFKA_TOPIC='orders', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER EMIT CHANGES;
"""
ROWS = """
INSERT INTO ORDERS VALUES (1, 'ada', 1.5, '2024-01-01T10:00:00', ARRAY['a', 'b'], STRUCT(CITY := 'Bern', N := 1));
INSERT INTO ORDERS VALUES (2, 'ada', 2.5, '2024-01-01T11:00:00', ARRAY['c'], STRUCT(CITY := 'Bonn', N := 2));
INSERT INTO ORDERS VALUES (3, 'bob', 4, NULL, NULL, NULL);
"""


@pytest.fixture(scope="module")
def ksql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    yield from started(tmp_path_factory.mktemp("ksql"), "{port}", SQL, ROWS, dialect="ksql")


def test_tables_and_streams(ksql: Shop) -> None:
    with ksql.wire() as w:
        assert w.rows("SELECT customer, n, total FROM spent ORDER BY customer") == [
            ("ada", "2", "4"),
            ("bob", "1", "4"),
        ]
        assert w.rows("SELECT CUSTOMER FROM SPENT WHERE CUSTOMER = 'ada'") == [("ada",)]
        assert w.rows("SELECT id, amount, at, tags, place FROM orders WHERE id < 3 ORDER BY id") == [
            ("1", "1.5", "2024-01-01 10:00:00", "{a,b}", '{"CITY":"Bern","N":1}'),
            ("2", "2.5", "2024-01-01 11:00:00", "{c}", '{"CITY":"Bonn","N":2}'),
        ]
        assert w.rows("SELECT COUNT(*), SUM(s.n) FROM orders o JOIN spent s ON o.customer = s.customer") == [("3", "5")]
        for sql, state in (
            ("SELECT nope FROM spent", "42703"),
            ("SELECT * FROM nowhere", "42P01"),
            ("SELECT 1 +", "42601"),
            ("SELECT 'x'::INT", "22P02"),
            ("DROP TABLE spent", "0A000"),
        ):
            with pytest.raises(Failed) as failed:
                w.rows(sql)
            assert failed.value.state == state, (sql, failed.value)


@pytest.mark.parametrize(
    ("sql", "help_"),
    [
        ("TRUNCATE orders", "write  DELETE FROM t"),
        ("MERGE INTO spent USING orders ON true WHEN MATCHED THEN DELETE", "ON CONFLICT (key) DO UPDATE"),
        ("CREATE VIEW x AS SELECT 1", "flowql deploy"),
    ],
)
def test_a_statement_of_other_systems_gets_its_replacement(ksql: Shop, sql: str, help_: str) -> None:
    with ksql.wire() as w, pytest.raises(Failed) as failed:
        w.rows(sql)
    assert failed.value.state == "0A000"
    assert help_ in failed.value.fields["H"]


def test_parameters_and_writes(ksql: Shop) -> None:
    with ksql.wire() as w:
        w.send(
            parse('SELECT "N" FROM spent WHERE customer = $1 AND total > $2'),
            describe("S"),
            bind(b"ada", b"1.5"),
            describe(),
            execute(),
            SYNC,
        )
        found = w.until_ready()
        assert [k for k, _ in found] == [b"1", b"t", b"T", b"2", b"T", b"D", b"C", b"Z"]
        assert rows_of(found) == [("2",)]
        assert tags(w.ask("INSERT INTO ORDERS (ID, CUSTOMER, AMOUNT) VALUES (9, 'eve', 1)")) == ["INSERT 0 1"]


def test_a_stream_is_subscribed_and_resumed(ksql: Shop) -> None:
    with ksql.wire() as w, ksql.wire() as other:
        w.ask('BEGIN; DECLARE c CURSOR FOR SUBSCRIBE "ORDERS" WITH (PROGRESS)')
        told = w.rows("FETCH ALL c")
        assert {r[4] for r in told if r[1] == "f"} >= {"1", "2", "3"}
        assert [r[2] is None for r in told if r[1] == "t"] == [True, False]
        other.ask("INSERT INTO ORDERS (ID, CUSTOMER, AMOUNT) VALUES (11, 'eve', 1)")
        w.ask(f"ROLLBACK; BEGIN; DECLARE c CURSOR FOR SUBSCRIBE \"ORDERS\" WITH (RESUME = '{told[-1][2]}')")
        assert [r[1:4] for r in w.rows("FETCH ALL c")] == [("1", "11", "eve")]
        w.ask("ROLLBACK")
        with pytest.raises(Failed, match="is a stream"):
            w.rows('SUBSCRIBE "ORDERS" ENVELOPE UPSERT')


@psql_is_here
def test_psql_describes_them(ksql: Shop) -> None:
    shown = psql(ksql, r"\d", r'\d "SPENT"')
    assert " public | SPENT  | materialized view | flowql" in shown
    assert '"SPENT_key" UNIQUE, btree ("CUSTOMER")' in shown

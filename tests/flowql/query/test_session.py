"""Interactive queries to a small engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from flowql.query.errors import SEQUENCE, QueryError
from flowql.query.session import evaluate
from flowql.runtime.errors import StateError
from flowql.runtime.state.snapshot import StateSnapshot
from tests.flowql.query.harness import QueryHarness

SQL = """
CREATE STREAM S (K STRING KEY, V INT, D DECIMAL(10, 2)) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE U (ID STRING PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC = 'u', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL, MAX(D) AS MOST FROM S GROUP BY K;
CREATE TABLE W AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K;
CREATE TABLE X AS SELECT K, COUNT(*) AS N FROM S WINDOW SESSION (1 HOUR) GROUP BY K;
CREATE STREAM J AS SELECT S.K, S.V, U.NAME FROM S LEFT JOIN U ON S.K = U.ID;
"""
HOUR = 3_600_000


@pytest.fixture(scope="module")
def world() -> QueryHarness:
    made = QueryHarness(SQL)
    made.feed("u", [("a", {"NAME": "Ann"}, 0), ("b", {"NAME": "Bob"}, 0), ("b", None, 1)])
    made.feed(
        "s",
        [("a", {"V": 1, "D": 1.5}, 1000), ("b", {"V": 2, "D": 2.25}, 2000), ("a", {"V": 3, "D": None}, 2 * HOUR)],
    )
    made.feed("s", [("c", "no object", 2 * HOUR)])
    return made


def test_a_table(world: QueryHarness) -> None:
    assert world.ask("SELECT * FROM t ORDER BY k") == [
        {"K": "a", "N": 2, "TOTAL": 4, "MOST": Decimal("1.50")},
        {"K": "b", "N": 1, "TOTAL": 2, "MOST": Decimal("2.25")},
    ]


def test_windows_show_their_bounds_in_ms(world: QueryHarness) -> None:
    assert world.ask("SELECT * FROM w WHERE k = 'a' ORDER BY windowstart") == [
        {"K": "a", "WINDOWSTART": 0, "WINDOWEND": HOUR, "N": 1},
        {"K": "a", "WINDOWSTART": 2 * HOUR, "WINDOWEND": 3 * HOUR, "N": 1},
    ]


@pytest.mark.parametrize("window", ["W", "X"])
def test_the_store_of_a_windowed_aggregate_shows_what_its_table_shows(world: QueryHarness, window: str) -> None:
    columns = "K, WINDOWSTART, WINDOWEND, N"
    table = world.ask(f"SELECT {columns} FROM {window} ORDER BY ALL")
    assert len(table) == 3
    assert world.ask(f'SELECT {columns} FROM "CTAS_{window}-aggregate-1" ORDER BY ALL') == table


def test_the_store_of_an_aggregate_shows_results_and_time(world: QueryHarness) -> None:
    found = world.ask("SELECT k, total, most, rowtime FROM \"CTAS_T-aggregate-1\" WHERE k = 'a'")
    assert found == [{"K": "a", "TOTAL": 4, "MOST": Decimal("1.50"), "ROWTIME": 2 * HOUR}]


def test_the_store_of_a_join_shows_the_table_side(world: QueryHarness) -> None:
    (row,) = world.ask('SELECT * FROM "CSAS_J-join-1-right"')
    assert "Ann" in row.values()


def test_a_stream_is_all_its_records_and_a_table_the_last_of_each_key(world: QueryHarness) -> None:
    assert world.ask("SELECT k, v, rowtime FROM s ORDER BY v") == [
        {"K": "a", "V": 1, "ROWTIME": 1000},
        {"K": "b", "V": 2, "ROWTIME": 2000},
        {"K": "a", "V": 3, "ROWTIME": 2 * HOUR},
    ]
    assert world.ask("SELECT id, name FROM u") == [{"ID": "a", "NAME": "Ann"}]
    assert world.ask("SELECT name FROM j ORDER BY v") == [{"NAME": "Ann"}, {"NAME": None}, {"NAME": "Ann"}]


def test_dead_letters_keep_the_raw_bytes(world: QueryHarness) -> None:
    found = world.ask("SELECT DISTINCT topic, key, value FROM dead_letters")
    assert found == [{"TOPIC": "s", "KEY": b"c", "VALUE": b'"no object"'}]


def test_states_join_and_sums_are_whole_numbers(world: QueryHarness) -> None:
    found = world.ask(
        "WITH q AS (SELECT sum(n) AS n FROM t) SELECT q.n, count(*) AS c FROM q, s JOIN t USING (k) GROUP BY 1"
    )
    assert found == [{"n": 3, "c": 3}]


def test_equal_names_of_columns_are_told_apart(world: QueryHarness) -> None:
    assert world.ask("SELECT a.k, b.k FROM t a JOIN t b USING (k) WHERE a.k = 'a'") == [{"K": "a", "K_1": "a"}]


def test_show_and_describe(world: QueryHarness) -> None:
    names = {r["name"] for r in world.ask("SHOW TABLES")}
    assert {"S", "U", "T", "W", "X", "J", "DEAD_LETTERS", "CTAS_T-aggregate-1", "CSAS_J-join-1-right"} <= names
    assert [r["column_name"] for r in world.ask("DESCRIBE t")] == ["K", "N", "TOTAL", "MOST"]
    assert "plan" in world.ask("EXPLAIN SELECT * FROM t")[0]["explain_key"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM tt", "there is no table, stream or store tt"),
        ("SELECT nope FROM t", "nope"),
        ("SELECT * FROM read_csv('/etc/passwd')", "out of reach"),
        ("SELECT * FROM '/etc/passwd'", "there is no table"),
        ("SELECT * FROM read_text('/etc/passwd')", "out of reach"),
        ("SELECT * FROM glob('*')", "out of reach"),
        ("SELECT * FROM query('SET threads = 2')", ""),
        ("SELECT world FROM world", "there is no table"),
    ],
)
def test_nothing_outside_is_reached(world: QueryHarness, sql: str, said: str) -> None:
    with pytest.raises(QueryError) as refused:
        world.ask(sql)
    assert said in refused.value.title


def test_a_type_that_is_nested_too_deeply_is_a_mistake_of_who_asks(world: QueryHarness) -> None:
    """It was an internal error."""
    with pytest.raises(QueryError) as refused:
        world.ask("SELECT " + "[" * 100 + "1" + "]" * 100)
    assert refused.value.code == "FQ5102"


def test_an_unknown_name_lists_relations_and_counts_internal_stores(world: QueryHarness) -> None:
    with pytest.raises(QueryError) as refused:
        world.ask("SELECT * FROM completely_different")
    listed, _, rest = refused.value.help.partition("; ")
    assert "CTAS" not in listed
    assert all(f" {name}" in listed for name in ("DEAD_LETTERS", "FLOWQL_STORES", "S", "T", "W"))
    names = [r["name"] for r in world.ask("SHOW TABLES")]
    assert rest == f"FLOWQL_STORES lists {sum('-' in n for n in names)} internal stores"


def test_a_misspelt_name_gets_a_hint(world: QueryHarness) -> None:
    with pytest.raises(QueryError) as refused:
        world.ask('SELECT * FROM "CTAS_T-agregate-1"')
    assert "CTAS_T-aggregate-1" in refused.value.help


def test_the_answer_names_its_commit(world: QueryHarness) -> None:
    table = evaluate("SELECT 1", world.commit)
    assert int(table.schema.metadata[SEQUENCE]) == world.log.last_sequence("flowql")


@pytest.fixture
def counted() -> QueryHarness:
    """500 keys."""
    world = QueryHarness("""
        CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
        CREATE TABLE T AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
    """)
    world.feed("s", [(f"k{i:04}", {"V": i}, 0) for i in range(500)])
    return world


def test_a_look_up_reads_what_it_looks_up(counted: QueryHarness) -> None:
    def rows_read(sql: str, rows: int) -> int:
        commit = counted.commit()
        assert evaluate(sql, lambda _: commit).num_rows == rows
        return commit.snapshot.rows_read()

    assert rows_read("SELECT * FROM t WHERE k = 'k0007'", 1) == 1
    assert rows_read("SELECT * FROM t WHERE k IN ('k0007', 'k0400', 'nope')", 2) == 3
    assert rows_read("SELECT * FROM t WHERE k >= 'k0100' AND k < 'k0110' AND n = 1", 10) <= 11
    assert rows_read("SELECT * FROM t", 500) == 500
    assert rows_read("SELECT * FROM t LIMIT 20", 20) <= 50
    assert rows_read("SELECT * FROM t WHERE n = 1 LIMIT 5 OFFSET 10", 5) <= 50
    assert rows_read("DESCRIBE t", 2) == 0
    assert rows_read("SELECT * FROM t ORDER BY k DESC LIMIT 1", 1) == 500


def test_a_short_answer_over_several_readings_of_a_table_is_whole(counted: QueryHarness) -> None:
    """Each scan of a table that is read as far as needed begins anew."""
    sql = "WITH a AS (SELECT * FROM t) SELECT count(*) AS n FROM a JOIN a b USING (k) JOIN t USING (k) LIMIT 1"
    assert counted.ask(sql) == [{"n": 500}]
    recursive = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r, t WHERE k = 'k0001' AND i < 4)"
    assert counted.ask(f"{recursive} SELECT sum(i) AS s FROM r LIMIT 1") == [{"s": 10}]


def test_a_fault_on_the_way_of_a_short_answer_keeps_its_name(
    counted: QueryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chunks(*_: object, **__: object) -> None:
        raise StateError("the disk is gone")

    monkeypatch.setattr(StateSnapshot, "chunks", chunks)
    with pytest.raises(StateError, match="the disk is gone"):
        counted.ask("SELECT * FROM t LIMIT 3")


def test_an_answer_is_one_commit_even_while_more_is_processed() -> None:
    world = QueryHarness("""
        CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
        CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
        CREATE TABLE B AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
    """)
    world.feed("s", [(f"k{i}", {"V": i % 3}, 0) for i in range(20)])
    before = world.commit()
    world.feed("s", [(f"k{i}", {"V": i % 3}, 0) for i in range(20)])
    sums = "SELECT (SELECT sum(n) FROM a) AS a, (SELECT sum(n) FROM b) AS b"
    assert evaluate(sums, lambda _: before).to_pylist() == [{"a": 20, "b": 20}]
    assert world.ask(sums) == [{"a": 40, "b": 40}]


def test_interactive_queries_at_the_same_time_do_not_see_each_others_tables() -> None:
    """They share a database (making one takes longer than a small answer), and a name means another commit in each."""
    worlds = [QueryHarness(SQL) for _ in range(4)]
    for n, world in enumerate(worlds):
        world.feed("s", [(f"k{n}", {"V": n}, m) for m in range(n + 1)])
    with ThreadPoolExecutor(8) as pool:
        asked = [(n, pool.submit(worlds[n].ask, "SELECT k, n, total FROM t")) for n in range(4) for _ in range(25)]
        for n, answer in asked:
            assert answer.result() == [{"K": f"k{n}", "N": n + 1, "TOTAL": n * (n + 1)}]

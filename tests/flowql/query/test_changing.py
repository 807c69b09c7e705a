"""INSERT, UPDATE and DELETE against DuckDB, which carries out the same statements."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query.errors import QueryError
from flowql.runtime.errors import StatementFailed, TableBusy
from tests.slt.session import Shape, SqlSession

SEEDS, STATEMENTS = 12, 36
CREATE = {
    "t": "CREATE TABLE t (a INT, k INT PRIMARY KEY, s TEXT, n DECIMAL(8, 2), b BOOLEAN)",
    "g": "CREATE TABLE g (d INT GENERATED ALWAYS AS (COALESCE(a, 0) * 2 + k % 7), a INT, k INT PRIMARY KEY, s TEXT, n DECIMAL(8, 2), b BOOLEAN,"
    " e TEXT GENERATED ALWAYS AS (s || '!'))",
    "bag": "CREATE TABLE bag (a INT, k INT, s TEXT, n DECIMAL(8, 2), b BOOLEAN)",
}


@pytest.fixture
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape(partitions=3))
    yield made
    made.close()


class Statements:
    """Random statements over tables of CREATE, in SQL that PostgreSQL, DuckDB and we understand alike."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self, table: str) -> str:
        kinds: tuple[Callable[[str], str], ...] = (
            *(self._insert, self._insert, self._insert, self._update, self._delete, self._copy),
            *(self._update_from, self._update_asked, self._delete_asked, self._with, self._insert_asked),
        )
        made = self._random.choice(kinds)(table)
        return (
            made
            if "(VALUES" in made or "(SELECT" in made or self._random.random() < 0.5
            else f"{made} RETURNING *, k + a AS c"
        )

    def _value(self, column: str) -> str:
        if column != "k" and self._random.random() < 0.25:
            return "NULL"
        n = self._random.randint(-4, 12)
        return {"a": str(n), "k": str(n), "s": f"'{'xyz'[n % 3] * (n % 4)}'", "n": f"{n}.25", "b": str(n % 2 == 0)}[
            column
        ]

    def _insert(self, table: str) -> str:
        columns = ["k", *self._random.sample(["a", "s", "n", "b"], self._random.randint(0, 4))]
        self._random.shuffle(columns)
        made = [[self._value(c) for c in columns] for _ in range(self._random.randint(1, 4))]
        conflict = ""
        if table != "bag":
            where = self._random.choice(["", f" WHERE {table}.a IS NULL", f" WHERE excluded.a > {table}.a"])
            conflict = self._random.choice(
                [
                    "",
                    " ON CONFLICT DO NOTHING",
                    f" ON CONFLICT (k) DO UPDATE SET a = excluded.a, s = {table}.s || '+'{where}",
                ]
            )
        if conflict:  # DuckDB lets a statement change a row twice, PostgreSQL does not
            made = list({row[columns.index("k")]: row for row in made}.values())
        rows = ", ".join(f"({', '.join(row)})" for row in made)
        return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {rows}{conflict}"

    def _condition(self) -> str:
        simple = [
            f"a > {self._value('a')}",
            f"a = {self._value('a')}",
            "a IS NULL",
            "NOT (a IN (1, 2, NULL))",
            "s LIKE 'x%'",
            f"s < {self._value('s')}",
            f"n BETWEEN {self._value('n')} AND 9",
            "b",
            "NOT b",
            "k % 3 = 1",
            "CASE WHEN a > 3 THEN b ELSE s IS NOT NULL END",
            "COALESCE(a, 5) = 5",
        ]
        first, second = self._random.sample(simple, 2)
        return self._random.choice(
            [first, f"{first} AND {second}", f"{first} OR {second}", f"NOT ({first} AND {second})"]
        )

    def _where(self) -> str:
        return "" if self._random.random() < 0.1 else f" WHERE {self._condition()}"

    def _update(self, table: str) -> str:
        settings = [
            "a = a + 1",
            "a = k",
            "s = s || 'z'",
            "s = NULL",
            "n = n * 2",
            "n = a",
            "b = NOT b",
            "b = a > k",
            f"a = {self._value('a')}",
            "k = a" if table == "bag" else "k = k + 1000",
            "n = DEFAULT",
        ]
        chosen = self._random.sample(settings, 2)
        if chosen[0].split()[0] == chosen[1].split()[0]:
            chosen.pop()
        return f"UPDATE {table} SET {', '.join(chosen)}{self._where()}"

    def _delete(self, table: str) -> str:
        return f"DELETE FROM {table}{self._where()}"

    def _other(self) -> str:
        """A relation of rows with distinct k, some of them of no table."""
        return self._random.choice(
            [
                "(SELECT k, MAX(a) AS a, MIN(s) AS s FROM bag GROUP BY k) AS o",
                "(SELECT k + 1 AS k, a, s FROM t) AS o",
                "(VALUES (1, 5, 'v'), (2, NULL, 'w'), (7, 1, NULL)) AS o (k, a, s)",
                "(SELECT k, a, s FROM g WHERE a IS NOT NULL) AS o JOIN t AS u ON u.k = o.k",
            ]
        )

    def _asked_condition(self, table: str) -> str:
        return self._random.choice(
            [
                "k IN (SELECT k FROM t WHERE a > 2)",
                "k NOT IN (SELECT COALESCE(a, 0) FROM bag)",
                f"a > (SELECT AVG(a) FROM {table})",
                f"EXISTS (SELECT 1 FROM t AS o WHERE o.a = {table}.k)",
                f"NOT EXISTS (SELECT 1 FROM g AS o WHERE o.k = {table}.k) AND {self._condition()}",
                f"k = (SELECT MIN(k) FROM {table}) OR s = (SELECT MAX(s) FROM t)",
            ]
        )

    def _update_from(self, table: str) -> str:
        settings = ["a = o.a", "s = o.s", "a = o.a + x.k", "s = x.s || o.s", "b = x.a > o.a", "n = DEFAULT"]
        chosen = self._random.sample(settings, 2)
        if chosen[0].split()[0] == chosen[1].split()[0]:
            chosen.pop()
        more = self._random.choice(["", "", " AND x.b", " AND o.a IS NOT NULL"])
        return f"UPDATE {table} AS x SET {', '.join(chosen)} FROM {self._other()} WHERE x.k = o.k{more}"

    def _update_asked(self, table: str) -> str:
        settings = [
            "a = 3",
            f"a = (SELECT COUNT(*) FROM bag AS o WHERE o.k < {table}.k)",
            "s = (SELECT MAX(s) FROM g) || s",
            "n = (SELECT 4.25)",
        ]
        return f"UPDATE {table} SET {self._random.choice(settings)} WHERE {self._asked_condition(table)}"

    def _delete_asked(self, table: str) -> str:
        if self._random.random() < 0.5:
            return f"DELETE FROM {table} AS x USING {self._other()} WHERE x.k = o.k AND o.a > 1"
        return f"DELETE FROM {table} WHERE {self._asked_condition(table)}"

    def _with(self, table: str) -> str:
        common = self._random.choice(
            ["m AS (SELECT k + 1 AS k, a FROM bag)", "n AS (SELECT 2 AS a), m AS (SELECT k, a FROM t NATURAL JOIN n)"]
        )
        changes = [
            f"UPDATE {table} SET a = 5 WHERE k IN (SELECT k FROM m)",
            f"DELETE FROM {table} WHERE k IN (SELECT k FROM m WHERE a > 1)",
            f"UPDATE {table} AS x SET s = 'w' FROM (SELECT DISTINCT k FROM m) AS o WHERE x.k = o.k",
        ]
        return f"WITH {common} {self._random.choice(changes)}"

    def _insert_asked(self, table: str) -> str:
        rows = [f"((SELECT COALESCE(MAX(k), 0) FROM {table}) + {n}, (SELECT MIN(a) FROM t))" for n in (1, 2)]
        return f"INSERT INTO {table} (k, a) VALUES {', '.join(rows[: self._random.randint(1, 2)])}"

    def _copy(self, table: str) -> str:
        shift = self._random.randint(100, 10**6)
        return f"INSERT INTO {table} (s, k, a) SELECT s, k + {shift}, a FROM {table}{self._where()}"


def run(world: SqlSession, oracle: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Whether both carried it out; both refuse it otherwise."""
    try:
        oracle.execute(sql.replace("n = DEFAULT", "n = NULL"))
    except (duckdb.ConstraintException, duckdb.InvalidInputException, duckdb.ConversionException):
        with pytest.raises((StatementFailed, QueryError)):
            world.execute(sql)
        return False
    if "RETURNING" in sql:
        returned = [tuple(r.values()) for r in world.returning(sql).to_pylist()]
        assert rows(returned) == rows(oracle.fetchall()), sql
    else:
        world.execute(sql)
    return True


def rows(found: list[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_statements_leave_the_rows_that_duckdb_has(world: SqlSession, seed: int) -> None:
    oracle = duckdb.connect()
    for sql in CREATE.values():
        world.execute(sql)
        oracle.execute(sql)
    statements, done = Statements(seed), 0
    for n in range(STATEMENTS):
        table = ("t", "bag", "g")[n % 3]
        sql = statements.next(table)
        done += run(world, oracle, sql)
        answer = world.ask(f"SELECT * FROM {table}")
        assert answer.column_names == (
            ["d", "a", "k", "s", "n", "b", "e"] if table == "g" else ["a", "k", "s", "n", "b"]
        )
        expected = oracle.execute(f"SELECT * FROM {table}").fetchall()
        assert rows([tuple(r.values()) for r in answer.to_pylist()]) == rows(expected), f"seed {seed}: {sql}"
    assert done > STATEMENTS / 2, "most are refused: nothing is compared"


def test_a_statement_that_fails_changes_nothing(world: SqlSession) -> None:
    world.execute(CREATE["t"])
    world.execute("INSERT INTO t (k, a) VALUES (1, 0), (2, 5)")
    for sql in (
        "UPDATE t SET a = 10 / a",
        "UPDATE t SET k = 7",
        "INSERT INTO t (k) VALUES (3), (2)",
        "INSERT INTO t (k) VALUES (3), (3)",
        "UPDATE t SET k = k + 1 WHERE k = 1",
        "UPDATE t SET k = CASE WHEN a = 5 THEN a END",
        "INSERT INTO t (k, a) VALUES (4, 1), (4, 2) ON CONFLICT (k) DO UPDATE SET a = 1",
        "DELETE FROM t WHERE 10 / a > 1",
        "INSERT INTO t (k) VALUES (9), (CASE WHEN 1 = 2 THEN 5 END)",
        "INSERT INTO t (k) SELECT CAST(NULL AS INT)",
    ):
        with pytest.raises(StatementFailed):
            world.execute(sql)
        assert rows([tuple(r.values()) for r in world.ask("SELECT k, a FROM t").to_pylist()]) == ["(1, 0)", "(2, 5)"], (
            sql
        )


def test_other_relations_decide_which_rows_change(world: SqlSession) -> None:
    """UPDATE ... FROM, DELETE ... USING and sub-queries, also over views; a column may get its DEFAULT in the same statement."""
    world.execute("CREATE TABLE stock (id INT PRIMARY KEY, pieces INT, note TEXT DEFAULT 'new')")
    world.execute("CREATE TABLE sold (id INT, pieces INT)")
    world.execute("CREATE VIEW totals AS SELECT id, SUM(pieces) AS pieces FROM sold GROUP BY id")
    world.execute("INSERT INTO stock VALUES (1, 10, 'a'), (2, 5, 'b'), (3, 7, 'c')")
    world.execute("INSERT INTO sold VALUES (1, 4), (1, 3), (2, 5), (9, 1)")
    sold = "UPDATE stock AS s SET pieces = s.pieces - t.pieces, note = DEFAULT FROM totals t WHERE s.id = t.id"
    world.execute(sold)
    world.execute("DELETE FROM stock USING totals WHERE totals.id = stock.id AND stock.pieces = 0")
    world.execute(
        "UPDATE stock SET note = (SELECT MAX(note) FROM stock) || '!' WHERE pieces < (SELECT AVG(pieces) FROM stock)"
    )
    world.execute("DELETE FROM stock WHERE id NOT IN (SELECT id FROM stock)")
    found = world.ask("SELECT * FROM stock ORDER BY id").to_pylist()
    assert found == [{"id": 1, "pieces": 3, "note": "new!"}, {"id": 3, "pieces": 7, "note": "c"}]


def test_a_row_that_several_rows_of_from_meet_has_to_get_one_value(world: SqlSession) -> None:
    """PostgreSQL takes any of them."""
    world.execute("CREATE TABLE p (id INT PRIMARY KEY, v INT)")
    world.execute("CREATE TABLE q (id INT, v INT)")
    world.execute("INSERT INTO p VALUES (1, 0), (2, 0)")
    world.execute("INSERT INTO q VALUES (1, 5), (1, 5), (2, 6), (2, 7)")
    world.execute("UPDATE p SET v = q.v FROM q WHERE p.id = q.id AND p.id = 1")
    with pytest.raises(StatementFailed, match=r"more than one row of FROM meets it \(id = 2\)"):
        world.execute("UPDATE p SET v = q.v FROM q WHERE p.id = q.id")
    assert world.ask("SELECT id, v FROM p ORDER BY id").to_pylist() == [{"id": 1, "v": 5}, {"id": 2, "v": 0}]


def test_a_row_written_after_the_query_of_an_update_was_asked_is_not_missed(
    world: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.execute("CREATE TABLE p (id INT PRIMARY KEY, v INT)")
    world.execute("INSERT INTO p VALUES (1, 1)")
    ask = world._answer

    def late(sql: str) -> pa.Table:
        found = ask(sql)
        monkeypatch.setattr(world, "_answer", ask)
        world.execute("INSERT INTO p VALUES (2, 2)")
        return found

    monkeypatch.setattr(world, "_answer", late)
    with pytest.raises(TableBusy, match="repeat it"):
        world.execute("UPDATE p SET v = 0 WHERE id IN (SELECT id FROM p)")
    world.execute("UPDATE p SET v = 0 WHERE id IN (SELECT id FROM p)")
    assert world.ask("SELECT SUM(v) AS s FROM p").to_pylist() == [{"s": 0}]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE p SET w = q.v FROM q", "column w does not exist in p"),
        ("UPDATE p SET v = q.v, v = 1 FROM q", "column v is set twice"),
        ("UPDATE p SET v = DEFAULT, v = q.v FROM q", "column v is set twice"),
        ("UPDATE p SET twice = q.v FROM q", "twice of p is computed from other columns"),
        ("UPDATE p SET v = x.v FROM x", "x"),
        ("UPDATE p SET v = (SELECT v FROM q)", "more than one row"),
        ("UPDATE p SET v = (SELECT MAX(s) FROM q)", "the query gives"),
    ],
)
def test_mistakes_with_other_relations_are_refused(world: SqlSession, statement: str, says: str) -> None:
    world.execute("CREATE TABLE p (id INT PRIMARY KEY, v INT, twice INT GENERATED ALWAYS AS (v * 2))")
    world.execute("CREATE TABLE q (v INT, s TEXT)")
    world.execute("INSERT INTO p (id, v) VALUES (1, 1)")
    world.execute("INSERT INTO q VALUES (1, 'x'), (2, 'y')")
    with pytest.raises((CompileError, CommandError, RuntimeFailure), match=says):
        world.execute(statement)
    assert world.ask("SELECT v FROM p").to_pylist() == [{"v": 1}]


def test_generated_columns_are_values_of_their_row(world: SqlSession) -> None:
    """In views, in conditions, as a key, and after each change; one that fails changes nothing."""
    world.execute(
        "CREATE TABLE p (cents INT, n INT NOT NULL, code TEXT AS (n || '/' || cents) PRIMARY KEY, each INT AS (cents / n) NOT NULL)"
    )
    world.execute("CREATE VIEW cheap AS SELECT code, each FROM p WHERE each < 10")
    world.execute("INSERT INTO p VALUES (12, 3, DEFAULT, DEFAULT), (50, 2, DEFAULT, DEFAULT)")
    world.execute("INSERT INTO p SELECT cents * 2, n * 2 FROM p WHERE each = 4")
    world.execute("UPDATE p SET cents = 18, each = DEFAULT WHERE code = '2/50'")
    world.execute("UPDATE p SET each = DEFAULT")
    world.execute("DELETE FROM p WHERE code = '3/12'")
    for sql in (
        "INSERT INTO p VALUES (1, 0)",
        "UPDATE p SET n = 0",
        "INSERT INTO p (n) VALUES (1)",
        "INSERT INTO p VALUES (18, 2)",
    ):
        with pytest.raises(StatementFailed):
            world.execute(sql)
    for relation in ("p", "cheap"):
        found = world.ask(f"SELECT code, each FROM {relation} ORDER BY code").to_pylist()
        assert found == [{"code": "2/18", "each": 9}, {"code": "6/24", "each": 4}], relation


def test_keys_that_change_places_are_compared_at_the_end_of_a_statement(world: SqlSession) -> None:
    world.execute(CREATE["t"])
    world.execute("INSERT INTO t (k, a) VALUES (1, 10), (2, 20), (3, 30)")
    world.execute("UPDATE t SET k = 4 - k")
    assert rows([tuple(r.values()) for r in world.ask("SELECT k, a FROM t").to_pylist()]) == [
        "(1, 30)",
        "(2, 20)",
        "(3, 10)",
    ]


def test_zero_is_one_key_whatever_its_sign(world: SqlSession) -> None:
    world.execute("CREATE TABLE d (k DOUBLE PRIMARY KEY)")
    world.execute("INSERT INTO d VALUES (-0.0)")
    with pytest.raises(StatementFailed):
        world.execute("INSERT INTO d VALUES (0.0)")
    world.execute("DELETE FROM d WHERE k = 0")
    assert world.ask("SELECT * FROM d").num_rows == 0


def test_values_of_every_type_come_back_as_they_were_written(world: SqlSession) -> None:
    world.execute(
        "CREATE TABLE v (i INT, l BIGINT, d DOUBLE, n NUMERIC, s TEXT, y DATE, h TIME, ts TIMESTAMP, o BOOLEAN, a INT[])"
    )
    world.execute(
        "INSERT INTO v VALUES (-2147483648, 9223372036854775807, 'NaN', 12345678901234567890.123456789012345678, "
        "'a''\"\\ é \t', '1969-12-31', '23:59:59.999', '2024-02-29 23:59:59.999', TRUE, ARRAY[1, NULL])"
    )
    world.execute("INSERT INTO v (d, s) VALUES (5e-324, ''), ('-Infinity', 'null')")
    world.execute("UPDATE v SET o = NOT o")
    (first,) = [r for r in world.ask("SELECT * FROM v").to_pylist() if r["i"] is not None]
    assert str(first["d"]) == "nan"
    assert first["n"] == Decimal("12345678901234567890.123456789012345678")
    assert first["s"] == "a'\"\\ é \t"
    shown = {k: str(v) for k, v in first.items() if k in ("i", "l", "y", "h", "ts", "o", "a")}
    assert shown == {
        "i": "-2147483648",
        "l": "9223372036854775807",
        "y": "1969-12-31",
        "h": "23:59:59.999000",
        "ts": "2024-02-29 23:59:59.999000",
        "o": "False",
        "a": "[1, None]",
    }
    assert rows([tuple(r.values()) for r in world.ask("SELECT d, s FROM v WHERE i IS NULL").to_pylist()]) == [
        "(-inf, 'null')",
        "(5e-324, '')",
    ]


def test_texts_and_null_in_the_query_of_an_insert_have_the_type_of_their_column(world: SqlSession) -> None:
    """As in PostgreSQL; texts for dates were refused, and NULL was an INT."""
    world.execute("CREATE TABLE m (i INT, d DATE, ts TIMESTAMP(3), b BOOLEAN)")
    world.execute("INSERT INTO m SELECT 1, '2024-05-01', '2024-05-01 10:00:00.5', 'yes'")
    world.execute("INSERT INTO m (i, d, ts) SELECT '2', NULL, NOW() FROM m WHERE i = 1")
    found = [
        tuple(r.values()) for r in world.ask("SELECT i, d, b, ts > '2024-05-01 10:00:00' FROM m ORDER BY i").to_pylist()
    ]
    assert found == [(1, date(2024, 5, 1), True, True), (2, None, None, True)]
    finer = "INSERT INTO m (ts) SELECT {}TIMESTAMP '2024-05-01 10:00:00.123456'"
    with pytest.raises(StatementFailed, match="parts of a millisecond"):
        world.execute(finer.format("").replace("TIMESTAMP ", ""))
    for sql in (finer.format(""), finer.format("NOW() - NOW() + ")):  # as of VALUES
        with pytest.raises(QueryError, match=r"the query gives TIMESTAMP\(6\)"):
            world.execute(sql)
    with pytest.raises(CompileError, match=r"rounding by the type TIMESTAMP\(0\)"):  # it was stored as it came
        world.execute("CREATE TABLE o (ts TIMESTAMP(0))")


def test_the_query_of_an_insert_is_assigned_as_values_are(world: SqlSession) -> None:
    world.execute("CREATE TABLE n (i INT, s TEXT, d NUMERIC(6, 2))")
    world.execute("INSERT INTO n SELECT 1.5, 7, 2.345")
    world.execute("INSERT INTO n (d) SELECT CAST(x AS INT) FROM (VALUES (1), (2)) AS q(x)")
    found = [tuple(r.values()) for r in world.ask("SELECT * FROM n ORDER BY d").to_pylist()]
    assert found[2] == (2, "7", Decimal("2.35"))
    world.execute("WITH q AS (SELECT 20 AS x), p AS (SELECT x + 1 AS x FROM q) INSERT INTO n (d) SELECT x FROM p")
    assert world.ask("SELECT d FROM n WHERE d > 19").to_pylist() == [{"d": 21.0}]
    for sql in ("INSERT INTO n SELECT 'x'", "INSERT INTO n (i) SELECT s FROM n", "INSERT INTO n (i) SELECT TRUE"):
        with pytest.raises(QueryError):
            world.execute(sql)
    for sql in ("INSERT INTO n (i) SELECT 'x'", "INSERT INTO n (i) SELECT 3000000000"):
        with pytest.raises(StatementFailed):
            world.execute(sql)
    assert world.ask("SELECT * FROM n").num_rows == 4


def test_several_columns_are_set_to_one_query(world: SqlSession) -> None:
    for sql in (CREATE["t"], "INSERT INTO t (k, a, s) VALUES (1, 5, 'x'), (2, 6, 'x'), (3, 7, NULL)"):
        world.execute(sql)
    world.execute("UPDATE t SET (a, n) = (SELECT MAX(o.a) + t.k, COUNT(*) FROM t AS o WHERE o.s = t.s), b = TRUE")
    assert world.ask("SELECT k, a, CAST(n AS INT) AS n, b FROM t ORDER BY k").to_pylist() == [
        {"k": 1, "a": 7, "n": 2, "b": True},
        {"k": 2, "a": 8, "n": 2, "b": True},
        {"k": 3, "a": None, "n": 0, "b": True},
    ]
    world.execute("WITH m AS (SELECT 9 AS x, 'w' AS y) UPDATE t SET (a, s) = (SELECT x, y FROM m) WHERE k = 3")
    assert world.ask("SELECT a, s FROM t WHERE k = 3").to_pylist() == [{"a": 9, "s": "w"}]
    world.execute("UPDATE t SET (a, s) = (SELECT a, s FROM t WHERE FALSE) WHERE k = 3")
    assert world.ask("SELECT a, s FROM t WHERE k = 3").to_pylist() == [{"a": None, "s": None}]
    with pytest.raises(StatementFailed, match="several values at once"):
        world.execute("UPDATE t SET (a, s) = (SELECT o.a, o.s FROM t AS o)")
    with pytest.raises(CompileError, match="2 columns are set to a query of 1"):
        world.execute("UPDATE t SET (a, s) = (SELECT 1)")


def test_the_query_of_an_insert_has_the_types_that_its_columns_have(world: SqlSession) -> None:
    """They were guessed from the answer, where JSONB and UUID are texts: any text was taken for them."""
    world.execute("CREATE TABLE j (k INT, v JSONB, u UUID, s TEXT)")
    world.execute("""INSERT INTO j VALUES (1, '{"a": 1.50}', '6F9619FF-8B86-D011-B42D-00C04FC964FF', '{"b": 2}')""")
    world.execute("INSERT INTO j SELECT k + 1, v, u, s FROM j")
    world.execute("INSERT INTO j SELECT 3, CAST(s AS JSONB), u, s FROM j WHERE k = 1")
    found = world.ask("SELECT k, v->>'a' AS a, v->>'b' AS b, u FROM j ORDER BY k").to_pylist()
    assert [(r["k"], r["a"], r["b"]) for r in found] == [(1, "1.50", None), (2, "1.50", None), (3, None, "2")]
    assert len({r["u"] for r in found}) == 1
    for sql in ("INSERT INTO j (v) SELECT s FROM j", "INSERT INTO j (u) SELECT s FROM j"):
        with pytest.raises(QueryError, match="the query gives"):
            world.execute(sql)

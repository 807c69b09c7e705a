"""CHECK, and what VARCHAR(n) and SMALLINT say of values: statements that would break them fail, as in PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan import codec
from flowql.errors import CompileError
from flowql.query.errors import QueryError
from flowql.runtime.errors import StatementFailed, TableUnsupported
from tests.slt.session import Shape, SqlSession

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY CHECK (id > 0), n INT DEFAULT 7 CONSTRAINT small CHECK (n < 100), s VARCHAR(3), c CHAR(2),"
    " sm SMALLINT, g INT GENERATED ALWAYS AS (n * 2), CHECK (g <> 14 OR s IS NOT NULL), CHECK (10 / n > 0));"
)


@pytest.fixture
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    made.execute(TABLE)
    yield made
    made.close()


def rows(world: SqlSession) -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in world.ask("SELECT id, n, s, sm FROM t ORDER BY id").to_pylist()]


def test_rows_that_break_a_check_are_refused_and_unknown_ones_are_not(world: SqlSession) -> None:
    world.execute("INSERT INTO t VALUES (1, 5, 'äöü', 'x', -32768), (2, NULL, NULL, NULL, NULL)")
    world.execute("INSERT INTO t (id, s) VALUES (3, 'q')")
    before = [(1, 5, "äöü", -32768), (2, None, None, None), (3, 7, "q", None)]
    assert rows(world) == before
    for sql, says in (
        ("INSERT INTO t (id, n) VALUES (0, 1)", r"would break CHECK \(id > 0\) \(id = 0\)"),
        ("INSERT INTO t (id, n) VALUES (4, 100)", r"CONSTRAINT small CHECK \(n < 100\) \(n = 100\)"),
        ("INSERT INTO t (id) VALUES (4)", "CHECK"),
        ("INSERT INTO t (id, n) VALUES (4, 0)", "CHECK: "),
        ("INSERT INTO t (id, n, s) VALUES (4, 1, 'four')", r"s VARCHAR\(3\) \(s = four\)"),
        ("INSERT INTO t (id, n, c) VALUES (4, 1, 'abc')", r"c CHAR\(2\)"),
        ("INSERT INTO t (id, n, sm) VALUES (4, 1, 32768)", "sm SMALLINT"),
        ("INSERT INTO t (id, n, s) SELECT id + 10, n, 'much' FROM t", "VARCHAR"),
        ("INSERT INTO t (id, n) VALUES (1, 200) ON CONFLICT (id) DO UPDATE SET n = 3", "small"),
        ("INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET n = 300", "small"),
        ("UPDATE t SET n = n + 95", "small"),
        ("UPDATE t SET s = s || '!'", "VARCHAR"),
        ("UPDATE t SET n = u.n + 95 FROM t AS u WHERE u.id = t.id", "small"),
    ):
        with pytest.raises(StatementFailed, match=says):
            world.execute(sql)
        assert rows(world) == before, sql


def test_values_beyond_a_real_are_refused_in_writes_and_casts(world: SqlSession) -> None:
    """Columns of REAL are DOUBLE; a value that PostgreSQL refuses for REAL is refused here as well."""
    world.execute("CREATE TABLE r (id INT PRIMARY KEY, v REAL)")
    world.execute("INSERT INTO r VALUES (1, 'Infinity'), (2, 'NaN'), (3, 0), (4, NULL), (5, -3.4e38), (6, 1e-45)")
    before = world.ask("SELECT * FROM r ORDER BY id").to_pylist()
    assert [row["v"] for row in before if row["id"] in (1, 3, 4, 5, 6)] == [math.inf, 0.0, None, -3.4e38, 1e-45]
    for value in ("1e39", "-1e39", "7e-46", "3.4028235677973366e38"):
        for sql in (f"INSERT INTO r VALUES (7, {value})", f"UPDATE r SET v = {value}"):
            with pytest.raises(StatementFailed, match="out of range for type REAL"):
                world.execute(sql)
            assert str(world.ask("SELECT * FROM r ORDER BY id").to_pylist()) == str(before), sql
        for cast in (f"CAST({value} AS REAL)", f"REAL '{value}'"):
            with pytest.raises(QueryError, match="out of range for type REAL"):
                world.ask(f"SELECT {cast} AS v FROM r")


NESTED = (
    "CREATE TYPE short AS VARCHAR(2); CREATE TYPE place AS STRUCT<street short, number SMALLINT>;"
    "CREATE TABLE n (id INT PRIMARY KEY, reals REAL[], texts VARCHAR(2)[], small SMALLINT[][], m MAP<VARCHAR(1), SMALLINT>,"
    " s STRUCT<x REAL, y STRUCT<z VARCHAR(2)>>, p place, ps place[]);"
)


@pytest.mark.parametrize(
    ("column", "kept", "refused"),
    [
        ("reals", "ARRAY[0.5, NULL]", ["ARRAY[0.5, 1e39]"]),
        ("texts", "ARRAY['ab', NULL]", ["ARRAY['abc']"]),
        ("small", "ARRAY[ARRAY[1], ARRAY[-32768]]", ["ARRAY[ARRAY[1], ARRAY[32768]]"]),
        ("m", "MAP('a' := 1)", ["MAP('ab' := 1)", "MAP('a' := 32768)"]),
        ("s", "ROW(0.5, NULL)", ["ROW(1e39, NULL)", "ROW(0.5, STRUCT(z := 'abc'))"]),
        ("p", "ROW('ab', 5)", ["ROW('abc', 5)", "ROW('ab', 32768)"]),
        ("ps", "ARRAY[STRUCT(street := 'ab', number := 5), NULL]", ["ARRAY[STRUCT(street := 'abc', number := 5)]"]),
    ],
)
def test_limits_of_types_hold_for_the_parts_of_arrays_maps_and_structs(
    world: SqlSession, column: str, kept: str, refused: list[str]
) -> None:
    world.execute(NESTED)
    world.execute(f"INSERT INTO n (id, {column}) VALUES (1, {kept}), (2, NULL)")
    before = world.ask(f"SELECT id, {column} FROM n ORDER BY id").to_pylist()
    assert before[0][column]
    assert before[1][column] is None
    for value in refused:
        for sql in (f"INSERT INTO n (id, {column}) VALUES (3, {value})", f"UPDATE n SET {column} = {value}"):
            with pytest.raises(StatementFailed, match=f"{column} |out of range for type REAL"):
                world.execute(sql)
    assert world.ask(f"SELECT id, {column} FROM n ORDER BY id").to_pylist() == before


@pytest.mark.parametrize(
    ("cast", "value"),
    [
        ("CAST(a AS REAL[])", [0.10000000149011612, None]),
        ("CAST(CAST(a AS TEXT[]) AS VARCHAR(2)[])", ["0.", None]),
        ("CAST('{{ab,cd},{e,f}}' AS VARCHAR(1)[][])", [["a", "c"], ["e", "f"]]),
        ("CAST(ARRAY[s] AS STRUCT<x REAL, y VARCHAR(2)>[])", [{"x": 0.10000000149011612, "y": "ab"}]),
        ("CAST(s AS STRUCT<y VARCHAR(1), z TEXT>)", {"y": "a", "z": None}),
        ("CAST(ROW(0.1, 'abc') AS STRUCT<x REAL, y VARCHAR(2)>)", {"x": 0.10000000149011612, "y": "ab"}),
        ("CAST(m AS MAP<VARCHAR(2), BIGINT>)", [("ke", 7)]),
        ("CAST(STRUCT(m := m) AS STRUCT<m MAP<VARCHAR(1), SMALLINT>>)", {"m": [("k", 7)]}),
        ("TRY_CAST(MAP('k' := id * 40000) AS MAP<TEXT, SMALLINT>)", None),
    ],
)
def test_casts_cut_round_and_check_the_parts_of_arrays_maps_and_structs(
    world: SqlSession, cast: str, value: object
) -> None:
    world.execute(
        "CREATE TABLE n (id INT PRIMARY KEY, a DOUBLE PRECISION[], s STRUCT<x DOUBLE PRECISION, y TEXT>, m MAP<TEXT, INT>);"
        f"CREATE VIEW made AS SELECT id, {cast} AS v FROM n"
    )
    world.execute("INSERT INTO n VALUES (1, ARRAY[0.1, NULL], STRUCT(x := 0.1, y := 'abc'), MAP('key' := 7))")
    for sql in ("SELECT v FROM made", f"SELECT {cast} AS v FROM n"):
        assert world.ask(sql).to_pylist() == [{"v": value}], sql


def test_a_part_of_a_cast_beyond_its_type_is_an_error(world: SqlSession) -> None:
    world.execute("CREATE TABLE n (id INT PRIMARY KEY, m MAP<TEXT, INT>, s STRUCT<x INT>)")
    world.execute("INSERT INTO n VALUES (1, MAP('key' := 32768), STRUCT(x := 32768))")
    for cast in (
        "CAST(m AS MAP<TEXT, SMALLINT>)",
        "CAST(s AS STRUCT<x SMALLINT>)",
        "CAST('{{32768}}' AS SMALLINT[][])",
    ):
        with pytest.raises(QueryError, match="32768 is not from"):
            world.ask(f"SELECT {cast} AS v FROM n")


def test_a_cast_to_real_rounds_to_single_precision_in_views_and_queries(world: SqlSession) -> None:
    """The values are PostgreSQL's of `CAST(CAST(v AS REAL) AS DOUBLE PRECISION)`."""
    world.execute("CREATE TABLE d (id INT PRIMARY KEY, v DOUBLE PRECISION)")
    select = "SELECT id, CAST(v AS REAL) AS r, CAST(v AS REAL) = v AS same FROM d"
    world.execute(f"CREATE VIEW reals AS {select}")
    world.execute(
        "INSERT INTO d VALUES (1, 0.1), (2, 16777217), (3, 16777219), (4, 1e-45), (5, '-Infinity'), (6, '-0'), (7, NULL), (8, 3.4028235e38)"
    )
    rounded = [
        0.10000000149011612,
        16777216.0,
        16777220.0,
        1.401298464324817e-45,
        -math.inf,
        -0.0,
        None,
        3.4028234663852886e38,
    ]
    same = [False, False, False, False, True, True, None, False]
    wanted = str(list(zip(range(1, 9), rounded, same, strict=True)))
    for sql in (select, "SELECT * FROM reals"):
        assert str([tuple(r.values()) for r in world.ask(f"{sql} ORDER BY id").to_pylist()]) == wanted, sql
    constants = world.ask("SELECT CAST(0.1 AS REAL) AS a, REAL '0.1' AS b, 16777217::float4 AS c").to_pylist()
    assert [tuple(r.values()) for r in constants] == [(rounded[0], rounded[0], 16777216.0)]


def test_a_cast_to_real_rounds_whole_numbers_decimals_and_strings_once(world: SqlSession) -> None:
    """Each value is next to the middle of two REALs, to which a DOUBLE rounds it. The results are PostgreSQL's."""
    world.execute("CREATE TABLE w (id INT PRIMARY KEY, b BIGINT, n NUMERIC(38, 18), s TEXT)")
    select = "SELECT id, CAST(b AS REAL) AS b, CAST(n AS REAL) AS n, CAST(s AS REAL) AS s FROM w"
    world.execute(f"CREATE VIEW once AS {select}")
    above, below = 2**62 + 2**38 + 1, 2**62 + 3 * 2**38 - 1
    world.execute(
        f"INSERT INTO w VALUES (1, {above}, 16777217.000000000000000001, '16777217.0000000000000000001'),"
        f" (2, {below}, 16777218.999999999999999999, '16777218.99999999999999999999'),"
        f" (3, {-above}, -16777217.000000000000000001, '-16777217.0000000000000000001'),"
        " (4, 16777217, 16777217, '16777217'), (5, NULL, NULL, 'Infinity')"
    )
    big = float(2**62 + 2**39)
    wanted = [
        (1, big, 16777218.0, 16777218.0),
        (2, big, 16777218.0, 16777218.0),
        (3, -big, -16777218.0, -16777218.0),
        (4, 16777216.0, 16777216.0, 16777216.0),
        (5, None, None, math.inf),
    ]
    for sql in (select, "SELECT * FROM once"):
        assert [tuple(r.values()) for r in world.ask(f"{sql} ORDER BY id").to_pylist()] == wanted, sql
    assert world.ask(f"SELECT CAST({above} AS REAL) AS v").to_pylist() == [{"v": big}]


def test_a_cast_to_an_array_rounds_cuts_and_checks_each_element(world: SqlSession) -> None:
    world.execute("CREATE TABLE e (id INT PRIMARY KEY, d DOUBLE PRECISION[], b BIGINT[], s TEXT[], t TEXT)")
    select = (
        "SELECT id, CAST(d AS REAL[]) AS d, CAST(b AS REAL[]) AS b, CAST(s AS VARCHAR(3)[]) AS s, CAST(t AS VARCHAR(2)[]) AS t,"
        " CAST(ARRAY[0.1, 2] AS REAL[]) AS c FROM e"
    )
    world.execute(f"CREATE VIEW elements AS {select}")
    world.execute(
        f"INSERT INTO e VALUES (1, ARRAY[0.1, NULL], ARRAY[{2**62 + 2**38 + 1}], ARRAY['abcd', 'ab'], '{{abc,NULL}}'),"
        " (2, NULL, NULL, NULL, NULL)"
    )
    real, big = 0.10000000149011612, float(2**62 + 2**39)
    wanted = [
        (1, [real, None], [big], ["abc", "ab"], ["ab", None], [real, 2.0]),
        (2, None, None, None, None, [real, 2.0]),
    ]
    for sql in (select, "SELECT * FROM elements"):
        assert [tuple(r.values()) for r in world.ask(f"{sql} ORDER BY id").to_pylist()] == wanted, sql
    with pytest.raises(QueryError, match="is not from -32768 to 32767"):
        world.ask("SELECT CAST(COALESCE(t, '') || '40000}' AS SMALLINT[]) AS v FROM (SELECT '{' AS t) AS x")
    with pytest.raises(QueryError, match="out of range for type REAL"):
        world.ask("SELECT CAST(ARRAY[1e39] AS REAL[]) AS v FROM e")


def test_a_check_that_is_no_condition_of_its_row_is_refused(world: SqlSession) -> None:
    for condition in ("a + 1", "x > 1", "a > (SELECT 1)", "COUNT(a) > 1", "a > random()", "1 / 0 > a"):
        with pytest.raises(CompileError):
            world.execute(f"CREATE TABLE u (a INT CHECK ({condition}))")
    topic = "CREATE STREAM s (a INT CHECK (a > 1)) WITH (kafka_topic = 's', value_format = 'JSON', partitions = 1)"
    for sql in (topic, "ALTER TABLE t ADD COLUMN w INT CHECK (w > 1)"):
        with pytest.raises(CompileError, match="CHECK of a"):
            world.execute(sql)


def test_a_table_with_rows_gets_no_new_check_and_new_columns_have_their_limits(world: SqlSession) -> None:
    world.execute("INSERT INTO t (id, n, s) VALUES (1, 5, 'abc')")
    with pytest.raises(TableUnsupported, match=r"some may break CHECK \(n > 9\)"):
        world.redefine(TABLE.replace("VARCHAR(3)", "VARCHAR(3) CHECK (n > 9)"))
    world.redefine(TABLE.replace("VARCHAR(3)", "VARCHAR(2)"))  # as of a table that was made before limits were checked
    world.execute("ALTER TABLE t ADD COLUMN w VARCHAR(1)")
    world.execute("UPDATE t SET s = 'ab', w = 'x'")
    for sql in ("UPDATE t SET s = 'abc'", "UPDATE t SET w = 'xy'"):
        with pytest.raises(StatementFailed, match="would break"):
            world.execute(sql)


def test_checks_are_part_of_the_plan() -> None:
    plan = compile_project([SourceText("t.sql", TABLE)], dialect="standard").plan
    (source,) = codec.loads(codec.dumps(plan)).sources
    assert source.rules is not None
    assert [c.name for c in source.rules.limits] == ["s VARCHAR(3)", "c CHAR(2)", "sm SMALLINT"]
    assert len(source.rules.checks) == 4
    assert source == plan.sources[0]

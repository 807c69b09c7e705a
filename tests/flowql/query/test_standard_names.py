"""Names that PostgreSQL allows and DuckDB takes for words of its own, in interactive queries and statements."""

from __future__ import annotations

import duckdb

from flowql.compiler.dialect.standard.words import NOT_NAMES
from flowql.query.standard_names import WORDS
from tests.slt.session import Shape, SqlSession


def test_words_of_duckdb_are_names() -> None:
    world = SqlSession(Shape())
    world.execute("CREATE TABLE show (at TIMESTAMP, by INT, map TEXT, lambda INT)")
    world.execute("INSERT INTO show VALUES ('2024-05-01 10:00:00', 1, 'm', 2), (NULL, 2, 'n', 3)")
    for sql, columns, rows in (
        ("SELECT MAX(at) IS NULL AS at, by FROM show GROUP BY by ORDER BY by", ["at", "by"], [(False, 1), (True, 2)]),
        ("SELECT show.by, MAX(s.lambda) FROM show JOIN show AS s USING (by, map) GROUP BY 1 ORDER BY show.by", ["by", "max"], [(1, 2), (2, 3)]),
        ("WITH pivot (at, glob) AS (SELECT by, map FROM show) SELECT p.at AS struct, glob FROM pivot p WHERE at = 1", ["struct", "glob"], [(1, "m")]),
        ("SELECT by AS tuple, 'at by' AS x FROM show AS at WHERE at.by IN (SELECT by FROM show WHERE map = 'n')", ["tuple", "x"], [(2, "at by")]),
    ):  # fmt: skip
        found = world.ask(sql)
        assert (found.column_names, [tuple(r.values()) for r in found.to_pylist()]) == (columns, rows), sql
    world.execute("UPDATE show SET by = by + 1 WHERE by IN (SELECT by FROM show WHERE at IS NOT NULL)")
    world.execute("DELETE FROM show USING (SELECT by, map FROM show WHERE map = 'n') AS at WHERE at.map = show.map")
    assert world.ask("SELECT by, map FROM show").to_pylist() == [{"by": 2, "map": "m"}]
    world.close()


def test_every_word_of_duckdb_that_the_dialect_takes_for_a_name_is_known() -> None:
    asked = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
    words = {name for (name,) in duckdb.sql(asked).fetchall()}
    assert {w for w in words if w.upper() not in NOT_NAMES} <= WORDS

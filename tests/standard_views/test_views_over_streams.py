"""Views over streams that queries of ksqlDB cannot say: their rows are a relation that only grows, against DuckDB."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from tests.slt.session import Shape, SqlSession

STREAM = "CREATE STREAM clicks (id BIGINT KEY, who INT, page TEXT, amount INT) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=3)"
ROWS = [(n, n % 4 or None, "abc"[n % 3] if n % 5 else None, n * n % 17 - 5) for n in range(60)]
VIEWS = {
    "all": "SELECT count(*) AS n, sum(amount) AS s, max(page) AS p FROM clicks",
    "none": "SELECT count(*) AS n, sum(amount) AS s FROM clicks WHERE amount > 1000",
    "counts": "SELECT count(*) AS n FROM clicks GROUP BY page",
    "texts": "SELECT who, string_agg(page, ',' ORDER BY page, id) AS p FROM clicks GROUP BY who",
    "distinct": "SELECT who, sum(DISTINCT amount) AS s FROM clicks GROUP BY who",
    "inner": "SELECT amount FROM (SELECT id, amount FROM clicks WHERE who = 1) AS x",
    "computed": "SELECT amount + 1 AS a, count(*) AS n FROM clicks GROUP BY amount + 1",
    "halves": "SELECT amount * 2.5 AS h, count(*) AS n FROM clicks GROUP BY amount * 2.5",
}


@pytest.mark.turns("cases")
@pytest.mark.parametrize("shape", [Shape(), Shape(vector=True, partitions=3)])
def test_views_over_streams_hold_what_the_database_answers(shape: Shape) -> None:
    """At each moment, and over a restart."""
    database = duckdb.connect()
    database.sql("CREATE TABLE clicks (id BIGINT, who INT, page TEXT, amount INT)")
    world = SqlSession(shape)
    try:
        world.execute(STREAM)
        for name, query in VIEWS.items():
            world.execute(f'CREATE VIEW "{name}" AS {query}')
        for start in range(0, len(ROWS), 20):
            given = ", ".join(
                f"({i}, {'NULL' if w is None else w}, {'NULL' if p is None else repr(p)}, {a})"
                for i, w, p, a in ROWS[start : start + 20]
            )
            for run in (world.execute, database.sql):
                run(f"INSERT INTO clicks (id, who, page, amount) VALUES {given}")
            world.settle()
            for name, query in VIEWS.items():
                found = Counter(tuple(r.values()) for r in world.ask(f'SELECT * FROM "{name}"').to_pylist())
                assert found == Counter(database.sql(query).fetchall()), name
            world.restart()
    finally:
        world.close()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT count(*) AS n FROM clicks WHERE nothing = 1", "FQ2002"),
        ("SELECT a.page FROM clicks a JOIN clicks b ON a.who = b.who", "FQ2103"),
    ],
)
def test_what_is_wrong_there_stays_refused(query: str, code: str) -> None:
    """A join of streams without a bound of time would keep all rows for ever."""
    made = compile_project([SourceText("s.sql", f"{STREAM}; CREATE VIEW v AS {query};")], dialect="standard")
    assert [d.code for d in made.diagnostics] == [code]

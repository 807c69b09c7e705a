"""Joins of streams without a watermark: with a bound of time, against DuckDB, and their state; without one they are refused."""

from __future__ import annotations

from collections import Counter
from random import Random

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from tests.slt.session import Shape, SqlSession

STREAMS = "".join(
    f"CREATE STREAM {name} (id BIGINT KEY, g INT, ts TIMESTAMP) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON', PARTITIONS=2{time});\n"
    for name, time in (("a", ""), ("b", ""), ("c", ", TIMESTAMP='ts'"))
)
NEAR = "{0}.ts BETWEEN {1}.ts - INTERVAL '10' MINUTE AND {1}.ts + INTERVAL '1' MINUTE"
VIEWS = {
    "inside": f"SELECT a.id, b.id AS other FROM a JOIN b ON a.g = b.g AND {NEAR.format('a', 'b')}",
    "listed": f"SELECT a.id, b.id AS other FROM a, b WHERE a.g = b.g AND {NEAR.format('b', 'a')}",
    "named": f"SELECT g, a.id, b.id AS other FROM a JOIN b USING (g) WHERE {NEAR.format('a', 'b')}",
    "kept": f"SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.g = b.g AND {NEAR.format('a', 'b')}",
    "three": f"SELECT a.id, b.id AS other, c.id AS third FROM a JOIN b ON a.g = b.g AND {NEAR.format('a', 'b')}"
    f" JOIN c ON b.g = c.g AND {NEAR.format('b', 'c')}",
    "same": "SELECT a.id, b.id AS other FROM a JOIN b ON a.ts = b.ts",
    "timed": "SELECT x.id, y.id AS other FROM c AS x JOIN c AS y ON x.g = y.g AND x.rowtime BETWEEN y.rowtime - 60000 AND y.rowtime",
}
REFERENCE = {"timed": VIEWS["timed"].replace("rowtime", "epoch_ms(ts)").replace("x.epoch_ms(ts)", "epoch_ms(x.ts)").replace("y.epoch_ms(ts)", "epoch_ms(y.ts)")}  # fmt: skip


@pytest.mark.turns("cases")
@pytest.mark.parametrize("shape", [Shape(), Shape(vector=True, partitions=2)])
def test_joins_bounded_by_times_hold_what_the_database_answers(shape: Shape) -> None:
    """A day and more passes between the steps: what no later row can meet is dropped, and the answer stays."""
    seed = 542
    rng, database, world = Random(seed), duckdb.connect(), SqlSession(shape)
    try:
        world.execute(STREAMS)
        for table in ("a", "b", "c"):
            database.sql(f"CREATE TABLE {table} (id BIGINT, g INT, ts TIMESTAMP)")
        for name, query in VIEWS.items():
            world.execute(f"CREATE VIEW {name} AS {query}")
            database.sql(f"CREATE VIEW {name} AS {REFERENCE.get(name, query)}")
        for day in range(1, 7, 2):
            for table in ("a", "b", "c"):
                rows = ", ".join(_row(rng, 100 * day + i, day) for i in range(12))
                for run in (world.execute, database.sql):
                    run(f"INSERT INTO {table} (id, g, ts) VALUES {rows}")
            world.settle()
            for name in VIEWS:
                found = Counter(tuple(r.values()) for r in world.ask(f"SELECT * FROM {name}").to_pylist())
                wanted = Counter(database.sql(f"SELECT * FROM {name}").fetchall())
                assert found == wanted, f"{name}, seed {seed}, day {day}"
                assert wanted, name
    finally:
        world.close()


def _row(rng: Random, number: int, day: int) -> str:
    return f"({number}, {rng.choice(('NULL', 0, 1))}, '2024-05-0{day} 12:{rng.randrange(20):02}:00')"


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ("SELECT a.id FROM a JOIN b ON a.g = b.g", "JOIN"),
        ("SELECT a.id FROM a, b WHERE a.g = b.g", ","),
        ("SELECT a.id FROM a JOIN b USING (g)", "JOIN"),
        ("SELECT g FROM a NATURAL JOIN (SELECT g, id AS other FROM b) AS x", "NATURAL JOIN"),
        ("SELECT a.id FROM a CROSS JOIN b", "CROSS JOIN"),
        ("SELECT a.id FROM a LEFT JOIN b ON a.g = b.g", "LEFT JOIN"),
        ("SELECT a.id FROM a JOIN b ON a.g = b.g AND a.ts >= b.ts", "JOIN"),
        (f"SELECT a.id FROM a JOIN b ON a.g = b.g AND {NEAR.format('a', 'b')} INNER JOIN c ON c.g = a.g", "INNER JOIN"),
        (f"SELECT a.id FROM a INNER JOIN b ON a.g = b.g JOIN c ON c.g = a.g AND {NEAR.format('c', 'a')}", "INNER JOIN"),
    ],
)
def test_a_join_without_a_bound_is_refused_at_the_join_that_lacks_it(query: str, at: str) -> None:
    text = f"{STREAMS}CREATE VIEW v AS {query};"
    said, *_ = compile_project([SourceText("s.sql", text)], dialect="standard").diagnostics
    assert said.code == "FQ2103"
    start = said.span.column - 1
    assert said.span.line_text[start : start + said.span.length] == at

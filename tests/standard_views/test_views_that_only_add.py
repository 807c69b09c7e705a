"""Views over streams whose rows are only ever added: they are streams, keep no row of their own, and hold what DuckDB answers."""

from __future__ import annotations

from collections import Counter
from random import Random

import duckdb
import pytest

from flowql.compiler.plan.changes import Consolidate
from flowql.compiler.plan.logical import walk_nodes
from tests.slt.session import Shape, SqlSession

SOURCES = """
CREATE STREAM a (id BIGINT KEY, g INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
  WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON', PARTITIONS={partitions});
CREATE STREAM b (id BIGINT KEY, g INT, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
  WITH (KAFKA_TOPIC='b', VALUE_FORMAT='JSON', PARTITIONS={partitions});
CREATE STREAM other (id BIGINT KEY, g INT, n INT, ts TIMESTAMP) WITH (KAFKA_TOPIC='other', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE items (g INT PRIMARY KEY, name TEXT);
INSERT INTO items VALUES (0, 'zero'), (1, 'one'), (2, 'two');
"""
# The view, and what DuckDB calls it where that is something else.
VIEWS: dict[str, tuple[str, str]] = {
    "filtered": ("SELECT n, id FROM a WHERE n > 3", ""),
    "united": ("SELECT g, id FROM a WHERE n > 3 UNION ALL SELECT g + 1, id FROM b UNION ALL SELECT g, id FROM a", ""),
    "uneven": ("SELECT id, n FROM a UNION ALL SELECT id, n FROM other", ""),
    "numbered": ("SELECT id, x FROM a, generate_series(1, n % 3) AS e(x)", "SELECT id, x FROM a, generate_series(1, n % 3) AS e(x)"),
    "elements": ("SELECT id, UNNEST(ARRAY[g, n]) AS x FROM other", ""),
    "named": (
        "SELECT a.id, items.name FROM a JOIN items FOR SYSTEM_TIME AS OF PROCTIME() ON a.g = items.g",
        "SELECT a.id, items.name FROM a JOIN items ON a.g = items.g",
    ),
    "kept": (
        "SELECT a.id, items.name FROM a LEFT JOIN items FOR SYSTEM_TIME AS OF PROCTIME() ON a.g = items.g AND a.n > 2",
        "SELECT a.id, items.name FROM a LEFT JOIN items ON a.g = items.g AND a.n > 2",
    ),
    "near": ("SELECT a.id, b.id AS other FROM a JOIN b ON a.g = b.g AND a.ts BETWEEN b.ts - INTERVAL '5' MINUTE AND b.ts + INTERVAL '5' MINUTE", ""),
    "crossed": ("SELECT a.id, b.id AS other FROM a, b WHERE a.g = b.g AND a.n = b.n", ""),
    "again": ("SELECT x.n, y.g FROM filtered AS x JOIN united AS y ON x.id = y.id", ""),
    "counted": ("SELECT g, COUNT(*) AS c FROM united GROUP BY g", ""),
}  # fmt: skip
STREAMS = [v for v in VIEWS if v != "counted"]


@pytest.mark.turns("cases")
@pytest.mark.parametrize("shape", [Shape(), Shape(vector=True, partitions=3)])
def test_views_whose_rows_are_only_added_are_streams_and_hold_what_the_database_answers(shape: Shape) -> None:
    seed = 54
    rng, database, world = Random(seed), duckdb.connect(), SqlSession(shape)
    try:
        world.execute(SOURCES.format(partitions=shape.partitions))
        for table in ("a", "b", "other"):
            database.sql(f"CREATE TABLE {table} (id BIGINT, g INT, n INT, ts TIMESTAMP)")
        database.sql("CREATE TABLE items AS SELECT * FROM (VALUES (0, 'zero'), (1, 'one'), (2, 'two')) AS t(g, name)")
        for name, (query, reference) in VIEWS.items():
            world.execute(f'CREATE VIEW "{name}" AS {query}')
            database.sql(f'CREATE VIEW "{name}" AS {reference or query}')
        kinds = {s.name: s.kind for s in world.plan.sources}
        assert [v for v in VIEWS if kinds[v] == "stream"] == STREAMS
        for step in range(3):
            for table in ("a", "b", "other"):
                rows = ", ".join(_row(rng, 10 * step + i) for i in range(10))
                for run in (world.execute, database.sql):
                    run(f"INSERT INTO {table} (id, g, n, ts) VALUES {rows}")
            world.settle()
            for name in VIEWS:
                found = world.ask(f'SELECT * FROM "{name}"')
                wanted = database.sql(f'SELECT * FROM "{name}"')
                assert found.column_names == wanted.columns, name
                rows_found = Counter(tuple(r.values()) for r in found.to_pylist())
                assert rows_found == Counter(wanted.fetchall()), f"{name}, seed {seed}, step {step}"
            if step == 1:
                world.restart()
        _keeps_no_rows(world)
    finally:
        world.close()


def _row(rng: Random, number: int) -> str:
    group, n = (rng.choice(("NULL", 0, 1, 2)) for _ in range(2))
    return f"({number}, {group}, {n if n == 'NULL' else rng.randrange(7)}, '2024-05-01 12:{number:02}:{rng.randrange(60):02}')"


def _keeps_no_rows(world: SqlSession) -> None:
    """No store but those of joins, which keep what a row of the other side may still meet."""
    for name in STREAMS:
        (query,) = (q for q in world.plan.queries if q.sink == name)
        assert not any(isinstance(n.spec, Consolidate) for n in walk_nodes(query.logical))
        stores = [s.name for t in query.subtopologies for o in t.operators for s in o.stores]
        assert not [s for s in stores if "join" not in s and "materialise" not in s], name
        assert not [s for s in stores if s.endswith("temporaljoin-1-left")], "a temporal join keeps no left rows"


def test_a_window_that_is_closed_is_a_record_of_a_stream() -> None:
    """With EMIT ON WINDOW CLOSE each window comes once; a late row is not in it."""
    world = SqlSession(Shape())
    try:
        world.execute(SOURCES.format(partitions=1))
        world.execute(
            "CREATE VIEW closed AS SELECT window_start, g, COUNT(*) AS c FROM TUMBLE(a, ts, INTERVAL '1' HOUR)"
            " GROUP BY window_start, g EMIT ON WINDOW CLOSE"
        )
        world.execute("CREATE VIEW later AS SELECT c, g FROM closed WHERE g > 0 EMIT ON WINDOW CLOSE")
        for hour in (1, 1, 2, 4, 1, 7):
            world.execute(f"INSERT INTO a (id, g, n, ts) VALUES ({hour}, {hour % 2}, 0, '2024-05-01 0{hour}:30:00')")
        world.settle()
        (source,) = (s for s in world.plan.sources if s.name == "closed")
        assert (source.kind, [f.name for f in source.schema.key]) == ("stream", [])
        found = world.ask("SELECT EXTRACT(HOUR FROM window_start) AS h, g, c FROM closed").to_pylist()
        assert sorted(tuple(r.values()) for r in found) == [(1, 1, 2), (2, 0, 1), (4, 0, 1)]
        assert world.ask("SELECT * FROM later").to_pylist() == [{"c": 2, "g": 1}]
    finally:
        world.close()

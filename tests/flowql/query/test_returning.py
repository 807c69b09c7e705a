"""RETURNING of INSERT, UPDATE and DELETE: what PostgreSQL gives back, and nothing written where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.errors import CompileError
from flowql.runtime.errors import StatementFailed
from tests.slt.session import Shape, SqlSession

STOCK = (
    "CREATE TABLE stock (id INT PRIMARY KEY, name TEXT NOT NULL, pieces INT DEFAULT 7, price NUMERIC(8, 2),"
    " total NUMERIC(12, 2) GENERATED ALWAYS AS (pieces * price))"
)


@pytest.fixture
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape(partitions=2))
    made.execute(STOCK)
    made.execute("CREATE TABLE tags (n BIGINT GENERATED ALWAYS AS IDENTITY, tag TEXT)")
    yield made
    made.close()


def given(found: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in found.to_pylist()]


def test_rows_are_those_that_postgresql_gives_back(world: SqlSession) -> None:
    """Of INSERT with defaults, numbers and computed columns; of UPDATE as they are now; of DELETE as they were."""
    inserted = world.returning(
        "INSERT INTO stock (id, name, price) VALUES (2, 'pen', 1.5), (1, 'ink', NULL) RETURNING *"
    )
    assert inserted.column_names == ["id", "name", "pieces", "price", "total"]
    assert given(inserted) == [(2, "pen", 7, Decimal("1.50"), Decimal("10.50")), (1, "ink", 7, None, None)]
    assert given(world.returning("INSERT INTO tags (tag) VALUES ('a'), ('b') RETURNING tag, n > 0")) == [
        ("a", True),
        ("b", True),
    ]
    updated = "UPDATE stock AS s SET pieces = s.pieces * 2 WHERE id = 2 RETURNING s.pieces, s.total + 1 AS more, s.*"
    assert given(world.returning(updated))[0][:3] == (14, Decimal("22.00"), 2)
    assert given(world.returning("UPDATE stock SET id = id + 10 WHERE id = 1 RETURNING id")) == [(11,)]
    assert given(world.returning("DELETE FROM stock WHERE id = 2 RETURNING name, pieces")) == [("pen", 14)]
    assert given(world.returning("DELETE FROM stock WHERE id = 2 RETURNING name")) == []
    copied = "INSERT INTO stock (id, name) SELECT id + 1, upper(name) FROM stock RETURNING stock.id, name"
    assert given(world.returning(copied)) == [(12, "INK")]
    assert given(world.returning("INSERT INTO tags DEFAULT VALUES RETURNING tag")) == [(None,)]


def test_rows_that_conflict_are_given_back_where_they_change(world: SqlSession) -> None:
    world.execute("INSERT INTO stock VALUES (1, 'pen', 5, 2)")
    assert given(
        world.returning("INSERT INTO stock VALUES (1, 'x'), (2, 'ink') ON CONFLICT DO NOTHING RETURNING id, name")
    ) == [(2, "ink")]
    added = (
        "INSERT INTO stock AS s (id, name, pieces) VALUES (1, 'x', 3), (2, 'x', 4), (3, 'cap', 1) ON CONFLICT (id)"
        " DO UPDATE SET pieces = s.pieces + excluded.pieces WHERE s.id = 1 RETURNING s.id, s.name, s.pieces"
    )
    assert given(world.returning(added)) == [(1, "pen", 8), (3, "cap", 1)]


def test_columns_of_from_and_using(world: SqlSession) -> None:
    world.execute("CREATE TABLE sold (id INT, day DATE, pieces INT)")
    world.execute("CREATE VIEW totals AS SELECT id, SUM(pieces) AS pieces FROM sold GROUP BY id")
    world.execute("INSERT INTO stock VALUES (1, 'pen', 10, 2), (2, 'ink', 5, 1)")
    world.execute("INSERT INTO sold VALUES (1, DATE '2024-05-01', 3), (1, DATE '2024-05-02', 4), (2, NULL, 1)")
    sold = "UPDATE stock s SET pieces = s.pieces - t.pieces FROM totals t WHERE s.id = t.id RETURNING name, s.pieces, t.pieces AS sold, t.*"
    updated = world.returning(sold + ", s.pieces + t.pieces")
    assert updated.column_names == ["name", "pieces", "sold", "id", "pieces_1", "?column?"]
    assert sorted(given(updated)) == [("ink", 4, 1, 2, 1, 5), ("pen", 3, 7, 1, 7, 10)]
    several = "DELETE FROM stock USING sold WHERE sold.id = stock.id AND stock.id = {} RETURNING {}"
    with pytest.raises(
        StatementFailed, match="would be returned with several values at once: more than one row of USING"
    ):
        world.returning(several.format(1, "sold.pieces"))
    assert given(world.returning(several.format(1, "name"))) == [("pen",)]
    assert given(world.returning(several.format(2, "*")))[0][5:] == (2, None, 1)
    world.execute("INSERT INTO stock VALUES (4, 'cap', 1, 2), (5, 'nib', 5, 1)")
    queue = "DELETE FROM stock AS q USING (SELECT id FROM stock ORDER BY id LIMIT 1) AS first WHERE q.id = first.id RETURNING {}"
    for item in ("id", "*", "first.id", "upper(name)"):
        with pytest.raises(CompileError, match="not supported in RETURNING"):
            world.returning(queue.format(item))
    assert given(world.returning(queue.format("q.id, upper(q.name)"))) == [(4, "CAP")]
    asked = "UPDATE stock SET pieces = 0 WHERE id IN (SELECT MAX(id) FROM stock) RETURNING id, pieces"
    assert given(world.returning(asked)) == [(5, 0)]


def test_names_of_columns_are_those_of_postgresql(world: SqlSession) -> None:
    items = (
        "id, id + 1, id AS x, upper(name), CAST('1' AS TEXT), CAST(id AS TEXT), CAST(id + 1 AS BIGINT), CASE WHEN id > 1 THEN 1 END,"
        " coalesce(pieces, 1), 5, TRUE, name || 'x', NULL, id, current_date IS NULL, -id"
    )
    found = world.returning(f"INSERT INTO stock (id, name) VALUES (1, 'a') RETURNING {items}")
    names = "id ?column? x upper text id_1 int8 case coalesce ?column?_1 bool ?column?_2 ?column?_3 id_2 ?column?_4 ?column?_5"
    assert found.column_names == names.split(" ")


def test_types_are_those_of_a_query(world: SqlSession) -> None:
    world.execute(
        "CREATE TABLE odd (u UUID PRIMARY KEY, j JSONB, s INTERVAL, z TIMESTAMPTZ, d DATE, t TIME, b BYTEA, a INT[], f DOUBLE PRECISION,"
        " l TIME[], m MAP<TEXT, TIMESTAMP>, r STRUCT<a TIMESTAMPTZ, b JSONB>)"
    )
    values = (
        "'8d1d8b5e-8a94-4f6a-9d1a-0d5b3a1f1c11', '{\"a\": [1]}', '1 month 2 days', '2024-05-01 10:00:00+02', '2024-05-01',"
        " '10:00', '\\x01ff', ARRAY[1, NULL], 'NaN', ARRAY[TIME '10:00']"
    )
    found = world.returning(f"INSERT INTO odd VALUES ({values}) RETURNING *, z - z AS none, s * 2 AS twice")
    asked = world.ask("SELECT *, z - z AS none, s * 2 AS twice FROM odd")
    assert found.schema.types == asked.schema.types
    assert str(given(found)) == str(given(asked))
    assert given(found)[0][3] == datetime(2024, 5, 1, 8, tzinfo=UTC)
    assert given(found)[0][-2] == pa.MonthDayNano([0, 0, 0])


def test_what_fails_leaves_the_table_as_it_was(world: SqlSession) -> None:
    world.execute("INSERT INTO stock VALUES (1, 'pen', 0, 2), (2, 'ink', 5, 1)")
    for sql in (
        "INSERT INTO stock VALUES (3, 'x', 0, 1) RETURNING 10 / pieces",
        "UPDATE stock SET price = 9 RETURNING 10 / pieces",
        "DELETE FROM stock RETURNING CAST(name AS INT)",
    ):
        with pytest.raises(StatementFailed, match="RETURNING: "):
            world.returning(sql)
    for sql, says in (
        ("INSERT INTO stock VALUES (3, 'x') RETURNING nope", "nope"),
        ("DELETE FROM stock RETURNING COUNT(*)", "aggregate"),
        ("DELETE FROM stock RETURNING 1 / 0", "zero"),
        ("DELETE FROM stock RETURNING x.*", "x"),
        ("DELETE FROM stock RETURNING (SELECT 1)", "not supported"),
        ("DELETE FROM stock RETURNING row_number() OVER ()", "not supported|OVER"),
        ("INSERT INTO tags (tag) VALUES ('a') RETURNING __row", "__row"),
        ("INSERT INTO stock AS s VALUES (3, 'x') RETURNING stock.id", "stock"),
        (
            "INSERT INTO stock VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET pieces = 1 RETURNING excluded.id",
            "excluded",
        ),
    ):
        with pytest.raises(CompileError, match=says):
            world.returning(sql)
    assert given(world.ask("SELECT id, pieces, price FROM stock ORDER BY id")) == [
        (1, 0, Decimal("2.00")),
        (2, 5, Decimal("1.00")),
    ]


def test_files_and_topics_refuse_it() -> None:
    topic = "CREATE STREAM s (v INT) WITH (kafka_topic = 's', value_format = 'JSON', partitions = 1); "
    for sql in (
        f"{STOCK}; INSERT INTO stock VALUES (1, 'x') RETURNING id;",
        f"{STOCK}; DELETE FROM stock RETURNING *;",
        f"{topic}INSERT INTO s VALUES (1) RETURNING v;",
    ):
        found = compile_project([SourceText("t.sql", sql)], dialect="standard").diagnostics
        assert [(d.code, d.unsupported) for d in found] == [("FQ2090", True)], sql
        assert "RETURNING" in found[0].title

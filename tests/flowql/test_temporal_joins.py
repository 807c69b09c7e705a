"""Temporal joins of tables of one's own, statement by statement: what is shown is what was there when each row came."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.slt.session import Shape, SqlSession

TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT, pieces INT)",
    "CREATE TABLE prices (id INT PRIMARY KEY, item TEXT, cents INT)",
)
ON = "orders o {kind} JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.item = p.item AND p.cents > o.pieces"
VIEW = f"CREATE MATERIALIZED VIEW {{name}} AS SELECT o.id AS id, o.pieces AS pieces, p.id AS price, p.cents AS cents FROM {ON}"


@contextmanager
def world(*statements: str, partitions: int = 1) -> Iterator[SqlSession]:
    made = SqlSession(Shape(partitions=partitions))
    try:
        for s in (*TABLES, *statements):
            made.execute(s)
        yield made
    finally:
        made.close()


def view(name: str, kind: str = "") -> str:
    return VIEW.format(name=name, kind=kind)


def rows(of: SqlSession, sql: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in of.ask(sql).to_pylist()), key=str)


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_order_keeps_the_price_that_it_met(partitions):
    with world(view("bills", "LEFT"), partitions=partitions) as w:
        bills = "SELECT id, cents FROM bills"
        w.execute("INSERT INTO orders VALUES (1, 'pen', 2)")
        w.execute("INSERT INTO prices VALUES (7, 'pen', 50), (8, 'ink', 400)")
        w.execute("INSERT INTO orders VALUES (2, 'pen', 3), (3, 'ink', 500), (4, NULL, 1)")
        assert rows(w, bills) == [(1, None), (2, 50), (3, None), (4, None)]
        w.execute("UPDATE prices SET cents = 60 WHERE item = 'pen'")
        w.execute("DELETE FROM prices WHERE item = 'ink'")
        assert rows(w, bills) == [(1, None), (2, 50), (3, None), (4, None)]
        w.execute("UPDATE orders SET pieces = 4 WHERE id = 1")
        assert rows(w, bills) == [(1, 60), (2, 50), (3, None), (4, None)]
        w.execute("DELETE FROM orders WHERE id = 2")
        assert rows(w, bills) == [(1, 60), (3, None), (4, None)]
        w.execute("DELETE FROM orders")
        assert rows(w, bills) == []


def test_views_over_a_temporal_join_follow_what_it_takes_back():
    totals = "CREATE MATERIALIZED VIEW totals AS SELECT cents, count(*) AS n, sum(pieces) AS pieces FROM bills GROUP BY cents"
    with world(view("bills"), totals) as w:
        w.execute("INSERT INTO prices VALUES (7, 'pen', 50)")
        w.execute("INSERT INTO orders VALUES (1, 'pen', 2), (2, 'pen', 3)")
        w.execute("UPDATE prices SET cents = 60")
        w.execute("INSERT INTO orders VALUES (3, 'pen', 5)")
        assert rows(w, "SELECT * FROM totals") == [(50, 2, 5), (60, 1, 5)]
        w.execute("DELETE FROM orders WHERE id = 1")
        w.execute("UPDATE orders SET pieces = 9 WHERE id = 2")
        assert rows(w, "SELECT * FROM totals") == [(60, 2, 14)]


def test_a_view_is_the_right_side():
    cheapest = "CREATE MATERIALIZED VIEW least AS SELECT item, min(cents) AS cents FROM prices GROUP BY item"
    bills = "CREATE MATERIALIZED VIEW bills AS SELECT o.id, l.cents FROM orders o JOIN least FOR SYSTEM_TIME AS OF PROCTIME() l ON o.item = l.item"
    with world(cheapest, bills) as w:
        w.execute("INSERT INTO prices VALUES (1, 'pen', 50), (2, 'pen', 40)")
        w.execute("INSERT INTO orders VALUES (1, 'pen', 1)")
        w.execute("DELETE FROM prices WHERE id = 2")
        w.execute("INSERT INTO orders VALUES (2, 'pen', 1)")
        assert rows(w, "SELECT * FROM bills") == [(1, 40), (2, 50)]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_a_view_made_later_shows_what_was_met_on_arrival(kind, partitions):
    """Record times tell the order, a millisecond between statements."""
    for seed in range(3):
        rng = random.Random(seed)
        with world(view("early", kind), partitions=partitions) as w:
            there: dict[int, tuple[str, int]] = {}
            met: dict[int, tuple[int, list[tuple[int, int]]]] = {}
            for _ in range(25):
                w.sleep(1)
                key, item, n = rng.randint(1, 5), rng.choice(("pen", "ink")), rng.randint(0, 9)
                if rng.random() < 0.5:
                    gone = key in there
                    there.pop(key, None) if gone else there.update({key: (item, n)})
                    w.execute(
                        f"DELETE FROM prices WHERE id = {key}"
                        if gone
                        else f"INSERT INTO prices VALUES ({key}, '{item}', {n})"
                    )
                elif key in met and rng.random() < 0.4:
                    del met[key]
                    w.execute(f"DELETE FROM orders WHERE id = {key}")
                else:
                    known = key in met
                    met[key] = (n, [(k, c) for k, (i, c) in there.items() if i == item and c > n])
                    w.execute(
                        f"UPDATE orders SET item = '{item}', pieces = {n} WHERE id = {key}"
                        if known
                        else f"INSERT INTO orders VALUES ({key}, '{item}', {n})"
                    )
            w.execute(view("late", kind))
            blank: list[tuple[int | None, int | None]] = [(None, None)] if kind else []
            expected = Counter((k, n, *pair) for k, (n, pairs) in met.items() for pair in pairs or blank)
            assert Counter(rows(w, "SELECT * FROM early")) == expected, seed
            assert Counter(rows(w, "SELECT * FROM late")) == expected, seed


def test_rows_of_one_time_meet_the_right_rows_of_that_time_in_a_view_made_later():
    with world(view("early")) as w:
        w.execute("INSERT INTO orders VALUES (1, 'pen', 2)")
        w.execute("INSERT INTO prices VALUES (7, 'pen', 50)")
        w.execute(view("late"))
        assert (rows(w, "SELECT id FROM early"), rows(w, "SELECT id FROM late")) == ([], [(1,)])


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_table_joined_with_itself_meets_its_own_row(partitions):
    twice = "CREATE MATERIALIZED VIEW twice AS SELECT a.id, b.id AS other FROM prices a JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() b ON a.item = b.item"
    with world(twice, partitions=partitions) as w:
        w.execute("INSERT INTO prices VALUES (1, 'pen', 5)")
        w.execute("INSERT INTO prices VALUES (2, 'pen', 5)")
        assert rows(w, "SELECT * FROM twice") == [(1, 1), (2, 1), (2, 2)]
        w.execute("UPDATE prices SET cents = 6 WHERE id = 1")
        assert rows(w, "SELECT * FROM twice") == [(1, 1), (1, 2), (2, 1), (2, 2)]
        w.execute("DELETE FROM prices WHERE id = 2")
        assert rows(w, "SELECT * FROM twice") == [(1, 1), (1, 2)]

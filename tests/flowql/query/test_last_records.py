"""A large table in a topic: the last record of each key is found by DuckDB, in the same rows and with little memory."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from flowql.query import last_records, loading
from flowql.query.interactive import InteractiveQuery
from flowql.query.relations import TopicRelation
from tests.slt.session import Shape, SqlSession

TABLES = {
    "one": "CREATE TABLE t (k BIGINT PRIMARY KEY, v INT, s TEXT)",
    "two": "CREATE TABLE t (k BIGINT, s TEXT, v INT, PRIMARY KEY (k, s))",
    "floating": "CREATE TABLE t (k DOUBLE PRECISION PRIMARY KEY, v INT, s TEXT)",
    "none": "CREATE TABLE t (k BIGINT, v INT, s TEXT)",
}
VIEWS = "CREATE VIEW w AS SELECT v, count(*) AS n, max(s) AS top FROM t GROUP BY v"
QUERIES = (
    "SELECT * FROM t",
    "SELECT count(*) FROM t",
    "SELECT s FROM t WHERE v > 3",
    "SELECT a.k, b.v FROM t a JOIN t b ON a.v = b.v AND a.s < b.s",
    "SELECT * FROM w",
)


@pytest.mark.parametrize("kind", TABLES)
def test_the_rows_are_those_of_a_small_table(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1_000_000)
    drawn, world = random.Random(seed), SqlSession(Shape(partitions=3))
    with closing(world):
        world.execute(TABLES[kind])
        world.execute(VIEWS)
        keys = [f"{n}.5" if kind == "floating" else str(n) for n in (0, *range(-4, 20))]
        for _ in range(30):
            k, v, s = drawn.choice(keys), drawn.randrange(6), drawn.choice("abcé")
            again = "" if kind == "none" else f" ON CONFLICT ({'k, s' if kind == 'two' else 'k'}) DO UPDATE SET v = 9"
            world.execute(f"INSERT INTO t (k, v, s) VALUES ({k}, {v}, '{s}'){again}")
            if drawn.random() < 0.3:
                world.execute(f"DELETE FROM t WHERE k = {drawn.choice(keys)}")
            if drawn.random() < 0.3:
                world.execute(f"UPDATE t SET v = {drawn.randrange(6)} WHERE k = {drawn.choice(keys)}")
        expected = [Counter(map(str, world.ask(q).to_pylist())) for q in QUERIES]
        monkeypatch.setattr(last_records, "RECORDS_MAX", 0)
        monkeypatch.setattr(last_records, "_KEYS_AT_ONCE", 7)
        for q, rows in zip(QUERIES, expected, strict=True):
            assert Counter(map(str, world.ask(q).to_pylist())) == rows, (q, seed)


def test_what_compaction_removes_between_two_readings_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reading is of a record that the second one no longer finds."""
    found: list[int] = []
    known = loading.with_last_records

    def stale(query: InteractiveQuery, relation: TopicRelation) -> TopicRelation:
        made = known(query, relation)
        found.append(1)
        assert made.last is not None
        beyond = {
            tp: np.append(of, end + 7)
            for (tp, of), (_, end) in zip(made.last.items(), made.spans.values(), strict=True)
        }
        return replace(made, last=beyond) if len(found) == 1 else made

    monkeypatch.setattr(last_records, "RECORDS_MAX", 0)
    monkeypatch.setattr(loading, "with_last_records", stale)
    world = SqlSession(Shape())
    with closing(world):
        world.execute(TABLES["one"])
        world.execute("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
        assert world.ask("SELECT sum(k) AS s FROM t").to_pylist() == [{"s": 3}]
    assert len(found) == 2

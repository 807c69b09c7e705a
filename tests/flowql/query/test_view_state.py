"""Large views are read from the state of their queries, with the rows and types of their topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from flowql.query import last_records, relations, session, view_state
from flowql.query.committed import Commit
from tests.flowql.query.test_point_lookups import COLUMNS, DECLARED, VALUES
from tests.slt.session import Shape, SqlSession

VIEWS = (
    "CREATE VIEW every AS SELECT * FROM t",
    "CREATE VIEW named AS SELECT id AS number, s || '!' AS s, c * 2 AS c, list FROM t WHERE ok OR ok IS NULL",
    "CREATE VIEW per AS SELECT s, COUNT(*) AS n, SUM(c) AS c, MAX(at) AS at, ARRAY_AGG(id ORDER BY id) AS ids FROM t GROUP BY s",
    "CREATE VIEW pairs AS SELECT a.id, b.id AS other, b.doc FROM t a LEFT JOIN t b ON a.s = b.s AND a.id < b.id",
    "CREATE VIEW over_view AS SELECT n, COUNT(*) AS groups FROM per GROUP BY n",
)
QUERIES = (
    "SELECT * FROM every",
    "SELECT * FROM every WHERE id = 3",
    "SELECT s, x FROM every WHERE id > 2 AND id <= 5 AND i IS NOT NULL",
    "SELECT COUNT(*) AS n FROM every",
    "SELECT * FROM named",
    "SELECT * FROM named WHERE number IN (1, 4) AND c > 0",
    "SELECT * FROM per",
    "SELECT * FROM per WHERE s = '' AND n > 0",
    "SELECT p.other, n.s FROM pairs p LEFT JOIN named n ON n.number = p.id",
    "SELECT * FROM over_view",
    "SELECT e.id, t.s FROM every e JOIN t ON t.id = e.id",
)


@pytest.fixture(scope="module")
def world() -> Iterator[SqlSession]:
    found = SqlSession(Shape(partitions=3))
    with closing(found):
        found.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {DECLARED})")
        for view in VIEWS:
            found.execute(view)
        for n in range(8):
            values = [VALUES[c][n % len(VALUES[c])] if n % 4 != 3 else "NULL" for c in COLUMNS]
            found.execute(f"INSERT INTO t VALUES ({n}, {', '.join(values)})")
        found.execute("UPDATE t SET s = 'it''s', c = c + 1 WHERE id IN (0, 3, 5)")
        found.execute("DELETE FROM t WHERE id = 6")
        found.execute("UPDATE t SET id = 66 WHERE id = 7")
        yield found


@pytest.mark.parametrize("sql", QUERIES)
def test_stored_rows_are_those_of_the_topic(sql: str, world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = world.ask(sql)
    monkeypatch.setattr(last_records, "RECORDS_MAX", 0)
    found = world.ask(sql)
    assert found.schema == expected.schema
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, expected.to_pylist()))


def test_no_topic_of_a_large_view_is_read(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a topic is read")

    expected = world.ask("SELECT COUNT(*) AS n FROM pairs")
    monkeypatch.setattr(last_records, "RECORDS_MAX", 0)
    monkeypatch.setattr(relations, "records", refuse)
    assert world.ask("SELECT COUNT(*) AS n FROM pairs") == expected
    assert world.ask("SELECT other FROM pairs LIMIT 1").num_rows == 1


def test_a_large_view_is_read_while_others_commit(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is of one commit, so no moment without later commits is waited for."""
    monkeypatch.setattr(last_records, "RECORDS_MAX", 0)
    monkeypatch.setattr(Commit, "at_rest", lambda _: False)
    monkeypatch.setattr(session, "SETTLE_S", 0.1)
    assert world.ask("SELECT COUNT(*) AS n FROM pairs").num_rows == 1


def test_conditions_on_the_key_limit_the_rows_that_are_read(world: SqlSession, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    batches = view_state.ViewRelation.batches

    def counted(self: view_state.ViewRelation, *given: object) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, *given):  # type: ignore[arg-type]
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(last_records, "RECORDS_MAX", 0)
    monkeypatch.setattr(view_state.ViewRelation, "batches", counted)
    assert world.ask("SELECT s || 'x' AS s FROM every WHERE id = 3").num_rows == 1
    assert sum(read) == 1

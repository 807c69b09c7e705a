"""Views after inserts, updates and deletes hold what PostgreSQL 15 has answered (`recorded.json`), and so do the same queries that are asked."""

from __future__ import annotations

from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession
from tests.standard_views.recorded import CHANGES, TABLES, VIEWS, answers

ASKED_AFTER = 2  # changes: then all rows are there


def test_views_hold_what_postgresql_answers() -> None:
    recorded = answers()
    assert list(recorded) == list(VIEWS)
    world = SqlSession(Shape(partitions=2))
    try:
        errors = world.define([*TABLES, *(f"CREATE VIEW {n} AS {q}" for n, q in VIEWS.items())])
        assert not any(errors), errors
        for n, change in enumerate(CHANGES):
            world.execute(change)
            found = world.contents(tuple(VIEWS))
            for name, rows in found.items():
                assert sorted(rendered(rows)) == recorded[name][n], (name, change)
            for name, sql in VIEWS.items() if n == ASKED_AFTER else ():
                assert sorted(rendered(world.ask(sql))) == recorded[name][n], (name, change, "asked")
    finally:
        world.close()

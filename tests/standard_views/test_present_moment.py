"""The present moment in views: where it is refused, the message gives a view that follows the clock."""

from __future__ import annotations

import re

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession

HOUR_MS = 3_600_000


@pytest.fixture
def session() -> SqlSession:
    session = SqlSession(Shape())
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP)")
    session.execute("INSERT INTO t VALUES (1, '2001-01-01'), (3, '2198-01-01')")
    return session


def test_a_condition_of_the_select_list_is_refused_with_a_view_that_means_the_same(session: SqlSession) -> None:
    with pytest.raises(CompileError) as refused:
        session.execute("CREATE VIEW v AS SELECT id, ts < NOW() AS past FROM t")
    (found,) = refused.value.diagnostics
    rewrite = re.search(r"SELECT id, TRUE .*? ts >= NOW\(\)", found.help)
    assert rewrite, found.help
    session.execute("INSERT INTO t SELECT 2, LOCALTIMESTAMP + INTERVAL '1 hour'")
    session.execute(f"CREATE VIEW v AS {rewrite[0]}")
    assert rendered(session.ask("SELECT id, past FROM v ORDER BY id")) == ["1 t", "2 f", "3 f"]
    session.sleep(2 * HOUR_MS)
    assert rendered(session.ask("SELECT id, past FROM v ORDER BY id")) == ["1 t", "2 t", "3 f"]


def test_other_values_of_the_present_moment_are_asked_of_the_view(session: SqlSession) -> None:
    with pytest.raises(CompileError) as refused:
        session.execute("CREATE VIEW v AS SELECT id, NOW() - ts AS age FROM t")
    assert "where the view is read:  SELECT NOW() - ts FROM the_view" in refused.value.diagnostics[0].help
    session.execute("CREATE VIEW v AS SELECT id, ts FROM t")
    assert len(session.ask("SELECT id, NOW() - ts AS age FROM v")) == 2

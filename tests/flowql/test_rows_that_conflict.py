"""ON CONFLICT behind the columns of a table of one's own: what an INSERT does with a key that exists."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.slt.session import Shape, SqlSession

COLUMNS = "(k INT PRIMARY KEY, a INT, b TEXT, v INT, twice INT GENERATED ALWAYS AS (a * 2) STORED)"


def rows_after(clause: str, *statements: str, columns: str = COLUMNS) -> list[tuple[object, ...]]:
    """The rows of a view over the table, sorted."""
    world = SqlSession(Shape())
    try:
        world.execute(f"CREATE TABLE t {columns} {clause}")
        world.execute("CREATE VIEW w AS SELECT * FROM t")
        for statement in statements:
            world.execute(statement)
        return sorted(zip(*(c.to_pylist() for c in world.contents(["w"])["w"].columns), strict=True))
    finally:
        world.close()


FIRST = "INSERT INTO t (k, a, b, v) VALUES (1, 1, 'x', 5), (2, NULL, 'y', NULL)"


def test_do_update_if_not_null_keeps_what_is_not_given() -> None:
    found = rows_after(
        "ON CONFLICT DO UPDATE IF NOT NULL", FIRST, "INSERT INTO t (k, a) VALUES (1, 7), (2, 3), (2, NULL), (3, 4)"
    )
    assert found == [(1, 7, "x", 5, 14), (2, 3, "y", None, 6), (3, 4, None, None, 8)]


def test_a_row_with_an_older_version_is_not_taken() -> None:
    """An equal version is; NULL is the oldest. Rows of one statement are taken one after the other."""
    found = rows_after(
        "ON CONFLICT OVERWRITE WITH VERSION COLUMN (v)",
        FIRST,
        "INSERT INTO t (k, a, b, v) VALUES (1, 2, 'older', 4), (2, 2, 'newer', 1)",
        "INSERT INTO t (k, a, b, v) VALUES (1, 3, 'equal', 5), (2, 4, 'NULL', NULL)",
        "INSERT INTO t (k, a, b, v) VALUES (3, 1, 'new', 9), (3, 2, 'older', 8), (3, 3, 'newer', 10)",
    )
    assert found == [(1, 3, "equal", 5, 6), (2, 2, "newer", 1, 4), (3, 3, "newer", 10, 6)]


def test_versions_and_if_not_null_together() -> None:
    found = rows_after(
        "ON CONFLICT DO UPDATE IF NOT NULL WITH VERSION COLUMN (v)",
        FIRST,
        "INSERT INTO t (k, a, v) VALUES (1, 2, 4), (2, 2, 1)",
        "INSERT INTO t (k, a, v) VALUES (1, NULL, 6), (2, 3, 0)",
    )
    assert found == [(1, 1, "x", 6, 2), (2, 2, "y", 1, 4)]


def test_several_versions_are_compared_in_order() -> None:
    found = rows_after(
        "ON CONFLICT OVERWRITE WITH VERSION COLUMN (v, u)",
        "INSERT INTO t VALUES (1, 5, 5), (2, 5, 5), (3, 5, 5)",
        "INSERT INTO t VALUES (1, 6, 1), (2, 5, 4), (3, 4, 9)",
        columns="(k INT PRIMARY KEY, v INT, u INT)",
    )
    assert found == [(1, 6, 1), (2, 5, 5), (3, 5, 5)]


@pytest.mark.parametrize(
    ("columns", "clause", "named"),
    [
        (COLUMNS, "ON CONFLICT DO NOTHING WITH VERSION COLUMN (v)", "whose rows are replaced"),
        (COLUMNS, "WITH VERSION COLUMN (v)", "whose rows are replaced"),
        (COLUMNS, "ON CONFLICT OVERWRITE WITH VERSION COLUMN (w)", "names w, which is not a column"),
        (
            "(k INT PRIMARY KEY, v DOUBLE)",
            "ON CONFLICT OVERWRITE WITH VERSION COLUMN (v)",
            "VERSION COLUMN of t, is DOUBLE",
        ),
        ("(k INT, v INT)", "ON CONFLICT DO UPDATE IF NOT NULL", "needs a PRIMARY KEY"),
    ],
)
def test_what_a_version_cannot_be_is_refused(columns: str, clause: str, named: str) -> None:
    with pytest.raises(CompileError, match=named):
        rows_after(clause, columns=columns)


def test_a_value_that_is_filled_in_may_not_make_another_key() -> None:
    with pytest.raises(Exception, match="another key"):
        rows_after(
            "ON CONFLICT DO UPDATE IF NOT NULL",
            "INSERT INTO t VALUES (1, NULL), (NULL, 1)",
            columns="(a INT, b INT, k INT GENERATED ALWAYS AS (COALESCE(a, 0) + COALESCE(b, 0)) STORED PRIMARY KEY)",
        )


def test_on_conflict_behind_a_join_without_a_condition() -> None:
    """ON belongs to the INSERT: a NATURAL or CROSS JOIN takes no condition."""
    found = rows_after(
        "",
        FIRST,
        "INSERT INTO t (k, a) SELECT k, 9 FROM t x NATURAL JOIN t y ON CONFLICT DO NOTHING",
        "INSERT INTO t (k, a) SELECT x.k, 8 FROM t x CROSS JOIN (SELECT 1) y ON CONFLICT (k) DO UPDATE SET a = 8",
    )
    assert [(row[0], row[1]) for row in found] == [(1, 8), (2, 8)]

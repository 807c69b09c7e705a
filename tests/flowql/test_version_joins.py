"""`FOR SYSTEM_TIME AS OF a.ts`: rows meet the version of their own time, once both watermarks have passed it.

The oracle is DuckDB's ASOF join over the rows in the log that are not late, of which those count whose time is before both watermarks.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import count

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from tests.flowql.test_watermarks import CLOSE, MINUTE, START, TABLE, Oracle, at, shown, values, world
from tests.slt.session import SqlSession

pytestmark = pytest.mark.turns("queries")

AS_OF = "b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k"
VERSIONS = "(SELECT DISTINCT ON (k, ts) k, ts, id, v FROM b WHERE ts IS NOT NULL ORDER BY k, ts, id DESC) b ON a.k = b.k AND a.ts >= b.ts"
VERSION = "(SELECT y.id FROM {} y WHERE y.k = x.{} AND y.ts <= x.ts ORDER BY y.ts DESC, y.id DESC LIMIT 1)"
# name -> (view, oracle)
VIEWS = {
    "met": (f"SELECT a.id, b.id AS other, b.v FROM a JOIN {AS_OF}", f"SELECT a.id, b.id, b.v FROM a ASOF JOIN {VERSIONS} WHERE a.ts < low_both()"),
    "kept": (
        f"SELECT a.id, b.id AS other, a.v + b.v AS s FROM a LEFT JOIN {AS_OF}",
        f"SELECT a.id, b.id, a.v + b.v FROM a ASOF LEFT JOIN {VERSIONS} WHERE a.ts < low_both()",
    ),
    "filtered": (
        f"SELECT a.id, b.v FROM a JOIN {AS_OF} AND b.v > a.v WHERE a.v > 1 AND b.v < 9",
        f"SELECT a.id, b.v FROM a ASOF JOIN {VERSIONS} WHERE a.ts < low_both() AND b.v > a.v AND a.v > 1 AND b.v < 9",
    ),
    "closed": (
        f"SELECT a.ts, count(*) AS n, sum(b.v) AS s FROM a LEFT JOIN {AS_OF} GROUP BY a.ts {CLOSE}",
        f"SELECT a.ts, count(*), sum(b.v) FROM a ASOF LEFT JOIN {VERSIONS} WHERE a.ts < low_both() GROUP BY a.ts",
    ),
    "counted": (
        f"SELECT b.v, count(*) AS n FROM a JOIN {AS_OF} GROUP BY b.v",
        f"SELECT b.v, count(*) FROM a ASOF JOIN {VERSIONS} WHERE a.ts < low_both() GROUP BY b.v",
    ),
    "of_windows": (
        f"SELECT a.id, b.id AS other FROM TUMBLE(a, ts, {MINUTE}) a LEFT JOIN b FOR SYSTEM_TIME AS OF a.window_start ON a.k = b.k",
        f"SELECT a.id, b.id FROM (SELECT id, k, {START} AS ts FROM a WHERE ts IS NOT NULL) a ASOF LEFT JOIN {VERSIONS} "
        f"WHERE a.ts + {MINUTE} <= low_both()",
    ),
    "of_groups": (
        f"SELECT g.w, g.n, b.id FROM (SELECT window_start AS w, k, count(*) AS n FROM TUMBLE(a, ts, {MINUTE}) GROUP BY window_start, k) g "
        "LEFT JOIN b FOR SYSTEM_TIME AS OF g.w ON g.k = b.k",
        f"SELECT a.ts, a.n, b.id FROM (SELECT {START} AS ts, k, count(*) AS n FROM a WHERE ts IS NOT NULL GROUP BY 1, 2) a "
        f"ASOF LEFT JOIN {VERSIONS} WHERE a.ts + {MINUTE} <= low_both()",
    ),
    "of_itself": (
        "SELECT x.id, y.ts AS other FROM a AS x JOIN a FOR SYSTEM_TIME AS OF x.ts AS y (ts, kind, v, since) ON x.k = y.kind",
        f"SELECT x.id, {VERSION.format('a', 'k')} FROM a x WHERE x.ts < low()",
    ),
    "twice": (
        "SELECT x.id, b.id AS first, c.id AS second FROM a AS x LEFT JOIN b FOR SYSTEM_TIME AS OF x.ts USING (k) "
        "LEFT JOIN b FOR SYSTEM_TIME AS OF x.ts AS c ON x.v = c.k",
        f"SELECT x.id, {VERSION.format('b', 'k')}, {VERSION.format('b', 'v')} FROM a x WHERE x.ts < low_both()",
    ),
}  # fmt: skip


def made() -> list[str]:
    return [f"CREATE MATERIALIZED VIEW {name} AS {view}" for name, (view, _) in VIEWS.items()]


def compared(seed: int, partitions: int, *, vector: bool | None = None, statements: int = 36) -> tuple[int, int]:
    """Random rows of both tables, instances that are restarted in the middle of changes. How many rows were late, and how many joined."""
    rng, ids = random.Random(seed), count(1)
    late = joined = 0
    with world(TABLE.format("a"), TABLE.format("b"), *made(), partitions=partitions, vector=vector) as w:
        for n in range(statements):
            rows = values(rng, ids, n * 12)
            w.execute(f"INSERT INTO {rng.choice('ab')} VALUES {rows}", rounds=rng.choice((None, None, 1, 4)))
            if n % 6 != 5:
                continue
            oracle = Oracle(w, ("a", "b"), partitions)
            late += oracle.late
            for name, (_, sql) in VIEWS.items():
                expected = oracle.rows(sql)
                joined += len(expected)
                assert shown(w, name) == expected, (name, n)
    return late, joined


@pytest.mark.parametrize(("partitions", "vector", "statements"), [(1, True, 36), (3, None, 30), (8, False, 12)])
def test_rows_meet_the_version_of_their_time(partitions: int, vector: bool | None, statements: int) -> None:
    late, joined = compared(3 + partitions, partitions, vector=vector, statements=statements)
    assert late > 2, "the oracle has seen late rows"
    assert joined > 80, "and rows that were joined"


def test_a_version_of_the_same_time_counts_and_the_last_of_two() -> None:
    with world(TABLE.format("a"), TABLE.format("b"), made()[1]) as w:
        w.execute(f"INSERT INTO b VALUES (1, 1, 10, '{at(10)}'), (2, 1, 20, '{at(20)}'), (3, 1, 30, '{at(20)}')")
        w.execute(
            f"INSERT INTO a VALUES (4, 1, 0, '{at(9)}'), (5, 1, 0, '{at(19)}'), (6, 1, 0, '{at(20)}'), (7, NULL, 0, '{at(20)}')"
        )
        assert not shown(w, "kept")
        w.execute(f"INSERT INTO a VALUES (8, 1, 0, '{at(40)}')")
        assert not shown(w, "kept"), "versions up to that time may come"
        w.execute(f"INSERT INTO b VALUES (9, 1, 40, '{at(40)}')")
        w.execute(f"INSERT INTO a VALUES (10, 1, 0, '{at(20)}')")
        assert shown(w, "kept") == Counter([(4, None, None), (5, 1, 10)]), "time 20 is not over"
        w.execute(f"INSERT INTO b VALUES (11, 1, 50, '{at(20)}'), (12, 1, 60, '{at(41)}')")
        w.execute(f"INSERT INTO a VALUES (13, 1, 0, '{at(41)}')")
        assert shown(w, "kept") == Counter([(4, None, None), (5, 1, 10), (6, 11, 50), (7, None, None), (10, 11, 50)])


def test_a_waiting_row_that_changes_in_the_run_that_the_watermark_passes_it_in() -> None:
    with world(TABLE.format("a"), TABLE.format("b"), f"CREATE MATERIALIZED VIEW v AS {VIEWS['of_groups'][0]}") as w:
        w.execute(f"INSERT INTO b VALUES (1, 1, 0, '{at(0)}'), (2, 1, 0, '{at(400)}')")
        w.execute(f"INSERT INTO a VALUES (3, 1, 0, '{at(5)}')")
        w.execute(f"INSERT INTO a VALUES (4, 1, 0, '{at(6)}'), (5, 1, 0, '{at(200)}')")
        assert [(n, other) for _, n, other in shown(w, "v")] == [(2, 1)]


def versions_kept(w: SqlSession) -> int:
    """Rows of state of the join."""
    stores = (s for q in w._instance.queries.values() for task in q.built.tasks for s in task.state.stores.items())
    return sum(
        head[0]
        for name, store in stores
        if "versionjoin" in name and not name.endswith("-entries")
        for _, head in store.scan()
        if head is not None
    )


def test_versions_and_rows_behind_the_watermark_are_forgotten() -> None:
    with world(TABLE.format("a"), TABLE.format("b"), made()[0]) as w:
        sizes = []
        for n in range(8):
            for table in "ab":
                rows = ", ".join(f"({100 * n + i}, {i % 3}, {i}, '{at(180 * n + i)}')" for i in range(50))
                w.execute(f"INSERT INTO {table} VALUES {rows}")
            sizes.append(versions_kept(w))
        assert sizes[0] > 20
        assert max(sizes[4:]) <= max(sizes[:3]), sizes


SOURCES = (TABLE.format("a"), TABLE.format("b"), "CREATE TABLE plain (k INT, v INT, ts TIMESTAMP)")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT a.id FROM a JOIN plain FOR SYSTEM_TIME AS OF a.ts p ON a.k = p.k", "FQ2055"),
        ("SELECT b.id FROM plain p JOIN b FOR SYSTEM_TIME AS OF p.ts ON p.k = b.k", "FQ2055"),
        ("SELECT b.id FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts + INTERVAL '1' SECOND ON a.k = b.k", "FQ1901"),
        ("SELECT b.id FROM a, b FOR SYSTEM_TIME AS OF a.ts WHERE a.k = b.k", "FQ1901"),
        ("SELECT b.id FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON true", "FQ1901"),
        ("SELECT b.id FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k IS NOT DISTINCT FROM b.k", "FQ1901"),
        (f"SELECT a.id FROM a RIGHT JOIN {AS_OF}", "FQ1901"),
        (f"SELECT a.id FROM a LEFT JOIN {AS_OF} AND b.v > 1", "FQ1901"),
    ],
)
def test_what_has_no_time_is_refused(query: str, code: str) -> None:
    with world(*SOURCES) as w, pytest.raises(CompileError) as caught:
        w.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert caught.value.diagnostics[0].code == code
    assert caught.value.diagnostics[0].span.line

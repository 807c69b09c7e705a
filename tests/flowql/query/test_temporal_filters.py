"""Views with conditions on the present moment: at each moment their rows are those of a query that is asked then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from tests.slt.session import Shape, SqlSession

TABLES = (
    "CREATE TABLE o (id INT PRIMARY KEY, k INT, ts TIMESTAMP(6), z TIMESTAMPTZ(6), d DATE)",
    "CREATE TABLE c (k INT PRIMARY KEY, until TIMESTAMP(6))",
)
# `:now` and `:today` are the moment and its day in the query that is compared with.
QUERIES = (
    "SELECT id FROM o WHERE ts > NOW() - INTERVAL '1 hour'",
    "SELECT id, k FROM o WHERE NOW() >= z - INTERVAL '1 day 2 hours' AND k > 0",
    "SELECT id FROM o WHERE ts BETWEEN LOCALTIMESTAMP - INTERVAL '90 minutes' AND LOCALTIMESTAMP",
    "SELECT id FROM o WHERE NOW() - z < INTERVAL '1 hour' AND z - NOW() <= INTERVAL '10 minutes'",
    "SELECT id FROM o WHERE d = CURRENT_DATE",
    "SELECT id FROM o WHERE d > CURRENT_DATE - 2 AND CURRENT_DATE + 1 >= d",
    "SELECT id FROM o WHERE ts >= CURRENT_DATE AND ts < CURRENT_DATE + INTERVAL '8 hours'",
    "SELECT id FROM o WHERE CURRENT_DATE < ts AND ts <= CURRENT_DATE + 3",
    "SELECT k, COUNT(*) AS n, MAX(ts) AS m FROM o WHERE ts + INTERVAL '2 hours' > NOW() GROUP BY k",
    "SELECT k, n FROM (SELECT k, COUNT(*) AS n, MAX(z) AS m FROM o GROUP BY k) AS g WHERE m > NOW() - INTERVAL '3 hours'",
    "SELECT o.id, c.k FROM o JOIN c ON c.k = o.k WHERE c.until > NOW() AND o.ts <= c.until",
    "SELECT o.id, c.until FROM o LEFT JOIN (SELECT * FROM c WHERE until > NOW()) AS c ON c.k = o.k",
    "SELECT k FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = c.k AND o.ts > NOW() - INTERVAL '1 day')",
    "SELECT id FROM o WHERE ts > NOW() - INTERVAL '1 hour' ORDER BY ts, id LIMIT 2",
)
STEPS = 14


class World:
    """Two tables, and a view for each query. Time stands still between steps."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.session, self._random = SqlSession(shape), Random(seed)
        self._oracle = duckdb.connect()
        self._oracle.execute("SET TimeZone = 'UTC'")
        for sql in TABLES:
            self.session.execute(sql)
            self._oracle.execute(sql.replace("(6)", ""))
        views = [f"CREATE VIEW v{i} AS {sql}" for i, sql in enumerate(QUERIES)]
        assert self.session.define(views) == [None] * len(views)

    def step(self) -> str:
        kind = self._random.choice(("insert", "insert", "update", "delete", "sleep", "sleep", "restart"))
        if kind == "sleep":
            self.session.sleep(self._random.choice((1, 60_000, 1_800_000, 3_600_000, 40_000_000)))
        elif kind == "restart":
            self.session.restart()
        else:
            kind = self._statement(kind)
            self.session.execute(kind)
            self._oracle.execute(kind)
        return kind

    def _statement(self, kind: str) -> str:
        r, n = self._random, self._random.randint(1, 12)
        if kind == "delete":
            return r.choice((f"DELETE FROM o WHERE id = {n}", f"DELETE FROM c WHERE k = {n % 4}"))
        if kind == "update":
            return f"UPDATE o SET ts = {self._time()}, k = {n % 4}, d = {self._time()} WHERE id % 3 = {n % 3}"
        if n < 3:
            conflict = "ON CONFLICT (k) DO UPDATE SET until = excluded.until"
            return f"INSERT INTO c VALUES ({n}, {self._time()}) {conflict}"
        conflict = "ON CONFLICT (id) DO UPDATE SET ts = excluded.ts, z = excluded.z, d = excluded.d"
        values = f"{n}, {n % 4}, {self._time()}, {self._time()}, {self._time()}"
        return f"INSERT INTO o VALUES ({values}) {conflict}"

    def _time(self) -> str:
        r = self._random
        if r.random() < 0.1:
            return "NULL"
        around = r.choice((0, 0, -1, 1, -3_600_000, 3_600_000, -86_400_000, r.randint(-(10**8), 10**8)))
        return f"TIMESTAMP '{self.moment(around)}{r.choice(('', '', '001', '999'))}'"

    def moment(self, after_ms: int = 0) -> str:
        at = datetime.fromtimestamp((self.session._clock.wall_ms() + after_ms) / 1000, UTC)
        return at.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")

    def compare(self, what: str) -> None:
        now, views = self.moment(), [f"v{i}" for i in range(len(QUERIES))]
        contents = self.session.contents(views)
        for sql, view in zip(QUERIES, views, strict=True):
            asked = sql.replace("NOW()", f"TIMESTAMPTZ '{now}+00'").replace("LOCALTIMESTAMP", f"TIMESTAMP '{now}'")
            asked = asked.replace("CURRENT_DATE", f"DATE '{now[:10]}'")
            found = sorted(repr(tuple(r.values())) for r in contents[view].to_pylist())
            assert found == sorted(map(repr, self._oracle.execute(asked).fetchall())), f"{what}\n{sql}\nat {now}"


@pytest.mark.parametrize(("seed", "shape"), [(1, Shape()), (2, Shape(vector=True, partitions=3))])
def test_rows_come_and_go_as_the_clock_passes(seed: int, shape: Shape) -> None:
    world = World(seed, shape)
    for n in range(STEPS):
        world.compare(f"seed {seed}, step {n}: {world.step()}")
    world.session.close()


def test_a_view_over_many_rows_is_built_in_columns_as_row_by_row() -> None:
    """Rows of all kinds in one run: gone, there, to come, never there, without a time; later runs take and change what it has kept."""
    views = [
        "CREATE VIEW past AS SELECT id FROM o WHERE ts > NOW() - INTERVAL '1 hour' AND ts <= NOW()",
        "CREATE VIEW since AS SELECT id, k FROM o WHERE z <= NOW()",
        "CREATE VIEW never AS SELECT id FROM o WHERE ts > NOW() AND ts + INTERVAL '1 minute' <= NOW()",
    ]
    found = []
    for vector in (False, True):
        world, seen = SqlSession(Shape(vector=vector)), []
        world.execute(TABLES[0])
        at = f"{moment(world)} + (g.i - 100) * INTERVAL '1 minute'"
        times = f"CASE WHEN g.i % 9 = 0 THEN NULL ELSE {at} END"
        world.execute(
            f"INSERT INTO o (id, k, ts, z) SELECT g.i, g.i % 5, {times}, {at} FROM generate_series(1, 200) AS g(i)"
        )
        assert world.define(views) == [None] * 3
        for change in (None, "UPDATE o SET ts = z WHERE id % 4 = 0", "DELETE FROM o WHERE id % 7 = 0", None):
            if change is not None:
                world.execute(change)
            world.sleep(2_400_000)
            seen += [world.ask(f"SELECT * FROM {v} ORDER BY 1").to_pylist() for v in ("past", "since", "never")]
        found.append(seen)
        world.close()
    assert found[0] == found[1]
    assert [len(rows) for rows in found[1][:3]] == [53, 140, 0]


@pytest.fixture
def world() -> Iterator[SqlSession]:
    made = SqlSession(Shape())
    made.execute(TABLES[0])
    yield made
    made.close()


def moment(world: SqlSession, after_ms: int = 0) -> str:
    at = datetime.fromtimestamp((world._clock.wall_ms() + after_ms) / 1000, UTC)
    return f"TIMESTAMP '{at.replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')}'"


def test_rows_come_and_go_to_the_millisecond(world: SqlSession) -> None:
    second = "NOW() - INTERVAL '1 second'"
    views = {
        "after": f"ts > {second}",
        "from_": f"ts >= {second}",
        "before": "ts < NOW()",
        "until": "ts <= NOW()",
        "between": f"ts BETWEEN {second} AND NOW()",
    }
    assert world.define([f"CREATE VIEW {v} AS SELECT id FROM o WHERE {w}" for v, w in views.items()]) == [None] * 5
    world.execute(f"INSERT INTO o (id, ts) VALUES (1, {moment(world, 5)})")
    for ms, there in (
        (0, {"after", "from_"}),
        (5, {"after", "from_", "until", "between"}),
        (1, {"after", "from_", "before", "until", "between"}),
        (998, {"after", "from_", "before", "until", "between"}),
        (1, {"from_", "before", "until", "between"}),
        (1, {"before", "until"}),
    ):
        world.sleep(ms)
        assert {v for v, rows in world.contents([*views]).items() if rows.num_rows} == there
    world.execute(f"INSERT INTO o (id, ts) VALUES (2, {moment(world, 5_000)})")
    world.sleep(60_000)
    assert world.contents(["between"])["between"].num_rows == 0


def test_a_clock_that_is_set_back_brings_no_row_back(world: SqlSession) -> None:
    world.execute("CREATE VIEW v AS SELECT id FROM o WHERE ts > NOW() - INTERVAL '1 hour'")
    world.execute(f"INSERT INTO o (id, ts) VALUES (1, {moment(world)}), (2, {moment(world, 7_200_000)})")
    world.sleep(3_600_001)
    world.sleep(1_000)
    world.execute(
        f"INSERT INTO o (id, ts) VALUES (3, {moment(world, -3_600_500)})"
    )  # gone, but not for the moment before
    world._clock.advance(-1_800_000)
    world.execute("UPDATE o SET k = 1")
    world.execute("DELETE FROM o WHERE id IN (1, 3)")
    assert world.contents(["v"])["v"].to_pylist() == [{"id": 2}]
    world.sleep(3 * 3_600_000)
    assert world.contents(["v"])["v"].num_rows == 0


def test_a_row_that_fails_when_it_comes_is_a_dead_letter(world: SqlSession) -> None:
    world.execute("CREATE VIEW v AS SELECT id, 10 / k AS q FROM o WHERE ts <= NOW()")
    world.execute(f"INSERT INTO o (id, k, ts) VALUES (1, 0, {moment(world, 60_000)}), (2, 5, {moment(world, 60_000)})")
    world.sleep(61_000)
    assert world.ask("SELECT * FROM v").to_pylist() == [{"id": 2, "q": 2}]
    assert world.dead_letters() == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT NOW() AS n FROM o",
        "SELECT id FROM o WHERE ts > NOW() - INTERVAL '1 hour' OR k = 1",
        "SELECT id FROM o WHERE ts > NOW() - INTERVAL '1 month'",
        "SELECT k FROM o GROUP BY k HAVING MAX(ts) > NOW()",
        "SELECT id FROM o WHERE EXTRACT(HOUR FROM NOW()) > k",
        "SELECT a.id FROM o AS a LEFT JOIN o AS b ON a.k = b.k AND b.ts > NOW()",
        "SELECT id FROM o WHERE ts > date_trunc('day', NOW())",
        "SELECT id FROM o WHERE NOT (ts > NOW())",
    ],
)
def test_other_uses_of_the_moment_are_refused_by_name(query: str) -> None:
    _assert_refused(f"{TABLES[0]}; CREATE VIEW v AS {query};")


def test_windows_that_close_are_refused_beside_the_moment() -> None:
    table = "CREATE TABLE e (ts TIMESTAMP, WATERMARK FOR ts AS ts);"
    window = "SELECT window_start, COUNT(*) AS n FROM TUMBLE(e, ts, INTERVAL '1 minute')"
    where = "WHERE ts > NOW() - INTERVAL '1 hour' GROUP BY window_start"
    _assert_refused(f"{table} CREATE VIEW v AS {window} {where} EMIT ON WINDOW CLOSE;")


def _assert_refused(sql: str) -> None:
    found = compile_project([SourceText("t.sql", sql)], dialect="standard").diagnostics
    assert [(d.code, d.unsupported) for d in found] == [("FQ1901", True)]
    assert "NOW" in found[0].title

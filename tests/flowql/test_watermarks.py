"""Tables with a watermark, statement by statement: late rows are left out, and EMIT ON WINDOW CLOSE shows what cannot change any more.

The oracle is DuckDB over the rows in the log that are not late: those whose time is not before the largest time in front of them in
their partition, less the delay.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.runtime.log.base import TopicPartition
from tests.runtime.log.records import read_all
from tests.slt.session import Shape, SqlSession

pytestmark = pytest.mark.turns("queries")

DELAY_S = 20
TABLE = (
    "CREATE TABLE {} (id INT, k INT, v INT, ts TIMESTAMP, "
    f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY_S}' SECOND) APPEND ONLY"
)
MINUTE = "INTERVAL '1' MINUTE"
CLOSE = "EMIT ON WINDOW CLOSE"
# The start of the minute, for DuckDB.
START = "time_bucket(INTERVAL '1' MINUTE, ts, TIMESTAMP '2024-01-01')"
SOON = "RANGE BETWEEN CURRENT ROW AND INTERVAL '30' SECOND FOLLOWING EXCLUDE CURRENT ROW"
# For DuckDB: rows of `a` with the number of their session.
SESSIONS = (
    "(SELECT *, count(*) FILTER (WHERE first) OVER (PARTITION BY k ORDER BY ts) AS session FROM (SELECT *, "
    "coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) >= INTERVAL '15' SECOND, TRUE) AS first FROM a))"
)
# name -> (view, oracle). low(), low_both(): the lowest watermark of `a`, and of `a` and `b`. own_low: that of a partition of `a`.
VIEWS: dict[str, tuple[str, str]] = {
    "groups": (
        f"SELECT window_start, k, count(*) AS n, sum(v) AS s, min(v) AS least, count(DISTINCT v) AS d FROM TUMBLE(a, ts, {MINUTE}) "
        f"GROUP BY window_start, k {CLOSE}",
        f"SELECT {START} AS w, k, count(*), sum(v), min(v), count(DISTINCT v) FROM a GROUP BY w, k HAVING w + {MINUTE} <= low()",
    ),
    "sums": (
        f"SELECT window_end, nullif(k, 2) AS g, count(*) AS n, sum(v) AS s, max(v) AS most FROM TUMBLE(a, ts, {MINUTE}) "
        f"GROUP BY window_start, window_end, nullif(k, 2) {CLOSE}",
        f"SELECT {START} + {MINUTE} AS e, nullif(k, 2) AS g, count(*), sum(v), max(v) FROM a GROUP BY e, g HAVING e <= low()",
    ),
    "moments": (
        f"SELECT ts, count(*) AS n FROM a GROUP BY ts {CLOSE}",
        "SELECT ts, count(*) FROM a GROUP BY ts HAVING ts < low()",
    ),
    "ends": (
        f"SELECT max(v) AS m FROM TUMBLE(TABLE a, DESCRIPTOR(ts), {MINUTE}) GROUP BY window_end {CLOSE}",
        f"SELECT max(v) FROM a GROUP BY {START} HAVING {START} + {MINUTE} <= low()",
    ),
    "hops": (
        f"SELECT window_end, count(*) AS n FROM HOP(a, ts, INTERVAL '30' SECOND, {MINUTE}) GROUP BY window_start, window_end {CLOSE}",
        "SELECT e, count(*) FROM (SELECT unnest([time_bucket(INTERVAL '30' SECOND, ts) + i * INTERVAL '30' SECOND FOR i IN [1, 2]]) "
        "AS e FROM a) GROUP BY e HAVING e <= low()",
    ),
    "cumulated": (
        f"SELECT window_start, window_end, count(*) AS n FROM CUMULATE(a, ts, INTERVAL '20' SECOND, {MINUTE}) "
        f"GROUP BY window_start, window_end {CLOSE}",
        f"SELECT w, e, count(*) FROM (SELECT {START} AS w, ts, unnest([{START} + i * INTERVAL '20' SECOND FOR i IN [1, 2, 3]]) AS e FROM a) "
        "WHERE ts < e GROUP BY w, e HAVING e <= low()",
    ),
    "plain": (
        f"SELECT id, v FROM a WHERE v > 2 {CLOSE}",
        "SELECT id, v FROM a WHERE v > 2 AND ts < own_low(part)",
    ),
    "first": (
        f"SELECT id, v FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY v, id) AS r FROM TUMBLE(a, ts, {MINUTE})) x "
        f"WHERE r <= 2 {CLOSE}",
        f"SELECT id, v FROM (SELECT *, row_number() OVER (PARTITION BY {START} ORDER BY v, id) AS r FROM a) "
        f"WHERE r <= 2 AND {START} + {MINUTE} <= low()",
    ),
    "ahead": (
        f"SELECT id, lead(v) OVER (PARTITION BY k ORDER BY ts, id) AS l FROM a {CLOSE}",
        "SELECT id, l FROM (SELECT id, lead(v) OVER w AS l, lead(ts) OVER w AS t FROM a WINDOW w AS (PARTITION BY k ORDER BY ts, id)) "
        "WHERE t < low()",
    ),
    "moments_ahead": (
        f"SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts GROUPS BETWEEN CURRENT ROW AND 2 FOLLOWING EXCLUDE TIES) AS s FROM a {CLOSE}",
        "SELECT id, s FROM (SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts GROUPS BETWEEN CURRENT ROW AND 2 FOLLOWING EXCLUDE TIES) AS s, "
        "last_value(ts) OVER (PARTITION BY k ORDER BY ts GROUPS BETWEEN 2 FOLLOWING AND 2 FOLLOWING) AS t FROM a) WHERE t < low()",
    ),
    "soon": (
        f"SELECT id, count(*) OVER (PARTITION BY k ORDER BY ts {SOON}) AS n FROM a {CLOSE}",
        f"SELECT id, count(*) OVER (PARTITION BY k ORDER BY ts {SOON}) AS n FROM a QUALIFY ts + INTERVAL '30' SECOND < low()",
    ),
    "sessions": (
        f"SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts SESSION WITH GAP INTERVAL '15' SECOND) AS s FROM a {CLOSE}",
        f"SELECT id, sum(v) OVER (PARTITION BY k, session) FROM {SESSIONS} "
        "QUALIFY max(ts) OVER (PARTITION BY k, session) + INTERVAL '15' SECOND <= low()",
    ),
    "numbered": (
        f"SELECT id, row_number() OVER (PARTITION BY k ORDER BY ts, id) AS r FROM a {CLOSE}",
        "SELECT id, r FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts, id) AS r FROM a) WHERE ts < low()",
    ),
    "running": (
        f"SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts, id) AS s, lag(id) OVER (PARTITION BY k ORDER BY ts, id) AS p FROM a {CLOSE}",
        "SELECT id, s, p FROM (SELECT id, ts, sum(v) OVER (PARTITION BY k ORDER BY ts, id) AS s, "
        "lag(id) OVER (PARTITION BY k ORDER BY ts, id) AS p FROM a) WHERE ts < low()",
    ),
    "shares": (
        f"SELECT id, count(*) OVER (PARTITION BY window_end) AS n, lag(v, 1) OVER (PARTITION BY window_end ORDER BY id) AS p "
        f"FROM TUMBLE(a, ts, {MINUTE}) {CLOSE}",
        f"SELECT id, n, p FROM (SELECT id, count(*) OVER (PARTITION BY {START}) AS n, lag(v, 1) OVER (PARTITION BY {START} ORDER BY id) AS p, "
        f"{START} AS w FROM a) WHERE w + {MINUTE} <= low()",
    ),
    "unnested": (
        f"SELECT a.id, u.x FROM a, UNNEST(ARRAY[v, k]) AS u(x) {CLOSE}",
        "SELECT id, unnest([v, k]) FROM a WHERE ts < own_low(part)",
    ),
    "totals": (
        f"SELECT window_start, n FROM (SELECT window_start, k, count(*) AS n FROM TUMBLE(a, ts, {MINUTE}) GROUP BY window_start, k) g "
        f"WHERE n > 1 {CLOSE}",
        f"SELECT {START} AS w, count(*) FROM a GROUP BY w, k HAVING count(*) > 1 AND w + {MINUTE} <= low()",
    ),
    "open": (
        f"SELECT window_start, k, count(*) AS n, min(v) AS least FROM TUMBLE(a, ts, {MINUTE}) GROUP BY window_start, k",
        f"SELECT {START} AS w, k, count(*), min(v) FROM a GROUP BY w, k",
    ),
    "running_sums": (
        f"SELECT window_start, nullif(k, 2) AS g, sum(v) AS s, avg(v)::DOUBLE AS mean, min(v) FILTER (WHERE v > 3) AS least "
        f"FROM HOP(a, ts, INTERVAL '30' SECOND, {MINUTE}) GROUP BY window_start, nullif(k, 2)",
        "SELECT w, nullif(k, 2) AS g, sum(v), avg(v), min(v) FILTER (WHERE v > 3) FROM (SELECT k, v, "
        "unnest(CASE WHEN ts IS NULL THEN [NULL] ELSE [time_bucket(INTERVAL '30' SECOND, ts) - i * INTERVAL '30' SECOND FOR i IN [0, 1]] END) "
        "AS w FROM a) GROUP BY w, g",
    ),
    "pairs": (
        "SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts "
        f"{CLOSE}",
        # a.ts is closed when no b of at most 10 seconds later comes, b.ts when no a does.
        "SELECT a.id, b.id FROM a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts "
        "WHERE a.ts + INTERVAL '10' SECOND < low_both() OR b.ts < low_both()",
    ),
    # The time of a pair follows from its key, and DISTINCT lies as the join needs it.
    "window_pairs": (
        f"SELECT x.k, x.window_start, y.v FROM (SELECT DISTINCT k, window_start FROM TUMBLE(a, ts, {MINUTE})) x "
        f"JOIN (SELECT DISTINCT v, k, window_start FROM TUMBLE(b, ts, {MINUTE})) y ON x.window_start = y.window_start AND x.k = y.k",
        f"SELECT x.k, x.w, y.v FROM (SELECT DISTINCT k, {START} AS w FROM a) x "
        f"JOIN (SELECT DISTINCT v, k, {START} AS w FROM b) y ON x.w = y.w AND x.k = y.k",
    ),
    "left_pairs": (
        "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts AND a.ts <= b.ts + INTERVAL '10' SECOND "
        f"{CLOSE}",
        "SELECT a.id, b.id FROM a LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts AND a.ts <= b.ts + INTERVAL '10' SECOND "
        "WHERE a.ts < low_both() OR b.ts + INTERVAL '10' SECOND < low_both()",
    ),
    # Rows without a partner have no time in what is selected.
    "left_times": (
        "SELECT a.id, b.ts FROM a LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts AND a.ts <= b.ts + INTERVAL '10' SECOND "
        f"{CLOSE}",
        "SELECT a.id, b.ts FROM a LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts AND a.ts <= b.ts + INTERVAL '10' SECOND "
        "WHERE a.ts < low_both() OR b.ts + INTERVAL '10' SECOND < low_both()",
    ),
    "all_pairs": (
        "SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts",
        "SELECT a.id, b.id FROM a FULL JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '10' SECOND AND b.ts",
    ),
    "over_a_view": (
        f"SELECT window_start, sum(n) AS n FROM open_rows GROUP BY window_start {CLOSE}",
        f"SELECT {START} AS w, count(*) FROM a GROUP BY w HAVING w + {MINUTE} <= low()",
    ),
}
OPEN_ROWS = f"CREATE MATERIALIZED VIEW open_rows AS SELECT window_start, k, count(*) AS n FROM TUMBLE(a, ts, {MINUTE}) GROUP BY window_start, k"


@contextmanager
def world(*statements: str, partitions: int = 1, vector: bool | None = None) -> Iterator[SqlSession]:
    made = SqlSession(Shape(partitions=partitions, vector=vector))
    try:
        for s in statements:
            made.execute(s)
        yield made
    finally:
        made.close()


def at(second: int) -> str:
    return f"2024-01-01 00:{second // 60:02}:{second % 60:02}"


def values(rng: random.Random, ids: Iterator[int], now_s: int) -> str:
    """Rows of an INSERT: most around the time, some long past, few without one."""
    rows = []
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        s = max(0, now_s + rng.randint(-60, 15))
        ts = "NULL" if rng.random() < 0.03 else f"'{at(s)}'"
        rows.append(f"({next(ids)}, {rng.randint(1, 3)}, {rng.randint(0, 9)}, {ts})")
    return ", ".join(rows)


class Oracle:
    """DuckDB with the rows of the log that are not late. low: the watermark of a table, of none that is known minus infinity."""

    def __init__(self, w: SqlSession, tables: Sequence[str], partitions: int) -> None:
        self.db = duckdb.connect()
        self.late = 0
        low: dict[str, list[int | None]] = {}
        for table in tables:
            self.db.execute(f"CREATE TABLE {table} (part INT, id INT, k INT, v INT, ts TIMESTAMP)")
            low[table] = []
            for part in range(partitions):
                low[table].append(self._fill(w, table, part))
        for name, of in (("low", low["a"]), ("low_both", [x for t in tables for x in low[t]])):
            self._macro(f"{name}()", None if None in of else min(x for x in of if x is not None))
        cases = " ".join(f"WHEN {n} THEN {_literal(x)}" for n, x in enumerate(low["a"]))
        self.db.execute(f"CREATE MACRO own_low(part) AS CASE part {cases} END")

    def _fill(self, w: SqlSession, table: str, part: int) -> int | None:
        """The rows of one partition, in the order of its records; its watermark in ms."""
        reached: int | None = None
        for _, _, _, value in read_all(w._log, TopicPartition(table, part)):
            row = json.loads(value)
            ts = row["ts"]
            if ts is not None and reached is not None and ts < reached - DELAY_S * 1000:
                self.late += 1
                continue
            if ts is not None:
                reached = ts if reached is None else max(reached, ts)
            columns = (part, row["id"], row["k"], row["v"], ts)
            self.db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, make_timestamp(? * 1000))", columns)
        return None if reached is None else reached - DELAY_S * 1000

    def _macro(self, name: str, low_ms: int | None) -> None:
        self.db.execute(f"CREATE MACRO {name} AS {_literal(low_ms)}")

    def rows(self, sql: str) -> Counter[Any]:
        return Counter(self.db.execute(sql).fetchall())


def _literal(low_ms: int | None) -> str:
    return "TIMESTAMP '-infinity'" if low_ms is None else f"make_timestamp({low_ms * 1000})"


def shown(w: SqlSession, view: str) -> Counter[Any]:
    return Counter(tuple(r.values()) for r in w.ask(f"SELECT * FROM {view}").to_pylist())


@pytest.mark.parametrize(("partitions", "vector"), [(1, True), (3, False), (3, None)])
def test_views_show_the_rows_that_are_not_late_and_close_with_the_watermark(
    partitions: int, vector: bool | None
) -> None:
    made = [f"CREATE MATERIALIZED VIEW {name} AS {view}" for name, (view, _) in VIEWS.items()]
    rng, ids = random.Random(7 + partitions), count(1)
    late = closed = 0
    with world(TABLE.format("a"), TABLE.format("b"), OPEN_ROWS, *made, partitions=partitions, vector=vector) as w:
        for n in range(18):
            w.execute(
                f"INSERT INTO {rng.choice('aab')} VALUES {values(rng, ids, n * 12)}",
                rounds=rng.choice((None, None, 1, 4)),
            )
            if n % 6 != 5:
                continue
            oracle = Oracle(w, ("a", "b"), partitions)
            late += oracle.late
            for name, (_, sql) in VIEWS.items():
                expected = oracle.rows(sql)
                closed += len(expected) * (CLOSE in VIEWS[name][0])
                assert shown(w, name) == expected, (name, n)
    assert late > 15, "the oracle has seen late rows"
    assert closed > 150, "and closed ones"


def kept(w: SqlSession) -> dict[str, int]:
    """Rows of state by operator, those of results left out."""
    found: Counter[str] = Counter()
    for query in w._instance.queries.values():
        for task in query.built.tasks:
            for name, store in task.state.stores.items():
                operator = next(
                    (o for o in ("groupaggregate", "aggregate", "equijoin", "emitclosed", "topn", "over") if o in name),
                    "",
                )
                found[operator] += sum(1 for _ in store.scan())
    return {o: n for o, n in found.items() if o}


@pytest.mark.parametrize("vector", [True, False])
def test_state_of_what_is_closed_is_dropped(vector: bool) -> None:
    names = ("groups", "sums", "plain", "open", "pairs", "window_pairs", "left_pairs", "first", "shares")
    made = [f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name][0]}" for name in names]
    with world(TABLE.format("a"), TABLE.format("b"), *made, vector=vector) as w:
        sizes = []
        for n in range(9):
            rows = ", ".join(f"({100 * n + i}, {i % 7}, {i}, '{at(180 * n + i)}')" for i in range(50))
            for table in "ab":
                w.execute(f"INSERT INTO {table} VALUES {rows}")
            sizes.append(kept(w))
        assert max(s["equijoin"] for s in sizes[4:]) <= max(s["equijoin"] for s in sizes[:3]), sizes
        assert len(sizes[0]) == 6, sizes
        assert max(sum(s.values()) for s in sizes[4:]) <= max(sum(s.values()) for s in sizes[:3]), sizes


def test_a_row_of_an_insert_is_not_late_because_of_another_one() -> None:
    with world(TABLE.format("a"), "CREATE MATERIALIZED VIEW ids AS SELECT id FROM a") as w:
        w.execute(f"INSERT INTO a VALUES (1, 1, 1, '{at(200)}'), (2, 1, 1, '{at(10)}'), (3, 1, 1, NULL)")
        w.execute(f"INSERT INTO a VALUES (4, 1, 1, '{at(180)}'), (5, 1, 1, '{at(179)}')")
        assert shown(w, "ids") == Counter([(1,), (2,), (3,), (4,)])


def test_late_rows_are_counted() -> None:
    with world(TABLE.format("a"), "CREATE MATERIALIZED VIEW ids AS SELECT id FROM a") as w:
        w.execute(f"INSERT INTO a VALUES (1, 1, 1, '{at(200)}')")
        w.execute(f"INSERT INTO a VALUES (2, 1, 1, '{at(10)}'), (3, 1, 1, '{at(170)}')")
        (query,) = w._instance.queries
        assert w._instance.metrics.query(query).late_records == 2


def test_a_partition_without_rows_holds_the_watermark_back() -> None:
    stream = "CREATE STREAM a (id INT KEY, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (KAFKA_TOPIC = 'a', VALUE_FORMAT = 'JSON')"
    view = f"CREATE MATERIALIZED VIEW ends AS {VIEWS['ends'][0]}"
    with world(stream, view, partitions=3) as w:
        for second in (0, 300):
            w.execute(f"INSERT INTO a VALUES (1, 1, TIMESTAMP '{at(second)}')")
        assert not shown(w, "ends")
        for key in range(2, 12):
            w.execute(f"INSERT INTO a VALUES ({key}, 2, TIMESTAMP '{at(300)}')")
        assert all(read_all(w._log, TopicPartition("a", p)) for p in range(3))
        assert shown(w, "ends") == Counter([(1,)])


def test_rows_of_a_table_with_a_watermark_stay() -> None:
    with world(TABLE.format("a")) as w, pytest.raises(CompileError, match="APPEND ONLY"):
        w.execute("DELETE FROM a")


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_stream_beside_a_table_keeps_its_rows_and_follows_the_table(partitions: int) -> None:
    stream = "CREATE STREAM s (id INT KEY, item TEXT) WITH (KAFKA_TOPIC = 's', VALUE_FORMAT = 'JSON')"
    prices = "CREATE TABLE prices (item TEXT PRIMARY KEY, cents INT)"
    views = [
        f"CREATE MATERIALIZED VIEW {name} AS SELECT s.id, p.cents FROM s {join} prices {when} p ON s.item = p.item"
        for name, join, when in (
            ("now", "LEFT JOIN", ""),
            ("met", "LEFT JOIN", "FOR SYSTEM_TIME AS OF PROCTIME()"),
            ("matched", "JOIN", ""),
        )
    ]
    with world(stream, prices, *views, partitions=partitions) as w:
        w.execute("INSERT INTO prices VALUES ('pen', 5)")
        for n in (1, 2, 2):
            w.execute(f"INSERT INTO s VALUES ({n}, 'pen')")
        w.execute("INSERT INTO s VALUES (3, 'ink')")
        w.execute("UPDATE prices SET cents = 6", rounds=2)
        w.execute("INSERT INTO s VALUES (4, 'pen')")
        assert shown(w, "now") == Counter([(1, 6), (2, 6), (2, 6), (3, None), (4, 6)])
        assert shown(w, "met") == Counter([(1, 5), (2, 5), (2, 5), (3, None), (4, 6)])
        w.execute("DELETE FROM prices")
        assert shown(w, "now") == Counter([(1, None), (2, None), (2, None), (3, None), (4, None)])
        assert shown(w, "matched") == Counter()


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_query_that_streams_cannot_say_is_a_view_over_their_rows(partitions: int) -> None:
    streams = [f"CREATE STREAM {s} (id INT KEY, v INT) WITH (KAFKA_TOPIC = '{s}', VALUE_FORMAT = 'JSON')" for s in "st"]
    view = "CREATE MATERIALIZED VIEW all_ids AS SELECT DISTINCT id FROM s UNION ALL SELECT id FROM t WHERE v > 1"
    with world(*streams, view, partitions=partitions) as w:
        for table, key, v in (("s", 1, 1), ("s", 1, 2), ("t", 1, 2), ("t", 1, 2), ("t", 2, 1), ("s", 3, 0)):
            w.execute(f"INSERT INTO {table} VALUES ({key}, {v})", rounds=2)
        assert shown(w, "all_ids") == Counter([(1,), (1,), (1,), (3,)])


@pytest.mark.parametrize(
    "view",
    [
        f"SELECT k, count(*) AS n FROM a GROUP BY k {CLOSE}",
        f"SELECT b.id FROM a JOIN b ON a.k = b.k {CLOSE}",
        f"SELECT id FROM c {CLOSE}",
        f"SELECT id, lead(id) IGNORE NULLS OVER (ORDER BY ts) AS n FROM a {CLOSE}",
        f"SELECT id, ntile(2) OVER (ORDER BY ts) AS n FROM a {CLOSE}",
        f"SELECT max(ts) AS ts FROM a {CLOSE}",
        f"SELECT id, row_number() OVER (ORDER BY ts NULLS FIRST) AS n FROM a {CLOSE}",
        f"SELECT id, row_number() OVER (ORDER BY ts DESC) AS n FROM a {CLOSE}",
        f"SELECT id, sum(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS n FROM a {CLOSE}",
        f"SELECT id, sum(v) OVER (ORDER BY ts DESC SESSION WITH GAP INTERVAL '1' MINUTE) AS n FROM a {CLOSE}",
        f"SELECT a.id FROM a JOIN b ON a.k = b.k AND a.ts < b.ts - (b.v * INTERVAL '1' SECOND) {CLOSE}",
    ],
)
def test_rows_that_are_never_closed_are_refused(view: str) -> None:
    other = "CREATE TABLE c (id INT, ts TIMESTAMP)"
    with world(TABLE.format("a"), TABLE.format("b"), other) as w, pytest.raises(CompileError) as caught:
        w.execute(f"CREATE MATERIALIZED VIEW v AS {view}")
    assert caught.value.diagnostics[0].code == "FQ2055"

"""`waiting` of `status`: as many rows wait in a query as it gives once time has passed, after restarts and in columns as by rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import statuses
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.app.harness import InstanceHarness, Sent
from tests.slt.session import Shape, SqlSession

STREAM = "CREATE STREAM {0} (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='{0}', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
WINDOW = "CREATE TABLE R AS SELECT K, COUNT(*) AS N FROM A WINDOW {} GROUP BY K EMIT FINAL;"
JOIN = "CREATE STREAM R AS SELECT {}, A.V AS X, B.V AS Y FROM A {} JOIN B WITHIN 10 SECONDS GRACE PERIOD 2 SECONDS ON A.K = B.K;"
LIFE = "RETENTION 1 DAY, GRACE PERIOD 2 SECONDS"
QUERIES = {
    "tumbling": WINDOW.format(f"TUMBLING (SIZE 10 SECONDS, {LIFE})"),
    "hopping": WINDOW.format(f"HOPPING (SIZE 10 SECONDS, ADVANCE BY 4 SECONDS, {LIFE})"),
    "session": WINDOW.format(f"SESSION (3 SECONDS, {LIFE})"),
    "left": JOIN.format("A.K AS K", "LEFT"),
    "full": JOIN.format("ROWKEY AS K", "FULL OUTER"),
}
BEGIN_MS, SPAN_MS, LATER_MS = 1_000_000_000, 30_000, 3_600_000


def waiting(instance: Instance) -> dict[str, Any]:
    (query,) = statuses(instance)
    assert query["lag"] == 0, "rows that wait are no lag"
    found: dict[str, Any] = query.get("waiting", {"calls": 0, "windows": 0})
    return found


def out(instance: Instance) -> int:
    (query,) = statuses(instance)
    return int(query["records_out"])


def restart(world: InstanceHarness, physical: MemoryPhysical) -> None:
    """As after a crash: what is processed and not committed is processed again."""
    world.instance.close()
    world.instance = Instance(world.log, physical, world.clock, world.instance.config)
    world.driver = Driver(world.instance)
    world.instance.resume()


def records(rng: random.Random, begin_ms: int) -> Sequence[Sent]:
    return [(rng.randrange(6), {"V": n}, begin_ms + rng.randrange(SPAN_MS)) for n in range(rng.randrange(1, 40))]


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_as_many_rows_wait_as_come_when_time_has_passed(name: str, vector: bool) -> None:
    rng, physical = random.Random(f"{name} {vector}"), MemoryPhysical()
    sql = STREAM.format("A") + STREAM.format("B") + QUERIES[name]
    world = InstanceHarness(sql, physical=physical, vector=vector, rows_per_run=rng.choice([3, 64]), threads=1)
    waited = 0
    for n in range(6):
        begin_ms = BEGIN_MS + 2 * n * LATER_MS
        for topic in rng.choice([["A"], ["A", "B"], ["A", "B", "A"]]):
            world.send(topic, records(rng, begin_ms))
            for _ in range(rng.randrange(3)):
                world.driver.round()
            if rng.random() < 0.4:
                restart(world, physical)
        world.settle()
        rows, before = waiting(world.instance)["windows"], out(world.instance)
        world.send("A", [(7, {"V": 0}, begin_ms + LATER_MS)])
        world.settle()
        assert out(world.instance) - before == rows, n
        waited += rows
    assert waited > 10
    world.instance.close()


TABLE = "CREATE TABLE {} (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND) APPEND ONLY"
VIEWS = {
    "closed rows": "SELECT id FROM a EMIT ON WINDOW CLOSE",
    "closed windows": "SELECT window_start, k, count(*) AS n FROM TUMBLE(a, ts, INTERVAL '1' MINUTE) "
    "GROUP BY window_start, k EMIT ON WINDOW CLOSE",
    "versions": "SELECT a.id, b.id AS other FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k",
    "coming": "SELECT id FROM a WHERE ts <= NOW()",
}


@pytest.mark.parametrize("name", VIEWS)
def test_as_many_rows_wait_in_a_view_as_come_when_time_has_passed(name: str) -> None:
    rng = random.Random(name)
    session = SqlSession(Shape(rng.choice([False, True])))
    for sql in (TABLE.format("a"), TABLE.format("b"), f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}"):
        session.execute(sql)
    begin_ms, waited = session._clock.wall_ms() // 60_000 * 60_000, 0

    def insert(table: str, *times_ms: int) -> None:
        rows = [f"({rng.randrange(10**6)}, {rng.randrange(4)}, TO_TIMESTAMP({ms} / 1000.0))" for ms in times_ms]
        session.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}", rounds=rng.choice([None, None, 2]))

    def shown() -> int:
        return int(session.ask("SELECT count(*) AS n FROM v").to_pylist()[0]["n"])

    for n in range(3):
        begin_ms += n * LATER_MS
        for table in rng.choice([["a", "b", "a"], ["b", "a"]]):
            insert(table, *(begin_ms + rng.randrange(60_000) for _ in range(rng.randrange(2, 30))))
        insert("b", begin_ms)
        rows, before = waiting(session._instance)["windows"], shown()
        if name == "coming":
            session.sleep(begin_ms + 60_000 - session._clock.wall_ms())
        else:
            insert("b", begin_ms + LATER_MS)
            insert("a", begin_ms + LATER_MS)
        assert shown() - before == rows, n
        waited += rows
    assert waited > 5
    session.close()

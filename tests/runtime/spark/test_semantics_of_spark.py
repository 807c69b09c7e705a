"""`semantics: spark`: without late rows windows and joins give what they give on the runtime, and a table is met as it is now."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.spark.engine.instance import SparkInstance
from tests.crash.contents import records_of
from tests.crash.project import append
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.logs import records
from tests.runtime.spark.test_engine_order import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120
SQL = """
    CREATE STREAM S (K STRING KEY, V INT, AT BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON', TIMESTAMP='AT');
    CREATE STREAM R (K STRING KEY, W INT, AT BIGINT) WITH (KAFKA_TOPIC='r', PARTITIONS=2, VALUE_FORMAT='JSON', TIMESTAMP='AT');
    CREATE TABLE D (K STRING PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC='d', PARTITIONS=2, VALUE_FORMAT='JSON');
    CREATE TABLE CHANGING AS SELECT V, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 10 SECONDS) GROUP BY V;
    CREATE TABLE CLOSED AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S
      WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY K EMIT FINAL;
    CREATE STREAM PAIRS AS SELECT S.K AS K, V, W FROM S JOIN R WITHIN 5 SECONDS GRACE PERIOD 10 SECONDS ON S.K = R.K;
    CREATE STREAM NAMED AS SELECT S.K AS K, V, NAME FROM S LEFT JOIN D ON S.K = D.K;
"""
KEYS = ("a", "b", "c")
Row = tuple[str, int, int]  # key, value, time in ms


def rows_between(chance: Random, begin_s: int, end_s: int) -> list[Row]:
    """In the order of their times, the last at the end."""
    times = sorted(chance.randrange(begin_s * 1000, end_s * 1000) for _ in range(40))
    return [(chance.choice(KEYS), chance.randrange(4), t) for t in [*times, end_s * 1000]]


def feed(log: Log, topic: str, column: str, rows: list[Row]) -> None:
    """In one transaction: rows of a partition that a later micro-batch reads could be late."""
    parts = []
    for p in range(2):
        mine = [r for r in rows if KEYS.index(r[0]) % 2 == p]
        values: list[bytes | None] = [json.dumps({column: v, "AT": t}).encode() for _, v, t in mine]
        parts.append((TopicPartition(topic, p), records(values, [k.encode() for k, _, _ in mine])))
    append(log, parts)


def name(log: Log, key: str, value: bytes | None) -> None:
    append(log, [(TopicPartition("d", KEYS.index(key) % 2), records([value], [key.encode()]))])


def starts(t: int, size: int, advance: int) -> Iterator[int]:
    last = t - t % advance
    yield from (s for s in range(last - size + advance, last + 1, advance) if s >= 0)


def closed(rows: list[Row], until: int) -> Counter[Any]:
    """Windows of CLOSED that have ended by then: start, count, sum."""
    found: dict[tuple[str, int], list[int]] = {}
    for k, v, t in rows:
        for start in starts(t, 10_000, 5_000):
            found.setdefault((k, start), []).append(v)
    return Counter((s, len(v), sum(v)) for (_, s), v in found.items() if s + 10_000 <= until)


def changing(rows: list[Row]) -> dict[tuple[int, int], int]:
    return dict(Counter((v, t - t % 10_000) for _, v, t in rows))


def pairs(left: list[Row], right: list[Row]) -> Counter[Any]:
    return Counter((v, w, max(t, u)) for k, v, t in left for other, w, u in right if k == other and abs(t - u) <= 5_000)


def start_of(key: bytes) -> int:
    return int.from_bytes(key[-8:])


def seen_closed(log: Log) -> Counter[Any]:
    found = [(start_of(r["key"]), json.loads(r["value"])) for _, r in records_of(log, "CLOSED")]
    return Counter((start, v["N"], v["T"]) for start, v in found)


def seen_changing(log: Log) -> dict[tuple[int, int], int]:
    """Of an INT key and the start of its window."""
    found = {r["key"]: json.loads(r["value"])["N"] for _, r in records_of(log, "CHANGING")}
    return {(int.from_bytes(k[:4]), start_of(k)): n for k, n in found.items()}


def seen_pairs(log: Log) -> Counter[Any]:
    found = [(json.loads(r["value"]), r["timestamp"]) for _, r in records_of(log, "PAIRS")]
    return Counter((v["V"], v["W"], t) for v, t in found)


def seen_named(log: Log) -> Counter[Any]:
    return Counter(
        (r["key"].decode(), json.loads(r["value"])["NAME"], r["timestamp"]) for _, r in records_of(log, "NAMED")
    )


def until(holds: Callable[[], bool]) -> None:
    """A window that closes comes with a micro-batch of its own, behind those that have read all."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.1)


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_windows_and_joins_of_rows_that_are_not_late(spark: SparkSession, tmp_path: Path) -> None:
    seed = 5
    chance, plan = Random(seed), plan_of(SQL)
    settings = replace(TEST_SETTINGS, streams="native", semantics="spark")
    instance = SparkInstance(tmp_path / "log", tmp_path / "state", settings, "flowql")
    try:
        log, left, right = instance.site.log, [], []
        for topic in ("s", "r", "d"):
            log.admin().create_topic(topic, 2)
        for key in KEYS:
            name(log, key, json.dumps({"NAME": key.upper()}).encode())
        name(log, "c", None)
        instance.start()
        instance.deploy(plan)
        names: dict[str, str | None] = {"a": "A", "b": "B", "c": None}
        named: Counter[Any] = Counter()
        for begin_s, end_s in ((0, 60), (60, 120)):
            more, others = rows_between(chance, begin_s, end_s), rows_between(chance, begin_s, end_s)
            feed(log, "s", "V", more)
            feed(log, "r", "W", others)
            left, right = left + more, right + others
            until(instance.catch_up())
            named += Counter((k, names[k], t) for k, _, t in more)
            until(lambda: seen_closed(log) == closed(left, end_s * 1000))  # noqa: B023 - it is called here
            assert seen_changing(log) == changing(left), f"seed {seed}"
            assert seen_pairs(log) == pairs(left, right), f"seed {seed}"
            assert seen_named(log) == named, "a table is met as it was when the micro-batch ran"
            name(log, "a", b'{"NAME": "newer"}')
            names["a"] = "newer"
        status = instance.status()["queries"]
        assert {(q["how"], q["lag"]) for q in status} == {("native", 0)}
    finally:
        instance.stop()

"""One bad record among a million in one epoch: one dead letter, everything else as in a run without it, and how long that takes.

    python -m tests.one_bad_record --records 1000000

Ways to be bad: a value that no store keeps, one that no repartition takes, a result that is too large, and a row of a changelog that is,
directly and behind a repartition.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.runtime.app.query_state import RUNNING
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from tests.runtime.app.harness import InstanceHarness, function
from tests.runtime.app.narrow_log import NarrowLog

PARTITIONS, KEYS = 2, 10_000
SOURCES = """
CREATE STREAM S (V BIGINT, T STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE BESIDE AS SELECT V % 5 AS R, COUNT(*) AS N FROM S WHERE V >= 0 GROUP BY V % 5 EMIT CHANGES;
"""
KEYED = """
CREATE STREAM S (K BIGINT KEY, V BIGINT, T STRING) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE BESIDE AS SELECT K, COUNT(*) AS N FROM S WHERE V >= 0 GROUP BY K EMIT CHANGES;
"""
BAD, LIMIT = -7, 1_000
BAD_TEXT = "x" * 5_000


@dataclass(frozen=True, slots=True)
class Case:
    """sources and sql: the project. narrow: the topic that takes no record above LIMIT; none where a value is what is bad."""

    sources: str
    sql: str
    code: str
    narrow: str = ""

    @property
    def query(self) -> str:
        return "CSAS_R" if "CREATE STREAM R" in self.sql else "CTAS_R"


CASES = {
    "directly": Case(
        KEYED,
        "CREATE TABLE R AS SELECT K, COUNT_DISTINCT(UNKEPT(V)) AS N, SUM(V) AS T FROM S GROUP BY K EMIT CHANGES;",
        "FQ4012",
    ),
    "into a repartition": Case(
        SOURCES,
        "CREATE TABLE R AS SELECT V % 9973 AS M, COUNT_DISTINCT(UNKEPT(V)) AS N, SUM(V) AS T FROM S GROUP BY V % 9973 EMIT CHANGES;",
        "FQ4012",
    ),
    "as a result": Case(KEYED, "CREATE STREAM R AS SELECT K, V + 1 AS V, T FROM S EMIT CHANGES;", "FQ4043", "R"),
    "as a row of a changelog": Case(
        KEYED,
        "CREATE TABLE R AS SELECT K, COUNT(*) AS N, MAX(T) AS T, SUM(V) AS V FROM S GROUP BY K EMIT CHANGES;",
        "FQ4043",
        "flowql-CTAS_R-aggregate-1-changelog",
    ),
    "behind a repartition": Case(
        SOURCES,
        "CREATE TABLE R AS SELECT V % 9973 AS M, COUNT(*) AS N, MAX(T) AS T FROM S GROUP BY V % 9973 EMIT CHANGES;",
        "FQ4043",
        "flowql-CTAS_R-aggregate-1-changelog",
    ),
}


class Unkept:
    """Nothing that a store keeps."""


def unkept(value: Any) -> Any:
    return Unkept() if value == BAD else value


@dataclass(frozen=True, slots=True)
class Results:
    """What a run ends with. rows: of tables and of the stream that is written; seconds: for all."""

    rows: dict[str, Any]
    letters: list[dict[str, Any]]
    seconds: float


def outcome(case: Case, records: int, *, bad: bool) -> Results:
    """Everything in one epoch, with or without the bad record, which stands two thirds of the way."""
    with function("UNKEPT", unkept):
        log = NarrowLog()
        world = InstanceHarness(case.sources + case.sql, log=log, changelogs=True, memory_bytes=64 << 30)
        world.settle()
        if case.narrow:
            log.bytes_max = {case.narrow: LIMIT}
        fill(world, records, bad=bad, keyed=case.sources == KEYED)
        commits, start = world.instance.metrics.commits, time.perf_counter()
        world.driver.run_until_idle()
        assert bad or world.instance.metrics.commits == commits, "all of it in one epoch"
        world.settle()
        seconds = time.perf_counter() - start
        for name in world.instance.queries:
            assert world.instance.query_states.of(name).state is RUNNING, world.instance.query_states.of(name).reason
        rows: dict[str, Any] = {"BESIDE": world.table("BESIDE")}
        if case.query == "CTAS_R":
            rows["R"] = world.table("R")
        else:
            found = [(p, v["V"] % PARTITIONS, k, v["V"], at) for p, _, k, v, at in world.records("R")]
            rows["R"] = sorted(found, key=lambda row: row[:2])  # the order of records from two partitions is not given
        return Results(rows, world.dead_letters(case.query), seconds)


def place_of_bad(records: int) -> int:
    """Its offset in the last partition."""
    return records // PARTITIONS * 2 // 3


def fill(world: InstanceHarness, records: int, *, bad: bool, keyed: bool) -> None:
    """Records 0, 1, ... by turns in the partitions; keyed: of 10,000 keys."""
    for p in range(PARTITIONS):
        numbers = np.arange(p, records, PARTITIONS)
        values = [b'{"V":%d,"T":"a"}' % v for v in numbers.tolist()]
        keys = [(v % KEYS).to_bytes(8, "big") for v in numbers.tolist()] if keyed else [None] * len(numbers)
        times = numbers.tolist()
        if bad and p == PARTITIONS - 1:
            at = place_of_bad(records)
            values.insert(at, b'{"V":%d,"T":"%s"}' % (BAD, BAD_TEXT.encode()))
            keys.insert(at, (1).to_bytes(8, "big") if keyed else None)
            times.insert(at, times[at])
        world.producer.begin()
        for start in range(0, len(values), 50_000):
            end = start + 50_000
            columns = [
                pa.array(times[start:end], pa.int64()),
                pa.array(keys[start:end], pa.binary()),
                pa.array(values[start:end], pa.binary()),
                pa.nulls(len(times[start:end]), PRODUCE_SCHEMA.field("headers").type),
            ]
            world.producer.send(TopicPartition("s", p), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))
        world.producer.commit()


def compare(case: Case, records: int) -> tuple[Results, Results]:
    """With the bad record and without it; AssertionError where they differ by more than a letter."""
    without, bad = outcome(case, records, bad=False), outcome(case, records, bad=True)
    assert without.letters == []
    places = [(x["CODE"], x["TOPIC"], x["PARTITION"], x["OFFSET"]) for x in bad.letters]
    assert places == [(case.code, "s", PARTITIONS - 1, place_of_bad(records))], bad.letters
    for name, rows in without.rows.items():
        assert bad.rows[name] == rows, f"{name} is not as in a run without the record"
    return without, bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--case", choices=CASES)
    given = parser.parse_args()
    for name, case in CASES.items():
        if given.case in (None, name):
            without, bad = compare(case, given.records)
            took = f"{without.seconds:.1f} s without it, {bad.seconds:.1f} s with it"
            print(f"{name}: {given.records:,} records, one dead letter ({case.code}); {took}", flush=True)


if __name__ == "__main__":
    main()

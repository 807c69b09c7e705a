"""An enrichment that takes 50 ms per row: called one row after the other, and asynchronously, in one run.

    python -m benchmarks.asynchronous [--rows 20000] [--latency-ms 50] [--in-flight 500] [--partitions 1]

rows/s: from the deployment to the last row of the result, of all partitions together. The synchronous query gets as many rows as take ten seconds.
Order per key is checked. in process: the function runs in a process of its own, as is the default.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import flowql

YAML = "name: enrichment\nfunctions: [service]\nsql: [queries.sql]\n"
KEYS = 100
SYNCHRONOUS_S = 10.0
SERVICE = """
import asyncio, time
from flowql import udf

@udf
def one_by_one(id: int) -> int:
    time.sleep({latency})
    return id

@udf(asynchronous=True, max_in_flight={in_flight})
async def awaited(id: int) -> int:
    await asyncio.sleep({latency})
    return id

@udf(asynchronous=True, max_in_flight={in_flight}, isolation="inline")
async def awaited_inline(id: int) -> int:
    await asyncio.sleep({latency})
    return id

@udf(asynchronous=True, max_in_flight={in_flight})
def in_threads(id: int) -> int:
    time.sleep({latency})
    return id
"""
FORMS = {
    "synchronous": "ONE_BY_ONE",
    "asynchronous, in process": "AWAITED",
    "asynchronous, inline": "AWAITED_INLINE",
    "asynchronous, blocking calls": "IN_THREADS",
}


def measured(form: str, rows: int, given: argparse.Namespace) -> float:
    """Rows per second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flowql.yaml").write_text(YAML)
        source = SERVICE.format(latency=given.latency_ms / 1_000, in_flight=given.in_flight)
        (folder / "service.py").write_text(source)
        sql = folder / "queries.sql"
        sql.write_text(
            "CREATE STREAM EVENTS (KEY STRING KEY, ID BIGINT) "
            f"WITH (KAFKA_TOPIC = 'events', PARTITIONS = {given.partitions}, VALUE_FORMAT = 'JSON');\n"
        )
        with flowql.Instance(folder) as instance:
            ids = pa.array(range(rows))
            keys = pa.array([f"k{n % KEYS}" for n in range(rows)])
            instance.connection.produce("EVENTS", pa.table({"KEY": keys, "ID": ids}))
            with sql.open("a") as more:
                print(f"CREATE STREAM ENRICHED AS SELECT KEY, {FORMS[form]}(ID) AS ID FROM EVENTS;", file=more)
            start = time.perf_counter()
            instance.connection.deploy()
            with instance.connection.subscribe("ENRICHED", start="earliest", limit=rows) as changes:
                found = [(c.row["KEY"], c.row["ID"]) for c in changes if isinstance(c, flowql.Change)]
            seconds = time.perf_counter() - start
    _check(found, rows)
    return rows / seconds


def _check(found: Sequence[tuple[str, int]], rows: int) -> None:
    """Raises AssertionError where a row is missing, or out of the order of its key."""
    of_key: dict[str, list[int]] = {}
    for key, id_ in found:
        of_key.setdefault(key, []).append(id_)
    assert sorted(i for ids in of_key.values() for i in ids) == list(range(rows)), "rows are missing"
    assert all(ids == sorted(ids) for ids in of_key.values()), "rows of a key are out of order"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asynchronous", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--latency-ms", type=int, default=50)
    parser.add_argument("--in-flight", type=int, default=500, help="of each partition")
    parser.add_argument("--partitions", type=int, default=1)
    given = parser.parse_args()
    few = max(1, round(SYNCHRONOUS_S / given.latency_ms * 1_000))
    first = 0.0
    print(f"{'':30} {'rows':>8} {'rows/s':>10} {'times':>8}")
    for form in FORMS:
        rows = few if form == "synchronous" else given.rows
        rate = measured(form, rows, given)
        first = first or rate
        print(f"{form:30} {rows:8,} {rate:10,.1f} {rate / first:8.1f}", flush=True)


if __name__ == "__main__":
    main()

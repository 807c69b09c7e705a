"""The cost of user-defined functions, processors and streams in Python: such queries beside the same query in SQL with built-in functions, in one run.

    python -m benchmarks.functions [--rows 1000000] [--rounds 3] [--pairs 7]

Functions run in processes of their own unless their name says inline; one fails for 1 % of the rows. An instance reads the rows of a topic from
its start with each query in turn, best of the rounds. seconds: of the deployment until all rows
have been read, so reading and decoding are in them. Only ratios within one run are meaningful.

Streams in Python whose steps are expressions have the plan of the SQL beside them, so they are compared in pairs: both one after the other, each
first in turn, and the median of the ratios is shown, with the least and the greatest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import flowql

YAML = "name: functions\nfunctions: [mine, processors]\nsql: [queries.sql]\n"
MINE = """
import pyarrow as pa
import pyarrow.compute as pc
from flowql import udaf, udf

@udf
def scalar(price: float) -> float:
    return price * 0.908

@udf(isolation="inline")
def scalar_inline(price: float) -> float:
    return price * 0.908

@udf
def failing(price: float) -> float:
    if price % 25 == 0:  # of 1 % of the prices
        raise ValueError(f"{price} is round")
    return price * 0.908

@udf(vectorized=True)
def vectorized(price: pa.DoubleArray) -> pa.DoubleArray:
    return pc.multiply(price, 0.908)

@udf(vectorized=True, isolation="inline")
def vectorized_inline(price: pa.DoubleArray) -> pa.DoubleArray:
    return pc.multiply(price, 0.908)

@udaf(isolation="process")
class Total:
    def init(self) -> float:
        return 0.0

    def add(self, total: float, price: float) -> float:
        return total + price

@udaf(isolation="inline")
class TotalInline(Total):
    pass
"""
SOURCE = """
CREATE STREAM BIDS (BIDDER BIGINT KEY, PRICE DOUBLE, CHANNEL STRING)
  WITH (KAFKA_TOPIC = 'bids', PARTITIONS = 4, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
PROCESSORS = """
from flowql import KeyValueStore, Processor, Topology

class Multiply(Processor):
    def process(self, key, value):
        self.context.forward(key, {{"PRICE": value["PRICE"] * 0.908, "CHANNEL": value["CHANNEL"]}})

class Sum(Processor):
    def init(self, context):
        self.context, self.sums = context, context.store("sums")

    def process(self, key, value):
        total = self.sums.get(key, 0.0) + value["PRICE"]
        self.sums.put(key, total)
        self.context.forward(key, {{"PRICE": total}})

multiply = Topology("MULTIPLY").add_source("s", "BIDS").add_processor("p", Multiply, "s").add_sink("t", "MULTIPLIED", "p")
sums = (
    Topology("SUMS").add_source("s", "BIDS").add_processor("p", Sum, "s")
    .add_state_store(KeyValueStore("sums", key=int, value=float), "p").add_sink("t", "SUMMED", "p")
)
del {other}
"""
STREAMED = """
from flowql import StreamsBuilder, col, fn

streams = StreamsBuilder("STREAMED")
bids = streams.stream("BIDS")
{chain}.to("{name}")
"""
FORMAT = "PARTITIONS = 4, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON'"
MULTIPLIED, SUMMED = "PRICE * 0.908", "SUM(PRICE)"
STREAMS = (
    MULTIPLIED,
    "vectorized(PRICE)",
    "vectorized_inline(PRICE)",
    "scalar(PRICE)",
    "scalar_inline(PRICE)",
    "failing(PRICE)",
)
TABLES = (SUMMED, "total(PRICE)", "totalinline(PRICE)")
QUERIES = {
    **{
        e: f"CREATE STREAM PRICES_{i} AS SELECT BIDDER, {e} AS PRICE, CHANNEL FROM BIDS;" for i, e in enumerate(STREAMS)
    },
    **{
        e: f"CREATE TABLE TOTALS_{i} AS SELECT BIDDER, {e} AS PRICE FROM BIDS GROUP BY BIDDER;"
        for i, e in enumerate(TABLES)
    },
}
TOPOLOGIES = {
    "a processor": (
        PROCESSORS.format(other="sums"),
        f"CREATE STREAM MULTIPLIED (BIDDER BIGINT KEY, PRICE DOUBLE, CHANNEL STRING) WITH (KAFKA_TOPIC = 'multiplied', {FORMAT});",
    ),
    "a processor with state": (
        PROCESSORS.format(other="multiply"),
        f"CREATE TABLE SUMMED (BIDDER BIGINT PRIMARY KEY, PRICE DOUBLE) WITH (KAFKA_TOPIC = 'summed', {FORMAT});",
    ),
}
CHAINS = {
    "a stream": 'bids.map_values(price=col("price") * 0.908, channel=col("channel"))',
    "a stream, a lambda": 'bids.map_values(lambda v: {"price": v["PRICE"] * 0.908, "channel": v["CHANNEL"]}, value={"price": float, "channel": str})',
    "a stream, summed": 'bids.group_by_key().aggregate(price=fn.SUM(col("price")))',
}
MODULES = {
    **TOPOLOGIES,
    **{n: (STREAMED.format(chain=chain, name=f"STREAMED_{i}"), "") for i, (n, chain) in enumerate(CHAINS.items())},
}
BUILT_IN = {
    "a processor": MULTIPLIED,
    "a processor with state": SUMMED,
    "a stream": MULTIPLIED,
    "a stream, a lambda": MULTIPLIED,
    "a stream, summed": SUMMED,
    **dict.fromkeys(STREAMS[1:], MULTIPLIED),
    **dict.fromkeys(TABLES[1:], SUMMED),
}
PAIRED = ("a stream", "a stream, summed")
BIDDERS, LOOK_S = 10_000, 0.01


def seconds(folder: Path, instance: flowql.Connection, query: str, rows: int, module: str = "") -> float:
    """The seconds of one query over all rows. Earlier queries are removed. module: with a topology or a stream."""
    (folder / "processors.py").write_text("")
    (folder / "queries.sql").write_text(SOURCE)
    instance.deploy(prune=True)
    (folder / "processors.py").write_text(module)
    (folder / "queries.sql").write_text(SOURCE + query)
    start = time.perf_counter()
    instance.deploy()
    while sum(q["records_in"] for q in instance.status()["queries"]) < rows:
        time.sleep(LOOK_S)
    return time.perf_counter() - start


def measured(rows: int, rounds: int, pairs: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The best seconds of each query, and of streams in Python the ratios of pairs."""
    rng = np.random.default_rng(7)
    prices, bidders = rng.integers(1, 10_000, rows) / 4, rng.integers(0, BIDDERS, rows)
    channels = np.array(["apple", "google", "facebook", "baidu"])[rng.integers(0, 4, rows)]
    best: dict[str, float] = {}
    queries = {**{n: ("", q) for n, q in QUERIES.items()}, **MODULES}
    with tempfile.TemporaryDirectory(prefix="flowql-functions-") as made:
        folder = Path(made)
        (folder / "flowql.yaml").write_text(YAML)
        (folder / "mine.py").write_text(MINE)
        (folder / "processors.py").write_text("")
        (folder / "queries.sql").write_text(SOURCE)
        with flowql.Instance(folder) as running:
            instance = running.connection
            instance.produce("BIDS", pa.table({"BIDDER": bidders, "PRICE": prices, "CHANNEL": channels}))

            def took(name: str) -> float:
                module, query = queries[name]
                return seconds(folder, instance, query, rows, module)

            for _ in range(rounds):
                for name in queries:
                    best[name] = min(took(name), best.get(name, float("inf")))
            return best, {name: ratios(took, name, BUILT_IN[name], pairs) for name in PAIRED if pairs}


def ratios(took: Callable[[str], float], name: str, other: str, pairs: int) -> list[float]:
    """The time of a query as a multiple of that of another one, of each pair."""
    found = []
    for pair in range(pairs):
        first, second = (name, other) if pair % 2 else (other, name)
        times = {first: took(first), second: took(second)}
        found.append(times[name] / times[other])
    return found


def table(best: dict[str, float], paired: dict[str, list[float]], rows: int) -> str:
    """A line for each query: seconds, rows/s, and its time as a multiple of the built-in one's; and a line for those in pairs."""
    lines = [f"{'query':26}{'seconds':>9}{'rows/s':>12}{'of built-in':>13}"]
    for name, took in best.items():
        ratio = f"{took / best[BUILT_IN[name]]:.2f}" if name in BUILT_IN else ""
        lines.append(f"{name:26}{took:>9.2f}{rows / took:>12,.0f}{ratio:>13}")
    for name, found in paired.items():
        spread = f"{min(found):.2f} to {max(found):.2f}"
        lines.append(f"{name}, {len(found)} pairs: median {statistics.median(found):.2f} of built-in ({spread})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    print(table(*measured(options.rows, options.rounds, options.pairs), options.rows))


if __name__ == "__main__":
    main()

"""The cost of kernels: nanoseconds per record of the row and the vector path, on Nexmark bids.

    python -m benchmarks.kernels [--threads 2] [--rows 1000,10000,50000]

Shapes: q0 (all columns in and out), q1 (one computed), q2 (few rows left), qc (two columns decoded) of JSON, and decoding
of AVRO and DELIMITED. Each thread runs the same pipeline over the same records. cpu: of one thread, best of several runs; wall:
of all threads, per record of all. Only ratios within one run are meaningful, not the times themselves.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.bench.nexmark import bids, json_values, kafka_bigint
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Filter, Format, NamedExpr, Project, Scan, Sink, TimestampSpec
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING
from flowql.compiler.schemas.ref import schema_for
from flowql.runtime.app.allocator import keep_memory
from flowql.runtime.log.base import HEADERS_TYPE, RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.fused import FusedPipeline
from flowql.runtime.serde.codec import row_encoder

COLUMNS = ("AUCTION", "BIDDER", "PRICE", "CHANNEL", "URL", "dateTime", "EXTRA")
TYPES = (BIGINT, BIGINT, BIGINT, STRING, STRING, BIGINT, STRING)
BID = Schema(tuple(Field(n, t) for n, t in zip(COLUMNS, TYPES, strict=True)))
JSON, AVRO = Format("JSON"), Format("AVRO", schema=replace(schema_for(Format("AVRO"), BID.fields, is_key=False), id=1))
CSV = Format("DELIMITED", delimiter="|")
REPEATS = 7
Work = Callable[[RawBatch, MicroBatchContext], object]


def raw_bids(rows: int) -> RawBatch:
    """`rows` bids as the log gives them."""
    batch = next(iter(bids(rows, chunk=rows)))
    columns = [
        pa.array(np.arange(rows)),
        batch.column("dateTime"),
        kafka_bigint(batch.column("auction")),
        json_values(batch),
        pa.nulls(rows, HEADERS_TYPE),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    return RawBatch(TopicPartition("bid", 0), records, rows, records.nbytes)


def written_as(fmt: Format, raw: RawBatch) -> RawBatch:
    """The same bids in another format."""
    rows = zip(
        *(pc.cast(c, pa.int64()).to_pylist() if c.type != pa.string() else c.to_pylist() for c in _values(raw)),
        strict=True,
    )
    encoder = row_encoder(BID.fields, fmt, is_key=False)
    records = raw.records.set_column(
        3, RECORD_SCHEMA.field("value"), pa.array([encoder.encode(r) for r in rows], pa.binary())
    )
    return RawBatch(raw.tp, records, raw.next_offset, records.nbytes)


def _values(raw: RawBatch) -> list[pa.Array]:
    scan = _scan(COLUMNS)
    assert isinstance(scan.spec, Scan)
    return list(Decoder(scan.spec, scan.schema).decode(raw, _run(vector=True)).arrow().columns)


def _column(name: str) -> Column:
    return Column(TYPES[COLUMNS.index(name)], name)


def _scan(names: Sequence[str], fmt: Format = JSON) -> Operator:
    spec = Scan("BID", "bid", "stream", Format("KAFKA"), fmt, TimestampSpec("dateTime"), False, BID)
    return Operator("scan", spec, (), Schema(tuple(f for f in BID if f.name in names)), "append")


def _pipeline(names: Sequence[str], predicate: Expr | None, columns: Sequence[NamedExpr]) -> FusedPipeline:
    scan = _scan(names)
    stages = []
    if predicate is not None:
        stages.append(Operator("where", Filter(predicate), ("scan",), scan.schema, "append"))
    out = Schema(tuple(Field(c.name, c.expr.type) for c in columns))
    stages.append(Operator("select", Project(tuple(columns)), ("scan",), out, "append"))
    spec = Sink("Q", "q", "stream", Format("KAFKA"), Format("JSON"))
    return FusedPipeline(scan, stages, Operator("sink", spec, ("select",), out, "append"))


def shapes() -> dict[str, Callable[[], Work]]:
    """Name -> what makes the work of one thread."""
    passed = [NamedExpr(n, _column(n)) for n in COLUMNS]
    euros = Call(DOUBLE, "mul", (Call(DOUBLE, "cast", (_column("PRICE"),)), Literal(DOUBLE, 0.908)))
    q1 = [NamedExpr("PRICE", euros) if c.name == "PRICE" else c for c in passed]
    rest = Call(BIGINT, "mod", (_column("AUCTION"), Literal(BIGINT, 123)))
    few = Call(BOOLEAN, "eq", (rest, Literal(BIGINT, 0)))
    q2 = [NamedExpr(n, _column(n)) for n in ("AUCTION", "PRICE")]
    return {
        "q0": lambda: _pipeline(COLUMNS, None, passed).process,
        "q1": lambda: _pipeline(COLUMNS, None, q1).process,
        "q2": lambda: _pipeline(("AUCTION", "PRICE"), few, q2).process,
        "q0 decode": _decode(COLUMNS),
        "qc decode": _decode(("BIDDER", "PRICE")),
        "avro q0": _decode(COLUMNS, AVRO),
        "avro qc": _decode(("BIDDER", "PRICE"), AVRO),
        "delimited q0": _decode(COLUMNS, CSV),
        "delimited qc": _decode(("BIDDER", "PRICE"), CSV),
    }


def _decode(names: Sequence[str], fmt: Format = JSON) -> Callable[[], Work]:
    def make() -> Work:
        scan = _scan(names, fmt)
        assert isinstance(scan.spec, Scan)
        return Decoder(scan.spec, scan.schema).decode

    return make


def measure(make: Callable[[], Work], raw: RawBatch, threads: int, vector: bool) -> tuple[float, float, float]:
    """Best (CPU, wall) nanoseconds per record of `threads` threads that do the work once each; page faults per time of it."""
    barrier = threading.Barrier(threads + 1)
    runs = REPEATS if vector else 2
    cpu: list[int] = []

    def body() -> None:
        work = make()
        work(raw, _run(vector))
        for _ in range(runs):
            barrier.wait()
            start = time.thread_time_ns()
            work(raw, _run(vector))
            cpu.append(time.thread_time_ns() - start)
            barrier.wait()

    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    workers = [threading.Thread(target=body) for _ in range(threads)]
    for w in workers:
        w.start()
    wall: list[int] = []
    for _ in range(runs):
        time.sleep(0.001)  # let the workers reach the barrier
        start = time.perf_counter_ns()
        barrier.wait()
        barrier.wait()
        wall.append(time.perf_counter_ns() - start)
    for w in workers:
        w.join()
    rows, times = raw.records.num_rows, threads * (runs + 1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return min(cpu) / rows, min(wall) / (threads * rows), faults / times


def _run(vector: bool) -> MicroBatchContext:
    return MicroBatchContext(NO_STATE, vector=vector)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", default="1000,10000,50000")
    parser.add_argument("--return-memory", action="store_true", help="as the C library does by itself")
    options = parser.parse_args()
    if not options.return_memory:
        keep_memory()
    print("ns per record, page faults per batch")
    print(f"{'shape':12}{'rows':>8}{'threads':>9}{'row cpu':>9}{'wall':>7}{'vector cpu':>12}{'wall':>7}{'faults':>8}")
    for rows in map(int, options.rows.split(",")):
        bids_in_json = raw_bids(rows)
        others = {"avro": written_as(AVRO, bids_in_json), "delimited": written_as(CSV, bids_in_json)}
        for name, make in shapes().items():
            raw = others.get(name.split()[0], bids_in_json)
            for threads in sorted({1, options.threads}):
                row = measure(make, raw, threads, vector=False)
                vector = measure(make, raw, threads, vector=True)
                figures = f"{row[0]:>9.0f}{row[1]:>7.0f}{vector[0]:>12.0f}{vector[1]:>7.0f}{vector[2]:>8.0f}"
                print(f"{name:12}{rows:>8}{threads:>9}{figures}")


if __name__ == "__main__":
    main()

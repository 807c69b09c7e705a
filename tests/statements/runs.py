"""Accepted queries run over random records, one record at a time by row kernels and in batches by vector kernels: to the same end."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.registry import all_functions
from flowql.compiler.plan.logical import Aggregate, Node, Scan, Sink, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.compiler.plan.types import BIGINT, Kind, SqlType
from flowql.runtime.batch import DELETE, INSERT, from_rows
from flowql.runtime.operators.encode import Encoder
from tests.conformance.case_engine import CaseEngine, QueryFailed, Record, Shape, output_record, topics_of
from tests.conformance.final import different_stream, different_table
from tests.conformance.runner import source_over

BY_RECORD = Shape(vector=False)
BY_BATCH = Shape(rows=1000, vector=True, coalesce=True)
BLOCKS, ROWS = 3, 12  # of each topic, one after the other
WINDOWS_MAX = 500  # a row in more of them takes seconds
HOUR_MS = 3_600_000
UNEVEN = tuple(f"{n}(" for n, f in all_functions().items() if not f.deterministic)  # every call gives something else
VALUES: dict[Kind, Callable[[random.Random], Any]] = {
    Kind.BOOLEAN: lambda r: r.random() < 0.5,
    Kind.INT: lambda r: r.choice([0, 1, 2, 3, 7, -1, 2**31 - 1, -(2**31)]),
    Kind.BIGINT: lambda r: r.choice([0, 1, 2, 3, -1, 2**53 + 1, 2**63 - 1, -(2**63)]),
    Kind.DOUBLE: lambda r: r.choice([0.0, -0.0, 1.5, -2.5, 0.1, 1e10, 123456.789]),
    Kind.STRING: lambda r: r.choice(
        ["", " ", "a", "A", "é", "😀", "12", "1.5", "%", "it's", "2024-02-29", '{"a": 1}', "UTC"]
    ),
    Kind.BYTES: lambda r: r.randbytes(r.randint(0, 9)),
    Kind.DATE: lambda r: r.choice([0, -1, 19782, 2932896]),
    Kind.TIME: lambda r: r.choice([0, 1, 86_399_999]),
    Kind.TIMESTAMP: lambda r: r.choice([0, 1, 999, 1_709_208_000_000 + r.randrange(5 * HOUR_MS)]),
}


def difference(text: str, plan: Plan, seed: int) -> str:
    """How the two ends of the plan's query differ, or nothing."""
    if not plan.queries or any(name in text.upper() for name in UNEVEN):
        return ""
    query = plan.queries[-1]
    if any(_windows_per_row(n) > WINDOWS_MAX for n in walk_nodes(query.logical)):
        return ""
    feed = _feed(query, plan, random.Random(seed))
    sinks = topics_of(query, Sink)
    if set(sinks) & set(topics_of(query, Scan)):
        return ""
    one, other = _end(query, plan, feed, BY_RECORD), _end(query, plan, feed, BY_BATCH)
    if isinstance(one, str) or isinstance(other, str):
        return "" if isinstance(one, str) and isinstance(other, str) else f"{_shown(one)} | {_shown(other)}"
    (sink,) = sinks
    source = source_over(plan, sink)
    assert source is not None
    expected = [_as_expected(output_record(r, source)) for r in one.get(sink, [])]
    actual = [output_record(r, source) for r in other.get(sink, [])]
    if source.kind == "table":
        return different_table(expected, actual)
    return different_stream(expected, actual, any_zero_time=False)


def _windows_per_row(node: Node) -> float:
    window = node.spec.window if isinstance(node.spec, Aggregate) else None
    return 1 if window is None or not window.advance_ms else window.size_ms / window.advance_ms


def _end(query: QueryPlan, plan: Plan, feed: list[tuple[str, Record]], shape: Shape) -> dict[str, list[Record]] | str:
    """The topics it writes, or how it failed."""
    world = CaseEngine(shape)
    try:
        world.process(query, plan, feed, topics_of(query, Sink))
    except QueryFailed as failed:
        return str(failed)
    return world.topics


def _shown(end: dict[str, list[Record]] | str) -> str:
    return f"failed: {end}" if isinstance(end, str) else "went through"


def _as_expected(record: dict[str, Any]) -> dict[str, Any]:
    window = record["window"]
    shown = None if window is None else dict(zip(("type", "start", "end"), window, strict=True))
    headers = [{"KEY": k, "VALUE": v} for k, v in record["headers"]]
    return {**record, "window": shown, "headers": headers}


def _feed(query: QueryPlan, plan: Plan, rng: random.Random) -> list[tuple[str, Record]]:
    """Records in order of time: what is late or meets what depends else on how many arrive together."""
    found: list[tuple[str, Record]] = []
    now_ms = 0
    for _ in range(BLOCKS):
        for topic in topics_of(query, Scan):
            source = source_over(plan, topic)
            assert source is not None
            for _ in range(rng.randint(1, ROWS)):
                now_ms += rng.choice([1, 400, 60_000, 600_000])
                found.append((topic, _record(source, rng, now_ms)))
    return found


def _record(source: SourceDef, rng: random.Random, now_ms: int) -> Record:
    """A record as FlowQL itself would write it."""
    start = now_ms // HOUR_MS * HOUR_MS
    known = {"WINDOWSTART": start, "WINDOWEND": start + HOUR_MS}
    if source.timestamp is not None:
        known[source.timestamp.column] = now_ms
    schema = _with_window(source.schema)
    row = tuple(known[f.name] if f.name in known else _field(f, rng) for f in schema)
    gone = source.kind == "table" and rng.random() < 0.2
    sink = Sink(source.name, source.topic, source.kind, source.key_format, source.value_format)
    batch = from_rows(schema, [row], [now_ms], [DELETE if gone else INSERT], [0])
    (record,) = Encoder(sink, schema).encode(batch).to_pylist()
    return dict(record)


def _with_window(schema: Schema) -> Schema:
    """With the bounds of windowed keys, which are columns to who writes them."""
    if schema.window is None or any(f.role == "window" for f in schema):
        return schema
    bounds = (Field("WINDOWSTART", BIGINT, "window"), Field("WINDOWEND", BIGINT, "window"))
    return Schema((*schema.key, *bounds, *schema.value), schema.window)


def _field(f: Field, rng: random.Random) -> Any:
    """Keys are few, so that rows meet."""
    if f.role == "key" and f.type.kind is Kind.INT:
        return rng.randrange(3)
    return value(f.type, rng)


def value(t: SqlType, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return None
    if t.kind is Kind.ARRAY:
        return [value(t.element, rng) for _ in range(rng.randint(0, 3))]
    if t.kind is Kind.MAP:
        return {k: value(t.element, rng) for k in rng.sample(["", "a", "b", "é"], rng.randint(0, 3))}
    if t.kind is Kind.STRUCT:
        return {n: value(f, rng) for n, f in t.fields}
    if t.kind is Kind.DECIMAL:
        top = 10**t.precision - 1
        return Decimal(rng.choice([0, 1, -1, 150, top, -top])).scaleb(-t.scale)
    return VALUES[t.kind](rng)

"""Row kernel = vector kernel, for chains over every change kind, for decoding, and for pipelines from record to record."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.expr import ROWTIME, Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Filter, Format, NamedExpr, Project, Scan, Sink, TimestampSpec
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING
from flowql.compiler.plan.watermarks import AppendOnly, Watermark
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, from_rows
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators import projections
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.decode import RETRY_BATCHES, Decoder
from flowql.runtime.operators.fused import FusedPipeline
from flowql.runtime.operators.projections import ProjectionChain

K, A, S, X = Column(BIGINT, "K"), Column(BIGINT, "A"), Column(STRING, "S"), Column(DOUBLE, "X")
SOURCE = Schema((Field("K", BIGINT, "key"), Field("A", BIGINT), Field("S", STRING), Field("X", DOUBLE)))


def big(n: int) -> Literal:
    return Literal(BIGINT, n)


def call(t, name, *args) -> Call:
    return Call(t, name, args)


PREDICATES: list[Expr] = [
    call(BOOLEAN, "gt", A, big(0)),
    call(BOOLEAN, "eq", call(BIGINT, "mod", big(100), A), big(0)),  # fails for 0
    call(BOOLEAN, "is_null", S),
    call(BOOLEAN, "or", call(BOOLEAN, "lt", X, Literal(DOUBLE, 1.5)), call(BOOLEAN, "eq", S, Literal(STRING, "x"))),
    call(BOOLEAN, "ge", Column(BIGINT, ROWTIME), big(3)),
]
VALUES: list[Expr] = [
    A,
    call(BIGINT, "add", A, big(1)),
    call(BIGINT, "div", big(10), A),  # fails for 0
    call(BIGINT, "mul", A, A),
    call(BIGINT, "add", Column(BIGINT, ROWTIME), K),
]


@st.composite
def chains(draw: st.DrawFn, kind: str) -> list[Operator]:
    """Up to three stages that keep the schema's names and types, so that any of them can follow any other."""
    operators: list[Operator] = []
    for i in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            spec = Filter(draw(st.sampled_from(PREDICATES)))
        else:
            swapped = draw(st.sampled_from([S, Literal(STRING, "c"), call(STRING, "cast", A)]))
            columns = {
                "K": K,
                "A": draw(st.sampled_from(VALUES)),
                "S": swapped,
                "X": draw(st.sampled_from([X, call(DOUBLE, "mul", X, X)])),
            }
            spec = Project(tuple(NamedExpr(n, e) for n, e in columns.items()))
        operators.append(Operator(f"s{i}", spec, (), SOURCE, kind))
    return operators


numbers = st.sampled_from([None, 0, 1, -1, 2, 7, 50, 2**62, -(2**63)])
rows = st.tuples(
    st.integers(0, 3), numbers, st.sampled_from([None, "x", "", "é"]), st.sampled_from([None, 0.0, 1.5, -2.0, 1e300])
)


@st.composite
def batches(draw: st.DrawFn, kind: str) -> Batch:
    values, ops = [], []
    for _ in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from([INSERT, INSERT, DELETE] if kind == "append" else [INSERT, DELETE, UPDATE_AFTER]))
        row = draw(rows)
        if kind == "retract" and op == UPDATE_AFTER:
            values.append((row[0], *draw(rows)[1:]))
            ops.append(UPDATE_BEFORE)
        values.append((row[0], None, None, None) if op == DELETE and kind != "retract" else row)
        ops.append(op)
    n = len(values)
    return from_rows(SOURCE, values, draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), ops, range(n))


def run_of(vector: bool) -> MicroBatchContext:
    return MicroBatchContext(state=None, vector=vector)  # type: ignore[arg-type]


def shown(batch: Batch | None) -> list:
    if batch is None:
        return []
    return list(
        zip(map(repr, batch.rows()), batch.op.tolist(), batch.rowtime.tolist(), batch.seq.tolist(), strict=True)
    )


def letters(run: MicroBatchContext) -> list:
    return sorted((d.seq, d.code, d.message) for d in run.dead_letters)


@pytest.mark.parametrize("kind", ["append", "upsert", "retract"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_chains_give_the_same_by_row_and_by_column(kind, data):
    operators, batch = data.draw(chains(kind)), data.draw(batches(kind))
    chain = ProjectionChain(operators, SOURCE, kind)
    assert chain.vector is not None
    by_row, by_column = run_of(False), run_of(True)
    expected = chain.process([batch], by_row)
    assert shown(chain.process([batch], by_column)) == shown(expected)
    assert letters(by_column) == letters(by_row)
    one_by_one: MicroBatchContext = run_of(True)
    staged: Batch | None = batch
    source = SOURCE
    for stage in operators:
        staged = staged and ProjectionChain([stage], source, kind).process([staged], one_by_one)
        source = stage.schema
    if kind == "append":  # a table's intermediate deletes may differ in nothing but their values, which no one reads
        assert shown(staged) == shown(expected)


FIELDS = Schema((Field("K", BIGINT, "key"), Field("A", BIGINT), Field("S", STRING), Field("X", DOUBLE)))
JSON, KAFKA = Format("JSON"), Format("KAFKA")
texts = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "a": st.integers(-3, 3) | st.none() | st.just("5") | st.just(1.5),
            "S": st.sampled_from(["x", 'q"', "é", None, 3]),
            "X": st.floats(allow_nan=False, allow_infinity=False) | st.none(),
        },
    ).map(lambda d: json.dumps(d, ensure_ascii=False).encode()),
    st.sampled_from(
        [
            None,
            b"null",
            b"{",
            b"[]",
            b"",
            b'{"a":true}',
            b'{"a":1,"A":2}',
            b'{"S":{"x":1.10}}',
            b'{"a":1,"S":"t","X":"many"}',
            b"\xff",
        ]
    ),
)
keys = st.sampled_from([None, *(n.to_bytes(8, "big") for n in range(4)), b"", b"123"])


@st.composite
def raws(draw: st.DrawFn) -> RawBatch:
    usual = draw(st.integers(0, 20))
    records = [(n.to_bytes(8, "big"), b'{"a":%d,"S":"t%d","X":%d.5}' % (n, n, n)) for n in range(usual)]
    records += [(draw(keys), draw(texts)) for _ in range(draw(st.integers(0, 8)))]
    records = draw(st.permutations(records)) or [(None, None)]
    n = len(records)
    heads = draw(st.none() | st.just([[{"key": "h", "value": b"1"}]] * n))
    columns = [
        pa.array(range(10, 10 + n)),
        pa.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))),
        pa.array([k for k, _ in records], pa.binary()),
        pa.array([v for _, v in records], pa.binary()),
        pa.array(heads or [None] * n, RECORD_SCHEMA.field("headers").type),
    ]
    return RawBatch(TopicPartition("t", 2), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), 10 + n, 100 * n)


def scan(kind: str = "stream", timestamp: TimestampSpec | None = None, schema: Schema = FIELDS) -> Operator:
    return Operator("scan", Scan("T", "t", kind, KAFKA, JSON, timestamp, False, FIELDS), (), schema, "append")


@settings(max_examples=80, deadline=None)
@given(
    raws(),
    st.sampled_from(["stream", "table"]),
    st.sampled_from([None, TimestampSpec("A"), TimestampSpec("K"), TimestampSpec("S", "yyyy")]),
)
def test_decoding_is_the_same_by_row_and_by_column(raw, kind, timestamp):
    pseudo = (Field("ROWPARTITION", BIGINT, "pseudo"), Field("ROWOFFSET", BIGINT, "pseudo"))
    operator = scan(kind, timestamp, Schema((*FIELDS.fields, *pseudo)))
    decoder = Decoder(operator.spec, operator.schema)
    by_row, by_column = run_of(False), run_of(True)
    expected, found = decoder.decode(raw, by_row, 5), decoder.decode(raw, by_column, 5)
    assert shown(found) == shown(expected)
    assert list(found.headers or [None] * len(found)) == list(expected.headers or [None] * len(expected))
    assert letters(by_column) == letters(by_row)
    assert len(found) + len(by_row.dead_letters) == raw.records.num_rows


@settings(max_examples=120, deadline=None)
@given(raws(), st.sets(st.sampled_from(["K", "A", "S", "X"])), st.sampled_from([None, TimestampSpec("A")]))
def test_what_is_not_read_makes_no_record_bad_and_changes_no_value(raw, names, timestamp):
    """By row and by column; and a record that is good with all columns is good with some."""
    schema = Schema(tuple(f for f in FIELDS if f.name in names))
    operator, whole = scan(timestamp=timestamp, schema=schema), scan(timestamp=timestamp)
    decoder = Decoder(operator.spec, schema)
    assert decoder.has_vector
    by_row, by_column, of_all = run_of(False), run_of(True), run_of(False)
    expected, found = decoder.decode(raw, by_row, 5), decoder.decode(raw, by_column, 5)
    assert shown(found) == shown(expected)
    assert letters(by_column) == letters(by_row)
    complete = Decoder(whole.spec, whole.schema).decode(raw, of_all, 5)
    good = {seq: row for row, *_, seq in shown(complete.select(schema))}
    assert good.items() <= {seq: row for row, *_, seq in shown(expected)}.items()
    bad = {d.seq for d in by_row.dead_letters}
    assert bad <= {d.seq for d in of_all.dead_letters}


sources = st.sampled_from([None, Watermark(ROWTIME, 2), Watermark("A", 1)]).map(
    lambda w: [] if w is None else [Operator("source", AppendOnly(w), ("scan",), FIELDS, "append")]
)


@settings(max_examples=80, deadline=None)
@given(raws(), chains("append"), st.sampled_from([None, TimestampSpec("A")]), sources)
def test_a_fused_pipeline_is_the_composed_one(raw, operators, timestamp, source):
    sink = Operator("sink", Sink("O", "o", "stream", KAFKA, JSON), (), SOURCE, "append")
    pipeline = FusedPipeline(scan(timestamp=timestamp), [*source, *operators], sink)
    assert pipeline.has_vector
    by_row, by_column = run_of(False), run_of(True)
    expected, expected_at = pipeline.process_with_origin(raw, by_row)
    found, found_at = pipeline.process_with_origin(raw, by_column)
    assert found.to_pylist() == expected.to_pylist()
    assert found_at.tolist() == expected_at.tolist()
    assert letters(by_column) == letters(by_row)
    for of in ("late", "behind", "stream_times", "watermarks"):
        assert getattr(by_column, of) == getattr(by_row, of)


def test_large_batches_are_cut_and_put_together():
    n = 17_000
    values = [b'{"a":%d,"S":"t","X":1.5}' % i if i % 1000 else b"{" for i in range(n)]
    columns = [
        pa.array(np.arange(n)),
        pa.array(np.arange(n)),
        pa.nulls(n, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(n, RECORD_SCHEMA.field("headers").type),
    ]
    raw = RawBatch(TopicPartition("t", 0), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), n, n)
    sink = Operator("sink", Sink("O", "o", "stream", KAFKA, JSON), (), SOURCE, "append")
    run = run_of(True)
    records, at = FusedPipeline(scan(), [], sink).process_with_origin(raw, run)
    assert records.num_rows == n - 17
    assert at.tolist() == [i for i in range(n) if i % 1000]
    assert [d.seq for d in run.dead_letters] == list(range(0, n, 1000))


def test_what_duckdb_refuses_goes_by_rows(monkeypatch):
    """A statement that DuckDB cannot run costs speed, never a row."""

    def refuse(*_: object) -> None:
        raise projections.VectorFailed("no")

    raw = RawBatch(
        TopicPartition("t", 0),
        pa.RecordBatch.from_pylist(
            [{"offset": i, "timestamp": i, "key": None, "value": b'{"A":%d}' % i, "headers": None} for i in range(4)],
            schema=RECORD_SCHEMA,
        ),
        4,
        4,
    )
    chain = [Operator("f", Filter(PREDICATES[0]), (), SOURCE, "append")]
    sink = Operator("sink", Sink("O", "o", "stream", KAFKA, JSON), (), SOURCE, "append")
    pipeline = FusedPipeline(scan(), chain, sink)
    expected = pipeline.process(raw, run_of(True))
    assert expected.num_rows == 3
    monkeypatch.setattr(projections, "compute", refuse)
    assert pipeline.process(raw, run_of(True)).equals(expected)


def test_a_decoder_of_odd_records_stops_trying_for_a_while():
    records = [
        {"offset": i, "timestamp": 0, "key": None, "value": b'{"A":{"x":1}}', "headers": None} for i in range(400)
    ]
    raw = RawBatch(TopicPartition("t", 0), pa.RecordBatch.from_pylist(records, schema=RECORD_SCHEMA), 400, 400)
    operator = scan()
    decoder = Decoder(operator.spec, operator.schema)
    assert decoder.takes_columns(400, None)
    run = MicroBatchContext(state=None)
    assert len(decoder.decode(raw, run)) == 0
    assert len(run.dead_letters) == 400
    assert [decoder.takes_columns(400, None) for _ in range(RETRY_BATCHES + 1)] == [False] * RETRY_BATCHES + [True]
    assert decoder.takes_columns(1, True)

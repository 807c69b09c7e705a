"""What projections, filters, decoding and encoding mean; both paths of each."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowql.compiler.plan.expr import Call, Column, Literal
from flowql.compiler.plan.logical import Filter, Format, NamedExpr, Project, Scan, Sink, TimestampSpec
from flowql.compiler.plan.schema import Field, KeyWindow, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, BOOLEAN, BYTES, STRING, array, struct
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, from_rows
from flowql.runtime.errors import FatalRecord
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.decode import Decoder, union_scan
from flowql.runtime.operators.encode import Encoder, KeyEncoder
from flowql.runtime.operators.projections import ProjectionChain, plan_vector

KV = Schema((Field("K", BIGINT, "key"), Field("V", BIGINT)))
K, V = Column(BIGINT, "K"), Column(BIGINT, "V")
JSON, KAFKA = Format("JSON"), Format("KAFKA")
both_paths = pytest.mark.parametrize("vector", [False, True])


def run_of(vector):
    return MicroBatchContext(state=None, vector=vector)


def project(expr, change="append"):
    spec = Project((NamedExpr("K", K), NamedExpr("V", expr)))
    return ProjectionChain([Operator("p", spec, ("in",), KV, change)], KV, change)


def keep_positive(change):
    predicate = Call(BOOLEAN, "gt", (V, Literal(BIGINT, 0)))
    return ProjectionChain([Operator("f", Filter(predicate), ("in",), KV, change)], KV, change)


def changes(operator, items, vector, run=None):
    batch = from_rows(KV, [r for r, _ in items], [0] * len(items), [op for _, op in items], range(len(items)))
    out = operator.process([batch], run or run_of(vector))
    return [] if out is None else list(zip(out.rows(), out.op.tolist(), strict=True))


@both_paths
def test_a_failing_expression_gives_null_and_a_dead_letter(vector):
    run = run_of(vector)
    operator = project(Call(BIGINT, "div", (Literal(BIGINT, 10), V)))
    assert changes(operator, [((1, 5), INSERT), ((2, 0), INSERT), ((3, 2), INSERT)], vector, run) == [
        ((1, 2), INSERT),
        ((2, None), INSERT),
        ((3, 5), INSERT),
    ]
    (letter,) = run.dead_letters
    assert (letter.seq, letter.code) == (1, "FQ4030")
    assert letter.message.startswith("V: ")


@both_paths
def test_a_null_value_of_a_stream_passes_a_projection_and_no_filter(vector):
    items = [((1, None), DELETE), ((2, 5), INSERT)]
    constant = project(Literal(BIGINT, 9))
    assert changes(constant, items, vector) == [((1, None), DELETE), ((2, 9), INSERT)]
    assert changes(keep_positive("append"), items, vector) == [((2, 5), INSERT)]


@both_paths
def test_a_filtered_row_of_an_upsert_table_becomes_a_delete(vector):
    items = [((1, 5), INSERT), ((1, -5), INSERT), ((2, None), DELETE)]
    assert changes(keep_positive("upsert"), items, vector) == [
        ((1, 5), INSERT),
        ((1, None), DELETE),
        ((2, None), DELETE),
    ]


@both_paths
def test_pairs_are_judged_image_by_image(vector):
    def pair(before, after):
        return [((1, before), UPDATE_BEFORE), ((1, after), UPDATE_AFTER)]

    operator = keep_positive("retract")
    assert changes(operator, pair(1, 2), vector) == pair(1, 2)
    assert changes(operator, pair(1, -2), vector) == [((1, 1), DELETE)]
    assert changes(operator, pair(-1, 2), vector) == [((1, 2), INSERT)]
    assert changes(operator, pair(-1, -2), vector) == []
    assert changes(operator, [((1, 3), DELETE)], vector) == [((1, 3), DELETE)]
    assert changes(operator, [((1, -3), DELETE)], vector) == [], "a key that never passed has nothing to remove"
    assert changes(operator, [((1, 3), INSERT), *pair(3, -1), ((1, -1), DELETE)], vector) == [
        ((1, 3), INSERT),
        ((1, 3), DELETE),
    ]


def test_columns_that_are_passed_on_are_not_computed():
    rename = Operator(
        "p",
        Project((NamedExpr("A", V), NamedExpr("B", K))),
        (),
        Schema((Field("A", BIGINT), Field("B", BIGINT))),
        "append",
    )
    assert plan_vector([rename], KV).sql is None
    test = Operator(
        "f", Filter(Call(BOOLEAN, "gt", (Column(BIGINT, "A"), Literal(BIGINT, 0)))), (), rename.schema, "append"
    )
    plan = plan_vector([rename, test], KV)
    assert plan.passed == (1, 0)
    assert plan.needs == ("V",)


# --- decoding ---------------------------------------------------------------------------------------------------


def raw(*records, headers=None):
    """records: (key, value, timestamp)"""
    keys, values, times = zip(*records, strict=True)
    n = len(records)
    columns = [
        pa.array(range(n)),
        pa.array(times),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers or [None] * n, RECORD_SCHEMA.field("headers").type),
    ]
    return RawBatch(TopicPartition("t", 3), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), n, 100)


def key(n):
    return n.to_bytes(8, "big")


def decoder(schema=KV, kind="stream", timestamp=None, throw=False, declared=None):
    spec = Scan("T", "t", kind, KAFKA, JSON, timestamp, throw, declared or schema)
    return Decoder(spec, schema)


@both_paths
def test_bad_records_are_dropped_with_a_dead_letter(vector):
    run = run_of(vector)
    batch = decoder().decode(
        raw((key(1), b'{"v":1}', 7), (key(2), b"{", 8), (b"x", b'{"v":1}', 9), (None, None, 10)), run, 40
    )
    assert batch.rows() == [(1, 1), (None, None)]
    assert batch.op.tolist() == [INSERT, DELETE]
    assert batch.rowtime.tolist() == [7, 10]
    assert batch.seq.tolist() == [40, 43]
    assert [(d.seq, d.code) for d in run.dead_letters] == [(41, "FQ4020"), (42, "FQ4020")]


@both_paths
def test_a_table_skips_records_without_a_key(vector):
    run = run_of(vector)
    batch = decoder(kind="table").decode(raw((None, b'{"v":1}', 0), (key(1), None, 0), (key(1), b'{"V":2}', 0)), run)
    assert batch.rows() == [(1, None), (1, 2)]
    assert batch.op.tolist() == [DELETE, INSERT]
    assert [(d.seq, d.code) for d in run.dead_letters] == [(0, "FQ4022")]


@both_paths
def test_the_timestamp_column_need_not_be_selected(vector):
    declared = Schema((*KV.fields, Field("TS", STRING)))
    run = run_of(vector)
    d = decoder(KV, timestamp=TimestampSpec("TS", "yyyy-MM-dd"), declared=declared)
    batch = d.decode(
        raw((key(1), b'{"V":1,"TS":"1970-01-02"}', 0), (key(1), b'{"V":1,"TS":"x"}', 0), (key(1), b'{"V":1}', 0)), run
    )
    assert batch.rows() == [(1, 1)]
    assert batch.rowtime.tolist() == [86_400_000]
    assert [(d.seq, d.code) for d in run.dead_letters] == [(1, "FQ4023"), (2, "FQ4023")]


@both_paths
def test_an_invalid_timestamp_can_be_fatal(vector):
    with pytest.raises(FatalRecord):
        decoder(timestamp=TimestampSpec("V"), throw=True).decode(raw((key(1), b'{"V":-1}', 0)), run_of(vector))


@both_paths
def test_headers_and_position(vector):
    head = array(struct(("KEY", STRING), ("VALUE", BYTES)))
    extra = (
        Field("H", head, "header"),
        Field("ONE", BYTES, "header", "b"),
        Field("ROWOFFSET", BIGINT, "pseudo"),
        Field("ROWPARTITION", BIGINT, "pseudo"),
    )
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}, {"key": "b", "value": b"3"}], None]
    batch = decoder(Schema((*KV.fields, *extra)), declared=KV).decode(
        raw((key(1), b'{"V":1}', 0), (key(2), b'{"V":2}', 0), headers=headers), run_of(vector)
    )
    first = [{"KEY": "a", "VALUE": b"1"}, {"KEY": "b", "VALUE": b"2"}, {"KEY": "b", "VALUE": b"3"}]
    assert batch.rows() == [(1, 1, first, b"3", 0, 3), (2, 2, [], None, 1, 3)]
    assert batch.headers == [[("a", b"1"), ("b", b"2"), ("b", b"3")], None]


def test_one_decoder_serves_readers_of_different_columns():
    all_columns = Schema((*KV.fields, Field("S", STRING), Field("ROWOFFSET", BIGINT, "pseudo")))
    spec = Scan("T", "t", "stream", KAFKA, JSON, None, False, Schema(all_columns.fields[:3]))
    s_only = Schema((all_columns.fields[0], all_columns.fields[2]))
    scan, union = union_scan([(spec, s_only), (spec, Schema((*KV.fields, all_columns.fields[3])))])
    assert union.names == ("K", "V", "S", "ROWOFFSET")
    batch = Decoder(scan, union).decode(raw((key(1), b'{"V":1,"S":"x"}', 0)), run_of(False))
    assert batch.select(s_only).rows() == [(1, "x")]


# --- encoding ---------------------------------------------------------------------------------------------------


@both_paths
def test_updates_and_deletes_as_records(vector):
    items = [(1, 5), (1, 5), (1, 6), (1, None)]
    batch = from_rows(
        KV,
        items,
        [1, 2, 3, 4],
        [INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE],
        range(4),
        [[("h", b"1")], None, None, None],
    )
    records, origin = Encoder(Sink("O", "o", "table", KAFKA, JSON), KV).encode_with_origin(batch, run_of(vector))
    assert origin.tolist() == [0, 2, 3]
    assert records.to_pylist() == [
        {"timestamp": 1, "key": key(1), "value": b'{"V":5}', "headers": [{"key": "h", "value": b"1"}]},
        {"timestamp": 3, "key": key(1), "value": b'{"V":6}', "headers": None},
        {"timestamp": 4, "key": key(1), "value": None, "headers": None},
    ]


@both_paths
def test_a_sink_takes_its_timestamp_from_a_column(vector):
    run = run_of(vector)
    batch = from_rows(
        KV, [(1, 5), (1, -2), (1, None), (1, None)], [1, 2, 3, 4], [INSERT, INSERT, INSERT, DELETE], range(4)
    )
    records = Encoder(Sink("O", "o", "stream", KAFKA, JSON, TimestampSpec("V")), KV).encode(batch, run)
    assert records.column("timestamp").to_pylist() == [5, 4]
    assert [(d.seq, d.code) for d in run.dead_letters] == [(1, "FQ4023"), (2, "FQ4023")]


def test_windowed_and_null_keys():
    bounds = (Field("WINDOWSTART", BIGINT, "window"), Field("WINDOWEND", BIGINT, "window"))
    windowed = KeyEncoder(Schema((*KV.fields, *bounds), KeyWindow("time", 10)), KAFKA)
    assert windowed.encode((1, 5, 20, 30)) == key(1) + key(20)
    two = Schema((Field("A", BIGINT, "key"), Field("B", BIGINT, "key")))
    assert KeyEncoder(two, JSON).encode((1, None)) == b'{"A":1,"B":null}'
    assert KeyEncoder(two, JSON).encode((None, None)) == b'{"A":null,"B":null}'
    assert KeyEncoder(two, JSON, null_key=True).encode((None, None)) is None
    assert KeyEncoder(KV, KAFKA).encode((None, 1)) is None


def test_windowed_keys_are_read_back():
    bounds = (Field("WINDOWSTART", BIGINT, "window"), Field("WINDOWEND", BIGINT, "window"))
    schema = Schema((*KV.fields[:1], *bounds, KV.fields[1]), KeyWindow("time", 10))
    batch = decoder(schema).decode(raw((key(1) + key(20), b'{"V":1}', 0)), run_of(True))
    assert batch.rows() == [(1, 20, 30, 1)]

"""ON_ERROR of columns: what a record is read as when one of them cannot be, the same by rows, by columns and in a fused query."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.codec import dumps, loads
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.runtime.app.progress import query_status
from flowql.runtime.errors import FatalRecord
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from tests.runtime.app.harness import InstanceHarness, plan_of

COLUMNS = """
CREATE STREAM S (K STRING KEY, A INT WITH (ON_ERROR = 'null'), B BIGINT WITH (ON_ERROR = 'default', DEFAULT = -1),
  C DOUBLE, D BOOLEAN WITH (ON_ERROR = 'null'), E STRING WITH (ON_ERROR = 'default', DEFAULT = 'none'))
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = '{format}');
"""


def source(format_: str) -> SourceDef:
    return plan_of(COLUMNS.format(format=format_) + "CREATE STREAM T AS SELECT K, A FROM S;").sources[0]


JSON, LINES = source("JSON"), source("DELIMITED")


def read(
    what: SourceDef, values: list[bytes | None], *, vector: bool
) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    n = len(values)
    columns = [list(range(n)), [7] * n, [b"k"] * n, values, [None] * n]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)]
    raw = RawBatch(TopicPartition("s", 0), pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA), n, 0)
    run = MicroBatchContext(NO_STATE)
    batch = Decoder(scan_of(what), what.schema).decode(raw, run, vector=vector)
    columns = [batch.seq.tolist(), *(batch.column(name) for name in batch.schema.names)]
    return list(zip(*columns, strict=True)), [(d.seq, d.message) for d in run.dead_letters]


_good = st.fixed_dictionaries(
    {},
    optional={
        "A": st.integers(-5, 5),
        "B": st.integers(-(2**40), 2**40),
        "C": st.floats(-1e6, 1e6),
        "D": st.booleans(),
        "E": st.text('ab,"', max_size=4),
    },
)
_any = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    st.text("a1.x", max_size=3),
    st.booleans(),
    st.just({"x": [1]}),
    st.just([]),
)
_wild = st.dictionaries(st.sampled_from("ABCDE"), _any, max_size=5)
_json = st.one_of(
    _good.map(orjson.dumps),
    _wild.map(lambda v: json.dumps(v).encode()),
    st.sampled_from([b"", b"[]", b"{", b"\xff", None]),
)
_cell = st.one_of(st.integers(-(2**70), 2**70).map(str), st.sampled_from(["", "x", "true", "1.5", "NaN"]))
_line = st.lists(_cell, min_size=4, max_size=6).map(lambda cells: ",".join(cells).encode())


@given(st.lists(_json, min_size=1, max_size=12))
def test_json_is_read_the_same_by_rows_and_by_columns(values: list[bytes | None]) -> None:
    assert read(JSON, values, vector=True) == read(JSON, values, vector=False)


@given(st.lists(_line, min_size=1, max_size=12))
def test_lines_are_read_the_same_by_rows_and_by_columns(values: list[bytes | None]) -> None:
    assert repr(read(LINES, values, vector=True)) == repr(read(LINES, values, vector=False))


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("what", "values"),
    [
        (JSON, [b'{"A":"x","B":"y","C":1,"D":[1],"E":"e"}', b'{"A":1,"B":2,"C":"z","D":true,"E":"e"}', b"{"]),
        (LINES, [b"x,y,1,maybe,e", b"1,2,z,true,e", b"1,2"]),
    ],
)
def test_a_column_that_cannot_be_read_is_what_its_on_error_says(
    what: SourceDef, values: list[bytes | None], vector: bool
) -> None:
    rows, dead = read(what, values, vector=vector)
    assert rows == [
        (0, "k", None, -1, 1.0, None if what is JSON else False, "e")
    ]  # any other text is false, as in ksqlDB
    assert [seq for seq, _ in dead] == [1, 2]  # C has none, and a record that is none is no column's


FAIL = """
CREATE STREAM S (K BIGINT KEY, V INT WITH (ON_ERROR = 'fail'), W INT WITH (ON_ERROR = 'dead_letter')) WITH (KAFKA_TOPIC = 's',
  PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM VS WITH (KAFKA_TOPIC = 'vs') AS SELECT K, V FROM S;
CREATE STREAM WS WITH (KAFKA_TOPIC = 'ws') AS SELECT K, W FROM S;
CREATE STREAM BOTH WITH (KAFKA_TOPIC = 'both') AS SELECT K, V, W FROM S;
"""


def test_fail_stops_the_queries_that_read_the_column_and_no_other() -> None:
    world = InstanceHarness(FAIL, tick_ms=10)
    world.send("s", [(1, {"V": 1, "W": 1}, 1), (1, {"V": "x", "W": 2}, 2), (1, {"V": 3, "W": "y"}, 3)])
    for _ in range(200):
        world.driver.round()
    assert [v["W"] for v in world.values("ws")] == [1, 2]
    assert len(world.values("flowql-dead-letters")) == 1
    for query in ("CSAS_VS", "CSAS_BOTH"):
        said = query_status(world.instance, query)["last_error"]
        assert "s/0@1" in said
        assert "ON_ERROR = 'fail' of column V" in said
    by_text = plan_of(FAIL.replace("K BIGINT KEY", "K STRING KEY")).sources[0]
    for vector in (False, True):
        with pytest.raises(FatalRecord, match="s/0@1"):
            read(by_text, [b'{"V":1}', b'{"V":"x"}'], vector=vector)


def refused(column: str, format_: str = "JSON", more: str = ", Z INT") -> list[str]:
    sql = f"CREATE STREAM S (K STRING KEY, {column}{more}) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = '{format_}');"
    return [d.code for d in compile_project([SourceText("test.sql", sql)]).diagnostics if d.code.startswith("FQ20")]


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("V INT WITH (ON_ERROR = 'nothing')", "FQ2011"),
        ("V INT WITH (ON_ERRORS = 'null')", "FQ2010"),
        ("V INT WITH (ON_ERROR = 'null', ON_ERROR = 'fail')", "FQ2010"),
        ("V INT WITH (ON_ERROR = 'default')", "FQ2011"),
        ("V INT WITH (DEFAULT = 1)", "FQ2011"),
        ("V INT WITH (ON_ERROR = 'null', DEFAULT = 1)", "FQ2011"),
        ("V INT WITH (ON_ERROR = 'default', DEFAULT = 'x')", "FQ2011"),
        ("V INT WITH (ON_ERROR = 'default', DEFAULT = 3000000000)", "FQ2011"),
        ("V DATE WITH (ON_ERROR = 'default', DEFAULT = '2026-01-01')", "FQ2011"),
        ("V BYTES HEADER('v') WITH (ON_ERROR = 'null')", "FQ2011"),
    ],
)
def test_what_makes_no_sense_is_refused(column: str, code: str) -> None:
    assert refused(column) == [code]


def test_a_bare_value_has_no_other_column() -> None:
    assert refused("V INT WITH (ON_ERROR = 'null')", "KAFKA", "") == ["FQ2011"]


def test_on_error_is_part_of_what_a_query_is_and_of_its_plan() -> None:
    sql = COLUMNS.format(format="JSON") + "CREATE STREAM T AS SELECT K, A FROM S;"
    plan = plan_of(sql)
    assert loads(dumps(plan)) == plan
    assert [(o.column, o.action, o.default) for o in plan.sources[0].on_error][1] == ("B", "default", -1)
    of_unused = plan_of(sql.replace("DEFAULT = -1", "DEFAULT = -2"))
    of_used = plan_of(sql.replace("A INT WITH (ON_ERROR = 'null')", "A INT"))
    assert of_unused.queries[0].definition == plan.queries[0].definition
    assert of_used.queries[0].definition != plan.queries[0].definition


@pytest.mark.parametrize("value", [b"9223372036854775808", b'"\\ud800"', b"[18446744073709551616]"])
def test_what_a_message_cannot_quote_with_orjson_is_a_dead_letter_all_the_same(value: bytes) -> None:
    """A number beyond 64 bits in a BOOLEAN column raised, so that the query was tried again for ever."""
    plain = plan_of(
        "CREATE STREAM S (K STRING KEY, D BOOLEAN, E INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', "
        "VALUE_FORMAT = 'JSON'); CREATE STREAM T AS SELECT K, D FROM S;"
    )
    rows, dead = read(plain.sources[0], [b'{"D":%s,"E":99999999999999999999}' % value], vector=False)
    assert (rows, len(dead)) == ([], 1)


def test_files_that_stand_for_a_topic_on_spark_are_read_alike() -> None:
    from flowql.runtime.spark.files_decode import FileDecoder

    line = orjson.dumps({"K": "k", "A": "x", "B": "y", "C": 1, "D": [1], "E": "e"})
    decoded = FileDecoder(JSON).lines(pa.array([line.decode()]), pa.array([7], pa.timestamp("ms")))
    assert [decoded.rows.column(n)[0] for n in "ABCDE"] == [None, -1, 1.0, None, "e"]

"""A record is bad by its structure and by the columns that are read of it; of a positional format that is every declared column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from compiler.plan.logical import Format, Scan, TimestampSpec
from compiler.plan.schema import Field, Schema
from compiler.plan.types import BIGINT, BOOLEAN, INT, STRING
from runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from runtime.operators.base import NO_STATE, RunContext
from runtime.operators.decode import Decoder

DECLARED = Schema((Field("ID", BIGINT), Field("V", INT), Field("S", STRING), Field("B", BOOLEAN)))
GOOD = b'{"ID":1,"V":2,"S":"x","B":true}'
BAD_V, BAD_B = b'{"ID":1,"V":"many","S":"x","B":true}', b'{"ID":1,"V":2,"S":"x","B":"no"}'
CSV = [b"1,2,x,true", b"1,many,x,true", b"1,2,x", b"1,2,x,true"]


def scan(fmt: str = "JSON", timestamp: TimestampSpec | None = None) -> Scan:
    return Scan("SRC", "src", "stream", Format("KAFKA"), Format(fmt), timestamp, declared=DECLARED)


def bad(spec: Scan, names: tuple[str, ...], values: list[bytes], *, vector: bool) -> list[int]:
    """Which of the records are dead letters for who reads these columns; each is decoded many times over."""
    run = RunContext(NO_STATE)
    schema = Schema(tuple(f for f in DECLARED if f.name in names))
    batch = Decoder(spec, schema).decode(raw(values * 100), run, vector=vector)
    found = {d.seq % len(values) for d in run.dead_letters}
    assert len(run.dead_letters) == 100 * len(found)
    assert len(batch) == 100 * (len(values) - len(found))
    assert {d.code for d in run.dead_letters} <= {"FQ4020"}
    return sorted(found)


def raw(values: list[bytes]) -> RawBatch:
    n = len(values)
    columns = [pa.array(range(n), pa.int64()), pa.array([0] * n, pa.int64()), pa.nulls(n, pa.binary())]
    columns += [pa.array(values, pa.binary()), pa.nulls(n, RECORD_SCHEMA.field("headers").type)]
    return RawBatch(TopicPartition("src", 0), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), n, 1000)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), [3, 4]),
        (("ID",), [3, 4]),
        (("S",), [3, 4]),
        (("V",), [1, 3, 4]),
        (("ID", "B"), [2, 3, 4]),
        (("ID", "V", "S", "B"), [1, 2, 3, 4]),
    ],
)
def test_only_the_structure_and_the_columns_that_are_read_make_a_record_bad(
    names: tuple[str, ...], expected: list[int], vector: bool
) -> None:
    """Else a column that somebody adds to a source would change the results of queries that do not know it."""
    assert bad(scan(), names, [GOOD, BAD_V, BAD_B, b'{"ID":1', b"[1]"], vector=vector) == expected


@pytest.mark.parametrize("vector", [False, True])
def test_the_timestamp_is_read_by_everybody(vector: bool) -> None:
    values = [GOOD, b'{"ID":"soon","V":2,"S":"x","B":true}']
    assert bad(scan(timestamp=TimestampSpec("ID")), ("S",), values, vector=vector) == [1]


@pytest.mark.parametrize("vector", [False, True])
def test_all_columns_of_a_line_are_its_structure(vector: bool) -> None:
    assert bad(scan("DELIMITED"), ("ID",), CSV, vector=vector) == [1, 2]


@pytest.mark.parametrize("vector", [False, True])
def test_a_bare_value_is_its_structure(vector: bool) -> None:
    spec = replace(scan(), value_format=Format("JSON", wrap=False), declared=Schema((Field("V", INT),)))
    run = RunContext(NO_STATE)
    batch = Decoder(spec, Schema(())).decode(raw([b"1", b'"many"']), run, vector=vector)
    assert (len(batch), [d.seq for d in run.dead_letters]) == (1, [1])

"""Whether a record is bad depends on what its source declares, never on which columns somebody reads."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compiler.plan.logical import Format, Scan
from compiler.plan.schema import Field, Schema
from compiler.plan.types import BIGINT, BOOLEAN, INT, STRING
from runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from runtime.operators.base import NO_STATE, RunContext
from runtime.operators.decode import Decoder

DECLARED = Schema((Field("ID", BIGINT), Field("V", INT), Field("S", STRING), Field("B", BOOLEAN)))
SCAN = Scan("SRC", "src", "stream", Format("KAFKA"), Format("JSON"), declared=DECLARED)
GOOD = b'{"ID":1,"V":2,"S":"x","B":true}'
BAD = [b'{"ID":1,"V":"many","S":"x","B":true}', b'{"ID":1,"V":2,"S":"x","B":"no"}']


def raw(values: list[bytes]) -> RawBatch:
    n = len(values)
    columns = [pa.array(range(n), pa.int64()), pa.array([0] * n, pa.int64()), pa.nulls(n, pa.binary())]
    columns += [pa.array(values, pa.binary()), pa.nulls(n, RECORD_SCHEMA.field("headers").type)]
    return RawBatch(TopicPartition("src", 0), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), n, 1000)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("wanted", [("ID",), ("S",), ("ID", "V", "S", "B")])
def test_a_bad_column_nobody_reads_makes_the_record_bad(wanted: tuple[str, ...], vector: bool) -> None:
    schema = Schema(tuple(f for f in DECLARED if f.name in wanted))
    run = RunContext(NO_STATE)
    batch = Decoder(SCAN, schema).decode(raw([GOOD, *BAD, GOOD] * 100), run, vector=vector)
    assert len(batch) == 200
    assert [d.seq for d in run.dead_letters][:6] == [1, 2, 5, 6, 9, 10]
    assert {d.code for d in run.dead_letters} == {"FQ4020"}

"""A record is bad by its structure and by the columns that are read of it; of a positional format that is every declared column."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from flowql.compiler.plan.logical import Format, OnError, Scan, TimestampSpec
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, STRING
from flowql.runtime.errors import FatalRecord
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder

DECLARED = Schema((Field("ID", BIGINT), Field("V", INT), Field("S", STRING), Field("B", BOOLEAN)))
GOOD = b'{"ID":1,"V":2,"S":"x","B":true}'
BAD_V, BAD_B = b'{"ID":1,"V":"many","S":"x","B":true}', b'{"ID":1,"V":2,"S":"x","B":"no"}'
CSV = [b"1,2,x,true", b"1,many,x,true", b"1,2,x", b"1,2,x,true"]


def scan(fmt: str = "JSON", timestamp: TimestampSpec | None = None) -> Scan:
    return Scan("SRC", "src", "stream", Format("KAFKA"), Format(fmt), timestamp, declared=DECLARED)


def bad(spec: Scan, names: tuple[str, ...], values: list[bytes], *, vector: bool) -> list[int]:
    """Which of the records are dead letters for who reads these columns; each is decoded many times over."""
    run = MicroBatchContext(NO_STATE)
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
    run = MicroBatchContext(NO_STATE)
    batch = Decoder(spec, Schema(())).decode(raw([b"1", b'"many"']), run, vector=vector)
    assert (len(batch), [d.seq for d in run.dead_letters]) == (1, [1])


class Converting:
    """A decoder with a conversion that knows too little of its values; other rows are as `inner` reads them."""

    def __init__(self, inner: Any, error: Exception) -> None:
        self._inner, self._error = inner, error

    def decode(self, data: bytes | None) -> Any:
        if data == BAD_V:
            raise self._error
        return self._inner.decode(data)


RAISED = [ValueError("no such day"), OverflowError("too far away"), struct.error("int too large")]


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_a_conversion_that_fails_makes_a_letter_of_its_row(error: Exception, vector: bool, monkeypatch: Any) -> None:
    """Decoding came before it was known which rows were tried, so the query failed for ever."""
    decoder, run = Decoder(scan(), DECLARED), MicroBatchContext(NO_STATE)
    decoder._value = Converting(decoder._value, error)

    def fail(*_args: object, **_options: object) -> None:
        raise error

    if vector:
        monkeypatch.setattr(decoder, "columns", fail)
    batch = decoder.decode(raw([GOOD, BAD_V, GOOD]), run, vector=vector)
    assert batch.seq.tolist() == [0, 2]
    assert [(d.seq, d.code, d.message) for d in run.dead_letters] == [(1, "FQ4020", f"{type(error).__name__}: {error}")]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_a_conversion_that_fails_is_what_on_error_is_about(error: Exception) -> None:
    def decoder(action: Any) -> Decoder:
        made = Decoder(replace(scan(), on_error=(OnError("V", action, 7),)), DECLARED)
        assert made._mending is not None
        (alone,) = made._mending.alone
        made._value = Converting(made._value, error)
        broken = replace(alone, decoder=Converting(alone.decoder, error))
        made._mending = replace(made._mending, alone=(broken,))
        return made

    run = MicroBatchContext(NO_STATE)
    batch = decoder("default").decode(raw([GOOD, BAD_V]), run)
    assert (list(batch.column("V")), run.dead_letters) == ([2, 7], [])
    with pytest.raises(FatalRecord, match=str(error)):
        decoder("fail").decode(raw([GOOD, BAD_V]), run)

"""Records of a local table as rows: many at once, by columns, mean what they mean one by one, whoever wrote them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.runtime.batch import Row
from flowql.runtime.errors import StatementFailed
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.topology import table_rows
from flowql.runtime.topology.table_image import table_ends
from flowql.runtime.topology.table_rows import RowReader
from tests.runtime.topology.test_table_writer import Tables

TABLES = {
    "one": "CREATE TABLE one (k INT PRIMARY KEY, s TEXT, d DECIMAL(9, 2), x DOUBLE, t TIMESTAMP(6));",
    "two": "CREATE TABLE two (k TEXT, s INT, x DOUBLE, PRIMARY KEY (k, s));",
    "bare": "CREATE TABLE bare (k TEXT PRIMARY KEY);",
}
_VALUES = st.sampled_from(
    [None, b"{}", b"{ }", b"null", b"7", b"", b"x", b"{}{}", b'{"s":', b'{"s":"\xff"}', b'{"S":"up"}', b'{"s":"a"} ', b'{"k":9,"s":5}',
     b'{"s":"\xc3\xa9\\n","d":1.5,"x":-0.0,"t":7}', b'{"s":null,"x":1e400}', b'{"x":2,"x":3}', b'{"__key":3,"s":"b"}', b'{"s":5}']
)  # fmt: skip
_KEYS = {
    "one": [b"1", b"2", b" 3 ", b"4.5", b'"5"', b"", b"null", b"{", b"1}", None],
    "two": [
        b'{"k":"a","s":1}',
        b'{"s":1,"k":"a"}',
        b'{"k":"}","s":2}',
        b'{"k":"b"}',
        b'{"k":"b","s":1,"x":4}',
        b"7",
        None,
    ],
    "bare": [b'"a"', b'"\\u0061"', b'"\xff"', b"a", b'"b,c"'],
}


@st.composite
def records(draw: st.DrawFn) -> tuple[str, list[tuple[bytes | None, bytes | None]]]:
    name = draw(st.sampled_from([*TABLES]))
    return name, draw(st.lists(st.tuples(st.sampled_from(_KEYS[name]), _VALUES), min_size=1, max_size=4))


def read(tables: Tables, name: str) -> dict[bytes, Row | None] | str:
    source, found = tables.source(name), dict[bytes, Row | None]()
    reader = RowReader(source)
    try:
        for tp, end in table_ends(tables.log, source).items():
            for part in reader.changes(tables.log, tp, 0, end, 1):
                rows = iter(reader.rows([k for k in part.changes.values() if k is not None]))
                found |= {key: None if kept is None else next(rows) for key, kept in part.changes.items()}
    except StatementFailed as error:
        return str(error)
    return found


@settings(max_examples=150)
@given(records())
def test_records_by_columns(made: tuple[str, list[tuple[bytes | None, bytes | None]]]) -> None:
    name, given_records = made
    tables = Tables(TABLES[name])
    keys, values = zip(*given_records, strict=True)
    n = len(keys)
    columns = [
        pa.array(np.arange(n)),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(n, HEADERS_TYPE),
    ]
    tables.log.append(TopicPartition(name, 0), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))
    by_rows = read(tables, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_rows, "DOCUMENT_ROWS_MIN", 1)
        assert repr(read(tables, name)) == repr(by_rows)

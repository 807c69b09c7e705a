"""JSON of answers: a few rows, whose values are written one by one, are written as many rows are by columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.server import row_text
from flowql.server.row_text import FEW_ROWS, json_objects

TYPES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.decimal128(38, 0): st.decimals(-(10**30), 10**30, places=0),
    pa.decimal128(38, 12): st.decimals(-(10**20), 10**20, places=12),
    pa.decimal128(9, 9): st.decimals(Decimal("-0.9"), Decimal("0.9"), places=9),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "UTC"): st.integers(-(10**15), 10**15),
    pa.binary(): st.binary(max_size=9),
}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, FEW_ROWS))
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    names = draw(st.lists(NAMES, min_size=len(types), max_size=len(types), unique=True))
    columns = [
        pa.array(draw(st.lists(st.none() | TYPES[t], min_size=rows + 1, max_size=rows + 1)), t).slice(1) for t in types
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


@given(batches(), st.sampled_from([",", "\n", ",\n"]))
def test_few_rows_are_written_as_many(batch: pa.RecordBatch, separator: str) -> None:
    few = json_objects(batch, separator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_text, "FEW_ROWS", 0)
        assert few == json_objects(batch, separator)

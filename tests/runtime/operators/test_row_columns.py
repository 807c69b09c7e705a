"""Rows that a table keeps are the same whether they are split row by row or column by column."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, array, decimal
from flowql.runtime.batch import DELETE, UPDATE_BEFORE, from_rows
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.operators.row_columns import RowColumns
from flowql.runtime.state.keys import key_codec

VALUES = {
    BIGINT: st.integers(-(1 << 63), (1 << 63) - 1),
    INT: st.integers(-9, 300),
    DOUBLE: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    STRING: st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    DATE: st.integers(-20_000, 40_000),
    TIMESTAMP: st.integers(-(10**12), 10**13),
    decimal(8, 2): st.integers(-(10**7), 10**7).map(lambda n: Decimal(n) / 100),
    decimal(38, 0): st.integers(1 - 10**38, 10**38 - 1).map(Decimal) | st.integers(-9, 9).map(Decimal),
    array(INT): st.lists(st.none() | st.integers(0, 9), max_size=3),
}
KEYS = [BIGINT, INT, BOOLEAN, STRING, DATE, TIMESTAMP, decimal(8, 2)]


@st.composite
def tables(draw):
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    values = draw(st.lists(st.sampled_from(list(VALUES)), max_size=4))
    fields = [Field(f"K{i}", t, "key") for i, t in enumerate(keys)] + [Field(f"V{i}", t) for i, t in enumerate(values)]
    fields = draw(st.permutations(fields))
    rows = draw(st.lists(st.tuples(*(st.none() | VALUES[f.type] for f in fields)), min_size=1, max_size=20))
    ops = draw(st.lists(st.sampled_from([0, 2, DELETE, UPDATE_BEFORE]), min_size=len(rows), max_size=len(rows)))
    return Schema(tuple(fields)), rows, ops


@given(tables())
@settings(deadline=None)
def test_columns_are_split_as_rows_are(drawn):
    schema, rows, ops = drawn
    batch = from_rows(schema, rows, list(range(len(rows))), ops, list(range(len(rows))))
    by_row = RowKey(schema)
    want = [
        (by_row.of(r), None if o == DELETE else by_row.value(r))
        for r, o in zip(rows, ops, strict=True)
        if o != UPDATE_BEFORE
    ]
    keys, values = RowColumns(schema).split(batch)
    assert keys.to_bytes() == key_codec(by_row.types).encode_many([k for k, _ in want])
    assert values.to_list() == [v for _, v in want]

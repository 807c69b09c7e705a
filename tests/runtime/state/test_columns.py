"""State in columns means what rows mean: keys packed as they are encoded, an index as a dict, values as they are written."""

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.types import BIGINT, BOOLEAN, BYTES, INT, STRING
from flowql.runtime.state.columns import wide
from flowql.runtime.state.columns.packed import KeyIndex, hash_of, key_columns, pack, packed_keys
from flowql.runtime.state.columns.values import RowValues, Scaled, ValueLayout, ValueTable, Wide, concatenated
from flowql.runtime.state.keys import decode_time, key_codec
from flowql.runtime.state.values import decode_value, encode_value

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
PARTS = {
    BIGINT: (pa.int64(), st.one_of(INTEGERS, st.integers(-2, 300))),
    INT: (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    STRING: (pa.string(), TEXTS),
    BYTES: (pa.binary(), st.binary(max_size=12)),
    BOOLEAN: (pa.bool_(), st.booleans()),
}
LAYOUT = ValueLayout((("integer",), ("double",), ("integer", "integer"), ("integer",)))
WIDE = ValueLayout((*LAYOUT.parts[:-1], ("object",), ("integer",)))
NUMBERS = st.one_of(INTEGERS, st.integers(-200, 200))
FLOATS = st.floats(allow_nan=False)
FITTING = st.tuples(st.none() | NUMBERS, st.none() | FLOATS, st.tuples(NUMBERS, NUMBERS), NUMBERS)
ODD = st.one_of(
    st.tuples(st.integers(1 << 63, 1 << 66), FLOATS, st.tuples(NUMBERS, NUMBERS), NUMBERS),
    st.tuples(NUMBERS, st.integers(0, 9), st.tuples(NUMBERS, NUMBERS), NUMBERS),
    st.tuples(NUMBERS, FLOATS, st.tuples(NUMBERS, NUMBERS), st.just((b"row",)), NUMBERS),
    st.tuples(NUMBERS),
)
VALUES = st.lists(st.one_of(st.none(), FITTING, FITTING, ODD), max_size=12)


@st.composite
def key_rows(draw):
    types = tuple(draw(st.lists(st.sampled_from(list(PARTS)), min_size=1, max_size=3)))
    nulls = draw(st.booleans())
    row = st.tuples(*(st.none() | PARTS[t][1] if nulls else PARTS[t][1] for t in types))
    return types, draw(st.lists(row, min_size=1, max_size=30))


@given(key_rows())
@settings(deadline=None)
def test_keys_of_columns_are_those_of_rows(drawn):
    types, rows = drawn
    codec = key_codec(types)
    encoded = codec.encode_many(rows)
    padded = [
        pa.array([None, *column], PARTS[t][0]).slice(1)
        for t, column in zip(types, zip(*rows, strict=True), strict=True)
    ]
    keys = packed_keys(codec, padded)
    assert keys.to_bytes() == pack(encoded).to_bytes() == encoded
    assert keys.hashes().tolist() == [hash_of(key) for key in encoded]
    assert [encoded[i] for i in keys.order().tolist()] == sorted(encoded)
    columns = key_columns(types, keys)
    if columns is not None:
        assert list(zip(*(c.to_pylist() for c in columns), strict=True)) == rows
        assert [c.type for c in columns] == [PARTS[t][0] for t in types]
    else:
        assert any(
            t is BOOLEAN or (v is not None and t in (STRING, BYTES) and 0 in pa.scalar(v, pa.binary()).as_py())
            for r in rows
            for t, v in zip(types, r, strict=True)
        )
    if len(types) > 1 and types[-1] is BIGINT and all(r[-1] is not None for r in rows):
        assert keys.last_times().tolist() == list(map(decode_time, encoded))


@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=400, unique=True), max_size=6))
@settings(deadline=None, max_examples=60)
def test_an_index_is_a_dict(batches):
    index, known = KeyIndex(), {}
    for batch in batches:
        packed = pack(batch)
        slots = index.find(packed, packed.hashes())
        assert slots.tolist() == [known.get(k, -1) for k in batch]
        new = (slots == -1).nonzero()[0]
        added = index.add(packed.take(new), packed.hashes()[new])
        known.update(zip([batch[i] for i in new.tolist()], added.tolist(), strict=True))
    everything = pack(list(known))
    assert index.find(everything, everything.hashes()).tolist() == list(known.values())
    assert index.keys(index.find(everything, everything.hashes())).to_bytes() == list(known)


def test_keys_that_follow_each_other_spread_over_the_table():
    """Their words differ in the highest bits alone, which a product does not carry down."""
    keys = pack(key_codec((BIGINT,)).encode_many([(i,) for i in range(4096)]))
    places = keys.hashes() & 8191
    assert len(set(places.tolist())) > 4096 * 0.7


@given(VALUES, st.booleans(), st.data())
@settings(deadline=None)
def test_values_in_columns_are_those_of_rows(values, objects, data):
    layout = WIDE if objects else LAYOUT
    if objects:
        values = [None if v is None else (*v[:-1], ("x", 1), v[-1]) for v in values]
    columns = RowValues.of(layout, values)
    assert columns.to_list() == values
    assert [None if d is None else decode_value(d) for d in columns.encode().to_pylist()] == [
        None if v is None else decode_value(encode_value(v)) for v in values
    ]
    assert concatenated([columns, columns]).to_list() == [*values, *values]
    places = data.draw(st.permutations(range(len(values))))
    table = ValueTable(layout, 4)
    table.reserve(len(values) + 5)
    for begin in (0, len(places) // 2):  # overwriting half
        at = places[begin:]
        table.write(pa.array(at, pa.int64()).to_numpy(), columns.take(pa.array(at, pa.int64()).to_numpy()))
    assert table.read(pa.array(range(len(values)), pa.int64()).to_numpy()).to_list() == values


WHOLE = st.one_of(st.integers(-(1 << 64), 1 << 64), st.integers(-(1 << 129), 1 << 129), st.integers(-200, 200))
DECIMALS = WHOLE.map(lambda n: Context(prec=60).scaleb(Decimal(n), -2))
SCALED = st.tuples(st.none() | DECIMALS, st.none() | NUMBERS)


@given(
    st.one_of(
        st.tuples(st.just(ValueLayout(((Scaled(2),), ("integer",)))), st.lists(st.none() | SCALED, max_size=12)),
        st.tuples(st.just(ValueLayout(((Wide(2),), ("integer",)))), st.lists(st.none() | SCALED, max_size=12)),
        st.tuples(
            st.just(ValueLayout(((Wide(2), "integer"), (Wide(None), "integer"), ("integer",)))),
            st.lists(st.none() | st.tuples(st.tuples(DECIMALS, NUMBERS), st.tuples(WHOLE, NUMBERS), NUMBERS)),
        ),
    )
)
@settings(deadline=None)
def test_decimals_in_columns_are_those_of_rows(drawn):
    layout, values = drawn
    columns = RowValues.of(layout, values)
    assert list(map(repr, columns.to_list())) == list(map(repr, values))
    encoded = columns.encode().to_pylist()
    assert [None if d is None else repr(decode_value(d)) for d in encoded] == [
        None if v is None else repr(v) for v in values
    ]
    table = ValueTable(layout, len(values) + 1)
    places = pa.array(range(len(values)), pa.int64()).to_numpy()
    table.write(places, columns)
    assert table.read(places).to_list() == values


@given(st.floats(), st.integers(0, 300))
def test_a_double_and_a_count_are_written_as_they_are(number, count):
    layout = ValueLayout((("double",), ("integer",), ("integer",)))
    (data,) = RowValues.of(layout, [(number, count, -1)]).encode().to_pylist()
    assert encode_value(decode_value(data)) == encode_value((number, count, -1))


LARGE = st.one_of(st.integers(0, (1 << 126) - 1), st.integers(0, 1 << 64), st.integers(0, 99))


@given(st.lists(st.tuples(LARGE, LARGE, st.integers(1, (1 << 32) - 1), st.booleans()), min_size=1, max_size=12))
def test_wide_numbers_are_integers(rows):
    a, b, n, flipped = zip(*rows, strict=True)
    x, y = wide.from_ints(a), wide.from_ints(b)
    assert wide.to_ints(wide.added(x, y)) == [i + j for i, j in zip(a, b, strict=True)]
    assert wide.less(x, y).tolist() == [i < j for i, j in zip(a, b, strict=True)]
    signed = wide.negated(x, np.array(flipped))
    assert wide.to_ints(signed) == [-i if f else i for i, f in zip(a, flipped, strict=True)]
    assert np.allclose(wide.size_of(signed), np.array(a, np.float64), rtol=1e-15, atol=0)
    assert wide.fits(signed).tolist() == [-(1 << 63) <= i < 1 << 63 for i in wide.to_ints(signed)]
    assert wide.to_ints(wide.negated(signed, np.array(flipped))) == list(a)
    quotients, rest = wide.quotients(x, np.array(n, np.uint64))
    assert list(zip(wide.to_ints(quotients), rest.tolist(), strict=True)) == list(map(divmod, a, n))
    small = [i >> 40 for i in a]
    factor = n[0]
    assert wide.to_ints(wide.times(wide.from_ints(small), factor)) == [
        (i * factor + (1 << 127)) % (1 << 128) - (1 << 127) for i in small
    ]


STRINGS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=40),
    st.sampled_from([0, 31, 32, 255, 256, 65_535, 65_536]).map(lambda n: "x" * n),
    st.just("\ud800"),
)
ROWS = st.tuples(
    st.none() | STRINGS, st.none() | NUMBERS, st.none() | st.booleans(), st.tuples(WHOLE, NUMBERS), NUMBERS
)
STRING_LAYOUT = ValueLayout((("object",), ("integer",), ("object",), (Wide(None), "integer"), ("integer",)))


@given(st.lists(st.none() | ROWS | st.tuples(NUMBERS), max_size=8), st.booleans())
@settings(deadline=None)
def test_strings_and_nulls_are_written_as_rows_are(values, is_text):
    if not is_text:  # a column with other objects
        values = [v and (b"bytes", *v[1:]) for v in values]
    encoded = RowValues.of(STRING_LAYOUT, values).encode().to_pylist()
    assert [None if d is None else decode_value(d) for d in encoded] == [
        None if v is None else decode_value(encode_value(v)) for v in values
    ]

import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan import types as T
from flowql.runtime.state.keys import decode, decode_time, encode, encode_time, key_codec
from flowql.runtime.state.layout import segment_length
from flowql.runtime.state.values import decode_metadata, decode_value, decode_values, encode_metadata, encode_value
from tests.runtime.state.support import window

I64 = st.integers(-(2**63), 2**63 - 1)
LEAVES = {
    T.BOOLEAN: st.booleans(),
    T.INT: st.integers(-(2**31), 2**31 - 1),
    T.BIGINT: I64,
    T.TIMESTAMP: I64,
    T.DATE: st.integers(-(10**6), 10**6),
    T.DOUBLE: st.floats(),
    T.STRING: st.text(alphabet=st.characters(codec=None, exclude_categories=())) | st.text("a\0\x01", max_size=4),
    T.BYTES: st.binary(max_size=5) | st.lists(st.sampled_from([0, 1, 255]), max_size=4).map(bytes),
    T.decimal(38, 4): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -4))
    ),
}


@st.composite
def sql_type(draw, depth=2):
    if depth == 0 or draw(st.integers(0, 3)):
        return draw(st.sampled_from(list(LEAVES)))
    inner = sql_type(depth - 1)
    if draw(st.booleans()):
        return T.array(draw(inner))
    return T.struct(*((f"f{i}", t) for i, t in enumerate(draw(st.lists(inner, min_size=1, max_size=2)))))


def values_of(t):
    if t.kind is T.Kind.ARRAY:
        return st.lists(st.none() | values_of(t.element), max_size=3).map(tuple)
    if t.kind is T.Kind.STRUCT:
        return st.tuples(*(st.none() | values_of(f) for _, f in t.fields))
    return LEAVES[t]


def compare(a, b):
    """The order SQL gives: NULL first, NaN last, -0.0 = 0.0, element by element."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, tuple):
        for x, y in zip(a, b, strict=False):
            if c := compare(x, y):
                return c
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, float) and (a != a or b != b):
        return (a != a) - (b != b)
    return (a > b) - (a < b)


@st.composite
def keys_of_one_type(draw):
    types = tuple(draw(st.lists(sql_type(), min_size=1, max_size=3)))
    key = st.tuples(*(st.none() | values_of(t) for t in types))
    return types, draw(st.lists(key, min_size=2, max_size=6))


@given(keys_of_one_type())
@settings(max_examples=300, deadline=None)
def test_encoded_order_is_tuple_order_and_keys_come_back(case):
    types, keys = case
    encoded = [encode(k, types) for k in keys]
    for a, ea in zip(keys, encoded, strict=True):
        assert compare(decode(ea, types), a) == 0
        for b, eb in zip(keys, encoded, strict=True):
            assert compare(a, b) == (ea > eb) - (ea < eb)
    assert key_codec(types).encode_many(keys) == encoded
    assert repr(key_codec(types).decode_many(encoded)) == repr([decode(e, types) for e in encoded])


@given(keys_of_one_type(), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_a_prefix_is_below_every_key_that_extends_it(case, n):
    types, keys = case
    prefix = keys[0][:n]
    bound = encode(prefix, types)
    for key in keys:
        expected = compare(prefix, key[: len(prefix)])
        assert (bound <= encode(key, types)) == (expected <= 0)


TEXT = st.text() | st.text("a\0\x01\udc00", max_size=3)


@given(
    st.lists(st.tuples(st.none() | I64)) | st.lists(st.tuples(I64)),
    st.lists(st.tuples(st.none() | TEXT)) | st.lists(st.tuples(TEXT)) | st.lists(st.tuples(st.text("a\x01"))),
    st.lists(st.tuples(st.none() | I64, I64)) | st.lists(st.tuples(I64, I64)),
    st.lists(st.tuples(st.none() | I64, st.none() | TEXT)) | st.lists(st.tuples(I64, TEXT)),
)
def test_fast_paths_agree_with_the_plain_one(ints, texts, pairs, entries):
    cases = (
        ((T.BIGINT,), ints),
        ((T.STRING,), texts),
        ((T.BIGINT, T.TIMESTAMP), pairs),
        ((T.BIGINT, T.STRING), entries),
    )
    for types, keys in cases:
        encoded = [encode(k, types) for k in keys]
        assert key_codec(types).encode_many(iter(keys)) == encoded
        assert key_codec(types).decode_many(encoded) == keys


def test_many_prefixes_of_keys_are_encoded_as_each_is():
    codec = key_codec((T.BIGINT, T.DOUBLE, T.STRING))
    for keys in ([(1, 0.5), (2, None)], [(1,), (2, -0.5, "a"), (), (None, 1.0)], [(), ()], []):
        assert codec.encode_many(keys) == [codec.encode(k) for k in keys]


def test_numbers_next_to_each_other_have_keys_in_their_order():
    for near in (-1e300, -1.0, 0.0, 1.0, 1e300):
        numbers = [math.nextafter(near, -math.inf), near, math.nextafter(near, math.inf)]
        keys = [encode((number,), (T.DOUBLE,)) for number in numbers]
        assert keys == sorted(set(keys))
        assert [decode(key, (T.DOUBLE,)) for key in keys] == [(number,) for number in numbers]


def test_decimal_keeps_scale_and_nan_is_one_key():
    assert str(decode(encode((Decimal("0.00"),), [T.decimal(5, 2)]), [T.decimal(5, 2)])[0]) == "0.00"
    codec = key_codec((T.DOUBLE,))
    assert {codec.canonical((float("nan"),)): 1}[codec.canonical((-float("nan"),))] == 1
    assert math.isnan(codec.decode(codec.encode((float("nan"),)))[0])
    mixed = key_codec((T.DOUBLE, T.STRING, T.array(T.DOUBLE)))
    assert mixed.canonical((-float("nan"), "a", (1.0, float("nan")))) == (math.nan, "a", (1.0, math.nan))


@given(I64)
def test_time_is_the_tail_of_a_key(ms):
    key = encode(("k", ms), (T.STRING, T.BIGINT))
    assert decode_time(key) == ms
    assert key.endswith(encode_time(ms))


SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["\ud800"])
    | st.binary()
    | st.decimals(allow_nan=False)
)
HASHABLE = st.booleans() | I64 | st.text() | st.binary() | st.tuples(I64, st.text())
ANY = st.recursive(
    SCALAR,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=3)
    ),
    max_leaves=8,
)


def shape(v):
    """Type by type, so that 1, 1.0, True, lists and tuples stay apart."""
    if isinstance(v, dict):
        return ("dict", [(shape(k), shape(x)) for k, x in v.items()])
    if isinstance(v, (list, tuple)):
        return (type(v), [shape(x) for x in v])
    return (type(v), str(v) if isinstance(v, Decimal) else v)


@given(st.lists(ANY, max_size=5).map(tuple))
@settings(max_examples=300, deadline=None)
def test_values_come_back_as_they_were(value):
    assert shape(decode_value(encode_value(value))) == shape(value)


SIMPLE = st.tuples(st.integers(-5, 5), st.text(max_size=2))


@given(
    st.lists(st.lists(ANY, max_size=3).map(tuple))
    | st.lists(SIMPLE)
    | st.lists(st.tuples(SIMPLE, SIMPLE))
    | st.lists(SIMPLE | st.tuples(SIMPLE, SIMPLE))
)
def test_values_together_are_those_one_by_one(values):
    assert shape(decode_values([encode_value(v) for v in values])) == shape(values)


@given(st.dictionaries(st.text(), ANY, max_size=3))
def test_metadata_comes_back(metadata):
    assert shape(decode_metadata(encode_metadata(metadata))) == shape(metadata)


def test_what_is_no_value_is_refused():
    with pytest.raises(TypeError, match="set"):
        encode_value((1, {1, 2}))


@pytest.mark.parametrize(
    ("kind", "retention_ms", "segment_ms"),
    [
        ("table", 180_000, None),
        ("session", 180_000, None),
        ("window", None, 86_400_000),
        ("window", 0, 60_000),
        ("window", 180_000, 60_000),
        ("window", 180_001, 120_000),
        ("join", 3_600_000, 1_200_000),
    ],
)
def test_a_segment_is_whole_minutes_of_about_a_third_of_the_retention(kind, retention_ms, segment_ms):
    assert segment_length(window(kind=kind, retention_ms=retention_ms)) == segment_ms

"""The column scanner and the column writer of JSON give exactly what the reference codecs give, or decline."""

from __future__ import annotations

import json
import math
import random
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MICROS,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    decimal,
)
from flowql.runtime.batch import to_arrow, to_python
from flowql.runtime.errors import BadRecord
from flowql.runtime.operators.encode import JsonText
from flowql.runtime.operators.json_scan import JsonScan, learn_shape
from flowql.runtime.serde.json import JsonDecoder, JsonEncoder

pytestmark = pytest.mark.turns("long")

NAMES = ["A", "BEE", "QUITE_A_LONG_NAME", "d"]
TYPES = [
    BOOLEAN,
    INT,
    BIGINT,
    DOUBLE,
    STRING,
    DATE,
    TIME,
    TIMESTAMP,
    MICROS,
    decimal(6, 2),
    decimal(3, 3),
    decimal(38, 0),
]

# Texts of values that a careless reader gets wrong.
ODD_NUMBERS = [
    "0", "-0", "-0.0", "1.5", "-1.5", "1e2", "1E+2", "10e-1", "12e2", "1.0", "007", "+5", ".5", "5.", "-", "--1", "1_000",
    "0x1F", "NaN", "Infinity", "-Infinity", "nan", "2147483647", "2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "999999999999999999", "1000000000000000000", "123456789012345678901234",
    "1e400", "-1e400", "1e-400", "0.1", "12345678", "123456789", "1234567890123456", "12345678901234567", "9999.99",
    "-9999.99", "10000", "0.001", "0.0005", "86399999", "86400000", "99999999999999999999999999999999999999",
    "100000000000000000000000000000000000000", "1.000000000000000000000000000000000000001", "4.35", "1/2", "1:2", "a", "9:",
]  # fmt: skip
ODD_TEXTS = [
    '""', '"12"', '" 12"', '"12 "', '"1.5"', '"true"', '"null"', '"x\\ny"', '"\\u0041"', '"\\\\"', '"\\""', '"é"', '"日本"',
    '"😀"', '"a,b"', '"a:b"', '"{"', '"}"', '"a\tb"', '"\x7f"', '"12345678"', '"123456789012"', '"1234567890123"', '"\\ud800"',
    '"a long text that is longer than twelve bytes"',
]  # fmt: skip
OTHERS = [
    "null",
    "true",
    "false",
    "True",
    "nul",
    "nulll",
    "{}",
    "[]",
    "[1]",
    '{"x":1}',
    "",
    " ",
    "tru e",
    "fals",
    "falsey",
]

value_text = st.one_of(
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_TEXTS),
    st.sampled_from(OTHERS),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-1000, 1000).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=20).map(lambda s: json.dumps(s, ensure_ascii=False)),
    st.text(max_size=6).map(json.dumps),
)
LONG_KEY = "a_key_that_is_longer_than_any_padding_" * 2
key_text = st.sampled_from([*NAMES, LONG_KEY, "a", "Bee", "bee", "quite_a_long_name", "D", "X", "other", "\\u0041", ""])
spacing = st.sampled_from([("", "", ""), (" ", " ", ""), ("", " ", ""), ("\n", "", " "), (" ", "", "\t")])


@st.composite
def shape_records(draw: st.DrawFn) -> list[bytes]:
    """Records of one spelling with varying values, as a topic has them, and some that differ."""
    records: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        keys = draw(st.lists(key_text, min_size=1, max_size=5))
        comma, colon, edge = draw(spacing)
        kinds = [draw(st.lists(value_text, min_size=1, max_size=4)) for _ in keys]
        for _ in range(draw(st.integers(1, 6))):
            pairs = [f'"{k}"{colon}:{colon}{draw(st.sampled_from(v))}' for k, v in zip(keys, kinds, strict=True)]
            text = "{" + edge + f"{comma},{comma}".join(pairs) + edge + "}"
            records.append(text.encode())
    for _ in range(draw(st.integers(0, 2))):
        cut = draw(st.sampled_from(records))
        at = draw(st.integers(0, len(cut)))
        records.append(
            draw(st.sampled_from([cut[:at], cut[:at] + b"\xff" + cut[at:], cut[:at] + b'"' + cut[at:], b"", cut * 2]))
        )
    return draw(st.permutations(records))


def check_scan(names: list[str], types: list[SqlType], records: list[bytes]) -> int:
    """Every row the scanner accepts is what the reference reads, in both dialects. Gives how many it accepted."""
    for views, standard in ((False, False), (True, False), (False, True)):
        columns, ok = JsonScan(names, types, standard=standard).decode(pa.array(records, pa.binary()), views=views)
        reference = JsonDecoder(names, types, range(len(names)), wrapped=True, standard=standard)
        texts = [c.cast(pa.string()) if t == STRING else c for c, t in zip(columns, types, strict=True)]
        values = [to_python(c, t) for c, t in zip(texts, types, strict=True)]
        for c in texts:
            c.validate(full=True)
        for i in np.flatnonzero(ok):
            try:
                expected = reference.decode(records[i])
            except BadRecord as e:
                pytest.fail(f"accepted {records[i]!r} that the reference refuses: {e}")
            got = tuple(v[i] for v in values)
            assert repr(got) == repr(expected), records[i]
    return int(ok.sum())


@settings(max_examples=250, deadline=None)
@given(shape_records(), st.lists(st.sampled_from(TYPES), min_size=len(NAMES), max_size=len(NAMES)))
def test_what_the_scanner_accepts_is_what_the_reference_reads(records, types):
    check_scan(NAMES, types, records)


def test_every_odd_value_as_every_type():
    for t in TYPES:
        usual = {"STRING": '"x"', "BOOLEAN": "true"}.get(t.kind.value, "0")
        for text in [*ODD_NUMBERS, *ODD_TEXTS, *OTHERS]:
            first = [f'{{"A":{usual},"z":1}}', f'{{"A":{text},"z":1}}', f'{{"A":{usual},"z":{text}}}']
            check_scan(["A"], [t], [r.encode() for r in first])
            check_scan(["A"], [t], [f'{{"z":{text},"A":{text}}}'.encode()])


def test_usual_records_are_accepted():
    """The scanner must not be right by declining everything."""
    rows = [
        {"A": i, "BEE": i * 10**9, "s": f"text {i}" if i % 3 else "", "x": i / 7, "t": i % 2 == 0, "n": None}
        for i in range(500)
    ]
    records = [json.dumps(r).encode() for r in rows]
    names, types = ["A", "BEE", "S", "X", "T", "N"], [INT, BIGINT, STRING, DOUBLE, BOOLEAN, BIGINT]
    assert check_scan(names, types, records) == 500


def test_optional_fields_make_several_shapes():
    rows = [{"A": i} | ({"S": "x"} if i % 2 else {}) | ({"S": None} if i % 5 == 0 else {}) for i in range(300)]
    assert check_scan(["A", "S"], [INT, STRING], [json.dumps(r).encode() for r in rows]) == 300


def test_a_short_record_after_one_with_a_long_key():
    """Looking for the long key in it leads past the end of the batch."""
    long, short = f'{{"A":"x","{LONG_KEY}":1}}'.encode(), b'{"A":"x","B":1}'
    assert check_scan(["A"], [STRING], [long] * 20 + [short] * 20) == 40
    assert check_scan(["A", "B"], [STRING, INT], [long, short]) == 1


def test_a_slice_of_a_larger_batch():
    values = pa.array([b"x" * 50, b'{"A":1}', b'{"A":22}', b"y"], pa.binary()).slice(1, 2)
    columns, ok = JsonScan(["A"], [INT]).decode(values)
    assert ok.all()
    assert columns[0].to_pylist() == [1, 22]


def test_shapes_are_learnt_from_flat_objects_only():
    assert learn_shape(b'{"a":1,"b":"x"}').keys == ("a", "b")
    for text in (b"[1]", b"{}", b'{"a":{"b":1}}', b'{"a":1', b'{"a":1} ', b'{"a":1,}', b'{"\\u0061":1}', b""):
        assert learn_shape(text) is None, text


VALUES = {
    BOOLEAN: st.booleans(),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(),
    STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    DATE: st.integers(-(2**31), 2**31 - 1),
    TIME: st.integers(0, 86_399_999),
    TIMESTAMP: st.integers(-(2**63), 2**63 - 1),
    MICROS: st.integers(-(2**63), 2**63 - 1),
    decimal(6, 2): st.integers(-999999, 999999).map(lambda n: Decimal(n).scaleb(-2)),
    decimal(9, 9): st.integers(0, 999999999).map(lambda n: Decimal(n).scaleb(-9)),
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_written_columns_equal_written_rows(data):
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*(st.none() | VALUES[t] for t in types)), min_size=1, max_size=12))
    check_text(types, rows)


def check_text(types, rows):
    names = [f"C{i}" for i in range(len(types))]
    columns = [to_arrow([r[i] for r in rows], t) for i, t in enumerate(types)]
    written = JsonText(names, types).encode(columns).to_pylist()
    encoder = JsonEncoder(names, types, wrapped=True)
    assert written == [encoder.encode(r) for r in rows]


def test_doubles_of_every_size_are_written_alike():
    r = random.Random(7)
    bits = [struct.unpack("<d", r.randbytes(8))[0] for _ in range(3000)]
    scaled = [r.uniform(-1, 1) * 10.0 ** r.randrange(-12, 25) for _ in range(3000)]
    whole = [float(r.randrange(-(10 ** r.randrange(1, 22)), 10 ** r.randrange(1, 22))) for _ in range(1000)]
    edges = [s * 10.0**k for k in range(-9, 24) for s in (1, -1)] + [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324]
    values = bits + scaled + whole + edges
    check_text([DOUBLE], [(v,) for v in values])
    for v in values:
        if math.isfinite(v):
            text = JsonEncoder(["x"], [DOUBLE], wrapped=False).encode((v,))
            assert float(text) == v

"""What each format reads and writes; meanings are those of ksqlDB's serializers."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field, KeyWindow
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    MICROS,
    STRING,
    TIME,
    TIMESTAMP,
    array,
    decimal,
    map_of,
)
from flowql.compiler.plan.types import (
    struct as struct_of,
)
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.codec import row_decoder, row_encoder
from flowql.runtime.serde.windowed import join_window, split_window

JSON, BARE = Format("JSON"), Format("JSON", wrap=False)


def fields(*types):
    return [Field(f"C{i}", t) for i, t in enumerate(types)]


def read(fmt, types, data, *, is_key=False):
    return row_decoder(fields(*types), fmt, fields(*types), is_key=is_key).decode(data)


def write(fmt, types, row, *, is_key=False):
    return row_encoder(fields(*types), fmt, is_key=is_key).encode(row)


@pytest.mark.parametrize(
    ("t", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (INT, "12", 12),
        (INT, '"-12"', -12),
        (INT, "1.9", 1),
        (INT, "-1.9", -1),
        (INT, "4294967297", 1),
        (INT, "1e100", 0),
        (BIGINT, "9223372036854775808", -(2**63)),
        (BIGINT, "123456789012345678901234567890", -4362896299872285998),
        (DOUBLE, "1", 1.0),
        (DOUBLE, '"1.5"', 1.5),
        (STRING, '"x"', "x"),
        (STRING, "12", "12"),
        (STRING, "1.10", "1.10"),
        (STRING, "1E3", "1E+3"),
        (STRING, "false", "false"),
        (STRING, '{"a": [1.50, "q", null]}', '{"a":[1.50,"q",null]}'),
        (BYTES, '"AQI="', b"\x01\x02"),
        (DATE, "-1", -1),
        (TIME, "86399999", 86_399_999),
        (TIMESTAMP, '"5"', 5),
        (MICROS, "-1704067200123456", -1_704_067_200_123_456),
        (decimal(4, 2), "1.1", Decimal("1.10")),
        (decimal(4, 2), '"12.345"', Decimal("12.35")),
        (decimal(4, 2), "7", Decimal("7.00")),
        (array(INT), '[1, null, "2"]', [1, None, 2]),
        (map_of(STRING, INT), '{"a": 1, "b": null}', {"a": 1, "b": None}),
        (struct_of(("A", INT), ("b", INT)), '{"a": 1, "B": 2}', {"A": 1, "b": None}),
        (array(decimal(4, 2)), "[1.5]", [Decimal("1.50")]),
    ],
)
def test_json_coercions(t, text, value):
    (found,) = read(JSON, [t], b'{"C0":%s}' % text.encode())
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, Decimal):
        assert found.as_tuple() == value.as_tuple()
    assert read(BARE, [t], text.encode()) == (value,)


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (BOOLEAN, '"true"'), (BOOLEAN, "1"), (INT, "true"), (INT, '" 1"'), (INT, '"1.0"'), (INT, "[]"), (DOUBLE, "true"),
        (DOUBLE, '"x"'), (BYTES, "1"), (BYTES, '"&"'), (TIME, "-1"), (TIME, "86400000"), (DATE, "2147483648"),
        (decimal(4, 2), "123"), (decimal(4, 2), "true"), (array(INT), "{}"), (map_of(STRING, INT), "[]"),
        (struct_of(("A", INT)), "1"), (array(INT), '["x"]'), (STRING, "1e400"), (INT, "NaN"),
    ],
)  # fmt: skip
def test_json_refuses_the_whole_record(t, text):
    with pytest.raises(BadRecord) as e:
        read(JSON, [INT, t], b'{"C0":1,"C1":%s}' % text.encode())
    assert e.value.code == "FQ4020"


STANDARD = Format("JSON", standard=True)


@pytest.mark.parametrize(
    ("t", "why"),
    [
        (TIMESTAMP, "'2026-01-02' is not a valid TIMESTAMP, which is a number of milliseconds since 1970 in records"),
        (
            MICROS,
            r"'2026-01-02' is not a valid TIMESTAMP\(6\), which is a number of microseconds since 1970 in records",
        ),
        (DATE, "'2026-01-02' is not a valid DATE, which is a number of days since 1970 in records"),
        (TIME, "'2026-01-02' is not a valid TIME, which is a number of milliseconds since midnight in records"),
        (DOUBLE, "'2026-01-02' is not a number"),
    ],
)
def test_a_text_in_place_of_a_time_is_told_what_records_hold(t, why):
    """It said that the text is not a whole number between -9223372036854775808 and 9223372036854775807."""
    for fmt, value in (
        (JSON, b'{"C0":1,"C1":"2026-01-02"}'),
        (STANDARD, b'{"C0":1,"C1":"2026-01-02"}'),
        (Format("DELIMITED"), b"1,2026-01-02"),
    ):
        with pytest.raises(BadRecord, match=why):
            read(fmt, [INT, t], value)


@pytest.mark.parametrize(
    ("t", "text", "why"),
    [
        (INT, "2147483648", "2147483648 does not fit INT"),
        (INT, "-2147483649", "does not fit INT"),
        (INT, "1e10", "does not fit INT"),
        (INT, "1.5", r"1\.5 is not a valid INT: it has a fraction"),
        (INT, "-1e300", "does not fit INT"),
        (INT, "true", "true is not a valid INT"),
        (BIGINT, "9223372036854775808", "does not fit BIGINT"),
        (BIGINT, "1e19", "does not fit BIGINT"),
        (TIMESTAMP, "9223372036854775808", "does not fit BIGINT"),
        (DATE, "1.5", "it has a fraction"),
        (array(INT), "[1,2147483648]", "does not fit INT"),
        (map_of(STRING, BIGINT), '{"a":1e30}', "does not fit BIGINT"),
        (struct_of(("X", INT)), '{"X":0.1}', "it has a fraction"),
    ],
)
def test_json_of_standard_sql_takes_no_number_that_the_type_cannot_hold(t, text, why):
    """Other JSON wraps it, or cuts its fraction, as ksqlDB does."""
    fields = [Field("A", t)]
    with pytest.raises(BadRecord, match=f"A: .*{why}"):
        row_decoder(fields, STANDARD, fields, is_key=False).decode(f'{{"A":{text}}}'.encode())


@pytest.mark.parametrize(
    ("t", "text", "value"),
    [
        (INT, "2147483647", 2147483647),
        (INT, "2.0", 2),
        (INT, "1e3", 1000),
        (INT, '"5"', 5),
        (BIGINT, "-9223372036854775808", -(2**63)),
        (BIGINT, "9.223372036854775807e18", 2**63 - 1),
        (array(INT), "[1,null]", [1, None]),
    ],
)
def test_json_of_standard_sql_reads_whole_numbers_however_they_are_written(t, text, value):
    fields = [Field("A", t)]
    assert row_decoder(fields, STANDARD, fields, is_key=False).decode(f'{{"A":{text}}}'.encode()) == (value,)


def test_json_of_standard_sql_finds_fields_in_any_case():
    """Its names are in lower case where they are not quoted; ksqlDB's dialect has them in upper case, and reads as ksqlDB does."""
    fields = [Field("userid", INT), Field("at", struct_of(("placename", STRING))), Field("Mixed", INT)]
    text = b'{"userId":1,"USERID":2,"AT":{"placeName":"x"},"MIXED":3}'
    standard = row_decoder(fields, STANDARD, fields, is_key=False)
    assert standard.decode(text) == (2, {"placename": "x"}, 3)
    assert standard.decode(b'{"userid":4,"USERID":5,"Mixed":6,"mixed":7}') == (4, None, 6)
    assert row_decoder(fields, JSON, fields, is_key=False).decode(text) == (None, None, None)


@pytest.mark.parametrize("data", [b"", b"{", b'{"C0":1}x', b"[1]", b"1", b'"x"', b"\xff"])
def test_json_refuses_what_is_no_object(data):
    with pytest.raises(BadRecord):
        read(JSON, [INT, INT], data)


def test_json_finds_fields_by_exact_name_then_by_upper_case():
    names = [Field("A", INT), Field("b", INT)]
    decoder = row_decoder(names, JSON, names, is_key=False)
    assert decoder.decode(b'{"a":1,"b":2}') == (1, 2)
    assert decoder.decode(b'{"A":1,"a":3,"B":2}') == (1, None)
    assert decoder.decode(b'{"x":1}') == (None, None)
    several = [Field("NAME", INT), Field("B", INT)]
    assert row_decoder(several, JSON, several, is_key=False).decode(b'{"name":1,"Name":2}') == (2, None)
    assert row_decoder(several, JSON, several, is_key=False).decode(b'{"Name":2,"name":1}') == (1, None)


def test_json_reads_only_wanted_fields():
    declared = fields(INT, INT, STRING)
    decoder = row_decoder([declared[2]], JSON, declared, is_key=False)
    assert decoder.decode(b'{"C0":"nonsense","C2":"x"}') == ("x",)


def test_json_nulls():
    assert read(JSON, [INT, INT], None) is None
    assert read(JSON, [INT, INT], b"null") is None
    assert read(BARE, [INT], b"null") is None
    assert write(BARE, [INT], (None,)) is None
    assert write(JSON, [INT], (None,)) == b'{"C0":null}'


def test_json_writes_every_type():
    types = [
        BOOLEAN,
        INT,
        DOUBLE,
        decimal(6, 3),
        STRING,
        BYTES,
        DATE,
        TIME,
        array(decimal(3, 1)),
        map_of(STRING, BYTES),
    ]
    row = (True, 1, 2.0, Decimal("1.500"), 'a"\n€', b"\x01", 3, 4, [Decimal("1.0"), None], {"k": b"\x02"})
    expected = '{"C0":true,"C1":1,"C2":2.0,"C3":1.500,"C4":"a\\"\\n€","C5":"AQ==","C6":3,"C7":4,"C8":[1.0,null],"C9":{"k":"Ag=="}}'
    assert write(JSON, types, row) == expected.encode()
    point = struct_of(("X", DOUBLE), ("Y", decimal(3, 1)))
    assert write(BARE, [point], ({"X": 1e17, "Y": Decimal("0.5")},)) == b'{"X":100000000000000000.0,"Y":0.5}'


def test_json_writes_half_a_surrogate_pair_as_a_question_mark():
    assert write(JSON, [STRING], ("a\ud800",)) == b'{"C0":"a?"}'


def test_json_writes_a_null_key_of_a_map_as_text():
    assert write(JSON, [map_of(STRING, INT)], ({None: 1, "a": 2},)) == b'{"C0":{"null":1,"a":2}}'


def test_json_keys():
    assert write(JSON, [INT], (1,), is_key=True) == b"1"
    assert write(JSON, [INT, STRING], (1, "x"), is_key=True) == b'{"C0":1,"C1":"x"}'
    assert read(JSON, [INT], b"1", is_key=True) == (1,)


CSV = Format("DELIMITED")


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (("x", "y"), "x,y"),
        ((None, "y"), ",y"),
        (("", "y"), '"",y'),
        (("x", None), "x,"),
        (("x", ""), 'x,""'),
        (("-1", "-1"), '"-1",-1'),
        (("#a", " b"), '"#a"," b"'),
        (("a,b", 'q"q'), '"a,b","q""q"'),
        (("a ", "b\nc"), '"a ","b\nc"'),
        (("é", "é"), '"é",é'),
    ],
)
def test_delimited_quotes_as_commons_csv(row, line):
    assert write(CSV, [STRING, STRING], row) == line.encode()
    assert read(CSV, [STRING, STRING], line.encode()) == row


@given(
    st.tuples(
        *[st.none() | st.text(st.sampled_from('a,"\n\r\x85 \u2028#|'), max_size=4)] * 3,
        st.none() | st.binary(max_size=2),
    )
)
def test_delimited_reads_what_it_writes(row):
    types = [STRING, STRING, STRING, BYTES]
    assert read(CSV, types, write(CSV, types, row)) == row


def test_empty_quotes_are_null_where_no_value_is_empty():
    assert read(CSV, [INT, STRING], b'"",""') == (None, "")


def test_delimited_types():
    types = [BOOLEAN, INT, BIGINT, DOUBLE, decimal(5, 2), BYTES, DATE, TIMESTAMP, MICROS]
    row = (True, -1, 2, 1e10, Decimal("1.50"), b"\x01", 3, 4, -5)
    line = b"true,-1,2,1.0E10,1.50,AQ==,3,4,-5"
    assert write(CSV, types, row) == line
    assert read(CSV, types, line) == row
    assert read(CSV, types, b"TRUE,,,,.5,,,,") == (True, None, None, None, Decimal("0.50"), None, None, None, None)


@pytest.mark.parametrize("line", [b"1", b"1,2,3", b"x,2", b"", b'"1,2', b" 1,2", b"1.0,2", b"\xff,1"])
def test_delimited_refuses(line):
    with pytest.raises(BadRecord):
        read(CSV, [INT, INT], line)


@pytest.mark.parametrize(("name", "character"), [("TAB", "\t"), ("SPACE", " "), ("|", "|")])
def test_delimited_delimiters(name, character):
    fmt = Format("DELIMITED", delimiter=name)
    assert read(fmt, [INT, STRING], f"1{character}x".encode()) == (1, "x")
    assert write(fmt, [INT, STRING], (1, "x")) == f"1{character}x".encode()


def test_delimited_reads_columns_by_declared_position():
    declared = fields(STRING, INT, STRING)
    decoder = row_decoder([declared[2], declared[1]], CSV, declared, is_key=False)
    assert decoder.decode(b"a,1,c") == ("c", 1)


@pytest.mark.parametrize(
    ("t", "value", "data"),
    [
        (INT, -2, struct.pack(">i", -2)),
        (BIGINT, 3, struct.pack(">q", 3)),
        (DOUBLE, 1.5, struct.pack(">d", 1.5)),
        (STRING, "é", "é".encode()),
        (STRING, "", b""),
        (BYTES, b"\x00", b"\x00"),
    ],
)
def test_kafka(t, value, data):
    kafka = Format("KAFKA")
    assert write(kafka, [t], (value,)) == data
    assert read(kafka, [t], data) == (value,)
    assert read(kafka, [t], None) is None
    assert write(kafka, [t], (None,)) is None


@pytest.mark.parametrize(("t", "data"), [(INT, b"12345"), (BIGINT, b""), (STRING, b"\xff")])
def test_kafka_refuses(t, data):
    with pytest.raises(BadRecord):
        read(Format("KAFKA"), [t], data)


def test_windowed_keys():
    time, session = KeyWindow("time", 10), KeyWindow("session")
    assert join_window(b"k", time, 5, 15) == b"k" + struct.pack(">q", 5)
    assert split_window(b"k" + struct.pack(">q", 5), time) == (b"k", 5, 15)
    assert join_window(b"k", session, 5, 9) == b"k" + struct.pack(">qq", 9, 5)
    assert split_window(b"k" + struct.pack(">qq", 9, 5), session) == (b"k", 5, 9)
    with pytest.raises(BadRecord):
        split_window(b"short", time)

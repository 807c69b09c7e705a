"""Edges of single functions that their examples do not show."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from flowql.compiler.functions import builtin, java_time, numbers, strings
from flowql.compiler.functions.bytes_functions import encode, from_bytes, to_bytes
from flowql.compiler.functions.collections_functions import cube, series, slice_, sort
from flowql.compiler.functions.dates import convert_tz
from flowql.compiler.functions.json_functions import extract, writer
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.types import DATE, DOUBLE, INT, STRING, TIMESTAMP, SqlType, array, decimal, map_of, struct

assert builtin.FAMILIES


def function(name: str, *types: SqlType) -> Any:
    f = lookup(name)
    assert f is not None
    return f.reference(f.resolve(types))


@pytest.mark.parametrize(
    ("ms", "pattern", "zone", "expected"),
    [
        (1526075913000, "yyyy-MM-dd HH:mm:ss zzz", "America/Los_Angeles", "2018-05-11 14:58:33 PDT"),
        (0, "EEE, d MMM yy h:mm a", "UTC", "Thu, 1 Jan 70 12:00 AM"),
        (1, "yyyy-MM-dd'T'HH:mm:ss.SSSX", "UTC", "1970-01-01T00:00:00.001Z"),
        (0, "HH''mm xxx", "+0530", "05'30 +05:30"),
        (-1, "dd-MM-yyyy'Sophia'", "UTC", "31-12-1969Sophia"),
    ],
)
def test_format(ms: int, pattern: str, zone: str, expected: str) -> None:
    assert java_time.format_timestamp(ms, pattern, zone) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("2018-05-11T21:58:33z", "yyyy-MM-dd'T'HH:mm:ssX", 1526075913000),
        ("2018-05-11T21:58:33 PST", "yyyy-MM-dd'T'HH:mm:ss zzz", 1526101113000),
        ("2019-08-27T13:31:09.2+0000", "yyyy-MM-dd'T'HH:mm:ss.SX", 1566912669200),
        ("01-JAN-2022", "dd-MMM-yyyy", 1640995200000),
    ],
)
def test_parse(text: str, pattern: str, expected: int) -> None:
    assert java_time.parse_timestamp(text, pattern) == expected


def test_parse_of_times_and_partial_dates() -> None:
    assert java_time.parse_time("01:00:00 Pm", "hh:mm:ss a") == 46_800_000
    assert java_time.parse_date("JAN-2022", "MMM-yyyy") == 18_993
    with pytest.raises(ValueError, match="does not match"):
        java_time.parse_date("2022", "dd-MM")
    with pytest.raises(ValueError, match="not supported"):
        java_time.parse_date("2022", "Q")


def test_convert_tz() -> None:
    assert convert_tz(1589234313000, "America/Los_Angeles", "America/New_York") == 1589245113000


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("some_string", 6), "string"),
        (("abc", 0, 2), "ab"),
        (("abc", -2), "bc"),
        (("abc", 9), ""),
        (("abc", 2, -1), ""),
    ],
)
def test_substring(args: Any, expected: str) -> None:
    assert strings.substring(*args) == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("corporate floor", "or"), 2),
        (("corporate floor", "or", 4), 5),
        (("corporate floor", "or", -4), 5),
        (("corporate floor", "or", -4, 2), 2),
        (("short", "or", -4), 0),
        (("short", "or", 1, 2), 0),
    ],
)
def test_instr(args: Any, expected: int) -> None:
    assert strings.instr(*args) == expected


def test_pads() -> None:
    assert strings.pad_left("foo", 7, "Bar") == "BarBfoo"
    assert strings.pad_right("foo", 2, "Bar") == "fo"
    assert strings.pad_left("foo", -1, "Bar") is None
    assert strings.pad_left("foo", 5, "") is None


def test_split_to_map_leaves_out_what_is_no_pair() -> None:
    assert strings.split_to_map("apple:green//banana:yellow/cherry:red/", "/", ":") == {
        "apple": "green",
        "banana": "yellow",
        "cherry": "red",
    }
    assert strings.split_to_map("a:1", "", ":") is None


def test_regular_expressions() -> None:
    assert function("REGEXP_EXTRACT", STRING, STRING, INT)("(.*) (.*)", "agavra", 2) is None
    found = function("REGEXP_EXTRACT_ALL", STRING, STRING, INT)(r"(\w+) (\w*)", "apurva mehta agavra ", 2)
    assert found == ["mehta", ""]
    replace = function("REGEXP_REPLACE", STRING, STRING, STRING)
    assert replace("a1", r"(?<n>\d)", "<$1>") == replace("a1", r"(?<n>\d)", "<${n}>") == "a<1>"


def test_encodings() -> None:
    assert encode("c39c", "hex", "ascii") == "��"
    assert encode("Ελ", "ascii", "hex") == "3f3f"
    assert encode("0x4578", "hex", "base64") == "RXg="
    assert from_bytes(to_bytes("1aB2", "hex"), "hex") == "1AB2"
    with pytest.raises(ValueError, match="unknown encoding"):
        encode("eA==", "base64", "null")


def test_hexadecimal_texts() -> None:
    assert to_bytes("0x578", "hex") == b"\x05\x78"
    assert to_bytes("x''", "hex") == to_bytes("0x", "hex") == b""
    for wrong in ("0x0x", "X'", "x'45", "x'578'", "578"):
        with pytest.raises(ValueError, match="not hexadecimal"):
            to_bytes(wrong, "hex")


def test_transform_refuses_equal_keys_and_null_values() -> None:
    transform = lookup("TRANSFORM").reference(Resolution((map_of(STRING, INT),), map_of(STRING, INT)))  # type: ignore[union-attr]
    assert transform({"a": 1}, lambda k, v: k + "!", lambda k, v: v + 1) == {"a!": 2}
    with pytest.raises(ValueError, match="twice"):
        transform({"a": 1, "b": 2}, lambda k, v: "x", lambda k, v: v)
    with pytest.raises(ValueError, match="NULL value"):
        transform({"a": 1}, lambda k, v: k, lambda k, v: None)


def test_round_of_doubles_goes_up_at_halves() -> None:
    assert [function("ROUND", DOUBLE, INT)(v, 0) for v in (1.5, -1.5, 2.5, 1e308)] == [2.0, -1.0, 3.0, 1e308]


def test_code_points() -> None:
    assert strings.code_point(99000) == strings.escaped_code_point("\\ud820\\udeb8") == chr(99000)
    assert strings.escaped_code_point("75") is None
    assert strings.code_point(-1) is None


@pytest.mark.parametrize(
    ("v", "expected"), [(1.5, 2), (-1.5, -1), (2.5, 3), (0.49999999999999994, 0), (1e300, 2**63 - 1)]
)
def test_round_to_whole(v: float, expected: int) -> None:
    assert numbers.java_round(v) == expected


def test_round_of_decimals_keeps_the_scale() -> None:
    d = decimal(33, 16)
    v = Decimal("12345678987654321.2345678987654321")
    assert str(function("ROUND", d)(v)) == "12345678987654321"
    assert str(function("ROUND", d, INT)(v, 10)) == "12345678987654321.2345678988000000"
    assert str(function("ROUND", d, INT)(v, -2)) == "12345678987654300.0000000000000000"


def test_geo_distance() -> None:
    assert numbers.geo_distance(37.4439, -122.1663, 51.5257, -0.1122) == pytest.approx(8634.659796579544)
    with pytest.raises(ValueError, match="latitudes"):
        numbers.geo_distance(91, 0, 0, 0)


def test_json() -> None:
    assert extract('{"array": [1.23450]}', "$.array[0]") == "1.23450"
    assert extract('{"a": {"b": "x"}}', "$.a") == '{"b":"x"}'
    assert extract("[1]", "$[-1]") is None
    with pytest.raises(ValueError, match="Expecting"):
        extract("{", "$.a")
    shape = struct(("ID", INT), ("NAME", STRING), ("AT", TIMESTAMP), ("D", DATE), ("X", DOUBLE))
    value = {"ID": 1, "NAME": 'a"é', "AT": 0, "D": 1000, "X": None}
    expected = '{"ID":1,"NAME":"a\\"é","AT":"1970-01-01T00:00:00.000","D":"1972-09-27","X":null}'
    assert writer(shape)(value) == expected
    assert writer(array(INT))(None) == "null"


def test_collections() -> None:
    assert sort(["b", None, "a"], "desc") == ["b", "a", None]
    assert slice_([1, 2], 2, 3) is None
    assert series(4, 3) == [4, 3]
    assert series(-2, 1, 2) == [-2, 0]
    with pytest.raises(ValueError, match="GENERATE_SERIES"):
        series(0, 3, -1)
    assert cube([1, None]) == [[None, None], [1, None]]
    assert function("ARRAY_JOIN", array(DOUBLE), STRING)([1.23, None], None) == "1.23null"
    assert function("ARRAY_DISTINCT", array(INT))([1, None, 1, None]) == [1, None]


@pytest.mark.parametrize(
    ("name", "types", "args"),
    [
        ("CEIL", (decimal(4, 1),), (Decimal("999.9"),)),
        ("FLOOR", (decimal(4, 1),), (Decimal("-999.9"),)),
        ("ROUND", (decimal(4, 1), INT), (Decimal("999.9"), 0)),
        ("AS_MAP", (array(INT), array(INT)), ([1, None], [1, 2])),
        ("map", (INT, INT), (None, 1)),
    ],
)
def test_a_value_that_its_type_cannot_hold_fails(name: str, types: tuple[SqlType, ...], args: tuple[Any, ...]) -> None:
    """Else the batch that holds it, and so its query, would fail again and again."""
    with pytest.raises((ArithmeticError, ValueError)):
        function(name, *types)(*args)


def test_a_null_key_of_texts_is_the_text_null() -> None:
    """As ksqlDB writes it."""
    assert function("AS_MAP", array(STRING), array(INT))(["a", None], [1, 2]) == {"a": 1, "null": 2}
    assert function("map", STRING, INT)(None, 1) == {"null": 1}


def test_round_of_a_whole_number_stays_in_its_type() -> None:
    assert function("ROUND", INT, INT)(2**31 - 1, -5) == 2_147_500_000 - 2**32


@pytest.mark.parametrize("name", ["MASK", "MASK_LEFT", "MASK_RIGHT", "MASK_KEEP_LEFT", "MASK_KEEP_RIGHT"])
def test_masks_take_all_four_characters_or_none(name: str) -> None:
    first = (STRING,) if name == "MASK" else (STRING, INT)
    assert function(name, *first)("aB1-", *(2,) * (len(first) - 1)) is not None
    assert function(name, *first, *(STRING,) * 4)("aB1-", *(2,) * (len(first) - 1), "U", "l", "d", "o") is not None
    for some in (1, 2, 3, 5):
        with pytest.raises(FunctionTypeError):
            function(name, *first, *(STRING,) * some)

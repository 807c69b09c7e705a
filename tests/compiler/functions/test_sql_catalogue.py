"""Functions of PostgreSQL's catalogue: values that its documentation and its source give, and DuckDB's over random values."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.sql_interval_functions import age, binned, justified
from flowql.compiler.functions.sql_intervals import interval_text
from flowql.compiler.plan.types import INT, STRING
from tests.compiler.functions.test_sql_values import bound, evaluated, shown

pytestmark = pytest.mark.turns("long")

POSTGRESQL = r"""
DATE_BIN('15 minutes', TIMESTAMP '2020-02-11 15:44:17', TIMESTAMP '2001-01-01') => 2020-02-11 15:30:00
DATE_BIN('15 minutes', TIMESTAMP '2020-02-11 15:44:17', TIMESTAMP '2001-01-01 00:02:30') => 2020-02-11 15:32:30
DATE_BIN(INTERVAL '1 hour', TIMESTAMP '2001-01-01 02:15:00', '2001-01-01 02:30:00') => 2001-01-01 01:30:00
DATE_BIN('1 month', TIMESTAMP '2020-02-11 15:44:17', '2001-01-01') => error
DATE_BIN('0 minutes', TIMESTAMP '2020-02-11 15:44:17', '2001-01-01') => error
CAST(AGE(TIMESTAMP '2001-04-10', TIMESTAMP '1957-06-13') AS VARCHAR) => 43 years 9 mons 27 days
CAST(AGE(TIMESTAMP '1957-06-13', TIMESTAMP '2001-04-10') AS VARCHAR) => -43 years -9 mons -27 days
CAST(AGE(DATE '2024-03-01', DATE '2024-02-29') AS VARCHAR) => 1 day
CAST(AGE(TIMESTAMP '2024-03-30 01:00', TIMESTAMP '2024-02-29 12:30') AS VARCHAR) => 1 mon 12:30:00
CAST(JUSTIFY_DAYS(INTERVAL '1 year 65 days') AS VARCHAR) => 1 year 2 mons 5 days
CAST(JUSTIFY_HOURS(INTERVAL '50 hours 10 minutes') AS VARCHAR) => 2 days 02:10:00
CAST(JUSTIFY_INTERVAL(INTERVAL '1 mon -1 hour') AS VARCHAR) => 29 days 23:00:00
CAST(JUSTIFY_INTERVAL('1 month -1 day') AS VARCHAR) => 29 days
CAST(MAKE_INTERVAL(1, 2, 1, 3, 4, 5, 6.5) AS VARCHAR) => 1 year 2 mons 10 days 04:05:06.5
CAST(MAKE_INTERVAL() AS VARCHAR) => 00:00:00
DATE_ADD(TIMESTAMPTZ '2024-01-31 12:00:00Z', '1 month') => 2024-02-29 12:00:00+00
DATE_SUBTRACT(TIMESTAMPTZ '2024-03-31 12:00:00Z', INTERVAL '1 day') => 2024-03-30 12:00:00+00
ISFINITE(DATE '2001-02-16') => t
ISFINITE(INTERVAL '4 hours') => t
NUM_NULLS(1, NULL, 2) => 1
NUM_NONNULLS(1, NULL, 'a') => 2
SIND(30) => 0.5
SIND(-210) => 0.5
COSD(60) => 0.5
COSD(180) => -1
TAND(45) => 1
TAND(90) => Infinity
COTD(45) => 1
ASIND(0.5) => 30
ASIND(-0.5) => -30
ACOSD(-0.5) => 120
ACOSD(2) => error
ATAND(1) => 45
ATAN2D(1, -1) => 135
ASINH(1) => 0.881373587019543
ACOSH(1) => 0
ATANH(1) => Infinity
ATANH(0.5) => 0.5493061443340548
ERF(1.0) => 0.8427007929497149
ERFC(1.0) => 0.15729920705028513
BIT_COUNT('\x1234567890'::BYTEA) => 15
GET_BIT('\x1234567890'::BYTEA, 30) => 1
GET_BYTE('\x1234567890'::BYTEA, 4) => 144
GET_BYTE('\x12'::BYTEA, 1) => error
SET_BIT('\x1234567890'::BYTEA, 30, 0) => \x1234563890
SET_BYTE('\x1234567890'::BYTEA, 4, 64) => \x1234567840
CONVERT_FROM('\x746578745f696e5f75746638'::BYTEA, 'UTF8') => text_in_utf8
CONVERT_FROM('\xff'::BYTEA, 'UTF8') => error
CONVERT_TO('some_text', 'UTF8') => \x736f6d655f74657874
CRC32('abc'::BYTEA) => 891568578
REGEXP_COUNT('123456789012', '\d\d\d', 2) => 3
REGEXP_INSTR('ABCDEF', 'c(.)(..)', 1, 1, 0, 'i') => 3
REGEXP_INSTR('ABCDEF', 'c(.)(..)', 1, 1, 0, 'i', 2) => 5
REGEXP_INSTR('number of your street, town zip, FR', '[^,]+', 1, 2) => 23
REGEXP_SUBSTR('ABCDEF', 'c(.)(..)', 1, 1, 'i') => CDEF
REGEXP_SUBSTR('ABCDEF', 'c(.)(..)', 1, 1, 'i', 2) => EF
REGEXP_SUBSTR('number of your street, town zip, FR', '[^,]+', 1, 2) =>  town zip
REGEXP_SUBSTR('abc', 'x') => NULL
REGEXP_COUNT('abc', 'b', 0) => error
ARRAY_DIMS(ARRAY[1, 2, 3]) => [1:3]
ARRAY_DIMS(ARRAY[ARRAY[1, 2, 3], ARRAY[4, 5, 6]]) => [1:2][1:3]
ARRAY_NDIMS(ARRAY[ARRAY[1, 2, 3], ARRAY[4, 5, 6]]) => 2
LENGTH(GEN_RANDOM_UUID()) => 36
MIN_SCALE(8.4100) => 2
MIN_SCALE(1200) => 0
MIN_SCALE(0.000) => 0
MIN_SCALE(CAST(1.5 AS NUMERIC)) => 1
MIN_SCALE(CAST(NULL AS NUMERIC(9, 3))) => NULL
MAKE_TIMESTAMPTZ(2013, 7, 15, 8, 15, 23.5) => 2013-07-15 08:15:23.5+00
MAKE_TIMESTAMPTZ(2013, 7, 15, 8, 15, 23.5, 'America/New_York') => 2013-07-15 12:15:23.5+00
MAKE_TIMESTAMPTZ(2013, 2, 30, 8, 15, 23.5) => error
MAKE_TIMESTAMPTZ(2013, 2, 3, 8, 15, 23.5, 'Mars') => error
CHAR_LENGTH(NORMALIZE('é', NFD)) => 2
CHAR_LENGTH(NORMALIZE(NORMALIZE('é', NFD))) => 1
NORMALIZE('ﬁ', nfkc) => fi
SUBSTRING('Thomas' FROM '...$') => mas
SUBSTRING('foobar' FROM 'o(.)b') => o
SUBSTRING('foobar' FROM 'o(.)(b)') => o
SUBSTRING('foobar' FROM 'o(?:.)b') => oob
SUBSTRING('foobar' FROM 'x') => NULL
SUBSTRING('foobar' FROM 'o(x)?') => NULL
SUBSTRING('foobar', 'b.*') => bar
SUBSTRING('foobar' FROM '(') => error
SUBSTRING('foobar' FROM 2) => oobar
'alphabet' ^@ 'alph' => t
'alphabet' ^@ 'x' OR 'a' || 'b' ^@ 'ab' => t
'alphabet' ^@ NULL => NULL
CAST(MAKE_INTERVAL(days => 10) AS VARCHAR) => 10 days
CAST(MAKE_INTERVAL(1, hours => 2, secs => 0.5) AS VARCHAR) => 1 year 02:00:00.5
MAKE_INTERVAL(day => 10) => error
MAKE_INTERVAL(1, years => 10) => error
MAKE_INTERVAL(years => 10, 2) => error
MAKE_DATE(month => 2, year => 2024, day => 29) => 2024-02-29
MAKE_DATE(month => 2, day => 29) => error
INITCAP('ßen ǆ ÉTÉ') => Ssen ǅ Été
TO_CHAR(-0.1, '99.99') =>   -.10
TO_CHAR(-0.1, 'FM9.99') => -.1
TO_CHAR(0.1, '0.9') =>  0.1
TO_CHAR(12, '9990999.9') =>     0012.0
TO_CHAR(12, 'FM9990999.9') => 0012.
TO_CHAR(485, '9 9 9') =>  4 8 5
TO_CHAR(3148.5, '9G999D999') =>  3,148.500
TO_CHAR(148.5, 'FM999.990') => 148.500
TO_CHAR(12, '9,999') =>     12
TO_CHAR(12, 'FM0,000') => 0,012
TO_CHAR(-485, '999S') => 485-
TO_CHAR(12, 'S999') =>  +12
TO_CHAR(485, 'FM999MI') => 485
TO_CHAR(-485, '9SG99') => 4-85
TO_CHAR(-485, '999PR') => <485>
TO_CHAR(485.8, '"Pre:"999" Post:" .999') => Pre: 485 Post: .800
TO_CHAR(1234, '99.9') =>  ##.#
TO_CHAR(-0.001, '0.99') =>  0.00
TO_CHAR(1234567.891e0, '9,999,999.99') =>  1,234,567.89
TO_CHAR(0.145, 'FM90.00') => 0.15
TO_CHAR(CAST(NULL AS INT), '99') => NULL
TO_CHAR(1, '9EEEE') => error
TO_CHAR(1, '9.9.9') => error
TO_CHAR(1, 'RN') => error
TO_CHAR('NaN'::DOUBLE PRECISION, '99') => error
MIN_SCALE(TO_NUMBER('12,454.8-', '99G999D9S')) => 1
TO_CHAR(TO_NUMBER('12,454.8-', '99G999D9S'), 'FM99999.00') => -12454.80
TO_NUMBER('$1,234.50', '$9,999.99') = 1234.5 => t
TO_NUMBER('<12>', '99PR') = -12 => t
TO_NUMBER(' -12', '9999') = -12 => t
TO_NUMBER('1,234', '999,999') = 1234 => t
TO_NUMBER('1,234', '9999') => error
TO_NUMBER('12.34', '99.9') => error
TO_NUMBER('', '99') => error
"""
CASES = [line.rsplit(" => ", 1) for line in POSTGRESQL.strip().splitlines()]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_a_function_gives_what_postgresql_gives(text: str, expected: str) -> None:
    if expected == "error":  # constants are computed by the compiler
        with pytest.raises(CompileError):
            bound(text)
        return
    (expr,) = bound(text)
    (value,) = evaluated([expr])
    assert shown(value, expr.type) == expected


def _moment(r: random.Random) -> int:
    day = r.choice([r.randint(-30_000, 40_000), 19_782, 19_753, 0, -1])
    return day * 86_400_000 + r.choice([0, 1, 86_399_999, r.randrange(86_400_000)])


def _timestamp(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def test_ages_and_steps_are_those_of_duckdb() -> None:
    r = random.Random(20240229)
    moments = [(_moment(r), _moment(r)) for _ in range(2_000)]
    steps = [(r.choice([1, 250, 60_000, 900_000, 86_400_000, 7 * 86_400_000, 90_061_001]), *m) for m in moments[:500]]
    parts = (
        "date_part('year', a) * 12 + date_part('month', a), date_part('day', a), date_part('hour', a) * 3600000000 + "
    )
    parts += "date_part('minute', a) * 60000000 + date_part('microsecond', a)"
    with duckdb.connect() as db:
        for x, y in moments:
            found = db.execute(
                f"SELECT {parts} FROM (SELECT age(?::TIMESTAMP, ?::TIMESTAMP) AS a)", [_timestamp(x), _timestamp(y)]
            )
            assert age(x, y) == found.fetchone(), (_timestamp(x), _timestamp(y))
        for step, x, origin in steps:
            args: list[Any] = [f"{step} milliseconds", _timestamp(x), _timestamp(origin)]
            found = db.execute("SELECT time_bucket(?::INTERVAL, ?::TIMESTAMP, ?::TIMESTAMP)", args)
            assert found.fetchone() == (_timestamp(binned((0, 0, step * 1000), x, origin)),)


def test_justified_intervals_have_one_sign_and_the_same_length() -> None:
    r = random.Random(7)
    for _ in range(2_000):
        a = (
            r.randint(-30, 30),
            r.randint(-200, 200),
            r.randint(-300, 300) * 3_600_000_000 + r.choice([0, 1_000, -1_000]),
        )
        b = justified(a)
        months, days, micros = b
        assert not (any(x > 0 for x in b) and any(x < 0 for x in b)), (a, interval_text(b))
        assert abs(days) < 30
        assert abs(micros) < 86_400_000_000
        assert ((months * 30 + days) * 24 * 3_600_000_000) + micros == (a[0] * 30 + a[1]) * 24 * 3_600_000_000 + a[2]


def test_matches_by_number_fit_together() -> None:
    r = random.Random(11)

    def call(name: str, *args: Any) -> Any:
        function = lookup(f"sql_regexp_{name}")
        assert function is not None
        return function.reference(function.resolve(tuple(INT if isinstance(a, int) else STRING for a in args)))(*args)

    for _ in range(100):
        s = "".join(r.choice("abx") for _ in range(r.randrange(12)))
        pattern = r.choice(["a", "ab?", "(a)(b)?", "x*", "[ab]+", "^a", "b$"])
        n = call("count", s, pattern)
        places = [call("instr", s, pattern, 1, i) for i in range(1, n + 2)]
        assert places == [*sorted(places[:-1]), 0]
        for i, place in enumerate(places[:-1], 1):
            part = call("substr", s, pattern, 1, i)
            assert part is not None
            assert s[place - 1 :].startswith(part)
            assert call("instr", s, pattern, 1, i, 1) == place + len(part)

"""Calls of every scalar function over generated rows: nulls, extremes, any Unicode, decimals, time zones, texts of many formats."""

from __future__ import annotations

import itertools
import math
import random
import re
import struct as packing
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from functools import cache
from typing import Any

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from flowql.compiler.functions.registry import NAMES as STANDARD_NAMES
from flowql.compiler.functions.registry import all_functions
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, walk
from flowql.compiler.plan.logical import Project, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MICROS,
    SPAN,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from flowql.compiler.plan.visit import substitute

EXACT = Context(prec=60)
DEC, SMALL, WIDE = decimal(9, 3), decimal(4, 1), decimal(30, 6)
PAIR = struct(("A", INT), ("b c", STRING))
# The columns of each type are called by these letters and 0, 1, 2.
LETTERS: dict[str, SqlType] = {
    "I": INT,
    "B": BIGINT,
    "D": DOUBLE,
    "S": STRING,
    "N": DEC,
    "F": BOOLEAN,
    "DAY": DATE,
    "T": TIMESTAMP,
    "U": MICROS,
    "C": TIME,
    "Y": BYTES,
    "LI": array(INT),
    "LS": array(STRING),
    "M": map_of(STRING, INT),
    "P": PAIR,
    "N4": SMALL,
    "N30": WIDE,
    "N2": decimal(2, 2),
}
TYPES = tuple(LETTERS.values())
FEW = (INT, BIGINT, DOUBLE, STRING, DEC, BOOLEAN, array(INT), array(STRING))
INTS = [0, 1, -1, 2, -2, 7, 3, 2**31 - 1, -(2**31)]
BIGS = [*INTS, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 0.7, -0.7, 1e308, 5e-324, 2.0**31, 2.0**63, 4503599627370495.5, 0.1]
DOUBLES += [math.inf, -math.inf, math.nan]
TEXTS = ["", " ", "a", "A", "ab", "aXb", "é", "ß", "😀", "İ", "ΑΣ", "ﬁ", "\t a ", "a%b", "a_", "12", "-7", "1.5", "+3"]
TEXTS += ["\\", "%", "$", "${x}", "1e3", "1.", ".5", "1.5f", "2D", "99999999999999999999", "2147483648", "NaN", "true"]
# Several characters that are read as one: an accent of its own, emoji that are joined, a flag.
TEXTS += ["e\u0301x", "👩\u200d👧a", "🇩🇪🇫🇷"]
TEXTS += ["-Infinity", "+Infinity", "YES ", "'", '"', "\n", "x" * 40, "a.b.c", "00012", " 5\x1c", "\xa07", "1_0", "٣"]
CHARACTERS = [c for c in map(chr, (*range(1, 0xD800), *range(0xE000, 0x20000))) if unicodedata.category(c) != "Cn"]


def some_text(r: random.Random) -> str:
    return "".join(
        r.choice(CHARACTERS) if r.random() < 0.3 else chr(r.randint(32, 126)) for _ in range(r.randint(0, 6))
    )


def some_double(r: random.Random) -> float:
    if r.random() < 0.5:
        return round(r.uniform(-100, 100), r.randint(0, 4))
    found: float = packing.unpack("<d", r.randbytes(8))[0]
    return found


def digits(t: SqlType) -> Callable[[random.Random], Decimal]:
    top = 10**t.precision - 1
    edges = [0, 1, -1, top, -top]
    return lambda r: Decimal(r.choice([*edges, r.randint(-top, top), r.randint(-2500, 2500) % top])).scaleb(
        -t.scale, EXACT
    )


SOME: dict[Kind, Callable[[random.Random], Any]] = {
    Kind.INT: lambda r: (
        r.choice(INTS) if r.random() < 0.5 else r.choice([r.randint(-5, 12), r.randint(-(2**31), 2**31 - 1)])
    ),
    Kind.BIGINT: lambda r: (
        r.choice(BIGS) if r.random() < 0.5 else r.choice([r.randint(-5, 12), r.randint(-(2**63), 2**63 - 1)])
    ),
    Kind.DOUBLE: lambda r: r.choice(DOUBLES) if r.random() < 0.5 else some_double(r),
    Kind.STRING: lambda r: r.choice(TEXTS) if r.random() < 0.6 else some_text(r),
    Kind.BOOLEAN: lambda r: r.random() < 0.5,
    Kind.DATE: lambda r: r.choice([0, -1, 1, -719162, -719163, 2932896, 2932897, r.randint(-700_000, 2_900_000)]),
    Kind.TIMESTAMP: lambda r: r.choice(
        [0, -1, 1, 999, 253402300799999, 253402300800000, r.randint(-(6 * 10**13), 25 * 10**13)]
    ),
    Kind.MICROS: lambda r: r.choice(
        [0, -1, 1, 999_999, -62_135_596_800_000_001, *(r.randint(-(6 * 10**16), 25 * 10**16) for _ in range(2))]
    ),
    Kind.TIME: lambda r: r.choice([0, 86_399_999, r.randint(0, 86_399_999)]),
    Kind.BYTES: lambda r: r.randbytes(r.choice([0, 1, 2, 4, 8, 9])),
}


def some(t: SqlType, r: random.Random) -> Any:
    if r.random() < 0.1:
        return None
    if t.kind is Kind.ARRAY:
        return [some(t.element, r) for _ in range(r.randint(0, 4))]
    if t.kind is Kind.MAP:
        return {str(r.choice(TEXTS)): some(t.args[1], r) for _ in range(r.randint(0, 3))}
    if t.kind is Kind.STRUCT:
        return {n: some(f, r) for n, f in t.fields}
    return digits(t)(r) if t.kind is Kind.DECIMAL else SOME[t.kind](r)


# Texts that mean something to some functions, in columns of their own.
MEANINGFUL: dict[str, list[str]] = {
    "JSON": ['{"a": {"b": [1, "x", null]}, "é": 1.50}', "[1, 2.0, {}]", '"s"', "null", "12", "{", '{"a": 1e400}', "[]", "{}"],
    "URL": ["http://u@x.example:8080/p/a?q=1&r=%20%C3%A9#f", "https://x.example", "mailto:a@b.example", "a b", "//x", "?q", "%zz"],
    "WHEN": ["2024-02-29 23:59:59", "2024-03-31 02:30:00", "1969-12-31 00:00:00", "2023-02-29 00:00:00", "9999-12-31 23:59:59", "x"],
    "ZONE": ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "+0530", "Nowhere/At_All", "PST", "Z", "-03:30"],
    "LIKE": ["a+", "(.)(.)", "[", "", "\\d+", "é|ß", "(?i)A", "^$", "x*"],
}  # fmt: skip
NAMES: list[tuple[str, SqlType]] = [
    *((f"{letter}{j}", t) for letter, t in LETTERS.items() for j in range(3)),
    *((name, STRING) for name in MEANINGFUL),
]
SCHEMA = Schema(tuple(Field(n, t) for n, t in NAMES))


def rows_of(count: int, seed: int) -> list[tuple[Any, ...]]:
    r = random.Random(seed)
    return [
        tuple(r.choice([*MEANINGFUL[n], None]) if n in MEANINGFUL else some(t, r) for n, t in NAMES)
        for _ in range(count)
    ]


def column(t: SqlType, j: int = 0) -> Column:
    return Column(t, f"{next(n for n, of in LETTERS.items() if of == t)}{j}")


def columns(types: tuple[SqlType, ...]) -> tuple[Expr, ...]:
    """A column for each type; different ones for the same type."""
    return tuple(column(t, types[:i].count(t)) for i, t in enumerate(types))


def names() -> list[str]:
    """All that give the same for the same, a value for a row."""
    return [n for n, f in all_functions().items() if f.deterministic and not f.table]


# What the grammar has another form for, or what needs a constant to mean anything.
SPECIAL = {"cast", "struct", "field", "array", "map", "subscript", "case"}


# How many operands an operator has is the grammar's to say, and not checked again.
OPERANDS: dict[str, Sequence[int]] = {
    **dict.fromkeys(("neg", "sql_neg", "not", "is_null", "is_not_null"), (1,)),
    **dict.fromkeys(("sql_to_int", "sql_to_bigint", "sql_to_decimal", "sql_to_boolean", "sql_to_text"), (1,)),
    **dict.fromkeys(("between", "not_between"), (3,)),
    **dict.fromkeys(("like", "not_like", "in", "not_in", "sql_in"), (2, 3)),
    **dict.fromkeys(STANDARD_NAMES.values(), range(4)),
    **dict.fromkeys(
        (
            "sql_to_timestamp",
            "sql_to_micros",
            "sql_to_microstz",
            "sql_to_date",
            "sql_to_time",
            "sql_to_double",
            "sql_to_bytes",
            "sql_interval_micros",
            "sql_to_timestamptz",
        ),
        (1,),
    ),
    **dict.fromkeys(("sql_interval", "sql_in_range"), (3,)),
    "sql_real": (1, 2),
}


def calls(name: str, most: int, wanted: Callable[[Call], bool] = lambda call: True) -> list[Expr]:
    """A function over up to `most` of the argument lists that it takes as they are."""
    function, found = all_functions()[name], []
    for n in OPERANDS.get(name, (2,)) if name.islower() else range(4):
        for types in itertools.product(TYPES if n < 3 else FEW, repeat=n):
            if len(set(types)) > 2:
                continue
            try:
                r = function.resolve(types)
            except (FunctionTypeError, ValueError, IndexError):
                continue
            if r.result.kind is Kind.INTERVAL:  # of which there are no columns
                continue
            if r.args == types and wanted(call := Call(r.result, name, columns(types))):
                found.append(call)
    return [found[i * len(found) // most] for i in range(most)] if len(found) > most else [*found]


# As one writes them: constants, zones, lambdas, containers.
WRITTEN = """
FORMAT_TIMESTAMP(T0, 'yyyy-MM-dd HH:mm:ss.SSS XXX', ZONE) | TIMESTAMPTOSTRING(B0, 'dd MMM yyyy EEE HH', ZONE) | CONVERT_TZ(T0, ZONE, 'Asia/Kolkata')
CONVERT_TZ(T1, 'America/New_York', 'Europe/Berlin') | PARSE_TIMESTAMP(`WHEN`, 'yyyy-MM-dd HH:mm:ss', ZONE) | PARSE_TIMESTAMP(`WHEN`, 'yyyy-MM-dd HH:mm:ss')
STRINGTOTIMESTAMP(`WHEN`, 'yyyy-MM-dd HH:mm:ss', 'Europe/Berlin') | STRINGTOTIMESTAMP(`WHEN`, 'yyyy-MM-dd HH:mm:ss') | FORMAT_TIMESTAMP(T0, S0)
PARSE_DATE(SUBSTRING(`WHEN`, 1, 10), 'yyyy-MM-dd') | STRINGTODATE(SUBSTRING(`WHEN`, 1, 10), 'yyyy-MM-dd') | PARSE_TIME(SUBSTRING(`WHEN`, 12), 'HH:mm:ss')
FORMAT_TIME(C0, 'HH:mm:ss.SSS') | FORMAT_DATE(DAY0, 'dd.MM.yyyy') | DATETOSTRING(I0 % 100000, 'yyyy-DDD') | CAST(`WHEN` AS TIMESTAMP) | CAST(`WHEN` AS DATE)
EXTRACTJSONFIELD(JSON, '$.a.b[1]') | EXTRACTJSONFIELD(JSON, '$') | JSON_ARRAY_LENGTH(JSON) | JSON_KEYS(JSON) | JSON_RECORDS(JSON) | JSON_ITEMS(JSON)
IS_JSON_STRING(JSON) | JSON_CONCAT(JSON, '{"z": 1}') | JSON_ARRAY_CONTAINS(JSON, 1) | TO_JSON_STRING(P0) | TO_JSON_STRING(M0) | TO_JSON_STRING(N0) | TO_JSON_STRING(D0)
URL_EXTRACT_HOST(URL) | URL_EXTRACT_PATH(URL) | URL_EXTRACT_PORT(URL) | URL_EXTRACT_QUERY(URL) | URL_EXTRACT_PROTOCOL(URL) | URL_EXTRACT_FRAGMENT(URL)
URL_EXTRACT_PARAMETER(URL, 'r') | URL_DECODE_PARAM(URL) | URL_ENCODE_PARAM(S0) | REGEXP_LIKE(S0, `LIKE`) | REGEXP_EXTRACT(`LIKE`, S0) | REGEXP_EXTRACT('(.)(.)', S0, 2)
REGEXP_EXTRACT_ALL(`LIKE`, S0) | REGEXP_REPLACE(S0, `LIKE`, '<$0>') | REGEXP_SPLIT_TO_ARRAY(S0, `LIKE`) | SPLIT_TO_MAP(S0, 'a', 'b') | SPLIT(S0, 'X') | SPLIT(S0, S1)
ENCODE(S0, 'utf8', 'hex') | ENCODE(S0, 'base64', 'utf8') | TO_BYTES(S0, 'base64') | TO_BYTES(S0, 'hex') | FROM_BYTES(Y0, 'base64') | FROM_BYTES(Y0, 'utf8')
CHR(I0) | CHR(S0) | MASK(S0, 'x', 'y', '9', '-') | MASK_KEEP_LEFT(S0, 2) | MASK_RIGHT(S0, 3) | INITCAP(S0) | S0 LIKE 'a!%%' ESCAPE '!' | S0 LIKE `LIKE` | LPAD(S0, 5, 'ab')
TRANSFORM(LI0, x => x + I0) | TRANSFORM(M0, (k, v) => UCASE(k), (k, v) => v + 1) | FILTER(LI0, x => x > 0) | FILTER(M0, (k, v) => k <> '') | REDUCE(LI0, 1, (s, x) => s * x)
REDUCE(LS0, '', (s, x) => s + COALESCE(x, '-')) | MAP('a' := I0, S0 := I1) | MAP_UNION(M0, M1) | AS_MAP(LS0, LI0) | ARRAY_JOIN(LS0, ',') | STRUCT(a := I0, b := N0) | ARRAY[S0, S1]
ARRAY[I0 / I1, I1] | STRUCT(a := I0 % I1, b := CAST(S0 AS INT)) | MAP('a' := I0 / I1, 'b' := I1) | ARRAY[ARRAY[I0 / I1], ARRAY[I1]] | ARRAY_LENGTH(ARRAY[I0 / I1, 2])
GENERATE_SERIES(0, I0 % 20) | GENERATE_SERIES(0, I0 % 20, 3) | GEO_DISTANCE(N4_0, N4_1, D0, D1, 'MILES') | INT_FROM_BYTES(Y0) | BIGINT_FROM_BYTES(Y0, 'LITTLE_ENDIAN') | DOUBLE_FROM_BYTES(Y0)
ROUND(N30_0, 2) | ROUND(D0, -1) | TRUNC(N0, 1) | CAST(D0 AS STRING) | CAST(S0 AS DECIMAL(9, 2)) | CAST(D0 AS DECIMAL(9, 2)) | CAST(N30_0 AS DECIMAL(9, 2)) | CAST(N2_0 AS STRING) | N2_0 * N2_1 | CAST(S0 AS DOUBLE)
TIMESTAMPADD(HOURS, I0, T0) | TIMESTAMPSUB(DAYS, I0, T0) | DATEADD(DAYS, I0 % 9999, DAY0) | DATESUB(DAYS, I0 % 9999, DAY0) | TIMEADD(MINUTES, I0, C0) | TIMESUB(SECONDS, I0, C0)
N0 / N4_0 | N0 * N30_0 | N0 % N4_0 | N30_0 + N0 | I0 / I1 | B0 % I0 | D0 / D1 | CASE WHEN I0 > 0 THEN S0 WHEN F0 THEN S1 END | P0->`b c` | M0[S0] | LI0[I0 % 5] | LS0[1]
"""


# The same in standard SQL. An interval ends in a text, a number or a moment. Each line is one dialect's `|`, which is no operator there.
STANDARD_WRITTEN = r"""
"T0" + INTERVAL '1 month 2 days 03:00:00.5' | "T0" - INTERVAL '1-1' YEAR TO MONTH | "DAY0" + INTERVAL '1' MONTH | "DAY0" - INTERVAL '1' DAY * ("I0" % 1000)
INTERVAL '90' MINUTE + "T1" | CAST("T0" - "T1" AS VARCHAR) | "T0" - "T1" > INTERVAL '1' DAY | "T0" - "T1" BETWEEN INTERVAL '-1' DAY AND INTERVAL '1 mon'
"DAY0" - "DAY1" | "DAY0" + "I0" % 10000 | "I0" % 10000 + "DAY0" | "DAY0" - "I0" | "DAY0" + "C0" | "C0" + INTERVAL '25' HOUR | CAST("C0" - "C1" AS VARCHAR)
CAST("LS0" AS DATE[]) | "T0" + "I0" * INTERVAL '1' HOUR | "T0" + INTERVAL '1' MONTH * ("I0" % 100) | "T0" + INTERVAL '1 month 1 day' / 2 | CAST(-(INTERVAL '1 mon -3 days') + INTERVAL '1 s' AS VARCHAR)
EXTRACT(EPOCH FROM "T0" - "T1") | EXTRACT(DAY FROM "T0" - "T1") | EXTRACT(YEAR FROM "T0") | EXTRACT(QUARTER FROM "T0") | EXTRACT(MONTH FROM "DAY0") | EXTRACT(DAY FROM "T0")
EXTRACT(WEEK FROM "T0") | EXTRACT(ISOYEAR FROM "T0") | EXTRACT(DOW FROM "T0") | EXTRACT(ISODOW FROM "DAY0") | EXTRACT(DOY FROM "T0") | EXTRACT(HOUR FROM "T0")
EXTRACT(MINUTE FROM "T0") | EXTRACT(SECOND FROM "T0") | EXTRACT(EPOCH FROM "T0") | EXTRACT(EPOCH FROM "DAY0") | EXTRACT(HOUR FROM "C0") | EXTRACT(CENTURY FROM "T0")
EXTRACT(DECADE FROM "DAY0") | EXTRACT(MILLENNIUM FROM "T0") | EXTRACT(MILLISECONDS FROM "T0") | EXTRACT(MICROSECONDS FROM "C0") | DATE_PART('year', "T0") | DATE_PART('epoch', "T0")
DATE_PART("S0", "T0") | DATE_TRUNC('week', "T0") | DATE_TRUNC('quarter', "T0") | DATE_TRUNC('month', "DAY0") | DATE_TRUNC('year', "T0") | DATE_TRUNC('hour', "T0") | DATE_TRUNC('decade', "T0")
DATE_TRUNC('second', "T0") | DATE_TRUNC('minute', "T0") | DATE_TRUNC('day', "T0") | DATE_TRUNC('century', "T0") | DATE_TRUNC("S0", "T0") | MAKE_TIMESTAMP("I0" % 9999, 2, "I1" % 30, 3, 4, 5.5)
TO_CHAR("T0", 'YYYY-MM-DD HH24:MI:SS.MS FMDay, DDth Mon Q IYYY-IW DDD D AM') | TO_CHAR("DAY0", "S0") | TO_DATE(SUBSTRING("WHEN", 1, 10), 'YYYY-MM-DD') | TO_TIMESTAMP("D0" + 0.0001) | TO_TIMESTAMP("WHEN", 'YYYY-MM-DD HH24:MI:SS')
CAST("D0" AS DECIMAL(9, 2)) | CAST("WHEN" AS TIMESTAMP) | CAST(SUBSTRING("WHEN", 1, 10) AS DATE) | CAST(SUBSTRING("WHEN", 12) AS TIME) | CAST("S0" AS DOUBLE PRECISION) | CAST("S0" AS BYTEA) | CAST("Y0" AS VARCHAR)
CAST("WHEN" AS TIMESTAMPTZ) | CAST("T0" AS TIMESTAMPTZ) + INTERVAL '1 month' | CAST("T0" AS TIMESTAMPTZ) > "T1" | CAST(CAST("T0" AS TIMESTAMPTZ) AS VARCHAR)
"T0" AT TIME ZONE 'Europe/Berlin' | CAST("T0" AS TIMESTAMPTZ) AT TIME ZONE "ZONE" | DATE_TRUNC('month', CAST("T0" AS TIMESTAMPTZ)) | DATE_TRUNC('hour', CAST("T0" AS TIMESTAMPTZ), 'Europe/Berlin') | DATE_TRUNC('day', CAST("T0" AS TIMESTAMPTZ), "ZONE") | CAST("DAY0" AS TIMESTAMPTZ) - "T0" > INTERVAL '1 day'
"LI0"["I0" % 5] | "LI0"["I0" % 4 : "I1" % 4] | "LS0"[:2] | "LS0"["I0" % 3:] | "M0"["S0"] | ARRAY_TO_STRING("LI0", '-') | ARRAY_TO_STRING("LS0", "S0", '*')
CAST("S0" AS TIMESTAMP) | CAST("S0" AS DATE) | CAST("S0" AS TIME) | CAST("I0" AS SMALLINT) | CAST("D0" AS REAL) | CAST("S0" AS VARCHAR(3)) | CAST("LS0" AS VARCHAR) | CAST("P0" AS VARCHAR) | CAST("C0" AS VARCHAR)
SUBSTRING("S0" FROM "I0" FOR "I1" % 10) | SUBSTRING("S0" FOR 2) | TRIM(LEADING 'a ' FROM "S0") | TRIM("S0") | TRIM(BOTH "S1" FROM "S0") | OVERLAY("S0" PLACING "S1" FROM 2 FOR 1) | POSITION("S1" IN "S0")
LPAD("S0", "I0" % 50, "S1") | RPAD("S0", 5) | LEFT("S0", "I0" % 4) | RIGHT("S0", "I0" % 4) | SPLIT_PART("S0", '.', "I0" % 4) | SPLIT_PART("S0", "S1", 1) | REPEAT("S0", "I0" % 3) | TRANSLATE("S0", 'abc', 'x')
"S0" ILIKE 'A%' | "S0" NOT ILIKE "S1" | "S0" SIMILAR TO '(a|[0-9]+)%' | "S0" ~ '^[[:alpha:]]+$' | "S0" ~* 'A' | "S0" !~ "LIKE" | REGEXP_REPLACE("S0", '(.)', '<\1>') | REGEXP_REPLACE("S0", 'a', '-', 'g')
"D0" ^ 2 | "I0" ^ 0.5 | "N0" ^ 2 | ROUND("N0", 1) | ROUND("N30_0") | ROUND("N0", "I0" % 3) | TRUNC("N0", -1) | ROUND("D0") | LOG(2, "N0") | SQRT("N0") | MOD("I0", "I1") | MOD("N0", "N4_0")
CONCAT("S0", "I0", "F0", "D0", NULL, "T0") | CONCAT_WS("S0", "I0", "N0", NULL) | COALESCE("N0", "I0", 0) | GREATEST("I0", "N0", "B0") | LEAST("D0", "I0") | NULLIF("S0", '') | COALESCE("N0", '1.5')
REGEXP_EXTRACT("S0", "LIKE") | REGEXP_EXTRACT("S0", '(a)(.)', 2) | REGEXP_EXTRACT_ALL("S0", "LIKE", 0) | REGEXP_SPLIT_TO_ARRAY("S0", 'a*') | ARRAY_CONTAINS("LI0", "I0") | FROM_UNIXTIME("B0") | UNIX_TIMESTAMP("T0") | UNIX_TIMESTAMP("WHEN")
DATE_BIN(INTERVAL '15' MINUTE, "T0", "T1") | DATE_BIN('1 day 2 hours', "T0", '2001-01-01') | DATE_BIN(INTERVAL '1' HOUR * "I0", CAST("T0" AS TIMESTAMPTZ), "T1") | DATE_BIN("T1" - "T2", "T0", "T1")
CAST(AGE("T0", "T1") AS VARCHAR) | CAST(AGE("DAY0", '2024-02-29') AS VARCHAR) | EXTRACT(MONTH FROM AGE(CAST("T0" AS TIMESTAMPTZ), "T1")) | DATE_ADD("WHEN"::TIMESTAMPTZ, '1 month') | DATE_SUBTRACT(CAST("T0" AS TIMESTAMPTZ), INTERVAL '1' MONTH)
CAST(JUSTIFY_HOURS("T0" - "T1") AS VARCHAR) | CAST(JUSTIFY_DAYS("T0" - "T1") AS VARCHAR) | CAST(JUSTIFY_INTERVAL(AGE("T0", "T1") * -1) AS VARCHAR) | CAST(JUSTIFY_INTERVAL('1 mon -1 hour') AS VARCHAR)
CAST(MAKE_INTERVAL("I0" % 1000, "I1" % 1000, 1, "I2" % 1000, 5, 6, "D0") AS VARCHAR) | ISFINITE("T0" - "T1") | NUM_NULLS("S0", "I0", "LI0") | NUM_NONNULLS("T0", NULL, 1)
TO_CHAR("I0", 'S999,999') | TO_CHAR("N0", 'FM9990.0') | TO_CHAR("D0", '999D99MI') | TO_CHAR("B0", "S0") | TO_NUMBER("S0", '99.99') | TO_NUMBER(TO_CHAR("I0", '999,999S'), '999,999S')
MIN_SCALE("N0") | MIN_SCALE("I0") | MAKE_TIMESTAMPTZ("I0" % 9999, 2, "I1" % 30, 3, 4, 5.5) | MAKE_TIMESTAMPTZ(2024, 3, "I1" % 32, "I0" % 24, 30, 0, 'Europe/Berlin')
NORMALIZE("S0") | NORMALIZE("S0", NFKD) | SUBSTRING("S0" FROM "LIKE") | SUBSTRING("S0" FROM '(a)|b') | "S0" ^@ 'a' | "S0" ^@ "S1" | CAST(MAKE_INTERVAL(days => "I0" % 100, secs => "D0") AS VARCHAR) | INITCAP("S0")
SET_BIT("Y0", "I0" % 20, "I1" % 2) | SET_BYTE("Y0", "I0" % 3, "I1") | REGEXP_INSTR("S0", "LIKE", 1, "I0" % 3, 1, 'i', 1) | REGEXP_SUBSTR("S0", '(a)(b)?', "I0" % 4, 1, 'i', 2)
("T0", "T1") OVERLAPS ("T1", INTERVAL '1' DAY) | TIMESTAMPDIFF(HOUR, "T0", "T1") | WIDTH_BUCKET("D0", 0, 10, 5) | CAST("S0" AS INT[]) | CAST('{1,2,NULL}' AS INT[])
CAST("JSON" AS JSONB) | CAST("JSON" AS JSONB) -> 'a' | CAST("JSON" AS JSONB) ->> "I0" | CAST("JSON" AS JSONB) #> '{a,b}' | CAST("JSON" AS JSONB) #>> "LS0" | CAST(CAST("JSON" AS JSONB) AS VARCHAR)
CAST("JSON" AS JSONB) @> '[1]' | '{}' <@ CAST("JSON" AS JSONB) | CAST("JSON" AS JSONB) ? 'a' | CAST("JSON" AS JSONB) ?| "LS0" | CAST("JSON" AS JSONB) ?& '{a,é}' | CAST("JSON" AS JSONB) = '12.0' | CAST("JSON" AS JSONB) IN ('[]', '{}')
CAST("JSON" AS JSONB) \|\| '[1]' | CAST("JSON" AS JSONB) - 'a' | CAST("JSON" AS JSONB) - "I0" | CAST(CAST("JSON" AS JSONB) AS INT) | CAST(CAST("JSON" AS JSONB) AS NUMERIC(5, 2)) | CAST(CAST("JSON" AS JSONB) AS BOOLEAN)
JSONB_TYPEOF(CAST("JSON" AS JSONB)) | JSONB_ARRAY_LENGTH(CAST("JSON" AS JSONB)) | JSONB_STRIP_NULLS(CAST("JSON" AS JSONB)) | JSONB_PRETTY(CAST("JSON" AS JSONB)) | JSONB_SET(CAST("JSON" AS JSONB), '{a}', '1')
JSONB_EXTRACT_PATH(CAST("JSON" AS JSONB), 'a', "S0") | JSONB_EXTRACT_PATH_TEXT(CAST("JSON" AS JSONB), "S0") | JSONB_ELEMENTS(CAST("JSON" AS JSONB)) | JSONB_ELEMENTS_TEXT(CAST("JSON" AS JSONB)) | JSONB_OBJECT("LS0")
JSONB_ORDER(CAST("JSON" AS JSONB)) | JSONB_KEYS(CAST("JSON" AS JSONB)) | JSONB_VALUES(CAST("JSON" AS JSONB)) | JSONB_VALUES_TEXT(CAST("JSON" AS JSONB)) | JSONB_BUILD_OBJECT('a', "D0", "S0", "LI0", 'j', CAST("JSON" AS JSONB)) | JSONB_BUILD_ARRAY("T0", NULL, "M0", "Y0")
"U0" + INTERVAL '1 month 2 days 03:00:00.500001' | "U0" - "U1" > INTERVAL '1' DAY | CAST("U0" - "U1" AS VARCHAR) | CAST("U0" - "T0" AS VARCHAR) | CAST("DAY0" - "U0" AS VARCHAR) | CAST(AGE("U0", "T1") AS VARCHAR)
EXTRACT(EPOCH FROM "U0") | EXTRACT(SECOND FROM "U0") | EXTRACT(MICROSECONDS FROM "U0") | EXTRACT(YEAR FROM "U0") | EXTRACT(HOUR FROM "U0") | DATE_PART('epoch', "U0") | DATE_TRUNC('milliseconds', "U0") | DATE_TRUNC('hour', "U0") | DATE_TRUNC('month', "U0")
CAST("U0" AS TIMESTAMP(3)) | CAST("U0" AS TIMESTAMP(0)) | CAST("U0" AS TIMESTAMP(4)) | CAST("T0" AS TIMESTAMP(6)) | CAST("DAY0" AS TIMESTAMPTZ(6)) | CAST("U0" AS DATE) | CAST("U0" AS TIME) | CAST("U0" AS VARCHAR) | CAST("WHEN" AS TIMESTAMP(6)) | CAST("WHEN" AS TIMESTAMPTZ(6))
"U0" = "T0" | "U0" < "DAY0" | "U0" IN ("T0", TIMESTAMP '2024-01-01 00:00:00.000001') | COALESCE("T0", "U0") | GREATEST("U0", "T0", "DAY0") | CASE WHEN "F0" THEN "U0" ELSE "T0" END | NULLIF("T0", "U0") | TO_CHAR("U0", 'YYYY-MM-DD HH24:MI:SS.US FF3') | TO_JSONB("U0")
"U0" AT TIME ZONE 'Europe/Berlin' | CAST("U0" AS TIMESTAMPTZ) AT TIME ZONE 'Europe/Berlin' | DATE_BIN(INTERVAL '7 microseconds', "U0", "U1") | DATE_ADD(CAST("U0" AS TIMESTAMPTZ), '1 month') | TIMESTAMPDIFF(HOUR, "U0", "T1") | ("U0", "T1") OVERLAPS ("U1", "U2") | ISFINITE("U0")
TO_JSONB("P0") | TO_JSONB("D0") | TO_JSONB("DAY0") | TO_JSONB(CAST("T0" AS TIMESTAMPTZ)) | JSONB_OF_ENTRIES(ARRAY[STRUCT(k := "S0", v := "N0")]) | CAST("S0" AS UUID) | CAST('{550E8400-e29b-41d4-a716-446655440000}' AS UUID)
"T0" BETWEEN SYMMETRIC "T1" AND "T2" | CASE WHEN "T0" - "T1" > INTERVAL '1' HOUR THEN "T0" + INTERVAL '1' DAY ELSE NULL END | "T0" - "T1" IN (INTERVAL '24' HOUR, "T1" - "T2") | NOT ("T0" - "T1" = INTERVAL '1 day')
"T0" + CAST("I0" || ' month' AS INTERVAL) | JSONB_POPULATE_RECORD(NULL::STRUCT<A INT, B TEXT>, CAST("JSON" AS JSONB)) | JSONB_RECORDS(NULL::STRUCT<A INT, B TEXT>, CAST("JSON" AS JSONB)) | MAP_FROM_ENTRIES(ARRAY[STRUCT(k := "S0", v := "I0")])
"""


@cache
def written() -> tuple[Expr, ...]:
    """The expressions of WRITTEN, bound by the compiler."""
    texts = [re.sub(r"\b(N\d+)_", r"\1", t.strip()) for line in WRITTEN.strip().splitlines() for t in line.split("|")]
    return _bound(texts, "`", Session())


@cache
def written_standard() -> tuple[Expr, ...]:
    """The expressions of STANDARD_WRITTEN, bound by the compiler."""
    lines = STANDARD_WRITTEN.strip().splitlines()
    texts = [re.sub(r'"(N\d+)_', r'"\1', t.strip().replace("\\|", "|")) for line in lines for t in line.split(" | ")]
    return _bound(texts, '"', Session(dialect="standard"))


def of_intervals() -> Iterator[Expr]:
    """What columns of intervals and their aggregates are made of."""
    span = Call(INTERVAL, "sql_sub", (column(TIMESTAMP, 0), column(TIMESTAMP, 1)))
    yield (kept := Call(SPAN, "sql_interval_kept", (span,)))
    yield Call(BIGINT, "sql_interval_micros", (Call(INTERVAL, "sql_interval_taken", (kept,)),))
    yield from (Call(BIGINT, f"sql_interval_{part}", (span,)) for part in ("months", "days", "rest"))
    total = Call(INTERVAL, "sql_interval_total", (column(INT, 0), column(INT, 1), column(BIGINT, 0)))
    yield Call(SPAN, "sql_interval_kept", (Call(INTERVAL, "sql_interval_average", (total, Literal(INT, 7))),))


def _bound(texts: list[str], quote: str, session: Session) -> tuple[Expr, ...]:
    listed = ", ".join(f"{quote}{n}{quote} {_sql(t, quote)}" for n, t in NAMES)
    with_ = "WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON')"
    session.execute(SourceText("s.sql", f"CREATE STREAM S ({listed}) {with_};"))
    items = ", ".join(f"{t} AS X{i}" for i, t in enumerate(texts))
    session.execute(SourceText("q.sql", f"CREATE STREAM Q AS SELECT {items} FROM S;"))
    made: dict[str, Expr] = {}
    for node in walk_nodes(session.plan.queries[-1].logical):
        if isinstance(node.spec, Project):  # a value that differs each time has one of its own
            made = {c.name: substitute(c.expr, made) for c in node.spec.columns}
    assert len(made) == len(texts)
    return tuple(made.values())


def _sql(t: SqlType, quote: str) -> str:
    if t.kind is Kind.STRUCT:
        return "STRUCT<" + ", ".join(f"{quote}{n}{quote} {f}" for n, f in t.fields) + ">"
    return str(t)


def named(exprs: tuple[Expr, ...] | list[Expr]) -> set[str]:
    """The functions called somewhere in these."""
    return {x.name for e in exprs for x in walk(e) if isinstance(x, Call)}


def everything(most: int) -> Iterator[Expr]:
    """Every function over generated argument lists, and what is written."""
    yield from (c for name in names() if name not in SPECIAL for c in calls(name, most))
    yield from written()
    yield from written_standard()
    yield from of_intervals()


def alike(a: Any, b: Any) -> bool:
    """Whether two reference values are one, to the last bit."""
    if isinstance(a, float) and isinstance(b, float):
        return packing.pack("<d", a) == packing.pack("<d", b) or (a != a and b != b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(alike(v, b[k]) for k, v in a.items())
    return type(a) is type(b) and a == b and str(a) == str(b)

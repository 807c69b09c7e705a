"""Values of standard SQL as PostgreSQL writes them: functions, operators of time, casts. Against DuckDB where both mean the same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session, compile_project
from flowql.compiler.functions import sql_jsonb
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.sql_calendar import DAY_MAX, DAY_MIN, civil, day_of, months_later
from flowql.compiler.functions.sql_text_casts import text_writer
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.logical import Project, walk_nodes
from flowql.compiler.plan.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    JSONB,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    SqlType,
    array,
    arrow_type,
    decimal,
)
from flowql.compiler.plan.visit import substitute

COLUMNS = {"k": INT, "ts": TIMESTAMP, "tt": TIMESTAMP, "d": DATE, "e": DATE, "c": TIME, "s": STRING, "u": STRING, "n": INT, "x": DOUBLE, "m": decimal(12, 3)}  # fmt: skip


def bound(*texts: str) -> tuple[Expr, ...]:
    """Expressions of standard SQL over COLUMNS, as the compiler binds them."""
    session = Session(dialect="standard")
    listed = ", ".join(f"{n} {t}" for n, t in COLUMNS.items())
    session.execute(SourceText("s.sql", f"CREATE STREAM r ({listed}) WITH (kafka_topic='r', value_format='JSON');"))
    items = ", ".join(f"{t} AS x{i}" for i, t in enumerate(texts))
    session.execute(SourceText("q.sql", f"CREATE STREAM q AS SELECT {items} FROM r;"))
    made: dict[str, Expr] = {}
    for node in walk_nodes(session.plan.queries[-1].logical):
        if isinstance(node.spec, Project):
            made = {c.name: substitute(c.expr, made) for c in node.spec.columns}
    return tuple(made.values())


def evaluated(exprs: Sequence[Expr], row: Sequence[Any] = (None,) * len(COLUMNS)) -> list[Any]:
    """Values over a row; "error" where one fails."""
    failed: dict[int, Exception] = {}
    values = list(compile_row(exprs, list(COLUMNS), on_error=failed.__setitem__)(row))
    return ["error" if i in failed else v for i, v in enumerate(values)]


def shown(value: Any, t: SqlType) -> str:
    """As PostgreSQL shows a value."""
    if value is None or isinstance(value, str):
        return "NULL" if value is None else value
    return ("t" if value else "f") if t.kind is Kind.BOOLEAN else text_writer(t)(value)


POSTGRESQL = r"""
CAST(-0.0 AS VARCHAR) => 0.0
SIGN(CAST('NaN' AS DOUBLE PRECISION)) => 0
CAST('NaN' AS DOUBLE PRECISION) = 'NaN' => t
CAST(1 AS DOUBLE PRECISION) < 'Infinity' => t
1 + '2' => 3
'2.5' * 1.5 => 3.75
10 - '3' => 7
ARRAY[1] || NULL => {1}
NULL || ARRAY[1] => {1}
ARRAY[1] || NULL::int => {1,NULL}
(INTERVAL '1 day' / 7)::text => 03:25:42.857143
(INTERVAL '1 mon' / 7)::text => 4 days 06:51:25.6896
CAST(CAST(-0.0 AS DOUBLE PRECISION) AS VARCHAR) => 0
CAST(NUMERIC '-0' AS VARCHAR) => 0
CAST(NUMERIC ' 1.50 ' AS VARCHAR) => 1.50
CAST(NUMERIC '1.5e3' AS VARCHAR) => 1500
TO_CHAR(TIMESTAMP '2024-02-29 13:45:30.5', 'J CC IYY-IY-I IDDD RM/rm FF1 FF6 SSSSS b.c. Y,YYY') => 2460370 21 024-24-4 060 II  /ii   5 500000 49530 a.d. 2,024
TO_CHAR(TIMESTAMPTZ '2024-02-29 13:45:30+02', 'HH24 TZ tz OF TZH:TZM') => 11 UTC utc +00 +00:00
TO_CHAR(TIMESTAMP '2024-02-29 13:45:30', 'HH24TZ') => 13
CAST(INTERVAL '1 2:03:04' AS VARCHAR) => 1 day 02:03:04
CAST(INTERVAL '1 2' DAY TO HOUR AS VARCHAR) => 1 day 02:00:00
CAST(INTERVAL 'P1Y2M3DT4H5M6S' AS VARCHAR) => 1 year 2 mons 3 days 04:05:06
DATE '2024-01-31' + INTERVAL '1' MONTH => 2024-02-29 00:00:00
TIMESTAMP '2023-01-31 10:00:00' + INTERVAL '1 month' => 2023-02-28 10:00:00
TIMESTAMP '2024-03-31 00:00:00' - INTERVAL '1 month' => 2024-02-29 00:00:00
TIMESTAMP '2024-02-29 00:00:00' - INTERVAL '1 year' => 2023-02-28 00:00:00
TIMESTAMP '2024-01-31 23:30:00' + INTERVAL '1 month 1 day 01:00' => 2024-03-02 00:30:00
INTERVAL '1 day' + TIMESTAMP '2024-02-28 12:00:00' => 2024-02-29 12:00:00
DATE '2001-09-28' + 7 => 2001-10-05
7 + DATE '2001-09-28' => 2001-10-05
DATE '2001-10-01' - 7 => 2001-09-24
DATE '2001-10-01' - DATE '2001-09-28' => 3
DATE '2001-09-28' + TIME '03:00' => 2001-09-28 03:00:00
TIME '23:30:00' + INTERVAL '1 hour' => 00:30:00
TIME '01:00' - INTERVAL '2 hours' => 23:00:00
CAST(TIMESTAMP '2001-09-29 03:00' - TIMESTAMP '2001-07-27 12:00' AS VARCHAR) => 63 days 15:00:00
CAST(TIMESTAMP '2001-07-27 12:00' - TIMESTAMP '2001-09-29 03:00' AS VARCHAR) => -63 days -15:00:00
CAST(INTERVAL '1 day' + INTERVAL '1 hour' AS VARCHAR) => 1 day 01:00:00
CAST(900 * INTERVAL '1 second' AS VARCHAR) => 00:15:00
CAST(INTERVAL '1 hour' / 1.5 AS VARCHAR) => 00:40:00
CAST(INTERVAL '1 month' / 2 AS VARCHAR) => 15 days
CAST(INTERVAL '1 year 1 month' * 1.5 AS VARCHAR) => 1 year 7 mons 15 days
CAST(1.5 * INTERVAL '1 day' AS VARCHAR) => 1 day 12:00:00
CAST(-(INTERVAL '23 hours') AS VARCHAR) => -23:00:00
CAST(INTERVAL '1 year 2 months 3 days 4 hours 5 minutes 6 seconds' AS VARCHAR) => 1 year 2 mons 3 days 04:05:06
CAST(INTERVAL '-1 year 2 days' AS VARCHAR) => -1 years +2 days
CAST('3 days ago'::interval AS VARCHAR) => -3 days
INTERVAL '1 day' = INTERVAL '24 hours' => t
INTERVAL '1 month' > INTERVAL '29 days' => t
TIMESTAMP '2024-01-02 00:00' - TIMESTAMP '2024-01-01 00:00' = '1 day' => t
TIMESTAMP '2024-01-02 00:00' - TIMESTAMP '2024-01-01 00:00' > '3600' => t
INTERVAL '1 day' IN (INTERVAL '2 days', INTERVAL '24 hours') => t
EXTRACT(CENTURY FROM TIMESTAMP '2000-12-16 12:21:13') => 20
EXTRACT(CENTURY FROM TIMESTAMP '2001-02-16 20:38:40') => 21
EXTRACT(DECADE FROM TIMESTAMP '2001-02-16 20:38:40') => 200
EXTRACT(MILLENNIUM FROM TIMESTAMP '2001-02-16 20:38:40') => 3
EXTRACT(DOY FROM TIMESTAMP '2001-02-16 20:38:40') => 47
EXTRACT(DOW FROM TIMESTAMP '2001-02-16 20:38:40') => 5
EXTRACT(ISODOW FROM TIMESTAMP '2001-02-18 20:38:40') => 7
EXTRACT(ISOYEAR FROM DATE '2006-01-01') => 2005
EXTRACT(WEEK FROM DATE '2006-01-01') => 52
EXTRACT(QUARTER FROM TIMESTAMP '2001-02-16 20:38:40') => 1
EXTRACT(EPOCH FROM TIMESTAMP '2001-02-16 20:38:40.12') => 982355920.120000
EXTRACT(SECOND FROM TIME '17:12:28.5') => 28.500000
EXTRACT(MILLISECONDS FROM TIME '17:12:28.5') => 28500.000
EXTRACT(MICROSECONDS FROM TIME '17:12:28.5') => 28500000
EXTRACT(EPOCH FROM INTERVAL '5 days 3 hours') => 442800.000000
EXTRACT(EPOCH FROM INTERVAL '1 year 1 month') => 34149600.000000
EXTRACT(HOUR FROM INTERVAL '30 hours') => 30
EXTRACT(MONTH FROM INTERVAL '2 years 13 months') => 1
EXTRACT(MONTH FROM INTERVAL '3 years 7 months') => 7
EXTRACT(DAY FROM INTERVAL '40 days 1 minute') => 40
EXTRACT(YEAR FROM DATE '2024-05-01') / 2 => 1012.000000000000000000
DATE_PART('hour', INTERVAL '4 hours 3 minutes') => 4
DATE_PART('hour', DATE '2024-05-01') => 0
COALESCE(NULL, TIMESTAMP '2024-05-01 10:00:00', '2024-06-01 00:00') => 2024-05-01 10:00:00
GREATEST('2024-06-01 00:30:00', TIMESTAMP '2024-05-01 10:00:00') => 2024-06-01 00:30:00
NULLIF(DATE '2024-05-01', '2024-05-01') => NULL
CASE WHEN FALSE THEN TIMESTAMP '2024-05-01 10:00:00' ELSE '2024-06-01 00:30' END => 2024-06-01 00:30:00
CASE WHEN TRUE THEN '2024-06-01' ELSE DATE '2024-05-01' END => 2024-06-01
DATE_PART('epoch', TIMESTAMP '1970-01-01 00:00:01.5') => 1.5
DATE_TRUNC('hour', TIMESTAMP '2001-02-16 20:38:40') => 2001-02-16 20:00:00
DATE_TRUNC('year', TIMESTAMP '2001-02-16 20:38:40') => 2001-01-01 00:00:00
DATE_TRUNC('week', TIMESTAMP '2024-05-05 20:38:40') => 2024-04-29 00:00:00
DATE_TRUNC('quarter', DATE '2024-06-30') => 2024-04-01 00:00:00
DATE_TRUNC('decade', TIMESTAMP '2019-02-16 20:38:40') => 2010-01-01 00:00:00
DATE_TRUNC('century', TIMESTAMP '2000-02-16 20:38:40') => 1901-01-01 00:00:00
MAKE_DATE(2013, 7, 15) => 2013-07-15
MAKE_TIME(8, 15, 23.5) => 08:15:23.5
MAKE_TIMESTAMP(2013, 7, 15, 8, 15, 23.5) => 2013-07-15 08:15:23.5
TO_CHAR(TIMESTAMP '2002-04-20 17:31:12.66', 'HH12:MI:SS') => 05:31:12
TO_CHAR(TIMESTAMP '2002-04-20 17:31:12.66', 'YYYY-MM-DD HH24:MI:SS.MS') => 2002-04-20 17:31:12.660
TO_CHAR(TIMESTAMP '2002-04-20 17:31:12.66', 'Day, DD  HH12:MI:SS') => Saturday , 20  05:31:12
TO_CHAR(TIMESTAMP '2002-04-06 17:31:12', 'FMDay, FMDD  HH12:MI:SS PM') => Saturday, 6  05:31:12 PM
TO_CHAR(TIMESTAMP '2002-04-01 00:31:12', 'FMDDth FMMonth YYYY, hh:mi am') => 1st April 2002, 12:31 am
TO_CHAR(TIMESTAMP '2005-01-01 00:00', 'IYYY-IW-ID Q DDD D YY SSSS') => 2004-53-6 1 001 7 05 0
TO_CHAR(TIMESTAMP '2024-11-05 00:00', '"Year": YYYY Mon dy MON') => Year: 2024 Nov tue NOV
TO_DATE('05 Dec 2000', 'DD Mon YYYY') => 2000-12-05
TO_TIMESTAMP('2024-02-29 23:59:58', 'YYYY-MM-DD HH24:MI:SS') => 2024-02-29 23:59:58+00
TO_TIMESTAMP(1284352323) => 2010-09-13 04:32:03+00
TO_TIMESTAMP(1284352323.5) => 2010-09-13 04:32:03.5+00
TO_TIMESTAMP(0.0001) => 1970-01-01 00:00:00.0001+00
TO_TIMESTAMP(1262349296.7890123) => 2010-01-01 12:34:56.789012+00
TO_TIMESTAMP(1262349296.7890125) => 2010-01-01 12:34:56.789012+00
'2022-10-01 12:00:00-08:00'::timestamptz => 2022-10-01 20:00:00+00
'2022-10-01T12:00:00Z'::timestamp with time zone => 2022-10-01 12:00:00+00
'2023-11-05 01:40-07:00'::timestamptz => 2023-11-05 08:40:00+00
'2022-01-01'::timestamptz => 2022-01-01 00:00:00+00
'2022-07-01 12:00 Europe/Oslo'::timestamptz => 2022-07-01 10:00:00+00
'2022-10-01 12:00:00+02'::timestamptz::timestamp => 2022-10-01 10:00:00
'2022-10-01 00:30:00+02'::timestamptz::date => 2022-09-30
DATE '2022-10-01'::timestamptz => 2022-10-01 00:00:00+00
'2022-10-01 12:00:00+01:00'::timestamptz BETWEEN '2022-10-01T10:59:59Z' AND '2022-10-01T11:00:01Z' => t
'2022-10-01 12:00:00+01'::timestamptz = TIMESTAMP '2022-10-01 11:00:00' => t
'2022-10-01 12:00:00+01'::timestamptz IN ('2022-10-01 11:00Z', NULL) => t
'2022-03-13 09:00:00Z'::timestamptz + INTERVAL '1' DAY - INTERVAL '24' HOUR => 2022-03-13 09:00:00+00
CAST(TO_TIMESTAMP(1672535000) - TO_TIMESTAMP(1672530000) AS VARCHAR) => 01:23:20
EXTRACT(EPOCH FROM '2010-01-01 12:34:56.789Z'::timestamptz) => 1262349296.789000
DATE_TRUNC('day', '2022-10-01 12:00:00Z'::timestamptz) => 2022-10-01 00:00:00+00
TIMESTAMP '2001-02-16 20:38:40' AT TIME ZONE 'America/Denver' => 2001-02-17 03:38:40+00
'2001-02-16 20:38:40-05'::timestamptz AT TIME ZONE 'America/Denver' => 2001-02-16 18:38:40
TIMESTAMP '2023-11-05 01:30:00' AT TIME ZONE 'America/New_York' => 2023-11-05 06:30:00+00
TIMESTAMP '2023-03-12 02:30:00' AT TIME ZONE 'America/New_York' => 2023-03-12 07:30:00+00
'2022-10-01 12:00:00+02' > TIMESTAMP '2022-10-01 11:00:00' => t
TO_CHAR('2022-10-01 12:00:00+02'::timestamptz, 'HH24:MI') => 10:00
SUBSTRING('Thomas' FROM 2 FOR 3) => hom
SUBSTRING('Thomas' FROM 0 FOR 3) => Th
SUBSTRING('Thomas' FROM -2 FOR 5) => Th
SUBSTRING('Thomas' FOR 2) => Th
SUBSTR('alphabet', 3) => phabet
POSITION('om' IN 'Thomas') => 3
POSITION('' IN 'abc') => 1
STRPOS('high', 'ig') => 2
OVERLAY('Txxxxas' PLACING 'hom' FROM 2 FOR 4) => Thomas
OVERLAY('abcdef' PLACING 'XY' FROM 3) => abXYef
TRIM(BOTH 'xyz' FROM 'yxTomxx') => Tom
TRIM(LEADING 'x' FROM 'xxTomxx') => Tomxx
TRIM(TRAILING FROM 'Tom  ') || '.' => Tom.
BTRIM('xyxtrimyyx', 'xyz') => trim
LPAD('hi', 5, 'xy') => xyxhi
RPAD('hi', 5, 'xy') => hixyx
LPAD('hello', 2) => he
LPAD('hi', 4) => '  hi'
LPAD('hi', -1) || '.' => .
RPAD('hi', 5, '') => hi
SPLIT_PART('abc~@~def~@~ghi', '~@~', 2) => def
SPLIT_PART('abc,def,ghi,jkl', ',', -2) => ghi
SPLIT_PART('a', '', 1) => a
REPLACE('abcdefabcdef', 'cd', 'XX') => abXXefabXXef
REPLACE('abc', '', 'x') => abc
REVERSE('abcde') => edcba
REPEAT('Pg', 4) => PgPgPgPg
STARTS_WITH('alphabet', 'alph') => t
INITCAP('hi THOMAS o''neil-x') => Hi Thomas O'Neil-X
ASCII('x') => 120
CHR(65) => A
LEFT('abcde', 2) => ab
LEFT('abcde', -2) => abc
LEFT('abcde', -9) || '.' => .
RIGHT('abcde', 2) => de
RIGHT('abcde', -2) => cde
RIGHT('abcde', 0) || '.' => .
CHAR_LENGTH('jose') => 4
OCTET_LENGTH('josé') => 5
BIT_LENGTH('jose') => 32
TRANSLATE('12345', '143', 'ax') => a2x5
CONCAT('abcde', 2, NULL, 22, TRUE, 1.50, 2e0) => abcde222t1.502
CONCAT_WS(',', 'abcde', 2, NULL, 22) => abcde,2,22
CONCAT_WS(NULL, 'a', 'b') => NULL
MD5('abc') => 900150983cd24fb0d6963f7d28e17f72
ENCODE(SHA256('hello'::bytea), 'hex') => 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
ENCODE('123\000\001'::bytea, 'base64') => MTIzAAE=
ENCODE('12\000\377'::bytea, 'escape') => 12\000\377
DECODE('MTIzAAE=', 'base64') => \x3132330001
TO_HEX(2147483647) => 7fffffff
'abc' ILIKE 'AB_' => t
'abc' NOT ILIKE 'a%' => f
'abc' SIMILAR TO 'abc' => t
'abc' SIMILAR TO 'a' => f
'abc' SIMILAR TO '%(b|d)%' => t
'abc' SIMILAR TO '(b|c)%' => f
'a.c' SIMILAR TO 'a.c' AND NOT 'abc' SIMILAR TO 'a.c' => t
'thomas' ~ '.*thom.*' => t
'thomas' ~* 'T.*ma' => t
'thomas' !~ 't.*max' => t
'thomas' !~* 'T.*ma' => f
'a1' ~ '^[[:alpha:]][[:digit:]]$' => t
E'ab\n' ~ 'b$' => f
REGEXP_REPLACE('Thomas', '.[mN]a.', 'M') => ThM
REGEXP_REPLACE('foobarbaz', 'b(..)', 'X\1Y', 'g') => fooXarYXazY
REGEXP_LIKE('Hello World', 'world$', 'i') => t
ROUND(42.4382, 2) => 42.44
ROUND(1234.56, -1) => 1230
ROUND(-2.5) => -3
ROUND(2.5) => 3
ROUND(2.5e0) => 2
ROUND(3.5e0) => 4
ROUND(42, 1) => 42
TRUNC(42.8) => 42
TRUNC(-42.8e0) => -42
TRUNC(42.4382, 2) => 42.43
CEIL(-42.8) => -42
CEIL(42.2e0) => 43
FLOOR(-42.8) => -43
ABS(-17.4) => 17.4
SIGN(-8.4) => -1
SQRT(2e0) => 1.4142135623730951
SQRT(2.25) => 1.500000000000000000
LN(2.0) => 0.693147180559945309
LOG(100e0) => 2
LOG(2.0, 64.0) => 6.000000000000000000
EXP(1e0) => 2.718281828459045
POWER(9e0, 3e0) => 729
2.0 ^ 3 => 8.000000000000000000
2 ^ 10 => 1024
2 ^ 3 ^ 3 => 512
MOD(9, 4) => 1
-7 % 3 => -1
7 / 2 => 3
-7 / 2 => -3
PI() => 3.141592653589793
GREATEST(1, NULL, 2.5) => 2.5
LEAST('b', 'a', NULL) => a
COALESCE(NULL, NULL, 1.5) => 1.5
NULLIF(1, 1) => NULL
5 BETWEEN SYMMETRIC 10 AND 1 => t
5 NOT BETWEEN SYMMETRIC 10 AND 1 => f
'2022-01-31 10:00:00+08:00'::timestamp => 2022-01-31 10:00:00
'2022-1-5'::date => 2022-01-05
'08:00'::time::varchar => 08:00:00
'yes'::boolean => t
'\xDeAdBeEf'::bytea => \xdeadbeef
'\x De Ad Be Ef '::bytea => \xdeadbeef
'De\123dBeEf'::bytea => \x4465536442654566
'De\\678dBeEf'::bytea => \x44655c3637386442654566
'a'::varchar::bytea::varchar => \x61
'1.23e-3'::double precision => 0.00123
' -inF '::double precision => -Infinity
'abcdef'::varchar(3) => abc
32767::smallint => 32767
ARRAY_TO_STRING(ARRAY[1, 2, NULL, 3], ',') => 1,2,3
ARRAY_TO_STRING(ARRAY[1, 2, NULL], ',', '*') => 1,2,*
STRING_TO_ARRAY('xx~~yy~~zz', '~~', 'yy')::varchar => {xx,NULL,zz}
ARRAY_LENGTH(ARRAY[1, 2, 3], 1) => 3
ARRAY[NULL]::double precision[]::varchar => {NULL}
ARRAY['1', '2', NULL]::int[]::varchar => {1,2,NULL}
ARRAY[1.4, 2.5, 3.6]::int[]::varchar => {1,3,4}
(ARRAY[10, 20, 30])[1] => 10
(ARRAY[10, 20, 30])[-1] => NULL
(ARRAY[10, 20, 30])[0] => NULL
(ARRAY[10, 20, 30])[4] => NULL
((ARRAY[1, NULL, 2])[:2])::varchar => {1,NULL}
((ARRAY[1, NULL, 2])[-1:])::varchar => {1,NULL,2}
((ARRAY[1, NULL, 2])[2:999])::varchar => {NULL,2}
((ARRAY[1, NULL, 2])[3:1])::varchar => {}
((ARRAY[1, NULL, 2])[:-1])::varchar => {}
REGEXP_MATCH('foobarbequebaz', '(bar)(beque)')::varchar => {bar,beque}
(REGEXP_MATCH('a&channel_id=7', '(&|^)channel_id=([^&]*)'))[2] => 7
(1, 2) = (1, 2) => t
(1, NULL) = (1, 2) => NULL
(1, NULL) = (2, 2) => f
(1, 2) IN ((3, 4), (1, 2)) => t
(1, 2) NOT IN ((3, 4), (1, NULL)) => NULL
ROW(1, 'a b', NULL)::varchar => (1,"a b",)
CAST(ROW(1, 2) AS STRUCT<i BIGINT, j VARCHAR>)::varchar => (1,2)
ARRAY[1, NULL, 3]::varchar => {1,NULL,3}
ARRAY[NULL]::varchar => {NULL}
ARRAY[1, 2] < ARRAY[1, 2, 0] => t
ARRAY[1, NULL] > ARRAY[1, 9] => t
ARRAY[1, NULL] <= ARRAY[1, NULL] => t
ARRAY['b'] >= ARRAY['a', 'c'] => t
ARRAY[ARRAY[2]] < ARRAY[ARRAY[1], ARRAY[3]] => f
ARRAY['a b', '', 'x']::varchar => {"a b","",x}
ARRAY[TRUE, FALSE]::varchar => {t,f}
"""
ERRORS = """
'2022-02-30'::date | '2022'::date | '2022-13-01 00:00'::timestamp | '25:00'::time | '0'::timestamp | 'maybe'::boolean | 'x'::double precision | '1e999'::double precision
'\\xDeAdBeEx'::bytea | '\\x123'::bytea | 40000::smallint | '00:00:00.1234567'::time | SUBSTRING('a' FROM 1 FOR -1) | SPLIT_PART('a', ',', 0)
'0'::timestamptz | '2022-10-01 12:00 Nowhere/At_All'::timestamptz | TO_TIMESTAMP(0.1 / 1000) | CHR(0) | SQRT(-1.0) | LN(0.0) | LOG(0e0) | ACOS(2e0) | POWER(0e0, -1e0) | POWER(-8e0, 0.5e0) | EXP(1000e0) | 1 / 0 | MOD(1, 0) | ABS(-2147483648)
DATE_TRUNC('fortnight', TIMESTAMP '2024-01-01 00:00:00') | MAKE_DATE(2023, 2, 29) | MAKE_TIME(24, 0, 0) | TO_DATE('2024-13-01', 'YYYY-MM-DD') | TO_CHAR(TIMESTAMP '2024-01-01', 'TMDay')
'a' ~ '(' | 'a' ~ '[[:nothing:]]' | 'a' ~ '(?<=b)a' | DECODE('zz', 'hex') | ENCODE('a'::bytea, 'rot13') | DATE '2024-01-01' + 2000000000 | TIMESTAMP '2024-01-01' + INTERVAL '400000 years'
INTERVAL '1 day' / 0 = INTERVAL '1 day' | OVERLAY('abc' PLACING 'x' FROM 0)
"""
REFUSED = {
    "ARRAY[ts - tt]": "INTERVAL as an argument of ARRAY",
    "NULLIF(ts - tt, INTERVAL '1 day')": "INTERVAL as an argument of NULLIF",
    "NOW()": "NOW, which gives another value each time, in a view",
    "ts > CURRENT_TIMESTAMP": "CURRENT_TIMESTAMP, which gives another value each time",
    "d + CURRENT_DATE - CURRENT_DATE": "CURRENT_DATE, which gives another value each time",
    "CURRENT_DATE - d": "CURRENT_DATE",
    "EXTRACT(HOUR FROM d)": 'unit "hour" not supported for type date',
    "DATE_PART('fortnight', ts)": 'unit "fortnight" not supported for type timestamp',
    "EXTRACT(fortnight FROM ts)": 'unit "fortnight" not supported for type timestamp',
    "ROUND(x, 2)": "does not accept parameters (DOUBLE PRECISION, INT)",
    "ts + 1": "unsupported arithmetic types: TIMESTAMP + INT",
    "ts + tt": "unsupported arithmetic types: TIMESTAMP + TIMESTAMP",
    "ts * INTERVAL '1 day'": "unsupported arithmetic types: TIMESTAMP * INTERVAL",
    "CAST(n AS INTERVAL)": "the type INTERVAL",
    "CAST(s AS CHAR(3))": "CHAR(n)",
    "GREATEST(ts, n)": "operator does not exist",
    "DATETRUNC('day', ts)": "DATE_TRUNC",
    "MOD(n)": "two operands",
    "MOD(n, n, n)": "two operands",
}


def test_values_are_postgresqls() -> None:
    cases = [line.rsplit(" => ", 1) for line in POSTGRESQL.strip().splitlines()]
    exprs = bound(*(text for text, _ in cases))
    found = [shown(v, e.type) for v, e in zip(evaluated(exprs), exprs, strict=True)]
    wrong = [
        f"{text} is {f}, not {wanted}"
        for (text, wanted), f in zip(cases, found, strict=True)
        if f != (wanted[1:-1] if wanted.startswith("'") else wanted)
    ]
    assert not wrong, "\n".join(wrong)


def refusal(text: str) -> tuple[Diagnostic, ...]:
    try:
        bound(text)
    except CompileError as error:
        return error.diagnostics
    return ()


@pytest.mark.parametrize("text", [t.strip() for line in ERRORS.strip().splitlines() for t in line.split(" | ")])
def test_constants_that_fail_are_refused(text: str) -> None:
    """As every row would fail."""
    pattern = {"'a' ~ '('": "FQ2062", "'a' ~ '[[:nothing:]]'": "FQ2062", "'a' ~ '(?<=b)a'": "FQ2061"}
    assert [d.code for d in refusal(text)] == [pattern.get(text, "FQ2026")], refusal(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_meaning_is_refused_by_its_name(text: str) -> None:
    (found, *_) = refusal(text)
    assert REFUSED[text] in f"{found.title} {found.help}"
    assert found.span.line


def test_a_group_may_be_an_interval() -> None:
    query = "SELECT ts - tt AS w, COUNT(*) FROM r GROUP BY ts - tt"
    source = "CREATE STREAM r (k INT, ts TIMESTAMP, tt TIMESTAMP) WITH (kafka_topic='r', value_format='JSON');"
    made = compile_project([SourceText("q.sql", f"{source} CREATE VIEW v AS {query};")], dialect="standard")
    assert made.ok, made.diagnostics


def test_ksqldb_has_none_of_them() -> None:
    source = "CREATE STREAM r (k INT, t TIMESTAMP) WITH (kafka_topic='r', value_format='JSON');"
    for text in ("DATE_TRUNC('day', t)", "SPLIT_PART('a', 'b', 1)", "TO_CHAR(t, 'YYYY')"):
        made = compile_project([SourceText("q.sql", f"{source} CREATE STREAM q AS SELECT {text} AS x FROM r;")])
        assert [d.code for d in made.diagnostics] == ["FQ2006"], text


# --- as values of columns ---

TABLE = "CREATE TABLE a (c STRUCT<i STRUCT<a INT>, j INT>, b BYTEA);"


def written(values: str) -> tuple[tuple[Any, ...], tuple[Diagnostic, ...]]:
    """The values of an INSERT, or what it is refused for."""
    made = compile_project([SourceText("i.sql", f"{TABLE} INSERT INTO a VALUES {values};")], dialect="standard")
    rows = [
        [v.value if isinstance(v, Literal) else evaluated([v], ())[0] for v in row]
        for change in made.plan.changes
        for row in change.rows
    ]
    return tuple(map(tuple, rows)), made.diagnostics


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ("(ROW(ROW(3), 4), '\\x12CD')", ({"i": {"a": 3}, "j": 4}, b"\x12\xcd")),
        ("((ROW(NULL), '7'), 'fgh')", ({"i": {"a": None}, "j": 7}, b"fgh")),
        ("(ROW(NULL, 1), NULL)", ({"i": None, "j": 1}, None)),
    ],
)
def test_a_row_is_a_struct_by_places(values: str, wanted: tuple[Any, ...]) -> None:
    assert written(values) == ((wanted,), ())


@pytest.mark.parametrize("values", ["(1, NULL)", "(ROW(1, 2), NULL)", "(ROW(ROW(1, 2), 3), NULL)", "(NULL, 5)", "(ROW(3), NULL)"])  # fmt: skip
def test_a_row_of_another_shape_is_refused(values: str) -> None:
    _, found = written(values)
    assert [d.code for d in found] == ["FQ2005"]


# --- against DuckDB, over rows with NULL in each position ---

_MS = 86_400_000
_VALUES: dict[str, list[Any]] = {
    "ts": [None, 0, 951782400000, 1709251199123, -86400001, 4102444799999],
    "tt": [None, 1706659200000, 1709164800500],
    "d": [None, 0, 11016, 19782, 19753, -800],
    "e": [None, 19782, -1],
    "c": [None, 0, 86_399_999, 41_523_500],
    "s": [None, "", "abc", "a.b.c", "xxAbxx"],
    "u": [None, "b", ".", "x"],
    "n": [None, 0, 1, 3, -2],
    "x": [None, 2.5, -0.4, 1e10],
    "m": [None, Decimal("2.500"), Decimal("-1234.567")],
}  # fmt: skip
SAME_IN_DUCKDB = """
ts + INTERVAL '1 month' | ts - INTERVAL '13 months' | ts + INTERVAL '1 day 02:03:04' | d + INTERVAL '1 year' | ts + n * INTERVAL '1 hour' | d + n | d - n | d - e
c + INTERVAL '25 hours' | ts < tt + INTERVAL '24 years' | NOT (ts - tt > INTERVAL '1 day') | CASE WHEN ts - tt > INTERVAL '1 day' THEN 1 ELSE 0 END
EXTRACT(YEAR FROM ts) | EXTRACT(MONTH FROM d) | EXTRACT(DAY FROM ts) | EXTRACT(DOW FROM ts) | EXTRACT(ISODOW FROM d) | EXTRACT(DOY FROM ts) | EXTRACT(WEEK FROM d)
EXTRACT(ISOYEAR FROM ts) | EXTRACT(QUARTER FROM d) | EXTRACT(HOUR FROM ts) | EXTRACT(MINUTE FROM c) | EXTRACT(EPOCH FROM ts) | EXTRACT(DECADE FROM ts) | EXTRACT(CENTURY FROM ts)
DATE_TRUNC('week', ts) | DATE_TRUNC('month', ts) | DATE_TRUNC('quarter', ts) | DATE_TRUNC('year', ts) | DATE_TRUNC('hour', ts) | DATE_TRUNC('minute', ts) IN (tt, NULL)
SUBSTRING(s FROM 2 FOR 2) | POSITION(u IN s) | TRIM(s) | LTRIM(s, 'x') | RTRIM(s, u) | LPAD(s, 5, u) | RPAD(s, n, 'z') | SPLIT_PART(s, u, 1) | REPLACE(s, u, '-') | REVERSE(s)
REPEAT(s, n) | LEFT(s, n) | RIGHT(s, n) | CONCAT(s, u, NULL) | CONCAT_WS(u, s, 'q', NULL) | STARTS_WITH(s, u) | s ILIKE 'AB%' | s NOT ILIKE '%B%' | UPPER(s) | MD5(s) | TRANSLATE(s, 'ab', 'c')
ASCII(u) | GREATEST(n, 1, NULL) | LEAST(x, n) | COALESCE(n, 7) | NULLIF(n, 1) | NULLIF(s, u) | ABS(n) | ABS(m) | CEIL(x) | FLOOR(x) | FLOOR(m) | ROUND(m, 1) | TRUNC(m) | SIGN(x) | SQRT(ABS(x))
LN(ABS(x) + 1) | x ^ 2 | MOD(n, 2) | n / 2 | TO_DATE('2024-02-29', 'YYYY-MM-DD') - d | MAKE_DATE(2024, 2, 1) + n | (s ~ 'b') | NOT (s ~ '^x') | REGEXP_REPLACE(s, 'x', '-') | REGEXP_REPLACE(s, 'x+', '', 'g')
"""
# How DuckDB writes what it writes otherwise.
_IN_DUCKDB = {
    "n / 2": "n // 2",
    "(s ~ 'b')": "regexp_matches(s, 'b')",
    "NOT (s ~ '^x')": "NOT regexp_matches(s, '^x')",
    "TO_DATE('2024-02-29', 'YYYY-MM-DD') - d": "DATE '2024-02-29' - d",
    "EXTRACT(EPOCH FROM ts)": "epoch_ms(ts) / 1000",
}


def rows() -> list[tuple[Any, ...]]:
    """Each column's values against those of its partner, NULL among them."""
    found = []
    longest = max(map(len, _VALUES.values()))
    for i, j in itertools.product(range(longest), repeat=2):
        row = {name: v[(i if at % 2 == 0 else j) % len(v)] for at, (name, v) in enumerate(_VALUES.items())}
        found.append((i * longest + j, *row.values()))
    return found


def alike(a: Any, b: Any) -> bool:
    """Numbers to twelve digits."""
    if isinstance(a, (int, float, Decimal)) and isinstance(b, (int, float, Decimal)) and not isinstance(a, bool):
        return f"{float(a):.12g}" == f"{float(b):.12g}"
    return bool(a == b)


def test_values_are_those_of_another_database() -> None:
    texts = [t.strip() for line in SAME_IN_DUCKDB.strip().splitlines() for t in line.split(" | ")]
    exprs, made = bound(*texts), rows()
    table = pa.table(
        [pa.array(v, arrow_type(t)) for v, t in zip(zip(*made, strict=True), COLUMNS.values(), strict=True)], list(COLUMNS)
    )  # fmt: skip
    db = duckdb.connect()
    db.register("r", table)
    items = ", ".join(f"{_IN_DUCKDB.get(t, t)} AS x{i}" for i, t in enumerate(texts))
    answers = [c.to_pylist() for c in db.sql(f"SELECT {items} FROM r ORDER BY k").to_arrow_table().columns]
    kernel = list(zip(*(evaluated(exprs, row) for row in made), strict=True))
    wrong = []
    for text, e, ours, theirs in zip(texts, exprs, kernel, answers, strict=True):
        theirs_as = pa.array(ours, arrow_type(e.type)).to_pylist() if e.type.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIME) else ours  # fmt: skip
        wrong += [f"{text} of {r}: {a}, not {b}" for r, a, b in zip(made, theirs_as, theirs, strict=True) if not alike(a, b)][:1]  # fmt: skip
    assert not wrong, "\n".join(wrong)


def test_the_calendar_is_one_to_one() -> None:
    for day in [*range(DAY_MIN, DAY_MIN + 800), *range(-1000, 1000), *range(DAY_MAX - 800, DAY_MAX), *range(-700_000, 700_000, 997)]:  # fmt: skip
        assert day_of(*civil(day)) == day
        if -719_162 <= day <= 2_932_896:
            assert civil(months_later(day, 1))[1] == civil(day)[1] % 12 + 1


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e400", "1e-50", "1_0", "", "1e99999999999"])
def test_a_numeric_constant_that_no_column_holds_is_refused(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        bound(f"NUMERIC '{text}'")
    assert "FQ1004" in {d.code for d in caught.value.diagnostics}


def test_jsonb_is_read_once_however_many_keys_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read for each key: 5,000 elements and 65,536 keys took 32 s."""
    reads: list[str] = []
    read = sql_jsonb.read_json
    monkeypatch.setattr(sql_jsonb, "read_json", lambda text: reads.append(text) or read(text))
    for value, keys, wanted in (
        ('["a", 1]', ["x", None, "a"], True),
        ('{"a": 1}', ["x", "1"], False),
        ("1", ["1"], False),
    ):
        call = Call(BOOLEAN, "sql_jsonb_has_any", (Literal(JSONB, value), Literal(array(STRING), keys)))
        assert compile_row([call], [])(()) == (wanted,)
    assert len(reads) == 3

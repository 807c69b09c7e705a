"""Expressions of dialects whose engines are not here, with the values that their documentation gives: the translation has the same ones."""

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.foreign.scripts import translated
from tests.slt.session import Shape, SqlSession

VALUES = {
    "snowflake": (
        ("IFF(TRUE, 'a', 'b')", "a"), ("DATEDIFF(year, '2019-12-31'::DATE, '2020-01-01'::DATE)", "1"), ("DATEDIFF(month, '2021-01-31'::DATE, '2021-02-01'::DATE)", "1"),
        ("DATEDIFF(hour, '2013-05-08 23:39:20'::TIMESTAMP, '2013-05-09 00:10:00'::TIMESTAMP)", "1"), ("DATEADD(month, 1, '2000-01-31'::DATE)", "2000-02-29"),
        ("DATE_TRUNC('week', '2024-05-05'::DATE)", "2024-04-29"), ("7 / 2", "3.500000"), ("2 / 3", "0.666667"), ("ZEROIFNULL(NULL::INT)", "0"), ("NVL2(NULL::INT, 'a', 'b')", "b"),
        ("DAYOFWEEK('2024-05-05'::DATE)", "0"), ("CONCAT('a', NULL)", None), ("GREATEST(1, NULL::INT)", None), ("CONTAINS('abc', 'b')", "listed"),
        ("DIV0(5, 0)", "0.000000"), ("SPLIT_PART('127.0.0.1', '.', 1)", "127"), ("LEFT('ABCDEF', 3)", "ABC"), ("SUBSTR('testing 1 2 3', 9, 5)", "1 2 3"),
        ("PARSE_JSON('{\"a\": 1}')", "listed"), ("TO_CHAR(12345.67)", "listed"), ("2.5::FLOAT::INT", "listed"), ("REGEXP_LIKE('a', 'b')", "listed"), ("'a' LIKE 'a\\\\_'", "f"),
    ),
    "bigquery": (
        ("SAFE_DIVIDE(20, 4)", "5.0"), ("SAFE_DIVIDE(0, 20)", "0.0"), ("SAFE_DIVIDE(20, 0)", None), ("7 / 2", "3.5"), ("DIV(20, 6)", "3"), ("MOD(25, 12)", "1"),
        ("DATE_DIFF(DATE '2010-07-07', DATE '2008-12-25', DAY)", "559"), ("DATE_DIFF(DATE '2017-12-18', DATE '2017-12-17', ISOWEEK)", "1"), ("DATE_DIFF(DATE '2017-10-15', DATE '2017-10-14', WEEK)", "listed"),
        ("DATE_TRUNC(DATE '2008-12-25', MONTH)", "2008-12-01"), ("DATE_TRUNC(DATE '2017-11-07', WEEK)", "2017-11-05"), ("DATE_TRUNC(DATE '2017-11-05', WEEK(MONDAY))", "2017-10-30"),
        ("DATE_ADD(DATE '2008-12-25', INTERVAL 5 DAY)", "2008-12-30"), ("DATE_SUB(DATE '2008-12-25', INTERVAL 5 DAY)", "2008-12-20"), ("EXTRACT(DAYOFWEEK FROM DATE '2024-05-05')", "1"),
        ("TIMESTAMP_DIFF(TIMESTAMP '2010-07-07 10:20:00+00', TIMESTAMP '2008-12-25 15:30:00+00', HOUR)", "13410"), ("FORMAT_DATE('%Y%m%d', DATE '2008-12-25')", "20081225"),
        ("IF(1 > 2, 'a', 'b')", "b"), ("DATETIME_DIFF(DATETIME '2017-10-15 00:00:00', DATETIME '2017-10-14 23:00:00', DAY)", "1"), ("DATETIME_DIFF(DATETIME '2017-10-15 01:10:00', DATETIME '2017-10-15 00:50:00', HOUR)", "1"), ("SAFE_CAST('apple' AS INT64)", None), ("CONCAT('T.P.', ' ', 'Bar')", "T.P. Bar"), ("LEAST(1, NULL)", None), ("STRPOS('foo@example.com', '@')", "4"),
        ("SUBSTR('apple', 2, 2)", "pp"), ("SUBSTR('apple', -2)", "listed"), ("TRIM('\\t a ')", "a"), ("CAST(2.5 AS INT64)", "listed"), ("ROUND(2.5)", "listed"), ("[10, 20][OFFSET(1)]", "20"),
    ),
    "spark": (
        ("7 / 2", "3.5"), ("7 DIV 2", "3"), ("datediff('2009-07-31', '2009-07-30')", "1"), ("date_add('2016-07-30', 1)", "2016-07-31"), ("date_format(CAST('2016-04-08' AS DATE), 'yyyy')", "2016"),
        ("dayofweek(CAST('2009-07-30' AS DATE))", "5"), ("weekofyear(CAST('2008-02-20' AS DATE))", "8"), ("NULL <=> NULL", "t"), ("nvl(NULL, 'x')", "x"), ("datediff(HOUR, CAST('2024-01-01 10:30:00' AS TIMESTAMP), CAST('2024-01-01 12:00:00' AS TIMESTAMP))", "1"), ("count(DISTINCT 1, 2)", "listed"), ("if(1 < 2, 'a', 'b')", "a"),
        ("CAST(2.9 AS INT)", "2"), ("concat('Spark', 'SQL')", "SparkSQL"), ("concat_ws('-', 'a', NULL, 'b')", "listed"), ("instr('SparkSQL', 'SQL')", "6"), ("substring('Spark SQL', 5)", "k SQL"),
        ("substring('Spark SQL', -3)", "listed"), ("trunc(CAST('2009-02-12' AS DATE), 'MM')", "2009-02-01"), ("greatest(10, NULL, 3)", "10"), ("array(1, 2)[0]", "1"), ("rlike('a', 'b')", "listed"),
        ("months_between('1997-02-28', '1996-10-30')", "listed"), ("size(array('b', 'd'))", "2"), ("date_trunc('WEEK', CAST('2024-05-05' AS TIMESTAMP))", "2024-04-29 00:00:00+00"),
    ),
    "trino": (
        ("7 / 2", "3"), ("date_diff('second', TIMESTAMP '2020-03-01 00:00:00', TIMESTAMP '2020-03-02 00:00:00')", "86400"), ("date_diff('day', DATE '2020-03-01', DATE '2020-03-02')", "1"),
        ("date_diff('day', TIMESTAMP '2020-03-01 12:00:00', TIMESTAMP '2020-03-02 11:00:00')", "0"), ("date_add('month', 1, DATE '2024-01-31')", "2024-02-29"), ("day_of_week(DATE '2024-05-05')", "7"),
        ("date_trunc('month', DATE '2022-10-20')", "2022-10-01"), ("date_format(TIMESTAMP '2022-10-20 05:10:00', '%m-%d-%Y %H')", "10-20-2022 05"), ("try_cast('x' AS integer)", None), ("try(1 / 0)", None),
        ("json_extract_scalar('[1, 2, 3]', '$[2]')", "3"), ("json_extract_scalar('{\"a\": [1]}', '$.a')", None), ("if(true, 1, 2)", "1"), ("concat('a', NULL)", None), ("strpos('high', 'ig')", "2"),
        ("substr('abc', -1)", "listed"), ("greatest(1, NULL)", None), ("cardinality(ARRAY[1, 2])", "2"), ("ARRAY[10, 20][2]", "20"), ("element_at(ARRAY[10, 20], 1)", "10"), ("coalesce(NULL, 3)", "3"),
        ("round(1.5e0)", "listed"), ("DATE '2024-01-31' + INTERVAL '1' DAY", "2024-02-01"), ("cast(2.5e0 AS integer)", "listed"), ("split('a,b', ',')", "listed"), ("trim('\u2003 a ')", "a"),
    ),
    "flink": (
        ("7 / 2", "3"), ("TIMESTAMPDIFF(DAY, TIMESTAMP '2003-01-02 10:00:00', TIMESTAMP '2003-01-03 10:00:00')", "1"), ("DATE_FORMAT(TIMESTAMP '2024-05-05 01:02:03', 'yyyy-MM-dd HH:mm')", "2024-05-05 01:02"),
        ("CAST(2.9 AS INT)", "2"), ("COALESCE(NULL, 5)", "5"), ("CHAR_LENGTH('abc')", "3"), ("UPPER('a')", "A"), ("CONCAT('AA', CAST(NULL AS STRING))", None), ("GREATEST(1, CAST(NULL AS INT))", None),
        ("EXTRACT(DAY FROM DATE '2006-06-05')", "5"), ("SUBSTRING('abc' FROM -1)", "listed"), ("ROUND(2.5, 0)", "3"), ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "listed"), ("IF(1 > 0, 'a', 'b')", "a"),
    ),
    "risingwave": (("7 / 2", "3"), ("date_part('year', TIMESTAMP '2024-05-05 00:00:00')::int", "2024"), ("split_part('a-b', '-', 2)", "b"), ("1e3::int", "1000"), ("jsonb_typeof('[]'::jsonb)", "array"), ("'a' || NULL", None)),
    "materialize": (("7 / 2", "3"), ("('{\"a\": {\"b\": 5}}'::jsonb)->'a'->>'b'", "5"), ("date_trunc('week', TIMESTAMP '2024-05-05 00:00:00')", "2024-04-29 00:00:00"), ("position('b' in 'abc')", "2")),
    "postgres": (("1e2 / 3 > 33.333333333333", "t"), ("'[1, 2]'::jsonb -> 1", "2"), ("'{\"a\": 1}'::jsonb -> 'a'", "1"), ("to_char(DATE '2024-05-05', 'YYYY \"x\" FMMonth')", "2024 x May"), ("E'a\\tb'", "a\tb"), ("$$it's$$", "it's")),
}  # fmt: skip


@pytest.fixture(scope="module")
def world():
    session = SqlSession(Shape())
    yield session
    session.close()


@pytest.mark.parametrize("dialect", VALUES)
def test_documented_values(world, dialect):
    found = []
    for expression, value in VALUES[dialect]:
        made = translated([SourceText("", f"SELECT {expression} AS v")], dialect).outcomes[-1]
        if not made.text:
            found.append(
                (expression, "listed" if value == "listed" else made.listed[0].title + "; " + made.listed[0].why)
            )
            continue
        asked = f"SELECT CAST(v AS TEXT) AS v FROM ({made.text}) AS q"
        text = world.ask(asked).to_pylist()[0]["v"]
        found.append((expression, _as_shown(text)))
    assert found == [(e, _as_shown(v)) for e, v in VALUES[dialect]]


def _as_shown(text):
    """`5.0` and `5` are one value of a DOUBLE."""
    return {"true": "t", "false": "f"}.get(text, text.removesuffix(".0") if text is not None else None)

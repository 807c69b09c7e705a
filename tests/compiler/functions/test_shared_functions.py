"""Functions that both dialects have: in standard SQL each means what DuckDB, PostgreSQL or Flink mean by it, or is listed as ksqlDB's own.

The oracle is DuckDB's function over the same values, every combination of them. What differs on purpose: `docs/reference/dialects.md`.
"""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session, compile_project
from flowql.compiler.functions.dialects import _STANDARD
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import all_functions
from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.logical import Project, walk_nodes
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, SqlType, array, decimal
from flowql.compiler.plan.visit import substitute

# column -> type, that of DuckDB, values
VALUES: dict[str, tuple[SqlType, str, list[Any]]] = {
    "s": (STRING, "VARCHAR", [None, "", "a", "ab,c", "A b ", "ÄbI", "aXbXc", "\U0001f600x", "a%b", "  x  ", "\tq\n"]),
    "u": (STRING, "VARCHAR", [None, "", ",", "b", "X", "a_", " ", "\U0001f600"]),
    "n": (INT, "INTEGER", [None, 0, 1, 2, -1, -7, 100]),
    "m": (INT, "INTEGER", [None, 0, 1, 2, -3]),
    "x": (DOUBLE, "DOUBLE", [None, 0.0, 0.5, -2.5, 1e10, 1.0]),
    "d": (decimal(10, 3), "DECIMAL(10,3)", [None, Decimal("0.000"), Decimal("2.500"), Decimal("-2.500"), Decimal("1.005")]),
    "l": (array(INT), "INTEGER[]", [None, [], [1], [1, None, 2, 1], [None], [3, 2]]),
    "k": (array(INT), "INTEGER[]", [None, [], [1], [None, 2], [2, 5]]),
    "b": (BOOLEAN, "BOOLEAN", [None, True, False]),
    "e": (BIGINT, "BIGINT", [None, 0, 5, -1, 1709251199, 4102444799]),
}  # fmt: skip
TIME = "'%Y-%m-%d %H:%M:%S'"
DISTINCT = "(CASE WHEN l = [1, NULL, 2, 1] THEN [1, NULL, 2] ELSE l END)"
# What is written; DuckDB's expression where it is another one.
SAME = f"""
ARRAY_CONCAT(l, k) ;; CASE WHEN l IS NOT NULL OR k IS NOT NULL THEN list_concat(l, k) END
ARRAY_CONTAINS(l, n)
ARRAY_CONTAINS(l, n + m)
ARRAY_DISTINCT(l) ;; {DISTINCT}
ARRAY_EXCEPT(l, k) ;; CASE WHEN k IS NOT NULL THEN list_filter({DISTINCT}, lambda v: len(list_filter(k, lambda w: w IS NOT DISTINCT FROM v)) = 0) END
ARRAY_INTERSECT(l, k) ;; CASE WHEN k IS NOT NULL THEN list_filter({DISTINCT}, lambda v: len(list_filter(k, lambda w: w IS NOT DISTINCT FROM v)) > 0) END
ARRAY_MAX(l) ;; list_max(l)
ARRAY_MIN(l) ;; list_min(l)
ARRAY_SORT(l) ;; list_sort(l, 'ASC', 'NULLS LAST')
ARRAY_SORT(l, 'DESC') ;; list_sort(l, 'DESC', 'NULLS LAST')
ATAN(x)
ATAN2(x, n)
CARDINALITY(l) ;; len(l)
CBRT(x)
COSH(n)
SINH(n)
TANH(x)
COT(x + 0.1)
DEGREES(x)
RADIANS(x)
COALESCE(n, m, 5)
COALESCE(x, d)
COALESCE(s, u)
CONCAT(s, u, NULL)
CONCAT_WS(u, s, NULL, s)
STARTS_WITH(s, u)
ENDS_WITH(s, u)
GREATEST(n, m, 1)
LEAST(n, d)
GREATEST(s, u)
IFNULL(n, m)
IFNULL(s, u)
INSTR(s, u)
LCASE(s)
LOWER(s)
UCASE(s)
UPPER(s)
LEN(s)
LENGTH(s)
NULLIF(n, m)
NULLIF(x, d)
NULLIF(s, u)
PI()
SPLIT(s, u) ;; CASE WHEN u IS NOT NULL THEN string_split(s, u) END
REGEXP_EXTRACT(s, u) ;; CASE WHEN regexp_matches(s, u) THEN regexp_extract(s, u) END
REGEXP_EXTRACT(s, '([a-z])(X?)') ;; CASE WHEN regexp_matches(s, '[a-z]') THEN regexp_extract(s, '([a-z])(X?)', 0) END
REGEXP_EXTRACT(s, '([a-z])(X?)', 2) ;; CASE WHEN regexp_matches(s, '[a-z]') THEN regexp_extract(s, '([a-z])(X?)', 2) END
REGEXP_EXTRACT_ALL(s, '([a-z])(X?)', 1) ;; regexp_extract_all(s, '([a-z])(X?)', 1)
REGEXP_EXTRACT_ALL(s, '[bX]', 0) ;; regexp_extract_all(s, '[bX]')
REGEXP_SPLIT_TO_ARRAY(s, '[,X]') ;; regexp_split_to_array(s, '[,X]')
REGEXP_SPLIT_TO_ARRAY(s, 'x', 'i') ;; regexp_split_to_array(s, '[xX]')
REGEXP_LIKE(s, '[bX]') ;; regexp_matches(s, '[bX]')
FROM_UNIXTIME(e) ;; strftime(make_timestamp(e * 1000000), {TIME})
FROM_UNIXTIME(n) ;; strftime(make_timestamp(n * 1000000), {TIME})
FROM_UNIXTIME(e, 'yyyy/MM/dd') ;; strftime(make_timestamp(e * 1000000), '%Y/%m/%d')
UNIX_TIMESTAMP(FROM_UNIXTIME(e)) ;; e
UNIX_TIMESTAMP(FROM_UNIXTIME(e, 'dd.MM.yyyy HH:mm:ss'), 'dd.MM.yyyy HH:mm:ss') ;; e
UNIX_TIMESTAMP(CAST(FROM_UNIXTIME(e) AS TIMESTAMP)) ;; e
UNIX_DATE(DATE '1970-01-03') ;; 2
ELT(n, 'a', 'b') ;; CASE n WHEN 1 THEN 'a' WHEN 2 THEN 'b' END
FIELD(s, u, 'a') ;; coalesce(CASE WHEN s = u THEN 1 WHEN s = 'a' THEN 2 ELSE 0 END, 0)
MAP_KEYS(MAP[n, m]) ;; CASE WHEN n IS NOT NULL THEN map_keys(MAP {{n: m}}) END
n = x
n IN (m, 1, NULL)
n NOT IN (m, 1)
n BETWEEN m AND 2
n IS DISTINCT FROM m
b AND n = 1
b OR n = 1
NOT b
s LIKE u
s NOT LIKE 'a%'
s LIKE 'a!%b' ESCAPE '!'
s LIKE 'a\\%b' ;; s LIKE 'a\\%b' ESCAPE '\\'
s ILIKE 'A%'
n % m ;; CASE WHEN m <> 0 THEN n % m END
n / m ;; CASE WHEN m <> 0 THEN trunc(n / m) END
CASE WHEN b THEN 1 ELSE 2.5 END
CASE n WHEN m THEN 1 END
IF(b, 1, 2)
s || u
l = k
ROUND(d)
ROUND(d, 1)
TRIM(s)
LPAD(s, 5, 'xy')
STRPOS(s, u)
"""
# They are ksqlDB's alone, or have a meaning in which the other systems agree and no values to compare (PARSE_DATE: type and pattern).
KSQLDBS = set(
    [
        "AS_MAP",
        "AS_VALUE",
        "ARRAY_UNION",
        "BIGINT_FROM_BYTES",
        "CONVERT_TZ",
        "CUBE_EXPLODE",
        "DATEADD",
        "DATESUB",
        "DATETOSTRING",
        "DOUBLE_FROM_BYTES",
        "ENTRIES",
        "EXPLODE",
        "EXTRACTJSONFIELD",
        "FILTER",
        "FORMAT_DATE",
        "FORMAT_TIME",
        "FORMAT_TIMESTAMP",
        "FROM_BYTES",
        "FROM_DAYS",
        "GEO_DISTANCE",
        "INT_FROM_BYTES",
        "IS_JSON_STRING",
        "JSON_ARRAY_CONTAINS",
        "JSON_ARRAY_LENGTH",
        "JSON_CONCAT",
        "JSON_ITEMS",
        "JSON_KEYS",
        "JSON_RECORDS",
        "LEGACY_SUBSTRING",
        "MAP_UNION",
        "MAP_VALUES",
        "MASK",
        "MASK_KEEP_LEFT",
        "MASK_KEEP_RIGHT",
        "MASK_LEFT",
        "MASK_RIGHT",
        "PARSE_DATE",
        "PARSE_TIME",
        "PARSE_TIMESTAMP",
        "RANDOM",
        "REDUCE",
        "SPLIT_TO_MAP",
        "STRINGTODATE",
        "STRINGTOTIMESTAMP",
        "TIMEADD",
        "TIMESTAMPADD",
        "TIMESTAMPSUB",
        "TIMESTAMPTOSTRING",
        "TIMESUB",
        "TO_BYTES",
        "TO_JSON_STRING",
        "TRANSFORM",
        "URL_DECODE_PARAM",
        "URL_ENCODE_PARAM",
        "URL_EXTRACT_FRAGMENT",
        "URL_EXTRACT_HOST",
        "URL_EXTRACT_PARAMETER",
        "URL_EXTRACT_PATH",
        "URL_EXTRACT_PORT",
        "URL_EXTRACT_PROTOCOL",
        "URL_EXTRACT_QUERY",
        "UUID",
    ]
)
REFUSED = {"GENERATE_SERIES", "SERIES"}  # as values; in FROM they are PostgreSQL's


def bound(text: str) -> Expr:
    """An expression of standard SQL over VALUES. Raises CompileError."""
    session = Session(dialect="standard")
    listed = ", ".join(f"{n} {t[0]}" for n, t in VALUES.items())
    session.execute(SourceText("s.sql", f"CREATE STREAM r ({listed}) WITH (kafka_topic='r', value_format='JSON');"))
    session.execute(SourceText("q.sql", f"CREATE STREAM q AS SELECT {text} AS x0 FROM r;"))
    made: dict[str, Expr] = {}
    for project in [n.spec for n in walk_nodes(session.plan.queries[-1].logical) if isinstance(n.spec, Project)]:
        made = {c.name: substitute(c.expr, made) for c in project.columns}  # what may ask the clock has one of its own
    return made["x0"]


def plain(v: Any) -> Any:
    match v:
        case None | bool():
            return v
        case float():
            return float(f"{v:.11g}") + 0.0
        case int() | Decimal():
            return float(v)
        case list():
            return tuple(map(plain, v))
    return v


@pytest.mark.parametrize("case", SAME.strip().splitlines())
def test_a_shared_function_is_duckdbs(case: str) -> None:
    """A failing value (a division by zero) is NULL."""
    ours, _, theirs = case.partition(" ;; ")
    columns = [c for c in VALUES if re.search(rf"(?<![\w'{{]){c}(?![\w'(])", ours)]
    rows = list(itertools.product(*(VALUES[c][2] for c in columns))) or [()]
    evaluate = compile_row([bound(ours)], columns, on_error=lambda _i, _e: None)
    found = [plain(next(iter(evaluate(row)))) for row in rows]
    given = ", ".join(f"CAST(r.{c} AS {VALUES[c][1]}) AS {c}" for c in columns) or "1"
    with duckdb.connect() as connection:
        listed = f"[{', '.join('?' for _ in rows)}]"
        structs = [dict(zip(columns, row, strict=True)) or {"none": 0} for row in rows]
        wanted = connection.execute(
            f"SELECT {theirs or ours} FROM (SELECT {given} FROM (SELECT unnest({listed}) AS r))", structs
        ).fetchall()
    wrong = [(r, f, plain(w)) for r, f, (w,) in zip(rows, found, wanted, strict=True) if f != plain(w)]
    assert not wrong, f"{len(wrong)} of {len(rows)}: {wrong[:4]}"


def test_each_shared_function_was_looked_at() -> None:
    shared = {n for n in all_functions() if n.isupper() and n not in _STANDARD}
    compared = {n for n in shared if re.search(rf"\b{n}\(", SAME)}
    unseen, stale = shared - compared - KSQLDBS - REFUSED, (KSQLDBS | REFUSED) - (shared - compared)
    assert not unseen, f"{sorted(unseen)}: a line in SAME where DuckDB has the function, else the name in KSQLDBS"
    assert not stale, f"{sorted(stale)}: no function any more, or compared in SAME"


POSTGRESQL_OR_FLINK = {
    "REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)": "bar",
    "REGEXP_EXTRACT('abc', 'x')": None,
    "REGEXP_SPLIT_TO_ARRAY('the quick', '')": list("the quick"),
    "REGEXP_SPLIT_TO_ARRAY('the  quick', '\\s*')": list("thequick"),
    "REGEXP_SPLIT_TO_ARRAY('hello world', '\\s+')": ["hello", "world"],
    "FROM_UNIXTIME(1505404000)": "2017-09-14 15:46:40",
    "UNIX_TIMESTAMP('1970-01-01 00:00:01')": 1,
    "UNIX_TIMESTAMP(TIMESTAMP '1969-12-31 23:59:59.5')": -1,
    "COALESCE('5', n, 1)": 5,
    "1 IN ('1', '2')": True,
    "ARRAY['1', 2]": [1, 2],
}


@pytest.mark.parametrize("text", POSTGRESQL_OR_FLINK)
def test_values_of_other_systems(text: str) -> None:
    (value,) = compile_row([bound(text)], list(VALUES), on_error=lambda _i, _e: None)((None,) * len(VALUES))
    assert value == POSTGRESQL_OR_FLINK[text]


def diagnostics(text: str) -> tuple[Diagnostic, ...]:
    try:
        bound(text)
    except CompileError as error:
        return error.diagnostics
    return ()


MIXED = """COALESCE(s, 0) | COALESCE(0, s) | COALESCE(s, TRUE) | COALESCE('x', n) | IFNULL(s, 0) | IFNULL(0, s) | NULLIF(s, 0) | NULLIF(0, s)
GREATEST(s, 0) | LEAST(0, s) | CASE WHEN b THEN s ELSE 0 END | CASE WHEN b THEN 0 ELSE s END | CASE WHEN b THEN 'a' ELSE 0 END
CASE s WHEN 0 THEN 1 END | s IN (1, 2) | s IN ('a', 2) | 1 IN (s, 'b') | s NOT IN (1) | IF(b, s, 0) | IF(b, 0, s) | ARRAY[s, 0] | ARRAY[0, s]
MAP['a', 0, 'b', s] | s = 0 | s BETWEEN 1 AND 2 | ARRAY_APPEND(l, s) | ARRAY_CONTAINS(l, s) | LENGTH(5) | s + 1 | b = 0 | l[s]"""


@pytest.mark.parametrize("text", [t.strip() for line in MIXED.splitlines() for t in line.split(" | ")])
def test_a_text_and_a_number_have_no_common_type(text: str) -> None:
    (found, *_) = diagnostics(text)
    assert found.code == "FQ2005"
    assert found.span.line
    assert found.span.column


@pytest.mark.parametrize(
    "query",
    [
        "SELECT s FROM t UNION SELECT 0 FROM t",
        "SELECT 0 AS x FROM t UNION ALL SELECT s FROM t",
        "SELECT s FROM t EXCEPT SELECT a FROM t",
        "SELECT t.a, v.x FROM t, (VALUES (1), ('a')) AS v(x)",
        "SELECT t.a, v.x FROM t, LATERAL (VALUES (t.s), (1)) AS v(x)",
        "SELECT a, LAG(s, 1, 0) OVER (ORDER BY a) AS x FROM t",
        "SELECT a FROM t WHERE s IN (SELECT a FROM t)",
        "SELECT COALESCE(MAX(s), 0) AS x FROM t",
    ],
)
def test_views_keep_texts_and_numbers_apart(query: str) -> None:
    made = compile_project([SourceText("v.sql", f"CREATE TABLE t (a INT PRIMARY KEY, s TEXT);\nCREATE VIEW v AS {query};")], dialect="standard")  # fmt: skip
    assert [d.code for d in made.diagnostics] == ["FQ2005"], made.diagnostics
    assert made.diagnostics[0].span.line == 2


def test_ksqldb_still_makes_them_texts() -> None:
    source = "CREATE STREAM r (s STRING) WITH (kafka_topic='r', value_format='JSON');"
    for text in ("CASE WHEN s = 'a' THEN s ELSE 0 END", "s IN ('a', 2)", "REGEXP_EXTRACT('a', s)"):
        made = compile_project([SourceText("q.sql", f"{source} CREATE STREAM q AS SELECT {text} AS x FROM r;")])
        assert made.ok, (text, made.diagnostics)


@pytest.mark.parametrize(
    ("text", "code", "help"),
    [
        ("REGEXP_EXTRACT_ALL(s, 'a(.)')", "FQ2005", "REGEXP_EXTRACT_ALL(TEXT, TEXT, INT)"),
        ("REGEXP_EXTRACT('abc', 'b', 3)", "FQ2026", ""),
        ("REGEXP_EXTRACT('abc', '(?<=a)b')", "FQ2061", "in several conditions"),
        ("UNIX_TIMESTAMP()", "FQ1901", "ROWTIME"),
        ("UNIX_DATE()", "FQ1901", "ROWTIME"),
    ],
)
def test_what_systems_mean_differently_is_refused(text: str, code: str, help: str) -> None:
    (found, *_) = diagnostics(text)
    assert found.code == code
    assert help in found.help

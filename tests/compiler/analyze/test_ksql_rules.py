"""Rules of ksqlDB's dialect that its documentation gives, by class: what is refused, and what an expression that fails leaves."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Compiled, Session, compile_project
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.logical import Project, walk_nodes

SOURCES = """
CREATE STREAM S (K INT KEY, A INT, B STRING, AR ARRAY<INT>) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE SOURCE STREAM OWNED (K INT KEY, A INT) WITH (KAFKA_TOPIC='owned', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM SESSIONS (K INT KEY, A INT) WITH (KAFKA_TOPIC='w', VALUE_FORMAT='JSON', WINDOW_TYPE='SESSION', PARTITIONS=1);
CREATE STREAM TENS (K INT KEY, A INT) WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='10 SECONDS', PARTITIONS=1);
CREATE STREAM LINES (K INT KEY, A INT) WITH (KAFKA_TOPIC='l', VALUE_FORMAT='DELIMITED', PARTITIONS=1);
CREATE TABLE T (K INT PRIMARY KEY, A INT, P STRUCT<X INT>) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM FIVES (K INT KEY, A INT) WITH (KAFKA_TOPIC='y', VALUE_FORMAT='JSON', WINDOW_TYPE='HOPPING', WINDOW_SIZE='5 SECONDS', PARTITIONS=1);
"""
HEADERS = "ARRAY<STRUCT<KEY STRING, VALUE BYTES>> HEADERS"
NEW = "WITH (KAFKA_TOPIC='z', VALUE_FORMAT='JSON', PARTITIONS=1"
REFUSED = {
    "FQ1001": ["CREATE STREAM O AS SELECT * FROM S WHERE B LIKE 'a' ESCAPE 'ab';"],
    "FQ2031": [
        "CREATE STREAM O AS SELECT * FROM S X JOIN S Y WITHIN 1 HOUR ON X.K = Y.K;",
        "CREATE STREAM O AS SELECT * FROM S JOIN T ON S.K = T.K LEFT JOIN T U ON S.A = U.K;",
        "INSERT INTO LINES SELECT X.K AS K, Y.A AS A FROM S X JOIN S Y WITHIN 1 HOUR ON X.K = Y.K;",
    ],
    "FQ2013": [
        "CREATE STREAM O WITH (KEY_FORMAT='JSON') AS SELECT * FROM S PARTITION BY NULL;",
        "CREATE TABLE O AS SELECT K, AVG(A) AS X FROM LINES GROUP BY K;",
        "CREATE TABLE O WITH (VALUE_FORMAT='JSON') AS SELECT K, COUNT(*) AS X FROM LINES GROUP BY K HAVING LATEST_BY_OFFSET(A) > 1;",
    ],
    "FQ2025": [
        "CREATE STREAM O AS SELECT * FROM TENS PARTITION BY A;",
        "CREATE STREAM O AS SELECT * FROM TENS PARTITION BY NULL;",
        "SET 'ksql.suppress.enabled' = 'false'; CREATE TABLE O AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K EMIT FINAL;",
    ],
    "FQ2008": ["CREATE STREAM O AS SELECT K, A AS `rowtime` FROM S;"],
    "FQ2011": [
        f"CREATE STREAM X (K INT KEY, A INT) {NEW}, WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1000');",
        f"CREATE STREAM X (K INT KEY, A STRING) {NEW}, TIMESTAMP='A', TIMESTAMP_FORMAT='yyyy-MM-ddTHH');",
        "CREATE TABLE O AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 1 MINUTE) GROUP BY K;",
        "CREATE TABLE O AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 2 HOURS, GRACE PERIOD 2 HOURS) GROUP BY K;",
    ],
    "FQ2005": ["INSERT INTO S (K, A) VALUES (1, 1.5);", "INSERT INTO T (K, P) VALUES (1, STRUCT(Y := 2));"],
    "FQ2040": ["INSERT INTO T (K, A) VALUES (NULL, 1);"],
    "FQ2030": ["CREATE STREAM O AS SELECT * FROM TENS JOIN SESSIONS WITHIN 1 HOUR ON TENS.K = SESSIONS.K;"],
    "FQ2022": ["CREATE STREAM O AS SELECT * FROM S PARTITION BY A, NULL;"],
    "FQ2053": ["DROP STREAM OWNED DELETE TOPIC;"],
    "FQ2020": [
        "CREATE STREAM O AS SELECT K, TRANSFORM(AR, X => SUM(X)) AS X FROM S;",
        "CREATE STREAM O AS SELECT K, CASE WHEN A = 1 THEN EXPLODE(AR) ELSE 2 END AS X FROM S;",
    ],
    "FQ2004": [
        "CREATE STREAM X (K INT KEY, A STRUCT<F INT, F STRING>) WITH (KAFKA_TOPIC='z', VALUE_FORMAT='JSON');",
        f"CREATE STREAM X (K INT KEY, H {HEADERS}, I BYTES HEADER('a')) WITH (KAFKA_TOPIC='z', VALUE_FORMAT='JSON');",
    ],
}


def compiled(sql: str) -> Compiled:
    return compile_project([SourceText("a.sql", SOURCES + sql)])


@pytest.mark.parametrize(("code", "sql"), [(code, sql) for code, all_ in REFUSED.items() for sql in all_])
def test_what_ksqldb_refuses_is_refused(code: str, sql: str) -> None:
    errors = [d for d in compiled(sql).diagnostics if d.severity == "error"]
    assert [d.code for d in errors] == [code]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE STREAM O AS SELECT * FROM TENS PARTITION BY K;",
        "CREATE STREAM O WITH (KEY_FORMAT='NONE') AS SELECT * FROM S PARTITION BY NULL;",
        "CREATE STREAM O AS SELECT K, EXPLODE(CASE WHEN A = 1 THEN AR ELSE ARRAY[2] END) AS X FROM S;",
        "CREATE TABLE O AS SELECT K, SUM(A) AS X, COUNT(*) AS N FROM LINES GROUP BY K;",
        "CREATE STREAM COPY WITH (VALUE_FORMAT='JSON') AS SELECT * FROM LINES; CREATE TABLE O AS SELECT K, AVG(A) AS X FROM COPY GROUP BY K;",
        "INSERT INTO S (K, A) VALUES (NULL, 1);",
        "CREATE TABLE O AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 3 HOURS, GRACE PERIOD 2 HOURS) GROUP BY K;",
    ],
)
def test_what_stands_beside_it_is_accepted(sql: str) -> None:
    assert compiled(sql).ok


def test_windows_of_one_kind_may_have_two_sizes() -> None:
    assert compiled("CREATE STREAM O AS SELECT * FROM TENS JOIN FIVES WITHIN 1 HOUR ON TENS.K = FIVES.K;").ok


def test_only_the_literal_null_leaves_rows_without_a_key() -> None:
    plans = [
        compiled(f"CREATE STREAM O AS SELECT * FROM S PARTITION BY {by};").plan for by in ("NULL", "CAST(NULL AS INT)")
    ]
    without, with_key = (plan.source("O") for plan in plans)
    assert without is not None
    assert with_key is not None
    assert [f.name for f in without.schema.key] == []
    assert [f.name for f in with_key.schema.key] == ["KSQL_COL_0"]


def value_of(text: str, row: dict[str, Any]) -> tuple[Any, int]:
    """Of an expression over a row of S: its value, and how many failures were reported."""
    result = compiled(f"CREATE STREAM O AS SELECT K, {text} AS X FROM S;")
    assert result.ok, result.diagnostics
    (expr,) = (
        c.expr
        for n in walk_nodes(result.plan.queries[-1].logical)
        if isinstance(n.spec, Project)
        for c in n.spec.columns
        if c.name == "X"
    )
    failures: list[Exception] = []
    kernel = compile_row([expr], list(row), on_error=lambda _index, error: failures.append(error))
    return kernel(tuple(row.values()))[0], len(failures)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ARRAY[10 / A, 2]", [None, 2]),
        ("ARRAY[1 / 0, 2]", [None, 2]),
        ("MAP('a' := 10 / A, 'b' := 2)", {"a": None, "b": 2}),
        ("STRUCT(X := CAST(B AS INT), Y := 2)", {"X": None, "Y": 2}),
        ("ARRAY[ARRAY[10 / A, 1], ARRAY[2]]", [[None, 1], [2]]),
        ("TO_JSON_STRING(ARRAY[10 / A, 2])", "[null,2]"),
        ("ARRAY_LENGTH(ARRAY[10 / A, 2])", 2),
        ("CONCAT('x', CAST(10 / A AS STRING))", None),
    ],
)
def test_an_element_that_fails_is_null_in_its_place_and_is_reported(text: str, value: Any) -> None:
    assert value_of(text, {"K": 1, "A": 0, "B": "b", "AR": [1]}) == (value, 1)


def test_a_key_of_a_map_that_fails_leaves_no_map() -> None:
    assert value_of("MAP(CAST(10 / A AS STRING) := 1)", {"K": 1, "A": 0, "B": "b", "AR": [1]}) == (None, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("URL_EXTRACT_FRAGMENT('http://example.com#x%20y')", "x y"),
        ("URL_EXTRACT_QUERY('http://example.com?q=%C3%A9+1')", "q=é+1"),
        ("URL_EXTRACT_QUERY('http://example.com?')", ""),
        ("URL_EXTRACT_QUERY('http://example.com')", None),
        ("URL_EXTRACT_PARAMETER('http://example.com?x%20y=c%20d&z', 'x y')", "c d"),
        ("URL_EXTRACT_PARAMETER('http://example.com?x%20y=c%20d&z', 'z')", ""),
        ("URL_EXTRACT_HOST('http://Example.com:80/')", "Example.com"),
        ("URL_EXTRACT_HOST('http://127.0.0.1:80/')", "127.0.0.1"),
        ("URL_EXTRACT_PORT('http://Example.com/')", None),
        ("URL_EXTRACT_PATH('http://Example.com')", ""),
        ("URL_EXTRACT_PATH('mailto:x')", None),
    ],
)
def test_parts_of_urls_are_those_of_rfc_2396_decoded(text: str, value: Any) -> None:
    assert value_of(text, {"K": 1, "A": 0, "B": "b", "AR": [1]})[0] == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("FORMAT_DATE(PARSE_DATE('2021-02-31', 'yyyy-MM-dd'), 'MMdd')", "0228"),
        ("FORMAT_TIMESTAMP(PARSE_TIMESTAMP('2020-02-30 05', 'yyyy-MM-dd HH'), 'MMdd HH')", "0229 05"),
        ("TIMESTAMPTOSTRING(STRINGTOTIMESTAMP('2021-04-31', 'yyyy-MM-dd'), 'MMdd', 'UTC')", "0430"),
    ],
)
def test_a_day_behind_the_end_of_its_month_is_the_last_of_it(text: str, value: str) -> None:
    assert value_of(text, {"K": 1, "A": 0, "B": "b", "AR": [1]}) == (value, 0)


def test_a_day_that_no_month_has_is_a_failure() -> None:
    errors = compiled("CREATE STREAM O AS SELECT K, PARSE_DATE('2021-02-32', 'yyyy-MM-dd') AS X FROM S;").diagnostics
    assert [d.code for d in errors] == ["FQ2026"]


@pytest.mark.parametrize(("value", "wrapped"), [(False, False), ("false", False), (True, True), ("TRUE", True)])
def test_properties_of_a_session_may_be_values_of_json(value: bool | str, wrapped: bool) -> None:
    session = Session(properties={"ksql.persistence.wrap.single.values": value})
    sql = "CREATE STREAM V (K INT KEY, A INT) WITH (KAFKA_TOPIC='v', VALUE_FORMAT='JSON', PARTITIONS=1);"
    session.execute(SourceText("a.sql", sql))
    source = session.plan.source("V")
    assert source is not None
    assert source.value_format.wrap is wrapped

"""Patterns in interactive queries and subscriptions: they are those of views, on an engine of linear time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.config.sections import InteractiveQuerySettings
from flowql.query.database import QueryDatabase
from flowql.query.errors import QueryError
from flowql.query.limits import QueryLimits
from flowql.query.push import compile_push_query
from flowql.query.session import evaluate
from tests.flowql.query.harness import APPLICATION, QueryHarness

SOURCE = "CREATE STREAM S (K STRING KEY, V STRING) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
# ksqlDB's functions, which DuckDB has with other arguments, other patterns or the first match alone.
CALLS = (
    r"REGEXP_EXTRACT('(\w+)@(.*)', V, 2)", r"REGEXP_EXTRACT('[a-z&&[^b]]+', V)", r"REGEXP_EXTRACT_ALL('(.)b', V, 1)", "REGEXP_EXTRACT_ALL('b', V)",
    r"REGEXP_REPLACE(V, '(?i)(B)', '<$1>')", r"REGEXP_SPLIT_TO_ARRAY(V, 'b')", r"REGEXP_LIKE(V, '\p{Alpha}$')", "REGEXP_EXTRACT('(z)', V, 7)",
)  # fmt: skip
LIKES = (
    r"V LIKE 'a\%'", r"V NOT LIKE 'a\_%'", r"V LIKE '%\\%'", r"V LIKE CASE WHEN V LIKE '%\_' THEN 'a\__' ELSE 'ab' END", r"V LIKE 'a|%' ESCAPE '|'",
    r"(V || '\') LIKE ('%\\' || '')", r"V LIKE 'é\%' AND NOT (V LIKE '_') OR V = 'x'", "V LIKE 'a%'",
)  # fmt: skip
ESCAPED = ("a%", "ab", "a_b", "a__", "é%", r"a\b", "\\", "")
STRINGS = ("ab@cb", "abcabc", "", "é\n", "Bb", "z")
HOSTILE = "a" * 80 + "!"
NESTED = r"^([a-zA-Z0-9]+\.?)+@"
SEGMENTS = "%a%a%a%a%a%a%a_%b"


@pytest.fixture(scope="module")
def world() -> QueryHarness:
    columns = ", ".join(f"{call} AS C{i}" for i, call in enumerate(CALLS))
    made = QueryHarness(f"{SOURCE} CREATE STREAM VIEWED AS SELECT K, {columns} FROM S;")
    made.feed("s", [(f"k{i}", {"V": s}, 0) for i, s in enumerate((*STRINGS, HOSTILE))])
    return made


@pytest.fixture(scope="module")
def standard() -> Iterator[QueryDatabase]:
    with closing(QueryDatabase(QueryLimits(settings=InteractiveQuerySettings(dialect="standard")))) as made:
        yield made


def test_a_query_gives_what_a_view_gives(world: QueryHarness) -> None:
    columns = ", ".join(f"{call} AS C{i}" for i, call in enumerate(CALLS))
    viewed = world.ask(f"SELECT K, {', '.join(f'C{i}' for i in range(len(CALLS)))} FROM VIEWED ORDER BY K")
    assert world.ask(f"SELECT K, {columns} FROM S ORDER BY K") == viewed
    assert [r["C0"] for r in viewed[:3]] == ["cb", None, None]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("regexp_replace(V, 'B', '-', 'gi')", "a-@c-"),
        ("regexp_extract(V, '(B)(.)', 2, 'i')", "@"),
        ("regexp_extract_all(V, 'B', 0, 'i')", ["b", "b"]),
        ("regexp_split_to_array(V, 'B', 'i')", ["a", "@c", ""]),
    ],
)
def test_forms_that_ksqldb_lacks_stay_those_of_duckdb(world: QueryHarness, form: str, expected: object) -> None:
    assert world.ask(f"SELECT {form} AS r FROM S WHERE K = 'k0'") == [{"r": expected}]


def test_like_of_a_query_has_the_escape_character_of_a_view() -> None:
    columns = ", ".join(f"{call} AS C{i}" for i, call in enumerate(LIKES))
    made = QueryHarness(f"{SOURCE} CREATE STREAM VIEWED AS SELECT K, {columns} FROM S;")
    made.feed("s", [(f"k{i}", {"V": s}, 0) for i, s in enumerate(ESCAPED)])
    viewed = made.ask(f"SELECT K, {', '.join(f'C{i}' for i in range(len(LIKES)))} FROM VIEWED ORDER BY K")
    assert made.ask(f"SELECT K, {columns} FROM S ORDER BY K") == viewed
    assert [r["C0"] for r in viewed] == [s == "a%" for s in ESCAPED]
    assert made.ask(r"SELECT 'é', count(*) AS n FROM S WHERE V ilike 'A\_%' -- \\")[0]["n"] == 2
    assert r"ESCAPE" not in made.ask("EXPLAIN SELECT * FROM S WHERE V LIKE 'a%'")[0]["explain_value"]
    assert made.ask(r"EXPLAIN SELECT * FROM S WHERE V LIKE 'a\%b'")


@pytest.mark.parametrize("call", ["REGEXP_EXTRACT('(?=a)', V)", "regexp_like(V, 'a++')", "REGEXP_REPLACE(V, '(a', '')"])
def test_a_pattern_that_a_view_refuses_is_refused_by_name(world: QueryHarness, call: str) -> None:
    with pytest.raises(QueryError, match="pattern"):
        world.ask(f"SELECT {call} FROM S")


@pytest.mark.parametrize(
    ("dialect", "condition"),
    [
        ("ksql", f"REGEXP_LIKE(V, '{NESTED}')"),
        ("ksql", f"V LIKE '{SEGMENTS}'"),
        ("standard", f"\"V\" ~ '{NESTED}'"),
        ("standard", f"\"V\" LIKE '{SEGMENTS}' OR \"V\" ILIKE '{SEGMENTS}' OR \"V\" SIMILAR TO '((a|aa)+)+b'"),
    ],
)
def test_no_pattern_holds_an_interactive_query_up(
    world: QueryHarness, standard: QueryDatabase, dialect: str, condition: str
) -> None:
    asked = f"SELECT count(*) AS n FROM S WHERE \"K\" = 'k6' AND ({condition})"
    found = world.ask(asked) if dialect == "ksql" else evaluate(asked, world.commit, standard).to_pylist()
    assert found == [{"n": 0}]


@pytest.mark.parametrize(
    "condition", [f"REGEXP_LIKE('{HOSTILE}', '{NESTED}')", f"REGEXP_LIKE(V, '{NESTED}')", f"V LIKE '{SEGMENTS}'"]
)
def test_no_pattern_holds_a_subscription_up(world: QueryHarness, condition: str) -> None:
    topics = {name: info.partitions for name, info in world.log.topics().items()}
    compile_push_query(f"SELECT * FROM S WHERE {condition} EMIT CHANGES", world.instance.plan, APPLICATION, topics)
    with pytest.raises(CompileError, match="look-ahead"):
        compile_push_query("SELECT * FROM S WHERE REGEXP_LIKE(V, '(?=a)')", world.instance.plan, APPLICATION, topics)

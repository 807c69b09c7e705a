"""Columns named by words that DuckDB keeps for itself are asked for as the project writes them."""

from __future__ import annotations

import duckdb
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.query.errors import QueryError
from flowql.query.ksql_names import WORDS, with_words_in_quotes
from tests.flowql.query.harness import QueryHarness

SOURCE = "CREATE STREAM S (K STRING KEY, {}) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"


def columns_of_the_dialect() -> list[str]:
    """Words that cannot be a column of DuckDB without quotes, and can be one of the project."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a INT)")
        keywords = [str(k) for (k,) in connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()]

        def is_kept(word: str) -> bool:
            try:
                connection.execute(f"SELECT {word} FROM t")
            except duckdb.ParserException:
                return True
            except duckdb.Error:
                return False
            return False

        kept = sorted({word for word in keywords if is_kept(word)})
    made = "CREATE STREAM U AS SELECT K, {0} FROM S WHERE {0} = 1;"
    return [w for w in kept if compile_project([SourceText("t.sql", SOURCE.format(f"{w} INT") + made.format(w))]).ok]


def test_every_column_name_of_the_dialect_can_be_asked_for_without_quotes() -> None:
    words = columns_of_the_dialect()
    assert set(words) == WORDS
    declared = ", ".join(f"{w} INT" for w in words)
    world = QueryHarness(f"{SOURCE.format(declared)} CREATE TABLE T AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;")
    world.feed("s", [("a", {w.upper(): n for n, w in enumerate(words)}, 0)])
    for n, w in enumerate(words):
        asked = f"SELECT {w.upper()}, K, {w} + 1 AS more FROM s WHERE {w} = {n} AND NOT {w} <> {n} ORDER BY {w}"
        assert world.ask(asked) == [{w.upper(): n, "K": "a", "more": n + 1}], w


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("SELECT AT FROM s", 'SELECT "AT" FROM s'),
        ("SELECT AT AT TIME ZONE 'UTC' FROM s", "SELECT \"AT\" AT TIME ZONE 'UTC' FROM s"),
        ("SELECT 'a' AT, -- AT\n b FROM s", "SELECT 'a' AT, -- AT\n b FROM s"),
        ("SELECT max(AT), [AT] FROM s CROSS JOIN t USING (AT)", 'SELECT max("AT"), ["AT"] FROM s CROSS JOIN t USING ("AT")'),
        ("SELECT a FROM s EXCEPT SELECT DESC FROM t ORDER BY ASC DESC", 'SELECT a FROM s EXCEPT SELECT "DESC" FROM t ORDER BY "ASC" DESC'),
        ("SELECT ANY (x), ARRAY [1] FROM s", "SELECT ANY (x), ARRAY [1] FROM s"),
        ('SELECT "AT" FROM s WHERE a = $x$ , AT $x$', 'SELECT "AT" FROM s WHERE a = $x$ , AT $x$'),
    ],
)  # fmt: skip
def test_words_are_quoted_where_an_expression_begins(sql: str, meant: str) -> None:
    assert with_words_in_quotes(sql) == meant


def test_a_statement_that_stays_wrong_is_shown_as_it_was_typed() -> None:
    world = QueryHarness(SOURCE.format("AT INT"))
    with pytest.raises(QueryError) as refused:
        world.ask("SELECT AT, FROM WHERE s")
    assert refused.value.span.line_text == "SELECT AT, FROM WHERE s"

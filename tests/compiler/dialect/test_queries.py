"""Clauses of a query, joins, windows and the fragments of the YAML form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.compiler.analyze.types import resolve_type
from flowql.compiler.catalog.catalog import EMPTY
from flowql.compiler.diagnostics.diagnostic import ParseError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import JoinClause, Name, Query, Star, TableRef, WindowClause, WithinClause
from flowql.compiler.dialect.parser import (
    parse_expression,
    parse_join,
    parse_query,
    parse_select_items,
    parse_table_ref,
    parse_type,
    parse_window,
)
from flowql.compiler.plan import types as t


def query(text: str) -> Query:
    return parse_query(SourceText("q.sql", text))


def expr(text: str) -> object:
    return parse_expression(SourceText("", text))


def test_all_clauses() -> None:
    q = query("""
        SELECT u.id, count(*) AS n, u.* FROM clicks AS c
        LEFT OUTER JOIN users u ON c.id = u.id
        WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 7 DAYS, GRACE PERIOD 5 MINUTES)
        WHERE c.x > 1 GROUP BY u.id, c.y PARTITION BY u.id HAVING count(*) > 2 EMIT FINAL LIMIT 10""")
    assert [(i.alias, type(i.expr).__name__) for i in q.select] == [(None, "Name"), ("N", "Func"), (None, "Star")]
    assert q.select[2].expr == Star(("U",))
    assert q.source == TableRef("CLICKS", "C")
    assert q.joins == (JoinClause("left", TableRef("USERS", "U"), expr("c.id = u.id")),)  # type: ignore[arg-type]
    assert q.window == WindowClause("tumbling", 3_600_000, None, 300_000, 604_800_000)
    assert q.where == expr("c.x > 1")
    assert q.group_by == (Name(("U", "ID")), Name(("C", "Y")))
    assert q.partition_by == (Name(("U", "ID")),)
    assert q.having == expr("count(*) > 2")
    assert (q.emit, q.limit) == ("final", 10)


def test_group_by_in_parentheses_is_a_list_or_one_expression() -> None:
    a, b = Name(("A",)), Name(("B",))
    assert query("SELECT 1 FROM s GROUP BY (a, b)").group_by == (a, b)
    assert query("SELECT 1 FROM s GROUP BY (a)").group_by == (a,)
    assert query("SELECT 1 FROM s GROUP BY (a) + b, b").group_by == (expr("a + b"), b)
    assert query("SELECT 1 FROM s GROUP BY (a, b) HAVING a > 1").group_by == (a, b)
    with pytest.raises(ParseError):
        query("SELECT 1 FROM s GROUP BY a, (a, b)")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL JOIN", "full"),
    ],
)
def test_kinds_of_join(text: str, kind: str) -> None:
    assert parse_join(SourceText("", f"{text} r ON a = b")).kind == kind


def test_within() -> None:
    one = parse_join(SourceText("", "JOIN r WITHIN 1 HOUR ON a = b"))
    both = parse_join(SourceText("", "JOIN r AS x WITHIN (1 SECOND, 2 DAYS) GRACE PERIOD 0 SECONDS ON a = b"))
    assert one.within == WithinClause(3_600_000, 3_600_000)
    assert both.within == WithinClause(1_000, 172_800_000, 0)


def test_windows() -> None:
    assert parse_window(SourceText("", "HOPPING (SIZE 30 SECONDS, ADVANCE BY 10 SECONDS)")) == WindowClause(
        "hopping", 30_000, 10_000
    )
    assert parse_window(SourceText("", "WINDOW w SESSION (500 MILLISECONDS, GRACE PERIOD 1 DAY)")) == WindowClause(
        "session", 500, None, 86_400_000
    )


def test_sources_whose_alias_could_be_a_clause() -> None:
    assert query("SELECT * FROM s EMIT CHANGES").source == TableRef("S")
    assert query("SELECT * FROM s emit EMIT CHANGES").source == TableRef("S", "EMIT")
    assert query("SELECT * FROM s PARTITION BY a").partition_by == (Name(("A",)),)


def test_aliases_may_begin_with_a_digit() -> None:
    assert [i.alias for i in query("SELECT a AS 1r, b 2r FROM s").select] == ["1R", "2R"]


def test_all_fields_of_a_struct() -> None:
    (item,) = parse_select_items(SourceText("", "a.b->c->*"))
    assert item.expr == Star(struct_of=expr("a.b->c"))  # type: ignore[arg-type]
    with pytest.raises(ParseError):
        parse_select_items(SourceText("", "a + b->*"))


def test_types() -> None:
    known = parse_type(SourceText("", "STRUCT<a INT, `b` ARRAY<MAP<VARCHAR(10), DECIMAL(4, 2)>>>")).known
    assert known == t.struct(("A", t.INT), ("b", t.array(t.map_of(t.STRING, t.decimal(4, 2)))))
    custom = parse_type(SourceText("", "ARRAY<address>"))
    assert (custom.known, custom.name, custom.args[0].name) == (None, "ARRAY", "ADDRESS")
    standard = replace(EMPTY, standard=True)
    assert resolve_type(parse_type(SourceText("", "DOUBLE PRECISION"), "standard"), standard) == t.DOUBLE


def test_ksql_has_no_sub_queries() -> None:
    with pytest.raises(ParseError):
        query("SELECT a FROM (SELECT a FROM s) AS sub")


def test_fragments_point_into_the_outer_file() -> None:
    source = SourceText("flowql.yaml", "orders o\nxx yy", line_offset=10, column_offset=4)
    with pytest.raises(ParseError) as caught:
        parse_table_ref(source)
    span = caught.value.diagnostics[0].span
    assert (span.path, span.line, span.column) == ("flowql.yaml", 12, 5)
    assert span.line_text[span.column - 1 :].startswith("xx")

"""Statements, variables, and every mistake of a text."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import (
    AssertRow,
    CreateAs,
    CreateSource,
    CreateType,
    Drop,
    InsertInto,
    InsertRow,
    Lit,
    OtherStatement,
    SetProperty,
    Statement,
)
from flowql.compiler.dialect.parser import parse_statements
from tests.compiler.dialect.outline import under


def good(text: str, dialect: str = "ksql", variables: dict[str, str] | None = None) -> list[Statement]:
    statements, mistakes = parse_statements(
        SourceText("s.sql", text), "ksql" if dialect == "ksql" else "standard", variables
    )
    assert mistakes == []
    return statements


def bad(text: str, dialect: str = "ksql") -> list[Diagnostic]:
    return parse_statements(SourceText("s.sql", text), "ksql" if dialect == "ksql" else "standard")[1]


def test_create_source() -> None:
    text = """-- orders
    CREATE OR REPLACE SOURCE STREAM IF NOT EXISTS orders (
      id INT KEY, /* what */ `note` STRING, h ARRAY<STRUCT<k STRING, v BYTES>> HEADERS, t BYTES HEADER('trace')
    ) WITH (kafka_topic='o', partitions=-3, ratio=0.5, wrap=false);"""
    (s,) = good(text)
    assert isinstance(s, CreateSource)
    assert (s.name, s.kind, s.or_replace, s.if_not_exists, s.read_only) == ("ORDERS", "stream", True, True, True)
    assert [(c.name, c.role, c.header_key) for c in s.columns] == [
        ("ID", "key", ""),
        ("note", "value", ""),
        ("H", "header", ""),
        ("T", "header", "trace"),
    ]
    assert [(p.name, p.value) for p in s.properties] == [
        ("KAFKA_TOPIC", "o"),
        ("PARTITIONS", -3),
        ("RATIO", Decimal("0.5")),
        ("WRAP", False),
    ]
    assert under(s.name_span, text) == "orders"
    assert under(s.columns[0].span, text) == "id INT KEY"
    assert under(s.properties[1].value_span, text) == "-3"
    assert under(s.span, text) == s.text
    assert s.text.startswith("CREATE OR REPLACE")
    assert s.text.endswith("wrap=false)")


def test_create_as_insert_and_others() -> None:
    table, insert, row, drop, typ, setting, unset, listing, pull = good("""
        CREATE TABLE t WITH (priority='high') AS SELECT a, count(*) FROM s GROUP BY a EMIT CHANGES;
        INSERT INTO t WITH (QUERY_ID='q') SELECT * FROM s;
        INSERT INTO t (a, `b`) VALUES (1, -2.0);
        DROP TABLE IF EXISTS t DELETE TOPIC;
        CREATE TYPE IF NOT EXISTS addr AS STRUCT<zip INT>;
        SET 'auto.offset.reset' = 'earliest';
        UNSET 'auto.offset.reset';
        LIST STREAMS EXTENDED;
        SELECT * FROM t WHERE a = 1;""")
    assert isinstance(table, CreateAs)
    assert (table.name, table.kind, table.properties[0].value) == ("T", "table", "high")
    assert table.query is not None
    assert table.query.emit == "changes"
    assert isinstance(insert, InsertInto)
    assert (insert.target, insert.properties[0].name) == ("T", "QUERY_ID")
    assert isinstance(row, InsertRow)
    assert (row.columns, row.values) == (("A", "b"), (Lit("int", 1), Lit("decimal", Decimal("-2.0"))))
    assert isinstance(drop, Drop)
    assert (drop.kind, drop.if_exists, drop.delete_topic) == ("table", True, True)
    assert isinstance(typ, CreateType)
    assert typ.name == "ADDR"
    assert isinstance(setting, SetProperty)
    assert (setting.name, setting.value) == ("auto.offset.reset", "earliest")
    assert isinstance(unset, SetProperty)
    assert unset.value is None
    assert isinstance(listing, OtherStatement)
    assert (listing.verb, listing.text) == ("LIST", "LIST STREAMS EXTENDED")
    assert isinstance(pull, OtherStatement)
    assert pull.verb == "SELECT"


def test_rows_of_a_values_list_become_statements() -> None:
    rows = good("INSERT INTO s VALUES (1), (2)")
    assert [r.values for r in rows if isinstance(r, InsertRow)] == [(Lit("int", 1),), (Lit("int", 2),)]


def test_views_of_standard_sql() -> None:
    grouped, plain = good(
        "CREATE MATERIALIZED VIEW v AS SELECT a, count(*) FROM s GROUP BY a;"
        "CREATE OR REPLACE VIEW w WITH (priority='batch') AS SELECT a FROM S;",
        "standard",
    )
    assert isinstance(grouped, CreateAs)
    assert isinstance(plain, CreateAs)
    assert (grouped.name, plain.name, plain.or_replace) == ("v", "w", True)
    assert bad("CREATE VIEW v AS SELECT a FROM s;")[0].code == "FQ1001"


def test_variables() -> None:
    variables = {"limit": "5"}
    text = (
        "DEFINE Topic = 'orders'; CREATE STREAM ${topic} WITH (kafka_topic='${TOPIC}_${unknown}', partitions=${limit});"
    )
    (s,) = good(text, variables=variables)
    assert isinstance(s, CreateSource)
    assert s.name == "ORDERS"
    assert [p.value for p in s.properties] == ["orders_${unknown}", 5]
    assert under(s.name_span, text) == "${topic}"
    assert "${topic}" in s.text
    assert variables == {"limit": "5", "Topic": "orders"}
    good("UNDEFINE topic;", variables=variables)
    assert variables == {"limit": "5"}
    (mistake,) = bad("DEFINE topic = 'a'; DROP STREAM ${topc};")
    assert (mistake.code, mistake.help) == ("FQ1006", "did you mean `topic`?")


def test_every_mistake_is_told_and_the_rest_is_read() -> None:
    text = "DROP STREAM a;\nSELECT id FORM s;\nDROP STREAM b;\nCREATE STREAM t (x NULL);\nDROP STREAM c"
    statements, mistakes = parse_statements(SourceText("s.sql", text))
    assert [s.name for s in statements if isinstance(s, Drop)] == ["A", "B", "C"]
    assert [(m.code, m.span.line, under(m.span, text)) for m in mistakes] == [
        ("FQ1001", 2, "s"),
        ("FQ1007", 4, "NULL"),
    ]


@pytest.mark.parametrize(
    ("text", "code", "at"),
    [
        ("CREATE STREM s (a INT);", "FQ1001", "STREM"),
        ("CRATE STREAM s (a INT);", "FQ1001", "CRATE"),
        ("RUN SCRIPT 'x';", "FQ1001", "RUN"),
        ("ASSERT ROWS s (a) VALUES (1);", "FQ1001", "ROWS"),
        ("CREATE STREAM s AS SELECT a b c FROM t;", "FQ1001", "c"),
        ("CREATE STREAM s AS SELECT a FROM t WHERE a = b = c;", "FQ1001", "="),
        ("CREATE STREAM s AS SELECT a FROM t PARTITION BY a AND b;", "FQ1001", "AND"),
        ("CREATE STREAM s AS SELECT a FROM t WHERE a IN ();", "FQ1001", ")"),
        ("CREATE STREAM s AS SELECT f(a, FROM t;", "FQ1001", "FROM"),
        ("CREATE STREAM s AS SELECT a, FROM t;", "FQ1001", "FROM"),
        ("CREATE STREAM s AS SELECT a FROM t JOIN u WITHIN 1 HOUR;", "FQ1001", ""),
        ("CREATE STREAM s (a INT) WITH (format=JSON);", "FQ1001", "JSON"),
        ("DROP STREAM 'a;", "FQ1002", "'"),
        ("DROP STREAM a /* b;", "FQ1002", "/*"),
        ("SELECT a FROM s EMIT CHANGES WHERE a = 1;", "FQ1003", "WHERE"),
        ("SELECT a FROM s, t;", "FQ1003", ","),
        ("CREATE STREAM s (a INT) AS SELECT a FROM t;", "FQ1003", "AS"),
        ("SELECT 9223372036854775808 FROM s;", "FQ1004", "9223372036854775808"),
        ("SELECT -1e999 FROM s;", "FQ1004", "-1e999"),
        ("SELECT 1e FROM s;", "FQ1004", "1e"),
        ("SELECT group FROM s;", "FQ1005", "group"),
        ("CREATE STREAM select (a INT);", "FQ1005", "select"),
        ("CREATE STREAM s (a DECIMAL);", "FQ1007", "DECIMAL"),
        ("CREATE STREAM s (a DECIMAL(2, 4));", "FQ1007", "DECIMAL(2, 4)"),
        ("CREATE STREAM s (a INT (KEY));", "FQ1007", "KEY"),
        ("CREATE STREAM s (a, b INT);", "FQ1007", "a"),
        ("DROP STREAM a\nDROP STREAM b;", "FQ1008", "DROP"),
        ("SELECT a FROM s WINDOW TUMBLING (SIZE 0 SECONDS) GROUP BY a;", "FQ1009", "0 SECONDS"),
        ("SELECT * FROM EXPLODE(a);", "FQ1010", "EXPLODE"),
        ("CREATE TABLE t (a INT KEY);", "FQ1011", "KEY"),
        ("CREATE STREAM t (a INT PRIMARY KEY);", "FQ1011", "PRIMARY KEY"),
        ("CREATE STREAM t WITH (window_type='Session', window_size='1 SECOND');", "FQ1012", "window_size"),
        ("CREATE STREAM t WITH (window_type='hopping');", "FQ1012", "window_type"),
    ],
)
def test_mistakes(text: str, code: str, at: str) -> None:
    (mistake,) = bad(text)
    assert (mistake.code, mistake.unsupported) == (code, False)
    if at:
        assert under(mistake.span, text) == at


def test_what_stands_before_an_unclosed_quote_is_still_read() -> None:
    statements, mistakes = parse_statements(SourceText("s.sql", "DROP STREAM a; DROP STREM b; SELECT 'x FROM s;"))
    assert len(statements) == 1
    assert [m.code for m in mistakes] == ["FQ1001", "FQ1002"]


def test_empty_texts() -> None:
    assert parse_statements(SourceText("s.sql", "")) == ([], [])
    assert parse_statements(SourceText("s.sql", " -- nothing\n;; /* at all */ ;")) == ([], [])


def test_what_a_test_asserts() -> None:
    statements, mistakes = parse_statements(
        SourceText("t.sql", "ASSERT VALUES s (a) VALUES (1), (2); ASSERT NULL VALUES s VALUES (3);")
    )
    assert not mistakes
    assert [(s.target, s.columns, s.deleted) for s in statements if isinstance(s, AssertRow)] == [
        ("S", ("A",), False),
        ("S", ("A",), False),
        ("S", (), True),
    ]

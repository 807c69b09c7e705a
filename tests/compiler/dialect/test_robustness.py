"""No text makes the parser raise: broken statements give findings whose spans lie in the text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.diagnostics.render import render
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_statements

STATEMENTS = [
    "CREATE STREAM s (id INT KEY, p DECIMAL(4, 2), m MAP<STRING, STRUCT<a INT>>) WITH (kafka_topic='t', partitions=1);",
    "CREATE TABLE t AS SELECT a->b[1] x, count(*) FROM s WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE) GROUP BY a;",
    "INSERT INTO t SELECT * FROM a JOIN b WITHIN (1 HOUR, 2 HOURS) GRACE PERIOD 1 DAY ON a.x = b.`y` EMIT CHANGES;",
    "SELECT CASE WHEN x IN (1, -2.5e3) THEN 'it''s' ELSE NULL END, f(m, (k, v) => k + v) FROM s /* c */ LIMIT 3; -- d",
    "DEFINE v = 'x'; CREATE TYPE ${v} AS ARRAY<INT>; INSERT INTO t (a) VALUES (STRUCT(a := MAP('k' := .5)));",
]
PIECES = ["'", '"', "`", "(", ")", ";", ",", ".", "->", ":=", "=>", "/*", "--", "${", "$", "}", "1R", "0x1F", "é", "\n", "\t", "\x00", "@", "#", "\\", "{#", "N'a'", "1.2.3", " SELECT ", " AS ", "[", "<>", "*"]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_broken_statements_give_findings(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(STATEMENTS))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:]
    dialect = data.draw(st.sampled_from(["ksql", "standard"]))
    statements, mistakes = parse_statements(SourceText("x.sql", text), dialect)
    lines = text.split("\n")
    for finding in mistakes:
        assert 1 <= finding.span.line <= len(lines)
        assert 1 <= finding.span.column <= len(lines[finding.span.line - 1]) + 1
    assert render(mistakes).count("flowql explain") == len(mistakes)
    assert all(s.text in text for s in statements)

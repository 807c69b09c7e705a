"""A plan in one line."""

from __future__ import annotations

from compiler.diagnostics.source import SourceText
from compiler.driver import compile_project
from compiler.plan import codec
from compiler.plan.topology import Plan


def plan(threshold: int) -> Plan:
    sql = f"""CREATE STREAM A (K INT KEY, V INT) WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON', PARTITIONS=1);
    CREATE STREAM B AS SELECT K, V FROM A WHERE V > {threshold};"""
    return compile_project([SourceText("a.sql", sql)]).plan


def test_plans_that_are_equal_and_only_those_have_equal_lines() -> None:
    lines = [codec.line(plan(n)) for n in (1, 1, 2)]
    assert lines[0] == lines[1] != lines[2]
    assert [codec.line(plan(n)) for n in range(20)] == [codec.dumps(plan(n), indent=None) for n in range(20)]


def test_a_line_is_read_as_the_plan() -> None:
    first = plan(7)
    assert codec.line(codec.loads(codec.line(first))) == codec.line(first)

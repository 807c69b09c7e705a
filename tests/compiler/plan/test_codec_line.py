"""A plan in one line."""

from __future__ import annotations

import gc
import json

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan


def plan(threshold: int) -> Plan:
    sql = f"""CREATE STREAM A (K INT KEY, V INT) WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON', PARTITIONS=1);
    CREATE STREAM B AS SELECT K, V FROM A WHERE V > {threshold};"""
    return compile_project([SourceText("a.sql", sql)]).plan


def test_plans_that_are_equal_and_only_those_have_equal_lines() -> None:
    lines = [codec.line(plan(n)) for n in (1, 1, 2)]
    assert lines[0] == lines[1] != lines[2]
    assert [codec.line(plan(n)) for n in range(20)] == [
        json.dumps(codec.to_data(plan(n)), separators=(",", ":"), ensure_ascii=False) + "\n" for n in range(20)
    ]


def test_a_line_is_read_as_the_plan() -> None:
    first = plan(7)
    assert codec.line(codec.loads(codec.line(first))) == codec.line(first)


def test_a_part_that_was_decoded_before_is_the_same_object() -> None:
    first = codec.loads(codec.line(plan(8)))
    other = codec.loads(codec.line(plan(9)))
    again = codec.loads(codec.line(first))
    assert again.queries[0] is first.queries[0]
    assert again.sources[0] is first.sources[0] is other.sources[0]
    assert other.queries[0] != first.queries[0]


def test_a_line_does_not_depend_on_the_spelling_it_was_read_from() -> None:
    first = codec.line(plan(11))
    spaced = json.dumps(json.loads(first))
    gc.collect()
    assert spaced != first == codec.line(codec.loads(spaced))


def test_what_is_known_of_parts_goes_with_them() -> None:
    gc.collect()
    before = len(codec._texts), len(codec._parts)
    made = codec.line(plan(12)), codec.loads(codec.line(plan(13)))
    del made
    gc.collect()
    assert (len(codec._texts), len(codec._parts)) == before


def test_a_repartition_without_watermarks_is_written_as_before_there_were_any() -> None:
    sql = """CREATE STREAM A (K INT KEY, V INT) WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON', PARTITIONS=1);
    CREATE TABLE B AS SELECT V, COUNT(*) AS N FROM A GROUP BY V;"""
    line = codec.line(compile_project([SourceText("a.sql", sql)]).plan)
    assert "exchange" in line.lower()
    assert "marks" not in line

"""PARTITIONER of sources: what a query may read side by side, and what FlowQL may write to."""

from __future__ import annotations

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.explain import spec_text

STREAM = "CREATE STREAM {name} (k STRING KEY, v INT) WITH (KAFKA_TOPIC='{name}', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON'{more});"
ON_KEY = "CREATE STREAM j AS SELECT a.k, b.v FROM a JOIN b WITHIN 1 HOUR ON a.k = b.k;"
ON_VALUE = "CREATE STREAM j AS SELECT a.k, b.v FROM a JOIN b WITHIN 1 HOUR ON a.v = b.v;"
BESIDE_MOVED = "CREATE STREAM j AS SELECT b.k, a.v FROM a JOIN b WITHIN 1 HOUR ON CAST(a.v AS STRING) = b.k;"
RESULT = "CREATE STREAM c AS SELECT k, v FROM b; CREATE STREAM j AS SELECT a.k, c.v FROM a JOIN c WITHIN 1 HOUR ON a.k = c.k;"
INTO = "INSERT INTO a SELECT k, v FROM b;"
VALUES = "INSERT INTO a VALUES ('k', 1);"


def sources(first: str, second: str) -> str:
    return "".join(
        STREAM.format(name=name, more=f", PARTITIONER='{p}'" if p else "") for name, p in (("a", first), ("b", second))
    )


@pytest.mark.parametrize(
    ("first", "second", "query", "told"),
    [
        ("crc32", "consistent_random", ON_KEY, ""),
        ("custom", "custom", ON_KEY, ""),
        ("crc32", "", ON_KEY, ""),  # the runtime compares the keys
        ("crc32", "murmur2", ON_VALUE, ""),  # both are moved
        ("crc32", "murmur2_random", ON_KEY, "read A, which is placed by crc32, beside B, which is placed by murmur2"),
        ("crc32", "custom", ON_KEY, "read A, which is placed by crc32, beside B, which is placed by custom"),
        ("", "crc32", BESIDE_MOVED, "read B, which is placed by crc32, beside rows that the query moves"),
        ("crc32", "", RESULT, "read A, which is placed by crc32, beside C, which is placed by murmur2"),
        ("crc32", "", INTO, "cannot insert into A, whose records are placed by crc32"),
        ("custom", "", VALUES, "A, whose records are placed by custom: FlowQL places records by murmur2"),
    ],
)
def test_what_is_placed_differently_is_not_read_side_by_side(first: str, second: str, query: str, told: str) -> None:
    """Most rows of the join would be missing."""
    compiled = compile_project([SourceText("a", sources(first, second) + query)])
    assert [d.code for d in compiled.diagnostics] == (["FQ4089"] if told else [])
    assert told in "".join(d.title for d in compiled.diagnostics)


def test_topics_of_one_partition_may_be_placed_by_anything() -> None:
    text = sources("crc32", "murmur2") + ON_KEY
    assert compile_project([SourceText("a", text)], topic_partitions={"a": 1, "b": 1}).ok


def test_an_unknown_partitioner_is_told_of() -> None:
    (found,) = compile_project([SourceText("a", sources("murmur3", ""))]).diagnostics
    assert (found.code, found.help) == ("FQ2011", "did you mean murmur2?")


def test_the_plan_shows_the_partitioner() -> None:
    compiled = compile_project([SourceText("a", sources("crc32", "crc32") + ON_KEY)])
    (sub,) = compiled.plan.queries[0].subtopologies
    assert ", placed by crc32)" in spec_text(sub.operators[0].spec)

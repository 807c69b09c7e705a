"""What records are repaired to, without an instance."""

from __future__ import annotations

import time

import pytest

from flowql.dlq.repair import assignment_of, repaired
from flowql.errors import CommandError
from flowql.query.dead_letters import Failure, Letter
from flowql.runtime.log.base import TopicPartition
from tests.runtime.app.harness import plan_of

PLAN = plan_of("""
CREATE STREAM S (K STRING KEY, V INT, W INT) WITH (KAFKA_TOPIC = 'in', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM ONE AS SELECT K, V FROM S;
CREATE STREAM OTHER AS SELECT K, W FROM S;
""")


def letters(count: int, *queries: str) -> list[Letter]:
    failures = tuple(Failure(q, "FQ4020", "no") for q in queries)
    return [
        Letter(TopicPartition("in", n % 2), n // 2, 1_000 + n, b"k", b'{"V":"%d EUR","W":1}' % n, failures)
        for n in range(count)
    ]


def test_fifty_thousand_letters_are_repaired_in_seconds() -> None:
    some = letters(50_000, "CSAS_ONE", "CSAS_OTHER")
    began = time.process_time()
    found = repaired(some, [assignment_of("V = replace(V, ' EUR', '')::INT")], PLAN)
    assert time.process_time() - began < 10  # one decode per letter and query takes half a minute
    assert [r.repair.value for r in found[:2]] == [b'{"V":0,"W":1}', b'{"V":1,"W":1}']
    assert len(found) == 50_000


def test_a_record_that_a_query_still_could_not_read_is_named_with_that_query() -> None:
    some = [*letters(5, "CSAS_ONE"), *letters(8, "CSAS_OTHER")[5:]]
    with pytest.raises(CommandError) as refused:
        repaired(some, [assignment_of("V = CASE \"offset\" WHEN 1 THEN 'x' ELSE '1' END")], PLAN)
    assert refused.value.code == "FQ5802"
    assert "in/0@1: CSAS_ONE: V" in str(refused.value)
    assert "in/1@1: CSAS_ONE: V" in str(refused.value)
    assert "CSAS_OTHER" not in str(refused.value)

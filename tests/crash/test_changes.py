"""Queries of two instances are changed on a real Kafka, and one of them is killed (`python -m tests.crash.changes`: more of it)."""

import pytest

from tests.crash.changes import check


@pytest.mark.turns("kafka")
@pytest.mark.kafka
@pytest.mark.crash
@pytest.mark.parametrize(("mode", "seed"), [("many", 100), ("one", 200)])
def test_queries_are_changed_while_instances_are_killed(own_broker, tmp_path, mode, seed):
    wrong = check(own_broker, tmp_path, seed, mode=mode, orders=500, seconds=10.0, events=4, say=print)
    assert not wrong, f"seed {seed}: {wrong}"

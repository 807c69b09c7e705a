"""Three kills of a process, one of them with its state, and one of the broker (`python -m tests.crash.kafka`: many more)."""

import random

import pytest

from flowql.kafka.broker import Broker
from tests.crash.kafka import Plan, check
from tests.crash.kills import Shape


@pytest.mark.kafka
@pytest.mark.crash
def test_kill_9_changes_no_result_on_kafka(kafka, tmp_path):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    own = Broker(tmp_path / "broker")  # `kafka` has told whether there can be one
    wrong = check(own, tmp_path, Shape(600, 8.0, 3, seed, moments=seed), Plan(3, 1, 1), print)
    assert not wrong, f"seed {seed}: {wrong}"

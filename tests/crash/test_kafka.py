"""Three kills of a process, one of them with its state, and one of the broker (`python -m tests.crash.kafka`: many more)."""

import random

import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.crash.contents import contents_of
from tests.crash.kafka import Plan, check, disturbed
from tests.crash.kills import Shape
from tests.crash.project import APPENDED, append, compiled, create_topics, customers, orders


@pytest.mark.turns("kafka")
@pytest.mark.kafka
@pytest.mark.crash
def test_kill_9_changes_no_result_on_kafka(own_broker, tmp_path):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    wrong = check(own_broker, tmp_path, Shape(400, 5.0, 2, seed, moments=seed), Plan(2, 1, 1), print)
    assert not wrong, f"seed {seed}: {wrong}"


@pytest.mark.turns("kafka")
@pytest.mark.kafka
@pytest.mark.crash
def test_kill_9_loses_nothing_at_least_once(own_broker, tmp_path):
    """Compared with a run in memory: every result is there, some more than once, and no other."""
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    shape = Shape(200, 3.0, 2, seed, moments=seed)
    (tmp_path / "run").mkdir()
    seen = disturbed(own_broker, tmp_path / "run", shape, Plan(2, 1, 0, at_least_once=True), print)
    expected = in_memory(shape)
    for topic in APPENDED:
        lost = expected.appended[topic] - seen.appended[topic]
        assert not lost, f"seed {seed}: {topic} has lost {lost}"
        other = seen.appended[topic].keys() - expected.appended[topic].keys()
        assert not other, f"seed {seed}: {topic} has {other}"
    for topic, rows in expected.upserted.items():
        assert seen.upserted[topic].keys() == rows.keys(), f"seed {seed}: {topic}"


def in_memory(shape):
    log = MemoryLog()
    create_topics(log)
    append(log, customers())
    for part in orders(shape.orders, shape.seed, 50):
        append(log, part)
    instance = Instance(log, MemoryPhysical(), SystemClock(), InstanceConfig(changelogs=True))
    driver = Driver(instance)
    instance.deploy(compiled())
    driver.run_until_caught_up()
    return contents_of(log, instance.snapshot())

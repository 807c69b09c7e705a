"""A task with two inputs of one partition: each has a position of its own."""

from __future__ import annotations

import pytest

from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task.position_names import positions_of_input
from flowql.runtime.task.task import Task
from tests.runtime.app.engine import make, produce, read, resume

AGAIN = "CREATE STREAM AGAIN (K STRING KEY, V INT) WITH (KAFKA_TOPIC='input', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');"
PAIRS = """
CREATE STREAM PAIRS WITH (KAFKA_TOPIC='pairs') AS SELECT L.K AS K, L.V AS V, R.V AS W
  FROM INPUT L JOIN AGAIN R WITHIN 1 SECOND GRACE PERIOD 1 DAY ON L.K = R.K EMIT CHANGES;
"""


class Killed(BaseException):
    """The process ends."""


def test_two_inputs_of_one_topic_go_on_from_a_position_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change story 9100840: the task kept one position for both, so rows of the one that was ahead were joined twice."""
    log = MemoryLog()
    instance, driver = make(log, AGAIN, PAIRS)
    for v in range(6):
        produce(log, "input", v)  # at one time: the left side is read first
    (task,) = instance.queries["CSAS_PAIRS"].built.tasks

    def rows_max(task: Task, budget_ns: int) -> int:
        """A commit comes after the first four rows, and the end after it."""
        if task.positions == {"input": 0, "input#1": 0}:
            return 4
        done = instance.commit.request()
        while not done.done():
            instance.commit.run_once(0)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Task, "rows_max", rows_max)
        with pytest.raises(Killed):
            driver.run_until_caught_up()
    assert task.positions == {"input": 4, "input#1": 0}
    log.close()  # as the end of the process does
    instance, driver = resume(log, instance.state._physical)
    (task,) = instance.queries["CSAS_PAIRS"].built.tasks
    assert task.positions == {"input": 4, "input#1": 0}
    driver.run_until_caught_up()
    assert sorted((r["V"], r["W"]) for r in read(log, "pairs")) == [(v, w) for v in range(6) for w in range(6)]


def test_a_position_of_an_older_version_is_that_of_all_inputs_of_a_topic() -> None:
    assert positions_of_input({"in": 5, "repartition#1": 2}, 1) == {"in": 5}
    assert positions_of_input({"in": 5, "in#1": 3}, 1) == {"in": 3}
    assert positions_of_input({"in": 5, "in#1": 3}, 0) == {"in": 5}

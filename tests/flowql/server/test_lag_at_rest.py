"""Rows on their way between tasks are lag, whether the instance runs or not, and nothing has caught up before they are processed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flowql.deploy.engine import open_instance
from flowql.deploy.settings import Settings
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, remaining_of, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Log, TopicPartition
from flowql.server.at_rest import stopped_status
from tests.flowql.query.harness import plan_of
from tests.runtime.log.records import produce

ROWS, SAVED = 300, 60  # many more are between tasks than the rounds of a commit take
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE A AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
CREATE STREAM B AS SELECT K, V FROM S;
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, "demo", 1, 64 << 20)


def opened(settings: Settings) -> tuple[Instance, Driver]:
    config = InstanceConfig("demo", settings.data_dir, 1, rows_per_run=3)
    instance = open_instance(settings.log_dir, settings.state_dir, config)
    driver = Driver(instance)
    instance.deploy(plan_of(SQL))
    driver.run_until_caught_up()
    return instance, driver


def send(log: Log, rows: int) -> None:
    produce(log, "source", (TopicPartition("s", 0), [(n, b"k", b'{"V": %d}' % (n % 7)) for n in range(rows)]))


def between(instance: Instance) -> int:
    return sum(x.rows for q in instance.queries.values() for t in q.built.tasks for x in t.exchanges.values())


def test_rows_that_a_stopped_instance_has_saved_between_tasks_are_lag(settings: Settings) -> None:
    """`status` showed 0 after a crash, though the counts of these rows were missing."""
    instance, driver = opened(settings)
    send(instance.log, ROWS)
    while between(instance) < SAVED:
        driver.round()
    driver.commit()
    running = {q.plan.id: remaining_of(instance, q).lag for q in instance.queries.values()}
    assert between(instance) > 0
    instance.close()
    assert {q["id"]: q["lag"] for q in stopped_status(settings)["queries"]} == running


@pytest.mark.parametrize("seed", range(3))
def test_no_query_has_lag_when_all_has_caught_up(settings: Settings, seed: int) -> None:
    """Both are read from the same description: `run --until-caught-up` does not end while `status` shows lag."""
    rng = random.Random(seed)
    instance, driver = opened(settings)
    seen = set[bool]()
    for _ in range(6):
        send(instance.log, rng.randrange(1, 12))
        ends = source_ends(instance)
        for _ in range(200):
            driver.round()
            done, left = (
                caught_up(instance, ends),
                sum(remaining_of(instance, q).lag for q in instance.queries.values()),
            )
            assert not (done and left), (seed, left)  # where nothing is left, a commit may be on its way
            seen.add(done)
            if done:
                break
        assert done, seed
    assert seen == {True, False}
    instance.close()

"""Every Nexmark query gives what its oracle gives, stepped in one thread in shuffled orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from flowql.bench.engines import NEXMARK, Job
from flowql.bench.nexmark import records
from flowql.bench.nexmark_people import MAKERS, counts
from flowql.bench.oracle import EXPECTED, columns_of, difference
from flowql.bench.results import result
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.engine import open_instance
from flowql.deploy.selection import select
from flowql.deploy.settings import settings_of
from flowql.runtime.app.driver import Driver
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog

BIDS = 4_600
SLOWER = 120  # a minute of events instead of half a second: windows close, sessions end
PARTITIONS = 4
FIRST_MS = 1_767_225_600_000


def events(topic: str) -> pa.RecordBatch:
    """The start of the timeline, stretched."""
    (batch,) = MAKERS[topic](counts(BIDS)[topic])
    at = batch.schema.get_field_index("dateTime")
    times = FIRST_MS + (np.asarray(batch.column(at)) - FIRST_MS) * SLOWER
    return batch.set_column(at, batch.schema.field(at), pa.array(times))


def halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield batch.slice(0, batch.num_rows // 3)
    yield batch.slice(batch.num_rows // 3)


def write_events(log: Log) -> None:
    """The topics of all kinds of events, in one transaction."""
    producer = log.producer("test-input")
    producer.begin()
    for topic in counts(BIDS):
        log.admin().create_topic(topic, PARTITIONS)
        for partition, batch in records(halves(events(topic)), PARTITIONS):
            producer.send(TopicPartition(topic, partition), batch)
    producer.commit()
    producer.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = EmbeddedLog(tmp_path / "log")
    write_events(log)
    log.close()
    return tmp_path


@pytest.mark.turns("cases")
@pytest.mark.parametrize("query", EXPECTED)
def test_a_query_gives_what_its_oracle_gives(folder: Path, query: str) -> None:
    instance = open_instance(folder / "log", folder / "state", InstanceConfig(application_id="nexmark", threads=2))
    driver = Driver(instance, seed=len(query))
    instance.deploy(Job(folder, NEXMARK, query, BIDS, 2).plan())
    driver.run_until_caught_up()
    inputs = {topic: pa.Table.from_batches([events(topic)]) for topic in EXPECTED[query].reads}
    found = result(instance.log, query)
    assert difference(query, inputs, found) == ""
    rows = found().read_all() if callable(found) else found
    assert rows.num_rows > 3
    assert set(columns_of(query)) <= set(rows.column_names)
    assert all(m.late_records == m.errors == m.dead_letters == 0 for m in instance.metrics.queries.values())
    instance.stop()


def test_the_target_for_comparisons_runs_one_query_on_given_topics() -> None:
    given = {"bootstrap": "host:1", "prefix": "n-", "output": "out", "app_id": "run-1"}
    project = load_project(NEXMARK, target="peers", variables=given, environment={"PEER_WORKDIR": "/scratch"})
    settings = settings_of(project)
    assert settings.kafka is not None
    assert (settings.kafka.bootstrap, settings.application_id) == ("host:1", "run-1")
    assert settings.data_dir == Path("/scratch/run-1")
    plan = select(compile_sources(project).plan, ["q5"])
    assert [q.id for q in plan.queries] == ["CTAS_Q5_COUNTS", "CTAS_Q5"]
    assert {s.topic for s in plan.sources} == {"n-bid", "run-1-q5-counts", "out"}

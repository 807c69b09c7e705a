"""Channels of repartition topics are merged by time like local ones: skew between upstream tasks makes no row late."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.frontier import RepartitionCleanup
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.values import encode_metadata
from flowql.runtime.task.input_buffer import LogInput

START_MS = 1_700_000_000_000
SQL = """
CREATE STREAM S (K STRING KEY, G STRING) WITH (KAFKA_TOPIC='s', PARTITIONS=3, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='c') AS
  SELECT G, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY G EMIT CHANGES;
"""


def counts(seed, slowest=0, **config):
    result = compile_project([SourceText("t.sql", SQL)])
    assert result.ok, result.diagnostics
    log, clock = MemoryLog(), VirtualClock()
    log.create_topic("s", 3)
    instance = Instance(
        log, MemoryPhysical(), clock, InstanceConfig(threads=1, rows_per_run=25, changelogs=True, **config)
    )
    driver = Driver(instance, seed=seed, tick=lambda: clock.advance(10))
    instance.deploy(result.plan)
    for _ in range(50):
        driver.round()
    inputs = [i for t in instance.queries["CTAS_C"].built.tasks for i in t.logs.values()]
    slow = next(i for i in inputs if i.tp == ("s", slowest))
    slow.stop_at = 30  # an upstream task that does not get on for a while
    producer = log.producer("source")
    producer.begin()
    for p, n in ((0, 600), (1, 600), (2, 60)):  # the last has few, far apart
        step = 600 // n
        rows = [
            {"timestamp": START_MS + i * step * 1000, "key": b"k", "value": json.dumps({"G": f"g{i % 4}"}).encode()}
            for i in range(n)
        ]
        producer.send(TopicPartition("s", p), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
    producer.commit()
    for _ in range(400):
        driver.round()
    slow.stop_at = None
    for _ in range(100):
        driver.round()
    driver.run_until_caught_up()
    last = {}
    for p in range(3):
        reader = log.reader(TopicPartition("c", p), EARLIEST)
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            last |= {r["key"]: r["value"] for r in batch.records.to_pylist()}
    assert instance.metrics.query("CTAS_C").late_records == 0
    return last


@pytest.mark.parametrize("slowest", range(3))
def test_no_row_is_late_because_an_upstream_task_was_slower(slowest):
    assert counts(slowest, slowest, shared=True, process_id="one") == counts(None)


def test_records_of_a_repartition_go_when_all_of_its_readers_have_their_positions_on_record_behind_them():
    tp, dropped, records = TopicPartition("r", 1), [], {}

    def local_record(task):
        return TaskRecord(1, (), encode_metadata({"positions": records[task]})) if task in records else None

    admin = SimpleNamespace(drop_before=lambda tp, offset: dropped.append((tp, offset)))
    cleanup = RepartitionCleanup(admin, SimpleNamespace(local_record=local_record))
    channels = {f"r#{n}": LogInput("op", tp, 50, channel=b"%d" % n, source=n) for n in range(2)}
    tasks = [SimpleNamespace(id="q/1_1", logs=channels)]
    cleanup.delete_processed(tasks)
    records["q/1_1"] = {"r#1": 9}
    cleanup.delete_processed(tasks)
    assert dropped == [], "of one nothing is known, where its next owner begins with the first record"
    for first, second in ((7, 4), (7, 4), (8, 6), (6, 6)):
        records["q/1_1"] = {"r#0": first, "r#1": second}
        cleanup.delete_processed(tasks)
    assert dropped == [(tp, 4), (tp, 6)]

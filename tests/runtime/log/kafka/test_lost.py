"""What an instance needs on a real broker and somebody deletes: it computes anew or says so, and does not go on from nothing."""

from __future__ import annotations

import faulthandler
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.deploy.engine import open_on
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import instance_metrics, statuses
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import PRODUCE_SCHEMA, Admin, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
WAIT_S = 120.0
KEYS = 20
TEXT = """CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='{app}-s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='{app}-c') AS SELECT K, COUNT(*) AS N FROM S GROUP BY K EMIT CHANGES;"""


def deleted(admin: Admin, topic: str) -> None:
    admin.delete_topic(topic)


def emptied(admin: Admin, topic: str) -> None:
    """By a retention that somebody has set and taken back."""
    tp = TopicPartition(topic, 0)
    admin.alter_topic(topic, {"cleanup.policy": "compact,delete"})
    admin.drop_before(tp, admin.end_offset(tp))
    admin.alter_topic(topic, {"cleanup.policy": "compact"})


def send(log: KafkaLog, app: str) -> None:
    """A record for each key."""
    keys, values = [k.to_bytes(8, "big") for k in range(KEYS)], [b'{"V":1}'] * KEYS
    columns = [[1000] * KEYS, keys, values, [None] * KEYS]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    with closing(log.producer(f"{app}-feed")) as producer:
        producer.begin()
        producer.send(TopicPartition(f"{app}-s", 0), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA))
        producer.commit()


@contextmanager
def running(bootstrap: str, app: str, folder: Path) -> Iterator[Instance]:
    instance = open_on(KafkaLog(Connection(bootstrap), app), folder, InstanceConfig(app, changelogs=True))
    instance.start()
    try:
        instance.resume()
        compiled = compile_project([SourceText("t.sql", TEXT.format(app=app))])
        assert compiled.ok, compiled.diagnostics
        instance.deploy(compiled.plan)
        yield instance
    finally:
        assert instance.stop() == []


def until_counted(instance: Instance, times: int) -> None:
    """Every key is in the table, so many times."""
    limit, found = time.monotonic() + WAIT_S, []
    while [row[0] for row in found] != [times] * KEYS:
        assert instance.fatal is None, instance.fatal
        if time.monotonic() > limit:
            faulthandler.dump_traceback()
            stands = {
                i.tp: (i.position, i.next_fetch, i.end_offset)
                for q in instance.queries
                for t in instance.tasks_of(q)
                for i in t.logs.values()
            }
            raise AssertionError(
                found,
                statuses(instance, detail=True),
                stands,
                instance_metrics(instance, detail=True),
                instance.commit.held_up,
            )
        time.sleep(0.1)  # between two looks
        with instance.state.snapshot() as snapshot:
            stores = [s.name for s in snapshot.stores() if s.name.startswith("CTAS_C")]
            found = [row for name in stores for _, row in snapshot.scan(name)]


@pytest.mark.parametrize("damage", [deleted, emptied])
def test_counts_do_not_begin_at_nothing(kafka: str, tmp_path: Path, damage: Callable[[Admin, str], None]) -> None:
    app = f"lost{uuid.uuid4().hex[:8]}"
    with closing(KafkaLog(Connection(kafka), f"{app}-outside")) as outside:
        with running(kafka, app, tmp_path / "one") as instance:
            send(outside, app)
            until_counted(instance, 1)
        damage(outside.admin(), f"{app}-CTAS_C-aggregate-1-changelog")
        with running(kafka, app, tmp_path / "two") as instance:
            assert "changelog" in instance.state_lost
            send(outside, app)
            until_counted(instance, 2)


@pytest.mark.parametrize("kept", [True, False])
def test_input_is_not_processed_again_when_positions_are_gone(kafka: str, tmp_path: Path, kept: bool) -> None:
    """Brokers delete those of a group that was inactive for a week."""
    app = f"lost{uuid.uuid4().hex[:8]}"
    with closing(KafkaLog(Connection(kafka), f"{app}-outside")) as outside:
        with running(kafka, app, tmp_path / "one") as instance:
            send(outside, app)
            until_counted(instance, 1)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.delete_consumer_groups([app])[app].result(WAIT_S)
        with (
            pytest.raises(StateError, match="committed positions of"),
            running(kafka, app, tmp_path / ("one" if kept else "two")),
        ):
            pass

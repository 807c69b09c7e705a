"""Transactions that another producer leaves open on real brokers: of a source, and of a changelog while state is restored."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from flowql.deploy.settings import Settings
from flowql.runtime.app import hanging
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.server.host import Host
from tests.flowql.query.harness import plan_of
from tests.runtime.log.records import batch

pytestmark = pytest.mark.kafka
WAIT_S = 60.0
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='{app}-s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE A WITH (KAFKA_TOPIC='{app}-a') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;
"""


@contextmanager
def left_open(bootstrap: str, topic: str) -> Iterator[None]:
    """While the block runs, a transaction of another producer has a record in the topic's first partition."""
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": f"{topic}-zombie",
        "transaction.timeout.ms": 600_000,
    }
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, key=b"zombie", value=b"{}", partition=0)
    producer.flush()
    yield
    producer.abort_transaction()


def until(found: Callable[[], Any]) -> Any:
    limit = time.monotonic() + WAIT_S
    while not (seen := found()):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return seen


@pytest.mark.turns("kafka")
def test_open_transactions_of_sources_and_changelogs_are_told(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "LOOK_MS", 200)
    monkeypatch.setattr(hanging, "HANGING_MS", 400)
    app = f"h{uuid.uuid4().hex[:8]}"
    log = KafkaLog(Connection(kafka), app)
    source = TopicPartition(f"{app}-s", 0)
    log.create_topic(source.topic, 1)
    settings = Settings(tmp_path / "one", app, 1, 64 << 20, kafka=KafkaSettings(kafka))
    producer = log.producer(f"{app}-source")

    def send(n: int) -> None:
        producer.begin()
        producer.send(source, batch([(n, b"k", b'{"V": %d}' % n)]))
        producer.commit()

    def status() -> dict[str, Any]:
        return host.service.status()

    def read() -> int:
        return int(status()["queries"][0]["records_in"])

    send(1)
    host = Host(settings)
    host.start()
    try:
        host.service.deploy(plan_of(SQL.format(app=app)))
        until(lambda: read() == 1)
        with left_open(kafka, source.topic):
            send(2)
            (trouble,) = until(lambda: status()["instance"]["trouble"])
            assert trouble["partition"] == str(source)
            assert f"abort --topic {source.topic} --partition 0 --start-offset 2" in trouble["error"]
            assert read() == 1
        until(lambda: read() == 2)
        until(lambda: not status()["instance"]["trouble"])
    finally:
        host.close()
    shutil.rmtree(tmp_path / "one" / "state")
    changelog = next(t for t in log.topics() if t.endswith("-changelog") and "exchange" not in t)
    with left_open(kafka, changelog):
        host = Host(settings)
        host.start()
        (trouble,) = until(lambda: status()["instance"]["trouble"])
        assert trouble["partition"] == f"{changelog}-0"
        assert status()["queries"][0]["state"] == "restoring"
    try:
        send(3)
        until(lambda: read() == 1 and status()["queries"][0]["state"] == "running")
    finally:
        host.close()
        producer.close()
        log.close()

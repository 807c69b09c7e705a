"""Lag counts records, and clients are counted: on a real Kafka, where transactions leave markers between records."""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict

import pytest

from flowql.deploy.settings import Settings
from flowql.runtime.app import hanging
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.server.at_rest import stopped_status
from flowql.server.host import Host
from flowql.server.on_runtime import RuntimeEngine
from tests.flowql.query.harness import plan_of
from tests.runtime.log.records import batch

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
WAIT_S = 60.0
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='{app}-s', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE A WITH (KAFKA_TOPIC='{app}-a') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;
"""


@pytest.fixture(params=[False, True], ids=["one", "many"])
def world(request, kafka, tmp_path):
    app = f"l{uuid.uuid4().hex[:8]}"
    log = KafkaLog(Connection(kafka), app)
    log.create_topic(f"{app}-s", 2)
    settings = Settings(tmp_path / "one", app, 1, 64 << 20, kafka=KafkaSettings(kafka, shared=request.param))
    yield app, log, settings
    log.close()


def send(log, app, records):
    """Each in a transaction of its own, which leaves a marker behind it."""
    producer = log.producer(f"{app}-source")
    for n in range(records):
        producer.begin()
        producer.send(TopicPartition(f"{app}-s", n % 2), batch([(n, b"k", b'{"V": %d}' % n)]))
        producer.commit()
    producer.close()


def until(expected, found):
    limit = time.monotonic() + WAIT_S
    while (seen := found()) != expected:
        assert time.monotonic() < limit, (seen, expected)
        time.sleep(0.05)


@pytest.mark.turns("kafka")
def test_lag_leaves_out_what_is_no_record(world):
    app, log, settings = world

    def lag(host):
        return host.service.status()["queries"][0]["lag"]

    host = Host(settings)
    host.start()
    try:
        host.service.deploy(plan_of(SQL.format(app=app)))
        send(log, app, 10)
        until(0, lambda: lag(host))
        until(
            True, host.engine.catch_up()
        )  # also what is on its way to other tasks, which is lag once the instance has stopped
        host.service.pause(["A"], paused=True)
        send(log, app, 40)
        until(40, lambda: lag(host))
    finally:
        host.close()
    until(40, lambda: stopped_status(settings)["queries"][0]["lag"])
    send(log, app, 60)
    assert stopped_status(settings)["queries"][0]["lag"] == 100
    host = Host(settings)
    host.start()
    try:
        until(100, lambda: lag(host))
        host.service.pause(["A"], paused=False)
        until(0, lambda: lag(host))
        until(True, host.engine.catch_up())
    finally:
        host.close()
    assert stopped_status(settings)["queries"][0]["lag"] == 0


def test_clients_in_status_are_those_there_are(world):
    """Two consumers, a producer and an admin; a member has a consumer for news and producers of heartbeats and, if it leads, the placement. One
    that is made beside them is seen, until it is gone.
    """
    app, log, settings = world
    del log
    host = Host(settings)
    host.start()
    try:
        host.service.deploy(plan_of(SQL.format(app=app)))
        engine = host.engine
        assert isinstance(engine, RuntimeEngine)
        until(0, lambda: host.service.status()["queries"][0]["lag"])
        alone = not settings.kafka.shared
        clients = {"consumers": 2 if alone else 3, "producers": 1 if alone else 3, "admins": 1}
        until(clients, lambda: host.service.status()["instance"]["clients"])
        another = engine.instance.log.producer(f"{app}-another")
        until({**clients, "producers": clients["producers"] + 1}, lambda: host.service.status()["instance"]["clients"])
        another.close()  # a member that announces itself has a producer and a consumer more for a moment
        until(clients, lambda: asdict(engine.instance.clients))
    finally:
        host.close()


@pytest.mark.turns("kafka")
def test_a_transaction_that_is_left_open_is_named(world, monkeypatch):
    """Lag is 0, as brokers show no record behind its first one."""
    monkeypatch.setattr(hanging, "LOOK_MS", 200)
    monkeypatch.setattr(hanging, "HANGING_MS", 500)
    app, log, settings = world
    host = Host(settings)
    host.start()
    try:
        host.service.deploy(plan_of(SQL.format(app=app)))
        open_ = log.producer(f"{app}-open")
        open_.begin()
        open_.send(TopicPartition(f"{app}-s", 1), batch([(1, b"k", b'{"V": 1}')]))
        open_._client.flush(10)
        until([f"{app}-s-1"], lambda: [t["partition"] for t in host.service.status()["instance"]["trouble"]])
        (trouble,) = host.service.status()["instance"]["trouble"]
        assert f"find-hanging --topic {app}-s --partition 1" in trouble["error"]
        open_.abort()
        until([], lambda: host.service.status()["instance"]["trouble"])
    finally:
        host.close()

"""The broker of a test session: fixture `kafka`. Started by the code behind `flowql kafka up`, once, and stopped at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.errors import CommandError
from flowql.kafka.broker import Broker
from flowql.kafka.jars import kafka_jars
from flowql.kafka.java import find_java

QUICK = ("-XX:TieredStopAtLevel=1",)  # Java is used to the end of a test, not to its own best speed


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker with a directory of its own. Tests that kill it start it again."""
    try:
        find_java()
        kafka_jars()
    except CommandError as error:
        pytest.skip(f"no Kafka here: {error}")
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start(port=0, java_options=QUICK)
    yield broker
    broker.kill()  # nobody wants its records back


@pytest.fixture
def kafka(kafka_broker: Broker) -> str:
    """`bootstrap.servers` of the session's broker, running."""
    return kafka_broker.start(java_options=QUICK).bootstrap


@pytest.fixture
def own_broker(kafka_broker: Broker, tmp_path: Path) -> Iterator[Broker]:
    """One that may be killed. On a port that nobody else takes while it is down: other tests run at the same time."""
    broker = Broker(tmp_path / "broker")
    broker.start(port=0, java_options=QUICK)
    yield broker
    broker.kill()

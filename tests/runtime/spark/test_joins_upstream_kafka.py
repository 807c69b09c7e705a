"""The same on Kafka, where the old rows of a table stay in its topic: a join that is computed anew does not meet them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.engine.instance import Mode, SparkInstance
from flowql.runtime.spark.log_address import KafkaAddress
from tests.runtime.app.test_upstream import LATEST, SOLD, SOURCES, feed
from tests.runtime.log.records import read_all
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.test_engine_order import plan_of
from tests.runtime.spark.test_joins_upstream import RECORDS, produce_into

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.turns("sessions")]


class World:
    """A project over topics that no other test has, with sales and names in them."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.app, self.folder = f"joins-{uuid.uuid4().hex[:6]}", folder
        self.address = KafkaAddress(KafkaSettings(bootstrap), self.app)
        self.log = KafkaLog(Connection(bootstrap), f"{self.app}-feed")
        sales, names = feed(0)
        for topic, rows in (("sales", sales), ("names", names)):
            produce_into(self.log, f"{self.app}-{topic}", rows)

    def sql(self, latest: str) -> str:
        """latest: what the table has of a name."""
        text = SOURCES + LATEST.replace("LATEST_BY_OFFSET(N)", f"LATEST_BY_OFFSET({latest})") + SOLD
        for topic in ("sales", "names"):
            text = text.replace(f"'{topic}'", f"'{self.app}-{topic}'")
        for kind, result in (("TABLE", "LATEST"), ("STREAM", "SOLD")):
            text = text.replace(
                f"CREATE {kind} {result} AS", f"CREATE {kind} {result} WITH (KAFKA_TOPIC='{self.app}-{result}') AS"
            )
        return text

    def run(self, latest: str, mode: Mode, *, rebuild: bool = False) -> None:
        instance = SparkInstance(self.address, self.folder / "state", TEST_SETTINGS, self.app, mode=mode)
        try:
            instance.start()
            instance.deploy(plan_of(self.sql(latest)), rebuild=rebuild)
            instance.run_until_caught_up()
        finally:
            instance.stop()

    def sold(self) -> list[tuple[int, int | None]]:
        rows = [row for p in range(2) for row in read_all(self.log, TopicPartition(f"{self.app}-SOLD", p))]
        return sorted((v["A"], v["N"]) for v in (json.loads(value) for _, _, _, value in rows))


@pytest.fixture
def world(spark: SparkSession, kafka: str, tmp_path: Path) -> Iterator[World]:
    world = World(kafka, tmp_path)
    yield world
    world.log.close()


@pytest.mark.turns("spark")
@pytest.mark.parametrize("mode", ["caught up", "bounded"])
def test_rows_meet_the_new_table_alone(world: World, mode: Mode) -> None:
    world.run("N", mode)
    assert world.sold() == [(at, at) for at in range(RECORDS)]
    world.run("N + 1000", mode, rebuild=mode == "caught up")
    assert world.sold() == [(at, at + 1000) for at in range(RECORDS)]

"""Ticks on Kafka: of an instance that is alone, and of members of a group."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from flowql.kafka.broker import Broker
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Log
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from tests.kafka_broker import QUICK
from tests.ticks import members
from tests.ticks.live import VIEWS, LiveBank

pytestmark = pytest.mark.kafka
LOOKS, WAIT_S = 8, 120.0


class KafkaBank(LiveBank):
    """Its table has one partition: a transaction of another application is atomic in a partition only."""

    partitions_of_table = 1

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        super().__init__(folder, seed=1)

    def config_of(self) -> InstanceConfig:
        return InstanceConfig(threads=2, data_dir=self.folder, changelogs=True)

    def new_log(self) -> Log:
        return KafkaLog(Connection(self.bootstrap), "bank")


@pytest.mark.turns("kafka")
def test_views_over_views_on_kafka_show_one_moment(kafka: str, tmp_path: Path) -> None:
    for start in range(2):
        bank = KafkaBank(tmp_path, kafka)
        ended = threading.Event()

        def feed(bank: KafkaBank = bank, ended: threading.Event = ended) -> None:
            while not ended.wait(0.005):
                bank.transact()

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            shown, limit = set[int](), time.monotonic() + WAIT_S
            while len(shown) < LOOKS:
                assert time.monotonic() < limit, f"only {len(shown)} moments after start {start}"
                rows, reason = bank.rows(*VIEWS)
                paid = {v: sum(r[-1] or 0 for r in rows[v]) for v in VIEWS}
                if not reason:
                    assert paid["credits"] == paid["debits"]
                    assert all(r[-1] == 0 for r in rows["balance"])
                    assert paid["total"] == 0
                    shown.add(paid["credits"])
        finally:
            ended.set()
            thread.join()
            bank.instance.stop()


@pytest.mark.turns("kafka")
def test_members_show_one_moment_also_after_a_kill(own_broker: Broker, tmp_path: Path) -> None:
    """While a producer never pauses, one joins and one is killed: no row that is written is of a state between two ticks."""
    found = members.live(own_broker.start(java_options=QUICK).bootstrap, tmp_path, 2.0)
    assert found["wrong"] == []
    assert found["ticks"] > 2
    assert found["read"] > 2, "by readers of results"

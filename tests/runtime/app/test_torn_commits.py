"""Status and the log name partitions of which brokers have lost a part of a commit, and the command that computes the query again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from flowql.runtime.app.status import instance_metrics
from flowql.runtime.errors import CommitTorn
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.engine import DOUBLED, make


class Torn(MemoryLog):
    def torn_commits(self) -> Sequence[CommitTorn]:
        return self.torn

    torn: Sequence[CommitTorn] = ()


def test_each_partition_is_told_once_with_the_way_back(caplog: pytest.LogCaptureFixture) -> None:
    log = Torn()
    instance, driver = make(log, DOUBLED)
    (query,) = instance.running.queries
    log.torn = [CommitTorn.short(TopicPartition(query.topic, 0), 9, 4), CommitTorn.aborted(TopicPartition("x", 1), 7)]
    with caplog.at_level(logging.ERROR, "flowql"):
        for _ in range(3):
            driver.round()
    told = [t["error"] for t in instance_metrics(instance)["trouble"]]
    assert len(told) == 2
    assert any(f"{query.topic}-0" in t and f"flowql deploy --full-refresh {query.id}" in t for t in told)
    assert any("x-1" in t and "flowql app reset" in t for t in told)
    assert sum("written it up to 9" in r.getMessage() for r in caplog.records) == 1

"""The writer of the plan topic alone: it goes on from the newest record, and an error leaves nothing half written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import DEPLOY, Deployed, Entry
from flowql.compiler.plan.topology import Plan
from flowql.runtime import formats
from flowql.runtime.app.plan_topic import deployed_ms, read_deployed, read_entries
from flowql.runtime.app.plan_writer import PlanWriter, write_after, writer_id
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogError, LogUnavailable, StaleMember
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from tests.runtime.app.test_plan_topic import of
from tests.runtime.app.test_replacing import put
from tests.runtime.app.test_swapping_moves import records

T, PLAN = TopicPartition("t", 0), TopicPartition("app-plan", 0)
SOME = [("k", "1", 1), ("k", "2", 2)]


class Refusing(MemoryLog):
    """Commits fail while `refuses`."""

    refuses = False

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if self.refuses:
            raise LogUnavailable("no broker answers")
        return super().commit(transactional_id, epoch, transaction)


@pytest.fixture
def log() -> Refusing:
    log = Refusing()
    log.create_topic("t", 1)
    return log


def batch(log: MemoryLog):  # type: ignore[no-untyped-def]
    """Records as a producer takes them."""
    log.create_topic("from", 1)
    put(log, TopicPartition("from", 0), *SOME)
    read = log.reader(TopicPartition("from", 0), 0).read(10, 1 << 20)
    assert read is not None
    return read.records.select(["timestamp", "key", "value", "headers"])


def test_a_writer_begins_with_the_newest_record(log: Refusing) -> None:
    first = PlanWriter(log, "app")
    assert first.deployed == Deployed(), "there is none"
    first.write(Deployed(id=1, wanted=Plan()), 1_000)
    assert first.deployed == Deployed(id=1, wanted=Plan())
    second = PlanWriter(log, "app")
    assert second.deployed == Deployed(id=1, wanted=Plan())
    second.write(Deployed(id=2, wanted=Plan()), 2_000)
    assert PlanWriter(log, "app").deployed.id == 2
    assert PlanWriter(log, "another").deployed == Deployed()


def test_a_record_has_its_time_and_its_entry_and_what_belongs_to_it(log: Refusing) -> None:
    writer, some = PlanWriter(log, "app"), batch(log)
    writer.write(Deployed(id=7, wanted=Plan()), 5_000, of(7, 5_000), [(T, some)])
    assert read_deployed(log, "app") == Deployed(id=7, wanted=Plan())
    assert deployed_ms(log, "app") == 5_000
    assert read_entries(log, "app") == [Entry(7, 5_000, DEPLOY, (("Q", "add", ""),), Plan())]
    assert records(log, T) == SOME
    assert log.last_sequence(writer_id("app")) == 1, "all of it is one transaction"
    assert log.writers(PLAN) == {"app-plan"}


def test_what_is_not_committed_is_not_taken_for_written(log: Refusing) -> None:
    writer, some = PlanWriter(log, "app"), batch(log)
    writer.write(Deployed(id=1), 1_000)
    log.refuses = True
    with pytest.raises(LogUnavailable):
        writer.write(Deployed(id=2), 2_000, records=[(T, some)])
    assert (writer.deployed.id, read_deployed(log, "app"), records(log, T)) == (1, Deployed(id=1), [])


def test_records_alone_leave_the_plan_as_it_is(log: Refusing) -> None:
    writer = PlanWriter(log, "app")
    writer.transact([(T, batch(log))])
    writer.transact([(T, batch(log))])
    assert records(log, T)[:2] == SOME
    assert (writer.deployed, read_deployed(log, "app")) == (Deployed(), None)
    PlanWriter(log, "app")
    with pytest.raises(StaleMember, match="another member"):
        writer.transact([])


def test_a_record_is_written_only_behind_the_one_it_was_decided_on(log: Refusing) -> None:
    placement = SimpleNamespace(written=formats.newest)
    config = SimpleNamespace(application_id="app")
    host: Any = SimpleNamespace(log=log, config=config, placement=placement, clock=VirtualClock(1_000))
    prepared: list[int] = []
    assert write_after(host, Deployed(), Deployed(id=1), prepare=lambda: prepared.append(1))
    assert not write_after(host, Deployed(), Deployed(id=2), prepare=lambda: prepared.append(2))
    assert (read_deployed(log, "app"), prepared) == (Deployed(id=1), [1])


def test_a_writer_that_is_closed_writes_no_more(log: Refusing) -> None:
    writer = PlanWriter(log, "app")
    writer.close()
    with pytest.raises(LogError, match="closed"):
        writer.write(Deployed(id=1), 1_000)
    assert read_deployed(log, "app") is None

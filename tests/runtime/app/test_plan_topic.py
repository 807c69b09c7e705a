"""Records of the plan topic: the newest, when it was written, and the history of deployments."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from flowql.compiler.plan.deployed import DEPLOY, Deployed, Entry
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.plan_topic import (
    ENTRIES_KEPT,
    PlanReader,
    deployed_ms,
    deployed_records,
    entry_key,
    read_deployed,
    read_entries,
    read_others,
    read_plan,
    topic_name,
    write_deployed,
)
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog


def put(log: MemoryLog, deployed: Deployed, ms: int, *, entry: Entry | None = None, app: str = "app") -> None:
    send(log, *write_deployed(deployed, log, app, ms, entry))


def send(log: MemoryLog, tp: TopicPartition, batch: pa.RecordBatch) -> None:
    producer = log.producer("deployer")
    producer.begin()
    producer.send(tp, batch)
    producer.commit()
    producer.close()


def of(number: int, ms: int = 0) -> Entry:
    return Entry(number, ms, DEPLOY, (("Q", "add", ""),), Plan())


def test_the_time_of_a_deployment_is_that_of_its_newest_record() -> None:
    log = MemoryLog()
    assert deployed_ms(log, "app") is None, "there is no topic"
    log.create_topic(topic_name("app"), 1)
    assert deployed_ms(log, "app") is None, "nothing is in it"
    for number, ms in ((1, 1_000), (2, 2_000), (3, 5_000)):
        put(log, Deployed(id=number, wanted=Plan()), ms)
        assert deployed_ms(log, "app") == ms
        assert log.end_offset(TopicPartition("app-plan", 0)) == number, "each is a record alone"


def test_a_reader_gets_the_newest_record_once() -> None:
    log = MemoryLog()
    reader = PlanReader(log, "app")
    assert (reader.newer(), reader.seen) == (None, 0)
    assert log.topics()["app-plan"].config["cleanup.policy"] == "compact"
    for number in (1, 2, 3):
        put(log, Deployed(id=number, wanted=Plan()), 0)
    assert (newest := reader.newer()) is not None
    assert (newest.id, reader.seen, reader.newer()) == (3, 3, None)
    keyed = pa.RecordBatch.from_pylist(
        [{"timestamp": 0, "key": b"swap-x", "value": b"{}", "headers": None}], PRODUCE_SCHEMA
    )
    send(log, TopicPartition("app-plan", 0), keyed)
    assert (reader.newer(), reader.seen) == (None, 4)
    assert (found := read_deployed(log, "app")) is not None
    assert found.id == 3, "whatever comes behind it"


def test_what_a_member_reads_at_its_start_is_handed_out_later_and_counts_as_seen_then() -> None:
    log = MemoryLog()
    assert PlanReader(log, "app").read_first() is None
    put(log, Deployed(id=1, wanted=Plan()), 0)
    reader = PlanReader(log, "app")
    assert reader.read_first() == reader.at_start == Deployed(id=1, wanted=Plan())
    assert reader.seen == 0, "whoever waits for it would take it for applied"
    assert (reader.newer(), reader.seen, reader.newer()) == (Deployed(id=1, wanted=Plan()), 1, None)


def test_the_plan_that_serves_is_read_without_what_is_built() -> None:
    log = MemoryLog()
    assert (read_plan(log, "app"), read_deployed(log, "app")) == (None, None)
    put(log, Deployed(id=1, wanted=Plan(paused=("Q",))), 0)
    assert read_plan(log, "app") == Plan()


def test_the_history_says_when_all_of_a_deployment_served_and_forgets_the_oldest() -> None:
    log, last = MemoryLog(), ENTRIES_KEPT + 2
    assert read_entries(log, "app") == []
    for number in range(1, last + 1):
        put(log, Deployed(id=number, wanted=Plan()), 10 * number, entry=of(number, 10 * number))
        if number % 2:
            put(log, Deployed(id=number), 10 * number + 5)
    found = read_entries(log, "app")
    assert [e.id for e in found] == list(range(3, last + 1))
    assert [e.done_ms for e in found] == [10 * n + 5 if n % 2 else None for n in range(3, last + 1)]
    assert found[0] == replace(of(3, 30), done_ms=35)


def test_a_deployment_that_serves_at_once_is_done_with_its_record() -> None:
    log = MemoryLog()
    put(log, Deployed(id=1), 70, entry=of(1, 70))
    assert [e.done_ms for e in read_entries(log, "app")] == [70]
    _, batch = deployed_records(Deployed(), "app", 7)
    assert batch.column("key").to_pylist() == [b"plan"], "without a number nothing was deployed"
    assert batch.column("timestamp").to_pylist() == [7]
    assert entry_key(-3) == entry_key(0)


def test_what_other_applications_have_deployed_is_found_by_the_names_of_their_topics() -> None:
    log = MemoryLog()
    put(log, Deployed(id=4), 0, app="app")
    put(log, Deployed(id=5), 0, app="zebra")
    put(log, Deployed(id=6), 0, app="bear")
    log.create_topic("wide-plan", 2, {"cleanup.policy": "compact"})
    log.create_topic("empty-plan", 1, {"cleanup.policy": "compact"})
    assert {name: d.id for name, d in read_others(log, "app").items()} == {"bear": 6, "zebra": 5}

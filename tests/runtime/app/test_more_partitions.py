"""Partitions that a broker adds to a topic: keys are in other partitions than their state from then on, so a query stops or reads all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from flowql.runtime.app import query_tasks, suspension
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.group import MORE_MS
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import query_status
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.app.troubles import COMPARE_TOPICS_MS
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogUnavailable, PartitionsUneven
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicInfo, TopicPartition
from flowql.runtime.log.memory import MemoryLog, _Partition
from flowql.runtime.placement.record import PlacementChange
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.topology.query import BuiltQuery
from tests.runtime.app.engine import COUNTS, DOUBLED, OTHERS, plan
from tests.runtime.app.test_group import tell

BY_VALUE = """CREATE TABLE BY_VALUE WITH (KAFKA_TOPIC='by_value') AS
  SELECT V % 3 AS R, COUNT(*) AS N FROM INPUT GROUP BY V % 3 EMIT CHANGES;"""
JOINED = """CREATE STREAM JOINED WITH (KAFKA_TOPIC='joined') AS
  SELECT I.K AS K, O.V AS V FROM INPUT I JOIN OTHER O WITHIN 1 HOUR ON I.K = O.K EMIT CHANGES;"""
OTHER_COUNTS = """CREATE TABLE OTHER_COUNTS WITH (KAFKA_TOPIC='other_counts') AS
  SELECT K, COUNT(*) AS N FROM OTHER GROUP BY K EMIT CHANGES;"""
SAID = "input has 3 partitions, and had 2 when {} began"


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is never made is waited for no longer than this."""
    monkeypatch.setattr("flowql.runtime.app.driver.ROUNDS_MAX", 3_000)


class Broker(MemoryLog):
    """A log whose topics can get more partitions, as those of Kafka."""

    drops_with_commits = False

    def add_partitions(self, topic: str, number: int) -> None:
        with self._lock:
            known = self._topics[topic]
            self._topics[topic] = TopicInfo(topic, number, known.config)
            self._partitions.update({TopicPartition(topic, p): _Partition() for p in range(known.partitions, number)})


class Life:
    """An instance on a broker; `number` partitions take the records of a key by its number. shared: it is a member of a group."""

    def __init__(self, log: Broker, physical: MemoryPhysical, *, shared: bool = False) -> None:
        self.log, self.physical, self.shared = log, physical, shared
        clock = VirtualClock()
        config = InstanceConfig(threads=1, changelogs=True, shared=shared, process_id="one" if shared else "")
        self.instance = Instance(log, physical, clock, config)
        self.driver = Driver(self.instance, tick=lambda: clock.advance(10))

    def settle(self) -> None:
        for _ in range(60):
            self.driver.round()
        self.driver.run_until_caught_up()

    def again(self) -> Life:
        """The next instance, in the same place."""
        self.instance.close()
        after = Life(self.log, self.physical, shared=self.shared)
        after.instance.resume()
        return after

    def look(self) -> None:
        """Some time later."""
        self.instance.polling.changed_topics.asked_at_ms -= COMPARE_TOPICS_MS

    def said(self, query: str) -> tuple[str, str]:
        status = query_status(self.instance, query)
        return status["state"], status["last_error"] or ""


def began(*queries: str, shared: bool = False) -> Life:
    log = Broker()
    for topic in ("input", "other"):
        log.create_topic(topic, 2)
    life = Life(log, MemoryPhysical(), shared=shared)
    life.instance.deploy(plan(*queries))
    put(log, "input", range(30), 2)
    put(log, "other", range(30), 2)
    life.settle()
    return life


def put(log: MemoryLog, topic: str, values: range, partitions: int) -> None:
    """Ten keys, each in the partition of its number."""
    producer = log.producer("test")
    producer.begin()
    for v in values:
        row = {"timestamp": v, "key": f"k{v % 10}".encode(), "value": json.dumps({"V": v}).encode(), "headers": None}
        producer.send(TopicPartition(topic, v % 10 % partitions), pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA))
    producer.commit()
    producer.close()


def rows(log: MemoryLog, topic: str) -> Iterator[tuple[int, bytes, dict[str, int] | None]]:
    """Partition, key and value of each record."""
    for p in range(log.topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, p), EARLIEST)
        while (batch := reader.read(10_000, 1 << 30)) is not None:
            for row in batch.records.select(["key", "value"]).to_pylist():
                yield p, row["key"], None if row["value"] is None else json.loads(row["value"])


def records(log: MemoryLog, topic: str) -> list[tuple[bytes, dict[str, int]]]:
    """Keys and values of all partitions, without deletions."""
    return [(key, value) for _, key, value in rows(log, topic) if value is not None]


def table(log: MemoryLog, topic: str) -> dict[bytes, int]:
    return {key: value["N"] for key, value in records(log, topic)}


@pytest.mark.parametrize("restart", [False, True])
def test_a_query_with_state_stops_when_its_input_gets_partitions(restart: bool) -> None:
    """The counts of keys began again from nothing, in the task of another partition, without a word."""
    life = began(COUNTS, BY_VALUE, OTHERS)
    before = table(life.log, "counts"), table(life.log, "by_value")
    assert set(before[0].values()) == {3}
    life.log.add_partitions("input", 3)
    if restart:
        put(life.log, "input", range(30, 60), 3)
        life = life.again()
    else:
        life.look()
    life.settle()
    if not restart:
        put(life.log, "input", range(30, 60), 3)
    put(life.log, "other", range(30, 60), 2)
    life.settle()
    for name in ("CTAS_COUNTS", "CTAS_BY_VALUE"):
        state, said = life.said(name)
        assert state == "error"
        assert SAID.format(name) in said
        assert f"flowql deploy --full-refresh {name}" in said
    assert (table(life.log, "counts"), table(life.log, "by_value")) == before
    assert life.said("CSAS_OTHERS")[0] == "running"
    assert len(records(life.log, "others")) == 60


@pytest.mark.parametrize("shared", [False, True])
def test_a_query_that_stopped_for_more_partitions_is_computed_anew(shared: bool) -> None:
    life = began(BY_VALUE, OTHER_COUNTS, shared=shared)
    for topic in ("input", "other"):
        life.log.add_partitions(topic, 3)
    put(life.log, "input", range(30, 60), 3)
    put(life.log, "other", range(30, 60), 2)
    life = life.again()
    life.settle()
    assert life.said("CTAS_BY_VALUE")[0] == "error"
    life.instance.deploy(plan(BY_VALUE, OTHER_COUNTS), refresh=["CTAS_BY_VALUE", "CTAS_OTHER_COUNTS"])
    for _ in range(2000):
        life.driver.round()
    life.settle()
    assert list(table(life.log, "by_value").values()) == [20] * 3
    assert not life.instance.query_states.having(STOPPED)
    assert not life.instance.commit.blocked, "no task of an old generation is made for the new partition"
    life = life.again()
    put(life.log, "input", range(60, 90), 3)
    life.settle()
    assert list(table(life.log, "by_value").values()) == [30] * 3
    assert set(table(life.log, "other_counts").values()) == {6}, "its keys are where they were"


def test_keys_that_added_partitions_have_moved_are_not_counted_in_two_tasks() -> None:
    """Computed anew, each of the two tasks wrote its count of such a key into the same row."""
    life = began(COUNTS)
    life.log.add_partitions("input", 3)
    put(life.log, "input", range(30, 60), 3)
    life = life.again()
    life.settle()
    life.instance.deploy(plan(COUNTS), refresh=["CTAS_COUNTS"])
    for _ in range(2000):
        life.driver.round()
    anew = life.instance.query_states.of("CTAS_COUNTS@2")
    assert anew.state is STOPPED
    assert "in which records of the key" in anew.reason


@pytest.mark.parametrize("restart", [False, True])
def test_a_query_without_state_reads_partitions_that_are_added(restart: bool) -> None:
    life = began(DOUBLED)
    life.log.add_partitions("input", 3)
    put(life.log, "input", range(30, 60), 3)
    if restart:
        life = life.again()
    else:
        life.settle()
        assert len(records(life.log, "doubled")) < 60
        life.look()
    life.settle()
    assert life.said("CSAS_DOUBLED") == ("running", "")
    assert sorted(value["V"] for _, value in records(life.log, "doubled")) == [2 * v for v in range(60)]
    assert sorted(task.id.partition for task in life.instance.queries["CSAS_DOUBLED"].built.tasks) == [0, 1, 2]
    life = life.again()
    life.settle()
    assert len(records(life.log, "doubled")) == 60


def test_brokers_that_are_away_when_tasks_are_added_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = began(DOUBLED)
    life.log.add_partitions("input", 3)
    put(life.log, "input", range(30, 60), 3)
    away = [True]

    def build(*args: Any, **options: Any) -> dict[str, BuiltQuery]:
        if away and away.pop():
            raise LogUnavailable("no answer")
        return suspension.build(*args, **options)

    monkeypatch.setattr(query_tasks, "build", build)
    life.look()
    life.settle()
    assert not away
    assert len(records(life.log, "doubled")) == 60


def test_a_member_reads_partitions_that_were_added() -> None:
    """It may have no other of that topic, so that it cannot see by its inputs that there are more."""
    life = began(DOUBLED, COUNTS, shared=True)
    life.log.add_partitions("input", 3)
    put(life.log, "input", range(30, 60), 2)  # by producers that have not noticed
    for _ in range(MORE_MS // 10):
        life.driver.round()
    life.settle()
    assert len(records(life.log, "doubled")) == 60
    state, said = life.said("CTAS_COUNTS")
    assert state == "error"
    assert SAID.format("CTAS_COUNTS") in said


def test_a_member_without_state_of_a_query_learns_from_the_records_of_others() -> None:
    life = began(COUNTS, shared=True)
    life.instance.close()
    life.log.add_partitions("input", 3)
    put(life.log, "input", range(30, 60), 3)
    other = Life(life.log, MemoryPhysical(), shared=True)
    other.instance.resume()
    other.driver.round()
    tell(other.instance, PlacementChange.ASSIGN, [TopicPartition("input", 2)])
    for _ in range(200):
        other.driver.round()
    assert SAID.format("CTAS_COUNTS") in other.said("CTAS_COUNTS")[1]
    assert set(table(life.log, "counts").values()) == {3}


@pytest.mark.parametrize("shared", [False, True])
def test_a_table_whose_topic_got_partitions_is_written_anew(shared: bool) -> None:
    """Updates of a row went to another partition than the row, which stayed there for ever; results of streams go on."""
    life = began(COUNTS, DOUBLED, shared=shared)
    life.log.add_partitions("counts", 5)
    life.log.add_partitions("doubled", 5)
    life = life.again()
    put(life.log, "input", range(30, 60), 2)
    life.settle()
    state, said = life.said("CTAS_COUNTS")
    assert state == "error"
    assert "counts has 5 partitions, and had 2 when CTAS_COUNTS began" in said
    assert "flowql deploy --full-refresh CTAS_COUNTS" in said
    assert set(table(life.log, "counts").values()) == {3}
    assert len(records(life.log, "doubled")) == 60
    life.instance.deploy(plan(COUNTS, DOUBLED), refresh=["CTAS_COUNTS"])
    for _ in range(2000):
        life.driver.round()
    life.settle()
    last = {(partition, key): value for partition, key, value in rows(life.log, "counts")}
    kept = sorted((key, value["N"]) for (_, key), value in last.items() if value is not None)
    assert kept == [(f"k{n}".encode(), 6) for n in range(10)], "each row in one partition"


def test_a_join_whose_topics_differ_stops_and_the_others_run() -> None:
    life = began(JOINED, OTHERS)
    life.log.add_partitions("input", 3)
    life = life.again()
    put(life.log, "other", range(30, 60), 2)
    life.settle()
    state, said = life.said("CSAS_JOINED")
    assert state == "error"
    assert said.startswith(PartitionsUneven.__name__)
    assert len(records(life.log, "others")) == 60


def test_state_of_a_version_that_did_not_say_goes_on_and_says_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr("flowql.runtime.topology.query.is_partitioned_by_key", lambda _: False)
        life = began(COUNTS)
    life = life.again()
    put(life.log, "input", range(30, 60), 2)
    life.settle()
    assert set(table(life.log, "counts").values()) == {6}
    life.log.add_partitions("input", 3)
    life = life.again()
    assert life.said("CTAS_COUNTS")[0] == "error"

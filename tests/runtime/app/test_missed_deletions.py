"""A table whose topic was not read for longer than it keeps deletions: its readers stop where some may be gone, and say what to do."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from flowql.runtime.app import missed_deletions
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.missed_deletions import KnownTimes, ends_with_markers
from flowql.runtime.app.progress import query_status
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.deletions import KNOWN, Deletions
from flowql.runtime.task.id import TaskId
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka
from tests.sim.cluster import SimulatedCluster
from tests.sim.faults import CALM

SQL = """
CREATE TABLE CUSTOMERS (K BIGINT PRIMARY KEY, CITY BIGINT) WITH (KAFKA_TOPIC = 'customers', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE CITIES AS SELECT CITY, COUNT(*) AS N FROM CUSTOMERS GROUP BY CITY;
CREATE STREAM COPY AS SELECT K, V FROM S;
"""
CITIES, COPY = "CTAS_CITIES", "CSAS_COPY"
TP, DAY_MS = TopicPartition("customers", 0), 86_400_000
BOTH = pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])


class World(InstanceHarness):
    """Ten customers of two cities are read. Records of theirs come and go while nothing runs."""

    def __init__(self, config: dict[str, Any], topic: dict[str, str] | None = None) -> None:
        log = LikeKafka()
        log.create_topic("customers", 1, {"cleanup.policy": "compact"} if topic is None else topic)
        self.physical, self.config = MemoryPhysical(), config
        super().__init__(SQL, log=log, physical=self.physical, tick_ms=10, **config)
        self.send("customers", [(n, {"CITY": n % 2}, n) for n in range(10)])
        self.send("s", [(1, {"V": 1}, 1)])
        self.settle()
        assert self.counts() == {0: 5, 1: 5}

    def counts(self) -> dict[int, int]:
        return {city: n for city, n, *_ in self.table("CTAS_CITIES-aggregate-1")}

    def delete(self, *, compacted: int = 2) -> None:
        """Two customers go; so many of the tombstones are gone before anyone reads them, with what they delete."""
        begin = self.log.end_offset(TP)
        self.send("customers", [(0, b"", 20), (2, b"", 20), (11, {"CITY": 7}, 20)])
        self.compact(begin, begin + compacted)
        for offset in (0, 2)[:compacted]:
            self.compact(offset, offset + 1)

    def encode(self, rows: Any) -> pa.RecordBatch:
        """A value without bytes is none: the record deletes its key."""
        found = super().encode(rows).to_pylist()
        return pa.RecordBatch.from_pylist([{**r, "value": r["value"] or None} for r in found], PRODUCE_SCHEMA)

    def compact(self, begin: int, end: int) -> None:
        partition = self.log._partitions[TP]
        for n, batch in enumerate(partition.batches):
            kept = [row for row, o in enumerate(batch.column("offset").to_pylist()) if not begin <= o < end]
            partition.batches[n] = batch.take(kept)

    def stop(self) -> None:
        self.instance.close()
        self.log.crash()
        self.producer = self.log.producer("feed")

    def restart(self, away_ms: int) -> None:
        self.stop()
        self.start(away_ms)

    def start(self, away_ms: int) -> None:
        self.clock = VirtualClock(self.clock.wall_ms() + away_ms)
        self.instance = Instance(self.log, self.physical, self.clock, InstanceConfig(**self.config))
        self.driver = Driver(self.instance, tick=self.tick)
        self.instance.resume()

    def rounds(self, n: int = 60) -> None:
        assert self.driver is not None
        for _ in range(n):
            self.driver.round()

    def advance(self, ms: int) -> None:
        assert isinstance(self.clock, VirtualClock)
        self.clock.advance(ms)

    def stopped(self, query: str = CITIES) -> bool:
        return self.instance.query_states.of(query).state is STOPPED

    def metadata(self) -> dict[str, Any]:
        record = self.instance.state.local_record(f"{CITIES}/0_0")
        assert record is not None
        return record.read()


@BOTH
def test_deletions_that_are_gone_stop_the_readers_of_their_table(config: dict[str, Any]) -> None:
    """Rows of deleted customers were counted for good, without a word."""
    world = World(config)
    world.stop()
    world.delete()
    world.send("s", [(2, {"V": 2}, 2)])
    world.start(DAY_MS + 3_600_000)
    world.rounds()
    assert query_status(world.instance, CITIES)["state"] == "error"
    said = query_status(world.instance, CITIES)["last_error"]
    assert said.startswith(
        "DeletionsMissed: customers-0 was last read to its end 25 h ago (1970-01-01 00:16 UTC), the topic keeps deletions"
    )
    assert "records from offset 10 on" in said
    assert said.endswith(f"flowql deploy --full-refresh {CITIES}  recomputes it")
    assert (world.stopped(), world.stopped(COPY)) == (True, False)
    assert [v["V"] for v in world.values("COPY")] == [1, 2]
    assert world.counts() == ({0: 5, 1: 5} if config is ALONE else {}), "a member closes what it does not run"

    world.restart(1_000)  # others have committed since
    world.rounds()
    assert world.stopped()
    world.restart(1_000)
    world.rounds()
    assert world.stopped()
    world.instance.deploy(plan_of(SQL, world.instance.plan), refresh=[CITIES])
    world.settle()
    assert not world.stopped(f"{CITIES}@2")
    assert world.counts() == {0: 3, 1: 5, 7: 1}


@BOTH
@pytest.mark.parametrize(
    ("away_ms", "compacted", "topic"),
    [
        (DAY_MS - 60_000, 2, None),
        (2 * DAY_MS, 0, None),
        (2 * DAY_MS, 2, {"cleanup.policy": "compact", "delete.retention.ms": str(3 * DAY_MS)}),
        (2 * DAY_MS, 2, {"cleanup.policy": "delete"}),
    ],
)
def test_who_cannot_have_missed_any_goes_on(
    config: dict[str, Any], away_ms: int, compacted: int, topic: dict[str, str] | None
) -> None:
    world = World(config, topic)
    world.stop()
    world.delete(compacted=compacted)
    world.start(away_ms)
    world.settle()
    assert not world.stopped()
    world.send("customers", [(12, {"CITY": 7}, 30)])
    world.settle()
    assert not world.metadata().get(KNOWN), "it has caught up"


@BOTH
def test_a_query_that_was_paused_for_too_long_stops_when_it_goes_on(config: dict[str, Any]) -> None:
    """And is found out again after a restart, though others have committed meanwhile."""
    world = World(config)
    plan = plan_of(SQL, world.instance.plan)
    world.instance.deploy(replace(plan, paused=(CITIES,)))
    world.rounds()
    world.advance(2 * DAY_MS)
    world.instance.polling._main.loop.run_once(world.clock.timer_ms())
    world.delete()
    world.send("s", [(2, {"V": 2}, 2)])
    world.instance.deploy(plan)
    world.rounds()
    assert world.stopped()
    assert world.metadata()[KNOWN] == {"customers": 1_000_000 + world.metadata()[KNOWN]["customers"] % 100_000}
    world.restart(1_000)
    world.rounds()
    assert world.stopped()


@BOTH
def test_a_single_missing_offset_is_a_marker_where_producers_write_transactions(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for markers in (True, False):
        monkeypatch.setattr(missed_deletions, "ends_with_markers", lambda log, tp, markers=markers: markers)
        world = World(config)
        world.stop()
        world.delete(compacted=1)
        world.start(2 * DAY_MS)
        world.rounds()
        assert world.stopped() == (not markers)


def test_what_lies_behind_the_last_record_tells_of_transactions() -> None:
    cluster = SimulatedCluster(1, CALM, orders=1)
    assert ends_with_markers(cluster.outside, TopicPartition("customers", 0)), "the simulated producer writes them"
    world = World(MEMBER)
    assert not ends_with_markers(world.log, TP)


def test_a_task_is_known_by_its_record_else_by_the_last_commit_before_this_instance() -> None:
    clock, task, others = VirtualClock(9_000), TaskId(CITIES, 0, 0), [0]
    times = KnownTimes(clock, 4_000, lambda query: (), lambda: others[0])
    assert times.of(task, "customers", {KNOWN: {"customers": 3_000}}) == 3_000
    assert times.of(TaskId(CITIES, 0, 1), "customers", {KNOWN: {}}) == 4_000
    assert times.of(task, "customers", {}) == 9_000, "this instance had it"
    others[0] = 8_000
    assert times.of(TaskId(CITIES, 0, 2), "customers", {}) == 8_000, "another member had it"
    assert KnownTimes(clock, None, lambda query: (), lambda: 0).of(task, "customers", {}) == 9_000


def test_a_task_that_is_made_anew_knows_what_the_one_before_knew() -> None:
    world = World(ALONE)
    (task,) = world.instance.queries[CITIES].built.tasks[:1]
    (i,) = task.logs.values()
    assert i.deletions is not None
    i.deletions.known_ms = 77
    assert world.instance.known_ms(task.id, "customers", {}) == 77
    assert world.instance.known_ms(task.id, "others", {}) > 77


MORE = """
CREATE TABLE NAMES AS SELECT K, CITY FROM CUSTOMERS;
CREATE STREAM CHANGES (K BIGINT KEY, CITY BIGINT) WITH (KAFKA_TOPIC = 'customers', VALUE_FORMAT = 'JSON');
CREATE STREAM CHANGED AS SELECT K, CITY FROM CHANGES;
CREATE TABLE LARGE AS SELECT CITY, N FROM CITIES WHERE N > 1;
"""


def looks(world: World, query: str) -> Deletions | None:
    (task, *_) = world.instance.queries[query].built.tasks
    return next(iter(task.logs.values())).deletions


@BOTH
def test_tables_of_others_are_looked_at_and_what_begins_has_missed_nothing(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(config)
    monkeypatch.setattr(Deletions, "reach", lambda *_: None)
    world.restart(2 * DAY_MS)
    world.instance.deploy(plan_of(SQL + MORE, world.instance.plan))
    world.rounds()
    of = {q: looks(world, q) for q in ("CTAS_NAMES", "CSAS_CHANGED", "CTAS_LARGE")}
    assert {q: d is not None for q, d in of.items()} == {"CTAS_NAMES": True, "CSAS_CHANGED": False, "CTAS_LARGE": False}
    begun = of["CTAS_NAMES"]
    assert begun is not None
    assert not begun.is_overdue


@BOTH
def test_a_task_that_was_away_says_so_in_its_first_commit(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever gets it next would find that the application has just committed."""
    world = World(config)
    monkeypatch.setattr(Deletions, "reach", lambda *_: None)
    world.restart(2 * DAY_MS)
    world.rounds()
    assert world.metadata()[KNOWN].keys() == {"customers"}


def test_only_who_lacks_records_stops_and_reads_no_more() -> None:
    world = World(ALONE)
    world.instance.deploy(plan_of(SQL + MORE, world.instance.plan))
    world.settle()
    of = looks(world, CITIES)
    assert of is not None
    of.gap = 1
    of_cities = next(iter(world.instance.queries[CITIES].built.tasks[0].logs.values()))
    missed_deletions.stop_readers(world.instance, TP)
    assert (world.stopped(), world.stopped("CTAS_NAMES")) == (True, False)
    left = world.instance.polling._inputs[TP]
    assert left
    assert all(i is not of_cities for i in left)


def test_what_is_taken_for_a_marker_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_deletions, "ends_with_markers", lambda log, tp: True)
    world = World(ALONE)
    of = looks(world, CITIES)
    assert of is not None
    of.gap = 1
    missed_deletions.stop_readers(world.instance, TP)
    assert (world.stopped(), of.gap) == (False, 0)
    of.gap = 2
    missed_deletions.stop_readers(world.instance, TP)
    assert world.stopped()


def test_a_catch_up_reader_looks_as_well() -> None:
    world = World(ALONE)
    (i,) = world.instance.queries[CITIES].built.tasks[0].logs.values()
    assert i.deletions is not None
    i.deletions.known_ms, at = 0, i.next_fetch
    world.advance(2 * DAY_MS)
    rows = world.encode([(1, {"CITY": 1}, 5)])
    batch = RawBatch(TP, rows.add_column(0, "offset", pa.array([at + 3])), at + 4, 10)
    i.chunk = Future()
    i.chunk.set_result([batch])
    assert world.instance.polling._take_chunk(i)
    assert (world.stopped(), i.next_fetch, i.has_rows) == (True, at, False)


def test_commits_of_other_members_are_known_by_their_records() -> None:
    world = World(MEMBER)
    of = world.instance.group
    assert of is not None
    written = of._read_written()
    assert written.committed_ms.keys() == {"flowql-one"}
    assert 1_000_000 <= written.committed_ms["flowql-one"] <= world.clock.wall_ms()
    assert of.others_ms == 0
    written.committed_ms["flowql-two"] = 5
    assert of.others_ms == 5

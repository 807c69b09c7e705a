"""Another number of PARTITIONS: results are made anew in so many, records from outside are moved by their keys."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.deployed import Deployed, Hold
from flowql.compiler.plan.diff import ForwardRefused, decide_change
from flowql.compiler.plan.partitions import as_wanted
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app import deployment
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogError, PartitionsDiffer
from flowql.runtime.log import repairs
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.topology.partitions import planned_partitions
from flowql.runtime.topology.query import ensure_topics
from tests.change.machine import Killed, Life, Memory
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import folded, reopened, sent

pytestmark = pytest.mark.turns("instances")

SOURCE = (
    "CREATE STREAM S (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS={s}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
    "CREATE TABLE T (K BIGINT PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='t', PARTITIONS={t}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
)
COPY = "CREATE STREAM COPY WITH (PARTITIONS={copy}) AS SELECT K, V FROM S;\n"
COUNTS = "CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N, SUM(V) AS V FROM COPY GROUP BY K;\n"
SOME = "CREATE TABLE SOME WITH (PARTITIONS={some}) AS SELECT K, N FROM COUNTS WHERE N > 1;\n"
BOTH = "CREATE TABLE BOTH AS SELECT C.K AS K, C.N AS N, T.V AS V FROM COUNTS C JOIN T ON C.K = T.K;\n"
ALL = SOURCE + COPY + COUNTS + SOME + BOTH
RESULTS = ("COPY", "COUNTS", "SOME", "BOTH")


def project(s: int = 2, t: int | None = None, copy: int | None = None, some: int = 2) -> str:
    copy = s if copy is None else copy
    return ALL.format(s=s, t=copy if t is None else t, copy=copy, some=some)


class Changing(InstanceHarness):
    """Compiled with the topics that there are, as a project is."""

    def plan(self, sql: str) -> Plan:
        before = self.instance.deployed
        known = as_wanted(before, {n: i.partitions for n, i in self.log.topics().items()})
        plan = before.plan if before.plan.queries else None
        found = compile_project([SourceText("test.sql", sql)], previous=plan, topic_partitions=known)
        assert found.ok, found.diagnostics
        return found.plan

    def deploy(self, sql: str) -> Any:
        done = self.instance.deploy(self.plan(sql))
        self.producer = self.log.producer("feed")
        return done

    def feed(self, first: int, n: int) -> None:
        self.send("s", sent(first, n))
        self.send("t", [(i, {"V": first + i}, first) for i in range(4)])


def fresh(sql: str, rows: int) -> Changing:
    world = Changing(sql)
    for first in range(0, rows, 20):
        world.feed(first, 20)
        world.settle()
    return world


def seen(world: InstanceHarness) -> dict[str, Any]:
    """Every result, by the partitions in which its records lie; and what interactive queries see of tables."""
    found: dict[str, Any] = {}
    for topic in RESULTS:
        rows = [(p, key, value and str(value)) for p, _, key, value, _ in world.records(topic)]
        if topic == "COPY":
            found[topic] = sorted(rows)
        else:
            found[topic] = sorted((p, k, v) for (p, k), v in {(p, k): v for p, k, v in rows}.items() if v is not None)
            found[f"interactive query about {topic}"] = world.table(topic)
    return found


def counts(world: InstanceHarness) -> dict[str, int]:
    return {t: world.partitions(t) for t in ("s", *RESULTS)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 2), (1, 3)])
def test_results_are_made_anew_in_as_many_partitions(before: int, after: int, seed: int) -> None:
    """What is made of them follows: COUNTS and the join that has to lie as they do, but not SOME, which says how many it has."""
    world = Changing(project(before, some=before), seed=seed, rows_per_run=7)
    for first in (0, 20):
        world.feed(first, 20)
        world.settle()
    world.deploy(project(before, t=after, copy=after, some=before))
    world.feed(40, 20)
    world.settle()
    assert world.instance.deployer.rebuilt
    assert counts(world) == {"s": before, "COPY": after, "COUNTS": after, "SOME": before, "BOTH": after}
    assert seen(world) == seen(fresh(project(before, t=after, copy=after, some=before), 60))
    world.feed(60, 20)
    world.settle()
    assert seen(world) == seen(fresh(project(before, t=after, copy=after, some=before), 80)), "and goes on"
    assert not [t for t in world.log.topics() if "@" in t]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 2), (1, 2), (3, 1)])
def test_records_from_outside_are_moved_by_their_keys(before: int, after: int, seed: int) -> None:
    world = Changing(project(before), seed=seed, rows_per_run=7)
    for first in (0, 20):
        world.feed(first, 20)
        world.settle()
    order = {
        key: [v["V"] for _, _, k, v, _ in world.records("s") if k == key] for _, _, key, _, _ in world.records("s")
    }
    done = {c.query: (c.action, c.because) for c in world.deploy(project(after))}
    assert done["CTAS_COUNTS"] == ("change", "CSAS_COPY")
    assert {key: [v["V"] for _, _, k, v, _ in world.records("s") if k == key] for key in order} == order
    world.feed(40, 20)
    world.settle()
    assert counts(world) == {"s": after, "COPY": after, "COUNTS": after, "SOME": 2, "BOTH": after}
    assert seen(world) == seen(fresh(project(after), 60))
    world.feed(60, 20)
    world.settle()
    assert seen(world) == seen(fresh(project(after), 80))


def test_results_are_as_before_or_as_after_at_every_moment() -> None:
    world = Changing(project(2), seed=5, rows_per_run=7)
    world.feed(0, 20)
    world.settle()
    after = project(2, t=6, copy=6)
    old, new = seen(world), seen(fresh(after, 20))
    world.deploy(after)
    for _ in range(400):
        now = seen(world)
        # T has other partitions at once, and what stands in the results does not move meanwhile
        assert now in (old, new), "old or new, nothing between"
        if world.instance.deployer.rebuilt:
            break
        world.driver.round()
    assert seen(world) == new


def test_there_and_back_before_it_is_done() -> None:
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    for s, copy in ((6, 6), (2, 6), (2, 2)):
        world.deploy(project(s, t=copy, copy=copy))
        world.driver.round()
    world.settle()
    assert counts(world) == dict.fromkeys(("s", *RESULTS), 2)
    assert seen(world) == seen(fresh(project(2), 20))


@pytest.mark.turns("disks")
@pytest.mark.parametrize("after", [project(6), project(2, t=6, copy=6)], ids=["source", "result"])
def test_a_death_at_any_moment_leaves_the_old_or_the_new(after: str) -> None:
    """Steps of the change are commits and topics that are made or taken away: the engine dies before and after each of them."""
    expected = seen(fresh(after, 60))
    moments = _die_at(after, None, expected)
    assert moments > 30
    for n in range(1, moments + 1, 3):
        _die_at(after, n, expected)


def test_a_deployment_that_died_and_is_given_up_leaves_no_topic_of_its_results() -> None:
    """The topic stayed, empty, and the next deployment wrote into as many partitions as the dead one had wanted."""
    wanted = project(2).replace(" WITH (PARTITIONS=2) AS SELECT K, N FROM COUNTS", " AS SELECT K, N FROM COUNTS")
    died = project(2, some=6)
    before = died[: died.index("CREATE TABLE SOME")]
    expected = seen(fresh(wanted, 60))
    moments = _die_at(died, None, expected, before=before, then=wanted)
    assert moments > 8
    for n in range(1, moments + 1):
        _die_at(died, n, expected, before=before, then=wanted)


def _die_at(
    after: str, at: int | None, expected: dict[str, Any], *, before: str = project(2), then: str | None = None
) -> int:
    """How many moments there were. then: what is deployed after the death, `after` if None is given."""
    life = Life()
    machine = Memory(life)
    world = Changing(before, log=machine.log, physical=machine.physical, rows_per_run=7)
    for first in (0, 20, 40):
        world.feed(first, 20)
        world.settle()
    life.at = at
    try:
        with life.running():
            world.instance.deploy(world.plan(after))
            world.settle()
    except Killed:
        for topic in ("s", "COPY"):
            assert world.partitions(topic) in (2, 6)
        machine.die(random.Random(at))
        world.instance = Instance(
            machine.log, machine.physical, VirtualClock(2_000_000), InstanceConfig(rows_per_run=7)
        )
        world.driver = Driver(world.instance)
        world.instance.resume()
    world.instance.deploy(world.plan(then or after))
    world.settle()
    assert seen(world) == expected, f"died at moment {at}"
    return life.moments


def test_what_lies_where_its_key_does_not_belong_is_not_moved() -> None:
    world = Changing(project(2))
    world.feed(0, 20)
    world.producer.begin()
    wrong = 1 - world.partition("s", 3)
    world.producer.send(TopicPartition("s", wrong), world.encode([(3, {"V": 1}, 30)]))
    world.producer.commit()
    world.settle()
    before = world.instance.deployed
    with pytest.raises(PartitionsDiffer, match=rf"s-{wrong} holds records whose keys belong into other partitions"):
        world.deploy(project(6))
    assert world.instance.deployed is before
    assert world.partitions("s") == 2


def test_joined_topics_of_different_numbers_are_refused_before_anything_is_done() -> None:
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    before = world.instance.deployed
    plan = world.plan(project(2).replace("COPY WITH (PARTITIONS=2)", "COPY WITH (PARTITIONS=6)"))
    with pytest.raises(LogError, match="joins topics with different partition counts: COUNTS has 6, t has 2"):
        world.instance.deploy(plan)
    assert world.instance.deployed is before


def test_a_foreign_key_join_is_laid_out_anew() -> None:
    """On one partition both tables lie in one task; on more they must be brought together."""
    sql = (
        "CREATE TABLE A (K BIGINT PRIMARY KEY, F BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS={n}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
        "CREATE TABLE B (K BIGINT PRIMARY KEY, V INT) WITH (KAFKA_TOPIC='t', PARTITIONS={n}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
        "CREATE TABLE AA AS SELECT K, F FROM A;\n"
        "CREATE TABLE BOTH AS SELECT A.K AS K, B.V AS V FROM AA A JOIN B ON A.F = B.K;\n"
    )
    world = Changing(sql.format(n=1))
    rows = [(i, {"F": (i * 7) % 11}, i) for i in range(20)]
    world.send("s", rows)
    world.send("t", [(i, {"V": i}, i) for i in range(11)])
    world.settle()
    world.deploy(sql.format(n=4))
    world.settle()
    assert world.partitions("BOTH") == 4
    assert sorted(world.table("BOTH")) == sorted((i, (i * 7) % 11) for i in range(20))


def test_a_broker_cannot_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Changing(project(2))
    monkeypatch.setattr(MemoryLog, "drops_with_commits", False)
    with pytest.raises(PartitionsDiffer, match="kafka-topics --alter --topic s --partitions 6"):
        world.deploy(project(6))


def test_folding_the_topic_by_key_alone_gives_the_table() -> None:
    """A reader from the beginning meets no tombstone for a key that lies elsewhere now."""
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    world.deploy(project(2, t=6, copy=6))
    world.settle()
    assert folded(world, "COUNTS") == folded(fresh(project(2, t=6, copy=6), 20), "COUNTS")
    assert all(value is not None for _, _, _, value, _ in world.records("COUNTS"))


def test_a_query_that_comes_with_the_change_begins_at_once() -> None:
    """It used to count as one of those that cannot go on."""
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    world.deploy(project(6) + "CREATE STREAM NEW AS SELECT K, V FROM S WHERE V > 3;\n")
    world.settle()
    assert len(world.values("NEW")) == 16


def test_a_change_back_of_one_that_is_under_way_makes_no_topics_by_old_numbers() -> None:
    """A join was looked at with the number that a result has now, not with the one that it will have."""
    sql = SOURCE + "CREATE STREAM COPY AS SELECT K, V FROM S;\n"
    joined = "CREATE STREAM BOTH AS SELECT S.K AS K, COPY.V AS V FROM S JOIN COPY WITHIN 1 HOUR ON S.K = COPY.K;\n"
    world = Changing((sql + joined).format(s=6, t=6))
    world.feed(0, 20)
    world.settle()
    expected = len(world.values("BOTH"))
    world.deploy(sql.format(s=2, t=2))
    world.driver.round()
    world.deploy((sql + joined).format(s=6, t=6))
    world.settle()
    assert len(world.values("BOTH")) == expected


def test_what_follows_a_result_that_moves_to_another_topic_may_have_another_number() -> None:
    """It was taken to keep the number of its topic, and a join that fits was refused."""
    sql = SOURCE.format(s=1, t=1)
    sql += "CREATE TABLE Q1{more} AS SELECT K, V FROM T;\nCREATE TABLE Q2 AS SELECT K, V FROM Q1 WHERE V > 4;\n"
    sql += "CREATE TABLE BOTH AS SELECT L.K AS K, R.V AS V FROM Q1 L JOIN Q2 R ON L.K = R.K;\n"
    world = Changing(sql.format(more=""))
    world.feed(5, 20)
    world.settle()
    rows = world.table("BOTH")
    world.deploy(sql.format(more=" WITH (PARTITIONS=2, KAFKA_TOPIC='other')"))
    world.settle()
    assert (world.partitions("BOTH"), world.table("BOTH")) == (2, rows)
    assert rows


def test_a_result_that_was_gone_has_the_number_that_it_says_now() -> None:
    """Its topic was still there with another one, and a join that fits was refused."""
    sql = SOURCE.format(s=1, t=1)
    q1, q2 = "CREATE TABLE Q1{more} AS SELECT K, V FROM T;\n", "CREATE TABLE Q2 AS SELECT K, V FROM T;\n"
    both = "CREATE TABLE BOTH AS SELECT L.K AS K, R.V AS V FROM Q1 L JOIN Q2 R ON L.K = R.K;\n"
    world = Changing(sql + q1.format(more=" WITH (PARTITIONS=6)") + q2)
    world.feed(0, 20)
    world.settle()
    world.deploy(sql + q2)
    world.settle()
    world.deploy(sql + q1.format(more="") + q2 + both)
    world.settle()
    assert (world.partitions("Q1"), len(world.table("BOTH"))) == (1, 4)


def test_results_get_their_partitions_although_the_state_is_lost_meanwhile() -> None:
    """They were taken to have a number that somebody else had given them, and kept it: records lay where no reader looks for them."""
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    world.instance.deploy(world.plan(project(6)), swap=Hold(hold=True))
    world.settle()
    world.instance.commit.flush()
    world.instance.close()
    reopened(world, MemoryPhysical())
    assert world.instance.state_lost
    world.settle()
    assert world.instance.deployed.held, "still held back"
    world.instance.deploy(world.instance.deployed.plan, swap=Hold(hold=False))
    world.settle()
    assert counts(world) == {"s": 6, "COPY": 6, "COUNTS": 6, "SOME": 2, "BOTH": 6}
    assert seen(world) == seen(fresh(project(6), 20))


@pytest.mark.parametrize("alias_first", [False, True])
def test_a_stream_declared_over_a_result_has_the_partitions_that_the_result_gets(alias_first: bool) -> None:
    """It was taken to have those that the topic has now, and a join that fits was refused (FQ2060)."""
    copy = "CREATE STREAM COPY AS SELECT K, V FROM S;\n"
    alias = "CREATE STREAM ALIAS (K BIGINT KEY, V INT) WITH (KAFKA_TOPIC='COPY', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
    both = "CREATE STREAM BOTH AS SELECT A.K AS K, A.V AS A, T.V AS V FROM ALIAS A LEFT JOIN T ON A.K = T.K;\n"
    sql = SOURCE + (alias + both + copy if alias_first else copy + alias + both)
    sql += "CREATE TABLE COUNTS AS SELECT K, COUNT(*) AS N FROM BOTH GROUP BY K;\n"
    world = Changing(SOURCE.format(s=2, t=2) + copy)  # its topic has to be there when a stream is declared over it
    world.feed(0, 20)
    world.settle()
    world.deploy(sql.format(s=2, t=2))
    world.settle()
    rebuilt = {c.query for c in world.deploy(sql.format(s=6, t=6)) if c.action == "change"}
    assert rebuilt == {"CSAS_COPY", "CSAS_BOTH", "CTAS_COUNTS"}
    world.settle()
    assert [world.partitions(t) for t in ("COPY", "BOTH", "COUNTS")] == [6, 6, 6]
    rows = sorted((p, k, v["A"]) for p, _, k, v, _ in world.records("BOTH"))
    assert {(p, k) for p, k, _ in rows} == {(p, k) for p, _, k, _, _ in world.records("s")}, (
        "each key where its source has it"
    )
    assert sorted(v for _, _, v in rows) == list(range(20))
    assert [n for _, n in world.table("COUNTS")] == [4] * 5


def test_a_result_that_is_made_of_something_else_has_as_many_partitions_as_that() -> None:
    """It was taken to keep those that it has, and a join that fits was refused (FQ2060)."""
    sql = SOURCE.format(s=2, t=2) + COPY.format(copy=1) + "CREATE TABLE Q1 AS SELECT K, V FROM T WHERE V > {over};\n"
    last = "CREATE TABLE LAST AS SELECT K, LATEST_BY_OFFSET(V) AS V FROM COPY GROUP BY K;\n"
    both = "CREATE TABLE BOTH AS SELECT L.K AS K, R.V AS V FROM Q1 L JOIN LAST R ON L.K = R.K;\n"
    world = Changing(sql.format(over=0) + last)
    world.feed(0, 20)
    world.settle()
    world.deploy(sql.replace("FROM T", "FROM LAST").format(over=1).replace(last, "") + last + both)
    world.settle()
    assert (world.partitions("Q1"), world.partitions("BOTH")) == (1, 1)
    assert world.table("BOTH") == [(i, 15 + i) for i in range(5)]


def test_repaired_records_are_not_moved() -> None:
    """A repair knows its record by the offset, and would be forgotten."""
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    world.log.create_topic(repairs.topic_name("flowql"), 1, repairs.CONFIG)
    tp = TopicPartition("s", 0)
    record = world.log.reader(tp).read(1, 1 << 20).records
    repair = {(tp, 0): repairs.Repair(record.column("key")[0].as_py(), b'{"V": 7}', 2)}
    world.producer.begin()
    world.producer.send(TopicPartition(repairs.topic_name("flowql"), 0), repairs.encode(repair, 1))
    world.producer.commit()
    with pytest.raises(PartitionsDiffer, match="records of it were repaired"):
        world.deploy(project(6))
    world.deploy(project(2, t=6, copy=6))
    world.settle()
    assert world.partitions("COPY") == 6


def test_partitions_do_not_go_forward() -> None:
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()
    with pytest.raises(ForwardRefused) as found:
        world.instance.deploy(world.plan(project(2, some=6)), forward=[q.id for q in world.instance.plan.queries])
    assert "another number of partitions" in str(found.value.reasons)


def test_what_a_deployment_left_that_failed_half_way_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its staging topics have the names of those of the next one, which took them, with their number of partitions."""
    world = Changing(project(2))
    world.feed(0, 20)
    world.settle()

    def fails(*_: object) -> None:
        raise LogError("it ends here")

    with monkeypatch.context() as broken:
        broken.setattr(deployment, "inserted", fails)
        with pytest.raises(LogError, match="it ends here"):
            world.deploy(project(6))
    world.deploy(project(2).replace("SELECT K, V FROM S;", "SELECT K, V FROM S WHERE V > 3;"))
    world.settle()
    assert (world.partitions("COPY"), len(world.values("COPY"))) == (2, 16)


def test_who_creates_a_topic_decides_and_not_who_comes_first() -> None:
    """A deployment that keeps queries puts a reader behind all who write what it reads: then an INSERT INTO came before the CREATE."""
    sql = SOURCE.format(s=2, t=2) + "CREATE STREAM COPY WITH (PARTITIONS=1) AS SELECT K, V FROM S;\n"
    sql += "CREATE STREAM ALL_OF AS SELECT K, V FROM COPY;\nINSERT INTO ALL_OF SELECT K, V FROM S;\n"
    world = Changing(SOURCE.format(s=2, t=2))
    plan = world.plan(sql)
    ids = ["CSAS_COPY", "INSERT_ALL_OF_1", "CSAS_ALL_OF"]
    ordered = replace(plan, queries=tuple(q for i in ids for q in plan.queries if q.id == i))
    assert len(ordered.queries) == 3
    after = decide_change(Deployed(), ordered).deployed
    known = {"s": 2, "t": 2}
    assert planned_partitions(Deployed(), after, known)["ALL_OF"] == 1
    ensure_topics(ordered, world.log.admin())
    assert world.partitions("ALL_OF") == 1

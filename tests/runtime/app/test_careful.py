"""What cannot be committed for the values of one record: one dead letter, everything else as in a run without the record.

The values are those of a function that gives what no store keeps: what real ones may give is in the sweep (`test_values`).
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flowql.runtime.app.backoff import BACKOFF_MS_MAX
from flowql.runtime.app.careful import CarefulQueries
from flowql.runtime.app.progress import query_status
from flowql.runtime.app.query_state import RUNNING
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.operators.base import DeadLetter
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.dead_letters import LocatedDeadLetter, encode
from flowql.runtime.task.task import Task
from tests.runtime.app.harness import InstanceHarness, function
from tests.runtime.app.narrow_log import NarrowLog

SOURCES = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE T (K BIGINT PRIMARY KEY, V BIGINT) WITH (KAFKA_TOPIC='t', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE BESIDE AS SELECT V % 5 AS R, SUM(V) AS N FROM S GROUP BY V % 5 EMIT CHANGES;
"""
KEPT = "CREATE TABLE R AS SELECT K, COUNT_DISTINCT(BAD(V)) AS N, SUM(V) AS T FROM S GROUP BY K EMIT CHANGES;"
REKEYED = (
    "CREATE TABLE R AS SELECT V % 3 AS M, COUNT_DISTINCT(BAD(V)) AS N, SUM(V) AS T FROM S GROUP BY V % 3 EMIT CHANGES;"
)
UNKEPT = -7


class Unkept:
    """Nothing that a store keeps."""


def bad(value):
    return Unkept() if value == UNKEPT else value


@pytest.fixture(autouse=True)
def bad_function():
    with function("BAD", bad):
        yield


def rows_of(world):
    return {name: world.table(name) for name in ("R", "BESIDE")}


def live(sql, rows, **config):
    world = InstanceHarness(SOURCES + sql, **config)
    world.send("s", [(v % 4, {"V": v}, n) for n, v in enumerate(rows)])
    world.settle()
    return world


@pytest.mark.parametrize("sql", [KEPT, REKEYED])
@pytest.mark.parametrize("at", [0, 599])
def test_one_bad_record_among_many_of_an_epoch_makes_one_letter(sql, at):
    rows = [*range(600)]
    world = live(sql, [*rows[:at], UNKEPT, *rows[at:]])
    expected = live(sql, rows)
    assert world.table("R") == expected.table("R")
    assert [row for row in world.table("BESIDE") if row[0] != -2] == expected.table("BESIDE")  # -7 % 5 is -2
    (letter,) = world.dead_letters("CTAS_R")
    assert (letter["CODE"], letter["TOPIC"], letter["VALUE"]) == ("FQ4012", "s", b'{"V":-7}')
    assert world.dead_letters("CTAS_BESIDE") == []
    world.send("s", [(1, {"V": 1}, 5_000)])
    world.settle()
    assert all(task.check is None for task in world.instance.queries["CTAS_R"].built.tasks), "careful mode is over"
    assert world.instance.query_states.of("CTAS_R").state is RUNNING


def test_many_bad_records_make_no_query_wait():
    """Each costs a rerun; none of them is a failure after which the next is waited for longer."""
    world, rows = InstanceHarness(SOURCES + KEPT), []
    for n in range(40):
        part = [UNKEPT] * (n % 4 == 0) + [3 * n, 3 * n + 1]
        rows += [v for v in part if v != UNKEPT]
        world.send("s", [(v % 4, {"V": v}, n) for v in part])
        for _ in range(30):
            world.driver.round()
    world.settle()
    assert world.table("R") == live(KEPT, rows).table("R")
    assert len(world.dead_letters("CTAS_R")) == 10
    assert world.clock.timer_ms() == 1_000_000, "the clock was never moved on"


def test_with_crashes_in_the_middle():
    rng = random.Random(5)
    rows = [UNKEPT if rng.random() < 0.05 else v for v in range(400)]
    expected = live(KEPT + "", [v for v in rows if v != UNKEPT]).table("R")
    log, physical = MemoryLog(), MemoryPhysical()
    world = InstanceHarness(SOURCES + KEPT, log=log, physical=physical, rows_per_run=7)
    world.send("s", [(v % 4, {"V": v}, n) for n, v in enumerate(rows)])
    for _ in range(6):
        for _ in range(rng.randrange(4, 40)):
            world.driver.round()
        log.crash()
        world = InstanceHarness(SOURCES + KEPT, log=log, physical=physical, rows_per_run=7)
    world.settle()
    assert world.table("R") == expected
    assert len(world.dead_letters("CTAS_R")) == rows.count(UNKEPT)


@pytest.mark.parametrize("sql", [KEPT, REKEYED])
def test_with_threads(sql):
    rows = [UNKEPT if n % 50 == 13 else n for n in range(600)]
    with InstanceHarness(SOURCES + sql, live=True, threads=2) as world:
        for start in range(0, len(rows), 100):
            world.send("s", [(v % 4, {"V": v}, start + n) for n, v in enumerate(rows[start : start + 100])])
        world.settle()
        assert world.table("R") == live(sql, [v for v in rows if v != UNKEPT]).table("R")
        assert len(world.dead_letters("CTAS_R")) == 12


def test_a_query_that_a_commit_suspends_between_two_looks_is_taken_apart_before_it_starts_again(monkeypatch):
    """It got new tasks beside those that ran, which ended the instance: `task CTAS_R/0_0 is already here`."""
    world = InstanceHarness(SOURCES + KEPT)
    world.send("s", [(1, {"V": v}, v) for v in (1, 2)])
    world.settle()
    instance, incomplete, todo = world.instance, StateManager.incomplete, ["CTAS_R"]

    def suspended_just_now(state):
        while todo:
            instance.query_states.suspend(todo.pop(), ValueError("refused"), at_once=True)
        return incomplete(state)

    monkeypatch.setattr(StateManager, "incomplete", suspended_just_now)
    world.send("s", [(1, {"V": 3}, 3)])
    world.settle()
    assert world.table("R") == [(1, 3, 6)]
    assert (todo, instance.query_states.of("CTAS_R").state) == ([], RUNNING)


def test_what_cannot_be_isolated_holds_its_query_alone_which_can_be_paused_and_removed(monkeypatch):
    """All commits were blocked by it; pause and prune were answered with FQ5000."""
    monkeypatch.setattr(CarefulQueries, "attach", lambda *_: None)
    world = InstanceHarness(SOURCES + KEPT)
    world.send("s", [(1, {"V": v}, v) for v in (1, UNKEPT, 2)])
    world.rest()
    record = world.instance.query_states.of("CTAS_R")
    assert record.state.value == "suspended"
    assert "cannot be kept: a value of type Unkept" in record.reason
    assert world.instance.commit.blocked == ""
    assert len(world.table("BESIDE")) == 3
    world.instance.deploy(replace(world.instance.plan, paused=("CTAS_R",)))
    assert query_status(world.instance, "CTAS_R")["state"] == "paused"
    world.deploy(SOURCES)
    assert list(world.instance.queries) == ["CTAS_BESIDE"]
    world.send("s", [(1, {"V": 8}, 8)])
    world.settle()
    assert (3, 8) in world.table("BESIDE")


LONG = "CREATE STREAM R AS SELECT K, LPAD('x', CAST(V AS INT), 'x') AS T FROM S EMIT CHANGES;"
REKEYED_LISTED = "CREATE TABLE R AS SELECT V % 2 AS M, COLLECT_LIST(LPAD('x', CAST(V AS INT), 'x')) AS L FROM S GROUP BY V % 2 EMIT CHANGES;"
LISTED = "CREATE TABLE R AS SELECT K, COLLECT_LIST(LPAD('x', CAST(V AS INT), 'x')) AS L FROM S GROUP BY K EMIT CHANGES;"


@pytest.mark.parametrize(
    ("sql", "topic", "query"), [(LONG, "R", "CSAS_R"), (LISTED, "flowql-CTAS_R-aggregate-1-changelog", "CTAS_R")]
)
def test_an_oversized_record_makes_one_letter(sql, topic, query):
    """As a result, and as a row of a changelog."""
    log = NarrowLog()
    log.bytes_max = {topic: 1_000}
    world = InstanceHarness(SOURCES + sql, log=log, changelogs=True)
    world.send("s", [(n, {"V": v}, n) for n, v in enumerate([3, 4, 5_000, 6, 7])])
    world.settle()
    (letter,) = world.dead_letters(query)
    assert (letter["CODE"], letter["VALUE"]) == ("FQ4043", b'{"V":5000}')
    assert "which takes 1000" in letter["MESSAGE"]
    texts = [v["T"] if "T" in v else v["L"][0] for v in world.values("R")]
    assert sorted(texts) == ["x" * n for n in (3, 4, 6, 7)]
    assert world.instance.query_states.of(query).state is RUNNING


COPIED = "CREATE STREAM R AS SELECT K, V FROM S EMIT CHANGES;"
COUNTED = "CREATE TABLE R AS SELECT K, COUNT(*) AS V FROM S GROUP BY K EMIT CHANGES;"
AHEAD_MS = 1_000_000 + 3_600_000  # of the wall clock


@pytest.mark.parametrize(("sql", "query"), [(COPIED, "CSAS_R"), (COUNTED, "CTAS_R")])
def test_a_record_too_far_ahead_makes_one_letter_and_its_query_goes_on(sql, query):
    """Brokers refuse what is more than an hour ahead (KIP-937); the query was suspended until the clock had come so far. Their clock may be behind."""
    log = NarrowLog()
    log.time_max_ms = {"R": AHEAD_MS - 60_000}
    world = InstanceHarness(SOURCES + sql, log=log, changelogs=True)
    times = [7, AHEAD_MS + 5, 8, AHEAD_MS - 30_000, AHEAD_MS - 60_000, 9]
    world.send("s", [(n, {"V": n}, time) for n, time in enumerate(times)])
    world.settle()
    first, second = sorted(world.dead_letters(query), key=lambda letter: letter["VALUE"])
    assert (first["CODE"], first["VALUE"], second["VALUE"]) == ("FQ4087", b'{"V":1}', b'{"V":3}')
    assert "the time 1970-01-01 01:16:40 UTC of a record for R-" in first["MESSAGE"]
    assert "message.timestamp.after.max.ms" in first["MESSAGE"]
    assert sorted(time for _, _, _, _, time in world.records("R")) == sorted([7, 8, AHEAD_MS - 60_000, 9])
    assert world.instance.query_states.of(query).state is RUNNING


def test_a_time_too_far_ahead_is_found_where_brokers_do_not_say_that_it_is():
    log = NarrowLog()
    log.time_max_ms, log.says_why = {"R": AHEAD_MS}, False
    world = InstanceHarness(SOURCES + COPIED, log=log, changelogs=True)
    world.send("s", [(n, {"V": n}, time) for n, time in enumerate([7, AHEAD_MS + 5, 8])])
    world.settle()
    assert [(letter["CODE"], letter["VALUE"]) for letter in world.dead_letters("CSAS_R")] == [("FQ4087", b'{"V":1}')]
    assert sorted(time for _, _, _, _, time in world.records("R")) == [7, 8]


class WithArrivalTimes(MemoryLog):
    replaced = frozenset({"R"})

    def with_replaced_times(self, topics):
        return self.replaced & set(topics)


def test_nothing_is_written_where_brokers_replace_event_times():
    log = WithArrivalTimes()
    world = InstanceHarness(SOURCES + COPIED, log=log, tick_ms=10)
    world.send("s", [(1, {"V": 1}, 5)])
    world.rest()
    record = world.instance.query_states.of("CSAS_R")
    assert record.state.value == "suspended"
    assert "--topic R --add-config message.timestamp.type=CreateTime" in record.reason
    assert world.records("R") == []
    log.replaced = frozenset()
    world.settle()
    assert [v for _, _, _, v, _ in world.records("R")] == [{"V": 1}]


def test_behind_a_repartition_the_letter_names_the_source_record():
    """Which task finds it is that of the repartition's key; records there are rows of many (`test_origins`)."""
    log = NarrowLog()
    log.bytes_max = {"flowql-CTAS_R-aggregate-1-changelog": 1_000, "R": 100_000}
    world = InstanceHarness(SOURCES + REKEYED_LISTED, log=log, changelogs=True)
    world.send("s", [(n, {"V": v}, n) for n, v in enumerate([3, 4, 901, 5_000, 6, 7])])
    world.settle()
    (letter,) = world.dead_letters("CTAS_R")
    place = next((p, o) for p, o, _, v, _ in world.records("s") if v == {"V": 5_000})
    assert (letter["CODE"], letter["TOPIC"], letter["PARTITION"], letter["OFFSET"]) == ("FQ4043", "s", *place)
    assert {m: [len(x) for x in texts] for m, texts in world.table("R")} == {0: [4, 6], 1: [3, 901, 7]}


def test_of_a_change_whose_new_row_fails_the_old_row_leaves():
    """What was replaced upstream must not be counted for ever."""
    log = NarrowLog()
    log.bytes_max = {"flowql-CTAS_R-aggregate-1-changelog": 1_000}
    world = InstanceHarness(SOURCES + REKEYED_LISTED.replace("FROM S", "FROM T"), log=log, changelogs=True)
    world.send("t", [(1, {"V": 3}, 1), (2, {"V": 5}, 2)])
    world.settle()
    assert [len(x) for x in world.table("R")[0][1]] == [3, 5]
    world.send("t", [(1, {"V": 5_001}, 3)])
    world.settle()
    assert [len(x) for x in world.table("R")[0][1]] == [5]
    assert len(world.dead_letters("CTAS_R")) == 1
    world.send("t", [(1, {"V": 7}, 4)])
    world.settle()
    assert [len(x) for x in world.table("R")[0][1]] == [5, 7]


def test_a_dead_letter_that_is_too_large_goes_without_the_bytes_of_its_record():
    log = NarrowLog()
    log.bytes_max = {"flowql-dead-letters": 1_000}
    world = InstanceHarness(SOURCES + KEPT, log=log)
    world.send("s", [(1, b"no JSON " + b"x" * 5_000, 1), (1, {"V": 2}, 2), (1, b"no JSON either", 3)])
    world.settle()
    large, small = world.dead_letters("CTAS_R")
    assert (large["OFFSET"], large["VALUE"], small["OFFSET"], small["VALUE"]) == (0, None, 2, b"no JSON either")
    assert [row[0] for row in world.table("R")] == [1]


def test_many_small_records_that_are_too_large_together_are_not_taken_for_large_ones():
    """Brokers refuse a batch; then the query waits, and no record of it is left out."""
    log = NarrowLog()
    world = InstanceHarness(SOURCES + LONG, log=log)
    log.bytes_max = {"R": 10}
    log.record_bytes_max = lambda topic: 1_000
    world.send("s", [(n, {"V": 30}, n) for n in range(5)])
    world.rest()
    assert world.dead_letters("CSAS_R") == []
    assert "too large" in world.instance.query_states.of("CSAS_R").reason
    log.bytes_max = {}
    world.clock.advance(BACKOFF_MS_MAX)
    world.settle()
    assert len(world.values("R")) == 5


def test_a_message_that_quotes_what_is_no_text_is_written():
    located = LocatedDeadLetter(DeadLetter(0, "FQ4031", "not \ud800 utf-8"), None)
    assert b"not \\\\ud800 utf-8" in encode("Q", [located]).column("value")[0].as_py()


JOINED = "CREATE STREAM J AS SELECT S.K, S.V AS V, T.V AS W FROM S JOIN T ON S.K = T.K EMIT CHANGES;"


def test_a_row_that_comes_between_two_attempts_is_not_taken_for_the_bad_one(monkeypatch):
    """The other input of a join got an earlier row after the attempt that failed: that one became the dead letter, and was lost."""
    world = InstanceHarness(SOURCES + JOINED)
    world.send("t", [(1, {"V": 1}, 0)])
    world.settle()
    for task in world.instance.queries["CSAS_J"].built.tasks:
        monkeypatch.setattr(task.program, "execute", refusing(task.program.execute))
    leave_out, arrived = Task._leave_out, []

    def after_an_arrival(task, attempt, error):
        if not arrived:
            arrived.append(True)
            world.send("t", [(1, {"V": 42}, 5)])
            world.instance.polling.refresh_ends()
            for step in (world.instance.main.loop, world.instance.polling) * 3:
                step.run_once(world.clock.timer_ms())
        return leave_out(task, attempt, error)

    monkeypatch.setattr(Task, "_leave_out", after_an_arrival)
    world.send("s", [(1, {"V": UNKEPT}, 10), (1, {"V": 3}, 20)])
    world.settle()
    assert arrived
    assert [(x["TOPIC"], x["VALUE"]) for x in world.dead_letters("CSAS_J")] == [("s", b'{"V":-7}')]
    assert world.values("J")[-1] == {"V": 3, "W": 42}


def refusing(execute):
    def refused(batches, run):
        for batch in batches.values():
            if UNKEPT in list(batch.column("V") if "V" in batch.schema.names else ()):
                raise ValueError("this value")
        return execute(batches, run)

    return refused

"""The state cannot be written after the log has a commit: it is tried again, with the reason in status, and no thread ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from flowql.runtime.app import single_instance
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.app.status import instance_metrics, statuses
from flowql.runtime.clock import VirtualClock
from flowql.runtime.commit import coordinator, reopening
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import BatchDamaged, Fenced, LogCorrupt, LogUnavailable, StateError
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.crash.simulated import LossyPhysical
from tests.runtime.app.harness import InstanceHarness, plan_of

pytestmark = pytest.mark.turns("long")

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE R AS SELECT K, SUM(V) AS N FROM S GROUP BY K EMIT CHANGES;
"""
FULL = "No space left on device"


class NoRedo(MemoryLog):
    """As on Kafka: what the state loses is in changelogs alone."""

    supports_redo = False


LOGS = {"redo": (MemoryLog, {}), "changelogs": (NoRedo, {"changelogs": True})}


class FullPhysical(MemoryPhysical):
    """Its calls of these names fail for as long as `failing` has them. calls: how many of them there were; fail_at: the n-th fails."""

    def __init__(self):
        super().__init__()
        self.failing, self.calls, self.fail_at = set(), 0, 0

    def _call(self, name):
        self.calls += 1
        if name in self.failing or self.calls == self.fail_at:
            raise StateError(FULL)

    def write_batch(self, keys, values, ranges=()):
        self._call("write")
        super().write_batch(keys, values, ranges)

    def flush(self):
        self._call("flush")
        super().flush()

    def snapshot(self):
        self._call("snapshot")
        return super().snapshot()


def feed(world, start, count=20):
    world.send("s", [(n % 3, {"V": n}, n) for n in range(start, start + count)])
    for _ in range(20):
        world.driver.round()
        world.clock.advance(50)


def sums(count):
    return [(k, sum(range(k, count, 3))) for k in range(3)]


@pytest.mark.parametrize("call", ["write", "snapshot"])
def test_a_commit_waits_until_the_state_takes_it(call):
    """RocksDB raised outside every try: the commit thread died, and the process ended with a bug of FlowQL."""
    physical = FullPhysical()
    world = InstanceHarness(SQL, physical=physical)
    feed(world, 0)
    physical.failing = {call}
    feed(world, 20)
    feed(world, 40)
    assert instance_metrics(world.instance)["blocked"] == FULL
    (status,) = statuses(world.instance)
    assert (status["state"], status["last_error"]) == ("blocked", FULL)
    physical.failing = set()
    world.settle()
    assert world.instance.commit.blocked == ""
    assert world.table("R") == sums(60)
    assert world.instance.state.applied_sequence == world.log.last_sequence("flowql")


def test_what_cannot_be_made_durable_is_tried_again_and_the_redo_stays(monkeypatch):
    monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 100)
    physical = FullPhysical()
    world = InstanceHarness(SQL, physical=physical)
    feed(world, 0)
    durable = world.instance.state.applied_sequence
    physical.failing = {"flush"}
    feed(world, 20)
    assert instance_metrics(world.instance)["blocked"] == FULL
    assert list(world.log.redo_after("flowql", durable)), "what the state may lose is in the log"
    assert world.table("R") == sums(40), "commits go on"
    physical.failing = set()
    for _ in range(20):
        world.driver.round()
        world.clock.advance(50)
    assert instance_metrics(world.instance)["blocked"] is None


def test_whichever_call_fails_nothing_is_lost_or_doubled(monkeypatch):
    """The n-th call of the physical store for n = 1, 2, ... until none is left to fail."""
    monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 100)
    for n in range(1, 200):
        physical = FullPhysical()
        world = InstanceHarness(SQL, physical=physical)
        physical.calls, physical.fail_at = 0, n
        for start in range(0, 40, 10):
            feed(world, start, 10)
        world.settle()
        assert world.table("R") == sums(40), n
        assert [v["N"] for v in world.values("R")].count(sums(40)[2][1]) == 1
        if physical.calls < n:
            return
    raise AssertionError("it never ends")


def test_an_instance_stops_on_a_full_disk():
    physical = FullPhysical()
    world = InstanceHarness(SQL, physical=physical)
    feed(world, 0)
    physical.failing = {"flush"}
    world.instance.close()
    physical.failing = set()
    again = Instance(world.log, physical, VirtualClock(), InstanceConfig())
    assert again.state.applied_sequence == world.log.last_sequence("flowql")


@pytest.mark.parametrize("source", LOGS)
@pytest.mark.parametrize("moment", ["apply", "flush"])
def test_after_an_io_error_the_state_is_opened_again_and_redone(moment, source, monkeypatch):
    """RocksDB takes no more writes after one, for good: commits waited for ever, and an instance without redo ended."""
    if moment == "flush":
        monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 100)
    physical = LossyPhysical()
    log, config = LOGS[source]
    world = InstanceHarness(SQL, physical=physical, log=log(), **config)
    feed(world, 0)
    world.instance.commit.flush()
    feed(world, 20)
    physical.break_down()
    physical.is_full = True
    feed(world, 40)
    assert instance_metrics(world.instance)["blocked"] == "Input/output error"
    assert physical.reopened == 0, "the disk takes nothing yet"
    physical.is_full = False
    feed(world, 60)
    world.settle()
    assert physical.reopened == 1
    assert instance_metrics(world.instance)["blocked"] is None
    assert world.table("R") == sums(80)
    assert world.instance.state.applied_sequence == world.log.last_sequence("flowql")


@pytest.fixture
def broken():
    """A world with changelogs alone that has met an I/O error: its state has lost all but the first 20 records."""
    physical = LossyPhysical()
    world = InstanceHarness(MORE, physical=physical, log=NoRedo(), changelogs=True)
    feed(world, 0)
    world.instance.commit.flush()
    feed(world, 20)
    physical.break_down()
    return world, physical


MORE = SQL + "CREATE TABLE BY_V AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;"


def test_what_is_read_from_changelogs_outlives_the_next_error(broken):
    """Tasks are whole again, and so is what waits in repartitions: after a second error, and after a start."""
    world, physical = broken
    feed(world, 40)
    physical.break_down()
    feed(world, 60)
    world.settle()
    assert physical.reopened == 2
    assert world.table("R") == sums(80)
    assert world.table("BY_V") == [(v, 1) for v in range(80)]
    before = rows_of(world.instance)
    for kept in (0, physical.unflushed):
        world.log.crash()
        again = Instance(world.log, physical.after_crash(kept), VirtualClock(), InstanceConfig(changelogs=True))
        driver = Driver(again)
        again.resume()
        driver.run_until_caught_up()
        assert rows_of(again) == before


def rows_of(instance):
    with instance.snapshot() as snapshot:
        return {s.name: list(snapshot.scan(s.name)) for s in snapshot.stores()}


def test_queries_that_come_and_go_after_the_last_flush_are_as_they_were(broken):
    """Stores that the older state does not know, and one that it knows and that is gone: ids stay as open tasks have them."""
    world, physical = broken
    physical.broken = False
    world.deploy(SQL + "CREATE TABLE NEWER AS SELECT K, COUNT(*) AS N FROM S GROUP BY K EMIT CHANGES;")
    feed(world, 40)
    physical.break_down()
    feed(world, 60)
    world.settle()
    assert physical.reopened == 1
    assert world.table("NEWER") == [(0, 27), (1, 27), (2, 26)]
    assert world.table("R") == sums(80)
    entries = list(world.instance.state.committed_stores().values())
    kept = {key[:4] for key, _ in physical.scan(b"\0\0\0\1", b"\xff" * 9)}
    assert kept <= {e.id.to_bytes(4, "big") for e in entries}, "nothing is left of what is gone"


@pytest.mark.parametrize("calls", [("key_values",), ("key_values", "reader")])
def test_brokers_that_are_away_are_waited_for(broken, monkeypatch, calls):
    """Tasks that are not whole are known to be, and nothing is committed before they are made anew."""
    world, physical = broken
    with monkeypatch.context() as patch:
        for call in calls:
            patch.setattr(world.log, call, away)
        feed(world, 40)
        sequence = world.log.last_sequence("flowql")
        feed(world, 60)
        assert physical.reopened == 1
        assert world.instance.commit.blocked == "brokers do not answer"
        assert world.log.last_sequence("flowql") == sequence
    feed(world, 80)
    world.settle()
    assert world.table("R") == sums(100)
    assert world.table("BY_V") == [(v, 1) for v in range(100)]


def away(*_):
    raise LogUnavailable("brokers do not answer")


def test_a_deployment_waits_until_queries_begin_anew(broken):
    world, physical = broken
    world.send("s", [(0, {"V": 0}, 20)])
    while not world.instance.commit.blocked:
        world.driver.round()
        world.clock.advance(50)
    world.tick_ms = 50
    world.deploy(MORE + "CREATE TABLE NEWER AS SELECT K, COUNT(*) AS N FROM S GROUP BY K EMIT CHANGES;")
    world.settle()
    assert physical.reopened == 1
    assert world.table("NEWER") == [(0, 15), (1, 13), (2, 13)]
    assert len(world.table("BY_V")) == 40


def test_a_start_that_fails_on_the_way_is_repeated(broken, monkeypatch):
    """Commits go on, and queries are not there yet."""
    world, _ = broken
    attempts = []

    def failing(log, app):
        attempts.append(app)
        return away() if len(attempts) < 3 else read_deployed(log, app)

    monkeypatch.setattr(single_instance, "read_deployed", failing)
    feed(world, 40)
    feed(world, 60)
    world.settle()
    assert len(attempts) == 3
    assert world.table("R") == sums(80)


def test_what_is_not_visible_yet_is_waited_for(broken, monkeypatch):
    """Brokers answer a commit a little before others can read it: state as of the commit before would be taken for lost."""
    world, physical = broken
    written_offset = type(world.instance.admin).written_offset

    def hidden(admin, tp):
        return written_offset(admin, tp) + (tp.topic == "flowql-metadata")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.instance.admin), "written_offset", hidden)
        feed(world, 40)
        assert physical.reopened == 1
        assert world.instance.commit.blocked == "not all of flowql-metadata is to be seen yet"
    feed(world, 60)
    world.settle()
    assert not world.instance.state_lost
    assert world.table("R") == sums(80)


def test_no_tick_of_a_cut_that_met_the_error_is_taken_for_finished(monkeypatch):
    """Its ends would be asked for after the next commit, when results of the tick after it are there as well."""
    physical, views = LossyPhysical(), []
    world = InstanceHarness(VIEWS, physical=physical, log=NoRedo(), changelogs=True, dialect="standard")
    ticks = world.instance.ticks
    at_cut, learn = ticks.at_cut, ticks._course.learn

    def breaks():
        found = at_cut()
        if ticks._course.to_ask() and not physical.reopened:
            physical.break_down()
            views.append(ticks._course.newest)
        return found

    def learned(name, ends):
        lost = physical.reopened and ticks._course._stages[name].asks <= views[0]
        assert ends is None or not lost
        learn(name, ends)

    monkeypatch.setattr(ticks, "at_cut", breaks)
    monkeypatch.setattr(ticks._course, "learn", learned)
    for n in range(0, 200, 20):
        feed(world, n)
    world.settle()
    assert physical.reopened
    with world.instance.snapshot() as snapshot:
        assert [row for _, row in snapshot.scan("b")] == [(3, sum(range(200)))]


VIEWS = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE MATERIALIZED VIEW A AS SELECT K, SUM(V) AS N FROM S GROUP BY K;
CREATE MATERIALIZED VIEW B AS SELECT COUNT(*) AS C, SUM(N) AS T FROM A;
"""


def test_another_instance_that_has_taken_over_meanwhile_ends_this_one(broken, monkeypatch):
    world, _ = broken

    def fenced(_):
        raise Fenced("its producer has a later term")

    monkeypatch.setattr(world.log, "producer", fenced)
    with pytest.raises(Fenced, match="another instance of this application has taken over"):
        feed(world, 40)


def test_a_deployment_whose_own_commit_meets_the_error_takes_effect(broken, monkeypatch):
    """It is on record: queries that it removes do not begin anew."""
    world, physical = broken
    physical.broken = False
    feed(world, 40)
    serve, served = world.instance.serve, []

    def at_the_cut(deployed, sequence):
        physical.broken = not served
        served.append(deployed.id)
        serve(deployed, sequence)

    monkeypatch.setattr(world.instance, "serve", at_the_cut)
    world.tick_ms = 50
    world.instance.deploy(plan_of(SQL, world.instance.plan), seen=world.instance.deployed)
    feed(world, 60)
    world.settle()
    assert physical.reopened == 1
    assert served == [2, 2], "it is deployed once"
    assert list(world.instance.queries) == ["CTAS_R"]
    assert world.table("R") == sums(80)


def test_trouble_of_the_log_does_not_open_the_state_again(monkeypatch):
    """The redo could not be trimmed: the state has nothing to do with it."""
    monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 100)
    physical = LossyPhysical()
    world = InstanceHarness(SQL, physical=physical)

    def trim_redo(transactional_id, sequence):
        raise LogUnavailable("Input/output error of the log")

    monkeypatch.setattr(world.log, "trim_redo", trim_redo)
    feed(world, 0)
    feed(world, 20)
    feed(world, 40)
    assert instance_metrics(world.instance)["blocked"] == "Input/output error of the log"
    assert physical.reopened == 0
    assert world.table("R") == sums(60)


def test_without_opening_it_again_an_io_error_stays(monkeypatch):
    """What the test above shows is shown by the opening."""
    monkeypatch.setattr(reopening, "AFTER", 1 << 30)
    physical = LossyPhysical()
    world = InstanceHarness(SQL, physical=physical)
    physical.break_down()
    for _ in range(3):
        feed(world, 0)
    assert world.instance.commit.blocked == "Input/output error"


def test_what_does_not_help_is_not_done_again_at_once():
    """Readers wait while the state is opened again."""
    physical = FullPhysical()
    world = InstanceHarness(SQL, physical=physical)
    feed(world, 0)
    opened, reopen = [], physical.reopen
    physical.reopen = lambda roll_forward: opened.append(world.clock.timer_ms()) or reopen(roll_forward)
    physical.failing = {"flush"}
    world.instance.commit._try_flush()
    for _ in range(1_200):
        world.driver.round()
        world.clock.advance(50)
    assert 3 < len(opened) < 10
    physical.failing = set()
    world.settle()
    assert world.table("R") == sums(20)


ON_A_SMALL_DISK = """
import os, sys, time
from pathlib import Path
from flowql.runtime.commit import coordinator, reopening
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.rocks import open_rocks
from tests.runtime.app.harness import InstanceHarness, plan_of
coordinator.REDO_FLUSH_BYTES = 200_000
disk = Path(sys.argv[1])
sql = '''CREATE STREAM S (K BIGINT KEY, V STRING) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE R AS SELECT K, LATEST_BY_OFFSET(V) AS N FROM S GROUP BY K EMIT CHANGES;'''
with InstanceHarness(sql, live=True, physical=open_rocks(disk / 'state', write_buffer_bytes=1 << 20)) as world:
    filler, n, blocked = disk / 'filler', 0, False
    world.send('s', [(0, {'V': 'x'}, 0)])
    world.settle()
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    filler.write_bytes(bytes(max(0, free - 300_000)))
    def trouble():
        return world.instance.commit.blocked or world.instance.commit.state_trouble
    limit = time.monotonic() + 60
    while not trouble():
        assert time.monotonic() < limit, 'the disk is never full'
        world.send('s', [(n + i, {'V': os.urandom(400).hex()}, n) for i in range(200)])
        n += 200
        time.sleep(0.05)
    print('trouble:', trouble())
    time.sleep(1)
    assert world.instance.fatal is None
    filler.unlink()
    world.settle()
    world.until(lambda: not trouble(), 'as before')
    assert len(world.table('R')) == max(1, n)
print('went on')
"""


def test_a_real_disk_that_is_full_for_a_while(tmp_path):
    """A file system of 16 MB, in a namespace of its own."""
    unshare = shutil.which("unshare")
    mount = ["sh", "-c", 'mount -t tmpfs -o size=16m tmpfs "$1" && exec "$2" -c "$3" "$1"', "sh"]
    if unshare is None or subprocess.run([unshare, "-rm", *mount, str(tmp_path), "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    command = [unshare, "-rm", *mount, str(tmp_path), sys.executable, ON_A_SMALL_DISK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "went on" in done.stdout
    assert "No space left" in done.stdout


def test_redo_that_the_state_has_flushed_leaves_the_log(monkeypatch):
    """Else a start would replay all commits since the last flush, and the log would keep them for ever."""
    monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 1_000)
    world = InstanceHarness(SQL)
    for n in range(10):
        feed(world, 20 * n)
    with pytest.raises(LogCorrupt, match="trimmed"):
        list(world.log.redo_after("flowql", 0))
    assert world.table("R") == sums(200)


def test_a_pause_whose_own_commit_meets_the_error_takes_effect(broken):
    """It is on record, and was said to have failed."""
    world, physical = broken
    physical.broken = False
    feed(world, 40)
    request, asked = world.instance.commit.request, []

    def meets_the_error(*given, **named):
        physical.broken = not asked
        asked.append(given)
        return request(*given, **named)

    world.instance.commit.request = meets_the_error
    world.tick_ms = 50
    seen = world.instance.deployed
    world.instance.deploy(replace(seen.plan, paused=("CTAS_R",)), seen=seen)
    world.settle()
    assert physical.reopened == 1
    stored = read_deployed(world.log, "flowql")
    assert (stored.plan.paused, stored.id) == (("CTAS_R",), world.instance.deployed.id)
    assert world.instance.query_states.of("CTAS_R").paused
    feed(world, 60)
    world.settle()
    assert world.table("R") == sums(60)
    assert world.table("BY_V") == [(v, 1) for v in range(80)]


def test_a_log_that_is_damaged_ends_an_instance_that_starts_over(broken, monkeypatch):
    """Its tasks cannot be restored: they are not tried again, for ever."""
    world, physical = broken

    def damaged(*_):
        raise BatchDamaged("data/segment", 17, "its checksum is wrong")

    monkeypatch.setattr(world.instance, "recover", damaged)
    with pytest.raises(LogCorrupt) as raised:
        feed(world, 40)
    assert (raised.value.code, physical.reopened) == ("FQ4051", 1)

"""The state cannot be written after the log has a commit: it is tried again, with the reason in status, and no thread ends."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import instance_metrics, statuses
from flowql.runtime.clock import VirtualClock
from flowql.runtime.commit import coordinator, reopening
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogCorrupt, LogUnavailable, StateError
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from tests.crash.simulated import LossyPhysical
from tests.runtime.app.harness import InstanceHarness

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
    world.settle()
    assert physical.reopened == 1
    assert instance_metrics(world.instance)["blocked"] is None
    assert world.table("R") == sums(60)
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


def test_brokers_that_are_away_are_waited_for_before_the_state_is_closed(broken, monkeypatch):
    world, physical = broken
    with monkeypatch.context() as patch:
        patch.setattr(world.log, "key_values", away)
        patch.setattr(world.log, "reader", away)
        feed(world, 40)
        assert physical.reopened == 0
        assert world.instance.commit.blocked == "brokers do not answer"
    world.settle()
    assert world.table("R") == sums(60)


def test_a_changelog_that_cannot_be_read_to_its_end_is_read_again(broken, monkeypatch):
    """The store stays closed to others meanwhile, and tasks that are not whole are known to be."""
    world, physical = broken
    with monkeypatch.context() as patch:
        patch.setattr(world.log, "key_values", away)
        feed(world, 40)
        assert physical.reopened >= 1
        assert physical.broken, "it is closed"
        assert world.instance.commit.blocked == "brokers do not answer"
    world.settle()
    assert world.table("R") == sums(60)
    assert world.table("BY_V") == [(v, 1) for v in range(60)]


def away(*_):
    raise LogUnavailable("brokers do not answer")


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
from tests.runtime.app.harness import InstanceHarness
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

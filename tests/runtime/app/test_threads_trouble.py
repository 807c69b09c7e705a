"""Instances with real threads that die, hang, are fenced or find no space; and their locks under the fastest switching there is."""

import json
import random
import sys
import threading
import time

import pyarrow as pa
import pytest

from flowql.runtime.app.progress import caught_up, query_status, source_ends
from flowql.runtime.app.threads import NamedStep, ThreadGroup
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import Fenced, RuntimeFailure
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.engine import COUNTS, DOUBLED, FullLog, make, plan, produce, read, resume, threaded

pytestmark = pytest.mark.turns("instances")

WAIT_S = 120.0


def until(condition, what):
    limit = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < limit, f"never {what}"
        time.sleep(0.005)


def done(instance):
    return lambda: instance.fatal is None and caught_up(instance, source_ends(instance))


def broken(self, now_ms):
    raise MemoryError("the step broke")


THREADS = ["commit", "polling", "consumer-main", "processing-0", "restoration"]


def step_of(instance, name):
    return {s.name: s.step for s in instance.steps()}[name]


@pytest.mark.parametrize("name", THREADS)
def test_a_dead_thread_ends_all_waiting_and_says_error(name, monkeypatch):
    log = MemoryLog()
    instance = threaded(log, DOUBLED)
    produce(log, "input", 1)
    until(done(instance), "caught up")
    step = step_of(instance, name)
    monkeypatch.setattr(type(step), "run_once", broken)
    produce(log, "input", 2)
    until(lambda: instance.fatal is not None, "fatal")
    monkeypatch.undo()
    assert query_status(instance, "CSAS_DOUBLED")["state"] == "error"
    with pytest.raises(RuntimeFailure, match="the step broke"):
        instance.wait(instance.commit.request())
    started = time.monotonic()
    assert instance.stop() == []
    assert time.monotonic() - started < WAIT_S
    _, driver = resume(log, instance.state._physical)
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]


@pytest.mark.parametrize("name", ["reconciler", "restoration", "consumer-main"])
def test_a_dead_thread_of_a_member_holds_up_no_end(name, monkeypatch):
    """PR 20767's and 23093's theme: what waits for a thread that is gone learns so, and closing comes to an end."""
    shared = {"changelogs": True, "shared": True}
    log = MemoryLog()
    instance = threaded(log, COUNTS, process_id="one", **shared)
    produce(log, "input", 1)
    until(done(instance), "caught up")
    monkeypatch.setattr(type(step_of(instance, name)), "run_once", broken)
    until(lambda: instance.fatal is not None, "fatal")
    monkeypatch.undo()
    with pytest.raises(RuntimeFailure, match="the step broke"):
        instance.deploy(plan(COUNTS, DOUBLED))
    started = time.monotonic()
    assert instance.stop() == []
    assert time.monotonic() - started < WAIT_S
    second = threaded(log, COUNTS, process_id="two", **shared)
    produce(log, "input", 2)
    until(done(second), "caught up")
    assert read(log, "counts")[-1] == {"N": 2}
    assert second.stop() == []


def test_a_request_made_before_the_commit_thread_died_fails(monkeypatch):
    log = FullLog()
    instance = threaded(log, DOUBLED)
    log.full = True
    waiting = instance.commit.request()
    until(lambda: instance.commit.blocked, "blocked")
    monkeypatch.setattr(type(instance.commit), "run_once", broken)
    with pytest.raises(RuntimeFailure, match="no more commits: the step broke"):
        waiting.result(WAIT_S)
    log.full = False
    instance.stop()


def test_a_full_disk_under_threads():
    log = FullLog()
    instance = threaded(log, DOUBLED, COUNTS)
    produce(log, "input", 1)
    until(done(instance), "caught up")
    log.full = True
    with pytest.raises(Exception, match="no space"):
        produce(log, "input", 2)
    instance.commit.dirty = True  # something to commit
    until(lambda: instance.commit.blocked == "no space left on device", "blocked")
    assert query_status(instance, "CSAS_DOUBLED")["state"] == "blocked"
    assert query_status(instance, "CSAS_DOUBLED")["last_error"] == "no space left on device"
    log.full = False
    until(lambda: not instance.commit.blocked, "free")
    produce(log, "input", 2)
    until(done(instance), "caught up")
    assert query_status(instance, "CSAS_DOUBLED")["state"] == "running"
    assert query_status(instance, "CSAS_DOUBLED")["last_error"] is None
    assert instance.stop() == []
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]


def test_stopping_on_a_full_disk_does_not_wait_and_loses_nothing():
    log = FullLog()
    instance = threaded(log, COUNTS)
    produce(log, "input", 1)
    until(done(instance), "caught up")
    log.full = True
    instance.commit.dirty = True
    until(lambda: instance.commit.blocked, "blocked")
    started = time.monotonic()
    assert instance.stop() == []
    assert time.monotonic() - started < WAIT_S
    log.full = False
    produce(log, "input", 2)
    _, driver = resume(log, instance.state._physical)
    driver.run_until_caught_up()
    assert read(log, "counts")[-1] == {"N": 2}


def test_a_fenced_instance_stops_cleanly():
    log = MemoryLog()
    instance = threaded(log, DOUBLED)
    produce(log, "input", 1)
    until(done(instance), "caught up")
    log.producer("flowql")
    produce(log, "input", 2)
    until(lambda: isinstance(instance.fatal, Fenced), "fenced")
    assert "taken over" in str(instance.fatal)
    assert instance.stop() == []
    assert read(log, "doubled") == [{"V": 2}]
    _, driver = resume(log, instance.state._physical)
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]


def test_a_group_names_the_thread_that_hangs_and_waits_once():
    release, died = threading.Event(), []

    class Hangs:
        def run_once(self, now_ms):
            release.wait(WAIT_S)
            return 5

    class Idles:
        def run_once(self, now_ms):
            return 5

    steps = [NamedStep(f"hangs {n}", Hangs(), time.sleep, lambda: None) for n in range(3)]
    group = ThreadGroup([*steps, NamedStep("idles", Idles(), time.sleep, lambda: None)], SystemClock(), died.append)
    group.start()
    started = time.monotonic()
    assert group.stop(0.3) == ["hangs 0", "hangs 1", "hangs 2"]
    assert time.monotonic() - started < WAIT_S / 2
    release.set()
    until(lambda: group.stop(0.1) == [], "ended")
    assert died == []


EXCHANGED = """
CREATE TABLE BY_VALUE WITH (KAFKA_TOPIC='by_value') AS SELECT V, COUNT(*) AS N FROM INPUT GROUP BY V EMIT CHANGES;
CREATE TABLE DOUBLES WITH (KAFKA_TOPIC='doubles') AS SELECT V, COUNT(*) AS N FROM DOUBLED GROUP BY V EMIT CHANGES;
"""


def fed(log, seed):
    """Twenty transactions over four partitions."""
    rng = random.Random(seed)
    producer = log.producer("feed")
    for start in range(0, 2000, 100):
        producer.begin()
        for p in range(4):
            rows = [
                {
                    "timestamp": n,
                    "key": b"k%d %d" % (p, n % 3),
                    "value": json.dumps({"V": rng.randrange(20)}).encode(),
                    "headers": None,
                }
                for n in range(start + p, start + 100, 4)
            ]
            producer.send(TopicPartition("input", p), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
        producer.commit()
        yield


def rows_of(log, topic):
    out = []
    for p in range(log.topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, p))
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            out += [(p, r["timestamp"], r["key"], r["value"]) for r in batch.records.to_pylist()]
    return out


def results(log, instance):
    snapshot = instance.snapshot()
    tables = {name: dict(snapshot.scan(name)) for name in ("COUNTS", "BY_VALUE", "DOUBLES")}
    snapshot.close()
    last = {t: {(p, k): v for p, _, k, v in rows_of(log, t)} for t in ("counts", "by_value", "doubles")}
    return sorted(rows_of(log, "doubled")), tables, last


@pytest.mark.parametrize("threads", [2, 4])
def test_publishing_cutting_and_applying_at_the_fastest_switching(threads):
    queries = (DOUBLED, COUNTS, EXCHANGED)
    log = MemoryLog()
    log.create_topic("input", 4)
    instance, driver = make(log, *queries, threads=1)
    for _ in fed(log, 1):
        driver.run_until_idle()
    driver.run_until_caught_up()
    expected = results(log, instance)

    log = MemoryLog()
    log.create_topic("input", 4)
    before = sys.getswitchinterval()
    instance = threaded(log, *queries, threads=threads, rows_per_run=20)
    try:
        sys.setswitchinterval(1e-6)
        for _ in fed(log, 1):
            instance.commit.request()
            time.sleep(0.005)
        until(done(instance), "caught up")
        assert results(log, instance) == expected
    finally:
        sys.setswitchinterval(before)
        assert instance.stop() == []
    assert instance.metrics.commits > 1

"""Who owns a topic writes it, while others commit to other topics: nobody waits for the disk of someone else."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import segment
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFile, DiskFiles, File
from tests.runtime.log.records import batch, produce, read_all, values

SEED = int(os.environ.get("FLOWQL_SEED", time.time_ns() % 1_000_000))
LIMIT_S = 60.0
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class SlowDisk(DiskFiles):
    """Whose fsync of data waits for a sign."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end = threading.Event(), threading.Event()

    def fsync_all(self, files: Sequence[File]) -> None:
        self.began.set()
        assert self.may_end.wait(LIMIT_S)
        super().fsync_all(files)


class WatchedDisk(DiskFiles):
    """Notes files of topics that go while the commit log of `directory` belongs to somebody."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.lock_path, self.gone, self.in_the_way = f"{directory}/append.lock", list[str](), list[str]()

    def unlink(self, path: str) -> None:
        if path.endswith(".arrows"):
            self.gone.append(path)
            if (lock := self.lock(self.lock_path, wait=False)) is None:
                self.in_the_way.append(path)
            else:
                lock.release()
        super().unlink(path)


def rows(first: int, count: int) -> list[bytes]:
    return [b"value %d" % i for i in range(first, first + count)]


def in_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def slow(tmp_path):
    """A log on a slow disk that is in the middle of a commit to topic a, and another log on the same directory."""
    disk = SlowDisk()
    log = EmbeddedLog(tmp_path, disk)
    log.create_topic("a", 1)
    log.create_topic("b", 1)
    other = EmbeddedLog(tmp_path)
    commit = in_thread(lambda: produce(log, "slow", (A, rows(0, 5))))
    assert disk.began.wait(LIMIT_S)
    yield disk, other, commit
    disk.may_end.set()
    commit.join(LIMIT_S)


def test_a_commit_does_not_wait_for_data_of_another_topic(slow):
    disk, other, commit = slow
    produce(other, "quick", (B, rows(0, 3)))
    assert len(values(other, B)) == 3
    assert values(other, A) == [], "nothing of the slow one is visible"
    disk.may_end.set()
    commit.join(LIMIT_S)
    assert len(values(other, A)) == 5


def test_a_commit_to_the_same_topic_waits_and_comes_after(slow):
    disk, other, commit = slow
    second = in_thread(lambda: produce(other, "second", (A, rows(5, 2))))
    second.join(0.3)
    assert second.is_alive()
    disk.may_end.set()
    for thread in (commit, second):
        thread.join(LIMIT_S)
    assert values(other, A) == [b"value %d" % i for i in range(7)]


def test_a_process_that_tidies_up_leaves_what_is_being_written(slow, tmp_path):
    disk, _, commit = slow
    newcomer = EmbeddedLog(tmp_path)
    produce(newcomer, "newcomer", (B, rows(0, 1)))  # its first commit removes leftovers
    disk.may_end.set()
    commit.join(LIMIT_S)
    assert len(values(newcomer, A)) == 5


def test_deletion_waits_for_who_writes(slow):
    disk, other, commit = slow
    deletion = in_thread(lambda: other.admin().delete_topic("a"))
    deletion.join(0.3)
    assert deletion.is_alive()
    disk.may_end.set()
    for thread in (commit, deletion):
        thread.join(LIMIT_S)
    assert "a" not in other.topics()


TOPICS, PARTITIONS, COMMITS = "abc", 3, 60


def write_some(log: EmbeddedLog, name: str, seed: int) -> dict[str, int]:
    """Transactions over random partitions; how many records each has of this writer."""
    rng, sent = random.Random(f"{seed} {name}"), {}
    producer = log.producer(name)
    for _ in range(COMMITS):
        producer.begin()
        for topic in rng.sample(TOPICS, rng.randint(1, 3)):
            tp = TopicPartition(topic, rng.randrange(PARTITIONS))
            first, count = sent.get(str(tp), 0), rng.randint(1, 30)
            producer.send(tp, batch([(0, name.encode(), b"%d" % n) for n in range(first, first + count)]))
            sent[str(tp)] = first + count
        producer.commit()
    return sent


_WRITER = """
import json, sys
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.runtime.log.test_owners import write_some
print(json.dumps(write_some(EmbeddedLog(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
"""


def test_many_processes_and_threads_write_the_same_topics(tmp_path, monkeypatch):
    """Offsets are contiguous, records of one writer in its order, and none is missing or doubled."""
    print(f"seed {SEED}")
    monkeypatch.setattr(segment, "_APPENDERS_KEPT", 3)  # handles are closed and opened all the time
    log = EmbeddedLog(tmp_path)
    for topic in TOPICS:
        log.create_topic(topic, PARTITIONS, {"segment.bytes": "16384"})
    expected: dict[str, dict[str, int]] = {}
    threads = [
        in_thread(lambda n=n: expected.__setitem__(n, write_some(log, n, SEED)))
        for n in ("thread 1", "thread 2", "thread 3")
    ]
    names = ("process 1", "process 2")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), n, str(SEED)], stdout=subprocess.PIPE, text=True
        )
        for n in names
    ]
    for name, child in zip(names, children, strict=True):
        expected[name] = json.loads(child.communicate(timeout=2 * LIMIT_S)[0])
    for thread in threads:
        thread.join(2 * LIMIT_S)
    assert len(expected) == len(threads) + len(children)
    again = EmbeddedLog(tmp_path)
    for tp in (TopicPartition(t, p) for t in TOPICS for p in range(PARTITIONS)):
        found = read_all(again, tp)
        assert [r[0] for r in found] == list(range(len(found)))
        for name, sent in expected.items():
            mine = [int(value) for _, _, key, value in found if key == name.encode()]
            assert mine == list(range(sent.get(str(tp), 0))), (name, tp)


def test_nobody_waits_while_large_files_are_removed(tmp_path):
    """Those who append waited for as long, as all of them need the commit log."""
    disk = WatchedDisk(str(tmp_path))
    log = EmbeddedLog(tmp_path, disk)
    for name in "abc":
        log.create_topic(name, 1)
    for tp in (A, B, TopicPartition("c", 0)):
        produce(log, "p", (tp, rows(0, 5)))
    log.alter_topic("a", {"segment.bytes": "1"})
    producer = log.producer("swap")
    producer.begin()
    producer.drop_before(A, 5)
    producer.send(A, batch(rows(5, 3)))
    producer.commit()
    log.alter_topic("b", {"segment.bytes": "1"})
    produce(log, "p", (B, rows(5, 5)))
    log.drop_before(B, 5)
    log.delete_topic("c")
    assert len(disk.gone) == 3
    assert disk.in_the_way == []
    assert values(log, A) == rows(5, 3)
    assert values(log, B) == rows(5, 5)


def test_a_large_transaction_is_durable_piece_by_piece(tmp_path, monkeypatch):
    """Else the system writes all of it at the last fsync, and the commits of others wait for the disk for as long."""
    synced: list[int] = []

    class Noting(DiskFile):
        def fsync(self) -> None:
            if self.path.endswith(".arrows"):
                synced.append(self.size())
            super().fsync()

    monkeypatch.setattr("flowql.runtime.log.files.DiskFile", Noting)
    monkeypatch.setattr("flowql.runtime.log.embedded.writer.PIECE_BYTES", 200_000)
    log = EmbeddedLog(tmp_path)
    log.create_topic("a", 1)
    produce(log, "p", (A, rows(0, 5)))
    before = synced.pop()
    producer = log.producer("large")
    producer.begin()
    for first in range(5, 40_005, 5_000):  # smaller ones are joined
        producer.send(A, batch(rows(first, 5_000)))
    producer.commit()
    assert len(synced) > 5
    steps = [after - start for start, after in itertools.pairwise([before, *synced])]
    assert max(steps) < 2 * 300_000
    assert values(EmbeddedLog(tmp_path), A) == rows(0, 40_005)

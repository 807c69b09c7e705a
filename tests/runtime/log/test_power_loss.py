"""Power loss, I/O errors and a full disk at the n-th call, for every n until the history passes undisturbed (rule R17)."""

import itertools
import sys
import threading
from contextlib import suppress

import pytest

from flowql.runtime.errors import LogError, LogFull
from flowql.runtime.log import policy
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger, writer
from flowql.runtime.log.embedded.journal import InDoubt
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.runtime.log.records import batch, produce, values
from tests.runtime.log.workload import expected, observe, steps
from tests.simulated_disk import PowerLoss, SimulatedDisk

EXPECTED = expected()
C0 = TopicPartition("C", 0)
KEEPS = [("none", 0), ("all", 0), *(("some", seed) for seed in range(6))]


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """Limits so small that every kind of file is rolled during the history."""
    monkeypatch.setattr(ledger, "ROLL_BYTES", 300)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    monkeypatch.setattr(policy, "SEGMENT_BYTES", 2500)
    monkeypatch.setattr(writer, "REDO_FILE_BYTES", 70)


def run(make_log, disk):
    """The history, from step 6 on by two processes in turn; how many steps were acknowledged."""
    done = 0
    try:
        logs = [make_log("/log", disk)]
        for step in steps():
            if done == 6:
                logs.append(make_log("/log", disk))
            step(logs[done % len(logs)])
            done += 1
    except PowerLoss:
        pass
    return done


def check_reboot(make_log, disk, done, keep, seed, n):
    """The rebooted log holds the acknowledged steps and perhaps the one in flight, and works."""
    rebooted = disk.after_power_loss(keep, seed)
    log = make_log("/log", rebooted)
    seen = observe(log)
    where = f"power lost at call {n} ({disk.trace[-1]}), step {done}, keep={keep} seed={seed}"
    assert seen in EXPECTED[done : done + 2], where
    log.create_topic("C", 1)
    produce(log, "after", (C0, [b"alive"]))
    again = make_log("/log", rebooted.after_power_loss("none"))
    assert values(again, C0) == [b"alive"], where
    assert observe(again)["sequences"] == seen["sequences"], where


def power_loss(make_log, keeps=KEEPS):
    for n in itertools.count(1):
        disk = SimulatedDisk(fail_at=n)
        done = run(make_log, disk)
        for keep, seed in keeps if disk.off else [("none", 0)]:
            check_reboot(make_log, disk, done, keep, seed, n)
        if not disk.off:
            return n


@pytest.mark.turns("disks")
def test_power_loss_at_every_call():
    assert power_loss(EmbeddedLog) > 100


class RecordFirst(EmbeddedLog):
    """Commits in the wrong order."""

    def _make_durable(self, writer):
        pass

    def _name(self, writer, record):
        super()._name(writer, record)
        writer.make_durable()


class NamesForgotten(EmbeddedLog):
    """Does not make the names of new segments durable."""

    def _make_durable(self, writer):
        writer._new_names.clear()
        super()._make_durable(writer)


class NoFsync(EmbeddedLog):
    """Trusts that data reaches the disk by itself."""

    def _make_durable(self, writer):
        pass


@pytest.mark.parametrize("broken", [RecordFirst, NamesForgotten, NoFsync])
def test_a_broken_commit_order_is_caught(broken):
    with pytest.raises((AssertionError, LogError)):
        power_loss(broken, [("none", 0), *(("some", seed) for seed in range(3))])


def retrying(disk, error, *, certain):
    """The history, each step repeated until it works. certain: a failed step has no effect."""
    log, failures = None, 0
    seen = EXPECTED[0]
    for i, step in enumerate(steps()):
        while True:
            try:
                log = log or EmbeddedLog("/log", disk)
                step(log)
                break
            except error:
                failures += 1
                assert failures < 20
                if log is not None:
                    if disk.error_for > 1:
                        check_reboots(disk, i, failures)
                        found_out(log)
                    seen = observe(log)
                    assert seen in EXPECTED[i : i + (1 if certain else 2)], disk.trace[-5:]
                    if seen == EXPECTED[i + 1]:
                        break
        assert observe(log) == EXPECTED[i + 1]
    assert observe(EmbeddedLog("/log", disk.after_power_loss("none"))) == EXPECTED[-1]
    return failures


def found_out(log):
    """As a client does it that does not know what became of a commit: by a new producer."""
    for _ in range(10):
        with suppress(LogError):
            log.producer("probe")
            return
    raise AssertionError("it never works again")


def check_reboots(disk, done, seed):
    for keep in ("none", "some"):
        assert observe(EmbeddedLog("/log", disk.after_power_loss(keep, seed))) in EXPECTED[done : done + 2]


@pytest.mark.turns("disks")
@pytest.mark.parametrize("full_for", [1, 3])
def test_no_space_at_every_write(full_for):
    failures = 0
    for n in itertools.count(1):
        disk = SimulatedDisk(full_at=n, full_for=full_for)
        failures += retrying(disk, LogFull, certain=True)
        if disk.writes < n:
            break
    assert failures > 20


@pytest.mark.turns("disks")
@pytest.mark.parametrize(("error_for", "forgets", "step"), [(1, False, 1), (2, True, 3), (4, False, 3)])
def test_io_error_at_every_call(error_for, forgets, step):
    """error_for: also while what has failed is taken back, after which the log had to be opened again."""
    failures = 0
    for n in itertools.count(1, step):
        disk = SimulatedDisk(error_at=n, error_for=error_for, forgets=forgets)
        failures += retrying(disk, LogError, certain=False)
        if disk.calls < n:
            break
    assert failures * step > 100


def two_writers(other):
    """A disk, two logs on it, and producers that are about to commit to the same partition: `other` says what the second is of."""
    disk = SimulatedDisk(forgets=True)
    logs = EmbeddedLog("/log", disk), EmbeddedLog("/log", disk)
    logs[0].create_topic("C", 1)
    producers = [logs[0].producer("1"), logs[other == "process"].producer("2")]
    for value, producer in enumerate(producers):
        producer.begin()
        producer.send(C0, batch([b"%d" % value] * (3 - value)))
    return disk, logs, producers


@pytest.mark.parametrize("first", ["write", "fsync"])
@pytest.mark.parametrize("other", ["producer", "process"])
def test_a_frame_that_could_be_neither_written_nor_removed(first, other):
    """It is there, if it is whole, or it never was, whoever writes next: also to the same segment."""
    disk, _, producers = two_writers(other)
    producers[0].commit()
    at = max(n for n, call in enumerate(disk.trace) if call.startswith(f"{first} commits"))
    disk, (log, second), producers = two_writers(other)
    disk.error_at, disk.error_for = at + 1, 2
    with pytest.raises(InDoubt, match="neither written nor removed"):
        producers[0].commit()
    assert values(log, C0) == [], "it is not known yet"
    producers[1].commit()
    found = [b"0"] * 3 * (first == "fsync") + [b"1"] * 2
    found_out(log)
    for seen in (log, second, EmbeddedLog("/log", disk), EmbeddedLog("/log", disk.after_power_loss("none"))):
        assert values(seen, C0) == found
        assert seen.last_sequence("1") == (first == "fsync")
    produce(EmbeddedLog("/log", disk), "3", (C0, [b"3"]))
    for seen in (log, second):  # and what others write from now on is seen
        assert values(seen, C0) == [*found, b"3"]


@pytest.mark.turns("disks")
def test_process_killed_at_every_call_while_another_goes_on():
    for n in itertools.count(1):
        disk = SimulatedDisk(fail_at=n)
        done = run(EmbeddedLog, disk)
        if not disk.off:
            break
        disk.process_killed()
        survivor = EmbeddedLog("/log", disk)
        assert observe(survivor) in EXPECTED[done : done + 2], disk.trace[-3:]
        survivor.create_topic("C", 1)
        produce(survivor, "after", (C0, [b"alive"]))
        assert observe(EmbeddedLog("/log", disk.after_power_loss("none"))) == observe(survivor), disk.trace


def killed_then_power_lost(n, m):
    """A process dies at its n-th call in a commit; an open one commits too and loses power at its m-th."""
    disk = SimulatedDisk()
    first, second = EmbeddedLog("/log", disk), EmbeddedLog("/log", disk)
    first.create_topic("C", 1)
    producers = first.producer("1"), second.producer("2")
    for value, producer in enumerate(producers):
        producer.begin()
        producer.send(C0, batch([b"%d" % value]))
    died = False
    for producer, at in zip(producers, (n, m), strict=True):
        disk.fail_at = disk.calls + at
        try:
            producer.commit()
        except PowerLoss:
            died = True
            if producer is producers[0]:
                disk.process_killed()
                second.refresh()  # sees a frame that was not fsynced
    return disk, died


def test_power_loss_after_a_process_was_killed():
    for n, m in itertools.product(range(4, 8), range(2, 7)):
        disk, died = killed_then_power_lost(n, m)
        for seed in range(40):
            seen = values(EmbeddedLog("/log", disk.after_power_loss("some", seed)), C0)
            allowed = [[], [b"0"], [b"1"], [b"0", b"1"]] if died else [[b"0", b"1"]]
            assert seen in allowed, (n, m, seed, disk.trace)
            if not disk.off:
                assert b"1" in seen, (n, m, seed)


def test_a_file_of_the_simulated_disk_is_mapped_by_threads_while_it_is_written():
    """Mappings that were made meanwhile ended the writer with 'deque mutated during iteration'."""
    file = SimulatedDisk().open("/f", create=True)
    file.pwrite(0, [bytes(50_000)])
    written = threading.Event()

    def read():
        while not written.is_set():
            file.map(0, 1000)

    readers = [threading.Thread(target=read) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in readers:
            thread.start()
        for offset in range(4000):
            file.pwrite(offset, [b"x"])
    finally:
        written.set()
        sys.setswitchinterval(interval)
        for thread in readers:
            thread.join()
    assert file.map(0, 4000).to_pybytes() == b"x" * 4000

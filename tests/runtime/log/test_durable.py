"""What a call of the embedded log has returned from survives a loss of power, and each step is durable before the next relies on it.

`test_power_loss.py` loses power at every call; these take a moment, and name the step.
"""

from __future__ import annotations

import pytest

from flowql.runtime.errors import LogIOError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger, segment, writer
from flowql.runtime.log.embedded.log import EmbeddedLog
from tests.runtime.log.records import batch, numbered, produce, read_all, values
from tests.runtime.log.workload import A0, A1, observe, steps
from tests.simulated_disk import PowerLoss, SimulatedDisk

T0 = TopicPartition("T", 0)
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1", "min.cleanable.dirty.ratio": "0"}


@pytest.mark.parametrize(("roll", "kept"), [(1 << 20, 1_000), (1, 1_000), (400, 1)])
def test_what_a_call_has_returned_from_is_durable(roll: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "ROLL_BYTES", roll)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    monkeypatch.setattr(segment, "_APPENDERS_KEPT", kept)
    monkeypatch.setattr(writer, "REDO_FILE_BYTES", 50)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    for step in steps():
        step(log)
        assert observe(EmbeddedLog("/log", disk.after_power_loss("none"))) == observe(log)


def test_what_compaction_has_written_is_durable_before_the_old_segments_go() -> None:
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("T", 1, COMPACT)
    for n in range(5):
        produce(log, "p", (T0, [(n, b"%d" % (n % 2), b"%d" % n)]))
    log.maintain(10)
    assert [r[0] for r in read_all(log, T0)] == [2, 3, 4]
    left = EmbeddedLog("/log", disk.after_power_loss("none"))
    assert read_all(left, T0) == read_all(log, T0)
    assert left.verify().damages == []


def steps_of(disk: SimulatedDisk, since: int) -> list[str]:
    """What was done to the disk, by kind and the first part of each name."""
    return [
        f"{what} {name.partition('-')[0].removesuffix('.new')}"
        for what, _, name in (call.partition(" ") for call in disk.trace[since:])
    ]


def test_records_and_their_names_are_durable_before_the_commit_names_them() -> None:
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 2)
    producer = log.producer("p")
    since = len(disk.trace)
    producer.begin()
    producer.send(A0, batch([b"1"]))
    producer.send(A1, batch([b"2"]))
    producer.attach_redo(b"r")
    producer.commit()
    assert steps_of(disk, since) == [
        *("create 0", "write 0", "create 1", "write 1", "create redo", "write redo"),
        *("fsync 0", "fsync 1", "fsync redo", "fsync_dir A.1", "fsync_dir log"),
        *("write commits", "fsync commits"),
    ]


def test_a_topics_directory_is_durable_before_the_topic_is() -> None:
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.producer("p")
    since = len(disk.trace)
    log.create_topic("A", 1)
    assert steps_of(disk, since) == ["fsync_dir topics", "write commits", "fsync commits"]


def test_a_new_log_is_made_in_directories_that_are_durable() -> None:
    disk = SimulatedDisk()
    EmbeddedLog("/data/log", disk)
    assert steps_of(disk, 0) == [
        *("fsync_dir data", "fsync_dir log", "create commits", "truncate commits", "write commits"),
        *("fsync commits", "rename commits", "fsync_dir log"),
    ]


def test_a_large_transaction_is_durable_piece_by_piece_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PIECE_BYTES", 1)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    producer = log.producer("p")
    since = len(disk.trace)
    producer.begin()
    for n in range(3):  # too large to be joined
        producer.send(A0, numbered(n * 5_000, 5_000))
    producer.commit()
    assert steps_of(disk, since)[:6] == ["create 0", "write 0", "fsync 0", "write 0", "fsync 0", "write 0"]
    assert len(values(EmbeddedLog("/log", disk.after_power_loss("none")), A0)) == 15_000


def killed_at_its_fsync(fail_at: int | None) -> SimulatedDisk:
    """A disk on which another process commits, which is killed at this call."""
    disk = SimulatedDisk(fail_at=fail_at)
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    log.create_topic("B", 1)
    try:
        produce(log, "p", (A0, [b"killed"]))
    except PowerLoss:
        disk.process_killed()
    return disk


def test_what_a_killed_process_has_written_is_durable_before_what_follows_it() -> None:
    """It was killed before the fsync of its commit, which others may have read already."""
    calls = killed_at_its_fsync(None).calls
    disk = killed_at_its_fsync(calls)
    assert steps_of(disk, calls - 2) == ["write commits", "fsync commits"]
    log = EmbeddedLog("/log", disk)
    assert values(log, A0) == [b"killed"]
    since = len(disk.trace)
    log.producer("q")
    assert steps_of(disk, since)[:1] == ["fsync commits"], "before anything is written behind it"
    assert values(EmbeddedLog("/log", disk.after_power_loss("none")), A0) == [b"killed"]


def test_a_segment_that_is_closed_to_open_another_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction may not be yet: nobody has it open any more when that is made durable."""
    monkeypatch.setattr(segment, "_APPENDERS_KEPT", 1)
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 3)
    sends = [(TopicPartition("A", n), [b"%d" % n]) for n in range(3)]
    produce(log, "p", *sends)
    left = EmbeddedLog("/log", disk.after_power_loss("none"))
    assert [values(left, tp) for tp, _ in sends] == [[b"0"], [b"1"], [b"2"]]


def test_an_error_of_the_disk_is_one_of_the_log_that_may_be_tried_again() -> None:
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 1)
    producer = log.producer("p")
    producer.begin()
    producer.attach_redo(b"r")
    disk.error_at = disk.calls + 1
    with pytest.raises(LogIOError, match="the log in /log cannot be read or written") as raised:
        producer.commit()
    assert raised.value.retriable
    assert log.last_sequence("p") == 0

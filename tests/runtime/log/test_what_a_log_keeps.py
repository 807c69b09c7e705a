"""What an embedded log counts, keeps and removes of its files, and how it tells a state that was made from another log."""

from __future__ import annotations

import pytest

from flowql.runtime.errors import PartitionGone, TopicMissing
from flowql.runtime.log.base import Position, TopicPartition, largest_record
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.records import InitProducer
from flowql.runtime.log.embedded.segment import HEADER
from flowql.runtime.log.embedded.state import RUNS_MAX, ProducerState
from flowql.runtime.log.embedded.verify import verify
from tests.runtime.log.logs import IMPLEMENTATIONS, make
from tests.runtime.log.records import batch, produce
from tests.runtime.log.workload import A0, A1
from tests.simulated_disk import SimulatedDisk


def started(*commits: int) -> ProducerState:
    """Runs 1, 2, ... begin at these commits; now the log is at commit 30."""
    producer = ProducerState()
    for run, sequence in enumerate(commits, 1):
        producer.sequence = sequence
        producer.begin(InitProducer("app", run, run))
        producer.begin(InitProducer("app", run + 100, run))
    producer.sequence = 30
    return producer


@pytest.mark.parametrize(
    ("sequence", "run", "foreign"),
    [
        (31, 3, "the log only at 30"),
        (30, 3, ""),
        (20, 3, ""),
        (20, 2, ""),
        (21, 2, "before a backup was restored"),
        (10, 1, ""),
        (10, 2, ""),
        (9, 2, ""),
        (10, 7, "made from another log"),
        (15, 3, "made from another log"),
        (15, 7, "made from another log"),
        (15, 0, ""),
        (4, 7, ""),
    ],
)
def test_a_state_belongs_to_a_log_whose_start_it_was_last_opened_by(sequence: int, run: int, foreign: str) -> None:
    """Of states from before the starts that are remembered nothing tells."""
    producer = started(10, 10, 20)
    assert [begin for _, begin in producer.runs] == [10, 10, 20], "a producer that is renewed is the same start"
    found = producer.why_foreign(sequence, run)
    assert (bool(found), foreign in found) == (bool(foreign), True)


def test_after_one_start_a_state_is_of_it_or_of_another_log() -> None:
    producer = started(10)
    assert [producer.why_foreign(12, run) != "" for run in (1, 7)] == [False, True]


def test_the_last_starts_are_remembered() -> None:
    producer = started(*range(RUNS_MAX + 2))
    assert [run for run, _ in producer.runs] == list(range(3, RUNS_MAX + 3))
    producer.sequence = 1_000
    assert producer.why_foreign(2, 1) == "", "it may be of a start that is forgotten"
    assert producer.why_foreign(3, 1) != ""
    assert ProducerState(sequence=9).why_foreign(9, 1) == ""


def test_what_was_verified_is_counted_and_a_topic_goes_with_all_its_files() -> None:
    disk = SimulatedDisk()
    log = EmbeddedLog("/log", disk)
    log.create_topic("A", 2)
    for n in range(3):
        produce(log, "p", (A0, [b"%d" % n] * 100), (A1, [b"x"]), redo=b"r")
    read: list[int] = []
    found = verify(log._files, log._ledger, read.append)
    paths = [f"/log/topics/{t}/{s}" for t in disk.listdir("/log/topics") for s in disk.listdir(f"/log/topics/{t}")]
    lengths = [disk.open(path).size() for path in paths if path.endswith(".arrows")]
    assert (found.segments, found.batches, found.damages, found.other) == (2, 6, [], [])
    assert sorted(read) == sorted(lengths), "told as it goes on"
    assert found.bytes == sum(lengths) - len(lengths) * len(HEADER)
    log.delete_topic("A")
    assert [disk.listdir(f"/log/topics/{t}") for t in disk.listdir("/log/topics")] == []
    assert verify(log._files, log._ledger).segments == 0


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_partitions_that_do_not_exist_are_told_when_they_are_named(implementation: str, tmp_path) -> None:
    """Not at the commit, where it would be unknown which of many calls was wrong."""
    log = make(implementation, str(tmp_path / "log"))
    log.create_topic("A", 1)
    producer = log.producer("p")
    for name in (
        lambda: producer.send(TopicPartition("gone", 0), batch([b"v"])),
        lambda: producer.send_positions("g", {TopicPartition("A", 7): Position(0)}),
        lambda: producer.send_positions("g", {TopicPartition("gone", 0): Position(0)}),
        lambda: producer.drop_before(TopicPartition("gone", 0), 1),
        lambda: producer.expect_end(TopicPartition("A", 7), 1),
    ):
        producer.begin()
        with pytest.raises((TopicMissing, PartitionGone)):
            name()
        producer.abort()
    log.close()


def test_the_largest_record_counts_its_key_and_its_value() -> None:
    assert largest_record(batch([(1, b"kk", b"vvv"), (2, None, b"1234567"), (3, b"12345678", None)])) == 8
    assert largest_record(batch([(1, None, None)])) == 0
    assert largest_record(batch([])) == 0

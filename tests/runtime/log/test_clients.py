"""Readers, the consumer and producers over a log in one process, to the last record and byte of their limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from flowql.runtime.errors import BatchDamaged, LogError, LogIOError, LogUnavailable, OffsetOutOfRange
from flowql.runtime.log import clients
from flowql.runtime.log.base import EARLIEST, LATEST, RawBatch, TopicInfo, TopicPartition
from flowql.runtime.log.clients import LogConsumer, LogProducer, LogReader, answered, fitting, naming
from flowql.runtime.log.embedded.segment import numbered
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.transaction import Transaction
from tests.runtime.log.records import batch, produce

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
ROW = 16 + 2 + 3  # bytes of a record of these tests: what any costs, its key and value


class Stored:
    """Partitions as stored batches of so many rows each; a negative number is a gap. looks: how often others' commits are asked for."""

    def __init__(self, **batches: Sequence[int]) -> None:
        self.looks, self.begin, self.arriving = 0, 0, dict[str, list[int]]()
        self.knows_changes, self.bounds_asked = False, 0
        self.failing: dict[TopicPartition, LogError] = {}
        self.stored_of = {TopicPartition(name[0], int(name[1])): list(rows) for name, rows in batches.items()}

    def topics(self) -> dict[str, TopicInfo]:
        return {"A": TopicInfo("A", 2), "B": TopicInfo("B", 1)}

    def refresh(self) -> object:
        self.looks += 1
        for name, rows in self.arriving.items():
            self.stored_of[TopicPartition(name[0], int(name[1]))] += rows
        self.arriving = {}
        return {tp: sum(map(abs, rows)) for tp, rows in self.stored_of.items()} if self.knows_changes else None

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        self.bounds_asked += 1
        return self.begin, sum(map(abs, self.stored_of.get(tp, [])))

    def stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        if tp in self.failing:
            raise self.failing[tp]
        base = 0
        for rows in self.stored_of[tp]:
            if rows > 0 and base + rows > offset:
                return numbered(base, batch([(n, b"kk", b"%03d" % n) for n in range(base, base + rows)]))
            base += abs(rows)
        return None


def taken(found: RawBatch | None) -> tuple[list[int], int, int] | None:
    """Offsets, next offset, bytes."""
    return None if found is None else (found.records.column(0).to_pylist(), found.next_offset, found.size_bytes)


# Readers


def test_a_read_takes_what_fits_and_at_least_one_record() -> None:
    reader = LogReader(Stored(A0=[4]), A0, EARLIEST)
    for most, size, expected in (
        (100, 2 * ROW, [0, 1]),
        (100, 2 * ROW - 1, [2]),
        (100, 0, [3]),
    ):
        assert taken(reader.read(most, size)) == (expected, expected[-1] + 1, len(expected) * ROW)
    assert (reader.read(1, 1), reader.position) == (None, 4)


def test_small_batches_are_read_as_one_up_to_both_limits() -> None:
    for most, size, expected in (
        (100, 1 << 20, [0, 1, 2, 3, 4, 5]),
        (4, 1 << 20, [0, 1, 2, 3]),
        (3, 1 << 20, [0, 1, 2]),
        (100, 4 * ROW, [0, 1, 2, 3]),
        (100, 5 * ROW - 1, [0, 1, 2, 3]),
        (100, 2 * ROW, [0, 1]),
        (100, 2 * ROW + 1, [0, 1]),
    ):
        reader = LogReader(Stored(A0=[2, 2, 2]), A0, 0)
        assert taken(reader.read(most, size)) == (expected, len(expected), len(expected) * ROW), (most, size)
        assert reader.position == len(expected)


def test_a_large_batch_is_not_copied_to_join_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_JOIN_ROWS", 4)
    for rows, expected in (([3, 3], 6), ([3, 4], 3), ([4, 3], 4), ([3, 1, 3], 4), ([2, 1, 3], 6)):
        found = LogReader(Stored(A0=rows), A0, 0).read(100, 1 << 20)
        assert found is not None
        assert found.rows == expected, rows


def test_a_large_batch_of_more_than_is_asked_for_is_cut_into_even_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_JOIN_ROWS", 10)
    reader = LogReader(Stored(A0=[10]), A0, 0)
    sizes = []
    while (found := reader.read(8, 1 << 20)) is not None:
        sizes.append(found.rows)
    assert sizes == [5, 5]


def test_a_reader_passes_gaps_and_what_is_left_out_at_the_end() -> None:
    lookup = Stored(A0=[2, -3, 2, -2])
    assert taken(LogReader(lookup, A0, 3).read(100, 1 << 20)) == ([5, 6], 7, 2 * ROW)
    reader = LogReader(lookup, A0, 0)
    assert taken(reader.read(100, 1 << 20)) == ([0, 1, 5, 6], 7, 4 * ROW)
    assert (reader.read(100, 1 << 20), reader.position) == (None, 9), "nothing is left before the end"


def test_a_reader_looks_for_others_records_only_at_the_end() -> None:
    lookup = Stored(A0=[2])
    reader = LogReader(lookup, A0, 0)
    looks = lookup.looks
    assert taken(reader.read(2, 1 << 20)) == ([0, 1], 2, 2 * ROW)
    assert lookup.looks == looks
    assert reader.read(2, 1 << 20) is None
    assert lookup.looks == looks + 1
    lookup.arriving = {"A0": [1]}
    assert reader.read(2, 1 << 20, look=False) is None
    assert taken(reader.read(2, 1 << 20)) == ([2], 3, ROW)
    assert (LogReader(lookup, A0, LATEST).position, reader.arrived()) == (3, True)


def test_records_that_are_gone_are_named_and_the_first_that_is_there_is_read() -> None:
    lookup = Stored(A0=[6])
    lookup.begin = 4
    reader = LogReader(lookup, A0, 3)
    with pytest.raises(OffsetOutOfRange, match="offset 3 is below the log's start 4: records 3 to 3 are gone"):
        reader.read(1, 1)
    reader.seek(EARLIEST)
    assert taken(reader.read(1, 1)) == ([4], 5, ROW)
    with pytest.raises(LogError, match="A-0: -3 is not an offset"):
        reader.seek(-3)
    reader.seek(0)
    assert reader.position == 0


def test_the_head_of_a_batch_that_fits() -> None:
    rows = numbered(0, batch([(n, b"kk", b"%03d" % n) for n in range(4)]))
    for part, size, expected in (
        (rows, 4 * ROW, 4),
        (rows, 4 * ROW - 1, 3),
        (rows.slice(1, 3), 2 * ROW, 2),
        (rows.slice(3), ROW - 1, 1),
    ):
        found, took = fitting(part, size, at_least_one=True)
        assert (found.num_rows, took) == (expected, expected * ROW)
    found, took = fitting(rows, ROW - 1, at_least_one=False)
    assert (found.num_rows, took) == (0, 0)


# The consumer


def consumer_of(lookup: Stored, **positions: int) -> LogConsumer:
    consumer = LogConsumer(lookup, "c")
    consumer.assign({TopicPartition(name[0], int(name[1])): at for name, at in positions.items()})
    return consumer


def polled(consumer: LogConsumer, most: int, size: int = 1 << 20) -> list[tuple[TopicPartition, list[int]]]:
    return [(b.tp, b.records.column(0).to_pylist()) for b in consumer.poll(most, size)]


def test_partitions_take_turns_and_a_poll_ends_at_half_of_a_limit() -> None:
    consumer = consumer_of(Stored(A0=[9], A1=[9], B0=[2]), A0=0, A1=0, B0=0)
    assert polled(consumer, 5) == [(A0, [0, 1, 2, 3, 4])]
    assert polled(consumer, 5) == [(A1, [0, 1, 2, 3, 4])]
    assert polled(consumer, 4) == [(B0, [0, 1]), (A0, [5, 6])]
    assert polled(consumer, 100, 4 * ROW) == [(A1, [5, 6, 7, 8])]
    assert polled(consumer, 100, 3 * ROW) == [(A0, [7, 8])]
    assert polled(consumer, 100) == []


def test_at_the_end_of_all_partitions_others_commits_are_asked_for_once() -> None:
    lookup = Stored(A0=[1], A1=[1], B0=[1])
    consumer = consumer_of(lookup, A0=1, A1=1, B0=1)
    looks = lookup.looks
    assert polled(consumer, 9) == []
    assert lookup.looks == looks + 1
    lookup.arriving = {"B0": [1]}
    assert polled(consumer, 9) == [(B0, [1])]


def test_a_paused_partition_is_passed_over_and_an_assignment_ends_all_pauses() -> None:
    consumer = consumer_of(Stored(A0=[2], A1=[2]), A0=0, A1=1)
    consumer.pause([A0])
    assert polled(consumer, 9) == [(A1, [1])]
    consumer.resume([A0])
    assert polled(consumer, 9) == [(A0, [0, 1])]
    for call in (lambda: consumer.pause([B0]), lambda: consumer.seek(B0, 0)):
        with pytest.raises(LogError, match="B-0 is not assigned to consumer c"):
            call()
    consumer.pause([A0])
    consumer.assign({A0: 1})
    assert polled(consumer, 9) == [(A0, [1])]
    consumer.close()
    assert polled(consumer, 9) == []


def test_an_error_of_a_partition_is_raised_by_name_and_loses_no_records() -> None:
    lookup = Stored(A0=[2], A1=[2], B0=[2])
    consumer = consumer_of(lookup, A0=0, A1=0, B0=0)
    lookup.failing = {A1: BatchDamaged("/p", 7, "bad")}
    assert polled(consumer, 9) == [(A0, [0, 1])]
    with pytest.raises(BatchDamaged) as raised:
        consumer.poll(9, 1 << 20)
    assert raised.value.partition == A1
    assert polled(consumer, 9) == [(B0, [0, 1])], "the next one gets its turn"
    with pytest.raises(BatchDamaged):
        consumer.poll(9, 1 << 20)
    lookup.failing = {}
    assert polled(consumer, 9) == [(A1, [0, 1])]


def test_a_position_moves_over_what_is_left_out_without_records() -> None:
    consumer = consumer_of(Stored(A0=[1, -3]), A0=1)
    (moved,) = consumer.poll(9, 1 << 20)
    assert (moved.tp, moved.rows, moved.next_offset, moved.size_bytes) == (A0, 0, 4, 0)
    assert consumer.poll(9, 1 << 20) == []


# Producers


class Committer:
    """Notes transactions, and fails as it is told."""

    def __init__(self) -> None:
        self.error: LogError | None = None
        self.given: list[Transaction] = []

    def refresh(self) -> None: ...
    def check_epoch(self, transactional_id: str, epoch: int) -> None: ...
    def check_partition(self, tp: TopicPartition) -> None: ...
    def last_sequence(self, transactional_id: str) -> int:
        return 0

    def topics(self) -> dict[str, TopicInfo]:
        return {"A": TopicInfo("A", 2)}

    def ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 7)

    def commit(self, transactional_id: str, epoch: int, transaction: Transaction) -> int:
        if self.error is not None:
            raise self.error
        self.given.append(transaction)
        return len(self.given)


@pytest.mark.parametrize(
    ("error", "is_of_use"), [(LogUnavailable("busy"), True), (LogIOError("disk"), False), (LogError("no"), False)]
)
def test_a_producer_goes_on_after_a_commit_that_is_known_to_have_left_nothing(error: LogError, is_of_use: bool) -> None:
    committer = Committer()
    producer = LogProducer(committer, "p", 3)
    committer.error = error
    producer.begin()
    with pytest.raises(type(error)):
        producer.commit()
    committer.error = None
    if is_of_use:
        producer.begin()
        assert producer.commit() == 1
    else:
        with pytest.raises(LogError, match=f"producer p is of no more use: {error}"):
            producer.begin()


def test_a_producer_tells_where_the_partitions_end_that_it_has_written() -> None:
    """Not where redo makes that unnecessary, and not of the transaction before."""
    producer = LogProducer(Committer(), "p", 3)
    for redo, ends in ((b"", {A0: 7}), (b"r", {})):
        producer.begin()
        assert producer.ends == {}
        producer.send(A0, batch([b"1"]))
        if redo:
            producer.attach_redo(redo)
        producer.commit()
        assert producer.ends == ends


def test_a_closed_producer_says_so_in_each_call() -> None:
    producer = LogProducer(Committer(), "p", 3)
    producer.begin()
    producer.close()
    for call in (
        producer.begin,
        producer.commit,
        producer.abort,
        lambda: producer.send(A0, batch([b"1"])),
        lambda: producer.send_positions("g", {}),
        lambda: producer.drop_before(A0, 1),
        lambda: producer.expect_end(A0, 1),
        lambda: producer.append_from(A0, B0),
        lambda: producer.repartition("A", 1, 2, keeps=True),
        lambda: producer.expect_partitions("A", 1),
        lambda: producer.attach_redo(b"r"),
    ):
        with pytest.raises(LogError, match="producer p is of no more use: closed"):
            call()


def test_records_are_partitioned_by_the_number_that_was_first_seen_or_said() -> None:
    committer = Committer()
    producer = LogProducer(committer, "p", 3)
    counts: list[Any] = []
    for act in (
        lambda: producer.send(A0, batch([b"1"])),
        lambda: producer.expect_partitions("A", 5) or producer.send(A0, batch([b"1"])),
        lambda: producer.send(B0, batch([b"1"])),
        lambda: producer.repartition("A", 7, 9, keeps=True) or producer.send(TopicPartition("A", 6), batch([b"1"])),
        lambda: producer.send(A0, batch([b"1"])),
    ):
        producer.begin()
        act()
        producer.commit()
        counts.append(committer.given[-1].counts)
    assert counts == [{"A": 2}, {"A": 5}, {}, {}, {"A": 7}]
    producer.begin()
    producer.repartition("A", 7, 9, keeps=True)
    for number in (-1, 7):
        with pytest.raises(LogError, match=f"topic A gets 7 partitions, none with number {number}"):
            producer.send(TopicPartition("A", number), batch([b"1"]))
    producer.abort()
    with pytest.raises(LogError, match="no transaction is open"):
        producer.commit()


def test_what_is_asked_without_waiting_has_its_answer_or_error() -> None:
    assert answered(lambda: 7).result(0) == 7
    failed = answered(lambda: MemoryLog().end_offset(A0))
    with pytest.raises(LogError):
        failed.result(0)


def test_an_error_that_names_a_partition_keeps_it() -> None:
    for named in (None, A1):
        error = LogError("no")
        error.partition = named
        with pytest.raises(LogError) as raised, naming(A0):
            raise error
        assert raised.value.partition == (named or A0)


def test_the_longest_name_of_a_topic() -> None:
    log = MemoryLog()
    for name in ("x" * 249, "...", "a\0"):
        if name.endswith("\0"):
            with pytest.raises(LogError, match="is not a topic name"):
                log.create_topic(name, 1)
        else:
            log.create_topic(name, 1)
            produce(log, "p", (TopicPartition(name, 0), [b"1"]))
    with pytest.raises(LogError, match="is not a topic name"):
        log.create_topic(".", 1)


def test_partitions_are_asked_for_nothing_until_something_is_committed() -> None:
    lookup = Stored(A0=[2], A1=[2])
    lookup.knows_changes = True
    consumer = LogConsumer(lookup, "c")
    consumer.assign({A0: 0, A1: 0})
    assert [b.tp for b in consumer.poll(100, 1 << 20)] == [A0, A1]
    assert consumer.poll(100, 1 << 20) == []
    asked = lookup.bounds_asked
    assert consumer.poll(100, 1 << 20) == []
    assert lookup.bounds_asked == asked
    lookup.arriving = {"A1": [1]}
    assert [taken(b) for b in consumer.poll(100, 1 << 20)] == [([2], 3, ROW)]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_overlooked_whatever_is_moved_paused_or_appended(seed: int) -> None:
    choose = Random(seed)
    lookup = Stored(A0=[1], A1=[1], B0=[1])
    lookup.knows_changes = True
    consumer = LogConsumer(lookup, "c")
    consumer.assign(dict.fromkeys((A0, A1, B0), 0))
    read, paused = dict.fromkeys((A0, A1, B0), 0), set[TopicPartition]()
    for step in range(200):
        tp, action = choose.choice((A0, A1, B0)), choose.choice(("append", "seek", "pause", "resume", "assign", "poll"))
        if action == "append":
            lookup.arriving = {f"{tp.topic}{tp.partition}": [choose.randint(1, 3)]}
        elif action == "seek":
            read[tp] = choose.randint(0, lookup.bounds(tp)[1])
            consumer.seek(tp, read[tp])
        elif action == "pause":
            consumer.pause([tp])
            paused.add(tp)
        elif action == "resume":
            consumer.resume([tp])
            paused.discard(tp)
        elif action == "assign":
            consumer.assign(read)
            paused = set()
        while found := consumer.poll(4, 1 << 20):
            read |= {b.tp: b.next_offset for b in found}
        behind = {tp for tp, offset in read.items() if offset < lookup.bounds(tp)[1]} - paused
        assert not behind, f"seed {seed}, step {step}: after {action} of {tp}"

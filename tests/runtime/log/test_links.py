"""Records of a partition that follow in another one: what logs promise that can do it, and the files of the embedded log."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowql.runtime.errors import EndMoved, Fenced, LogError
from flowql.runtime.log import policy
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.pins import pinned_files
from tests.runtime.log.logs import A0, A1, B0
from tests.runtime.log.records import batch, produce, read_all, reshape, values
from tests.runtime.log.test_conformance import log

__all__ = ["log"]  # the fixture
C0 = TopicPartition("C", 0)


def test_records_of_another_partition_take_the_place_of_all(log):
    """Each at its distance from the first one; the other partition keeps its own."""
    produce(log, "p", (A0, [b"old", b"old"]))
    for n in range(3):
        produce(log, "p", (B0, [b"%d" % n] * 2))
    reshape(log, "B", 1, 50, keeps=True)
    with pytest.raises(LogError, match="changes B"):
        produce(log, "p", (B0, [b"x"]), sources={A0: B0})
    produce(log, "q", (A0, [b"behind"]), drop={A0: 2}, sources={A0: B0})
    assert [(r[0], r[3]) for r in read_all(log, A0)] == [
        *((2 + n, b"%d" % (n // 2)) for n in range(6)),
        (8, b"behind"),
    ]
    assert log.admin().writers(A0) == {"q"}
    produce(log, "p", (A0, [b"new"]), (B0, [b"3"]))
    assert values(log, A0)[-2:] == [b"behind", b"new"]
    assert values(log, B0) == [b"0", b"0", b"1", b"1", b"2", b"2", b"3"]
    log.admin().delete_topic("B")
    assert values(log, A0) == [b"0", b"0", b"1", b"1", b"2", b"2", b"behind", b"new"]
    reader = log.reader(A0, 4)
    assert reader.read(1, 1 << 20).records.column(0).to_pylist() == [4]


def test_they_may_follow_in_a_topic_that_gets_other_partitions(log):
    produce(log, "p", (A0, [b"old"]), (B0, [b"1", b"2"]))
    producer = log.producer("p")
    producer.begin()
    producer.repartition("A", 3, 10, keeps=False)
    producer.append_from(TopicPartition("A", 2), B0)
    producer.commit()
    assert [(r[0], r[3]) for r in read_all(log, TopicPartition("A", 2))] == [(10, b"1"), (11, b"2")]
    assert values(log, A0) == values(log, A1) == []


def test_a_partition_without_records_adds_none(log):
    produce(log, "p", (A0, [b"1"]))
    produce(log, "p", (A0, [b"2"]), sources={A0: B0, A1: B0})
    assert (values(log, A0), values(log, A1)) == ([b"1", b"2"], [])


def test_nothing_of_a_commit_that_is_refused_is_there(log):
    produce(log, "p", (A0, [b"1"]), (B0, [b"2"]))
    producer = log.producer("q")
    producer.begin()
    producer.expect_end(B0, 5)
    producer.append_from(A0, B0)
    with pytest.raises(EndMoved):
        producer.commit()
    produce(log, "p", (A0, [b"3"]))
    assert (values(log, A0), values(log, B0)) == ([b"1", b"3"], [b"2"])


@pytest.fixture
def embedded(tmp_path, monkeypatch):
    """A function that opens the log, whose files have small limits."""
    monkeypatch.setattr(ledger, "ROLL_BYTES", 300)
    monkeypatch.setattr(ledger, "_ROLL_SNAPSHOTS", 0)
    monkeypatch.setattr(policy, "SEGMENT_BYTES", 2500)
    log = EmbeddedLog(tmp_path / "log")
    log.create_topic("A", 2)
    log.create_topic("B", 1)
    yield lambda: EmbeddedLog(tmp_path / "log")
    log.close()


def filled(log, count=8):
    for n in range(count):
        produce(log, "p", (B0, [b"%d" % n * 200] * 3))
    return values(log, B0)


def test_linked_segments_are_files_of_their_own_partition(embedded):
    """After the log was opened again, by a snapshot and by what follows one; also in a second and third topic."""
    log = embedded()
    produce(log, "p", (A0, [b"old"] * 5))
    there = filled(log)
    produce(log, "p", drop={A0: 5}, sources={A0: B0})
    log.create_topic("C", 1)
    produce(log, "p", sources={C0: A0})
    log.delete_topic("B")
    for _ in range(3):
        assert (values(log, A0), values(log, C0)) == (there, there)
        assert [r[0] for r in read_all(log, A0)][:24] == list(range(5, 29))
        assert [r[0] for r in read_all(log, C0)][:24] == list(range(24))
        verified = log.verify()
        assert (verified.damages, verified.batches > 10) == ([], True)
        log.close()
        log = embedded()
        produce(log, "p", (A0, [b"more"]))
        there = [*there, b"more"]
        produce(log, "p", (C0, [b"more"]))
    log.close()


def test_a_linked_segment_is_never_written_to(embedded):
    """What its own partition and the source get is in files of their own."""
    log = embedded()
    there = filled(log, 1)
    produce(log, "p", sources={A0: B0})
    produce(log, "p", (A0, [b"behind"]))
    produce(log, "p", (B0, [b"more"]))
    for again in (log, embedded()):
        assert (values(again, A0), values(again, B0)) == ([*there, b"behind"], [*there, b"more"])


def failing(log, tp, source):
    """A transaction that makes links and does not come to name them."""
    producer = log.producer("q")
    producer.begin()
    producer.append_from(tp, source)
    checked = EmbeddedLog.check_epoch
    times = iter(range(10))

    def fenced(self: EmbeddedLog, transactional_id: str, epoch: int) -> None:
        checked(self, transactional_id, epoch)
        if next(times) == 2:  # the links are made, and not named
            raise Fenced("as if another producer had come")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedLog, "check_epoch", fenced)
        with pytest.raises(Fenced, match="as if"):
            producer.commit()
    assert list(Path(log.directory).glob(f"topics/{tp.topic}.*/{tp.partition}-*.arrows")), "the name is left"


def test_the_name_that_a_failed_transaction_left_is_no_way_to_the_source(embedded):
    log, other = embedded(), embedded()
    there = filled(log, 2)
    other.producer("r")  # it has removed what was left when it began
    failing(log, A1, B0)
    produce(other, "p", (A1, [b"first"]))
    assert (values(other, A1), values(embedded(), B0)) == ([b"first"], there)
    assert embedded().verify().damages == []


def test_nor_is_it_for_compaction(embedded):
    log, other = embedded(), embedded()
    tables = [TopicPartition(name, 0) for name in "TU"]
    for table in tables:
        log.create_topic(table.topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})

    def fill(table):
        for n in range(6):
            text = table.topic.encode()
            produce(log, "p", (table, [(n, b"a", b"%d" % n * 900), (n, b"b%d" % n, text * 900)]))
        log.maintain(10)

    fill(tables[0])
    there = read_all(log, tables[0])
    assert len(there) < 12
    failing(other, tables[1], tables[0])
    fill(tables[1])
    assert len(values(log, tables[1])) < 12
    assert read_all(embedded(), tables[0]) == there
    assert embedded().verify().damages == []


def test_compaction_writes_linked_segments_again(embedded):
    log = embedded()
    log.create_topic("T", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    t0 = TopicPartition("T", 0)
    for n in range(12):
        producer = log.producer("p")
        producer.begin()
        producer.send(B0, batch([(n, key, b"%d" % n * 300) for key in (b"k%d" % (n % 2), b"a", b"b")]))
        producer.commit()
    produce(log, "p", (t0, [b"old"] * 2))
    produce(log, "p", drop={t0: 2}, sources={t0: B0})
    produce(log, "p", (t0, [b"last"]))
    before = read_all(log, t0)
    log.maintain(10)
    after = read_all(log, t0)
    assert len(after) < len(before)
    assert [r for r in before if r in after] == after, "at the same offsets"
    assert {r[2]: r for r in before} == {r[2]: r for r in after}
    assert len(values(log, B0)) == 36
    assert log.verify().damages == []


def test_a_pinned_log_has_linked_segments(embedded, tmp_path):
    log = embedded()
    there = filled(log)
    produce(log, "p", sources={A0: B0})
    log.pin(tmp_path / "pinned")
    log.delete_topic("B")
    produce(log, "p", drop={A0: 24})
    assert pinned_files(log._files, str(tmp_path / "pinned"))
    pinned = EmbeddedLog(tmp_path / "pinned")
    assert (values(pinned, A0), values(pinned, B0)) == (there, there)
    pinned.close()


def test_damaged_records_that_are_left_out_stay_left_out(embedded):
    log = embedded()
    filled(log, 4)
    segment = log._state.topics["B"].partitions[0].segments[0]
    data = bytearray(Path(segment.path).read_bytes())
    data[segment.starts[1] + 300] ^= 1
    Path(segment.path).write_bytes(data)
    log.skip_damaged(log.verify().damages)
    kept = values(log, B0)
    assert len(kept) == 9
    produce(log, "p", (A0, [b"old"]))
    produce(log, "p", drop={A0: 1}, sources={A0: B0})
    assert values(log, A0) == kept
    assert log.skipped(A0) == [(4, 7)]


def test_records_that_are_gone_in_the_midst_of_a_segment_are_not_linked(embedded):
    log = embedded()
    produce(log, "p", (B0, [b"1", b"2"]))
    log.drop_before(B0, 1)
    with pytest.raises(LogError, match="below 1 are gone"):
        produce(log, "p", sources={A0: B0})
    reshape(log, "B", 1, 50, keeps=True)
    produce(log, "p", sources={A0: B0})
    assert values(log, A0) == [b"2"]

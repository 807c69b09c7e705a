"""A commit of which brokers have lost a part is found out at the next start, with the partitions (KAFKA-20734)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Producer as KafkaClient

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka import torn
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.producer import count, sequence_partition
from flowql.runtime.log.kafka.torn import CHARS_MAX, WrittenEnd, decode, encode, mark_of
from tests.runtime.log.records import batch

ROWS = batch([b"1", b"2"])
pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]


class World:
    """An application with two partitions that it writes."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.app = bootstrap, f"torn{uuid.uuid4().hex[:8]}"
        self.tps = [TopicPartition(f"{self.app}-out", p) for p in range(2)]
        with self.log() as log:
            log.create_topic(self.tps[0].topic, 2)

    @contextmanager
    def log(self) -> Iterator[KafkaLog]:
        with closing(KafkaLog(Connection(self.bootstrap), self.app)) as log:
            yield log

    def commit(self, log: KafkaLog) -> None:
        """As the application, of both partitions."""
        with closing(log.producer(self.app)) as producer:
            producer.begin()
            for tp in self.tps:
                producer.send(tp, ROWS)
            producer.commit()

    def started(self) -> dict[TopicPartition | None, str]:
        """What a start finds."""
        with self.log() as log:
            log.hold(self.app)
            return _found(log)

    @contextmanager
    def other(self) -> Iterator[KafkaClient]:
        """A transaction of another producer, with the same records in the first partition."""
        client = KafkaClient({"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.app}-other"})
        client.init_transactions(30)
        client.begin_transaction()
        for row in ROWS.to_pylist():
            client.produce(self.tps[0].topic, row["value"], row["key"], partition=0)
        client.flush(30)
        yield client


def _found(log: KafkaLog) -> dict[TopicPartition | None, str]:
    return {TopicPartition(*e.partition): str(e) for e in log.torn_commits() if e.partition is not None}


@pytest.fixture
def world(kafka: str) -> World:
    return World(kafka)


def test_commits_that_are_there_are_no_trouble(world: World) -> None:
    """Neither where another producer has written behind them, nor where retention has deleted them."""
    with world.log() as log:
        world.commit(log)
        assert world.started() == {}
        world.commit(log)
        with world.other() as other:
            other.abort_transaction(30)
        log.drop_before(world.tps[1], log.end_offset(world.tps[1]))
    assert world.started() == {}


def _is_made_again(world: World, log: KafkaLog) -> None:
    log.delete_topic(world.tps[0].topic)
    log.create_topic(world.tps[0].topic, 2)
    with closing(log.producer("outside")) as producer:
        producer.begin()
        producer.send(world.tps[1], batch([b"1"] * 10))
        producer.commit()


def _is_aborted(world: World, log: KafkaLog) -> None:
    """As brokers leave it when they have lost the marker of the commit in the first partition, and written one for the transaction after it."""
    ends = {tp: log.written_offset(tp) for tp in world.tps}
    with world.other() as other:
        other.abort_transaction(30)
    first, second = world.tps
    written = {first: WrittenEnd(ends[first] + 2, mark_of(ROWS)), second: WrittenEnd(ends[second] - 1, mark_of(ROWS))}
    while log.end_offset(first) < ends[first] + 3:  # brokers answer before they have written the marker
        time.sleep(0.01)
    log.commit_positions(world.app, {sequence_partition(world.app): count(7, 1, written)})


@pytest.mark.parametrize(
    ("lose", "said"), [(_is_made_again, "ends at offset 0, and a commit has written"), (_is_aborted, "were aborted")]
)
def test_a_commit_that_is_not_whole_is_told_with_its_partition(
    world: World, lose: Callable[[World, KafkaLog], None], said: str
) -> None:
    with world.log() as log:
        world.commit(log)
        lose(world, log)
    found = world.started()
    assert list(found) == world.tps[:1], found
    assert said in found[world.tps[0]]
    assert world.started() == {}, "the term of the new instance has no ends that are lost"


def test_records_that_stay_hidden_are_told_and_remembered_until_they_are_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.log() as log, world.other() as other:
        world.commit(log)
        assert _found(log) == {}
        assert list(_on_record(log, world)) == world.tps
        monkeypatch.setattr(torn, "HIDDEN_MS", 0)
        with world.log() as second:
            second.hold(world.app)
            assert list(_found(second)) == world.tps[:1]
            other.abort_transaction(30)
            world.commit(second)
            assert _found(second) == {}


def _on_record(log: KafkaLog, world: World) -> dict[TopicPartition, WrittenEnd]:
    """What is on record of the last commit."""
    counter = sequence_partition(world.app)
    told = log.committed_positions(world.app, [counter])[counter].metadata
    return decode(told.partition("ends=")[2])


def test_the_record_of_a_commit_fits_whatever_it_has_written() -> None:
    names = [f"shop-CTAS_QUERY_{n}-aggregate-1-changelog" for n in range(30)]
    ends = {
        TopicPartition(name, p): WrittenEnd(10**9 + 7919 * p, p * 997 & 0xFFFF) for name in names for p in range(64)
    }
    kept = decode(encode(ends))
    assert len(encode(ends)) <= CHARS_MAX
    assert len(kept) > 250
    assert kept.items() <= ends.items()

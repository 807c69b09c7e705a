"""Groups of logs that one instance runs on."""

import pytest

from flowql.runtime.errors import LogError, StaleMember
from flowql.runtime.log.base import GroupChange, Position, TopicPartition
from tests.runtime.log.logs import IMPLEMENTATIONS, make
from tests.runtime.log.records import produce

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


@pytest.fixture(params=IMPLEMENTATIONS)
def log(request, tmp_path):
    log = make(request.param, tmp_path / "log")
    log.admin().create_topic("A", 2)
    log.admin().create_topic("B", 1)
    yield log
    log.close()


def test_the_only_member_of_a_group_owns_everything_it_asks_for(log):
    consumer = log.consumer("m")
    produce(log, "p", (A0, [b"1"]), (B0, [b"2"]))
    assert consumer.group_events() == []
    consumer.subscribe("g", ["A", "none"], lambda: None)
    (event,) = consumer.group_events()
    assert (event.change, event.partitions) == (GroupChange.ASSIGN, (A0, A1))
    assert consumer.poll(10, 1000) == []
    consumer.assign({A0: 0, B0: 0})  # B is not owned
    assert [b.tp for b in consumer.poll(10, 1000)] == [A0]

    consumer.subscribe("g", ["B"], lambda: None)
    revoked, assigned = consumer.group_events()
    assert (revoked.change, revoked.partitions) == (GroupChange.REVOKE, (A0, A1))
    assert (assigned.change, assigned.partitions) == (GroupChange.ASSIGN, (B0,))
    consumer.assign({A0: 0, B0: 0})
    assert [b.tp for b in consumer.poll(10, 1000)] == [B0]
    consumer.acknowledge_revoke()
    consumer.acknowledge_revoke()  # of no effect
    with pytest.raises(LogError, match="member of g"):
        consumer.subscribe("h", ["A"], lambda: None)
    consumer.close()


def test_positions_with_a_proof_of_membership(log):
    consumer, producer = log.consumer("m"), log.producer("p")
    consumer.subscribe("g", ["A"], lambda: None)
    (event,) = consumer.group_events()
    producer.begin()
    producer.send_positions("g", {A0: Position(7, "seq=1")}, event.metadata)
    assert log.admin().stable_positions("g", [A0, A1]) == {}
    producer.commit()
    assert log.admin().stable_positions("g", [A0, A1]) == {A0: Position(7, "seq=1")}
    producer.begin()
    with pytest.raises(StaleMember):
        producer.send_positions("h", {A0: Position(8)}, event.metadata)
    producer.abort()


def test_written_offset_is_the_end_when_no_transaction_is_open(log):
    produce(log, "p", (A0, [b"1", b"2"]))
    assert log.admin().written_offset(A0) == log.admin().end_offset(A0)

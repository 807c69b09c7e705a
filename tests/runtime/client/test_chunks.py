"""Chunks that are read beside the assigned partitions."""

from __future__ import annotations

from concurrent.futures import Future

import pyarrow as pa
import pytest

from flowql.runtime.client.consumer import CHUNK_TIMEOUT_MS, ConsumerFacade
from flowql.runtime.errors import LogUnavailable, RuntimeFailure
from flowql.runtime.log.base import PRODUCE_SCHEMA, RawBatch, Reader, TopicPartition
from flowql.runtime.log.memory import MemoryLog

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class SlowReader:
    """Its log's records arrive when `away` says so, and in batches of two."""

    def __init__(self, inner: Reader, away: set[TopicPartition]) -> None:
        self.tp, self._inner, self._away = inner.tp, inner, away

    @property
    def position(self) -> int:
        return self._inner.position

    def seek(self, offset: int) -> None:
        self._inner.seek(offset)

    def read(self, max_records: int, max_bytes: int) -> RawBatch | None:
        assert self.tp not in self._away, "this would wait"
        return self._inner.read(min(2, max_records), max_bytes)

    def arrived(self) -> bool:
        return self.tp not in self._away

    def close(self) -> None:
        self._inner.close()


class SlowLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.away: set[TopicPartition] = set()
        self.create_topic("a", 2)
        producer = self.producer("p")
        producer.begin()
        for tp in (A0, A1):
            columns = [pa.array([1] * 10), pa.array([b"k"] * 10), pa.array([b"%d" % i for i in range(10)])]
            nulls = pa.nulls(10, PRODUCE_SCHEMA.field("headers").type)
            producer.send(tp, pa.RecordBatch.from_arrays([*columns, nulls], schema=PRODUCE_SCHEMA))
        producer.commit()

    def reader(self, tp: TopicPartition, offset: int = 0) -> Reader:
        return SlowReader(super().reader(tp, offset), self.away)


@pytest.fixture
def log() -> SlowLog:
    return SlowLog()


@pytest.fixture
def client(log: SlowLog) -> ConsumerFacade:
    return ConsumerFacade(log, "c", 1 << 20)


def values(answer: Future[object]) -> list[bytes]:
    batches = answer.result(timeout=0)
    assert isinstance(batches, list)
    return [v for b in batches for v in b.records.column("value").to_pylist()]


def test_a_partition_whose_records_are_on_their_way_holds_up_no_other(log: SlowLog, client: ConsumerFacade) -> None:
    """One waited for them, and restorations read partition by partition with nothing to do meanwhile."""
    log.away.add(A0)
    slow, other = client.read_chunk(A0, 0, 0), client.read_chunk(A1, 5, 0)
    client.loop.run_once(0)
    assert values(other) == [b"5", b"6", b"7", b"8", b"9"]
    assert not slow.done()
    assert client.loop.run_once(1) > 0, "nothing to do"
    log.away.clear()
    client.loop.run_once(2)
    assert len(values(slow)) == 10


def test_a_chunk_is_all_that_is_there_of_what_was_asked_for(client: ConsumerFacade) -> None:
    answer = client.read_chunk(A0, 1, 0, max_records=5)
    client.loop.run_once(0)
    assert values(answer) == [b"1", b"2", b"3", b"4", b"5"]


def test_chunks_of_one_partition_are_answered_in_order(log: SlowLog, client: ConsumerFacade) -> None:
    log.away.add(A0)
    answers = [client.read_chunk(A0, offset, 0, max_records=1) for offset in (7, 2)]
    client.loop.run_once(0)
    log.away.clear()
    for now_ms in (1, 2):
        client.loop.run_once(now_ms)
    assert [values(a) for a in answers] == [[b"7"], [b"2"]]


def test_what_does_not_arrive_in_time_is_an_error(log: SlowLog, client: ConsumerFacade) -> None:
    log.away.add(A0)
    answer = client.read_chunk(A0, 3, 0)
    client.loop.run_once(CHUNK_TIMEOUT_MS)
    client.loop.run_once(CHUNK_TIMEOUT_MS + 1)
    with pytest.raises(LogUnavailable, match="nothing arrives from offset 3 on"):
        answer.result(timeout=0)


def test_a_reading_that_fell_silent_begins_anew(
    log: SlowLog, client: ConsumerFacade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still until the process ended: each try looked at the same reading."""
    log.away.add(A0)
    monkeypatch.setattr(SlowReader, "close", lambda reader: log.away.discard(reader.tp))
    for start_ms in (0, CHUNK_TIMEOUT_MS + 2):
        answer = client.read_chunk(A0, 3, start_ms)
        client.loop.run_once(start_ms)
        client.loop.run_once(start_ms + CHUNK_TIMEOUT_MS + 1)
    assert values(answer)[0] == b"3"


def test_a_client_that_is_closed_answers_everybody(log: SlowLog, client: ConsumerFacade) -> None:
    log.away.add(A0)
    answers = [client.read_chunk(A0, 0, 0)]
    client.loop.run_once(0)
    answers.append(client.read_chunk(A1, 0, 0))
    client.loop.close()
    for answer in answers:
        with pytest.raises(RuntimeFailure):
            answer.result(timeout=0)

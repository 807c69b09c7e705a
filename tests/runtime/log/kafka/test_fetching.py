"""What a fetch client keeps of partitions, when it pauses, restarts or fails them, with a client library that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable, OffsetOutOfRange, TopicMissing
from flowql.runtime.log.base import KeyValues, Position, RawBatch, TopicPartition
from flowql.runtime.log.kafka import fetching
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.fetching import Cursor, FetchClient

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
ROW_BYTES = 16 + 1 + 10  # of a record of these tests, with its key and value


def failed(code: int, **how: bool) -> KafkaException:
    return KafkaException(KafkaError(code, None, *(how.get(name, False) for name in ("fatal", "retriable", "abort"))))


class Library:
    """Notes what it is told; gives what waits in `arriving`, and fails with what stands in `fail` under the name of a call."""

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        self.settings, self.calls, self.arriving = settings, list[tuple[str, Any]](), list[Message]()
        self.fail: dict[str, list[Exception]] = {}
        self.polled: list[Message] = []
        self.positions: list[Any] = []

    def told(self, name: str) -> list[Any]:
        return [what for call, what in self.calls if call == name]

    def _do(self, name: str, what: Any = None) -> None:
        self.calls.append((name, what))
        if waiting := self.fail.get(name):
            raise waiting.pop(0)

    def consume(self, _most: int, _wait: float) -> list[Message]:
        self._do("consume")
        arrived, self.arriving = self.arriving, []
        return arrived

    def poll(self, wait_s: float) -> Message | None:
        self._do("poll", wait_s)
        return self.polled.pop(0) if self.polled else None

    def list_topics(self, topic: str, timeout: float) -> None:
        self._do("list_topics", topic)

    def committed(self, places: list[KafkaPartition], timeout: float) -> list[Any]:
        self._do("committed", timeout)
        return self.positions

    def commit(self, offsets: list[KafkaPartition], asynchronous: bool) -> list[Any]:
        self._do("commit", [(*place_of(p), p.metadata) for p in offsets])
        return self.positions

    def consumer_group_metadata(self) -> bytes:
        return b"group"

    def close(self) -> None:
        self._do("close")

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("incremental_assign", "incremental_unassign", "pause", "resume", "seek"):
            raise AttributeError(name)
        return lambda places: self._do(name, place_of(places) if name == "seek" else [place_of(p) for p in places])


def place_of(place: KafkaPartition) -> tuple[str, int, int]:
    return place.topic, place.partition, place.offset


class Brokers:
    """Where partitions begin, or why that is not known."""

    def __init__(self) -> None:
        self.begin: int | LogError = 0

    def begin_offset(self, tp: TopicPartition) -> int:
        if isinstance(self.begin, LogError):
            raise self.begin
        return self.begin

    def begin_offsets(self, tps: Any) -> dict[TopicPartition, int]:
        return {}


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> FetchClient:
    monkeypatch.setattr(fetching, "KafkaClient", Library)
    found = FetchClient(Connection("nowhere:1"), Brokers(), "c", "g", 20)  # type: ignore[arg-type]
    found._clock = VirtualClock(1_000_000)  # type: ignore[assignment]
    return found


def library(fetches: FetchClient) -> Library:
    assert isinstance(fetches._client, Library)
    return fetches._client


def message(tp: TopicPartition, offset: int) -> Message:
    value = b"%010d" % offset
    return Message(topic=tp.topic, partition=tp.partition, offset=offset, key=b"k", value=value, timestamp=(1, offset))


def report(code: int, tp: TopicPartition | None, offset: int = -1, **how: bool) -> Message:
    where = {} if tp is None else {"topic": tp.topic, "partition": tp.partition}
    return Message(**where, offset=offset, error=failed(code, **how).args[0])


def offsets(batch: RawBatch | None) -> list[int]:
    assert batch is not None
    return batch.records.column(0).to_pylist()


# Cursors


def read_to(offset: int, begin: int = 0, bare: bool = False) -> FetchClient:
    """A fetch client with records `begin` to `offset` of A0."""
    found = FetchClient.__new__(FetchClient)
    cursor = Cursor(A0, begin, begin, bare)
    found.cursors = {A0: cursor}
    found._add(cursor, [message(A0, n) for n in range(begin, offset)])
    return found


def test_records_are_taken_in_pieces_and_the_position_follows_them() -> None:
    cursor = read_to(10).cursors[A0]
    assert (cursor.position, cursor.fetched, cursor.ended) == (0, 10, False)
    sizes = [cursor.size_bytes]
    for most, size_bytes, expected in ((3, 1 << 20, [0, 1, 2]), (100, 2 * ROW_BYTES, [3, 4]), (100, 1, [5])):
        batch = cursor.take(most, size_bytes)
        assert batch is not None
        assert (offsets(batch), batch.next_offset, batch.size_bytes) == (
            expected,
            expected[-1] + 1,
            len(expected) * ROW_BYTES,
        )
        assert (cursor.position, cursor.fetched) == (expected[-1] + 1, 10)
        sizes.append(cursor.size_bytes)
    assert [before - after for before, after in pairwise(sizes)] == [
        3 * ROW_BYTES,
        2 * ROW_BYTES,
        ROW_BYTES,
    ]
    assert offsets(cursor.take(100, 1 << 20)) == [6, 7, 8, 9]
    assert (cursor.position, cursor.size_bytes, len(cursor.batches)) == (10, 0, 0)
    assert cursor.take(100, 1 << 20) is None


def test_the_position_moves_over_offsets_that_hold_no_record() -> None:
    cursor = read_to(3).cursors[A0]
    cursor.skip_to(3)
    cursor.skip_to(2)
    assert [b.next_offset for b in cursor.batches] == [3]
    cursor.skip_to(5)
    assert ([b.next_offset for b in cursor.batches], cursor.fetched) == ([5], 5), "of the last batch that waits"
    assert offsets(cursor.take(2, 1 << 20)) == [0, 1]
    assert cursor.position == 2
    assert offsets(cursor.take(2, 1 << 20)) == [2]
    assert cursor.position == 5
    cursor.skip_to(6)
    empty = cursor.take(2, 1 << 20)
    assert empty is not None
    assert (empty.rows, empty.next_offset, empty.size_bytes, cursor.position) == (0, 6, 0, 6)


def test_a_bare_cursor_gives_keys_and_values_as_they_were_fetched() -> None:
    cursor = read_to(4, begin=2, bare=True).cursors[A0]
    cursor.skip_to(9)
    batch = cursor.take_bare()
    assert batch is not None
    assert (batch.keys, batch.values) == ([b"k", b"k"], [b"0000000002", b"0000000003"])
    assert (batch.next_offset, batch.size_bytes, cursor.position) == (9, 2 * ROW_BYTES, 9)
    assert (cursor.take_bare(), cursor.size_bytes) == (None, 0)
    cursor.skip_to(11)
    assert cursor.take_bare() == KeyValues(A0, [], [], 11, 0)


def test_a_partition_that_cannot_be_read_is_told_after_a_while_and_once_each_time() -> None:
    cursor, error = Cursor(A0, 0, 0), LogUnavailable("not now")
    cursor.retry(5_000, error)
    assert (cursor.started_ms, cursor.retry_ms, cursor.lost) == (5_000, 5_000 + fetching.RETRY_MS, False)
    cursor.retry(5_000 + fetching.TOLD_MS - 1, error, lost=True)
    assert (cursor.take_trouble(), error.partition) == (None, None), "it may be over in a moment"
    cursor.retry(5_000 + fetching.TOLD_MS, error)
    assert (cursor.started_ms, cursor.lost) == (5_000, True), "what the client has given up once it does not move"
    assert (cursor.take_trouble(), error.partition) == (error, A0)
    assert cursor.take_trouble() is None
    cursor.heard()
    assert (cursor.started_ms, cursor.retry_ms, cursor.lost) == (None, None, False)


# What arrives


def test_messages_go_to_their_partitions_and_those_from_before_a_move_nowhere(fetches: FetchClient) -> None:
    fetches.start_all({A0: 5, A1: 0})
    library(fetches).arriving = [
        *(message(A0, n) for n in (3, 4, 5, 6)),
        *(message(A1, n) for n in (0, 1)),
        message(B0, 0),
        message(A0, 7),
    ]
    fetches.pump()
    assert [offsets(b) for b in fetches.cursors[A0].batches] == [[5, 6], [7]]
    assert [offsets(b) for b in fetches.cursors[A1].batches] == [[0, 1]]
    library(fetches).arriving = [message(A0, n) for n in (6, 7)]
    fetches.pump()
    assert (len(fetches.cursors[A0].batches), fetches.cursors[A0].fetched) == (2, 8)


def test_a_partition_of_which_records_arrive_is_not_started_again(fetches: FetchClient) -> None:
    """Else each would be assigned anew every few seconds, and what was prefetched of it thrown away."""
    fetches.start_all({A0: 0})
    cursor = fetches.cursors[A0]
    cursor.retry_ms, cursor.lost = 1_000_000, True
    library(fetches).arriving = [message(A0, 0)]
    fetches.pump()
    assert (cursor.started_ms, cursor.retry_ms, cursor.lost) == (None, None, False)
    fetches._clock.advance(10 * fetching.SILENT_MS)  # type: ignore[attr-defined]
    fetches.pump()
    assert library(fetches).told("incremental_assign") == [[("A", 0, 0)]]


def test_the_first_message_is_waited_for_and_what_comes_with_it_is_taken(fetches: FetchClient) -> None:
    fetches.start_all({A0: 0})
    fetches.pump()
    assert library(fetches).told("poll") == []
    fetches.pump(0.5)
    library(fetches).polled = [message(A0, 0)]
    fetches.pump(0.5)
    assert library(fetches).told("poll") == [0.5, 0.5]
    assert [offsets(b) for b in fetches.cursors[A0].batches] == [[0]]
    library(fetches).arriving = [message(A0, 1)]
    fetches.pump(0.5)
    assert len(library(fetches).told("poll")) == 2, "nothing is waited for when something is there"


def test_a_partition_is_paused_above_the_high_mark_and_resumed_below_the_low(fetches: FetchClient) -> None:
    fetches.start_all({A0: 0, A1: 0})
    cursor, told = fetches.cursors[A0], library(fetches).told
    for size_bytes, paused in (
        (fetching.HIGH_BYTES, False),
        (fetching.HIGH_BYTES + 1, True),
        (fetching.HIGH_BYTES + 2, True),
        (fetching.LOW_BYTES, True),
        (fetching.LOW_BYTES - 1, False),
        (0, False),
    ):
        cursor.size_bytes = size_bytes
        fetches.pump()
        assert (size_bytes, cursor.paused) == (size_bytes, paused)
    assert (told("pause"), told("resume")) == ([[("A", 0, -1001)]], [[("A", 0, -1001)]]), "once, and of this one"


# What does not arrive


def test_a_silent_partition_is_started_anew_where_it_was(fetches: FetchClient) -> None:
    fetches.start_all({A0: 7, A1: 9})
    fetches.cursors[A1].paused, fetches.cursors[A1].size_bytes = True, fetching.LOW_BYTES
    fetches._clock.advance(fetching.SILENT_MS - 1)  # type: ignore[attr-defined]
    fetches.pump()
    assert library(fetches).told("incremental_unassign") == []
    fetches._clock.advance(1)  # type: ignore[attr-defined]
    fetches.pump()
    assert library(fetches).told("incremental_unassign") == [[("A", 0, 7)]], "a paused one is silent because it is"
    assert library(fetches).told("incremental_assign")[1:] == [[("A", 0, 7)]]
    trouble = fetches.cursors[A0].take_trouble()
    assert isinstance(trouble, LogUnavailable)
    assert (str(trouble), trouble.partition) == ("A-0: nothing arrives from offset 7 on", A0)
    fetches._clock.advance(fetching.SILENT_MS - 1)  # type: ignore[attr-defined]
    fetches.pump()
    assert len(library(fetches).told("incremental_assign")) == 2, "it has as long again"


def test_a_start_that_is_refused_is_tried_again_and_does_not_hold_up_others(fetches: FetchClient) -> None:
    fetches.start_all({A0: 1, A1: 2})
    for tp in (A0, A1):
        fetches.cursors[tp].lost, fetches.cursors[tp].retry_ms = True, 1_000_000
    library(fetches).fail["incremental_assign"] = [failed(KafkaError._STATE)]
    fetches.pump()
    assert library(fetches).told("incremental_assign")[1:] == [[("A", 0, 1)], [("A", 1, 2)]]
    assert fetches.cursors[A0].retry_ms == 1_000_000 + fetching.RETRY_MS
    assert fetches.cursors[A1].retry_ms is None
    fetches._clock.advance(fetching.RETRY_MS - 1)  # type: ignore[attr-defined]
    fetches.pump()
    assert len(library(fetches).told("incremental_assign")) == 3
    fetches._clock.advance(1)  # type: ignore[attr-defined]
    fetches.pump()
    assert library(fetches).told("incremental_assign")[3:] == [[("A", 0, 1)]]
    assert fetches.cursors[A0].retry_ms is None


def test_an_error_of_a_partition_ends_its_reading_with_its_name(fetches: FetchClient) -> None:
    fetches.start_all({A0: 1, A1: 2})
    library(fetches).arriving = [report(KafkaError.TOPIC_AUTHORIZATION_FAILED, A0), report(KafkaError._TRANSPORT, A1)]
    fetches.pump()
    error = fetches.cursors[A0].error
    assert isinstance(error, LogDenied)
    assert (error.partition, "A-0 cannot be read" in str(error)) == (A0, True)
    assert fetches.cursors[A1].error is None, "the client goes on by itself"
    assert [fetches.is_at(A0, 1), fetches.is_at(A1, 2), fetches.is_at(A1, 3), fetches.is_at(B0, 0)] == [
        False,
        True,
        False,
        False,
    ]
    fetches._clock.advance(10 * fetching.SILENT_MS)  # type: ignore[attr-defined]
    fetches.pump()
    assert library(fetches).told("incremental_unassign") == [[("A", 1, 2)]], "what has failed is not started again"


@pytest.mark.parametrize("code", [KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET])
def test_a_position_out_of_range_is_below_the_start_or_waits_above_the_end(code: int, fetches: FetchClient) -> None:
    fetches.start_all({A0: 4, A1: 5})
    fetches._admin.begin = 5  # type: ignore[attr-defined]
    library(fetches).arriving = [report(code, A0), report(code, A1)]
    fetches.pump()
    error = fetches.cursors[A0].error
    assert isinstance(error, OffsetOutOfRange)
    assert str(error) == "A-0: offset 4 is below the log's start 5: records 4 to 4 are gone"
    above = fetches.cursors[A1]
    assert (above.error, above.retry_ms, above.lost) == (None, 1_000_000 + fetching.RETRY_MS, True)
    fetches._clock.advance(fetching.TOLD_MS)  # type: ignore[attr-defined]
    library(fetches).arriving = [report(code, A1)]
    fetches.pump()
    assert "offset 5 is not there yet" in str(above.take_trouble())


def test_a_partition_out_of_range_whose_topic_is_gone_says_so(fetches: FetchClient) -> None:
    fetches.start_all({A0: 4})
    fetches._admin.begin = TopicMissing("there is no topic A")  # type: ignore[attr-defined]
    library(fetches).arriving = [report(KafkaError.OFFSET_OUT_OF_RANGE, A0)]
    fetches.pump()
    assert isinstance(fetches.cursors[A0].error, TopicMissing)


def test_only_a_fatal_error_without_a_partition_is_raised(fetches: FetchClient) -> None:
    fetches.start_all({A0: 0})
    library(fetches).arriving = [report(KafkaError._ALL_BROKERS_DOWN, None), report(KafkaError._TRANSPORT, B0)]
    fetches.pump()
    library(fetches).arriving = [report(KafkaError._FATAL, None, fatal=True)]
    with pytest.raises(LogError, match="the consumer"):
        fetches.pump()


# Starting and stopping


def test_leaders_of_a_topic_are_looked_for_once(fetches: FetchClient) -> None:
    fetches.start_all({A0: 0, A1: 3, B0: 1})
    assert library(fetches).told("list_topics") == ["A", "B"]
    assert library(fetches).told("incremental_assign") == [[("A", 0, 0), ("A", 1, 3), ("B", 0, 1)]]
    fetches.start(A0, 9)
    assert library(fetches).told("list_topics") == ["A", "B"]
    assert library(fetches).told("incremental_unassign") == [[("A", 0, -1001)]], "what it read before is forgotten"
    assert library(fetches).told("incremental_assign")[1:] == [[("A", 0, 9)]]
    assert [fetches.cursors[tp].position for tp in (A0, A1, B0)] == [9, 3, 1]
    fetches.stop([B0, TopicPartition("C", 0)])
    assert library(fetches).told("incremental_unassign")[1:] == [[("B", 0, -1001)]]
    fetches.stop([B0])
    assert len(library(fetches).told("incremental_unassign")) == 2


def test_a_topic_whose_leaders_are_not_found_is_looked_for_again(fetches: FetchClient) -> None:
    library(fetches).fail["list_topics"] = [failed(KafkaError._TRANSPORT)]
    fetches.start(A0, 0)
    fetches.start(A1, 0)
    assert library(fetches).told("list_topics") == ["A", "A"]


@pytest.mark.parametrize(
    ("call", "what", "act"),
    [
        ("incremental_assign", "A-0, A-1 cannot be read", lambda f: f.start_all({A0: 0, A1: 0})),
        ("consume", "nothing can be read", lambda f: f.pump()),
        ("commit", "positions of group g cannot be committed", lambda f: f.commit({A0: Position(1)})),
    ],
)
def test_errors_of_the_client_say_what_was_tried(
    call: str, what: str, act: Callable[[FetchClient], None], fetches: FetchClient
) -> None:
    library(fetches).fail[call] = [failed(KafkaError._TRANSPORT)]
    with pytest.raises(LogUnavailable, match=what):
        act(fetches)


# Positions of its group


def test_positions_are_asked_for_again_while_that_may_help(
    fetches: FetchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(_futures: object, _seconds: float) -> None:
        fetches._clock.advance(400)  # type: ignore[attr-defined]

    monkeypatch.setattr(fetching.futures, "wait", wait)
    unknown = KafkaPartition("A", 1, -1001)
    library(fetches).positions = [KafkaPartition("A", 0, 7, "seq=1"), unknown, KafkaPartition("B", 0, 0)]
    library(fetches).fail["committed"] = [failed(KafkaError.NOT_COORDINATOR)] * 2
    assert fetches.committed([A0, A1, B0], 1.0) == {A0: Position(7, "seq=1"), B0: Position(0)}
    assert library(fetches).told("committed") == [1.0] * 3
    library(fetches).fail["committed"] = [failed(KafkaError.NOT_COORDINATOR)] * 100
    with pytest.raises(LogUnavailable, match="positions of group g"):
        fetches.committed([A0], 1.0)
    assert len(library(fetches).told("committed")) == 3 + 4, "until a second has passed"
    library(fetches).fail["committed"] = [failed(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(LogDenied):
        fetches.committed([A0], 1.0)


def test_a_position_that_is_not_committed_is_an_error(fetches: FetchClient) -> None:
    class Done:
        error = None

    fetches.commit({A0: Position(4, "m")})
    assert library(fetches).told("commit") == [[("A", 0, 4, "m")]]
    refused = Done()
    refused.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)  # type: ignore[assignment]
    library(fetches).positions = [Done(), refused]
    with pytest.raises(LogDenied, match="positions of group g cannot be committed"):
        fetches.commit({A0: Position(4)})


def test_a_closed_client_keeps_nothing_and_says_so(fetches: FetchClient) -> None:
    fetches.start(A0, 0)
    fetches.close()
    assert (fetches.closed, fetches.cursors, library(fetches).told("close")) == (True, {}, [None])

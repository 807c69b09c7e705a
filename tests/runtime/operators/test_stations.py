"""Reservation stations: whatever the order in which calls end, rows go on in the order that is asked for, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.compiler.functions.asynchronous import ORDERS, Order, Retry
from flowql.runtime.functions.call_results import CallResult
from flowql.runtime.operators.asynchronous import operator
from flowql.runtime.operators.asynchronous.operator import PARK_MS, Pending, Stations, Waiting, from_value, to_value
from flowql.runtime.operators.base import AT_ONCE, SourceRecord

RETRY = Retry(3, 0.1, 2.0, 10.0)
IN_FLIGHT = 4


def stations(order: Order, retry: Retry = RETRY) -> Stations:
    return Stations(order, [retry, retry], IN_FLIGHT)


def issued(number: int, key: str | None, calls: int = 1, now_ms: int = 0) -> Waiting:
    row = Waiting(number, (key, number), number, 0, None if key is None else (key,), now_ms)
    row.values = [None, None]
    row.calls = {place: Pending(row, place) for place in range(calls)}
    return row


def retired(of: Stations, most: int = 100) -> list[int]:
    rows = of.ready(most)
    for row in rows:
        of.remove(row)
    return [row.number for row in rows]


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str | None, int, list[int]]]:
    """Rows: key, how many calls they need, and in how many ms each of these ends."""
    keys = st.sampled_from(["a", "b", "c", None])
    row = st.tuples(keys, st.integers(0, 2), st.lists(st.integers(0, 2 * PARK_MS), min_size=2, max_size=2))
    return draw(st.lists(row, min_size=1, max_size=25))


def lived(of: Stations, story: list[tuple[str | None, int, list[int]]], failing: set[int]) -> Iterator[int]:
    """Numbers of rows as they are retired. failing: rows whose first call fails twice."""
    waiting, under_way, now_ms, steps = list(enumerate(story)), list[tuple[int, Pending]](), 0, 0
    while waiting or of.rows:
        steps += 1
        assert steps < 10_000, "it never ends"
        while waiting and of.room:
            number, (key, calls, _) = waiting.pop(0)
            of.add(issued(number, None if of.order == "none" else key, calls, now_ms))
        for call in of.to_begin(now_ms):
            under_way.append((now_ms + story[call.row.number][2][call.place], call))
        assert of.in_flight == len(under_way) <= IN_FLIGHT
        of.park(now_ms)
        yield from retired(of)
        assert len(of.rows) - of.parked <= IN_FLIGHT
        due = of.due_ms(now_ms)
        times = [at for at, _ in under_way] + ([due] if due not in (None, AT_ONCE) else [])
        if times and due != AT_ONCE:
            now_ms = max(now_ms, min(times))
        for at, call in [u for u in under_way if u[0] <= now_ms]:
            under_way.remove((at, call))
            fails = call.row.number in failing and call.place == 0 and call.failed < 2
            of.ended(call, CallResult(error="it failed") if fails else CallResult(call.row.number), now_ms)


@pytest.mark.parametrize("order", ORDERS)
@given(story=stories(), failing=st.sets(st.integers(0, 25)))
def test_rows_are_retired_once_and_in_their_order(
    order: Order, story: list[tuple[str | None, int, list[int]]], failing: set[int]
) -> None:
    found = list(lived(stations(order), story, failing))
    assert sorted(found) == list(range(len(story)))
    if order == "input":
        assert found == sorted(found)
    if order == "key":
        for key in ("a", "b", "c"):
            of_key = [n for n in found if story[n][0] == key]
            assert of_key == sorted(of_key)


def test_a_row_that_waits_for_long_is_parked_with_those_behind_it_and_takes_no_station() -> None:
    of = stations("key")
    for n, key in enumerate("abaa"):
        of.add(issued(n, key))
    assert of.room == 0
    begun = list(of.to_begin(0))
    assert of.ended(begun[1], CallResult("b"), 10) is False
    assert retired(of) == [1]
    of.park(PARK_MS - 1)
    assert (of.parked, of.room) == (0, 1)
    of.park(PARK_MS)
    assert (of.parked, of.room) == (3, IN_FLIGHT)
    of.ended(begun[2], CallResult("done"), PARK_MS)
    assert retired(of) == []
    of.ended(begun[0], CallResult("done"), PARK_MS)
    assert retired(of) == [0, 2]
    assert of.parked == 1


def test_in_the_order_of_the_input_nothing_is_parked() -> None:
    of = stations("input")
    of.add(issued(0, "a"))
    of.park(10 * PARK_MS)
    assert (of.parked, of.oldest_ms) == (0, 0)


def test_with_too_many_parked_rows_no_input_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "PARKED_MAX", 3)
    of = stations("key")
    for n in range(3):
        of.add(issued(n, f"k{n}"))
    of.park(PARK_MS)
    assert of.room == 0


def test_attempts_end() -> None:
    of = stations("key")
    of.add(issued(0, "a"))
    now_ms = 0
    for attempt in range(3):
        (call,) = of.to_begin(now_ms)
        is_kept = of.ended(call, CallResult(error="away"), now_ms)
        assert is_kept is (attempt < 2)
        if attempt < 2:
            assert list(of.to_begin(now_ms)) == []
            due_ms = of.due_ms(now_ms)
            assert due_ms is not None
            assert 0.09 * 2**attempt <= (due_ms - now_ms) / 1_000 <= 0.11 * 2**attempt
            now_ms = due_ms
    (row,) = of.ready(10)
    assert row.errors == [(0, "away")]


def test_a_delay_is_no_attempt_and_holds_back_no_time() -> None:
    of = stations("key", Retry(1, 0.0, 1.0, 0.0))
    of.add(issued(5, "a"))
    (call,) = of.to_begin(0)
    assert of.ended(call, CallResult(again_ms=300_000), 0)
    assert (of.oldest_ms, list(of.to_begin(299_999))) == (None, [])
    assert [c.failed for c in of.to_begin(300_000)] == [0]


def test_a_clock_that_is_set_back_keeps_nothing_waiting() -> None:
    of = stations("key")
    of.add(issued(0, "a", now_ms=10_000_000))
    (call,) = of.to_begin(10_000_000)
    of.ended(call, CallResult(again_ms=5_000), 10_000_000)
    of.clock_set_back(9_000_000)
    assert len(list(of.to_begin(1_005_000))) == 1


def test_calls_of_a_cancelled_row_are_abandoned() -> None:
    of, told = stations("key"), []
    of.add(issued(0, "a"))
    (call,) = of.to_begin(0)
    call.cancel = lambda: told.append("abandoned")
    of.remove(of.earlier(("a",))[0])
    assert (told, of.in_flight, of.ended(call, CallResult(1), 0)) == (["abandoned"], 0, False)


def test_what_is_kept_of_a_row_comes_back() -> None:
    row = issued(7, "a", calls=2, now_ms=1_000)
    row.source = SourceRecord("t", 1, 42, 5, b"key", b"\xff value")
    row.headers, row.delayed = [("h", b"1")], True
    row.calls[1].failed, row.calls[1].due_ms = 2, 9_000
    for now_ms, back_ms in ((1_500, 0), (500, 1_000)):
        found = from_value(7, to_value(row, 1_500), now_ms)
        assert (found.row, found.rowtime, found.source, found.delayed) == (row.row, 7, row.source, True)
        assert found.since_ms == 1_000 - back_ms
        assert [(p, c.failed, c.due_ms) for p, c in found.calls.items()] == [(1, 2, 9_000 - back_ms)]

"""Tumbling and hopping windows: what is given, when, and what is late. Expectations follow the ksqlDB corpus's meaning."""

from __future__ import annotations

from flowql.compiler.plan.logical import Window
from tests.runtime.operators.world import Task, aggregate, batch, schema

S = schema("k:STRING", "v")


def rows(*pairs):
    return [((k, v), t) for k, v, t in pairs]


def final(window, times, key="k1"):
    task = Task(*aggregate(S, "COUNT", window=window, final=True))
    out = []
    for i, t in enumerate(times):
        out += task.run(batch(S, ((key, 1), t), start=i))
    return [(r[1], r[2], r[3], t) for _, r, t in out]


def test_every_update_of_every_window_is_given_with_the_highest_time_of_its_rows():
    task = Task(*aggregate(S, "MAX:v", window=Window("hopping", 30, 15)))
    got = task.run(batch(S, *rows(("a", 0, 0), ("a", 1, 89), ("a", 5, 10), ("a", 0, 90))))
    assert got == [
        ("+", ("a", 0, 30, 0), 0),
        ("+", ("a", 60, 90, 1), 89),
        ("+", ("a", 75, 105, 1), 89),
        (">", ("a", 0, 30, 5), 10),
        (">", ("a", 75, 105, 1), 90),
        ("+", ("a", 90, 120, 0), 90),
    ]


def test_rows_later_than_grace_are_dropped_per_window_and_counted():
    task = Task(*aggregate(S, "COUNT", window=Window("hopping", 30, 15, grace_ms=60)))
    got = task.run(batch(S, *rows(("a", 1, 90), ("a", 1, 10), ("a", 1, 30))))
    assert [r[1:3] for _, r, _ in got] == [(75, 105), (90, 120), (15, 45), (30, 60)]
    assert task.late == 1


def test_final_gives_a_window_when_stream_time_reaches_its_end_plus_grace():
    assert final(Window("tumbling", 2, 2, grace_ms=0), [0, 1]) == []
    assert final(Window("tumbling", 2, 2, grace_ms=0), [0, 1, 2]) == [(0, 2, 2, 1)]


def test_final_forgets_windows_that_a_jump_outruns():
    assert final(Window("tumbling", 2, 2, grace_ms=1), [0, 1, 2, 1, 0, 5]) == [(2, 4, 1, 2)]
    assert final(Window("hopping", 5, 2, grace_ms=1), [0, 1, 2, 1, 6, 5, 10]) == [(0, 5, 4, 2), (4, 9, 2, 6)]
    kept = Window("tumbling", 2, 2, grace_ms=1, retention_ms=1000)
    assert final(kept, [0, 1, 2, 1, 0, 5]) == [(0, 2, 4, 1), (2, 4, 1, 2)]


def test_windows_closed_by_one_row_come_by_start_then_key():
    task = Task(*aggregate(S, "COUNT", window=Window("tumbling", 2, 2, grace_ms=1, retention_ms=100), final=True))
    got = task.run(batch(S, *rows(("b", 1, 2), ("b", 1, 1), ("a", 1, 0), ("a", 1, 3), ("z", 1, 9))))
    assert [r[:2] for _, r, _ in got] == [("a", 0), ("b", 0), ("a", 2), ("b", 2)]


def test_null_keys_and_null_values_are_skipped_and_do_not_advance_time():
    task = Task(*aggregate(S, "COUNT", window=Window("tumbling", 10, 10, grace_ms=0)))
    got = task.run(batch(S, ((None, 1), 500), ("-", ("a", None), 700), (("a", 1), 3)))
    assert got == [("+", ("a", 0, 10, 1), 3)]
    assert task.late == 0

"""Session windows: merging, tombstones, lateness, final results."""

from __future__ import annotations

from flowql.compiler.plan.logical import Window
from tests.runtime.operators.world import Task, aggregate, batch, schema

S = schema("k:BIGINT", "v")


def task(gap, grace=None, *, final=False, coalesce=False, change="upsert"):
    window = Window("session", gap, 0, grace_ms=grace)
    return Task(*aggregate(S, "MAX:v", window=window, final=final, change=change), coalesce=coalesce)


def feed(t, *rows):
    return t.run(batch(S, *[((k, v), time) for k, v, time in rows]))


def test_a_session_that_grows_gives_a_tombstone_for_its_old_bounds():
    got = feed(task(30), (0, 0, 0), (0, 1, 70), (0, 5, 9), (0, 6, 10))
    assert got == [
        ("+", (0, 0, 0, 0), 0),
        ("+", (0, 70, 70, 1), 70),
        ("-", (0, 0, 0, 0), 0),
        ("+", (0, 0, 9, 5), 9),
        ("-", (0, 0, 9, 5), 9),
        ("+", (0, 0, 10, 6), 10),
    ]


def test_a_row_between_two_sessions_joins_them():
    got = feed(task(10), (0, 7, 0), (0, 1, 20), (0, 2, 10))
    assert got[2:] == [("-", (0, 0, 0, 7), 0), ("-", (0, 20, 20, 1), 20), ("+", (0, 0, 20, 7), 20)]


def test_a_second_row_of_the_same_instant_updates_in_place():
    assert feed(task(10, change="retract"), (0, 1, 5), (0, 2, 5))[1:] == [
        ("<", (0, 5, 5, 1), 5),
        (">", (0, 5, 5, 2), 5),
    ]


def test_late_rows_are_dropped_and_closed_sessions_do_not_grow():
    t = task(30_000, 60_000)
    got = feed(t, (0, 0, 0), (0, 1, 100_010), (0, 5, 10_009), (0, 6, 10_010), (1, 9, 10_009), (1, 8, 10_010))
    assert got == [
        ("+", (0, 0, 0, 0), 0),
        ("+", (0, 100_010, 100_010, 1), 100_010),
        ("+", (0, 10_010, 10_010, 6), 10_010),
        ("+", (1, 10_010, 10_010, 8), 10_010),
    ]
    assert t.late == 2


def test_final_gives_a_session_once_when_stream_time_passes_end_gap_and_grace():
    window = Window("session", 5, 0, grace_ms=6)
    t = Task(*aggregate(S, "COUNT", window=window, final=True))
    out = []
    for i, time in enumerate([0, 4, 8, 12, 14, 30, 29, 17, 42]):
        out += t.run(batch(S, ((1, 0), time), start=i))
    assert out == [("+", (1, 0, 14, 5), 14), ("+", (1, 29, 30, 2), 30)]


def test_coalesced_growth_gives_the_last_session_and_removes_those_known_before():
    t = task(30, coalesce=True)
    assert feed(t, (0, 0, 0), (0, 1, 10)) == [("+", (0, 0, 10, 1), 10)]
    assert feed(t, (0, 2, 20), (0, 3, 25)) == [("-", (0, 0, 10, 1), 10), ("+", (0, 0, 25, 3), 25)]


def test_sessions_past_retention_are_forgotten():
    t = task(10, 0)
    feed(t, (0, 0, 0), (1, 0, 5))
    feed(t, (2, 0, 1000))
    assert list(t.table()) == [(2,)]

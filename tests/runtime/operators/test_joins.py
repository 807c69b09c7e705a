"""Joins row by row: what is given, with which time, and when. Expectations follow the ksqlDB corpus's meaning."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.expr import Call
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, STRING
from tests.runtime.operators.world import DictStore, Task, batch, column, join, schema, source

L, R = schema("l_id", "a:STRING"), schema("r_id", "b:STRING")
OUT = Schema((Field("l_id", BIGINT, "key"), Field("a", STRING), Field("b", STRING)))
FULL = Schema(
    (
        Field("K", BIGINT, "key"),
        *(Field(n, t) for n, t in zip(("l_id", "a", "r_id", "b"), (BIGINT, STRING) * 2, strict=True)),
    )
)


def feed(task, *records):
    """Records ("l" or "r", row or key alone for a removal, time), each its own run."""
    out = []
    for i, (side, row, time) in enumerate(records):
        s = L if side == "l" else R
        r = ("+", row, time) if isinstance(row, tuple) else ("-", (row, None), time)
        b = batch(s, r, start=i)
        out += task.run(b, None) if side == "l" else task.run(None, b)
    return out


def streams(kind, out=OUT, grace=None, within=11_000):
    return Task(*join(L, R, out, "stream-stream", kind, before_ms=within, after_ms=within, grace_ms=grace))


def tables(kind, out=OUT, change="retract"):
    return Task(*join(L, R, out, "table-table", kind, change=change, inputs=("upsert", "upsert")))


TWO_SIDES = [
    ("l", (0, "zero"), 0),
    ("r", (0, "blah"), 10_000),
    ("l", (10, "ten"), 11_000),
    ("l", (0, "foo"), 13_000),
    ("r", (0, "x"), 15_000),
    ("r", (100, "new"), 16_000),
    ("l", (0, "bar"), 30_000),
]
MATCHES = [
    ("+", (0, "zero", "blah"), 10_000),
    ("+", (0, "foo", "blah"), 13_000),
    ("+", (0, "foo", "x"), 15_000),
]


def test_inner_stream_join_gives_pairs_within_the_window_at_the_later_time():
    assert feed(streams("inner"), *TWO_SIDES) == MATCHES


def test_legacy_outer_joins_pad_at_once():
    got = feed(streams("left"), *TWO_SIDES)
    padded = [r for r in got if r[1][2] is None]
    assert padded == [
        ("+", (0, "zero", None), 0),
        ("+", (10, "ten", None), 11_000),
        ("+", (0, "bar", None), 30_000),
    ]
    assert [r for r in got if r not in padded] == MATCHES
    assert ("+", (100, None, "new"), 16_000) in feed(streams("right"), *TWO_SIDES)
    assert ("+", (100, None, None, 100, "new"), 16_000) in feed(streams("full", FULL), *TWO_SIDES)


def test_outer_joins_with_grace_pad_when_the_window_and_grace_have_passed():
    task = streams("left", grace=5, within=10)
    assert feed(task, ("l", (1, "a"), 0), ("l", (2, "b"), 1), ("r", (2, "B"), 9)) == [("+", (2, "b", "B"), 9)]
    assert feed(task, ("l", (3, "c"), 15)) == []
    assert feed(task, ("r", (9, "z"), 16)) == [("+", (1, "a", None), 0)]
    assert feed(task, ("r", (9, "z"), 100)) == [("+", (3, "c", None), 15)]


def test_a_row_waits_for_its_own_side_of_a_one_sided_window():
    task = Task(*join(L, R, OUT, "stream-stream", "left", before_ms=2, after_ms=5, grace_ms=0))
    assert feed(task, ("l", (1, "a"), 0), ("l", (2, "b"), 0), ("r", (9, "z"), 5)) == []
    assert feed(task, ("r", (1, "x"), 5)) == [("+", (1, "a", "x"), 5)], "the last instant of its window"
    assert feed(task, ("r", (9, "z"), 6)) == [("+", (2, "b", None), 0)]


def test_waiting_rows_come_by_time_then_right_before_left_then_key():
    task = streams("full", FULL, grace=0, within=10)
    feed(task, ("l", (3, "l"), 5), ("l", (2, "l"), 5), ("r", (7, "r"), 5), ("l", (9, "l"), 4))
    got = feed(task, ("l", (50, "x"), 500))
    assert [r[0] for _, r, _ in got] == [9, 7, 2, 3]


class CountedStore(DictStore):
    """Counts the keys that scans pass, those that were deleted included: an epoch keeps them until it is committed."""

    def __init__(self, spec):
        super().__init__(spec)
        self.all_keys, self.passed = set(), 0

    def put_many(self, keys, values):
        self.all_keys.update(keys)
        super().put_many(keys, values)

    def scan(self, *, low=None, high=None):
        self.passed += sum((low is None or low <= k) and (high is None or k < high) for k in self.all_keys)
        return super().scan(low=low, high=high)


@pytest.mark.parametrize("kind", ["left", "full"])
def test_a_row_that_waits_is_visited_once(kind):
    """Scans passed all rows of the epoch: 12,000 took 200 times as long as 1,500."""
    out = OUT if kind == "left" else FULL
    task = Task(*join(L, R, out, "stream-stream", kind, before_ms=0, after_ms=50, grace_ms=0))
    store = task.state.stores["waiting"] = CountedStore(task.plan.stores[2])
    rows = [row for t in range(200) for row in (("l", (t, "l"), t), ("r", (-t - 1, "r"), t))]
    assert len(feed(task, *rows)) == (149 if kind == "left" else 149 + 199)
    assert len(store.all_keys) == (200 if kind == "left" else 400)
    assert store.passed <= len(store.all_keys)


def test_rows_behind_the_other_sides_memory_are_not_met_and_pad_at_once():
    minute = 60_000
    task = streams("left", grace=minute, within=minute)
    got = feed(
        task,
        ("l", (0, "A"), 0),
        ("r", (0, "a"), minute),
        ("l", (1, "B"), 330_000),
        ("l", (2, "C"), 90_000),
        ("r", (2, "c"), 90_000),
    )
    assert got == [("+", (0, "A", "a"), minute), ("+", (2, "C", None), 90_000)]
    assert task.late == 2, "C is not remembered, and c comes when all it could meet is forgotten"
    right = streams("right", grace=minute, within=minute)
    late = [("l", (1, "B"), 330_000), ("r", (3, "d"), minute), ("l", (3, "D"), 90_000)]
    assert feed(right, *late) == [("+", (3, None, "d"), minute), ("+", (3, "D", "d"), 90_000)]
    assert right.late == 2


def test_stream_join_windows_may_be_one_sided():
    task = Task(*join(L, R, OUT, "stream-stream", "inner", before_ms=0, after_ms=5))
    got = feed(
        task, ("l", (1, "a"), 10), ("r", (1, "x"), 9), ("r", (1, "y"), 10), ("r", (1, "z"), 15), ("r", (1, "w"), 16)
    )
    assert [r[2] for _, r, _ in got] == ["y", "z"]


def test_one_run_of_both_sides_is_merged_by_seq_and_skips_rows_without_key_or_value():
    task = streams("inner")
    left = batch(L, ((1, "a"), 0), ((None, "n"), 1), ("-", (1, None), 2), ((1, "c"), 3), seqs=[0, 2, 4, 6])
    right = batch(R, ((1, "x"), 1), ((None, "n"), 1), seqs=[3, 5])
    assert [r[1:] for _, r, _ in task.run(left, right)] == [("a", "x"), ("c", "x")]


def stream_table(kind, vector=None):
    return Task(*join(L, R, OUT, "stream-table", kind, inputs=("append", "upsert")), vector=vector)


@pytest.mark.parametrize("vector", [True, False])
def test_stream_rows_meet_the_table_as_of_their_place_in_the_run(vector):
    task = stream_table("left", vector)
    left = batch(L, ((1, "a"), 9), ((1, "b"), 11), ((1, "c"), 12), ((2, "d"), 13), seqs=[0, 2, 4, 5])
    right = batch(R, ((1, "x"), 10), ("-", (1, None), 12), seqs=[1, 4])
    assert task.run(left, right) == [
        ("+", (1, "a", None), 9),
        ("+", (1, "b", "x"), 11),
        ("+", (1, "c", None), 12),  # at equal seq the table goes first
        ("+", (2, "d", None), 13),
    ]


@pytest.mark.parametrize("vector", [True, False])
def test_inner_stream_table_join_drops_rows_without_match_key_or_value(vector):
    task = stream_table("inner", vector)
    task.run(None, batch(R, ((1, "x"), 0), ((2, "y"), 1)))
    left = batch(L, ((1, "a"), 5), ((3, "b"), 6), ((None, "c"), 7), ("-", (2, None), 8), ((2, "e"), 4), start=9)
    assert task.run(left, None) == [("+", (1, "a", "x"), 5), ("+", (2, "e", "y"), 4)]


def test_table_join_gives_removals_only_for_joined_keys():
    task = tables("inner")
    got = feed(
        task,
        ("l", (0, "zero"), 0),
        ("l", 0, 1),
        ("l", (0, "foo"), 2),
        ("r", (0, "x"), 10),
        ("l", (0, "bar"), 5),
        ("r", 1, 11),
        ("r", 0, 12),
        ("r", 0, 13),
    )
    assert got == [
        ("+", (0, "foo", "x"), 10),
        ("<", (0, "foo", "x"), 10),
        (">", (0, "bar", "x"), 10),
        ("-", (0, "bar", "x"), 12),
    ]


def test_outer_table_joins_take_the_key_from_the_present_side():
    got = feed(
        tables("full", FULL), ("l", (0, "a"), 0), ("r", (15, "c"), 1), ("r", (0, "b"), 2), ("l", 0, 3), ("r", 0, 4)
    )
    assert [(s, r) for s, r, _ in got if s != "<"] == [
        ("+", (0, 0, "a", None, None)),
        ("+", (15, None, None, 15, "c")),
        (">", (0, 0, "a", 0, "b")),
        (">", (0, None, None, 0, "b")),
        ("-", (0, None, None, 0, "b")),
    ]
    right = feed(tables("right", OUT), ("l", (0, "a"), 0), ("r", (15, "c"), 1), ("r", (0, "b"), 2))
    assert [r for _, r, _ in right] == [(15, None, "c"), (0, "a", "b")]


LF = schema("l_id", "a:STRING fk")
FOREIGN = Schema((Field("l_id", BIGINT, "key"), Field("a", STRING), Field("r_id", BIGINT), Field("b", STRING)))


def foreign(kind, change="upsert", expr=None):
    return Task(
        *join(
            LF,
            R,
            FOREIGN,
            "foreign-key",
            kind,
            change=change,
            inputs=("retract", "upsert"),
            foreign=expr or column(LF, "fk"),
        )
    )


def lefts(task, *rows, start=0):
    return task.run(batch(LF, *rows, start=start), None)


def test_foreign_key_join_follows_both_sides():
    task = foreign("inner")
    task.run(None, batch(R, ((0, "blah"), 0)))
    assert lefts(task, ("+", (1, "zero", 0), 10)) == [("+", (1, "zero", 0, "blah"), 10)]
    assert lefts(task, ("+", (0, "foo", 100), 13)) == []
    assert [r for _, r, _ in task.run(None, batch(R, ((0, "a"), 15)))] == [(1, "zero", 0, "a")]
    assert lefts(task, ("+", (10, "bar", 0), 14)) == [("+", (10, "bar", 0, "a"), 15)]
    gone = task.run(None, batch(R, ("-", (0, None), 17)))
    assert [(s, r[0], t) for s, r, t in gone] == [("-", 1, 17), ("-", 10, 17)]
    removed = lefts(task, ("-", (1, "zero", 0), 18))
    assert [(s, r[0], t) for s, r, t in removed] == [("-", 1, 18)], "Kafka Streams gives the removal again"


def test_a_retract_foreign_key_join_gives_exact_removals():
    task = foreign("inner", "retract")
    lefts(task, ("+", (1, "a", 5), 0))
    assert lefts(task, ("-", (1, "a", 5), 1)) == []


def test_a_left_row_moves_between_foreign_keys():
    task = foreign("left", "retract")
    task.run(None, batch(R, ((0, "x"), 0), ((8, "y"), 1)))
    assert lefts(task, ("+", (1, "a", 0), 2)) == [("+", (1, "a", 0, "x"), 2)]
    assert lefts(task, ("<", (1, "a", 0), 3), (">", (1, "a", 8), 3)) == [
        ("<", (1, "a", 0, "x"), 3),
        (">", (1, "a", 8, "y"), 3),
    ]
    assert task.run(None, batch(R, ((0, "z"), 4))) == []
    assert task.run(None, batch(R, ("-", (8, None), 5))) == [
        ("<", (1, "a", 8, "y"), 5),
        (">", (1, "a", None, None), 5),
    ]


def test_a_foreign_key_may_be_an_expression():
    double = Call(BIGINT, "add", (column(LF, "fk"), column(LF, "fk")))
    task = foreign("inner", expr=double)
    task.run(None, batch(R, ((8, "y"), 1)))
    assert lefts(task, ("+", (1, "a", 4), 2)) == [("+", (1, "a", 8, "y"), 2)]


def test_sources_are_not_made_here():
    from flowql.runtime.errors import PlanUnsupported
    from flowql.runtime.operators.factory import build
    from tests.runtime.operators.world import project

    with pytest.raises(PlanUnsupported, match="Project"):
        build(project(L), [source(L)])

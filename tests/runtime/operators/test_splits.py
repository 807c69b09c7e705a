"""Rule R5: any split of the input into runs gives the same rows when updates are not coalesced; coalesced, the same state."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from flowql.compiler.plan.logical import Window
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, STRING
from tests.runtime.operators.test_joins import FOREIGN, FULL, LF, L, R
from tests.runtime.operators.world import Task, aggregate, batch, column, cuts, join, schema

S = schema("k", "v")
POINTS = st.lists(st.integers(0, 24), max_size=6)
KEYS = st.one_of(st.none(), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))
TIMES = st.integers(0, 40)
SIGNS = st.sampled_from("+++-")
ONE = st.lists(st.tuples(SIGNS, st.tuples(KEYS, st.integers(0, 9)), TIMES), max_size=24)
TWO = st.lists(st.tuples(st.booleans(), SIGNS, KEYS, st.integers(0, 3), TIMES), max_size=24)

WINDOWED = st.sampled_from(
    [
        (None, False),
        (Window("tumbling", 8, 8, grace_ms=3), False),
        (Window("tumbling", 8, 8, grace_ms=3, retention_ms=99), True),
        (Window("hopping", 9, 4, grace_ms=2), True),
        (Window("hopping", 9, 4, grace_ms=0), False),
        (Window("cumulating", 9, 3, grace_ms=2), False),
        (Window("cumulating", 9, 3, grace_ms=2), True),
        (Window("session", 4, 0, grace_ms=5), False),
        (Window("session", 4, 0, grace_ms=5), True),
    ]
)


def _one(task: Task, rows: Any, points: Any) -> list[Any]:
    out, start = [], 0
    for part in cuts(rows, points):
        out += task.run(batch(S, *part, start=start))
        start += len(part)
    return out


@settings(max_examples=150, deadline=None)
@given(ONE, POINTS, WINDOWED, st.sampled_from(["upsert", "retract"]))
def test_aggregates(rows, points, windowed, change):
    window, final = windowed
    whole, split, merged = (
        Task(*aggregate(S, "SUM:v COUNT", window=window, final=final, change=change), coalesce=c)
        for c in (False, False, True)
    )
    expected = _one(whole, rows, [])
    assert _one(split, rows, points) == expected
    assert split.late == whole.late
    assert _replay(_one(merged, rows, points), final) == _replay(expected, final)


def _replay(changes: Any, append: bool) -> Any:
    """The table that changes leave; of final results, the rows themselves."""
    if append:
        return changes
    table: dict[Any, Any] = {}
    for sign, row, _ in changes:
        key = row[:-2]
        if sign == "-":
            table.pop(key, None)
        elif sign != "<":
            table[key] = row
    return table


def _runs(rows: Any, points: Any, left: Schema, right: Schema, of: Any) -> Any:
    """(left batch, right batch) per run; `of(is left, key, value)` makes a row."""
    start = 0
    for part in cuts(rows, points):
        sides: Any = ([], [])
        for seq, (is_left, sign, key, value, time) in enumerate(part, start):
            sides[not is_left].append((seq, (sign, of(is_left, key, value), time)))
        start += len(part)
        yield tuple(
            batch(s, *[r for _, r in side], seqs=[q for q, _ in side]) if side else None
            for s, side in zip((left, right), sides, strict=True)
        )


def _pair(is_left: bool, key: Any, value: int) -> Any:
    return (key, f"{'l' if is_left else 'r'}{value}")


@settings(max_examples=150, deadline=None)
@given(
    TWO,
    POINTS,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([None, 0, 4, 30]),
    st.sampled_from([(5, 5), (0, 7), (3, 0), (0, 0)]),
)
def test_stream_stream_joins(rows, points, kind, grace, bounds):
    given_rows = []
    for at in ([], points):
        task = Task(*join(L, R, FULL, "stream-stream", kind, before_ms=bounds[0], after_ms=bounds[1], grace_ms=grace))
        given_rows.append([r for pair in _runs(rows, at, L, R, _pair) for r in task.run(*pair)])
    assert given_rows[0] == given_rows[1]


@settings(max_examples=80, deadline=None)
@given(TWO, POINTS, st.sampled_from(["inner", "left"]), st.booleans())
def test_stream_table_joins(rows, points, kind, vector):
    out = Schema((Field("l_id", BIGINT, "key"), Field("a", STRING), Field("r_id", BIGINT), Field("b", STRING)))
    given_rows = []
    for at, v in (([], False), ([], vector), (points, False), (points, vector)):
        task = Task(*join(L, R, out, "stream-table", kind, inputs=("append", "upsert")), vector=v)
        given_rows.append([r for pair in _runs(rows, at, L, R, _pair) for r in task.run(*pair)])
    assert all(rows == given_rows[0] for rows in given_rows)


@settings(max_examples=80, deadline=None)
@given(TWO, POINTS, st.sampled_from(["inner", "left", "right", "full"]))
def test_table_table_joins(rows, points, kind):
    given_rows = []
    for at in ([], points):
        task = Task(*join(L, R, FULL, "table-table", kind, change="retract", inputs=("upsert", "upsert")))
        given_rows.append([r for pair in _runs(rows, at, L, R, _pair) for r in task.run(*pair)])
    assert given_rows[0] == given_rows[1]
    _consistent(given_rows[0])
    assert _replay_rows(given_rows[0]) == _joined(rows, kind)


def _consistent(changes: Any) -> None:
    """Every before-image and removal carries exactly what was given for its key."""
    table: dict[Any, Any] = {}
    for sign, row, _ in changes:
        if sign in "<-":
            assert table.pop(row[0]) == row
        else:
            assert row[0] not in table
            table[row[0]] = row


def _replay_rows(changes: Any) -> Any:
    table = {}
    for sign, row, _ in changes:
        if sign in "<-":
            del table[row[0]]
        else:
            table[row[0]] = row
    return table


def _joined(rows: Any, kind: str) -> Any:
    sides: Any = ({}, {})
    for is_left, sign, key, value, _ in rows:
        if key is not None:
            side = sides[not is_left]
            side.pop(key, None)
            if sign == "+":
                side[key] = _pair(is_left, key, value)
    left, right = sides
    keys = {"inner": left.keys() & right, "left": left, "right": right, "full": left.keys() | right}[kind]
    return {k: (k, *left.get(k, (None, None)), *right.get(k, (None, None))) for k in keys}


@settings(max_examples=80, deadline=None)
@given(TWO, POINTS, st.sampled_from(["inner", "left"]))
def test_foreign_key_joins(rows, points, kind):
    """Left rows (id, a, fk) as retractions: ids are `value`, foreign keys are `key`."""
    changes: list[Any] = []
    known: dict[int, Any] = {}
    for is_left, sign, key, value, time in rows:
        if not is_left:
            changes.append((False, [(sign, (key, f"r{value}"), time)]))
            continue
        old, new = known.pop(value, None), None if sign == "-" else (value, f"l{time}", key)
        if new is not None:
            known[value] = new
        if old is not None and new is not None:
            changes.append((True, [("<", old, time), (">", new, time)]))
        elif old is not None or new is not None:
            changes.append((True, [("-", old, time) if old is not None else ("+", new, time)]))
    given_rows = []
    for at in ([], points):
        task = Task(
            *join(
                LF,
                R,
                FOREIGN,
                "foreign-key",
                kind,
                change="retract",
                inputs=("retract", "upsert"),
                foreign=column(LF, "fk"),
            )
        )
        out, start = [], 0
        for part in cuts(changes, at):
            sides: Any = ([], [])
            for seq, (is_left, made) in enumerate(part, start):
                sides[not is_left].extend((seq, r) for r in made)
            start += len(part)
            out += task.run(
                *(
                    batch(s, *[r for _, r in side], seqs=[q for q, _ in side]) if side else None
                    for s, side in zip((LF, R), sides, strict=True)
                )
            )
        given_rows.append(out)
    assert given_rows[0] == given_rows[1]
    _consistent(given_rows[0])
    right = {k: f"r{v}" for k, v in _rights(rows).items()}
    expected = {
        i: (i, a, fk if fk in right else None, right.get(fk))
        for i, a, fk in known.values()
        if kind == "left" or fk in right
    }
    assert _replay_rows(given_rows[0]) == expected


def _rights(rows: Any) -> dict[int, int]:
    right: dict[int, int] = {}
    for is_left, sign, key, value, _ in rows:
        if not is_left and key is not None:
            right.pop(key, None)
            if sign == "+":
                right[key] = value
    return right

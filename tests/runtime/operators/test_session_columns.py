"""Sessions by columns are those by rows: what they give, what they keep, and what a store writes of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from flowql.compiler.plan.logical import Window
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.state.columns.sessions import SessionLayout
from flowql.runtime.state.columns.values import RowValues, Scaled, Wide
from flowql.runtime.state.values import decode_value, encode_value
from tests.runtime.operators.test_real_state import Managed
from tests.runtime.operators.world import Task, aggregate, batch, cuts, schema

S = schema("k", "v:BIGINT w:INT")
TWO_KEYS = schema("k t:STRING", "v:BIGINT w:INT")
GAP, LARGE = 5, (1 << 63) - 1
CALLS = st.sampled_from(["COUNT SUM:v AVG:v MIN:w MAX:v sql_sum:v sql_avg:w", "MAX:w", "COUNT"])
NUMBERS = st.none() | st.integers(-9, 9) | st.sampled_from([LARGE, -LARGE])
ROW = st.tuples(
    st.sampled_from("++++++-"),
    st.sampled_from([None, 0, 0, 0, 1, 1, 1, 2]),
    NUMBERS,
    st.none() | st.integers(0, 2),
    st.sampled_from([0, 0, 1, 2, 3, 5, 6, 7]),  # so much later than the row before
    st.sampled_from([0, 0, 0, 0, 2, 4, 5, 6, 9, 15]),  # and so far behind that
)
ROWS = st.lists(ROW, max_size=60)
PERIODS = st.sampled_from([(0, None), (6, None), (6, 40), (20, None), (1000, None)])


def task(
    s: Any, calls: str, grace: int, retention: int | None, *, vector: bool, final: bool, change: Any, state: Any = None
) -> Task:
    window = Window("session", GAP, 0, grace_ms=grace, retention_ms=retention)
    plan = aggregate(s, calls, window=window, final=final, change=change)
    state = state if state is None else state(plan[0].stores)
    return Task(*plan, coalesce=True, vector=vector, state=state)


def timed(s: Any, rows: Any) -> list[Any]:
    """Rows whose times mostly rise."""
    made, now = [], 0
    for sign, key, v, w, step, behind in rows:
        now += step
        keys = (key,) if s is S else (key, None if w is None else f"t{w % 2}")
        made.append((sign, (*keys, v, w), max(now - behind, 0)))
    return made


def live(task: Task, grace: int, retention: int | None) -> Any:
    """Sessions that the state keeps, without those that it may have forgotten."""
    store = task.state.store("agg")
    oldest = task.state.metadata.get("times", {}).get("agg", 0) - max(GAP + grace, retention or 0)
    found = {k: tuple(s for s in v if s[1] >= oldest) for k, v in store.scan()}
    return {k: v for k, v in found.items() if v}


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([S, TWO_KEYS]),
    ROWS,
    CALLS,
    st.lists(st.integers(0, 60), max_size=5),
    PERIODS,
    st.booleans(),
    st.sampled_from(["upsert", "retract"]),
    st.sampled_from(["dict", "kept", "reopened"]),
)
def test_columns_and_rows_agree(s, rows, calls, points, periods, final, change, kept):
    given_rows = timed(s, rows)
    states: dict[str, Any] = {
        "dict": None,
        "kept": lambda x: Managed(x, reopen=False),
        "reopened": lambda x: Managed(x, reopen=True),
    }
    one = task(s, calls, *periods, vector=False, final=final, change=change)
    other = task(s, calls, *periods, vector=True, final=final, change=change, state=states[kept])
    start = 0
    for part in cuts(given_rows, points):
        got = [t.run(batch(s, *part, start=start)) for t in (one, other)]
        assert got[0] == got[1]
        start += len(part)
    assert one.late == other.late
    assert live(one, *periods) == live(other, *periods)


def by_columns(calls: str, *, grace: int = 1000, change: Any = "upsert") -> Task:
    return task(S, calls, grace, None, vector=True, final=False, change=change)


def feed(t: Task, *rows: tuple[int, int]) -> Any:
    """Rows of key 0 with w = 1, as (v, time)."""
    return t.run(batch(S, *[((0, v, 1), time) for v, time in rows]))


def test_a_row_between_an_older_session_and_the_newest_one_joins_them():
    t = by_columns("COUNT")
    feed(t, (1, 0))
    feed(t, (1, 8))
    assert feed(t, (1, 4)) == [("-", (0, 0, 0, 1), 0), ("-", (0, 8, 8, 1), 8), ("+", (0, 0, 8, 3), 8)]


def test_a_session_whose_result_stays_gives_nothing():
    t = by_columns("MAX:v", change="retract")
    feed(t, (5, 0), (7, 4))
    assert feed(t, (6, 2)) == []
    assert feed(t, (8, 2)) == [("<", (0, 0, 4, 7), 4), (">", (0, 0, 4, 8), 4)]


def test_sessions_past_retention_leave_with_the_next_row_of_their_key():
    t = by_columns("COUNT", grace=20)
    for key, time in ((0, 0), (0, 6), (1, 25), (1, 33), (0, 38)):
        t.run(batch(S, ((key, 1, 1), time)))
    assert t.table()[(0,)] == ((38, 38, (1,)),)


def test_no_row_goes_row_by_row_unless_an_older_session_or_lateness_matters():
    window = Window("session", GAP, 0, grace_ms=20)
    t = Task(*aggregate(S, "COUNT", window=window), coalesce=True, vector=True)

    def by_row(*rows: tuple[int, int]) -> int:
        context = MicroBatchContext(t.state, dict(t.state.metadata.get("times", {})), vector=True)
        t.operator.process([batch(S, *[((key, 1, 1), time) for key, time in rows])], context)
        t.state.publish({"times": context.stream_times})
        return context.by_row.get("agg", 0)

    assert by_row((0, 0), (1, 30), (0, 30), (0, 31), (1, 29)) == 0
    assert by_row((0, 24), (1, 32)) == 1  # before the newest session of its key
    assert by_row((0, 70), (1, 49), (2, 70)) == 1  # so late that a session may have closed


@settings(max_examples=200, deadline=None)
@given(ROWS, st.lists(st.integers(0, 60), max_size=12), PERIODS, st.booleans(), st.booleans())
def test_an_operator_that_is_made_anew_closes_the_sessions_that_the_store_holds(rows, points, periods, final, vector):
    """So no session is forgotten while an operator lives, nor given twice after a restart."""
    options: dict[str, Any] = {"vector": vector, "final": final, "change": "retract"}
    lives, late, start, state = task(S, "COUNT SUM:v", *periods, **options), 0, 0, None
    for part in cuts(timed(S, rows), points):
        anew = task(S, "COUNT SUM:v", *periods, **options, state=lambda _, kept=state: kept) if state else None
        anew = anew or task(S, "COUNT SUM:v", *periods, **options)
        assert lives.run(batch(S, *part, start=start)) == anew.run(batch(S, *part, start=start))
        state, late, start = anew.state, late + anew.late, start + len(part)
        assert live(lives, *periods) == live(anew, *periods)
    assert lives.late == late


def test_a_session_closes_before_an_older_one_of_its_key_is_forgotten():
    for vector in (False, True):
        t = task(S, "COUNT", 6, 40, vector=vector, final=True, change="upsert")
        feed(t, (1, 162))
        t.run(batch(S, ((3, 1, 1), 177)))
        feed(t, (1, 186))
        assert t.run(batch(S, ((3, 1, 1), 201)))[-1] == ("+", (0, 186, 186, 1), 186)


DOUBLES = schema("k", "d:DOUBLE")


@settings(max_examples=300, deadline=None)
@given(
    st.permutations([(0.0, 0), (-0.0, 1), (0.0, 12), (-0.0, 14), (0.0, 7), (-0.0, 20), (5.0, 3)]),
    st.lists(st.integers(0, 7), max_size=3),
    st.sampled_from([Window("session", GAP, 0, grace_ms=1000), Window("hopping", 10, 5, grace_ms=1000), None]),
)
def test_which_zero_is_an_extreme_does_not_depend_on_the_order_of_rows(given_rows, points, window):
    """-0.0 is below 0.0, as in ksqlDB, though they are equal."""
    shown = []
    for vector in (False, True):
        t = Task(*aggregate(DOUBLES, "MIN:d MAX:d", window=window), coalesce=True, vector=vector)
        for part in cuts([((0, d), time) for d, time in given_rows], points):
            t.run(batch(DOUBLES, *part))
        shown.append(repr(sorted(t.table().items())))
    ordered = Task(*aggregate(DOUBLES, "MIN:d MAX:d", window=window), coalesce=True, vector=False)
    ordered.run(batch(DOUBLES, *[((0, d), time) for d, time in sorted(given_rows, key=lambda r: r[1])]))
    assert shown == [repr(sorted(ordered.table().items()))] * 2


def test_a_session_is_closed_and_forgotten_without_a_look_at_other_keys():
    """As many reads of the store with 3 keys that stay open as with 300."""
    reads = []
    for others in (3, 300):
        window = Window("session", GAP, 0, grace_ms=20, retention_ms=400)
        plan = aggregate(S, "COUNT", window=window, final=True)
        t = Task(*plan, coalesce=True, vector=False, state=Managed(plan[0].stores, reopen=False))
        store = t.state.store("agg")
        t.run(batch(S, ((0, 1, 1), 0), ((1, 1, 1), 10)))
        t.run(batch(S, *[((k, 1, 1), 20) for k in range(2, others)]))
        before = store.metrics.reads
        assert t.run(batch(S, ((1, 1, 1), 30))) == [("+", (0, 0, 0, 1), 0)]
        reads.append(store.metrics.reads - before)
        t.run(batch(S, ((1, 1, 1), 475)))
        assert [k for k, _ in store.scan()] == [(1,)]
    assert reads[0] == reads[1] < 5


LAYOUT = SessionLayout.of((("integer",), ("double", "integer"), (Scaled(2),), (Wide(None), "integer"), ("object",)))
ACCUMULATORS = st.tuples(
    st.none() | st.integers(-LARGE, LARGE) | st.integers(-9, 9),
    st.tuples(st.floats(allow_nan=False), st.integers(0, 300)),
    st.none() | st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    st.tuples(st.integers(-(1 << 100), 1 << 100), st.integers(0, 3)),
    st.none() | st.booleans() | st.text(max_size=300) | st.binary(max_size=9),
)
SESSIONS = st.lists(
    st.tuples(st.integers(-99, 1 << 50), st.integers(-99, 1 << 50), ACCUMULATORS), min_size=1, max_size=20
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | SESSIONS.map(tuple), max_size=6))
def test_columns_are_written_as_rows_are(values):
    """So a store that rows wrote is read by columns, and the reverse."""
    columns = RowValues.of(LAYOUT, values)
    assert not columns.odd
    assert columns.to_list() == values
    found = [None if data is None else decode_value(data) for data in columns.encode().to_pylist()]
    assert found == [None if v is None else decode_value(encode_value(v)) for v in values] == values

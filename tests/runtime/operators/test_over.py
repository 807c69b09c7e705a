"""Window functions over changes: what frames mean at their edges, and how much of a large partition a change touches."""

from __future__ import annotations

import random
from collections import Counter, deque
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from flowql.compiler.plan.changes import Frame, Over, SortKey, WindowCall
from flowql.compiler.plan.explain import spec_text
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, SqlType, array, decimal
from flowql.compiler.plan.verify import PlanInvariantError
from flowql.runtime.batch import DELETE, INSERT, concat
from flowql.runtime.operators.changes import buckets
from flowql.runtime.operators.fold import AGGREGATE_FAILED, AggregateUnsupported
from flowql.runtime.state.task_store import TaskStore
from tests.incremental.check import plain, run
from tests.incremental.deployed import Deployed, sunk
from tests.incremental.queries import Maker, renamed
from tests.incremental.tables import Table
from tests.incremental.windows import windowed

pytestmark = pytest.mark.turns("long")

LARGE = 10_000


def over(table: Table, *calls: WindowCall, keys: tuple[str, ...] = (), order: tuple[SortKey, ...] = ()) -> Node:
    below = table.node()
    return Node(
        Over(keys, order, calls),
        (below,),
        Schema((*below.schema, *(Field(c.name, c.type) for c in calls))),
        "retract",
    )


def results(calls: list[WindowCall], rows: list[tuple[Any, ...]], *order: SortKey, keys: tuple[str, ...] = ()) -> Any:
    """The calls' results for each row (id, k, s, b, n, d, m), by id; each row comes in a run of its own."""
    table = Table("t", random.Random(0))
    deployed = Deployed(sunk(over(table, *calls, keys=keys, order=order)), 1, random.Random(0))
    for row in rows:
        deployed.feed("t", [(INSERT, (row[0], *row), 0)])
        deployed.settle()
    deployed.reopen()
    assert not deployed.dead
    found = {r[0]: r[len(table.columns) + 1 :] for r in deployed.rows()}
    return [found[r[0]] for r in rows]


def by_double(*values: float | None) -> list[tuple[Any, ...]]:
    return [(i, None, None, None, None, v, None) for i, v in enumerate(values)]


COUNT = WindowCall("c", "COUNT", (), BIGINT)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("reach", ["near", "running", "whole"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_windows_are_what_duckdb_computes_with_every_sort_of_frame(reach, partitions):
    for seed in range(20_000, 20_006):
        run(lambda m: windowed(m, m.table(0), reach=reach), seed, rounds=3, partitions=partitions)


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reach", ["near", "running", "whole"])
def test_scattered_changes_in_one_large_partition(reach, seed):
    """Several changes in a run, near each other and far apart: their stretches meet or do not."""
    rng = random.Random(seed)
    table = Table("t", rng, values=rng.choice((4, 200)))
    maker = Maker([table], rng)
    while True:
        query = windowed(maker, renamed(maker, maker.table(0)), reach=reach)
        if not query.node.spec.keys:  # type: ignore[union-attr]
            break
    deployed = Deployed(sunk(query.node), 1, rng)
    rows: list = []
    for key in range(400):
        table._set(rows, key, table._row(key))
    table._next = 400
    deployed.feed("t", rows)
    with duckdb.connect(config={"threads": 1}) as connection:
        for n in (0, 1, 2, 8, 30, 3):
            deployed.feed("t", table.changes(n))
            deployed.settle()
            deployed.reopen()
            connection.register("t", table.arrow())
            assert Counter(map(plain, deployed.rows())) == Counter(
                map(plain, connection.execute(query.sql).fetchall())
            ), query.sql


@pytest.mark.turns("cases")
@pytest.mark.parametrize("unit", ["groups", "range", "rows"])
@pytest.mark.parametrize(("start", "end"), [(-2, 1), (-1, 2), (1, 2), (-3, -1), (0, 3), (0, 0)])
def test_near_frames_of_a_large_partition_see_far_enough_on_both_sides(unit, start, end):
    """Rows that a change affects depend on rows that are further away than they are themselves."""
    rng = random.Random(start * 10 + end)
    table = Table("t", rng, values=120)
    order = (SortKey("t_n"), *([SortKey("t_id")] if unit == "rows" else []))
    call = WindowCall("w", "SUM", ("t_id",), decimal(38, 0), Frame(unit, start, end))
    nearer = WindowCall("x", "MAX", ("t_id",), BIGINT, Frame(unit, -1, 0))
    deployed = Deployed(sunk(over(table, call, nearer, order=order)), 1, rng)
    rows: list = []
    for key in range(150):
        table._set(rows, key, table._row(key))
    table._next = 150
    deployed.feed("t", rows)
    by = ", ".join(f"{k.column} NULLS LAST" for k in order)
    text = f"{unit} BETWEEN {_bound(start, 'PRECEDING')} AND {_bound(end, 'FOLLOWING')}"
    one = f"{unit} BETWEEN 1 PRECEDING AND CURRENT ROW"
    sql = f"SELECT *, sum(t_id) OVER (ORDER BY {by} {text}), max(t_id) OVER (ORDER BY {by} {one}) FROM t"
    with duckdb.connect(config={"threads": 1}) as connection:
        for n in (0, *(1, 1, 2, 3) * 4):
            deployed.feed("t", table.changes(n))
            deployed.settle()
            connection.register("t", table.arrow())
            expected = Counter(map(plain, connection.execute(sql).fetchall()))
            assert Counter(map(plain, deployed.rows())) == expected


@pytest.mark.turns("cases")
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("gap", [1, 2, 5])
def test_sessions_of_a_large_partition_grow_merge_and_split(gap, descending):
    """Gaps of 1, which peers alone are within, up to those that some rows bridge."""
    rng = random.Random(gap)
    table = Table("t", rng, values=400)
    session = Frame("session", None, gap)
    calls = [
        WindowCall("c", "COUNT", (), BIGINT, session),
        WindowCall("s", "SUM", ("t_id",), decimal(38, 0), session),
        WindowCall("m", "MAX", ("t_id",), BIGINT, session),
        WindowCall("f", "FIRST_VALUE", ("t_n",), BIGINT, session),
        WindowCall("n", "SUM", ("t_id",), decimal(38, 0), Frame("range", -1, 1)),
    ]
    deployed = Deployed(sunk(over(table, *calls, order=(SortKey("t_n", descending),))), 1, rng)
    rows: list = []
    for key in range(150):
        table._set(rows, key, table._row(key))
    table._next = 150
    deployed.feed("t", rows)
    direction = " DESC" if descending else ""
    by = f"ORDER BY t_n{direction} NULLS LAST"
    begins = f"CASE WHEN abs(t_n - lag(t_n) OVER ({by})) < {gap} OR (t_n IS NULL AND lag(t_id) OVER ({by}) IS NOT NULL "
    begins += f"AND lag(t_n) OVER ({by}) IS NULL) THEN 0 ELSE 1 END"
    inner = f"SELECT *, sum(begins) OVER ({by}) AS session FROM (SELECT *, {begins} AS begins FROM t)"
    first = f"first(t_n ORDER BY t_n{direction}) OVER (PARTITION BY session)"
    shown = f"count(*) OVER p, sum(t_id) OVER p, max(t_id) OVER p, {first}, "
    shown += f"sum(t_id) OVER ({by} RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)"
    sql = f"SELECT * EXCLUDE (begins, session), {shown} FROM ({inner}) WINDOW p AS (PARTITION BY session)"
    with duckdb.connect(config={"threads": 1}) as connection:
        for n in (0, *(1, 1, 2, 3) * 5, 0):
            deployed.feed("t", table.changes(n))
            deployed.settle()
            connection.register("t", table.arrow())
            assert Counter(map(plain, deployed.rows())) == Counter(map(plain, connection.execute(sql).fetchall()))


def _bound(offset: int, side: str) -> str:
    if not offset:
        return "CURRENT ROW"
    return f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"


def test_the_default_frame_ends_with_the_last_peer_and_is_the_partition_without_an_order():
    total = WindowCall("s", "SUM", ("t_k",), decimal(38, 0))
    rows = [(i, k, None, None, n, None, None) for i, (k, n) in enumerate([(1, 10), (2, 10), (3, 20), (4, None)])]
    assert results([total], rows, SortKey("t_n")) == [(3,), (3,), (6,), (10,)]
    assert results([total], rows, SortKey("t_n", nulls_first=True)) == [(7,), (7,), (10,), (4,)]
    assert results([total], rows) == [(10,)] * 4


def test_a_distance_reaches_no_null_and_nan_is_beyond_all_numbers():
    """PostgreSQL's in_range: NULL and NaN are within any distance of their peers alone, infinities of each other."""
    near = WindowCall("c", "COUNT", (), BIGINT, Frame("range", -1.0, 1.0))
    ahead = WindowCall("a", "COUNT", (), BIGINT, Frame("range", 0, None))
    nan, inf = float("nan"), float("inf")
    rows = by_double(None, 1.0, nan, 0.0, 2.5, -0.0, inf, nan, None, 1e300)
    expected = [2, 3, 2, 3, 1, 3, 1, 2, 2, 1]
    assert [c for c, _ in results([near, ahead], rows, SortKey("t_d"))] == expected
    assert [c for c, _ in results([near, ahead], rows, SortKey("t_d", True, True))] == expected
    assert [a for _, a in results([near, ahead], rows, SortKey("t_d"))] == [2, 8, 4, 10, 7, 10, 5, 4, 2, 6]
    assert [a for _, a in results([near, ahead], rows, SortKey("t_d", True))] == [2, 5, 10, 4, 6, 4, 8, 10, 2, 7]


def test_distances_of_wide_decimals_are_exact():
    wide = decimal(38, 2)
    table = Table("t", random.Random(0))
    table_node = table.node()
    fields = tuple(Field(f.name, wide if f.name == "t_m" else f.type, f.role) for f in table_node.schema)
    below = Node(table_node.spec, (), Schema(fields), "retract")
    big = Decimal("999999999999999999999999999999999999.99")
    for offset, seen in ((Decimal("0.29"), 2), (Decimal("0.2899999999"), 1), (Decimal("0.299"), 2)):
        for descending in (False, True):
            call = WindowCall("c", "COUNT", (), BIGINT, Frame("range", -offset, offset))
            spec = Over((), (SortKey("t_m", descending),), (call,))
            node = Node(spec, (below,), Schema((*fields, Field("c", BIGINT))), "retract")
            deployed = Deployed(sunk(node), 1, random.Random(0))
            values = [big, Decimal("999999999999999999999999999999999999.70")]
            deployed.feed("t", [(INSERT, (i, i, *[None] * 5, v), 0) for i, v in enumerate(values)])
            deployed.settle()
            assert [r[-1] for r in deployed.rows()] == [seen, seen], (offset, descending)


def test_zeros_of_both_signs_are_peers_and_one_partition():
    rank = WindowCall("r", "RANK", (), BIGINT)
    rows = by_double(0.0, -0.0, 1.0)
    assert results([rank, COUNT], rows, SortKey("t_d")) == [(1, 2), (1, 2), (3, 3)]
    assert results([COUNT], rows, keys=("t_d",)) == [(2,), (2,), (1,)]


def test_frames_may_be_empty_and_numbers_null():
    frame = Frame("rows", 1, 2)
    calls = [
        WindowCall("c", "COUNT", ("t_k",), BIGINT, frame),
        WindowCall("s", "SUM", ("t_k",), BIGINT, frame),
        WindowCall("m", "MAX", ("t_k",), INT, frame),
        WindowCall("f", "FIRST_VALUE", ("t_k",), INT, frame),
        WindowCall("l", "ARRAY_AGG", ("t_k",), array(INT), frame),
        WindowCall("b", "SUM", ("t_k",), BIGINT, Frame("rows", -1, -2)),
        WindowCall("n", "NTILE", (), INT, init=(None,)),
        WindowCall("g", "LAG", ("t_k",), INT, init=(None,)),
        WindowCall("v", "NTH_VALUE", ("t_k",), INT, init=(None,)),
    ]
    rows = [(i, i + 1, None, None, None, None, None) for i in range(3)]
    nothing = (None, None, None, None)
    assert results(calls, rows, SortKey("t_id")) == [
        (2, 5, 3, 2, [2, 3], *nothing),
        (1, 3, 3, 3, [3], *nothing),
        (0, None, None, None, None, *nothing),
    ]


def test_lag_and_lead_say_null_or_the_default_of_the_current_row_beyond_the_partition():
    calls = [
        WindowCall("a", "LAG", ("t_k",), INT),
        WindowCall("b", "LEAD", ("t_k", "t_n"), INT, init=(2,)),
        WindowCall("c", "LAG", ("t_k",), INT, init=(-1,)),
        WindowCall("d", "LEAD", ("t_k",), INT, init=(1,), ignore_nulls=True),
        WindowCall("e", "LAG", ("t_k",), INT, init=(2,), ignore_nulls=True),
    ]
    rows = [(i, k, None, None, 90 + i, None, None) for i, k in enumerate((1, None, 3, 4))]
    assert results(calls, rows, SortKey("t_id")) == [
        (None, 3, None, 3, None),
        (1, 4, 3, 3, None),
        (None, 92, 4, 4, None),
        (3, 93, None, None, 1),
    ]


def test_the_first_value_that_is_not_null_may_be_behind_the_current_row():
    calls = [
        WindowCall("a", "FIRST_VALUE", ("t_k",), INT, Frame("rows", None, 1), ignore_nulls=True),
        WindowCall("b", "FIRST_VALUE", ("t_k",), INT, Frame("rows", None, 1)),
        WindowCall("c", "LAST_VALUE", ("t_k",), INT, Frame("rows", None, None), ignore_nulls=True),
        WindowCall("d", "NTH_VALUE", ("t_k",), INT, Frame("rows", None, None), init=(2,), ignore_nulls=True),
    ]
    rows = [(i, k, None, None, None, None, None) for i, k in enumerate((None, None, 3, 4, None))]
    assert results(calls, rows, SortKey("t_id")) == [
        (None, None, 4, 4),
        (3, None, 4, 4),
        (3, None, 4, 4),
        (3, None, 4, 4),
        (3, None, 4, 4),
    ]


def test_small_and_tied_partitions_of_ranks():
    calls = [
        WindowCall("p", "PERCENT_RANK", (), DOUBLE),
        WindowCall("c", "CUME_DIST", (), DOUBLE),
        WindowCall("t", "NTILE", (), INT, init=(2,)),
    ]
    rows = [(i, k, None, None, n, None, None) for i, (k, n) in enumerate([(1, 5), (2, 5), (2, 5), (2, 6)])]
    assert results(calls, rows, SortKey("t_n"), keys=("t_k",)) == [
        (0.0, 1.0, 1),
        (0.0, 2 / 3, 1),
        (0.0, 2 / 3, 1),
        (1.0, 1.0, 2),
    ]


# Touched rows of state per changed row and row given out, at most, in a large partition: the docstring says why.
NEAR = Frame("rows", -3, 1)
BOUNDS = [
    (WindowCall("w", "SUM", ("t_k",), BIGINT, NEAR), 4),
    (WindowCall("w", "MIN", ("t_s",), STRING, NEAR), 7),
    (WindowCall("w", "LAG", ("t_n",), BIGINT), 4),
    (WindowCall("w", "LEAD", ("t_n",), BIGINT, init=(3,)), 4),
    (WindowCall("w", "FIRST_VALUE", ("t_n",), BIGINT, Frame("range", None, None)), 6),
    (WindowCall("w", "LAST_VALUE", ("t_n",), BIGINT, Frame("rows", None, 0)), 6),
    (WindowCall("w", "COUNT", (), BIGINT, Frame("groups", -1, 1)), 9),
    (WindowCall("w", "COUNT", (), BIGINT, Frame("range", -5, 5)), 6),
    (WindowCall("w", "SUM", ("t_n",), decimal(38, 0)), 3),
    (WindowCall("w", "ROW_NUMBER", (), BIGINT), 3),
    (WindowCall("w", "RANK", (), BIGINT), 3),
]


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("call", "most"), BOUNDS, ids=lambda v: getattr(v, "function", v))
def test_a_change_touches_what_it_can_change_of_a_large_partition(call, most):
    """For near frames that is a number of rows, for running ones the rows behind, which are given out."""
    deployed, table = _filled(call, LARGE // 5)
    touched, given = sum(deployed.touched()), deployed.given
    fed = 0
    for _ in range(20):
        changes = table.changes(1)
        fed += len(changes)
        deployed.feed("t", changes)
        deployed.settle()
    found = (sum(deployed.touched()) - touched) / (fed + deployed.given - given)
    assert found <= most


def test_a_bounded_frame_of_rows_reads_its_offsets_around_a_change():
    """3 before and 1 behind: 4 rows on either side, those before twice; the head, the row itself, and its place backwards."""
    deployed, table = _filled(WindowCall("w", "SUM", ("t_k",), BIGINT, NEAR), LARGE)
    middle = sorted(table.rows.values(), key=lambda r: (r[5] is None, r[5]))[LARGE // 2]
    (reads, writes), given = deployed.touched(), deployed.given
    deployed.feed("t", [(DELETE, middle, 0)])
    deployed.settle()
    found = deployed.touched()
    assert found[0] - reads == 2 + 2 * 4 + 4, "head, entry, rows before, rows behind"
    assert found[1] - writes == 3, "head, entry, backwards"
    assert deployed.given - given == 1 + 4, "the row, and the four that saw it"


def test_a_frame_of_the_row_itself_reads_no_other():
    deployed, table = _filled(WindowCall("w", "SUM", ("t_k",), BIGINT, Frame("rows", 0, 0)), 100)
    reads, writes = deployed.touched()
    deployed.feed("t", [(DELETE, table.rows[50], 0)])
    deployed.settle()
    assert deployed.touched() == (reads + 2, writes + 3), "head and entry; and the opposite order"


@pytest.mark.parametrize("frame", [Frame(), Frame("range", 0, 0)])
def test_without_an_order_a_partition_is_read_once(frame):
    """All rows are peers, and none has a place before another."""
    call = WindowCall("w", "SUM", ("t_n",), decimal(38, 0), frame)
    deployed, table = _filled(call, 200, order=())
    reads, writes = deployed.touched()
    deployed.feed("t", [(DELETE, table.rows[100], 0)])
    deployed.settle()
    found = deployed.touched()
    assert (found[0] - reads, found[1] - writes) == (2 + 200, 2), "head and entry, then all; nothing is kept but rows"


def test_a_distance_ends_before_a_large_group_of_nulls():
    frame = Frame("range", -5, 5)
    deployed, table = _filled(WindowCall("w", "COUNT", (), BIGINT, frame), 50)
    nulls = [(INSERT, (k, k, None, None, None, None, None, None), 0) for k in range(1_000, 1_300)]
    deployed.feed("t", nulls)
    deployed.settle()
    deployed.reopen()  # scanned rows are counted where they are read from below
    last = max((r for r in table.rows.values()), key=lambda r: r[5])
    before = sum(deployed.touched())
    deployed.feed("t", [(DELETE, last, 0)])
    deployed.settle()
    assert sum(deployed.touched()) - before <= 10


def test_a_run_reads_heads_and_changed_rows_at_once_and_the_rows_before_a_change_as_well(monkeypatch):
    deployed, table = _filled(WindowCall("w", "SUM", ("t_k",), BIGINT, NEAR), 500)
    calls: Counter[str] = Counter()
    for name in ("get", "get_many", "scan_prefix"):
        plain_call = getattr(TaskStore, name)

        def counted(self: TaskStore, *args: Any, _name: str = name, _call: Any = plain_call, **options: Any) -> Any:
            if self.spec.name.startswith("Q-"):
                calls[_name] += 1
            return _call(self, *args, **options)

        monkeypatch.setattr(TaskStore, name, counted)
    in_order = sorted(table.rows.values(), key=lambda r: r[5])
    partition = deployed.tasks[0]
    for n in (0, 200, 400):
        table._set(found := [], in_order[n][0], None)
        deployed.feed("t", found)
    ((channel, queue),) = partition.channels.items()
    partition.channels[channel] = deque([concat(queue[0].schema, list(queue))])
    deployed._rng = WholeRuns()
    deployed.settle()
    assert calls == {"get_many": 2 + 2, "scan_prefix": 3 + 3}, "of three changes the first has no rows before it"


def test_a_running_call_goes_on_only_until_its_state_is_what_it_was():
    """A row in front changes every sum behind it, but no maximum that is larger, and no first value but its own."""
    for function, result in (("MAX", BIGINT), ("SUM", decimal(38, 0))):
        deployed, table = _filled(WindowCall("w", function, ("t_n",), result, Frame("rows", None, 0)), 2_000)
        first = min(table.rows.values(), key=lambda r: r[5])
        (reads, writes), given = deployed.touched(), deployed.given
        deployed.feed("t", [(DELETE, first, 0)])
        deployed.settle()
        reads, writes, given = deployed.touched()[0] - reads, deployed.touched()[1] - writes, deployed.given - given
        if function == "MAX":
            assert reads <= 5, "head, entry, none before, one behind"
            assert (writes, given) == (3, 1), "head, entry, opposite order"
        else:
            assert (writes, given) == (3 + 1_999, 2_000)


def test_the_opposite_order_has_the_entries_of_large_partitions_and_no_others():
    deployed, table = _filled(WindowCall("w", "LAG", ("t_n",), BIGINT), 40)

    def sizes() -> tuple[int, int]:
        (task,) = [t for t in deployed.tasks if any("over" in n for n in t.state.stores)]
        _, rows, back = (list(task.state.store(s.name).scan()) for s in task.sub.operators[-2].stores)
        return len(rows), len(back)

    assert sizes() == (40, 40)
    random.Random(0).shuffle(live := list(table.rows.values()))
    deleted = 0
    for step in (1, 20, 10, 3):
        deployed.feed("t", [(DELETE, r, 0) for r in live[deleted : deleted + step]])
        deployed.settle()
        deployed.reopen()
        deleted += step
        left = 40 - deleted if 40 - deleted > buckets.INLINE_MAX // 2 else 0
        assert sizes() == (left, left)
    deployed.feed("t", [(INSERT, r, 0) for r in live[:30]])
    deployed.settle()
    assert sizes() == (36, 36)


class WholeRuns(random.Random):
    """Each run takes everything."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return b


def _filled(call: WindowCall, rows: int, *, order: tuple[SortKey, ...] = (SortKey("t_n"),)) -> tuple[Deployed, Table]:
    """All in one partition, ordered by numbers of which few are equal."""
    table = Table("t", random.Random(3), values=10**6)
    table._value = _without_nulls(table)  # type: ignore[method-assign]
    deployed = Deployed(sunk(over(table, call, order=order)), 1, random.Random(1))
    found: list = []
    for key in range(rows):
        table._set(found, key, table._row(key))
    table._next = rows
    deployed.feed("t", found)
    deployed.settle()
    deployed.reopen()
    return deployed, table


def _without_nulls(table: Table) -> Any:
    """NULLs would be a large group of peers."""
    plain_value = table._value

    def value(t: SqlType) -> Any:
        while (found := plain_value(t)) is None:
            pass
        return found

    return value


def test_a_row_whose_result_is_out_of_range_is_a_dead_letter_once_and_shown_when_it_fits_again():
    table = Table("t", random.Random(0))
    call = WindowCall("s", "SUM", ("t_n",), INT)
    deployed = Deployed(sunk(over(table, call, order=(SortKey("t_id"),))), 1, random.Random(0))
    rows = [(i, i, None, None, None, n, None, None) for i, n in enumerate((2**31 - 1, 1, -1))]
    for row in rows:
        deployed.feed("t", [(INSERT, row, 0)])
        deployed.settle()
    assert sorted((r[0], r[-1]) for r in deployed.rows()) == [(0, 2**31 - 1), (2, 2**31 - 1)]
    assert [d.code for d in deployed.dead] == [AGGREGATE_FAILED]
    deployed.feed("t", [(INSERT, (-1, -1, None, None, None, 0, None, None), 1)])
    deployed.settle()
    assert sorted(r[0] for r in deployed.rows()) == [-1, 0, 2], "computed again, failed again"
    deployed.feed("t", [(DELETE, rows[0], 1)])
    deployed.settle()
    assert sorted((r[0], r[-1]) for r in deployed.rows()) == [(-1, 0), (1, 1), (2, 0)]
    assert len(deployed.dead) == 1


def test_what_is_no_window_function_is_refused_by_its_name():
    table = Table("t", random.Random(0))
    for function, message in (("PERCENTILE_CONT", "PERCENTILE_CONT is not a window"), ("TOPK", "TOPK of INT")):
        call = WindowCall("w", function, ("t_k",), DOUBLE, init=(0.5,) if function != "TOPK" else ())
        with pytest.raises(AggregateUnsupported, match=message):
            Deployed(over(table, call), 1, random.Random(0))


@pytest.mark.parametrize("function", ["ROW_NUMBER", "NTILE", "LAG", "FIRST_VALUE"])
def test_a_filter_belongs_to_aggregates_alone(function):
    call = WindowCall("w", function, ("t_k",), INT, filter="t_b", init=(1,) if function == "NTILE" else ())
    with pytest.raises(AggregateUnsupported, match=f"{function} takes no FILTER"):
        Deployed(over(Table("t", random.Random(0)), call), 1, random.Random(0))


@pytest.mark.parametrize("function", ["ROW_NUMBER", "NTILE", "SUM"])
def test_nulls_are_passed_over_by_functions_of_single_values_alone(function):
    call = WindowCall("w", function, ("t_k",), INT, ignore_nulls=True)
    with pytest.raises(AggregateUnsupported, match=f"{function} takes no IGNORE NULLS"):
        Deployed(over(Table("t", random.Random(0)), call), 1, random.Random(0))


def test_frames_that_mean_nothing_are_a_breach():
    table, order = Table("t", random.Random(0)), (SortKey("t_n"),)
    wrong = [
        (Frame("rows", 1, 0), order),
        (Frame("rows", 0, -1), order),
        (Frame("rows", -1.5, 0), order),
        (Frame("range", -1, 0), (SortKey("t_n"), SortKey("t_k"))),
        (Frame("range", -1, 0), (SortKey("t_s"),)),
        (Frame("range", -1.5, 0), order),
        (Frame("range", -1, 0), ()),
    ]
    for frame, by in wrong:
        with pytest.raises(PlanInvariantError):
            Deployed(over(table, WindowCall("w", "COUNT", (), BIGINT, frame), order=by), 1, random.Random(0))
    call = WindowCall("w", "COUNT", (), BIGINT, filter="t_x")
    with pytest.raises(PlanInvariantError, match="t_x"):
        Deployed(over(table, call), 1, random.Random(0))


def test_the_text_of_a_plan_has_keys_order_and_frames():
    calls = (
        WindowCall("a", "SUM", ("x",), BIGINT, Frame("rows", -2, 0), "f"),
        WindowCall("b", "LAG", ("x", "y"), BOOLEAN, init=(2,), ignore_nulls=True),
        WindowCall("c", "COUNT", (), BIGINT, Frame("groups", 1, None)),
    )
    assert spec_text(Over(("k",), (SortKey("t", descending=True),), calls)) == (
        "Over per (k) order by t desc nulls last a := SUM(x) filter f rows between 2 preceding and current row, "
        "b := LAG(x, y, 2) ignore nulls, c := COUNT(*) groups between 1 following and unbounded following"
    )

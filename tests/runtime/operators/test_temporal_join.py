"""The temporal join against one that applies every change by itself, with any cuts into runs and on several partitions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from flowql.compiler.physical.stores import with_stores
from flowql.compiler.plan.changes import Consolidate, TemporalJoin, TemporalJoinKind
from flowql.compiler.plan.codec import from_data, to_data
from flowql.compiler.plan.explain import spec_text
from flowql.compiler.plan.expr import Call, Column, Expr
from flowql.compiler.plan.logical import Node, Union
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING
from flowql.compiler.plan.verify import PlanInvariantError, verify_spec
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row, from_rows
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.temporal_join import TemporalJoinOperator
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from tests.incremental.check import inline_max
from tests.incremental.deployed import Deployed, sunk
from tests.incremental.tables import Table

LEFT = Schema((Field("__l", BIGINT, "key"), Field("a", INT), Field("x", DOUBLE)))
RIGHT = Schema((Field("__r", BIGINT, "key"), Field("b", INT), Field("y", STRING), Field("n", INT)))
OUT = Schema((*LEFT.key, *RIGHT.key, Field("x", DOUBLE), Field("y", STRING)))
LESS: Expr = Call(BOOLEAN, "lt", (Column(INT, "a"), Column(INT, "n")))
Change = tuple[str, int, Row]  # side, op, row


class Arrivals:
    """The oracle: rows of both sides, and what each left row met when it came."""

    def __init__(self, kind: str, *, keyed: bool, residual: bool) -> None:
        self._outer, self._keyed, self._residual = kind == "left", keyed, residual
        self._right: list[Row] = []
        self._met: list[tuple[Row, list[Row]]] = []

    def apply(self, side: str, op: int, row: Row) -> None:
        comes = op in (INSERT, UPDATE_AFTER)
        if side == "r":
            self._right.append(row) if comes else self._right.remove(row)
        elif comes:
            self._met.append((row, [r for r in self._right if self._joins(row, r)]))
        else:
            del self._met[next(i for i, (left, _) in enumerate(self._met) if str(left) == str(row))]

    def _joins(self, left: Row, right: Row) -> bool:
        a, b, n = left[1], right[1], right[3]
        return (not self._keyed or (a is not None and a == b)) and (
            not self._residual or (a is not None and n is not None and a < n)
        )

    def rows(self) -> Counter[str]:
        blank: list[Row] = [(None,) * 4] if self._outer else []
        return Counter(str((m[0], r[0], m[2], r[2])) for m, met in self._met for r in met or blank)


class Join:
    """The operator with a state of its own, and the rows that its changes sum up to."""

    def __init__(self, kind: TemporalJoinKind, *, keyed: bool, residual: bool, vector: bool | None = None) -> None:
        keys = (("a",), ("b",)) if keyed else ((), ())
        spec = TemporalJoin(kind, *keys, LESS if residual else None)
        inputs = [Operator(n, Union(), (), s, "retract") for n, s in (("l", LEFT), ("r", RIGHT))]
        *_, plan = with_stores([*inputs, Operator("join", spec, ("l", "r"), OUT, "retract")], "Q")
        self._join = TemporalJoinOperator(plan, inputs)
        self._manager, self._stores = StateManager(MemoryPhysical()), plan.stores
        self._state = self._manager.open_task("0_0", 0, plan.stores)
        self._vector = vector
        self.rows: Counter[str] = Counter()
        self.dead = 0

    def run(self, changes: Sequence[Change], times: Sequence[int] | None = None) -> Batch | None:
        times = times or [0] * len(changes)
        sides = [
            [(seq, op, row, times[seq]) for seq, (of, op, row) in enumerate(changes) if of == side] for side in "lr"
        ]
        batches = [
            from_rows(s, [c[2] for c in cs], [c[3] for c in cs], [c[1] for c in cs], [c[0] for c in cs]) if cs else None
            for s, cs in zip((LEFT, RIGHT), sides, strict=True)
        ]
        run = MicroBatchContext(state=self._state, vector=self._vector)
        out = self._join.process(batches, run)
        self.dead += len(run.dead_letters)
        with self._manager.epoch_lock:
            self._state.publish({})
        if out is not None:
            assert out.seq.tolist() == sorted(out.seq.tolist())
            for op, row in zip(out.op.tolist(), out.rows(), strict=True):
                self.rows[str(row)] += 1 if op in (INSERT, UPDATE_AFTER) else -1
                assert self.rows[str(row)] >= 0, "a row goes before it comes"
        self.rows += Counter()
        return out

    def reopen(self) -> None:
        self._manager.apply(self._manager.cut(), self._manager.applied_sequence + 1)
        self._manager.close_task("0_0")
        self._state = self._manager.open_task("0_0", 0, self._stores)

    def kept(self) -> list[int]:
        return [len(list(self._state.store(s.name).scan())) for s in self._stores]

    def touched(self) -> int:
        metrics = [s.metrics for s in self._state.stores.values()]  # type: ignore[attr-defined]
        return sum(m.reads + m.writes for m in metrics)


def changes_of(rng: random.Random, n: int) -> list[Change]:
    """Few join keys, so that rows meet; an update may change nothing, which is an arrival, too."""
    rows: dict[tuple[str, int], Row] = {}
    found: list[Change] = []
    for _ in range(n):
        side, key = rng.choice("lr"), rng.randint(0, 30)
        old = rows.pop((side, key), None)
        gone = old is not None and rng.random() < 0.4
        new = None
        if not gone:
            value = rng.choice((0.0, -0.0, float("nan"), None, 1.5)) if side == "l" else rng.choice(("p", "q"))
            more = () if side == "l" else (rng.choice((None, 1, 3, 5)),)
            new = old if old and rng.random() < 0.1 else (key, rng.choice((None, 1, 2, 3)), value, *more)
            rows[side, key] = new
        if old is not None:
            found.append((side, DELETE if new is None else UPDATE_BEFORE, old))
        if new is not None:
            found.append((side, INSERT if old is None else UPDATE_AFTER, new))
    return found


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_any_cut_into_runs_gives_what_single_changes_give(kind, keyed, residual, vector):
    for seed in range(6):
        rng = random.Random(seed)
        oracle = Arrivals(kind, keyed=keyed, residual=residual)
        join = Join(kind, keyed=keyed, residual=residual, vector=vector)
        changes = changes_of(rng, 300)
        at = 0
        with inline_max(rng.choice((1, 3, 16))):
            while at < len(changes):
                part = changes[at : at + rng.choice((1, 5, 40, 150))]
                at += len(part)
                for change in part:
                    oracle.apply(*change)
                join.run(part)
                assert join.rows == oracle.rows(), (seed, at)
                if rng.random() < 0.2:
                    join.reopen()


def join_of(left: Table, right: Table, kind: TemporalJoinKind, key: str, residual: Expr | None) -> Node:
    nodes = left.node(), right.node()
    keys = ((f"{left.name}_{key}",), (f"{right.name}_{key}",)) if key else ((), ())
    fields = [f for n in nodes for f in n.schema]
    schema = Schema((*(f for f in fields if f.role == "key"), *(f for f in fields if f.role != "key")))
    joined = Node(TemporalJoin(kind, *keys, residual), nodes, schema, "retract")
    return Node(Consolidate(), (joined,), schema, "retract")


@pytest.mark.turns("cases")
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(("kind", "key"), [("inner", "k"), ("left", "k"), ("left", "s"), ("inner", "id"), ("left", "")])
def test_deployed_on_partitions(kind, key, partitions):
    """Each side settles before the other one changes, so that the order of arrival is known; runs within it are cut anywhere."""
    for seed in range(4):
        rng = random.Random(seed)
        t, u = Table("t", rng), Table("u", rng)
        names = t.node().schema.names
        at = names.index(f"t_{key}") if key else 0
        n = names.index("t_n")
        residual: Expr | None = None
        if seed % 2:
            residual = Call(BOOLEAN, "lt", (Column(BIGINT, "t_n"), Column(BIGINT, "u_n")))
        deployed = Deployed(sunk(join_of(t, u, kind, key, residual)), partitions, rng)
        there: list[Row] = []
        met: dict[Any, list[Row]] = {}
        with inline_max(rng.choice((1, 3, 16))):
            for _ in range(12):
                source = rng.choice((t, u))
                changes = source.changes(rng.choice((1, 4, 20)))
                for op, row, _ in changes:
                    comes = op in (INSERT, UPDATE_AFTER)
                    if source is u:
                        there.append(row) if comes else there.remove(row)
                    elif not comes:
                        del met[row]
                    else:
                        equal = [r for r in there if not key or (row[at] is not None and row[at] == r[at])]
                        passing = [r for r in equal if None not in (row[n], r[n]) and row[n] < r[n]]
                        met[row] = passing if residual else equal
                deployed.feed(source.name, changes)
                deployed.settle()
                blank = [(None,) * len(names)] if kind == "left" else []
                expected = Counter(str((*row[1:], *r[1:])) for row, rs in met.items() for r in rs or blank)
                assert Counter(map(str, deployed.rows())) == expected, seed
                if rng.random() < 0.3:
                    deployed.reopen()
        assert not deployed.dead


def left(key: int, a: int | None = 1) -> Row:
    return key, a, 0.5


def right(key: int, n: int = 9) -> Row:
    return key, 1, "p", n


def test_later_changes_of_the_right_side_give_nothing():
    join = Join("left", keyed=True, residual=False)
    join.run([("r", INSERT, right(7)), ("l", INSERT, left(1)), ("l", INSERT, left(2, None))])
    assert sorted(join.rows) == ["(1, 7, 0.5, 'p')", "(2, None, 0.5, None)"]
    assert join.run([("r", DELETE, right(7))]) is None
    assert join.run([("r", INSERT, right(8))]) is None
    gone = join.run([("l", DELETE, left(1)), ("l", DELETE, left(2, None))])
    assert gone is not None
    assert gone.op.tolist() == [DELETE, DELETE]
    assert not join.rows
    assert join.kept()[2] == 0


def test_an_update_that_changes_nothing_is_an_arrival():
    join = Join("left", keyed=True, residual=False)
    join.run([("l", INSERT, left(1)), ("r", INSERT, right(7))])
    assert list(join.rows) == ["(1, None, 0.5, None)"]
    join.run([("l", UPDATE_BEFORE, left(1)), ("l", UPDATE_AFTER, left(1))])
    assert list(join.rows) == ["(1, 7, 0.5, 'p')"]


def test_of_changes_with_one_place_in_the_run_the_right_one_is_first():
    join = Join("inner", keyed=True, residual=False)
    spec = join._join.plan.spec
    assert isinstance(spec, TemporalJoin)
    batches = [from_rows(s, [r], [0], [INSERT], [3]) for s, r in ((LEFT, left(1)), (RIGHT, right(7)))]
    out = join._join.process(batches, MicroBatchContext(state=join._state))
    assert out is not None
    assert out.rows() == [(1, 7, 0.5, "p")]


def test_a_row_is_as_late_as_the_latest_of_its_pairs():
    join = Join("inner", keyed=True, residual=False)
    out = join.run([("r", INSERT, right(7)), ("l", INSERT, left(1))], [40, 20])
    assert out is not None
    assert out.rowtime.tolist() == [40]
    out = join.run([("l", DELETE, left(1))], [30])
    assert out is not None
    assert out.rowtime.tolist() == [40]


def test_rows_that_gave_nothing_are_kept_only_where_they_are_shown():
    inner, outer = (Join(k, keyed=True, residual=False) for k in ("inner", "left"))
    for join in (inner, outer):
        join.run([("l", INSERT, left(i)) for i in range(5)])
    assert (inner.kept()[2], outer.kept()[2]) == (0, 5)
    assert inner.run([("l", DELETE, left(3))]) is None
    with pytest.raises(AssertionError, match="removed that never came"):
        outer.run([("l", DELETE, left(9))])


def test_a_change_touches_as_much_of_a_large_side_as_of_a_small_one():
    found = []
    for rows in (100, 800):
        join = Join("left", keyed=True, residual=False)
        join.run([("l", INSERT, left(i)) for i in range(rows)])
        join.run([("r", INSERT, (i, 5, "p", 1)) for i in range(rows)])
        join.reopen()
        before = join.touched()
        for i in range(20):
            join.run([("r", DELETE, (i, 5, "p", 1)), ("l", DELETE, left(i)), ("l", INSERT, left(i))])
        found.append((join.touched() - before) / 60)
    assert found[0] <= 3, found
    assert found[1] <= found[0] * 1.1, found


def test_a_plan_with_one_is_data_and_says_what_it_does():
    spec = TemporalJoin("left", ("a",), ("b",), LESS)
    node = Node(spec, (Table("t", random.Random(0)).node(), Table("u", random.Random(0)).node()), OUT, "retract")
    assert from_data(to_data(node)) == node
    assert spec_text(spec) == "TemporalJoin left on a = b if (a < n)"
    verify_spec(spec, (LEFT, RIGHT), OUT, "join")
    with pytest.raises(PlanInvariantError, match="different types"):
        verify_spec(TemporalJoin("inner", ("x",), ("b",)), (LEFT, RIGHT), OUT, "join")

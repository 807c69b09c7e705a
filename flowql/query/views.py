"""The rows of a store as SQL: columns people know in place of keys, accumulators and buckets.

Each operator keeps what it needs (see its module in `flowql.runtime.operators`); a view knows how to show it. ROWTIME (BIGINT, ms) is
added wherever the store knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.logical import Aggregate, Join, Materialise, Sink
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Field, Schema
from flowql.compiler.plan.topology import Operator, Plan, QueryPlan, StoreSpec
from flowql.compiler.plan.types import BIGINT, STRING, SqlType
from flowql.runtime.operators.fold import BoundAggregate, Fold
from flowql.runtime.operators.keys import thaw
from flowql.runtime.state.rows import Key, Value

ROWTIME = "ROWTIME"
Column = Callable[[], Sequence[Any]]  # makes its values


@dataclass(frozen=True, slots=True)
class Shown:
    """Some rows of a view: their number, and how to compute each column of its schema. A column that is not requested costs nothing."""

    rows: int
    columns: dict[str, Column]


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store as a relation.

    schema: its columns. key: the parts of its physical keys that are columns, None for a part that is none.
    show: some physical rows, by keys and values.
    """

    spec: StoreSpec
    schema: Schema
    key: tuple[Field | None, ...]
    show: Callable[[Sequence[Key], Sequence[Value]], Shown]


@dataclass(frozen=True, slots=True)
class ViewMaker:
    """Makes the view of a store, which may compile aggregates. It can be sent to another process, as a view cannot.

    op: the operator that keeps it, with the schemas of its inputs; number: of the store among those of the operator.
    """

    op: Operator
    inputs: tuple[Schema, ...]
    number: int
    spec: StoreSpec

    def __call__(self) -> StoreView:
        return _view(self.op, self.inputs, self.number, self.spec)


def store_views(plan: Plan) -> Iterator[tuple[str, ViewMaker]]:
    """Every store of a plan by the name that people use."""
    for query in plan.queries:
        for sub in query.subtopologies:
            by_id = {op.id: op for op in sub.operators}
            for op in sub.operators:
                inputs = tuple(by_id[i].schema for i in op.inputs)
                for number, spec in enumerate(op.stores):
                    yield plain(spec.name, query.generation), ViewMaker(op, inputs, number, spec)


def sink_view(query: QueryPlan) -> ViewMaker | None:
    """The store in which a query keeps the rows of its result; None if it keeps none."""
    for sub in query.subtopologies:
        by_id = {op.id: op for op in sub.operators}
        for op in sub.operators:
            if isinstance(op.spec, Sink) and len(op.stores) == 1:
                return ViewMaker(op, tuple(by_id[i].schema for i in op.inputs), 0, op.stores[0])
    return None


def _view(op: Operator, inputs: Sequence[Schema], number: int, spec: StoreSpec) -> StoreView:
    match op.spec:
        case Aggregate(window=None):
            return _aggregate(op, inputs[0], spec)
        case Aggregate(window=window) if window is not None and window.kind == "session":
            return _sessions(op, inputs[0], spec)
        case Aggregate():
            return _windows(op, inputs[0], spec)
        case Join(shape="stream-stream") if number < 2:
            return _buckets(inputs[number], spec)
        case Join(shape="stream-stream"):
            return _opaque(spec)
        case Join() | Materialise():
            return _rows(spec, has_rowtime=True)
        case Sink() | Process():
            return _rows(spec, has_rowtime=False)
    return _opaque(spec)


def _rows(spec: StoreSpec, *, has_rowtime: bool) -> StoreView:
    """Key -> (value columns..., row time)."""
    keys, values = spec.key.fields, spec.value.fields
    names = [f.name for f in values] + ([ROWTIME] if has_rowtime else [])

    def show(found: Sequence[Key], rows: Sequence[Value]) -> Shown:
        return Shown(len(rows), _key_columns(keys, found) | _parts(names, rows))

    return StoreView(spec, _shown((*keys, *values), has_rowtime), keys, show)


def _aggregate(op: Operator, source: Schema, spec: StoreSpec) -> StoreView:
    """Key -> (accumulators..., row time). A group without a result yet is none."""
    fold, keys = Fold(op, source), op.schema.key

    def show(found: Sequence[Key], rows: Sequence[Value]) -> Shown:
        if any(n > len(fold.bound) + 1 for n in map(len, rows)):
            seen = [(k, row) for k, row in zip(found, rows, strict=True) if _has_result(fold, row)]
            found, rows = [k for k, _ in seen], [row for _, row in seen]
        columns = _key_columns(keys, found) | _results(fold, rows) | {ROWTIME: partial(_part, rows, -1)}
        return Shown(len(rows), columns)

    return StoreView(spec, _shown(op.schema.fields, True), keys, show)


def _has_result(fold: Fold, row: Value) -> bool:
    accs, unapplied = fold.parted(row)
    return fold.lives(accs) and not unapplied.has_no_result


def _windows(op: Operator, source: Schema, spec: StoreSpec) -> StoreView:
    """(key..., window start) -> (accumulators..., row time)."""
    assert isinstance(op.spec, Aggregate)
    assert op.spec.window is not None
    fold, keys, size = Fold(op, source), op.schema.key, op.spec.window.size_ms

    def show(found: Sequence[Key], rows: Sequence[Value]) -> Shown:
        columns = _key_columns(keys, found) | _results(fold, rows) | {ROWTIME: partial(_part, rows, -1)}
        columns |= {WINDOW_START: partial(_part, found, -1), WINDOW_END: lambda: [k[-1] + size for k in found]}  # type: ignore[operator]
        return Shown(len(rows), columns)

    return StoreView(spec, _shown(op.schema.fields, True), (*keys, op.schema.get(WINDOW_START)), show)


def _sessions(op: Operator, source: Schema, spec: StoreSpec) -> StoreView:
    """Key -> ((first, last, accumulators)...): one row per live session; its end is its row time."""
    fold, keys = Fold(op, source), op.schema.key

    def show(found: Sequence[Key], rows: Sequence[Value]) -> Shown:
        flat = [(k, s) for k, sessions in zip(found, rows, strict=True) for s in sessions]
        starts, ends, accumulators = ([s[i] for _, s in flat] for i in range(3))
        columns = _key_columns(keys, [k for k, _ in flat]) | _results(fold, accumulators)
        return Shown(
            len(flat), columns | {WINDOW_START: lambda: starts, WINDOW_END: lambda: ends, ROWTIME: lambda: ends}
        )

    return StoreView(spec, _shown(op.schema.fields, True), keys, show)


def _buckets(source: Schema, spec: StoreSpec) -> StoreView:
    """(key..., time bucket) -> ((row time, value columns...)...): one row per record that is remembered."""
    keys, values = spec.key.fields, spec.value.fields
    names = [ROWTIME, *(f.name for f in values)]

    def show(found: Sequence[Key], rows: Sequence[Value]) -> Shown:
        flat = [(k, r) for k, bucket in zip(found, rows, strict=True) for r in bucket]
        return Shown(len(flat), _key_columns(keys, [k for k, _ in flat]) | _parts(names, [r for _, r in flat]))

    return StoreView(spec, _shown((*keys, *values), True), (*keys, None), show)


def _opaque(spec: StoreSpec) -> StoreView:
    """An operator's own data (buckets, accumulators, waiting rows) as readable text."""
    fields = (Field("KEY", STRING), Field("VALUE", STRING))

    def show(found: Sequence[Key], rows: Sequence[Value]) -> Shown:
        return Shown(len(rows), {"KEY": lambda: list(map(repr, found)), "VALUE": lambda: list(map(repr, rows))})

    return StoreView(spec, Schema(fields), (None,), show)


def _shown(fields: Sequence[Field], has_rowtime: bool) -> Schema:
    if has_rowtime and all(f.name != ROWTIME for f in fields):
        fields = (*fields, Field(ROWTIME, BIGINT))
    return Schema(tuple(fields))


def _key_columns(fields: Sequence[Field], keys: Sequence[Key]) -> dict[str, Column]:
    return {f.name: partial(_thawed, keys, i, f.type) for i, f in enumerate(fields)}


def _thawed(keys: Sequence[Key], i: int, t: SqlType) -> Sequence[Any]:
    frozen = _part(keys, i)
    return [thaw(v, t) for v in frozen] if t.args or t.fields else frozen


def _results(fold: Fold, accumulators: Sequence[tuple[Any, ...]]) -> dict[str, Column]:
    """accumulators: one per aggregate, and whatever follows."""
    return {b.call.name: partial(_result, b, accumulators, i) for i, b in enumerate(fold.shown)}


def _result(aggregate: BoundAggregate, accumulators: Sequence[tuple[Any, ...]], i: int) -> Sequence[Any]:
    return list(map(aggregate.result, _part(accumulators, i)))


def _parts(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Column]:
    return {name: partial(_part, rows, i) for i, name in enumerate(names)}


def _part(rows: Sequence[Sequence[Any]], i: int) -> Sequence[Any]:
    """A column of rows. (`zip(*rows)` would make an iterator per row, four times as dear.)"""
    return list(map(itemgetter(i), rows))

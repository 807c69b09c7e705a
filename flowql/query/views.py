"""What the rows of a store look like as SQL: columns people know in place of keys, accumulators and buckets.

Each operator keeps what it needs (see its module in `runtime.operators`); a view knows how to show it. ROWTIME (BIGINT, ms) is
added wherever the store knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from compiler.plan.logical import Aggregate, Join, Sink
from compiler.plan.schema import WINDOW_END, WINDOW_START, Field, Schema
from compiler.plan.topology import Operator, Plan, StoreSpec
from compiler.plan.types import BIGINT, STRING
from runtime.operators.fold import Fold
from runtime.operators.keys import thaw
from runtime.state.store import Key, Value

ROWTIME = "ROWTIME"
Rows = Sequence[tuple[Key, Value]]
Columns = Mapping[str, Sequence[Any]]  # column -> its values


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store as a relation.

    schema: its columns. key: the parts of its physical keys that are columns, None for a part that is none.
    columns: values by column for some physical rows; every column of the schema is there.
    """

    spec: StoreSpec
    schema: Schema
    key: tuple[Field | None, ...]
    columns: Callable[[Rows], Columns]


def store_views(plan: Plan) -> Iterator[tuple[StoreSpec, Callable[[], StoreView]]]:
    """Every store of a plan and how to make its view (which may compile aggregates)."""
    for query in plan.queries:
        for sub in query.subtopologies:
            by_id = {op.id: op for op in sub.operators}
            for op in sub.operators:
                inputs = [by_id[i].schema for i in op.inputs]
                for number, spec in enumerate(op.stores):
                    yield spec, _maker(op, inputs, number, spec)


def _maker(op: Operator, inputs: Sequence[Schema], number: int, spec: StoreSpec) -> Callable[[], StoreView]:
    return lambda: _view(op, inputs, number, spec)


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
    return _rows(spec, has_rowtime=not isinstance(op.spec, Sink))


def _rows(spec: StoreSpec, *, has_rowtime: bool) -> StoreView:
    """Key -> (value columns..., row time)."""
    keys, values = spec.key.fields, spec.value.fields
    names = [f.name for f in values] + ([ROWTIME] if has_rowtime else [])

    def columns(rows: Rows) -> Columns:
        return _key_columns(keys, [k for k, _ in rows]) | _transpose(names, [v for _, v in rows])

    return StoreView(spec, _shown((*keys, *values), has_rowtime), keys, columns)


def _aggregate(op: Operator, source: Schema, spec: StoreSpec) -> StoreView:
    """Key -> (accumulators..., row time)."""
    fold, keys = Fold(op, source), op.schema.key

    def columns(rows: Rows) -> Columns:
        found = _key_columns(keys, [k for k, _ in rows])
        return found | _results(fold, [v[:-1] for _, v in rows]) | {ROWTIME: [v[-1] for _, v in rows]}

    return StoreView(spec, _shown(op.schema.fields, True), keys, columns)


def _windows(op: Operator, source: Schema, spec: StoreSpec) -> StoreView:
    """(key..., window start) -> (accumulators..., row time)."""
    assert isinstance(op.spec, Aggregate)
    assert op.spec.window is not None
    fold, keys, size = Fold(op, source), op.schema.key, op.spec.window.size_ms

    def columns(rows: Rows) -> Columns:
        starts: list[Any] = [k[-1] for k, _ in rows]
        found = _key_columns(keys, [k[:-1] for k, _ in rows])
        found |= {WINDOW_START: starts, WINDOW_END: [s + size for s in starts]}
        return found | _results(fold, [v[:-1] for _, v in rows]) | {ROWTIME: [v[-1] for _, v in rows]}

    return StoreView(spec, _shown(op.schema.fields, True), (*keys, op.schema.get(WINDOW_START)), columns)


def _sessions(op: Operator, source: Schema, spec: StoreSpec) -> StoreView:
    """Key -> ((first, last, accumulators)...): one row per live session; its end is its row time."""
    fold, keys = Fold(op, source), op.schema.key

    def columns(rows: Rows) -> Columns:
        flat = [(k, s) for k, sessions in rows for s in sessions]
        found = _key_columns(keys, [k for k, _ in flat])
        ends = [s[1] for _, s in flat]
        found |= {WINDOW_START: [s[0] for _, s in flat], WINDOW_END: ends, ROWTIME: ends}
        return found | _results(fold, [s[2] for _, s in flat])

    return StoreView(spec, _shown(op.schema.fields, True), keys, columns)


def _buckets(source: Schema, spec: StoreSpec) -> StoreView:
    """(key..., time bucket) -> ((row time, value columns...)...): one row per record that is remembered."""
    keys, values = spec.key.fields, spec.value.fields
    names = [ROWTIME, *(f.name for f in values)]

    def columns(rows: Rows) -> Columns:
        flat = [(k[:-1], r) for k, bucket in rows for r in bucket]
        return _key_columns(keys, [k for k, _ in flat]) | _transpose(names, [r for _, r in flat])

    return StoreView(spec, _shown((*keys, *values), True), (*keys, None), columns)


def _opaque(spec: StoreSpec) -> StoreView:
    """Rows that wait inside an operator, as text: they are its own affair, but can be looked at."""
    fields = (Field("KEY", STRING), Field("VALUE", STRING))

    def columns(rows: Rows) -> Columns:
        return {"KEY": [repr(k) for k, _ in rows], "VALUE": [repr(v) for _, v in rows]}

    return StoreView(spec, Schema(fields), (None,), columns)


def _shown(fields: Sequence[Field], has_rowtime: bool) -> Schema:
    if has_rowtime and all(f.name != ROWTIME for f in fields):
        fields = (*fields, Field(ROWTIME, BIGINT))
    return Schema(tuple(fields))


def _key_columns(fields: Sequence[Field], keys: Sequence[Key]) -> dict[str, Sequence[Any]]:
    columns = _transpose([f.name for f in fields], keys)
    for f in fields:
        if f.type.args or f.type.fields:  # frozen in keys
            columns[f.name] = [thaw(v, f.type) for v in columns[f.name]]
    return columns


def _results(fold: Fold, accumulators: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
    return _transpose([b.call.name for b in fold.bound], [fold.results(a) for a in accumulators])


def _transpose(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Columns of rows. (`zip(*rows)` would make an iterator per row, four times as dear.)"""
    return {name: list(map(itemgetter(i), rows)) for i, name in enumerate(names)}

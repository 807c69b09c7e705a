"""The stores of each operator. Only these operators keep state:

- Materialise: the latest row per key.
- Aggregate: one accumulator row per key (and window); it shows the aggregates' results.
- Join stream-table: the right rows. Join table-table: the rows of both sides.
- Join foreign-key: the left rows by foreign key and own key, the right rows by theirs.
- Join stream-stream: the rows of both sides, by key and time; outer with a grace period also those nothing matched yet.
- GroupAggregate: one row of accumulators per group; where values are needed, buckets of them per group and call; of sessions buckets of groups.
- EquiJoin: per side buckets of rows by join key. TemporalJoin: those of the right side, and left rows that may leave with what they gave.
- VersionJoin: left rows that wait, by time; buckets of right rows by join key; join keys by the time when versions may be forgotten.
- TopN: buckets of rows by partition, in their order.
- Over: the same; unless it reads whole partitions, also the texts of large ones in the opposite order, to find the rows before one.
- SetOperation: how often each row is on each side. Consolidate: the rows of each identity, unless rows only come.
- EmitClosed: rows that are not closed yet, by the time when they are.
- TemporalFilter: rows that will come, by the time when they do; rows that have come, by the time when they go.
- Where a watermark closes groups, partitions or rows of a join, these operators also keep the open ones by the time when they are closed.
- AsyncMap: rows that wait, by the order in which they came.
- Process: the stores of the topology.
- Sink of a table: its rows under the table's own name, for people to ask; a windowed table keeps all its windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from flowql.compiler.functions.change_aggregates import keeps_all_values
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.logical import Aggregate, Join, Materialise, Sink, Spec, Window
from flowql.compiler.plan.processors import Process, ProcessorStore
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Operator, StoreSpec
from flowql.compiler.plan.types import BIGINT, INT, STRING
from flowql.compiler.plan.watermarks import EmitClosed

DAY_MS = 86_400_000
_ENTRY = Field("__entry", STRING, "key")


def with_stores(operators: Sequence[Operator], query: str) -> tuple[Operator, ...]:
    """The operators of a sub-topology with their stores. The names of stores begin with `{query}-{operator}`."""
    schemas = {o.id: o.schema for o in operators}
    made = [(o, _stores_of(o, f"{query}-{o.id}", [schemas[i] for i in o.inputs])) for o in operators]
    return tuple(replace(o, stores=stores) if stores else o for o, stores in made)


def _stores_of(operator: Operator, name: str, inputs: Sequence[Schema]) -> tuple[StoreSpec, ...]:
    spec, schema = operator.spec, operator.schema
    if isinstance(spec, Materialise):
        return (_store(name, "table", schema),)
    if isinstance(spec, Aggregate):
        if spec.window is None:
            return (_store(name, "table", schema),)
        kind: Literal["window", "session"] = "session" if spec.window.kind == "session" else "window"
        return (_store(name, kind, schema, window_retention_ms(spec.window)),)
    if isinstance(spec, Join):
        return _join_stores(spec, name, inputs)
    if isinstance(spec, AsyncMap):
        return (_table(name, (Field("__row", BIGINT, "key"),), inputs[0].fields),)
    if isinstance(spec, Process):
        return tuple(_of_processors(s, name) for s in spec.stores)
    if isinstance(spec, Sink) and spec.kind == "table":
        return (_store(spec.name, "table", schema),)
    return _stores_of_changes(spec, name, inputs, schema)


def _stores_of_changes(
    spec: Spec | ExchangeSink | ExchangeSource, name: str, inputs: Sequence[Schema], schema: Schema
) -> tuple[StoreSpec, ...]:
    if isinstance(spec, GroupAggregate):
        if spec.sessions is not None:
            return _buckets(name, schema.key[:-2], schema.value)
        groups = _table(name, schema.key, schema.value)
        call = Field("__call", INT, "key")
        values = _buckets(f"{name}-values", (*schema.key, call), ()) if keeps_values(spec) else ()
        return (groups, *values, *(_open(name, schema.key) if spec.closing else ()))
    if isinstance(spec, EquiJoin):
        sides = zip(("left", "right"), (spec.left_keys, spec.right_keys), inputs, strict=True)
        kept = tuple(s for side, keys, i in sides for s in _buckets(f"{name}-{side}", _columns(i, keys), i.fields))
        return (*kept, *(_open(name, ()) if any(spec.closing) else ()))
    if isinstance(spec, TemporalJoin):
        left, right = inputs
        given = () if spec.appends else (_table(f"{name}-left", left.key, (*left.fields, *right.fields)),)
        return (*_buckets(f"{name}-right", _columns(right, spec.right_keys), right.fields), *given)
    if isinstance(spec, VersionJoin):
        left, right = inputs
        by, (time,) = _columns(right, spec.right_keys), _columns(right, (spec.right_time,))
        return (
            *_buckets(f"{name}-left", (), left.fields),
            *_buckets(f"{name}-right", by, right.fields),
            *_open(name, (*by, time)),
        )
    if isinstance(spec, TopN):
        by = _columns(inputs[0], spec.keys)
        return (*_buckets(name, by, inputs[0].fields), *(_open(name, by) if spec.closing else ()))
    if isinstance(spec, Over):
        by = _columns(inputs[0], spec.keys)
        back = _table(f"{name}-back", (*by, _ENTRY), (Field("__forward", STRING),))
        return (*_buckets(name, by, inputs[0].fields), back, *(_open(name, by) if spec.closing else ()))
    if isinstance(spec, SetOperation):
        counts = (Field("__left", BIGINT), Field("__right", BIGINT))
        return (_table(name, tuple(replace(f, role="key") for f in inputs[0].fields if f.role != "key"), counts),)
    if isinstance(spec, EmitClosed):
        return _buckets(name, (), schema.fields)
    if isinstance(spec, TemporalFilter):
        return (*_buckets(f"{name}-coming", (), schema.fields), *_buckets(f"{name}-present", (), schema.fields))
    if isinstance(spec, Consolidate) and not spec.appends:
        return (_table(name, schema.key, schema.value),)
    return ()


def _of_processors(store: ProcessorStore, name: str) -> StoreSpec:
    """The last part of the keys of windows and sessions is the time by which they are dropped."""
    kind: Literal["table", "window"] = "table" if store.kind == "key-value" else "window"
    return StoreSpec(f"{name}-{store.name}", kind, store.key, store.value, store.retention_ms)


def _open(name: str, what: Sequence[Field]) -> tuple[StoreSpec, StoreSpec]:
    """The store of entries that wait for a watermark (`flowql.runtime.operators.changes.closing`)."""
    return _buckets(f"{name}-open", (), what)


def keeps_values(spec: GroupAggregate) -> bool:
    """Whether an aggregation keeps the values of its groups, and not numbers alone."""
    return any(keeps_all_values(c, appends=spec.appends) for c in spec.calls)


def _buckets(name: str, key: Sequence[Field], value: Sequence[Field]) -> tuple[StoreSpec, StoreSpec]:
    """Heads by key, and entries of large buckets by key and entry (`flowql.runtime.operators.changes.buckets`)."""
    return _table(name, key, value), _table(f"{name}-entries", (*key, _ENTRY), value)


def _table(name: str, key: Sequence[Field], value: Sequence[Field]) -> StoreSpec:
    return StoreSpec(name, "table", Schema(tuple(key)), Schema(tuple(replace(f, role="value") for f in value)))


def _columns(schema: Schema, names: Sequence[str]) -> tuple[Field, ...]:
    by_name = {f.name: f for f in schema.fields}
    return tuple(replace(by_name[n], role="key") for n in names)


def _join_stores(spec: Join, name: str, inputs: Sequence[Schema]) -> tuple[StoreSpec, ...]:
    left, right = inputs
    if spec.shape == "stream-table":
        return (_store(f"{name}-right", "table", right),)
    if spec.shape == "stream-stream":
        kept = spec.before_ms + spec.after_ms + (DAY_MS if spec.grace_ms is None else spec.grace_ms)
        sides = (_store(f"{name}-left", "join", left, kept), _store(f"{name}-right", "join", right, kept))
        waits = spec.kind != "inner" and spec.grace_ms is not None
        return (*sides, _unmatched(f"{name}-unmatched", left)) if waits else sides
    if spec.foreign_key is not None:
        foreign = Field("__foreign_key", spec.foreign_key.type, "key")
        left = Schema((foreign, *left.fields))
    return (_store(f"{name}-left", "table", left), _store(f"{name}-right", "table", right))


def _unmatched(name: str, left: Schema) -> StoreSpec:
    """Rows that wait for a match, those of a side in the order in which they fall due: (side, row time, key...) -> rows."""
    due = (Field("__side", INT, "key"), Field("__time", BIGINT, "key"))
    return _store(name, "table", Schema((*due, *left.fields), left.window))


def window_retention_ms(window: Window) -> int:
    """How long a window is kept after its start (a session: after its last row)."""
    if window.retention_ms is not None:
        return window.retention_ms
    grace = max(0, DAY_MS - window.size_ms) if window.grace_ms is None else window.grace_ms
    return window.size_ms + grace


def _store(
    name: str, kind: Literal["table", "window", "session", "join"], schema: Schema, retention_ms: int | None = None
) -> StoreSpec:
    key = Schema(tuple(f for f in schema.fields if f.role in ("key", "window")), schema.window)
    if kind == "join":  # the bounds of a windowed source are part of what is joined on, not the time of the store
        key = Schema(tuple(replace(f, role="key") for f in key))
    value = Schema(tuple(f for f in schema.fields if f.role not in ("key", "window")))
    return StoreSpec(name, kind, key, value, retention_ms)

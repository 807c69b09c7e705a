"""A small world for operators: stores in dicts with a batch layer, and plans built by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import flowql.compiler.functions.builtin  # noqa: F401 - registers COUNT, SUM, ...
from flowql.compiler.functions.user import aggregate_in_plan
from flowql.compiler.plan.expr import Column, Expr
from flowql.compiler.plan.logical import (
    Aggregate,
    AggregateCall,
    ChangeKind,
    Join,
    JoinKind,
    JoinShape,
    Project,
    Spec,
    Window,
)
from flowql.compiler.plan.schema import WINDOW_FIELDS, Field, KeyWindow, Schema
from flowql.compiler.plan.topology import Operator, StoreSpec
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, STRING, SqlType
from flowql.compiler.plan.watermarks import Closing
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row, from_rows
from flowql.runtime.operators.base import MicroBatchContext, RuntimeOperator
from flowql.runtime.operators.factory import build
from flowql.runtime.state.columns.layer import Found, Generation
from flowql.runtime.state.columns.packed import PackedKeys
from flowql.runtime.state.columns.values import RowValues, ValueLayout
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value

OPS = {"+": INSERT, "<": UPDATE_BEFORE, ">": UPDATE_AFTER, "-": DELETE}
SIGNS = {v: k for k, v in OPS.items()}


def _order(key: Key) -> tuple[Any, ...]:
    return tuple((part is not None, part if part is not None else 0) for part in key)


class DictColumns:
    """The same rows, found and staged as whole batches do."""

    def __init__(self, store: DictStore, layout: ValueLayout) -> None:
        self._store, self._layout = store, layout
        self._codec = store_key_codec(store.spec)
        self._keys: list[Key] = []

    def find(self, keys: PackedKeys) -> Found:
        self._keys = self._codec.decode_many(keys.to_bytes())
        assert len(set(self._keys)) == len(self._keys)
        values = RowValues.of(self._layout, self._store.get_many(self._keys))
        return Found(Generation(self._layout), np.arange(len(keys)), values)

    def stage(self, found: Found, values: RowValues) -> None:
        self._store.put_many([self._keys[s] for s in found.slots.tolist()], values.to_list())


class DictStore:
    """A store whose batch layer is a dict over the published one."""

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec
        self.published: dict[Key, Value] = {}
        self.written: dict[Key, Value | None] = {}
        self.expired: int | None = None

    def get(self, key: Key) -> Value | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        found = []
        for k in keys:
            v = self.written[k] if k in self.written else self.published.get(k)
            gone = self.expired is not None and self.spec.kind in ("window", "join") and k[-1] < self.expired
            found.append(None if gone else v)
        return found

    def put(self, key: Key, value: Value | None) -> None:
        self.put_many([key], [value])

    def put_many(self, keys: Sequence[Key], values: Sequence[Value | None]) -> None:
        for k, v in zip(keys, values, strict=True):
            hash(k)
            self.written[k] = v

    def append(self, keys: PackedKeys, values: RowValues) -> None:
        self.put_many(store_key_codec(self.spec).decode_many(keys.to_bytes()), values.to_list())

    def columns(self, layout: ValueLayout) -> DictColumns:
        return DictColumns(self, layout)

    def scan(self, *, low: Key | None = None, high: Key | None = None) -> Iterator[tuple[Key, Value]]:
        keys = sorted({*self.published, *self.written}, key=_order)
        for k in keys:
            above = low is None or _order(k) >= _order(low)
            below = high is None or _order(k) < _order(high)
            value = self.get(k)
            if above and below and value is not None:
                yield k, value

    def scan_prefix(self, prefix: Key, *, after: Key = ()) -> Iterator[tuple[Key, Value]]:
        for k, v in self.scan(low=prefix):
            if k[: len(prefix)] != prefix:
                return
            if not after or _order(k) > _order(after):
                yield k, v

    def expire(self, before_ms: int) -> None:
        self.expired = before_ms

    def publish(self) -> None:
        for k, v in self.written.items():
            if v is None:
                self.published.pop(k, None)
            else:
                self.published[k] = v
        self.written = {}
        if self.expired is not None and self.spec.kind in ("window", "join"):
            self.published = {k: v for k, v in self.published.items() if k[-1] >= self.expired}


class DictState:
    """TaskState over `DictStore`s."""

    def __init__(self, specs: Sequence[StoreSpec]) -> None:
        self.stores = {s.name: DictStore(s) for s in specs}
        self.metadata: dict[str, Any] = {}
        self.closing: list[Callable[[], None]] = []

    def store(self, name: str) -> DictStore:
        return self.stores[name]

    def publish(self, metadata: dict[str, Any]) -> None:
        self.metadata = dict(metadata)
        for s in self.stores.values():
            s.publish()

    def discard(self) -> None:
        for s in self.stores.values():
            s.written, s.expired = {}, None


class Task:
    """One operator with its state: feed it runs, read what it gives as tuples (sign, row, rowtime)."""

    def __init__(
        self,
        plan: Operator,
        inputs: Sequence[Operator],
        *,
        coalesce: bool = False,
        vector: Any = None,
        state: Any = None,
    ) -> None:
        self.plan, self.sources = plan, inputs
        self.operator: RuntimeOperator = build(plan, inputs)
        self.state: Any = DictState(plan.stores) if state is None else state
        self.coalesce, self.vector = coalesce, vector
        self.late = 0
        self.dead: list[Any] = []

    def run(self, *batches: Batch | None) -> list[tuple[str, Row, int]]:
        out = self.run_batch(*batches)
        if out is None:
            return []
        seqs = out.seq.tolist()
        assert seqs == sorted(seqs)
        assert out.schema == self.plan.schema
        return [(SIGNS[o], r, t) for o, r, t in zip(out.op.tolist(), out.rows(), out.rowtime.tolist(), strict=True)]

    def run_batch(self, *batches: Batch | None) -> Batch | None:
        context = MicroBatchContext(
            state=self.state,
            stream_times=dict(self.state.metadata.get("times", {})),
            coalesce=self.coalesce,
            vector=self.vector,
        )
        out = self.operator.process(batches, context)
        self.state.publish({"times": context.stream_times})
        self.late += sum(context.late.values())
        self.dead += context.dead_letters
        return out

    def table(self) -> dict[Key, Value]:
        return self.state.stores[self.plan.stores[0].name].published


def schema(key: str, value: str, *, windowed: bool = False, window: KeyWindow | None = None) -> Schema:
    """`schema("k:BIGINT", "v:INT w:STRING")`."""
    fields = [_field(t, "key") for t in key.split()]
    if windowed:
        fields += list(WINDOW_FIELDS)
        window = window or KeyWindow("time", 1)
    return Schema(tuple(fields + [_field(t, "value") for t in value.split()]), window)


_TYPES: dict[str, SqlType] = {"BIGINT": BIGINT, "INT": INT, "STRING": STRING, "DOUBLE": DOUBLE}


def _field(text: str, role: Any) -> Field:
    name, _, type_name = text.partition(":")
    return Field(name, _TYPES[type_name or "BIGINT"], role)


def source(s: Schema, change: ChangeKind = "append", name: str = "source") -> Operator:
    return Operator(name, _ANY, (), s, change)


_ANY = Aggregate(())


def batch(s: Schema, *rows: Any, start: int = 0, seqs: Sequence[int] | None = None) -> Batch:
    """Rows as (sign, row, rowtime), or (row, rowtime) for an insert."""
    full = [r if len(r) == 3 else ("+", *r) for r in rows]
    return from_rows(
        s,
        [r for _, r, _ in full],
        [t for _, _, t in full],
        [OPS[o] for o, _, _ in full],
        list(seqs) if seqs is not None else list(range(start, start + len(full))),
    )


def column(s: Schema, name: str) -> Expr:
    f = s.get(name)
    assert f is not None
    return Column(f.type, name)


def calls(s: Schema, text: str) -> tuple[AggregateCall, ...]:
    """`calls(s, "COUNT SUM:v MAX:v")`: one call per word, named by its place."""
    made = []
    for i, word in enumerate(text.split()):
        function, _, arg = word.partition(":")
        args = (column(s, arg),) if arg else ()
        made.append(AggregateCall(f"a{i}", function, args, _result(function, args)))
    return tuple(made)


def _result(function: str, args: tuple[Expr, ...]) -> SqlType:
    known = aggregate_in_plan(function)
    if known is not None:
        return known.resolve(tuple(a.type for a in args), ()).result
    return args[0].type


def aggregate(
    s: Schema,
    text: str,
    *,
    window: Window | None = None,
    final: bool = False,
    input_change: ChangeKind = "append",
    change: ChangeKind = "upsert",
    closing: tuple[Closing, ...] = (),
) -> tuple[Operator, list[Operator]]:
    """The plan of an aggregation over a source of schema `s`."""
    made = calls(s, text)
    bounds = WINDOW_FIELDS if window is not None else ()
    values = tuple(Field(c.name, c.type) for c in made)
    kw = None
    if window is not None:
        kw = KeyWindow("session") if window.kind == "session" else KeyWindow("time", window.size_ms)
    out = Schema((*s.key, *bounds, *values), kw)
    kind = "table" if window is None else "session" if window.kind == "session" else "window"
    key = Schema((*s.key, *bounds))
    store = StoreSpec("agg", kind, key, Schema(values))  # type: ignore[arg-type]
    spec = Aggregate(made, window, final, null_groups=bool(closing), closing=closing)
    plan = Operator("agg", spec, ("source",), out, change, (store,))
    return plan, [source(s, input_change)]


def join(
    left: Schema,
    right: Schema,
    out: Schema,
    shape: JoinShape,
    kind: JoinKind,
    *,
    change: ChangeKind = "append",
    inputs: tuple[ChangeKind, ChangeKind] = ("append", "append"),
    foreign: Expr | None = None,
    **bounds: Any,
) -> tuple[Operator, list[Operator]]:
    """The plan of a join with the stores its shape asks for."""
    spec: Spec = Join(shape, kind, out.names[0], foreign_key=foreign, **bounds)
    time = Field("TIME", BIGINT, "key")
    side = Field("SIDE", BIGINT, "key")
    stores: tuple[StoreSpec, ...]
    if shape == "stream-stream":
        key = Schema(left.key)  # the store adds the time
        stores = (StoreSpec("left", "join", key, left), StoreSpec("right", "join", key, right))
        if kind != "inner" and bounds.get("grace_ms") is not None:
            stores += (StoreSpec("waiting", "table", Schema((side, time, *left.key)), left),)
    elif shape == "stream-table":
        stores = (StoreSpec("table", "table", Schema(right.key), Schema(right.value)),)
    else:
        head = right.key if shape == "foreign-key" else ()
        stores = (
            StoreSpec("left", "table", Schema((*head, *left.key)), Schema(left.value)),
            StoreSpec("right", "table", Schema(right.key), Schema(right.value)),
        )
    plan = Operator("join", spec, ("left", "right"), out, change, stores)
    return plan, [source(left, inputs[0], "left"), source(right, inputs[1], "right")]


def cuts(rows: Sequence[Any], points: Sequence[int]) -> list[Sequence[Any]]:
    """`rows` cut before each of `points`."""
    ends = [0, *sorted(p for p in set(points) if 0 < p < len(rows)), len(rows)]
    return [rows[a:b] for a, b in pairwise(ends)]


def project(s: Schema) -> Operator:
    """A plan this factory does not make."""
    return Operator("project", Project(()), ("source",), s, "append")

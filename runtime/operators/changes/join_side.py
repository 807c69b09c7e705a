"""One side of a join over changes: the rows under a join key, as they were and as the run makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from flowql.compiler.plan.expr import Expr, columns_of
from flowql.compiler.plan.logical import Filter
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Batch, Row, from_rows
from flowql.runtime.operators.base import NO_STATE, DeadLetter, MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket
from flowql.runtime.operators.changes.deltas import Change, net_changes, same_by
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import RowKey, frozen_picker, picker
from flowql.runtime.operators.projections import ProjectionChain
from flowql.runtime.state.rows import Key, Value


@dataclass(slots=True, eq=False)
class JoinRow:
    """A row of a side. was, now: it is there before and after the run. matches: rows of the other side it is joined with, where
    they are counted. dirty: what is stored of it changes.
    """

    row: Row
    time: int
    was: bool
    now: bool
    matches: int = 0
    matches_before: int = 0
    dirty: bool = False

    def match(self, n: int) -> None:
        self.matches += n
        self.dirty = True


class JoinSide:
    """How rows of one input are kept. Holds no data.

    State, in buckets by join key: the text of the row identity -> (row..., row time, matches if `counted`) for each of its rows;
    an identity has two while a change of it is on its way.
    """

    def __init__(self, schema: Schema, keys: Sequence[str], *, null_safe: bool, counted: bool) -> None:
        names = schema.names
        self._key = frozen_picker(schema, keys)
        self._identity = picker([names.index(f.name) for f in schema.key])
        self._text = order_text([SortPart(f.type) for f in schema.key])
        self._row_key = RowKey(schema)
        self._null_safe, self._counted = null_safe, counted
        self.same = same_by(f.type for f in schema)
        self._columns = len(names)
        self._width = self._columns + 1 + counted

    def changes(self, batch: Batch | None) -> tuple[dict[Key, list[Change]], list[Change]]:
        """Net changes by join key, and those of rows that are equal to none because a key is NULL."""
        by_key: dict[Key, list[Change]] = {}
        alone: list[Change] = []
        if batch is None or not len(batch):
            return by_key, alone
        for change in net_changes(batch, self._row_key, self.same):
            key = self._key(change[1])
            if not self._null_safe and None in key:
                alone.append(change)
            else:
                by_key.setdefault(key, []).append(change)
        return by_key, alone

    def entry(self, row: Row) -> str:
        """Under which entry of its bucket a row is."""
        return self._text(self._identity(row))

    def read(self, payload: Value) -> list[JoinRow]:
        n, width = self._columns, self._width
        return [
            JoinRow(payload[i : i + n], payload[i + n], True, True, m := payload[i + n + 1] if self._counted else 0, m)
            for i in range(0, len(payload), width)
        ]

    def rows(self, head: Value | None) -> list[tuple[Row, int]]:
        """(row, row time) of all rows of a bucket that is in its head; not for counted sides."""
        if head is None:
            return []
        n, width = self._columns, self._width
        return [(p[i : i + n], p[i + n]) for p in head[2::2] for i in range(0, len(p), width)]

    def without(self, payload: Value, row: Row) -> tuple[Value, int]:
        """(payload of an entry without the row, the row time it had)."""
        n, width = self._columns, self._width
        for i in range(0, len(payload), width):
            if self.same(payload[i : i + n], row):
                return payload[:i] + payload[i + width :], payload[i + n]
        raise AssertionError(f"a row was removed that never came: {row}")

    def write(self, rows: Sequence[JoinRow]) -> Value | None:
        parts: list[object] = []
        for r in rows:
            if r.now:
                parts += (*r.row, r.time, r.matches) if self._counted else (*r.row, r.time)
        return tuple(parts) or None


class KeyedSide:
    """The rows of a side under one join key, during one run."""

    def __init__(self, side: JoinSide, bucket: Bucket) -> None:
        self._side, self._bucket = side, bucket
        self._entries: dict[str, list[JoinRow]] = {}
        self._complete = not bucket.size
        self._growth = 0  # entries that come, less those that go

    @property
    def any_before(self) -> bool:
        return self._bucket.size > 0

    @property
    def any_after(self) -> bool:
        return self._bucket.size + self._growth > 0

    def apply(self, changes: Sequence[Change]) -> list[tuple[int, JoinRow, int]]:
        """Changes of the run: (sign, row, seq) of each. Nothing is written yet."""
        done: list[tuple[int, JoinRow, int]] = []
        touched: dict[str, bool] = {}
        for sign, row, time, seq in sorted(changes, key=lambda c: c[0]):
            entry = self._side.entry(row)
            rows = self._at(entry)
            touched.setdefault(entry, bool(rows))
            if sign > 0:
                changed = JoinRow(row, time, was=False, now=True, dirty=True)
                rows.append(changed)
            else:
                found = next((r for r in rows if r.now and self._side.same(r.row, row)), None)
                assert found is not None, f"a row of {self._bucket.prefix} was removed that never came: {row}"
                changed = found
                changed.now, changed.dirty = False, True
                changed.time = max(changed.time, time)
            done.append((sign, changed, seq))
        for entry, before in touched.items():
            self._growth += any(r.now for r in self._entries[entry]) - before
        return done

    def rows(self) -> Iterator[JoinRow]:
        """All rows, those that come and go with the run among them."""
        if not self._complete:
            self._complete = True
            for entry, payload in list(self._bucket.entries()):
                if entry not in self._entries:
                    self._entries[entry] = self._side.read(payload)
        return (r for rows in self._entries.values() for r in rows)

    def known_rows(self) -> Iterator[JoinRow]:
        """The rows that the micro-batch has read or changed."""
        return (r for rows in self._entries.values() for r in rows)

    def flush(self) -> None:
        for entry, rows in self._entries.items():
            if any(r.dirty for r in rows):
                self._bucket.put(entry, self._side.write(rows))

    def _at(self, entry: str) -> list[JoinRow]:
        rows = self._entries.get(entry)
        if rows is None:
            payload = self._bucket.get(entry)
            rows = self._entries[entry] = [] if payload is None else self._side.read(payload)
        return rows


class Pair(Protocol):
    """Two rows with equal keys. seq: of the change for which they are asked about; sign: whether it comes (1) or goes (-1)."""

    @property
    def left(self) -> JoinRow: ...
    @property
    def right(self) -> JoinRow: ...
    @property
    def seq(self) -> int: ...
    @property
    def sign(self) -> int: ...


P = TypeVar("P", bound=Pair)


class Residual:
    """Asks the residual of many pairs at once: one DuckDB statement where there are enough, else row by row."""

    def __init__(self, plan: Operator, condition: Expr, schemas: Sequence[Schema]) -> None:
        names = [n for s in schemas for n in s.names]
        fields = [f for s in schemas for f in s]
        wanted = [i for i, n in enumerate(names) if n in columns_of(condition)] or [0]
        self._pick: Callable[[Row], Row] = picker(wanted)
        self._schema = Schema(tuple(Field(fields[i].name, fields[i].type) for i in wanted))
        stage = Operator(plan.id, Filter(condition), (), self._schema, "append")
        self._chain = ProjectionChain([stage], self._schema, "append")

    def passing(self, candidates: Sequence[P], run: MicroBatchContext) -> Iterator[P]:
        """Candidates for which it is true, in their order."""
        if not candidates:
            return
        pairs = [(c.left.row, c.right.row) for c in candidates]
        times = [max(c.left.time, c.right.time) for c in candidates]
        # An error for a leaving pair was reported when the pair came.
        for i in self.true_of(pairs, times, [c.seq if c.sign > 0 else None for c in candidates], run):
            yield candidates[i]

    def true_of(
        self, pairs: Sequence[tuple[Row, Row]], times: Sequence[int], seqs: Sequence[int | None], run: MicroBatchContext
    ) -> list[int]:
        """The numbers of the pairs (left row, right row) for which it is true. seqs: where a failure is reported; None: nowhere."""
        n, pick = len(pairs), self._pick
        rows = [pick(left + right) for left, right in pairs]
        batch = from_rows(self._schema, rows, times, np.zeros(n, np.int8), np.arange(n))
        own = MicroBatchContext(state=NO_STATE, vector=run.vector)
        passed = self._chain.process([batch], own)
        told = [(seqs[d.seq], d) for d in own.dead_letters]
        run.dead_letters += [DeadLetter(seq, d.code, d.message) for seq, d in told if seq is not None]
        return [] if passed is None else list(passed.seq.tolist())

"""Rows in the order of a run: merging inputs by `seq`, collecting output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

from flowql.compiler.plan.schema import Schema
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Row, from_rows

KNOWN: Row = ()  # placeholder for a before-image that is not read


def interleave(inputs: Sequence[Batch | None], first: int = 0) -> Iterator[tuple[int, int]]:
    """(input, row) over all inputs in the order of the run; at equal `seq` input `first` goes before the others."""
    order = sorted(range(len(inputs)), key=lambda i: (i != first, i))
    streams = []
    for rank, i in enumerate(order):
        batch = inputs[i]
        if batch is not None:
            streams.append([(s, rank, row) for row, s in enumerate(batch.seq.tolist())])
    for _, rank, row in merge(*streams):
        yield order[rank], row


class Emitter:
    """Collects output rows of one run; times, ops and seqs are plain ints."""

    __slots__ = ("headers", "op", "rows", "rowtime", "schema", "seq")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.rows: list[Row] = []
        self.rowtime: list[int] = []
        self.op: list[int] = []
        self.seq: list[int] = []
        self.headers: list[Any] | None = None

    def add(self, row: Row, rowtime: int, op: int, seq: int, headers: Any = None) -> None:
        if headers is not None and self.headers is None:
            self.headers = [None] * len(self.rows)
        self.rows.append(row)
        self.rowtime.append(rowtime)
        self.op.append(op)
        self.seq.append(seq)
        if self.headers is not None:
            self.headers.append(headers)

    def change(
        self, before: Row | None, after: Row | None, rowtime: int, seq: int, *, retract: bool, headers: Any = None
    ) -> None:
        """One change of a keyed row, in the form the output's change kind asks for; nothing if both are None."""
        if after is None:
            if before is not None:
                self.add(before, rowtime, DELETE, seq, headers)
        elif before is None:
            self.add(after, rowtime, INSERT, seq, headers)
        else:
            if retract:
                self.add(before, rowtime, UPDATE_BEFORE, seq, headers)
            self.add(after, rowtime, UPDATE_AFTER, seq, headers)

    def batch(self) -> Batch | None:
        """The collected rows; None if there are none."""
        if not self.rows:
            return None
        return from_rows(self.schema, self.rows, self.rowtime, self.op, self.seq, self.headers)


class Changes:
    """Changes of keyed rows in one run: each at once, or one per key when coalescing (rule R13).

    Coalesced: the first before-image and the last after-image of each key, in the order of the last changes; a change
    that ends where it began gives nothing.
    """

    __slots__ = ("_emitter", "_pending", "coalesce", "retract")

    def __init__(self, schema: Schema, *, retract: bool, coalesce: bool) -> None:
        self._emitter = Emitter(schema)
        self._pending: dict[Any, tuple[Row | None, Row | None, int, int, Any]] = {}
        self.retract, self.coalesce = retract, coalesce

    def add(self, key: Any, before: Row | None, after: Row | None, rowtime: int, seq: int, headers: Any = None) -> None:
        if not self.coalesce:
            self._emitter.change(before, after, rowtime, seq, retract=self.retract, headers=headers)
            return
        pending = self._pending.pop(key, None)
        first = before if pending is None else pending[0]
        self._pending[key] = (first, after, rowtime, seq, headers)

    def batch(self) -> Batch | None:
        for before, after, rowtime, seq, headers in self._pending.values():
            if before != after:
                self._emitter.change(before, after, rowtime, seq, retract=self.retract, headers=headers)
        return self._emitter.batch()

"""Net changes of a run: what is added and removed, without what is added and removed again, as pairs where a row changes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ops, Row, from_rows
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket
from flowql.runtime.operators.keys import RowKey
from flowql.runtime.state.rows import Key, Value

COLUMN_ROWS = 64  # measured: below, the fixed costs of numpy and Arrow exceed those of a loop over rows
Signs = npt.NDArray[np.int64]
Change = tuple[int, Row, int, int]  # sign, row, row time, seq
Out = tuple[int, int, Row, int]  # seq, op, row, row time
Same = Callable[[Any, Any], bool]


def by_columns(batch: Batch, run: MicroBatchContext) -> bool:
    """Whether a run's batch goes through the vector kernel."""
    return run.vector if run.vector is not None else batch.is_columns and len(batch) >= COLUMN_ROWS


def signs(op: Ops) -> Signs:
    """+1 for rows that come, -1 for rows that go."""
    return np.where((op == INSERT) | (op == UPDATE_AFTER), 1, -1).astype(np.int64)


def same(a: Any, b: Any) -> bool:
    """Two rows, or values in them, are the same; unlike `==` a NaN is one, and 0.0 and -0.0 are two rows."""
    if a is b:
        return True
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and str(a) == str(b)) or (a != a and b != b)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    return type(a) is type(b) and bool(a == b)


def same_by(types: Iterable[SqlType]) -> Same:
    """`same` for rows of these types: without doubles it is `==`, which is much faster."""
    return same if any(map(_holds_double, types)) else operator.eq


def _holds_double(t: SqlType) -> bool:
    return t.kind is Kind.DOUBLE or any(map(_holds_double, (*t.args, *(f for _, f in t.fields))))


class Deltas:
    """Changes of rows by row identity, collected in any order.

    A row that is added as often as it is removed leaves nothing; of what is left of an identity a removed and an added row are an
    update. Identities stand in the order of their last changes.
    """

    __slots__ = ("_by_identity", "_identity", "_same")

    def __init__(self, identity: Callable[[Row], Key], equal: Same = same) -> None:
        self._identity, self._same = identity, equal
        self._by_identity: dict[Key, list[Change]] = {}

    def add(self, sign: int, row: Row, rowtime: int, seq: int) -> None:
        """sign: 1 or -1."""
        of = self._by_identity.setdefault(self._identity(row), [])
        for i, (other, known, _, _) in enumerate(of):
            if other != sign and self._same(known, row):
                del of[i]
                return
        of.append((sign, row, rowtime, seq))

    def __iter__(self) -> Iterator[tuple[Key, list[Change]]]:
        """(identity, its changes) for identities that changed."""
        return ((i, changes) for i, changes in self._by_identity.items() if changes)

    def rows(self) -> list[Out]:
        """As rows of an operator's output, removals of an identity before additions."""
        out: list[Out] = []
        for _, changes in self:
            seq = max(c[3] for c in changes)
            gone, come = [c for c in changes if c[0] < 0], [c for c in changes if c[0] > 0]
            for k in range(max(len(gone), len(come))):
                pair = k < len(gone) and k < len(come)
                if k < len(gone):
                    out.append((seq, UPDATE_BEFORE if pair else DELETE, gone[k][1], gone[k][2]))
                if k < len(come):
                    out.append((seq, UPDATE_AFTER if pair else INSERT, come[k][1], come[k][2]))
        return out

    def batch(self, schema: Schema) -> Batch | None:
        return out_batch(schema, self.rows())


def place_of(rows: Iterable[Any], row: Any, equal: Same, where: object) -> int:
    """The place of a row that goes. where: what keeps the rows, for a message."""
    at = next((i for i, r in enumerate(rows) if equal(r, row)), None)
    assert at is not None, f"{where}: a row was removed that never came: {row}"
    return at


def kept_rows(payload: Value | None, width: int) -> list[Row]:
    """Rows that stand one after the other in an entry of a bucket."""
    return [] if payload is None else [payload[i : i + width] for i in range(0, len(payload), width)]


def change_row(bucket: Bucket, entry: str, sign: int, row: Row, time: int, equal: Same, where: object) -> None:
    """Add or remove one row of an entry, with its time; an identity has two rows while a change of it is on its way."""
    rows = kept_rows(bucket.get(entry), len(row) + 1)
    if sign > 0:
        rows.append((*row, time))
    else:
        del rows[place_of((r[:-1] for r in rows), row, equal, where)]
    bucket.put(entry, tuple(v for r in rows for v in r) or None)


def out_batch(schema: Schema, out: list[Out]) -> Batch | None:
    """Rows in the order of `seq`; None of none."""
    if not out:
        return None
    out.sort(key=operator.itemgetter(0))
    seqs, ops, rows, times = zip(*out, strict=True)
    return from_rows(schema, list(rows), times, ops, seqs)


def deltas_of(batch: Batch, identity: RowKey, equal: Same = same) -> Deltas:
    """The net changes of a batch."""
    found = Deltas(identity.of, equal)
    for change in _changes_of(batch):
        found.add(*change)
    return found


def net_changes(batch: Batch, identity: RowKey, equal: Same) -> Iterable[Change]:
    """The same in any order of identities. Rows that all come, or all go, are net changes as they are."""
    if len(batch) and (
        np.isin(batch.op, (INSERT, UPDATE_AFTER)).all() or np.isin(batch.op, (DELETE, UPDATE_BEFORE)).all()
    ):
        return _changes_of(batch)
    return (change for _, changes in deltas_of(batch, identity, equal) for change in changes)


def _changes_of(batch: Batch) -> Iterable[Change]:
    return zip(signs(batch.op).tolist(), batch.rows(), batch.rowtime.tolist(), batch.seq.tolist(), strict=True)

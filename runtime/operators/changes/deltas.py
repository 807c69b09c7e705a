"""Net changes of a run: what is added and removed, without what is added and removed again, as pairs where a row changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.plan.schema import Schema
from runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ops, Row, from_rows
from runtime.operators.base import RunContext
from runtime.operators.keys import RowKey
from runtime.state.store import Key

COLUMN_ROWS = 64  # measured: below, the fixed costs of numpy and Arrow exceed those of a loop over rows
Signs = npt.NDArray[np.int64]
Change = tuple[int, Row, int, int]  # sign, row, row time, seq


def by_columns(batch: Batch, run: RunContext) -> bool:
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


class Deltas:
    """Changes of rows by row identity, collected in any order.

    A row that is added as often as it is removed leaves nothing; of what is left of an identity a removed and an added row are an
    update. Identities stand in the order of their last changes.
    """

    __slots__ = ("_by_identity", "_identity")

    def __init__(self, identity: Callable[[Row], Key]) -> None:
        self._identity = identity
        self._by_identity: dict[Key, list[Change]] = {}

    def add(self, sign: int, row: Row, rowtime: int, seq: int) -> None:
        """sign: 1 or -1."""
        of = self._by_identity.setdefault(self._identity(row), [])
        for i, (other, known, _, _) in enumerate(of):
            if other != sign and same(known, row):
                del of[i]
                return
        of.append((sign, row, rowtime, seq))

    def __iter__(self) -> Iterator[tuple[Key, list[Change]]]:
        """(identity, its changes) for identities that changed."""
        return ((i, changes) for i, changes in self._by_identity.items() if changes)

    def batch(self, schema: Schema) -> Batch | None:
        """As rows of an operator's output, removals of an identity before additions."""
        out: list[tuple[int, int, int, Row, int]] = []  # seq, place, op, row, rowtime
        for _, changes in self:
            seq = max(c[3] for c in changes)
            gone, come = [c for c in changes if c[0] < 0], [c for c in changes if c[0] > 0]
            for k in range(max(len(gone), len(come))):
                pair = k < len(gone) and k < len(come)
                if k < len(gone):
                    out.append((seq, len(out), UPDATE_BEFORE if pair else DELETE, gone[k][1], gone[k][2]))
                if k < len(come):
                    out.append((seq, len(out), UPDATE_AFTER if pair else INSERT, come[k][1], come[k][2]))
        if not out:
            return None
        out.sort(key=lambda o: o[:2])
        return from_rows(schema, [o[3] for o in out], [o[4] for o in out], [o[2] for o in out], [o[0] for o in out])


def deltas_of(batch: Batch, identity: RowKey) -> Deltas:
    """The net changes of a batch."""
    found = Deltas(identity.of)
    columns = (signs(batch.op).tolist(), batch.rows(), batch.rowtime.tolist(), batch.seq.tolist())
    for sign, row, rowtime, seq in zip(*columns, strict=True):
        found.add(sign, row, rowtime, seq)
    return found

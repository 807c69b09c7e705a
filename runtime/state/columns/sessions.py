"""The live sessions of a key as columns: the newest one by its parts, older ones as the bytes of the stored value.

A value is ((first time, last time, accumulators)...), rising. Nearly all rows fall into the newest session of their key or begin the next one. So
older sessions are only appended to, without decoding their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.runtime.state.columns.values import (
    ColumnKind,
    Fixed,
    ValueColumn,
    ValueLayout,
    Varying,
    constant,
    in_array,
    part_blocks,
)
from flowql.runtime.state.rows import Value
from flowql.runtime.state.values import (
    SHORT_EXT_MAX,
    TAGGED_MARK,
    array_header,
    decode_value,
    encode_value,
    tuple_lead,
)

BOUNDS = 2  # columns of the newest session behind its accumulators: first time, last time
OLDER = 3  # and behind these: how many older sessions there are, the last time of the newest of them, their bytes
_SESSION_PARTS = 3


@dataclass(frozen=True)
class SessionLayout(ValueLayout):
    """parts: those of the accumulators, then `BOUNDS` and `OLDER`."""

    @staticmethod
    def of(accumulators: Sequence[tuple[ColumnKind, ...]]) -> SessionLayout:
        return SessionLayout((*accumulators, *(("integer",),) * (BOUNDS + OLDER - 1), ("object",)))

    def columns_of(self, values: Sequence[Value]) -> list[ValueColumn] | None:
        flat = []
        for *older, (first, last, accumulators) in values:
            ended = older[-1][1] if older else 0
            flat.append((*accumulators, first, last, len(older), ended, _packed(older)))
        return super().columns_of(flat)

    def tuples(self, columns: Sequence[ValueColumn]) -> list[Value]:
        flat = super().tuples(columns)
        return [(*_unpacked(count, older), (first, last, tuple(accs))) for *accs, first, last, count, _, older in flat]

    def encode(self, columns: Sequence[ValueColumn]) -> pa.Array | None:
        """None for a session that columns do not write: it is too long, or has an object without columns."""
        n = len(columns[0].data)
        newest = self._session(columns[:-OLDER], n)
        if newest is None:
            return None
        counts, _, older = (c.data for c in columns[-OLDER:])
        if not counts.any():
            return in_array([constant(TAGGED_MARK + array_header(1), n), *newest], n)
        leads = [
            TAGGED_MARK + array_header(count + 1) + (some or b"")
            for count, some in zip(counts.tolist(), older, strict=True)
        ]
        return in_array([_varying(leads), *newest], n)

    def sessions(self, columns: Sequence[ValueColumn]) -> list[bytes]:
        """The bytes of the newest session of each value, as they stand among older ones."""
        n = len(columns[0].data)
        blocks = self._session(columns[:-OLDER], n)
        if blocks is not None:
            return list(in_array(blocks, n).to_pylist())
        without = [*columns[:-OLDER], *self.empty(n)[-OLDER:]]
        return [_packed(value) or b"" for value in self.tuples(without)]

    def _session(self, columns: Sequence[ValueColumn], n: int) -> list[Fixed | Varying] | None:
        """columns: accumulators and bounds. None for a session that columns do not write."""
        accs = self.part_columns([*columns, *self.empty(0)[-OLDER:]])[: -BOUNDS - OLDER]
        if not n:
            return None
        kept: list[Fixed | Varying] = [constant(array_header(len(accs)), n)]
        for part in accs:
            blocks = part_blocks(part, n, tagged=True)
            if blocks is None:
                return None
            kept += blocks
        bounds: list[Fixed | Varying] = [constant(array_header(_SESSION_PARTS), n)]
        for column in columns[-BOUNDS:]:
            bounds += part_blocks((column,), n, tagged=True) or []
        inner = _with_length(kept, n)
        return None if inner is None else _with_length([*bounds, *inner], n)


def _with_length(blocks: list[Fixed | Varying], n: int) -> list[Fixed | Varying] | None:
    """Blocks of an array as a tuple; None where one is too long."""
    lengths = np.sum([b[1] if isinstance(b, tuple) else np.full(n, b.shape[1]) for b in blocks], axis=0)
    if lengths.max() > SHORT_EXT_MAX:
        return None
    lead = np.array(constant(tuple_lead(0), n))
    lead[:, 1] = lengths
    return [lead, *blocks]


def _varying(values: Sequence[bytes]) -> Varying:
    return np.frombuffer(b"".join(values), np.uint8), np.fromiter(map(len, values), np.int64, len(values))


def _packed(sessions: Sequence[Any]) -> bytes | None:
    """Sessions as they stand in the bytes of a value; None for no session."""
    if not sessions:
        return None
    return encode_value(tuple(sessions))[len(TAGGED_MARK) + len(array_header(len(sessions))) :]


def _unpacked(count: int, packed: bytes | None) -> Value:
    return () if packed is None else decode_value(TAGGED_MARK + array_header(count) + packed)

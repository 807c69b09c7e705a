"""Finds the rows of a micro-batch that can be among the first of their partition, by rows or by columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.changes import TopN
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import Batch, Ints, Row
from flowql.runtime.operators.changes.placement import whole_numbers
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.rows import Key

_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
_TEXTS = frozenset({Kind.STRING, Kind.BYTES})  # in the order of their bytes, which is that of code points


@dataclass(slots=True)
class Come:
    """Rows of a partition with their times. time, seq: the highest of all rows of the run in it."""

    rows: list[tuple[Row, int]] = field(default_factory=list)
    time: int = 0
    seq: int = 0


class FirstRows:
    """Holds no data."""

    def __init__(self, schema: Schema, spec: TopN) -> None:
        names = schema.names
        self._keys = [names.index(k) for k in spec.keys]
        self._order = [(names.index(k.column), k.descending) for k in spec.order]
        self._order += [(names.index(f.name), False) for f in schema.key]
        self._sortable = all(schema.fields[i].type.kind in _WHOLE | _TEXTS for i, _ in self._order)
        self._count = spec.offset + (spec.limit or 0)

    def of(self, batch: Batch, key_of: Callable[[Row], Key], *, vector: bool) -> dict[Key, Come]:
        """By partition. With `vector` rows behind as many of the run as are wanted are left out, where columns can tell."""
        columns = self._columns(batch) if vector else None
        found: dict[Key, Come] = {}
        if columns is None:
            for row, time, seq in zip(batch.rows(), batch.rowtime.tolist(), batch.seq.tolist(), strict=True):
                come = found.setdefault(key_of(row), Come([], time, seq))
                come.rows.append((row, time))
                come.time, come.seq = max(come.time, time), max(come.seq, seq)
            return found
        codes, count, chosen = columns
        times, seqs = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.int64)
        np.maximum.at(times, codes, batch.rowtime)
        np.maximum.at(seqs, codes, batch.seq)
        kept, groups = batch.take(chosen), codes[chosen]
        facts = (kept.rows(), kept.rowtime.tolist(), times[groups].tolist(), seqs[groups].tolist())
        for row, time, latest, seq in zip(*facts, strict=True):
            come = found.setdefault(key_of(row), Come([], latest, seq))
            come.rows.append((row, time))
            come.time, come.seq = max(come.time, latest), max(come.seq, seq)
        return found

    def _columns(self, batch: Batch) -> tuple[Ints, int, Ints] | None:
        """(partition of each row, how many partitions, the rows that are chosen); None where columns cannot be ordered as entries are."""
        source = batch.arrow()
        if not self._sortable or any(source.column(i).null_count for i, _ in self._order):
            return None
        try:
            codes, count = (
                group_codes([source.column(i) for i in self._keys], sort=False)
                if self._keys
                else (np.zeros(len(batch), np.int64), 1)
            )
        except pa.ArrowNotImplementedError:  # Arrow groups no structs or maps: `_rows` chooses
            return None
        ranks = [_ranks(source.column(i), descending=descending) for i, descending in self._order]
        order = np.lexsort((*reversed(ranks), codes))
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]]))
        place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        return codes, count, np.sort(order[place < self._count])


def _ranks(column: pa.Array, *, descending: bool) -> Ints:
    """Numbers in the order of a column without NULLs."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        values = np.asarray(pc.rank(column, "ascending", tiebreaker="dense").to_numpy(zero_copy_only=False), np.int64)
    else:
        values = whole_numbers(column)
    return np.invert(values) if descending else values  # ~v falls where v rises, and has no overflow

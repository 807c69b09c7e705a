"""The rows that a run takes of each input: as batches of operators, and where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from flowql.runtime.batch import Batch, Ints, Origins, concat, concat_origins
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.base import DeadLetter, OriginsOf
from flowql.runtime.task.dead_letters import LocatedDeadLetter
from flowql.runtime.task.front import EMPTY, Front
from flowql.runtime.task.input_buffer import OF_SOURCE, Staged


@dataclass(frozen=True, slots=True)
class Taken:
    """The first rows of an input's front as part of a run; `seq` are their places in it. cursor: where an input's rows begin.

    staged: what they were decoded from, if they were.
    """

    input: str
    operator: str
    cursor: int
    seq: Ints
    front: Front = EMPTY
    staged: Staged | None = None

    @property
    def end(self) -> int:
        return self.cursor + len(self.seq)

    @property
    def records(self) -> RawBatch | None:
        """The source records that the rows are; None for rows that came through a repartition."""
        return None if self.staged is None or OF_SOURCE in self.input else self.staged.raw

    def origins(self) -> Origins:
        """Of its rows, in their order."""
        raw = self.records
        if raw is None or self.staged is None:
            batches = self.front.taken(len(self.seq))
            return concat_origins([b.origins or Origins.unknown(len(b)) for b in batches])
        rows = self.staged.origin[self.cursor : self.end]
        return Origins((raw.tp,), np.zeros(len(rows), np.int16), raw.records.column(0).to_numpy()[rows])


def origins_of(taken: Sequence[Taken]) -> OriginsOf | None:
    """The source records of rows of a run, by `seq`. What it takes to know is done when it is first asked for."""
    if not taken:
        return None

    @cache
    def of_all() -> Origins:
        every = concat_origins([t.origins() for t in taken])
        return every if len(taken) == 1 else every.take(np.argsort(np.concatenate([t.seq for t in taken])))

    return lambda seq: of_all().take(seq)


def by_operator(taken: list[Taken]) -> dict[str, Batch]:
    """The batch of each source operator; lanes of one repartition are merged in the order of the run."""
    lanes: dict[str, list[Taken]] = {}
    for t in taken:
        if len(t.seq):
            lanes.setdefault(t.operator, []).append(t)
    return {operator: _merged(parts) for operator, parts in lanes.items()}


def _merged(lanes: Sequence[Taken]) -> Batch:
    batches = [b for lane in lanes for b in lane.front.taken(len(lane.seq))]
    rows = concat(batches[0].schema, batches)
    if len(lanes) == 1:
        return rows.numbered(lanes[0].seq)
    seq = np.concatenate([lane.seq for lane in lanes])
    order = np.full(int(seq.max()) + 1, -1)
    order[seq] = np.arange(len(seq))
    order = order[order >= 0]  # other operators have rows in between
    return rows.take(order).numbered(seq[order])


def locate(letter: DeadLetter, taken: Sequence[Taken], origins: OriginsOf | None) -> LocatedDeadLetter:
    """The raw record behind a failed row. origins: those of `taken`."""
    for t in taken:
        i = int(np.searchsorted(t.seq, letter.seq))
        if i < len(t.seq) and t.seq[i] == letter.seq:
            if t.records is None or t.staged is None:
                origin = origins(t.seq[i : i + 1]).of(0) if origins is not None else None
                return LocatedDeadLetter(letter, None, origin=origin)
            return LocatedDeadLetter(letter, t.records, int(t.staged.origin[t.cursor + i]))
    msg = f"row {letter.seq} belongs to no input of the run"
    raise AssertionError(msg)

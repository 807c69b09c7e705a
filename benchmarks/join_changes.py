"""The cost of a join over relations that change: processor time per row in and out, row and vector kernel.

    python -m benchmarks.join_changes [--rows 60000] [--batch 4000]

Bids with their auctions, and what becomes of the pairs as bids, then auctions are updated; one task with state in memory, batches
of columns, as a repartition gives them. kind `left` shows bids without an auction, too. Only ratios within one run are meaningful.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flowql.compiler.physical.stores import stores_of
from flowql.compiler.plan.changes import EquiJoin, EquiJoinKind
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, STRING
from flowql.runtime.batch import INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.equi_join import EquiJoinOperator
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical

BID = Schema(
    (
        Field("__bid", BIGINT, "key"),
        Field("auction", BIGINT),
        Field("bidder", BIGINT),
        Field("price", BIGINT),
        Field("channel", STRING),
    )
)
AUCTION = Schema(
    (Field("__auction", BIGINT, "key"), Field("id", BIGINT), Field("seller", BIGINT), Field("title", STRING))
)
BIDS_PER_AUCTION = 4
Inputs = list[Batch | None]


@dataclass(frozen=True, slots=True)
class Phase:
    """Batches of one sort of change. rows: in all of them."""

    name: str
    rows: int
    batches: list[Inputs]


def bids(ids: Ints, version: int, auctions: int) -> pa.RecordBatch:
    mixed = ids * 2_654_435_761 % (1 << 32)
    columns = [
        pa.array(ids),
        pa.array(mixed % auctions),
        pa.array(mixed % 1_000),
        pa.array(ids * 7 + version),
        pa.array(np.char.add("channel-", (ids % 20).astype(str)).astype(object), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(BID.names))


def auctions(ids: Ints, version: int) -> pa.RecordBatch:
    titles = np.char.add(f"title {version} of ", ids.astype(str)).astype(object)
    columns = [pa.array(ids), pa.array(ids), pa.array(ids % 97), pa.array(titles, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=list(AUCTION.names))


def phases(rows: int, size: int) -> Iterator[Phase]:
    """Auctions, bids for half as many again, so that some have none; then updates of both."""
    known = rows // BIDS_PER_AUCTION
    chunks = [np.arange(s, min(s + size, rows)) for s in range(0, rows, size)]
    few = [c for s in range(0, known, size) if len(c := np.arange(s, min(s + size, known)))]
    wide = known * 3 // 2
    yield Phase("auctions come", known, [[None, _inserts(AUCTION, auctions(c, 0))] for c in few])
    yield Phase("bids come", rows, [[_inserts(BID, bids(c, 0, wide)), None] for c in chunks])
    yield Phase(
        "both come", rows + known, [[_inserts(BID, b), _inserts(AUCTION, a)] for a, b in _together(rows, size, wide)]
    )
    halves = [h for c in chunks for h in np.array_split(c, 2)]
    yield Phase("bids change", 2 * rows, [[_updates(BID, bids(c, 0, wide), bids(c, 1, wide)), None] for c in halves])
    few = [h for c in few for h in np.array_split(c, 2)]
    yield Phase("auctions change", 2 * known, [[None, _updates(AUCTION, auctions(c, 0), auctions(c, 1))] for c in few])


def _together(rows: int, size: int, wide: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """New auctions and the bids for them in the same batch."""
    for start in range(0, rows // BIDS_PER_AUCTION, size // BIDS_PER_AUCTION):
        ids = np.arange(start, min(start + size // BIDS_PER_AUCTION, rows // BIDS_PER_AUCTION)) + wide
        of_bids = np.arange(BIDS_PER_AUCTION * start, BIDS_PER_AUCTION * (start + len(ids))) + rows
        found = bids(of_bids, 0, wide)
        yield auctions(ids, 0), found.set_column(1, "auction", pa.array(np.repeat(ids, BIDS_PER_AUCTION)))


def _inserts(schema: Schema, rows: pa.RecordBatch) -> Batch:
    return _batch(schema, rows, np.full(rows.num_rows, INSERT, np.int8))


def _updates(schema: Schema, old: pa.RecordBatch, new: pa.RecordBatch) -> Batch:
    """Old and new row of each, one after the other."""
    n = old.num_rows
    both = pa.Table.from_batches([old, new]).combine_chunks().to_batches()[0]
    order = np.arange(2 * n).reshape(2, n).T.reshape(-1)
    return _batch(schema, both.take(pa.array(order)), np.tile(np.array([UPDATE_BEFORE, UPDATE_AFTER], np.int8), n))


def _batch(schema: Schema, rows: pa.RecordBatch, op: np.ndarray) -> Batch:
    n = rows.num_rows
    return Batch(schema, arrow=rows, rowtime=np.arange(n), op=op, seq=np.arange(n))


def operator(kind: EquiJoinKind) -> EquiJoinOperator:
    spec = EquiJoin(kind, ("auction",), ("id",))
    schema = Schema((*BID.key, *AUCTION.key, *BID.value, *AUCTION.value))
    inputs = [Operator(n, spec, (), s, "retract") for n, s in (("bids", BID), ("auctions", AUCTION))]
    stores = stores_of(spec, "Q-join", (BID, AUCTION), schema)
    return EquiJoinOperator(Operator("join", spec, ("bids", "auctions"), schema, "retract", stores), inputs)


def measure(kind: EquiJoinKind, rows: int, size: int, *, vector: bool) -> None:
    """Prints microseconds per row in and out for each phase."""
    join = operator(kind)
    manager = StateManager(MemoryPhysical())
    state = manager.open_task("0_0", 0, join.plan.stores)
    for phase in phases(rows, size):
        given, start = 0, time.thread_time()
        for batches in phase.batches:
            out = join.process(batches, MicroBatchContext(state=state, vector=vector))
            with manager.epoch_lock:
                state.publish({})
            if out is not None:
                given += out.arrow().num_rows  # whatever follows works on columns
        spent = time.thread_time() - start
        manager.apply(manager.cut(), manager.applied_sequence + 1)
        each = spent * 1e6 / (phase.rows + given)
        kernel = "vector" if vector else "row"
        print(f"{kind:6} {kernel:6} {phase.name:16} {phase.rows:8} in {given:8} out {each:7.2f} us per row in and out")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.join_changes", description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000, help="bids")
    parser.add_argument("--batch", type=int, default=4_000, help="rows of a batch")
    options = parser.parse_args()
    kinds: tuple[EquiJoinKind, ...] = ("inner", "left")
    for kind in kinds:
        for vector in (False, True):
            measure(kind, options.rows, options.batch, vector=vector)


if __name__ == "__main__":
    main()

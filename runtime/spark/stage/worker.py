"""The code that runs in Spark's Python workers, as functions from Arrow batches to Arrow batches. Imports no pyspark.

Instances are pickled with a query, so they hold plain data; what is built from it is kept per worker process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.functions.shipping import register_shipped
from flowql.runtime.log.base import RawBatch
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.spark.shapes import DONE, ENVELOPE, LOG, WAKE, Row, read_rows, to_ipc, write_rows
from flowql.runtime.spark.stage import layout as layouts
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.pages import LoadedPages, PagedRows
from flowql.runtime.spark.stage.program import TOTALS, GroupState, StageProgram, entries_of
from flowql.runtime.state.computed_history import ROWS, ROWS_PER_PAGE, TASK, changelog_rows, encode_page
from flowql.runtime.state.values import decode_metadata, encode_metadata


@lru_cache(maxsize=64)
def layout_from(text: str) -> Layout:
    """The layout a stage was made with; built once per process, which knows its schemas and functions from then on."""
    layout = layouts.loads(text)
    KNOWN.remember(layout.schemas)
    register_shipped(layout.functions)
    return layout


@lru_cache(maxsize=512)
def program_from(text: str, subtopology: int, partition: int) -> StageProgram:
    """The compiled program of a task; built once per process. Only one run of it is under way at a time."""
    return StageProgram(layout_from(text), subtopology, partition)


# Outputs of one run of records that was cut anywhere are ordered by where it began: so many rows fit behind one offset.
SEQ_BITS = 20


def begun(layout: str, records: Iterable[RawBatch]) -> Iterator[pa.RecordBatch]:
    """Records of the log as ENVELOPE rows, one for each sub-topology that reads them; of free ones what they make of it.

    Rows that such a query filters out are never sent to Java and back. Tasks that may have results without input get a wake-up row.
    """
    yield from write_rows(Row(sub, WAKE, "", p, 0, 0, b"") for sub, p in layout_from(layout).starting)
    for raw in records:
        yield from write_rows(_begun(layout, raw))


def _begun(text: str, raw: RawBatch) -> Iterator[Row]:
    layout, (topic, partition) = layout_from(text), raw.tp
    data = to_ipc(raw.records)
    for sub in layout.readers.get(topic, ()):
        row = Row(sub, LOG, topic, partition, 0, raw.first_offset, data, raw.next_offset)
        if sub in layout.free:
            program = program_from(text, sub, partition)
            for made in program.run(empty_state(program), [row]):
                yield made._replace(seq=(row.seq << SEQ_BITS) + made.seq)
        else:
            yield row


@dataclass(frozen=True)
class GroupedStage:
    """The tasks of one level in a bounded run: every row of a group is in the same Spark partition. Other rows pass.

    hands_over: the state that a task ends with is emitted as well (`stage.handing`).
    """

    layout: str
    level: int
    hands_over: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = sorted({sub for sub, _ in layout_from(self.layout).groups(self.level)})
        waiting: list[Row] = []
        for batch in batches:
            mine, others = split(batch, here)
            yield from others
            waiting += mine
        for (sub, partition), rows in grouped(waiting):
            program = program_from(self.layout, sub, partition)
            state = empty_state(program)
            yield from write_rows(program.run(state, rows, cut_between=True))
            if self.hands_over:
                yield from write_rows(kept_rows(program, state))


def empty_state(program: StageProgram) -> GroupState:
    """State of a task that begins."""
    return GroupState(str(program.id), program.id.partition, program.stores, PagedRows(LoadedPages({})))


def grouped(rows: Iterable[Row]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Rows by task."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.target, row.partition), []).append(row)
    return sorted(found.items())


def split(batch: pa.RecordBatch, targets: list[int]) -> tuple[list[Row], list[pa.RecordBatch]]:
    """Rows for these sub-topologies, and the others as they are."""
    mask = pc.is_in(batch.column(0), pa.array(targets, pa.int32()))
    mine = batch.filter(mask)
    if mine.num_rows == batch.num_rows:
        return list(read_rows(batch)), []
    others = batch.filter(pc.invert(mask))
    # Spark marks columns as never null where it knows: all batches of an answer need one schema.
    return list(read_rows(mine)), [pa.RecordBatch.from_arrays(others.columns, schema=ENVELOPE)]


# The state that a task of a bounded run ends with, as rows that an instance of the runtime loads. Imports no pyspark.


def kept_rows(program: StageProgram, state: GroupState) -> Iterator[Row]:
    """Everything a task keeps, published before, as rows of kinds `rows` and `task`. Ends the use of the state here."""
    _, metadata = state.cut()
    sub, partition = program.id.subtopology, program.id.partition
    pages: dict[str, tuple[list[bytes], list[bytes]]] = {}
    seq = 0
    for store, key, value in changelog_rows(entries_of(program.stores, partition), state.rows.rows()):
        keys, values = pages.setdefault(store, ([], []))
        keys.append(key)
        values.append(value)
        if len(keys) == ROWS_PER_PAGE:
            yield Row(DONE, ROWS, store, partition, sub, seq, encode_page(keys, values))
            del pages[store]
            seq += 1
    for store, (keys, values) in pages.items():
        yield Row(DONE, ROWS, store, partition, sub, seq, encode_page(keys, values))
        seq += 1
    kept = {k: v for k, v in decode_metadata(metadata).items() if k != TOTALS}
    yield Row(DONE, TASK, program.id.query, partition, sub, seq, encode_metadata(kept))

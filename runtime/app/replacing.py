"""The writes of a generation's swap: from a staging topic and the topic itself to `Replacement`s of the commit.

A stream's partition loses its old records and gets all of the new generation (`Producer.append_from`: nothing of them is read here). A
table's gets the difference between the two folds (last record of each key): rows that changed, and tombstones for keys that vanished, so
that a reader that folds the topic, from its beginning or from any offset, gets the new table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.commit.replacement import MovedRecords, Replacement
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, Log, TopicPartition

READ_ROWS, READ_BYTES = 50_000, 64 << 20
_ROW = "row"


def begun_anew(log: Log, staging: TopicPartition, tp: TopicPartition, begin: int) -> Replacement:
    """Puts the records of `staging` into a partition that begins at an offset, in a topic that gets other partitions."""
    return Replacement(tp, begin, False, source=_source(log, staging), is_new=True)


def replacement(log: Log, staging: TopicPartition, tp: TopicPartition, *, difference: bool) -> Replacement:
    """The replacement of the records of `tp` by those of `staging`. The commit fails if either partition is written before it."""
    end = log.admin().end_offset(tp)
    if not difference:
        return Replacement(tp, end, True, source=_source(log, staging))
    changed = _difference(fold(log, tp, end), fold(log, staging, None))
    return Replacement(tp, end, False, tuple(b for b in changed.to_batches() if b.num_rows))


def _source(log: Log, staging: TopicPartition) -> MovedRecords:
    return MovedRecords(staging, log.admin().begin_offset(staging), log.admin().end_offset(staging))


def records_of(log: Log, topic: str) -> list[pa.RecordBatch]:
    """All of a topic of one partition, as a commit takes them."""
    return [b.select(PRODUCE_SCHEMA.names) for b in _records(log, TopicPartition(topic, 0), None)]


def difference(
    log: Log, staging: TopicPartition, staged_end: int, tp: TopicPartition, end: int
) -> list[pa.RecordBatch]:
    """The changes from a table, read up to `end`, to the one in `staging`, read up to `staged_end`."""
    changed = _difference(fold(log, tp, end), fold(log, staging, staged_end))
    return [b for b in changed.to_batches() if b.num_rows]


def fold(log: Log, tp: TopicPartition, end: int | None) -> pa.Table:
    """The last record of each key below `end`, tombstones left out, in the order of the log. PRODUCE_SCHEMA."""
    batches = list(_records(log, tp, end))
    if not batches:
        return PRODUCE_SCHEMA.empty_table()
    table = pa.Table.from_batches(batches).select(PRODUCE_SCHEMA.names)
    table = table.filter(pc.is_valid(table["key"]))
    index = pa.table({"key": table["key"], _ROW: np.arange(table.num_rows)})
    last = index.group_by("key").aggregate([(_ROW, "max")])[f"{_ROW}_max"].combine_chunks()
    table = table.take(last.take(pc.sort_indices(last)))
    return table.filter(pc.is_valid(table["value"]))


def _difference(old: pa.Table, new: pa.Table) -> pa.Table:
    """The records that turn a table into another: tombstones first, then rows that are new or have another value or time."""
    was, now = _indexed(old, "old"), _indexed(new, "new")
    both = now.join(was, "key", join_type="full outer")
    old_rows, new_rows = both["old"].combine_chunks(), both["new"].combine_chunks()
    vanished = old.take(np.sort(old_rows.filter(pc.is_null(new_rows)).to_numpy()))
    kept = pc.is_valid(new_rows)
    old_rows, new_rows = old_rows.filter(kept), new_rows.filter(kept)
    same = pa.scalar(True)
    for column in ("value", "timestamp"):
        before, after = old[column].take(old_rows), new[column].take(new_rows)
        same = pc.and_(same, pc.fill_null(pc.equal(before, after), False))
    changed = new.take(np.sort(new_rows.filter(pc.invert(same)).to_numpy()))
    return pa.concat_tables([_tombstones(vanished), changed]).combine_chunks()


def _indexed(table: pa.Table, name: str) -> pa.Table:
    return pa.table({"key": table["key"].combine_chunks(), name: np.arange(table.num_rows)})


def _tombstones(table: pa.Table) -> pa.Table:
    n = table.num_rows
    return pa.table(
        [table["timestamp"], table["key"], pa.nulls(n, pa.binary()), pa.nulls(n, HEADERS_TYPE)], schema=PRODUCE_SCHEMA
    )


def _records(log: Log, tp: TopicPartition, end: int | None) -> Iterator[pa.RecordBatch]:
    """All records of a partition, up to an offset."""
    reader = log.reader(tp)
    while (batch := reader.read(READ_ROWS, READ_BYTES)) is not None:
        if end is not None and batch.next_offset > end:
            kept = int(np.searchsorted(batch.records.column(0).to_numpy(), end))
            if kept:
                yield batch.records.slice(0, kept)
            return
        yield batch.records

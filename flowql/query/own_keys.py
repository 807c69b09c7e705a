"""Rows of large local tables by key, found by the bytes of their keys: other records are not decoded, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.query.relations import TopicRelation, decode, is_passed, records
from flowql.query.room import Room
from flowql.runtime.batch import DELETE
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.operators.encode import KeyEncoder
from flowql.runtime.state.rows import Key


def rows_of(relation: TopicRelation, keys: Sequence[Key], room: Room) -> list[pa.RecordBatch]:
    """The rows of a local table with these keys. Only FlowQL writes such a table, so equal keys have equal bytes. Raises OffsetOutOfRange if compaction may
    have dropped records meanwhile because of ones beyond the spans, and QueryError if the rows need too much memory.
    """
    source = relation.source
    assert source.is_own_table, "others may write one key in several ways"
    wanted, decoder = _encoded(source, keys), Decoder(scan_of(source), source.schema)
    found, before = list[pa.RecordBatch](), room.taken
    for tp, (begin, end) in sorted(relation.spans.items()):
        last = dict[int, pa.RecordBatch]()
        for raw in records(relation.log, tp, begin, end):
            room.check()
            newer = _last_of(raw, wanted)
            room.take(max(0, _size(newer.values()) - _size(last[n] for n in newer if n in last)))
            last |= newer
        if last:
            batch = decode(decoder, _together(tp, list(last.values()), end))
            if len(kept := np.flatnonzero(np.asarray(batch.op) != DELETE)):
                found.append(relation.shown(batch.take(kept)))
        if is_passed(relation.log, tp, begin, end):
            room.back(before)  # the rows are read again
            raise OffsetOutOfRange(f"{tp} was compacted while it was read")
    return found


def _encoded(source: SourceDef, keys: Sequence[Key]) -> pa.Array:
    """The keys as the table's writers encode them."""
    names, encoder = source.schema.names, KeyEncoder(source.schema, source.key_format)
    places = [names.index(f.name) for f in source.schema.key]
    found = []
    for key in keys:
        by_place = dict(zip(places, key, strict=True))
        found.append(encoder.encode(tuple(by_place.get(i) for i in range(len(names)))))
    return pa.array(found, pa.binary())


def _last_of(raw: RawBatch, wanted: pa.Array) -> dict[int, pa.RecordBatch]:
    """The last record of each wanted key, by the number of the key."""
    number = pc.fill_null(pc.index_in(raw.records.column("key"), value_set=wanted), -1).to_numpy()
    backwards = np.flatnonzero(number >= 0)[::-1]
    if not len(backwards):
        return {}
    numbers, first = np.unique(number[backwards], return_index=True)
    taken = raw.records.take(pa.array(backwards[first]))  # a copy, which does not hold the other records
    return {int(n): taken.slice(i, 1) for i, n in enumerate(numbers)}


def _size(found: Iterable[pa.RecordBatch]) -> int:
    return sum(b.nbytes for b in found)


def _together(tp: TopicPartition, found: Sequence[pa.RecordBatch], end: int) -> RawBatch:
    table = pa.Table.from_batches(found).combine_chunks()
    return RawBatch(tp, table.to_batches()[0], end, table.nbytes)

"""DEAD_LETTERS as interactive queries see it: a row per record, with all queries that could not use it.

The topic has a letter per record and query: each is written by the task that met the record, in its own commit, and it is never rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.query.errors import TOO_LARGE, QueryError
from flowql.query.relations import TopicRelation, arrow_schema
from flowql.query.room import Room, too_large
from flowql.query.statement import Condition
from flowql.runtime.task.dead_letters import SCHEMA as WRITTEN

PARTS_MAX = 64  # before the last division by four
_OF_RECORD = ("TOPIC", "PARTITION", "OFFSET")
_OF_FAILURE = ("QUERY", "GENERATION", "CODE", "MESSAGE")
_FOLDING = frozenset(name.casefold() for name in (*_OF_RECORD, *_OF_FAILURE))
_TYPES = {f.name: f.type for f in WRITTEN}
SCHEMA = Schema(
    (
        *(Field(name, _TYPES[name]) for name in _OF_RECORD),
        Field("ROWTIME", t.TIMESTAMP),
        Field("QUERIES", t.array(t.STRING)),
        Field("CODE", t.STRING),
        Field("MESSAGE", t.STRING),
        Field("KEY", t.BYTES),
        Field("VALUE", t.BYTES),
        Field("FAILURES", t.array(t.struct(*((name, _TYPES[name]) for name in _OF_FAILURE)))),
    )
)


@dataclass(frozen=True, slots=True)
class LettersRelation:
    """Letters by record, in the order of their first unless there is no room for all of them; one that names no record stands alone.

    QUERIES: by name. CODE, MESSAGE: of the first of them. KEY, VALUE, ROWTIME: as the last that met it read them, as a repair may
    have changed them in between. FAILURES: a struct per query, generation and reason.
    """

    letters: TopicRelation
    name: str
    schema: Schema = SCHEMA

    def again(self) -> LettersRelation:
        return replace(self, letters=self.letters.again())

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """Letters are in memory while they are folded; their records, which may be large, only if they are asked for. Where there is no
        room for all of them, those of a part of the records are folded at a time, and the topic is read again for each part.
        """
        del conditions
        needed = None if columns is None else columns | _FOLDING
        parts, before = 1, room.taken
        while (letters := self._letters(0, parts, needed, room)) is None:
            parts *= 4
        for part in range(parts):
            if part > 0:
                letters = None
                room.back(before)
                letters = self._letters(part, parts, needed, room)
            if letters is None:
                raise too_large(room.bytes_max)
            if letters:
                yield from folded(pa.Table.from_batches(letters)).to_batches()

    def _letters(self, part: int, parts: int, needed: frozenset[str] | None, room: Room) -> list[pa.RecordBatch] | None:
        """Those of one part of the records; None if they are too many. QueryError if they are too many in whatever part."""
        before, kept = room.taken, []
        try:
            for batch in self.letters.batches((), needed, room):
                mine = batch if parts == 1 else batch.filter(pa.array(_part_of(batch, parts) == part))
                room.take(mine.nbytes)
                kept.append(mine)
        except QueryError as error:
            room.back(before)
            if error.code != TOO_LARGE or parts > PARTS_MAX:
                raise
            return None
        return kept


def _part_of(letters: pa.RecordBatch, parts: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The part that each letter's record is in. One that names no record stands alone, wherever it is."""
    offsets = letters.column("OFFSET")
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = offsets.fill_null(0).to_numpy() % parts
    alone = np.flatnonzero(pc.is_null(offsets).to_numpy(zero_copy_only=False))
    for row, text in zip(alone.tolist(), letters.column("MESSAGE").take(pa.array(alone)).to_pylist(), strict=True):
        found[row] = crc32((text or "").encode()) % parts
    return found


def folded(letters: pa.Table) -> pa.Table:
    """Rows of SCHEMA from those of the topic, in its order."""
    letters = letters.filter(pc.is_valid(letters["QUERY"]))  # a marker of retention is no letter
    rows = letters.num_rows
    if not rows:
        return arrow_schema(SCHEMA).empty_table()
    letters = letters.combine_chunks().append_column("at", pa.array(np.arange(rows)))
    letters = letters.sort_by([(name, "ascending") for name in (*_OF_RECORD, *_OF_FAILURE, "at")])
    new_record = _changes(letters, _OF_RECORD) | pc.is_null(letters["OFFSET"]).to_numpy()
    new_reason = new_record | _changes(letters, _OF_FAILURE)  # the same reason twice is given once
    new_query = new_record | _changes(letters, ("QUERY",))
    record, at, firsts = np.cumsum(new_record) - 1, letters["at"].to_numpy(), np.flatnonzero(new_record)
    lists = {
        "QUERIES": _lists(letters["QUERY"].combine_chunks().filter(pa.array(new_query)), record[new_query]),
        "FAILURES": _lists(_structs(letters.filter(pa.array(new_reason))), record[new_reason]),
    }
    latest = np.lexsort((at, record))[np.append(firsts[1:], rows) - 1]
    first, last = letters.take(pa.array(firsts)), letters.take(pa.array(latest))
    of_last = ("ROWTIME", "KEY", "VALUE")
    sources = [lists if f.name in lists else last if f.name in of_last else first for f in SCHEMA]
    columns = [source[f.name] for source, f in zip(sources, SCHEMA, strict=True)]
    table = pa.Table.from_arrays(columns, schema=arrow_schema(SCHEMA))
    return table.take(pa.array(np.argsort(np.minimum.reduceat(at, firsts), kind="stable")))


def _changes(letters: pa.Table, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a row differs from the one before it."""
    found = np.zeros(letters.num_rows, np.bool_)
    found[:1] = True
    for name in names:
        codes = pc.dictionary_encode(letters[name], null_encoding="encode").combine_chunks().indices.to_numpy()
        found[1:] |= codes[1:] != codes[:-1]
    return found


def _lists(values: pa.Array, record: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.ListArray:
    """record: of each value, rising without a gap from 0."""
    starts = np.flatnonzero(np.append(True, record[1:] != record[:-1]))
    return pa.ListArray.from_arrays(pa.array(np.append(starts, len(values)), pa.int32()), values)


def _structs(letters: pa.Table) -> pa.StructArray:
    fields = arrow_schema(SCHEMA).field("FAILURES").type.value_type
    arrays = [letters[f.name].combine_chunks().cast(f.type) for f in fields]
    return pa.StructArray.from_arrays(arrays, fields=list(fields))

"""Which records of a table in a topic are the last of their keys, found by DuckDB for tables of many records.

A first reading gives DuckDB the keys and offsets, which it can put on disk. A second one passes on the records whose offsets are left, so a query needs
eight bytes of memory for each key of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import Kind, arrow_type
from flowql.query.interactive import InteractiveQuery
from flowql.query.relations import Relation, TopicRelation, offsets_of
from flowql.runtime.batch import DELETE, Batch
from flowql.runtime.state.values import encode_value

RECORDS_MAX = 50_000  # of which the keys are held in memory
_KEYS_AT_ONCE = 1_000_000  # DuckDB groups as many in 32 MB
_OFFSET_BYTES = 8
_ENCODED = (Kind.DOUBLE, Kind.ARRAY, Kind.MAP, Kind.STRUCT)  # DuckDB has another equality of these
_FIXED = 3  # columns in front of those of keys
KEYS = "!keys"


def is_large(relation: Relation) -> bool:
    """Whether the last records of a table are still to be found, and its keys would need much memory."""
    if type(relation) is not TopicRelation or relation.source.kind != "table" or relation.last is not None:
        return False
    offsets = sum(end - begin for begin, end in relation.spans.values())
    return offsets > RECORDS_MAX and relation.source.schema.get("ROWOFFSET") is None


def with_last_records(query: InteractiveQuery, relation: TopicRelation) -> TopicRelation:
    """The relation with its last records known. The table `KEYS` of the query's connection has its `numbered_keys`, and is dropped. Raises QueryError."""
    connection = query.connection
    names = ", ".join(f"k{n}" for n in range(len(keys_schema(relation)) - _FIXED))
    ((records,),) = connection.execute(f"SELECT count(*) FROM {quoted(KEYS)}").fetchall()
    parts = 1 + records // _KEYS_AT_ONCE
    tps = sorted(relation.spans)
    found: list[list[np.ndarray]] = [[] for _ in tps]
    for part in range(parts):
        query.check()
        text = (
            f"SELECT place, max(number) AS number FROM {quoted(KEYS)} WHERE hash({names}) % {parts} = {part} "
            f"GROUP BY place, {names} HAVING NOT arg_max(removed, number)"
        )
        last = connection.sql(text).to_arrow_table()
        query.room.take(_OFFSET_BYTES * last.num_rows)
        places, offsets = last.column(0).to_numpy(), last.column(1).to_numpy()
        for place, of_partition in enumerate(found):
            of_partition.append(offsets[places == place])
    connection.execute(f"DROP TABLE {quoted(KEYS)}").fetchall()
    return replace(relation, last={tp: np.sort(np.concatenate(of)) for tp, of in zip(tps, found, strict=True)})


def keys_schema(relation: TopicRelation) -> pa.Schema:
    """The columns of `numbered_keys`."""
    keys = _keys_of(relation)
    fixed = [pa.field("place", pa.int32()), pa.field("number", pa.int64()), pa.field("removed", pa.bool_())]
    types = [pa.binary()] if _is_encoded(keys) else [arrow_type(f.type) for f in keys]
    return pa.schema([*fixed, *(pa.field(f"k{n}", t) for n, t in enumerate(types))])


def numbered_keys(relation: TopicRelation, columns: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    """The partition, the offset, whether it is a removal, and the key of each record.

    columns: those that are read later. Records are decoded as they will be then, so that the same ones cannot be read.
    """
    places = {tp: n for n, tp in enumerate(sorted(relation.spans))}
    keys, schema = _keys_of(relation), keys_schema(relation)
    for tp, batch in relation.numbered(columns):
        place = pa.array(np.full(len(batch), places[tp], np.int32))
        removed = pa.array(np.asarray(batch.op) == DELETE)
        arrays = [place, pa.array(offsets_of(batch)), removed, *_columns(batch, keys)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys_of(relation: TopicRelation) -> tuple[Field, ...]:
    return tuple(f for f in relation.source.schema if f.role in ("key", "window"))


def _is_encoded(keys: tuple[Field, ...]) -> bool:
    return not keys or any(f.type.kind in _ENCODED for f in keys)


def _columns(batch: Batch, keys: tuple[Field, ...]) -> list[pa.Array]:
    if not _is_encoded(keys):
        arrow, names = batch.arrow(), batch.schema.names
        return [arrow.column(names.index(f.name)) for f in keys]
    values = zip(*(batch.column(f.name) for f in keys), strict=True) if keys else [()] * len(batch)
    return [pa.array([encode_value(key) for key in values], pa.binary())]

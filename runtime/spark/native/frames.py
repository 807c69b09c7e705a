"""Frames: Spark rows of one relation. Columns are those of its schema by name, then the row time in ms.

Types are those of `flowql.compiler.plan.types.spark_type`; Arrow columns cross to Python workers through `from_spark`, `to_spark`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType, arrow_type, spark_type

# Columns a frame of a topic may have beside those of its relation: the place of a row, the headers of its record, and whether that has no value.
PARTITION, OFFSET, HEADERS, NO_VALUE = "__partition", "__offset", "__headers", "__no_value"
# Columns beside the rows of a topic. places: of a batch. whole, headers: of a stream without state, and of one whose state keeps
# all its rows. table: of records of a table, of which the last of each key counts.
Beside = Literal["nothing", "headers", "whole", "table", "places"]
BESIDE: Mapping[Beside, tuple[str, ...]] = {
    "nothing": (),
    "headers": (HEADERS,),
    "whole": (PARTITION, HEADERS, NO_VALUE),
    "table": (OFFSET, NO_VALUE),
    "places": (PARTITION, OFFSET),
}
_NESTED = frozenset({Kind.ARRAY, Kind.MAP, Kind.STRUCT})


def frame_ddl(schema: Schema) -> str:
    """The columns of a frame as Spark's DDL."""
    columns = [f"{quoted(f.name)} {spark_type(f.type)}" for f in schema]
    return ", ".join([*columns, f"{quoted(ROWTIME)} BIGINT"])


def spark_arrow(t: SqlType) -> pa.DataType:
    """The Arrow type in which Spark gives and takes a column: as `arrow_type`, but times in its own units."""
    if t.kind is Kind.TIMESTAMP:
        return pa.timestamp("us")
    if t.kind is Kind.TIME:
        return pa.int32()
    if t.kind is Kind.ARRAY:
        return pa.list_(spark_arrow(t.element))
    if t.kind is Kind.MAP:
        return pa.map_(spark_arrow(t.args[0]), spark_arrow(t.args[1]))
    if t.kind is Kind.STRUCT:
        return pa.struct([pa.field(n, spark_arrow(f)) for n, f in t.fields])
    return arrow_type(t)


def to_spark(column: Any, t: SqlType) -> Any:
    """An Arrow column of `arrow_type(t)` (views of texts are fine) as Spark takes it."""
    if column.type == spark_arrow(t):
        return column
    if t.kind is Kind.TIME:
        return column.cast(pa.int32())
    if t.kind in _NESTED and _has_time(t):
        return _rebuilt(column, t, to_spark, spark_arrow(t))
    return column.cast(spark_arrow(t))


def from_spark(column: Any, t: SqlType) -> Any:
    """The inverse of `to_spark`; microseconds are cut, as FlowQL's timestamps are milliseconds."""
    if column.type == arrow_type(t):
        return column
    if t.kind is Kind.TIMESTAMP:
        return pc.floor_temporal(column.cast(pa.timestamp("us")), unit="millisecond").cast(pa.timestamp("ms"))
    if t.kind in _NESTED and _has_time(t):
        return _rebuilt(column, t, from_spark, arrow_type(t))
    return column.cast(arrow_type(t))


def _has_time(t: SqlType) -> bool:
    return t.kind in (Kind.TIME, Kind.TIMESTAMP) or any(map(_has_time, (*t.args, *(f for _, f in t.fields))))


def _rebuilt(column: Any, t: SqlType, inner: Any, target: pa.DataType) -> Any:
    """A container with its elements converted: Arrow's own cast fails inside maps and cuts no microseconds."""
    mask = column.is_null()
    if t.kind is Kind.STRUCT:
        parts = [inner(pc.struct_field(column, i), f) for i, (_, f) in enumerate(t.fields)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)
    column = pa.concat_arrays([column])  # offsets from zero
    if t.kind is Kind.ARRAY:
        return pa.ListArray.from_arrays(column.offsets, inner(column.values, t.element), type=target, mask=mask)
    keys, items = inner(column.keys, t.args[0]), inner(column.items, t.args[1])
    made = pa.MapArray.from_arrays(column.offsets, keys, items).cast(target)
    return pc.if_else(mask, pa.scalar(None, target), made) if column.null_count else made

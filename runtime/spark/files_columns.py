"""Parquet rows as a frame without Python: their columns have types already, so only the time and the key of a row can be bad.

The same rows as `files_decode.FileDecoder.columns` gives. Not for times inside containers, whose microseconds are cut there,
nor for times in texts.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from compiler.functions.spark_text import quoted
from compiler.plan.expr import ROWTIME
from compiler.plan.topology import SourceDef
from compiler.plan.types import Kind, SqlType, spark_type
from runtime.operators.decode import BAD_TIME, NULL_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMES = (Kind.BIGINT, Kind.TIMESTAMP)


def can_stay(source: SourceDef) -> bool:
    """Whether `frame_of` is for this source."""
    if source.timestamp is not None:
        field = source.schema.get(source.timestamp.column)
        if field is None or field.type.kind not in _TIMES:
            return False
    return not any(_has_inner_time(f.type) for f in source.schema)


def frame_of(source: SourceDef, rows: DataFrame, time: str, bad: str) -> DataFrame:
    """rows: the columns of the source, and the file's time in column `time`. bad: the name of the column with what is wrong."""
    millis = {f.name: _in_millis(f.name, f.type) for f in source.schema}
    wrong, rowtime = F.lit(None).cast("string"), F.col(time)
    if source.timestamp is not None:
        column = source.timestamp.column
        field = source.schema.get(column)
        assert field is not None, "`can_stay` was asked"
        given = F.col(quoted(column))
        rowtime = _millis(given) if field.type.kind is Kind.TIMESTAMP else given
        lead = f"{BAD_TIME}: timestamp column {column} cannot be used: "
        wrong = F.when(rowtime.isNull(), F.lit(lead + "it is NULL")).when(
            rowtime < 0, F.concat(F.lit(lead), rowtime.cast("string"))
        )
    keys = [F.col(quoted(f.name)).isNull() for f in source.schema.key]
    if source.kind == "table" and keys:
        missing = reduce(lambda a, b: a & b, keys)
        wrong = F.coalesce(wrong, F.when(missing, F.lit(f"{NULL_KEY}: a record of a table needs a key")))
    if source.timestamp is None and not (source.kind == "table" and keys):
        return rows.select(*(c.alias(n) for n, c in millis.items()), rowtime.alias(ROWTIME), wrong.alias(bad))
    good = wrong.isNull()
    columns = [F.when(good, c).alias(n) for n, c in millis.items()]
    return rows.select(*columns, F.when(good, rowtime).alias(ROWTIME), wrong.alias(bad))


def _in_millis(name: str, t: SqlType) -> Column:
    value = F.col(quoted(name))
    return F.timestamp_millis(_millis(value)).cast(spark_type(t)) if t.kind is Kind.TIMESTAMP else value


def _millis(value: Column) -> Column:
    """Of a time without a zone; sessions are in UTC."""
    return F.unix_millis(value.cast("timestamp"))


def _has_inner_time(t: SqlType) -> bool:
    inner = (*t.args, *(f for _, f in t.fields))
    return any(i.kind is Kind.TIMESTAMP or _has_inner_time(i) for i in inner)

"""Parquet rows as a frame without Python: their columns have types already, so only the time and the key of a row can be bad.

The same rows as `files_decode.FileDecoder.columns` gives. Good and bad rows are two frames, so that Spark reads of the good ones
only the columns that are used, and leaves out of the bad ones what the files' statistics say is good.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class FileRows:
    """good: a frame (`native.frames`). bad: rows of `native.expressions.LETTERS_DDL`; None where no row can be bad."""

    good: DataFrame
    bad: DataFrame | None
    all: DataFrame

    def count(self) -> int:
        """How many rows there are, good and bad; the ends of the files tell."""
        return int(self.all.count())


def frame_of(source: SourceDef, rows: DataFrame, time: str) -> FileRows:
    """rows: the columns of the source, and the file's time in column `time`. For sources that `files_typed.can_stay`."""
    rowtime = F.col(time)
    faults: list[tuple[Column, Column, str]] = []  # what is wrong, its message, its code
    if source.timestamp is not None:
        column = source.timestamp.column
        field = source.schema.get(column)
        assert field is not None, "`can_stay` was asked"
        given = F.col(quoted(column))
        rowtime = _millis(given) if field.type.kind is Kind.TIMESTAMP else given
        lead = f"timestamp column {column} cannot be used: "
        faults.append((rowtime.isNull(), F.lit(lead + "it is NULL"), BAD_TIME))
        faults.append((rowtime < 0, F.concat(F.lit(lead), rowtime.cast("string")), BAD_TIME))
    keys = [F.col(quoted(f.name)).isNull() for f in source.schema.key]
    if source.kind == "table" and keys:
        faults.append((reduce(lambda a, b: a & b, keys), F.lit("a record of a table needs a key"), NULL_KEY))
    columns = [_in_millis(f.name, f.type).alias(f.name) for f in source.schema]
    good = reduce(lambda frame, fault: frame.where(~fault[0]), faults, rows)
    return FileRows(good.select(*columns, rowtime.alias(ROWTIME)), _letters(rows, faults) if faults else None, rows)


def _letters(rows: DataFrame, faults: list[tuple[Column, Column, str]]) -> DataFrame:
    wrong = reduce(lambda a, b: a | b, (fault for fault, _, _ in faults))
    (first, *others) = faults
    message, code = F.when(first[0], first[1]), F.when(first[0], F.lit(first[2]))
    for fault, text, its_code in others:
        message, code = message.when(fault, text), code.when(fault, F.lit(its_code))
    return rows.where(wrong).select(
        code.alias("code"), message.alias("message"), F.lit(0).cast("bigint").alias("rowtime")
    )


def _in_millis(name: str, t: SqlType) -> Column:
    value = F.col(quoted(name))
    return F.timestamp_millis(_millis(value)).cast(spark_type(t)) if t.kind is Kind.TIMESTAMP else value


def _millis(value: Column) -> Column:
    """Of a time without a zone; sessions are in UTC."""
    return F.unix_millis(value.cast("timestamp"))

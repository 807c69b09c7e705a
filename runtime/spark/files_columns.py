"""Parquet rows as a frame without Python: their columns have types already, so only the time and the key of a row can be bad.

The same rows as `files_decode.FileDecoder.columns` gives. Good and bad rows are two frames, so that Spark reads of the good ones
only the columns that are used, and leaves out of the bad ones what the files' statistics say is good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from compiler.functions.spark_text import quoted
from compiler.functions.spark_text import text as text_of
from compiler.plan.event_times import EventTimes
from compiler.plan.expr import ROWTIME
from compiler.plan.topology import SourceDef
from compiler.plan.types import Kind, spark_type
from runtime.operators.decode import BAD_TIME, NULL_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of files that need no Python. `all`: as they are in the files, good and bad.

    good: a frame (`native.frames`), with columns of the files beside it that nobody may ask for.
    """

    good: DataFrame
    all: DataFrame
    faults: tuple[Fault, ...]

    def count(self) -> int:
        """How many rows there are, good and bad; the ends of the files tell."""
        return int(self.all.count())

    def bad(self) -> DataFrame | None:
        """Rows of `native.expressions.LETTERS_DDL` of what could not be read; None where nothing can be bad."""
        if not self.faults:
            return None
        code = " ".join(f"WHEN {f.condition} THEN '{f.code}'" for f in self.faults)
        message = " ".join(f"WHEN {f.condition} THEN {f.message}" for f in self.faults)
        wrong = self.all.where(" OR ".join(f"({f.condition})" for f in self.faults))
        texts = (f"CASE {code} END AS code", f"CASE {message} END AS message", "0L AS rowtime")
        return wrong.selectExpr(*texts)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row may be bad, in Spark's SQL. message: an expression."""

    condition: str
    message: str
    code: str


def frame_of(source: SourceDef, rows: DataFrame, time: str) -> FileRows:
    """rows: the columns of the source, and the file's time in column `time`. For sources that `files_typed.can_stay`.

    In texts and few steps: each call to Spark costs as much as some thousand rows.
    """
    faults, rowtime = list[Fault](), quoted(time)
    if source.timestamp is not None:
        column = source.timestamp.column
        field = source.schema.get(column)
        assert field is not None, "`can_stay` was asked"
        rowtime = _millis(quoted(column)) if field.type.kind is Kind.TIMESTAMP else quoted(column)
        lead = f"timestamp column {column} cannot be used: "
        faults.append(Fault(f"{rowtime} IS NULL", text_of(lead + "it is NULL"), BAD_TIME))
        faults += outside(source.times, rowtime, lead)
    if source.kind == "table" and source.schema.key:
        missing = " AND ".join(f"{quoted(f.name)} IS NULL" for f in source.schema.key)
        faults.append(Fault(missing, text_of("a record of a table needs a key"), NULL_KEY))
    good = rows.where(" AND ".join(f"NOT ({f.condition})" for f in faults)) if faults else rows
    made = {ROWTIME: F.expr(rowtime)}
    times = (f for f in source.schema if f.type.kind is Kind.TIMESTAMP)
    made |= {
        f.name: F.expr(f"CAST(timestamp_millis({_millis(quoted(f.name))}) AS {spark_type(f.type)})") for f in times
    }
    return FileRows(good.withColumns(made), rows, tuple(faults))


def outside(times: EventTimes, rowtime: str, lead: str, *, of_column: bool = True) -> list[Fault]:
    """Of times that are not used, with what `EventTimes.why_not` says."""
    number = f"CAST({rowtime} AS STRING)"
    some = times.why_not(times.latest_ms, 0, of_column=of_column).removeprefix(str(times.latest_ms))
    outside = f"({rowtime} < {times.first_ms(of_column=of_column)} OR {rowtime} >= {times.latest_ms})"
    found = [Fault(outside, f"concat({text_of(lead)}, {number}, {text_of(some)})", BAD_TIME)]
    if times.ahead_ms is not None:
        ahead = f"({rowtime} > unix_millis(current_timestamp()) + {times.ahead_ms})"
        told = f" is ahead of the clock (MAX_AHEAD is {times.ahead_ms // 1000} s)"
        found.append(Fault(ahead, f"concat({text_of(lead)}, {number}, {text_of(told)})", BAD_TIME))
    return found


def _millis(value: str) -> str:
    """Of a time without a zone; sessions are in UTC."""
    return f"unix_millis(CAST({value} AS TIMESTAMP))"

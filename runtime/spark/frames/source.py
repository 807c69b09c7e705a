"""Frames that the caller gives as relations: columns of exactly the declared types, a row time in ms, versions of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.functions.spark_text import from_micros, from_millis, millis, quoted, text
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.schema import WINDOW_FIELDS, Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind, SqlType, spark_type
from flowql.runtime.operators.decode import BAD_TIME, NULL_KEY
from flowql.runtime.spark.errors import FrameUnfit
from flowql.runtime.spark.frames.relation import (
    DEFAULT_ROWS,
    KEY,
    LIVE,
    ORDER,
    SEQUENCE,
    Fault,
    Relation,
    TableRows,
    key_of,
    outside,
    without,
)
from flowql.runtime.spark.native.keys import groups
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

TIME_COLUMN = "ROWTIME"
# Columns of frames that FlowQL itself has read from files (`flowql.runtime.spark.files`): where a row is, and why it could not be read.
# The columns of such a frame are of the declared types, and the row time is in `ROWTIME` of `flowql.compiler.plan.expr`, where rows have one.
FILE, ROW, CODE, MESSAGE = "__file", "__row", "__code", "__message"
_OWN = frozenset({ROWTIME, FILE, ROW, CODE, MESSAGE})
_BEGINNING = -(2**62)  # the row time of a table that has none
# The types of Spark that hold a type of ours as it is, or in a narrower form.
_AS_THEY_ARE: dict[Kind, tuple[str, ...]] = {
    Kind.BOOLEAN: ("boolean",),
    Kind.INT: ("int", "smallint", "tinyint"),
    Kind.BIGINT: ("bigint", "int", "smallint", "tinyint"),
    Kind.DOUBLE: ("double", "float"),
    Kind.STRING: ("string",),
    Kind.BYTES: ("binary",),
    Kind.DATE: ("date",),
    Kind.TIME: ("int",),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """All rows of a source's frame, in declared types, with the row time and what a table needs beside.

    bad: why the time of a row, or the row, cannot be used. unkeyed: why a row of a table cannot, for want of a key. Rows without such a
    fault are those that count.
    """

    frame: DataFrame
    bad: tuple[Fault, ...]
    unkeyed: tuple[Fault, ...]
    timed: bool

    @property
    def usable(self) -> str:
        """Spark SQL of rows without a fault of time; "" for all."""
        return without(self.bad)

    @property
    def keyed(self) -> str:
        return without(self.unkeyed)


def refuse_own_columns(sources: Mapping[str, DataFrame]) -> None:
    """Raises FrameUnfit for a frame of the user with a column by which frames are known that FlowQL has read itself."""
    for name, frame in sources.items():
        for column in _OWN.intersection(frame.columns):
            title = f"the frame of {name} has a column {column}, as only those have that FlowQL reads from files"
            raise FrameUnfit(title, help=f"rename it, or leave it out:  frame.drop('{column}')")


def relation_of(source: SourceDef, frame: DataFrame, rows: TableRows = DEFAULT_ROWS) -> Relation:
    """The frame of a source as a relation. Rows whose time cannot be used, and rows of a table without a key, are left out."""
    return relation_of_prepared(source, prepared(source, frame, rows))


def relation_of_prepared(source: SourceDef, made: Prepared) -> Relation:
    good = without((*made.bad, *made.unkeyed))
    return Relation(
        made.frame.where(good) if good else made.frame,
        "rows" if source.kind == "stream" else "versions",
        timed=made.timed,
    )


def prepared(source: SourceDef, frame: DataFrame, rows: TableRows = DEFAULT_ROWS) -> Prepared:
    """Raises FrameUnfit for a frame that does not fit the source."""
    fields = [f for f in source.schema if f.role in ("key", "value")]
    if source.schema.window is not None:
        fields += WINDOW_FIELDS
    given = _columns(source, frame)
    columns = [quoted(f.name) for f in fields]
    if CODE in given:
        bad = [Fault(f"{CODE} IS NOT NULL", MESSAGE, CODE)]
        time, timed = quoted(ROWTIME), source.timestamp is not None or source.kind == "stream"
        if not timed:
            time = f"coalesce({time}, {_BEGINNING}L)"
        elif source.timestamp is None:
            bad += _bad_times(source)
    elif ROWTIME in given:
        time, timed, bad = quoted(ROWTIME), True, _bad_times(source)
        if source.kind == "stream":
            return Prepared(frame, tuple(bad), (), timed)
    else:
        columns = [f"{_converted(source, f, given)} AS {quoted(f.name)}" for f in fields]
        time, timed = _time(source, given)
        bad = _bad_times(source) if timed else []
    extra = _table_columns(source, rows, given) if source.kind == "table" else []
    if extra and rows.delete_when is not None:
        condition = functions(frame).expr(rows.delete_when) if isinstance(rows.delete_when, str) else rows.delete_when
        frame = frame.withColumn("__gone", condition)
    beside = [n for n in (FILE, ROW, CODE, MESSAGE) if n in given]
    made = frame.selectExpr(*columns, f"{time} AS {quoted(ROWTIME)}", *extra, *beside)
    if source.kind == "stream":
        return Prepared(made, tuple(bad), (), timed)
    without_key = " AND ".join(f"{quoted(f.name)} IS NULL" for f in _key_fields(source))
    unkeyed = [Fault(without_key, text("a record of a table needs a key"), text(NULL_KEY))] if without_key else []
    return Prepared(_versions(source, made, rows, beside), tuple(bad), tuple(unkeyed), timed)


def _bad_times(source: SourceDef) -> list[Fault]:
    row_time, of_column = quoted(ROWTIME), source.timestamp is not None
    lead = (
        f"timestamp column {source.timestamp.column if source.timestamp is not None else TIME_COLUMN} cannot be used: "
    )
    unknown = Fault(f"{row_time} IS NULL", text(lead + "it is NULL"), text(BAD_TIME))
    return [unknown, *outside(source.times, row_time, lead, of_column=of_column)]


def _columns(source: SourceDef, frame: DataFrame) -> dict[str, DataType]:
    given = {f.name: f.dataType for f in frame.schema.fields}
    if len(given) < len(frame.columns):
        twice = sorted({n for n in frame.columns if frame.columns.count(n) > 1})
        raise FrameUnfit(f"the frame of {source.name} has several columns {', '.join(twice)}", help="rename them")
    return given


def _converted(source: SourceDef, field: Field, given: Mapping[str, DataType]) -> str:
    """Spark SQL of a column in its declared type."""
    held = given.get(field.name)
    if held is None:
        title = f"the frame of {source.name} has no column {field.name} (it has {', '.join(given)})"
        raise FrameUnfit(title, help=f"add it: `{field.name}` {spark_type(field.type)}; names are told apart by case")
    sql = _as_declared(quoted(field.name), field.type, held)
    if not sql:
        title = f"column {field.name} of the frame of {source.name} is {held.simpleString()}, declared is {field.type}"
        raise FrameUnfit(title, help=f"cast it to {spark_type(field.type)}")
    return sql


def _as_declared(sql: str, t: SqlType, held: DataType) -> str:
    """Spark SQL of a column in type `t`; "" where a value could be lost or mean something else."""
    name = held.simpleString()
    if t.kind is Kind.TIMESTAMP:
        in_ms = _millis(sql, name)
        return from_millis(in_ms) if in_ms and name != "bigint" else ""
    if t.kind is Kind.MICROS:
        return {"timestamp_ntz": sql, "timestamp": from_micros(f"unix_micros({sql})")}.get(name, "")
    if t.kind is Kind.DECIMAL:
        precision, scale = getattr(held, "precision", 0), getattr(held, "scale", 0)
        fits = name.startswith("decimal") and scale <= t.scale and precision - scale <= t.precision - t.scale
        return f"CAST({sql} AS {spark_type(t)})" if fits else ""
    if t.kind in _AS_THEY_ARE:
        known = _AS_THEY_ARE[t.kind]
        if name not in known:
            return ""
        return sql if name == known[0] else f"CAST({sql} AS {spark_type(t)})"
    return sql if _same(t, held) else ""


def _same(t: SqlType, held: DataType) -> bool:
    """Types inside containers are exactly the declared ones, and no times, whose microseconds would have to be cut."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(held, ArrayType):
        return t.kind is Kind.ARRAY and _same(t.element, held.elementType)
    if isinstance(held, MapType):
        return t.kind is Kind.MAP and _same(t.args[0], held.keyType) and _same(t.element, held.valueType)
    if isinstance(held, StructType):
        pairs = zip(t.fields, held.fields, strict=False)
        alike = t.kind is Kind.STRUCT and len(t.fields) == len(held.fields)
        return alike and all(n == f.name and _same(inner, f.dataType) for (n, inner), f in pairs)
    name = held.simpleString()
    if t.kind is Kind.DECIMAL:
        return name == f"decimal({t.precision},{t.scale})"
    return t.kind in _AS_THEY_ARE and name == _AS_THEY_ARE[t.kind][0]


def millis_of(t: SqlType, sql: str) -> str:
    """Milliseconds since 1970 of a column of a type of ours that can give a row time; "" for others."""
    return {Kind.BIGINT: sql, Kind.TIMESTAMP: millis(sql)}.get(t.kind, "")


def _millis(sql: str, name: str) -> str:
    """Milliseconds since 1970 of a time column; "" for other types."""
    made = {"timestamp": f"unix_millis({sql})", "timestamp_ntz": millis(sql), "bigint": sql}
    return made.get(name, "")


def _time(source: SourceDef, given: Mapping[str, DataType]) -> tuple[str, bool]:
    """Spark SQL of the row time in ms, and whether there is one."""
    column = source.timestamp.column if source.timestamp is not None else TIME_COLUMN
    if column not in given:
        if source.timestamp is None and source.kind == "table":
            return f"{_BEGINNING}L", False
        title = f"the frame of {source.name} has no event time: no column {column}"
        raise FrameUnfit(title, help=f"add `{column}`: ms since 1970 as BIGINT, or a timestamp")
    name = given[column].simpleString()
    sql = _millis(quoted(column), name)
    if not sql:
        title = f"the event time {column} of the frame of {source.name} is {name}"
        raise FrameUnfit(title, help="make it ms since 1970 as BIGINT, or a timestamp")
    return sql, True


def _table_columns(source: SourceDef, rows: TableRows, given: Mapping[str, DataType]) -> list[str]:
    missing = [c for c in rows.sequence_by if c not in given]
    if missing:
        raise FrameUnfit(f"the frame of {source.name} has no column {missing[0]}", help="look at `sequence_by`")
    live = "NOT coalesce(__gone, FALSE)" if rows.delete_when is not None else "TRUE"
    return [f"{live} AS {LIVE}", *(f"{quoted(c)} AS __sequence{i}" for i, c in enumerate(rows.sequence_by))]


def _key_fields(source: SourceDef) -> tuple[Field, ...]:
    keys = key_of(source.schema)
    return keys + WINDOW_FIELDS if source.schema.window is not None else keys


def _versions(source: SourceDef, made: DataFrame, rows: TableRows, beside: Sequence[str]) -> DataFrame:
    """Versions follow each other by sequence; of several with one sequence the greatest counts, and a removal is the least.

    The values that decide are all that the source declares, whichever a query asks for: all queries see the same row.
    """
    schema = source.schema
    unordered = [f.name for f in schema.value if not _ordered(f.type)]
    if unordered:
        title = f"rows of {source.name} at one time cannot be put in order: {unordered[0]} has no order"
        raise FrameUnfit(title, help="declare it as another type, or leave the column out of the table")
    unkeyed = [f.name for f in schema.key if not groups(f.type)]
    if unkeyed:
        title = f"Spark compares the key {unkeyed[0]} of the table {source.name} in its own way"
        raise FrameUnfit(title, help="0.0 and -0.0 are one key; declare it as another type")
    sequence: Sequence[str] = [f"__sequence{i}" for i in range(len(rows.sequence_by))] or [quoted(ROWTIME)]
    order = [*sequence, LIVE, *(quoted(f.name) for f in schema.value)]
    structs = [f"struct({', '.join(sequence)}) AS {SEQUENCE}", f"struct({', '.join(order)}) AS {ORDER}"]
    columns = [quoted(f.name) for f in schema if f.role in ("key", "value")]
    columns += [quoted(f.name) for f in WINDOW_FIELDS] if schema.window is not None else []
    key = f"struct({', '.join(quoted(f.name) for f in _key_fields(source))}) AS {KEY}"
    return made.selectExpr(*columns, quoted(ROWTIME), key, LIVE, *structs, *beside)


def _ordered(t: SqlType) -> bool:
    return t.kind is not Kind.MAP and all(map(_ordered, (*t.args, *(f for _, f in t.fields))))

"""The rows of a file by columns, for a local table: CSV, PostgreSQL's text format, JSON lines and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.functions.assignment import advice, assigned
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import NamedExpr
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.tables import CopyFrom, RowFormat, TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    JSONB,
    NULL,
    SPAN,
    STRING,
    TIME,
    UUID,
    Kind,
    SqlType,
    array,
    arrow_type,
    decimal,
    map_of,
    struct,
)
from flowql.errors import CommandError
from flowql.runtime.batch import Batch, Ints
from flowql.runtime.errors import RowFailed, StatementFailed
from flowql.runtime.topology.bulk_insert import PIECE_ROWS, Projected, columns_batch
from flowql.topics import csv_records, import_files
from flowql.topics.import_files import CHUNK_BYTES, file_format, json_lines, line_blocks
from flowql.topics.import_job import NOT_IMPORTED
from flowql.topics.import_values import Values

# --- Arrow columns of Parquet files and DuckDB's answers as columns of SQL types. Nothing is rounded or cut ---

_is = pa.types
_SIMPLE = (
    (_is.is_boolean, BOOLEAN),
    (lambda t: _is.is_int8(t) or _is.is_int16(t) or _is.is_int32(t) or _is.is_uint8(t) or _is.is_uint16(t), INT),
    (lambda t: _is.is_int64(t) or _is.is_uint32(t), BIGINT),
    (_is.is_uint64, decimal(20, 0)),
    (_is.is_floating, DOUBLE),
    (lambda t: _is.is_string(t) or _is.is_large_string(t) or _is.is_string_view(t), STRING),
    (
        lambda t: _is.is_binary(t) or _is.is_large_binary(t) or _is.is_binary_view(t) or _is.is_fixed_size_binary(t),
        BYTES,
    ),
    (_is.is_date, DATE),
    (_is.is_time, TIME),
    (_is.is_null, NULL),
)


def sql_type_of(t: pa.DataType) -> SqlType | None:
    """The SQL type of an Arrow type; None if there is none, as for a duration."""
    if t == pa.uuid():
        return UUID
    if isinstance(t, pa.BaseExtensionType):
        return JSONB if t.extension_name == "arrow.json" else sql_type_of(t.storage_type)
    if _is.is_dictionary(t):
        return sql_type_of(t.value_type)
    if _is.is_decimal(t):
        return decimal(t.precision, t.scale) if t.precision <= 38 and 0 <= t.scale <= t.precision else None
    if _is.is_timestamp(t):
        kind = Kind.TIMESTAMP if t.unit in ("s", "ms") else Kind.MICROS
        return SqlType(kind, zoned=t.tz is not None)
    return _nested(t) or next((found for holds, found in _SIMPLE if holds(t)), None)


def _nested(t: pa.DataType) -> SqlType | None:
    if _is.is_map(t):
        key, value = sql_type_of(t.key_type), sql_type_of(t.item_type)
        return None if key is None or value is None else map_of(key, value)
    if _is.is_list(t) or _is.is_large_list(t) or _is.is_fixed_size_list(t):
        element = sql_type_of(t.value_type)
        return None if element is None else array(element)
    if _is.is_struct(t):
        fields = [(f.name, sql_type_of(f.type)) for f in t]
        known = [(n, f) for n, f in fields if f is not None]
        return struct(*known) if len(known) == len(fields) else None
    return None


def fitted_type(found: SqlType, wanted: SqlType) -> SqlType:
    """The type to read a column as that is stored as `wanted`: a timestamp in microseconds becomes one in milliseconds, which `column_as` never rounds."""
    if found.kind is Kind.MICROS and wanted.kind is Kind.TIMESTAMP:
        return replace(found, kind=Kind.TIMESTAMP)
    if found.kind is not wanted.kind:
        return found
    args = tuple(fitted_type(a, b) for a, b in zip(found.args, wanted.args, strict=True))
    return replace(found, args=args, fields=tuple((n, fitted_type(t, wanted.field(n) or t)) for n, t in found.fields))


def column_as(column: pa.Array, t: SqlType) -> pa.Array:
    """A column as `arrow_type(t)`, with `t` from `sql_type_of` and `fitted_type`. Raises pa.ArrowInvalid for a value that would be rounded."""
    if t == UUID and isinstance(column.type, pa.BaseExtensionType):
        return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if _is.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(arrow_type(t))


_BOM = b"\xef\xbb\xbf"
_FORMATS: dict[str, RowFormat] = {"csv": "csv", "jsonl": "json", "parquet": "parquet"}
Advance = Callable[[int], None]  # given the number of bytes that were read


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows with values of their columns. line: gives the line of a row of this piece in the file, from 1; row: from 0."""

    rows: Batch
    line: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file or a stream of bytes, and the statement that loads it. name: for messages."""

    name: str
    source: SourceDef
    change: TableChange
    stream: BinaryIO
    origin: CopyFrom

    def failure(self, line: int, why: str) -> StatementFailed:
        """The error for a row, whose file is then not written."""
        return StatementFailed(f"{self.name}:{line}: {why}; nothing of {self.name} was written")

    def mistake(self, why: str, help: str) -> CommandError:
        return CommandError(f"{self.name}: {why}", code=NOT_IMPORTED, help=help)

    def fields(self, names: Sequence[str]) -> list[Field]:
        """The table's columns for the names in the file. Raises CommandError."""
        wanted = self.change.columns
        for i, name in enumerate(names):
            if name not in wanted:
                hint = did_you_mean(name, wanted) or f"columns are {', '.join(wanted)}"
                raise self.mistake(
                    f"{self.source.name} has no column {name}", f"{hint}; or list the columns of the file:  (a, b)"
                )
            if name in names[:i]:
                raise self.mistake(f"it has the column {name} twice", "rename one of them")
        return [self.source.schema.field(n) for n in names]


def opened(path: Path, source: SourceDef, change: TableChange) -> TableFile:
    """A file on this machine; close its stream. Raises CommandError."""
    assert change.copied is not None
    origin = change.copied
    if origin.format is None:
        origin = replace(origin, format=_FORMATS[file_format(path)])
    try:
        return TableFile(path.name, source, change, path.open("rb"), origin)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", code="FQ3015") from error


def read_rows(file: TableFile, advance: Advance) -> tuple[list[Field], Iterator[Piece]]:
    """The columns that the file has, and its rows.

    Raises CommandError for a file that does not fit the table; taking a piece raises StatementFailed for a row that does not.
    """
    match file.origin.format:
        case "csv":
            return _csv(file, advance)
        case "text":
            return _text(file, advance)
        case "json":
            return _json(file, advance)
        case "parquet":
            return _parquet(file, advance)
    raise file.mistake(f"the format {file.origin.format} of COPY is not supported", "write  FORMAT csv")


def converter(
    fields: Sequence[Field], found: Sequence[SqlType], source: SourceDef, *, quoted: Sequence[bool]
) -> Callable[[pa.RecordBatch], Batch]:
    """A function that converts columns of the types `found` to `fields`. quoted: which columns are read like quoted strings in SQL.

    Raises CommandError; the conversion raises RowFailed.
    """
    names = [f"c{i}" for i in range(len(fields))]
    exprs: list[NamedExpr] = []
    for name, t, field, bare in zip(names, found, fields, quoted, strict=True):
        e = assigned(Column(t, name), field.type, quoted=bare)
        if e is None:
            title = f"column {field.name} of {source.name} is {field.type}, and {t} is given"
            raise CommandError(
                title,
                code=NOT_IMPORTED,
                help=f"{advice(t, field.type)}  in  INSERT ... SELECT ... FROM read_parquet('file')",
            )
        exprs.append(NamedExpr(field.name, e))
    schema = Schema(tuple(Field(n, t) for n, t in zip(names, found, strict=True)))
    project = Projected(exprs, schema)

    def convert(columns: pa.RecordBatch) -> Batch:
        named = pa.RecordBatch.from_arrays(columns.columns, names=names)
        return project(columns_batch(schema, named))

    return convert


def _converted(
    file: TableFile, convert: Callable[[pa.RecordBatch], Batch], columns: pa.RecordBatch, line: Callable[[int], int]
) -> Piece:
    try:
        return Piece(convert(columns), line)
    except RowFailed as error:
        raise file.failure(line(error.row), str(error)) from error


# --- texts ---


def _texts(file: TableFile, fields: Sequence[Field]) -> Callable[[pa.RecordBatch], Batch]:
    return converter(fields, [STRING] * len(fields), file.source, quoted=[True] * len(fields))


def _positional(file: TableFile) -> list[Field]:
    return [file.source.schema.field(n) for n in file.change.columns]


def _csv(file: TableFile, advance: Advance) -> tuple[list[Field], Iterator[Piece]]:
    origin = file.origin
    delimiter = (origin.delimiter or ",").encode()
    cuts = csv_records.cuts(file.stream, delimiter, CHUNK_BYTES, _BOM)
    first = next(cuts, None)
    fields, line = _positional(file), 1
    if first is not None and origin.header != "no":
        fields = _named(file, csv_records.fields_of(first.record(0), delimiter), fields, first.record(0))
        line += first.data[: int(first.ends[0])].count(b"\n")
        first = first.behind_first()
    return fields, _csv_pieces(file, fields, first, cuts, line, delimiter, advance)


def _named(file: TableFile, header: Sequence[str], fields: list[Field], text: bytes) -> list[Field]:
    """The columns that a header names."""
    names = [f.name for f in fields]
    if file.origin.header == "match" and list(header) != names:
        raise file.mistake(f"the header names {', '.join(header)}", f"HEADER MATCH expects {', '.join(names)}")
    if file.origin.listed or file.origin.header == "match":
        return fields
    if len(header) == 1 and header[0] not in names:
        found = csv_records.delimiter_of(text).decode()
        if found.encode() in text:
            raise file.mistake(f"its header names only one column, {header[0]}", f"add  DELIMITER '{found}'")
    return file.fields(header)


def _csv_pieces(
    file: TableFile,
    fields: Sequence[Field],
    first: csv_records.Cut | None,
    cuts: Iterator[csv_records.Cut],
    line: int,
    delimiter: bytes,
    advance: Advance,
) -> Iterator[Piece]:
    convert, null = _texts(file, fields), file.origin.null
    for cut in (*([first] if first is not None else []), *cuts):
        lines = cut.lines(line)
        found = csv_records.parse(cut, delimiter, len(fields), [null or ""], expected="and there are {} columns")
        if found.bad:
            at = min(found.bad)
            raise file.failure(int(lines[at]), found.bad[at])
        line += cut.data[: cut.consumed].count(b"\n")
        if len(found.rows):
            columns = pa.RecordBatch.from_arrays(found.columns, names=[f.name for f in fields])
            yield _converted(file, convert, columns, _numbers(lines[found.rows]))
        advance(cut.consumed)


def _numbers(lines: Ints) -> Callable[[int], int]:
    return lambda row: int(lines[row])


def _text(file: TableFile, advance: Advance) -> tuple[list[Field], Iterator[Piece]]:
    """PostgreSQL's format: tabs between fields, and a backslash before a character that would end a field or a row."""
    fields = _positional(file)
    blocks = line_blocks(file.stream)
    if file.origin.header == "no":
        return fields, _text_pieces(file, fields, blocks, 1, advance)
    first = next(blocks, b"")
    head, _, rest = first.partition(b"\n")
    delimiter = (file.origin.delimiter or "\t").encode()
    fields = _named(file, head.rstrip(b"\r").decode("utf-8", "replace").split(delimiter.decode()), fields, head)
    return fields, _text_pieces(file, fields, _before(rest, blocks), 2, advance)


def _before(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _text_pieces(
    file: TableFile, fields: Sequence[Field], blocks: Iterator[bytes], line: int, advance: Advance
) -> Iterator[Piece]:
    convert, width = _texts(file, fields), len(fields)
    delimiter = (file.origin.delimiter or "\t").encode()
    null = b"\\N" if file.origin.null is None else file.origin.null.encode()
    for block in blocks:
        try:
            found = import_files.parse(block, width, delimiter, null)
        except import_files.BadLine as error:
            raise file.failure(line + error.line, str(error)) from error
        if found.columns and len(found.columns[0]):
            batch = pa.RecordBatch.from_arrays(found.columns, names=[f.name for f in fields])
            yield _converted(file, convert, batch, _from(line))
        line += found.lines
        advance(len(block))
        if found.ended:
            return


def _from(first: int) -> Callable[[int], int]:
    return lambda row: first + row


# --- JSON lines ---


def _json(file: TableFile, advance: Advance) -> tuple[list[Field], Iterator[Piece]]:
    """The columns are the members of all lines, so the file is read twice."""
    names: dict[str, int] = {}
    with duckdb.connect(config={"threads": "1"}) as database:
        line, start = 1, file.stream.tell()
        for block in line_blocks(file.stream):
            lines, bad = json_lines(block, line, database)
            if bad:
                raise file.failure(bad[0].line, bad[0].reason)
            database.register("lines", lines)
            for name, at in database.execute(
                "SELECT name, min(line) FROM (SELECT unnest(json_keys(text)) AS name, line FROM lines) GROUP BY name ORDER BY 2, 1"
            ).fetchall():
                names.setdefault(name, at)
            line += block.count(b"\n")
        file.stream.seek(start)
    for name, at in names.items():
        if name not in file.change.columns:
            hint = did_you_mean(name, file.change.columns) or f"columns are {', '.join(file.change.columns)}"
            raise file.mistake(f"{file.source.name} has no column {name}, which line {at} has", hint)
    given = file.change.columns if file.origin.listed else [n for n in file.change.columns if n in names]
    fields = [Field(n, file.source.schema.field(n).type) for n in given]
    return fields, _json_pieces(file, fields, advance)


def _json_pieces(file: TableFile, fields: Sequence[Field], advance: Advance) -> Iterator[Piece]:
    schema = Schema(tuple(Field(f.name, STRING) if f.type == SPAN else f for f in fields))
    convert = converter(fields, [f.type for f in schema], file.source, quoted=[f.type == SPAN for f in fields])
    values = Values(replace(file.source, schema=schema, rules=None, columns=()), "jsonl")
    line = 1
    with duckdb.connect(config={"threads": "1"}) as database:
        for block in line_blocks(file.stream):
            lines, _ = json_lines(block, line, database)
            numbers = lines.column("line").to_numpy()
            texts = lines.column("text").combine_chunks().cast(pa.binary())
            n = len(texts)
            if n:
                times, keys = pa.array(np.zeros(n, np.int64)), pa.nulls(n, pa.binary())
                judged, bad = values.judge(times, keys, texts)
                if bad:
                    at = min(bad)
                    raise file.failure(int(numbers[at]), bad[at])
                rows = values.rows(times, keys, judged)
                assert rows is not None
                yield _converted(file, convert, rows.select(schema).arrow(), _numbers(numbers))
            line += block.count(b"\n")
            advance(len(block))


# --- Parquet ---


def _parquet(file: TableFile, advance: Advance) -> tuple[list[Field], Iterator[Piece]]:
    """Columns by name; only those that the statement lists, if it does."""
    try:
        found = parquet.ParquetFile(file.stream)
    except (pa.ArrowException, OSError) as error:
        raise file.mistake(
            f"this is not a Parquet file: {str(error).splitlines()[0]}", "name the format:  FORMAT csv"
        ) from error
    names = found.schema_arrow.names
    if file.origin.listed:
        for name in file.change.columns:
            if name not in names:
                hint = did_you_mean(name, names) or f"it has {', '.join(names)}"
                raise file.mistake(f"it has no column {name}", hint)
        names = list(file.change.columns)
    fields = file.fields(names)
    return fields, _parquet_pieces(file, found, fields, advance)


def _parquet_pieces(
    file: TableFile, found: parquet.ParquetFile, fields: Sequence[Field], advance: Advance
) -> Iterator[Piece]:
    names = [f.name for f in fields]
    read = Columns(fields, [found.schema_arrow.field(n).type for n in names], file.source)
    before = 0
    try:
        for batch in found.iter_batches(PIECE_ROWS, columns=names):
            try:
                rows = read(batch.select(names))
            except RowFailed as error:
                raise file.failure(before + error.row + 1, str(error)) from error
            yield Piece(rows, _from(before + 1))
            before += batch.num_rows
            advance(batch.nbytes)
    except (pa.ArrowException, OSError) as error:
        raise file.mistake(
            f"it is damaged behind row {before}: {str(error).splitlines()[0]}", "write it again"
        ) from error


class Columns:
    """Converts Arrow columns to columns of a table. One thread at a time."""

    def __init__(
        self,
        fields: Sequence[Field],
        types: Sequence[pa.DataType],
        source: SourceDef,
    ) -> None:
        """types: of the Arrow columns. Raises CommandError."""
        self._fields, self._types = fields, list[SqlType]()
        for field, t in zip(fields, types, strict=True):
            known = sql_type_of(t)
            if known is None:
                title = f"column {field.name} has the type {t}, which tables do not have"
                raise CommandError(
                    title,
                    code=NOT_IMPORTED,
                    help=f"cast it:  SELECT CAST({field.name} AS TEXT), ... FROM read_parquet('file')",
                )
            self._types.append(fitted_type(known, field.type))
        self._convert = converter(fields, self._types, source, quoted=[False] * len(fields))

    def __call__(self, batch: pa.RecordBatch) -> Batch:
        """Raises RowFailed."""
        columns: list[pa.Array] = []
        for field, t, column in zip(self._fields, self._types, batch.columns, strict=True):
            try:
                columns.append(column_as(column, t))
            except pa.ArrowInvalid as error:
                raise RowFailed(f"column {field.name}: {_why(error)}", row=_first_bad(column, t)) from error
        return self._convert(pa.RecordBatch.from_arrays(columns, names=[f.name for f in self._fields]))


def _why(error: pa.ArrowInvalid) -> str:
    text = str(error).splitlines()[0]
    return (
        "a timestamp has parts of a millisecond: declare the column TIMESTAMP(6)" if "would lose data" in text else text
    )


def _first_bad(column: pa.Array, t: SqlType) -> int:
    """The first row that cannot be converted, by bisection."""
    first, end = 0, len(column)
    while end - first > 1:
        half = (first + end) // 2
        try:
            column_as(column.slice(first, half - first), t)
        except pa.ArrowInvalid:
            end = half
        else:
            first = half
    return first

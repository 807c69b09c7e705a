"""Files of JSON lines, CSV or Parquet as columns of records: DuckDB and Arrow, no Python per record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.functions.duckdb_text import quoted_text
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING, Kind, SqlType
from flowql.errors import CommandError
from flowql.topics import csv_records
from flowql.topics.codecs import KeyWriter
from flowql.topics.import_job import NOT_IMPORTED, Bad, Chunk, FileFormat, FilePosition, Job, Named, named_columns
from flowql.topics.typed_texts import TEXT_NULLS, json_sql, milliseconds_sql

# --- PostgreSQL's text format: delimiters between fields, and a backslash before a character that would end a field or a row ---

END = b"\\."  # of the rows, alone in its line
_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class BadLine(Exception):
    """line: from 0."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True, slots=True)
class TextRows:
    """columns: texts. ended: the end of the rows was among the lines."""

    columns: Sequence[pa.Array]
    lines: int
    ended: bool = False


def parse(block: bytes, width: int, delimiter: bytes, null: bytes) -> TextRows:
    """The rows of whole lines. Raises BadLine for the first that has another number of fields than `width`, or is no UTF-8."""
    return by_columns(block, width, delimiter, null) or by_lines(block, width, delimiter, null)


def by_columns(block: bytes, width: int, delimiter: bytes, null: bytes) -> TextRows | None:
    """As `parse`, with the lines split by Arrow. None for lines that it does not split as PostgreSQL does, and for those that are wrong."""
    data = block.replace(b"\r\n", b"\n")
    if not data or b"\r" in data or len(delimiter) > 1 or data.startswith((b"\xef\xbb\xbf", END)) or b"\n\\." in data:
        return None
    if b"\\" + delimiter in data or b"\\\n" in data:
        return None
    names = [str(i) for i in range(width)]
    try:
        table = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=delimiter.decode(), quote_char=False, double_quote=False, ignore_empty_lines=False
            ),
            csv.ConvertOptions(
                check_utf8=False, column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False
            ),
        )
        columns = [_texts(c.combine_chunks(), null) for c in table.columns]
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return TextRows(columns, table.num_rows)


def _texts(column: pa.Array | pa.ChunkedArray, null: bytes) -> pa.Array:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = pc.if_else(pc.equal(found, null), pa.scalar(None, pa.binary()), found)
    escaped = np.flatnonzero(pc.fill_null(pc.match_substring(found, b"\\"), False).to_numpy(zero_copy_only=False))
    if len(escaped):
        values = found.to_pylist()
        for i in escaped.tolist():
            values[i] = _unescaped(values[i])
        found = pa.array(values, pa.binary())
    return found.cast(pa.string())


def by_lines(block: bytes, width: int, delimiter: bytes, null: bytes) -> TextRows:
    """As `parse`."""
    lines, ended = block.split(b"\n"), False
    if not lines[-1]:
        lines.pop()
    table: list[list[bytes | None]] = []
    for i, text in enumerate(lines):
        bare = text.removesuffix(b"\r")
        if bare == END:
            ended = True
            break
        parts = _fields(bare, delimiter) if b"\\" in bare else bare.split(delimiter)
        if len(parts) != width:
            raise BadLine(i, f"this row has {len(parts)} fields, and there are {width} columns")
        table.append([None if p == null else _unescaped(p) if b"\\" in p else p for p in parts])
    columns = [_strings(list(c)) for c in zip(*table, strict=True)]
    return TextRows(columns, len(lines), ended)


def _fields(row: bytes, delimiter: bytes) -> list[bytes]:
    """The fields of a row, with their backslashes."""
    found, start, at = list[bytes](), 0, 0
    while at < len(row):
        if row[at : at + 1] == b"\\":
            at += 2
        elif row[at : at + 1] == delimiter:
            found.append(row[start:at])
            at = start = at + 1
        else:
            at += 1
    return [*found, row[start:]]


def _unescaped(field: bytes) -> bytes:
    def value(found: re.Match[bytes]) -> bytes:
        code = found.group(1)
        if code[:1] == b"x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        if code[:1] in b"01234567":
            return bytes([int(code, 8) & 255])
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(value, field)


def _strings(values: list[bytes | None]) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        for i, value in enumerate(values):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise BadLine(i, "this is not UTF-8 text") from error
        raise


CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 100_000
_INTEGER = r"-?[0-9]{1,18}"
_BOM = b"\xef\xbb\xbf"
_NOT_AN_OBJECT = "this line is not a JSON object: {}"


def file_format(path: Path) -> FileFormat:
    """By the name's ending; CommandError when it says nothing."""
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json"):
        return "jsonl"
    if suffix == ".csv":
        return "csv"
    if suffix in (".parquet", ".pq"):
        return "parquet"
    title = f"{path.name}: is this CSV, JSON lines or Parquet?"
    raise CommandError(title, code=NOT_IMPORTED, help="add  --format csv,  --format jsonl  or  --format parquet")


def chunks(job: Job, keys: KeyWriter, start: FilePosition) -> Iterator[Chunk]:
    """The records of a file from a place on, in their order. Raises CommandError."""
    database = duckdb.connect(config={"threads": "1"})  # one thread keeps the order of the file
    database.execute("SET TimeZone = 'UTC'")
    try:
        yield from _READERS[job.format](job, keys, database, start)
    except duckdb.Error as e:
        raise CommandError(f"{job.file.name}: {str(e).splitlines()[0]}", code=NOT_IMPORTED) from e
    finally:
        database.close()


# JSON lines.


def _json_chunks(
    job: Job, keys: KeyWriter, database: duckdb.DuckDBPyConnection, start: FilePosition
) -> Iterator[Chunk]:
    """Lines as they are; DuckDB checks them and takes key and time out."""
    named: Named | None = None
    place = start
    for data in _blocks(job.file, start.at):
        good, bad = json_lines(data, place.line, database)
        database.register("good", good)
        if named is None:
            names = database.execute("SELECT DISTINCT unnest(json_keys(text)) FROM (FROM good LIMIT 1000)").fetchall()
            named = named_columns(job, keys, sorted(n for (n,) in names)) if names else Named((), None)
        key = _json_object(named.key_texts(lambda name: f"CAST(json_extract(text, {_path(name)}) AS VARCHAR)"))
        time = _time(f"json_extract_string(text, {_path(named.time)})" if named.time is not None else "NULL")
        sql = f"SELECT encode(text) AS value, {key} AS key, {time} AS time, line FROM good"
        columns = database.sql(sql).to_arrow_table()
        place = FilePosition(place.at + len(data), place.line + data.count(b"\n"))
        yield Chunk(columns, bad, _values_of(columns), place, data, len(data))
        if not columns.num_rows:  # nothing is known yet of the columns
            named = None


def _values_of(columns: pa.Table) -> Callable[[int], bytes]:
    def raw(row: int) -> bytes:
        found: bytes = columns.column("value")[row].as_py()
        return found

    return raw


def _blocks(file: Path, start: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(start)
        yield from line_blocks(stream)


def line_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of a file in pieces that end with a line."""
    rest = b""
    while data := stream.read(CHUNK_BYTES):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
    if rest:
        yield rest


def json_lines(data: bytes, first: int, database: duckdb.DuckDBPyConnection) -> tuple[pa.Table, list[Bad]]:
    """The lines that are JSON objects (text, line), and the others that are not blank. first: the number of the first line."""
    lines, bad = _lines(data, first)
    database.register("lines", lines)
    return _objects(database, bad)


def _lines(data: bytes, first: int) -> tuple[pa.Table, list[Bad]]:
    """The lines that are not blank with their numbers, and those that are not UTF-8."""
    bad: list[Bad] = []
    try:
        text = data.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError:
        texts: list[str] = []
        for i, line in enumerate(data.split(b"\n")):
            try:
                texts.append(line.decode("utf-8-sig" if first + i == 1 else "utf-8"))
            except UnicodeDecodeError:
                texts.append("")
                bad.append(Bad(first + i, "this is not UTF-8 text", line))
        text = "\n".join(texts)
    lines = pc.utf8_trim_whitespace(pc.split_pattern(pa.array([text]), "\n").flatten())
    table = pa.table({"text": lines, "line": pa.array(np.arange(first, first + len(lines)))})
    return table.filter(pc.not_equal(lines, "")), bad


def _objects(database: duckdb.DuckDBPyConnection, bad: list[Bad]) -> tuple[pa.Table, list[Bad]]:
    """The lines that are JSON objects, and the others after `bad`."""
    test = "coalesce(json_valid(text) AND json_type(CASE WHEN json_valid(text) THEN text END) = 'OBJECT', false)"
    good = database.sql(f"SELECT * FROM lines WHERE {test}").to_arrow_table()
    found = database.execute(f"SELECT line, text FROM lines WHERE NOT {test} ORDER BY line").fetchall()
    return good, [*bad, *(Bad(line, _NOT_AN_OBJECT.format(text[:60]), text.encode()) for line, text in found)]


# CSV.


@dataclass(frozen=True, slots=True)
class _CsvDialect:
    """The header of a CSV file, from its first piece. head, body: what is before the
    records, and where they begin; types: of the columns, as declared, else as they look.
    """

    delimiter: bytes
    names: tuple[str, ...]
    types: tuple[tuple[str, SqlType], ...]
    head: bytes
    body: FilePosition


def _csv_chunks(job: Job, keys: KeyWriter, database: duckdb.DuckDBPyConnection, start: FilePosition) -> Iterator[Chunk]:
    """Rows as JSON objects, typed as the source declares, else as the first of them look."""
    layout = _layout(job, database)
    if layout is None:
        return
    named = named_columns(job, keys, layout.names)
    fields = [f"c{i}" for i in range(len(layout.names))]  # names of the file may be equal but for their case
    typed = [json_sql(c, t) for c, (_, t) in zip(fields, layout.types, strict=True)]
    value = _json_object([(name, text) for (name, _), text in zip(layout.types, typed, strict=True)])
    key = _json_object(named.key_texts(lambda name: typed[layout.names.index(name)]))
    time = _time(fields[layout.names.index(named.time)] if named.time is not None else "NULL")
    sql = f"SELECT encode({value}) AS value, {key} AS key, {time} AS time, line FROM fields"
    place, head = (start, b"") if start.at else (layout.body, layout.head)
    for cut in _csv_cuts(job.file, place.at, layout.delimiter):
        lines = cut.lines(place.line)
        found = csv_records.parse(cut, layout.delimiter, len(layout.names), (*TEXT_NULLS, *job.nulls))
        table = pa.table([*found.columns, pa.array(lines[found.rows])], names=[*fields, "line"])
        database.register("fields", table)
        columns = database.sql(sql).to_arrow_table()
        bad = [Bad(int(lines[i]), why, cut.record(i)) for i, why in sorted(found.bad.items())]
        taken = cut.data[: cut.consumed]
        place = FilePosition(place.at + len(taken), place.line + taken.count(b"\n"))
        yield Chunk(columns, bad, _records_of(cut, found.rows), place, head + taken, len(head + taken))
        head = b""


def _records_of(cut: csv_records.Cut, rows: Any) -> Callable[[int], bytes]:
    return lambda row: cut.record(int(rows[row]))


def _csv_cuts(file: Path, start: int, delimiter: bytes) -> Iterator[csv_records.Cut]:
    with file.open("rb") as stream:
        stream.seek(start)
        yield from csv_records.cuts(stream, delimiter, CHUNK_BYTES)


def _layout(job: Job, database: duckdb.DuckDBPyConnection) -> _CsvDialect | None:
    """The dialect of a CSV file; None for an empty file."""
    with job.file.open("rb") as stream:
        data = stream.read(CHUNK_BYTES)
        last = not stream.read(1)
    skipped = len(_BOM) if data.startswith(_BOM) else 0
    delimiter = csv_records.delimiter_of(data[skipped:].partition(b"\n")[0])
    cut = csv_records.cut(data[skipped:], delimiter, last=last)
    if not len(cut.ends):
        return None
    header = cut.record(0)
    names = csv_records.fields_of(header, delimiter)
    if twice := [n for i, n in enumerate(names) if n in names[:i]]:
        raise CommandError(f"{job.file.name} has two columns `{twice[0]}`", code=NOT_IMPORTED)
    first = int(cut.ends[0])
    found = csv_records.parse(cut.behind_first(), delimiter, len(names), TEXT_NULLS)
    declared = _declared(job)
    types = []
    for name, column in zip(names, found.columns, strict=True):
        known = declared.get(name.upper())
        types.append((name, _looks_like(column, database)) if known is None else (known.name, known.type))
    return _CsvDialect(
        delimiter,
        tuple(names),
        tuple(types),
        data[: skipped + first],
        FilePosition(skipped + first, 2 + header.count(b"\n")),
    )


def _declared(job: Job) -> dict[str, Field]:
    return {f.name.upper(): f for f in job.source.schema} if job.source is not None else {}


def _looks_like(column: pa.Array, database: duckdb.DuckDBPyConnection) -> SqlType:
    """The type of a column that nothing declares."""
    database.register("looked", pa.table({"c": column}))
    for t, test in (
        (BIGINT, "regexp_full_match(c, '0|-?[1-9][0-9]{0,17}')"),
        (DOUBLE, r"regexp_full_match(c, '-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?')"),
        (BOOLEAN, "lower(c) IN ('true', 'false')"),
    ):
        found = database.execute(f"SELECT bool_and({test}) FROM looked WHERE c IS NOT NULL").fetchall()
        if found[0][0]:
            return t
    return STRING


# Parquet.


def _parquet_chunks(
    job: Job, keys: KeyWriter, database: duckdb.DuckDBPyConnection, start: FilePosition
) -> Iterator[Chunk]:
    """Rows as JSON objects, in the JSON that declared columns are read from: times in ms, dates in days, bytes in base64."""
    file = f"read_parquet({quoted_text(str(job.file))})"
    columns = database.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()
    declared = _declared(job)
    typed: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    for name, found, *_ in columns:
        field = declared.get(name.upper())
        typed[name] = _parquet_value(quoted(name), found, field.type.kind if field is not None else None)
        fields.append((field.name if field is not None else name, typed[name]))
    named = named_columns(job, keys, [c[0] for c in columns])
    key = _json_object(named.key_texts(typed.__getitem__))
    time = _time(f"CAST({quoted(named.time)} AS VARCHAR)" if named.time is not None else "NULL")
    sql = (
        f"SELECT encode({_json_object(fields)}) AS value, {key} AS key, {time} AS time, "
        f"{start.at} + row_number() OVER () AS line FROM (FROM {file} OFFSET {start.at})"
    )
    place = replace(start, line=start.at + 1)
    for batch in database.sql(sql).to_arrow_reader(CHUNK_ROWS):
        table = pa.Table.from_batches([batch])
        place = FilePosition(place.at + batch.num_rows, place.line + batch.num_rows)
        yield Chunk(table, [], _values_of(table), place, b"", batch.nbytes)


def _parquet_value(column: str, found: str, kind: Kind | None) -> str:
    """A Parquet value as JSON text; `found` is its type, `kind` what the source declares, None where it declares nothing."""
    as_text = kind is Kind.STRING
    if found.startswith("TIMESTAMP") and kind is Kind.MICROS:
        return f"CAST(epoch_us({column}) AS VARCHAR)"
    if found.startswith("TIMESTAMP") and not as_text:
        return f"CAST({milliseconds_sql(column)} AS VARCHAR)"
    if found == "DATE" and kind in (Kind.TIMESTAMP, Kind.MICROS):
        return f"CAST(epoch_{'us' if kind is Kind.MICROS else 'ms'}({column}) AS VARCHAR)"
    if found == "DATE" and kind is not None and not as_text:
        return f"CAST({column} - DATE '1970-01-01' AS VARCHAR)"
    if found.startswith("TIME") and kind is Kind.TIME:
        return f"CAST(epoch_ms({column}) AS VARCHAR)"
    if found == "BLOB":
        return f"CAST(to_json(base64({column})) AS VARCHAR)"
    if found.startswith("DECIMAL") and not as_text:  # all digits: JSON's writer would make it a DOUBLE
        return f"CAST({column} AS VARCHAR)"
    if as_text and found != "VARCHAR" and not found.endswith("]"):
        return f"CAST(to_json(CAST({column} AS VARCHAR)) AS VARCHAR)"
    text = f"CAST(to_json({column}) AS VARCHAR)"
    if found in ("FLOAT", "DOUBLE"):  # NaN and the infinities, which are no JSON, as the JSON format writes them
        return f"CASE WHEN isfinite({column}) THEN {text} ELSE concat('\"', {text}, '\"') END"
    return text


_READERS: dict[FileFormat, Callable[[Job, KeyWriter, duckdb.DuckDBPyConnection, FilePosition], Iterator[Chunk]]] = {
    "jsonl": _json_chunks,
    "csv": _csv_chunks,
    "parquet": _parquet_chunks,
}


# SQL.


def _json_object(pairs: Sequence[tuple[str, str]]) -> str:
    """SQL that makes a JSON object of names and expressions that give JSON text; null without any."""
    if not pairs:
        return "CAST(NULL AS VARCHAR)"
    members = [f"{quoted_text(json.dumps(name) + ':')}, coalesce({value}, 'null')" for name, value in pairs]
    return "concat('{', " + ", ',', ".join(members) + ", '}')"


def _time(text: str) -> str:
    """Milliseconds of a whole number or an ISO-8601 time (UTC unless it says otherwise); null for anything else."""
    number = f"CASE WHEN regexp_full_match({text}, '{_INTEGER}') THEN CAST({text} AS BIGINT) END"
    return f"coalesce({number}, {milliseconds_sql(f'try_cast({text} AS TIMESTAMPTZ)')})"


def _path(name: str) -> str:
    return quoted_text('$."' + name.replace('"', '\\"') + '"')

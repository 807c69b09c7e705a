"""Files of JSON lines, CSV or Parquet into a topic, in bulk: columns in DuckDB and Arrow, no Python per record.

Keys are encoded once per distinct key. A file is imported in transactions of `TRANSACTION_BYTES`; a small one in one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compiler.diagnostics.suggest import did_you_mean
from compiler.plan.topology import SourceDef
from compiler.plan.types import Kind
from flowql.errors import CommandError
from flowql.topics.codecs import KeyWriter, ValueWriter
from runtime.errors import BadRecord
from runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, Log, TopicPartition
from runtime.log.murmur2 import partitions as partitions_of

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 100_000
TRANSACTION_BYTES = 256 << 20
_INTEGER = r"-?[0-9]{1,18}"
FileFormat = Literal["csv", "jsonl", "parquet"]


@dataclass(frozen=True, slots=True)
class Job:
    """One import. keys: columns of the key, empty for those the source declares. timestamp: a column, None for `now_ms`."""

    topic: str
    partitions: int
    file: Path
    format: FileFormat
    source: SourceDef | None
    now_ms: int
    keys: tuple[str, ...] = ()
    timestamp: str | None = None
    key_format: str | None = None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records in columns: value (JSON bytes), key (JSON object of the key columns, or null), time (ms, or null), number (of the line)."""

    columns: pa.Table
    read_bytes: int


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
    raise CommandError(title, code="FQ5010", help="add  --format csv,  --format jsonl  or  --format parquet")


def import_file(log: Log, job: Job, transactional_id: str, advance: Callable[[int], None]) -> int:
    """Write the records of a file to the topic, which is made if missing. Returns how many. Raises CommandError.

    advance: told of bytes read. A failure leaves the transactions that were committed before it; of a file below
    TRANSACTION_BYTES that is none.
    """
    log.admin().create_topic(job.topic, job.partitions)
    keys = KeyWriter(job.source, job.key_format)
    values = ValueWriter(job.source)
    producer = log.producer(transactional_id)
    producer.expect_partitions(job.topic, job.partitions)
    count = pending = 0
    producer.begin()
    try:
        for chunk in _chunks(job, keys):
            for partition, records in _records(chunk, job, keys, values, count):
                producer.send(TopicPartition(job.topic, partition), records)
                pending += records.nbytes
            count += chunk.columns.num_rows
            advance(chunk.read_bytes)
            if pending > TRANSACTION_BYTES:
                producer.commit()
                producer.begin()
                pending = 0
        producer.commit()
    finally:
        producer.close()
    return count


# Reading.


def _chunks(job: Job, keys: KeyWriter) -> Iterator[_Chunk]:
    database = duckdb.connect(config={"threads": "1"})  # one thread keeps the order of the file
    database.execute("SET TimeZone = 'UTC'")
    try:
        yield from _READERS[job.format](job, keys, database)
    except duckdb.Error as e:
        raise CommandError(f"{job.file.name}: {str(e).splitlines()[0]}", code="FQ5010") from e
    finally:
        database.close()


def _json_chunks(job: Job, keys: KeyWriter, database: duckdb.DuckDBPyConnection) -> Iterator[_Chunk]:
    """Lines as they are; DuckDB checks them and takes key and time out."""
    named: _Named | None = None
    line = 1
    for data in _blocks(job.file):
        database.register("lines", _lines(data, line, job))
        _refuse_bad_lines(database, job)
        if named is None:
            names = database.execute("SELECT DISTINCT unnest(json_keys(line)) FROM (FROM lines LIMIT 1000)").fetchall()
            named = _named(job, keys, sorted(n for (n,) in names))
        key = _json_object(
            [(column, f"CAST(json_extract(line, {_path(name)}) AS VARCHAR)") for column, name in named.keys]
        )
        time = _time(f"json_extract_string(line, {_path(named.time)})" if named.time is not None else "NULL")
        sql = f"SELECT encode(line) AS value, {key} AS key, {time} AS time, number FROM lines"
        yield _Chunk(database.sql(sql).to_arrow_table(), len(data))
        line += data.count(b"\n")


def _csv_chunks(job: Job, keys: KeyWriter, database: duckdb.DuckDBPyConnection) -> Iterator[_Chunk]:
    """Rows as JSON objects, typed as the source declares, else as DuckDB finds them to be."""
    file = _quoted(str(job.file))
    columns = database.execute(f"DESCRIBE SELECT * FROM read_csv({file}, header = true)").fetchall()
    declared = {f.name.upper(): f for f in job.source.schema} if job.source is not None else {}
    typed: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    for name, found, *_ in columns:
        field = declared.get(name.upper())
        typed[name] = _csv_value(_name(name), field.type.kind if field is not None else _KINDS.get(found, Kind.STRING))
        fields.append((field.name if field is not None else name, typed[name]))
    named = _named(job, keys, [c[0] for c in columns])
    key = _json_object([(column, typed[name]) for column, name in named.keys])
    time = _time(_name(named.time) if named.time is not None else "NULL")
    sql = (
        f"SELECT encode({_json_object(fields)}) AS value, {key} AS key, {time} AS time, row_number() OVER () + 1 AS number "
        f"FROM read_csv({file}, header = true, all_varchar = true)"
    )
    for batch in database.sql(sql).to_arrow_reader(CHUNK_ROWS):
        yield _Chunk(pa.Table.from_batches([batch]), batch.nbytes)


_KINDS = {"BIGINT": Kind.BIGINT, "DOUBLE": Kind.DOUBLE, "BOOLEAN": Kind.BOOLEAN}
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"  # what JSON calls one
_NUMERIC = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)


def _csv_value(column: str, kind: Kind) -> str:
    """A CSV field as JSON text; what does not look like its type stays a text, and is found when it is read."""
    text = f"CAST(to_json({column}) AS VARCHAR)"
    if kind in _NUMERIC:  # the digits as they are: a DECIMAL must not pass through a DOUBLE
        return f"CASE WHEN regexp_full_match({column}, '{_NUMBER}') THEN {column} ELSE {text} END"
    if kind is Kind.BOOLEAN:
        return f"CASE WHEN lower({column}) IN ('true', 'false') THEN lower({column}) ELSE {text} END"
    return text


def _parquet_chunks(job: Job, keys: KeyWriter, database: duckdb.DuckDBPyConnection) -> Iterator[_Chunk]:
    """Rows as JSON objects, in the JSON that declared columns are read from: times in ms, dates in days, bytes in base64."""
    file = f"read_parquet({_quoted(str(job.file))})"
    columns = database.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()
    declared = {f.name.upper(): f for f in job.source.schema} if job.source is not None else {}
    typed: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    for name, found, *_ in columns:
        field = declared.get(name.upper())
        typed[name] = _parquet_value(_name(name), found, field.type.kind if field is not None else None)
        fields.append((field.name if field is not None else name, typed[name]))
    named = _named(job, keys, [c[0] for c in columns])
    key = _json_object([(column, typed[name]) for column, name in named.keys])
    time = _time(f"CAST({_name(named.time)} AS VARCHAR)" if named.time is not None else "NULL")
    sql = (
        f"SELECT encode({_json_object(fields)}) AS value, {key} AS key, {time} AS time, row_number() OVER () AS number "
        f"FROM {file}"
    )
    for batch in database.sql(sql).to_arrow_reader(CHUNK_ROWS):
        yield _Chunk(pa.Table.from_batches([batch]), batch.nbytes)


def _parquet_value(column: str, found: str, kind: Kind | None) -> str:
    """A Parquet value as JSON text; `found` is its type, `kind` what the source declares, None where it declares nothing."""
    as_text = kind is Kind.STRING
    if found.startswith("TIMESTAMP") and not as_text:
        return f"CAST(epoch_ms({column}) AS VARCHAR)"
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
    return f"CAST(to_json({column}) AS VARCHAR)"


_READERS = {"jsonl": _json_chunks, "csv": _csv_chunks, "parquet": _parquet_chunks}


def _blocks(file: Path) -> Iterator[bytes]:
    """The file in pieces that end with a line."""
    with file.open("rb") as stream:
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


def _lines(data: bytes, first: int, job: Job) -> pa.Table:
    """The lines that are not blank, and their numbers."""
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        number = first + data.count(b"\n", 0, e.start)
        raise CommandError(f"{job.file.name}:{number}: this is not UTF-8 text", code="FQ5010") from None
    lines = pc.utf8_trim_whitespace(pc.split_pattern(pa.array([text]), "\n").flatten())
    table = pa.table({"line": lines, "number": pa.array(np.arange(first, first + len(lines)))})
    return table.filter(pc.not_equal(lines, ""))


def _refuse_bad_lines(database: duckdb.DuckDBPyConnection, job: Job) -> None:
    for test in ("NOT json_valid(line)", "json_type(line) <> 'OBJECT'"):
        bad = database.execute(f"SELECT number, line FROM lines WHERE {test} ORDER BY number LIMIT 1").fetchone()
        if bad is not None:
            title = f"{job.file.name}:{bad[0]}: this line is not a JSON object: {str(bad[1])[:60]}"
            raise CommandError(title, code="FQ5010", help="write one object per line, without commas between them")


# Columns of the file.


@dataclass(frozen=True, slots=True)
class _Named:
    """Which columns of the file are the key (key column, name in the file) and the time."""

    keys: tuple[tuple[str, str], ...]
    time: str | None


def _named(job: Job, keys: KeyWriter, names: Sequence[str]) -> _Named:
    time = _find(job.timestamp, names, job) if job.timestamp is not None else None
    if not job.keys:  # those the source declares, as far as the file has them
        found = [(c, n) for c in keys.columns if job.source is not None for n in names if n.upper() == c.upper()]
        return _Named(tuple(found), time)
    if len(job.keys) != len(keys.columns):
        declared = (
            f"{job.source.name} declares {len(keys.columns)}"
            if job.source is not None
            else "without a declared source there is one"
        )
        raise CommandError(f"--key names {len(job.keys)} columns, and {declared}", code="FQ5010")
    given = {k.upper(): k for k in job.keys}
    by_name = all(c.upper() in given for c in keys.columns)
    pairs = [(c, given[c.upper()]) for c in keys.columns] if by_name else list(zip(keys.columns, job.keys, strict=True))
    return _Named(tuple((c, _find(k, names, job)) for c, k in pairs), time)


def _find(wanted: str, names: Sequence[str], job: Job) -> str:
    """The file's spelling of a column; CommandError when it has none such."""
    if wanted in names:
        return wanted
    for name in names:
        if name.upper() == wanted.upper():
            return name
    hint = did_you_mean(wanted, names) or f"it has {', '.join(names)}"
    raise CommandError(f"{job.file.name} has no column `{wanted}`", code="FQ5010", help=hint)


def _json_object(pairs: Sequence[tuple[str, str]]) -> str:
    """SQL that makes a JSON object of names and expressions that give JSON text; null without any."""
    if not pairs:
        return "CAST(NULL AS VARCHAR)"
    members = [f"{_quoted(json.dumps(name) + ':')}, coalesce({value}, 'null')" for name, value in pairs]
    return "concat('{', " + ", ',', ".join(members) + ", '}')"


def _time(text: str) -> str:
    """Milliseconds of a whole number or an ISO-8601 time (UTC unless it says otherwise); null for anything else."""
    number = f"CASE WHEN regexp_full_match({text}, '{_INTEGER}') THEN CAST({text} AS BIGINT) END"
    return f"coalesce({number}, epoch_ms(try_cast({text} AS TIMESTAMPTZ)))"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _path(name: str) -> str:
    return _quoted('$."' + name.replace('"', '\\"') + '"')


# Writing.


def _records(
    chunk: _Chunk, job: Job, keys: KeyWriter, values: ValueWriter, before: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of a chunk per partition, in the order of the file. before: records of earlier chunks."""
    rows = chunk.columns.num_rows
    key = _encoded_keys(chunk, job, keys)
    value = chunk.columns.column("value").combine_chunks().cast(pa.binary())
    if not values.as_is:
        value = _encoded_values(chunk, value, job, values)
    spread = (np.arange(rows) + before) % job.partitions  # records without a key take turns
    partition = partitions_of(key, job.partitions, spread)
    records = pa.record_batch([_times(chunk, job), key, value, pa.nulls(rows, HEADERS_TYPE)], schema=PRODUCE_SCHEMA)
    for p in range(job.partitions):
        chosen = np.flatnonzero(partition == p)
        if len(chosen):
            yield p, records if len(chosen) == rows else records.take(pa.array(chosen))


def _times(chunk: _Chunk, job: Job) -> pa.Array:
    if job.timestamp is None:
        return pa.array(np.full(chunk.columns.num_rows, job.now_ms))
    time = chunk.columns.column("time").combine_chunks().cast(pa.int64())
    if time.null_count:
        number = _number(chunk, int(np.flatnonzero(time.is_null().to_numpy(zero_copy_only=False))[0]))
        title = f"{job.file.name}:{number}: `{job.timestamp}` is not a time"
        raise CommandError(
            title, code="FQ5010", help="milliseconds since 1970, or ISO-8601 such as 2013-01-01T05:00:00Z"
        )
    return time


def _encoded_keys(chunk: _Chunk, job: Job, keys: KeyWriter) -> pa.Array:
    """Each distinct key is encoded once."""
    column = chunk.columns.column("key").combine_chunks().dictionary_encode()
    encoded: list[bytes | None] = []
    for i, document in enumerate(column.dictionary.to_pylist()):
        try:
            encoded.append(keys.encode(document.encode()))
        except BadRecord as e:
            row = int(np.flatnonzero(column.indices.to_numpy(zero_copy_only=False) == i)[0])
            raise CommandError(f"{job.file.name}:{_number(chunk, row)}: the key {document}: {e}", code="FQ5010") from e
    return pa.array(encoded, pa.binary()).take(column.indices)


def _encoded_values(chunk: _Chunk, documents: pa.Array, job: Job, values: ValueWriter) -> pa.Array:
    encoded: list[bytes | None] = []
    for row, document in enumerate(documents.to_pylist()):
        try:
            encoded.append(values.encode(document))
        except BadRecord as e:
            raise CommandError(f"{job.file.name}:{_number(chunk, row)}: {e}", code="FQ5010") from e
    return pa.array(encoded, pa.binary())


def _number(chunk: _Chunk, row: int) -> int:
    return int(chunk.columns.column("number")[row].as_py())

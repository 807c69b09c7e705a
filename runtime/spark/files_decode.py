"""Rows of files as rows of a source, in Spark's Python workers. No pyspark.

JSON lines and CSV rows are read by the runtime's own JSON decoder, so they mean what the same record in a topic means, and bad
ones are dead letters with the same codes. Columns of Parquet files have types already; only their time can be bad.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Format, Scan, Sink
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.compiler.plan.types import Kind
from flowql.runtime.batch import Batch, from_columns
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, DeadLetter, MicroBatchContext
from flowql.runtime.operators.decode import BAD_TIME, NO_TIME, NULL_KEY, Decoder, time_reader
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.output.partitioner import split
from flowql.runtime.spark.settings import TopicFiles
from flowql.runtime.spark.shapes import DEAD, EMITTED, SINK, to_ipc
from flowql.runtime.task.dead_letters import LocatedDeadLetter, encode

BAD_ROW = BadRecord.code
_NO_FOLDERS: Mapping[str, pa.Array] = {}
NOWHERE = -1  # partition and offset of a row that is in no topic


@dataclass(frozen=True, slots=True)
class Decoded:
    """Good rows of one batch in the roles of the source, and why others are not; `letters` lie in `raw`."""

    rows: Batch
    letters: Sequence[DeadLetter]
    raw: RawBatch


class FileDecoder:
    """Decodes rows of one source's files. Holds no data."""

    def __init__(self, source: SourceDef) -> None:
        self.source = source
        self.flat = Schema(tuple(replace(f, role="value") for f in source.schema))  # a file has no separate key
        scan = Scan(
            source.name,
            source.topic,
            "stream",
            Format("NONE"),
            Format("JSON", standard=source.value_format.standard),
            source.timestamp,
            declared=self.flat,
            times=source.times,
            on_error=source.on_error,
        )
        self._decoder = Decoder(scan, self.flat)
        self._time = None
        if source.timestamp is not None:
            field = source.schema.get(source.timestamp.column)
            assert field is not None, "the compiler checks that the timestamp column is declared"
            self._time = (source.schema.names.index(field.name), time_reader(field.type, source.timestamp.pattern))

    def lines(self, lines: pa.Array, times: pa.Array) -> Decoded:
        """JSON documents, with the times of their files."""
        raw = self._raw(lines, times)
        run = MicroBatchContext(NO_STATE)
        rows = self._decoder.decode(raw, run)
        return self._with_keys(rows, run.dead_letters, raw)

    def columns(self, columns: Sequence[pa.Array], times: pa.Array) -> Decoded:
        """Columns of `arrow_type` in the order of the source."""
        n = len(times)
        rowtime = np.array(times.to_numpy(zero_copy_only=False), np.int64)
        letters: list[DeadLetter] = []
        good = np.ones(n, bool)
        if self._time is not None:
            column, rowtime = self._times(columns)
            wall_ms = SystemClock().wall_ms()
            wanted = self.source.times
            good = (rowtime >= wanted.first_ms(of_column=True)) & (rowtime < wanted.end_ms(wall_ms))
            letters = [
                DeadLetter(int(i), BAD_TIME, self._bad_time(column[int(i)].as_py(), int(rowtime[i]), wall_ms))
                for i in np.flatnonzero(~good)
            ]
        batch = from_columns(self.flat, columns, rowtime, seq=np.arange(n))
        raw = self._raw(pa.nulls(n, pa.binary()), times)
        if letters:
            batch = batch.take(np.flatnonzero(good))
        return self._with_keys(batch, letters, raw)

    def _times(self, columns: Sequence[pa.Array]) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.int64]]]:
        """The column that has the times, as texts or whole numbers, and the times; NO_TIME for those that cannot be read."""
        assert self._time is not None, "the source names no column"
        at, read = self._time
        if not pa.types.is_string(columns[at].type):
            column = columns[at].view(pa.int64())
            return column, column.fill_null(NO_TIME).to_numpy(zero_copy_only=False)
        found = np.full(len(columns[at]), NO_TIME, np.int64)
        for i, value in enumerate(columns[at].to_pylist()):
            with suppress(ValueError, ArithmeticError):
                found[i] = NO_TIME if value is None else read(value)
        return columns[at], found

    def _bad_time(self, value: Any, time_ms: int, wall_ms: int) -> str:
        column = self.source.timestamp.column if self.source.timestamp else ""
        why_not = str(value) if time_ms == NO_TIME else self.source.times.why_not(time_ms, wall_ms, of_column=True)
        return f"timestamp column {column} cannot be used: {'it is NULL' if value is None else why_not}"

    def _raw(self, lines: pa.Array, times: pa.Array) -> RawBatch:
        n = len(lines)
        nowhere = pa.array(np.full(n, NOWHERE, np.int64))
        headers = pa.nulls(n, RECORD_SCHEMA.field("headers").type)
        arrays = [nowhere, times.cast(pa.int64()), pa.nulls(n, pa.binary()), lines, headers]
        records = pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)
        return RawBatch(TopicPartition(self.source.topic, NOWHERE), records, NOWHERE, records.nbytes)

    def _with_keys(self, rows: Batch, letters: Sequence[DeadLetter], raw: RawBatch) -> Decoded:
        """A row of a table needs a key."""
        if self.source.kind == "table" and self.source.schema.key and len(rows):
            keys = [rows.column(f.name) for f in self.source.schema.key]
            missing = np.array([all(v is None for v in key) for key in zip(*keys, strict=True)])
            if missing.any():
                seqs = rows.seq[missing].tolist()
                letters = [*letters, *(DeadLetter(s, NULL_KEY, "a record of a table needs a key") for s in seqs)]
                rows = rows.take(np.flatnonzero(~missing))
        return Decoded(rows.select(self.source.schema), letters, raw)


@lru_cache(maxsize=64)
def decoder_of(source: SourceDef) -> FileDecoder:
    """The decoder of a source, made once per worker."""
    return FileDecoder(source)


def without(decoded: Decoded, wrong: np.ndarray[Any, np.dtype[np.bool_]], code: str, message: str) -> Decoded:
    """The same, with dead letters in the place of good rows that are `wrong`, which has a value for each row of the batch."""
    seq = decoded.rows.seq
    gone = wrong[seq]
    if not gone.any():
        return decoded
    told = [DeadLetter(int(i), code, message) for i in seq[gone]]
    return replace(decoded, rows=decoded.rows.take(np.flatnonzero(~gone)), letters=[*decoded.letters, *told])


def csv_lines(
    batch: pa.RecordBatch, names: Sequence[str], booleans: frozenset[str], folders: Mapping[str, pa.Array] = _NO_FOLDERS
) -> pa.Array:
    """Columns of texts, or those of folders, as JSON documents; the JSON reader takes numbers as texts, but no booleans."""
    columns = {name: folders.get(name, batch.column(name)).to_pylist() for name in names}
    for name in booleans & columns.keys():
        columns[name] = [boolean(v) for v in columns[name]]
    rows = zip(*columns.values(), strict=True)
    return pa.array([orjson.dumps(dict(zip(columns, row, strict=True))) for row in rows], pa.binary())


def boolean(text: str | None) -> bool | str | None:
    known = {"true": True, "false": False}
    return None if text is None else known.get(text.strip().lower(), text)


class Emitter:
    """Decoded rows as EMITTED rows for the source's topic, by one Spark task."""

    def __init__(self, source: SourceDef, partitions: int, query: str, task: int) -> None:
        self._topic, self._partitions, self._query, self._task = source.topic, partitions, query, task
        sink = Sink(source.name, source.topic, source.kind, source.key_format, source.value_format)
        self._encoder = Encoder(sink, source.schema)
        self._seq = 0

    def emit(self, decoded: Decoded) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = []
        if len(decoded.rows):
            for partition, records in split(self._encoder.encode(decoded.rows), self._partitions, self._task):
                rows.append(self._row(SINK, self._topic, partition, records))
        if decoded.letters:
            located = [LocatedDeadLetter(d, decoded.raw, d.seq, in_files=True) for d in decoded.letters]
            rows.append(self._row(DEAD, self._query, 0, encode(self._query, located)))
        return pa.RecordBatch.from_pylist(rows, schema=EMITTED)

    def _row(self, kind: str, topic: str, partition: int, records: pa.RecordBatch) -> dict[str, Any]:
        self._seq += 1
        return {
            "kind": kind,
            "topic": topic,
            "partition": partition,
            "source": self._task,
            "seq": self._seq,
            "ipc": to_ipc(records),
        }


@lru_cache(maxsize=64)
def topic_decoder(source: SourceDef, schema: Schema) -> Decoder:
    """Decodes records of the source's topic. schema: the columns that are wanted."""
    return Decoder(scan_of(source), schema)


def topic_rows(source: SourceDef, schema: Schema, raw: RawBatch) -> Batch:
    """The rows of records; those that cannot be read are left out (whoever reads the topic in a query notes them)."""
    return topic_decoder(source, schema).decode(raw, MicroBatchContext(NO_STATE))


@lru_cache(maxsize=64)
def _text_encoder(schema: Schema) -> Encoder:
    return Encoder(Sink("files", "files", "stream", Format("NONE"), Format("JSON")), schema)


def json_texts(schema: Schema, columns: Sequence[pa.Array]) -> pa.Array:
    """Columns of `arrow_type` as JSON documents, all in the value."""
    flat = Schema(tuple(replace(f, role="value") for f in schema))
    n = len(columns[0])
    batch = from_columns(flat, columns, np.zeros(n, np.int64), seq=np.arange(n))
    return _text_encoder(flat).encode(batch).column("value").cast(pa.string())


_NULL = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = date(1970, 1, 1)
_PART = re.compile(r" behind byte [0-9]+$")  # of a file that is read in several
_OBJECT, _EMPTY, _END = r"^\s*\{.*\}\s*$", r"^\s*\{\s*\}\s*$", r"\s*\}\s*$"


@dataclass(frozen=True, slots=True)
class Folders:
    """Texts of declared columns, one per file, and the file of each row by its place among them."""

    columns: Mapping[str, Sequence[str | None]]
    of_rows: pa.Array

    def column(self, name: str) -> pa.Array:
        """The texts of a column, one per row."""
        return pa.array(self.columns[name], pa.string()).take(self.of_rows)


def folders_of(source: SourceDef, files: TopicFiles, paths: pa.Array) -> Folders:
    """The declared columns of JSON and CSV files that folders such as `day=2024-01-01` name. paths: the file of each row, as a URI.

    Spark would guess their types, and a text `02` would be the number 2. Parquet files have types, so theirs are Spark's.
    """
    told = paths.dictionary_encode()
    root = _root(files)
    found = [_values(path, root) for path in told.dictionary.to_pylist()]
    columns: dict[str, Sequence[str | None]] = {}
    for f in source.schema:
        name = f.name.upper()
        if any(name in values for values in found):
            texts = [values.get(name) for values in found]
            columns[f.name] = [_days(x) for x in texts] if f.type.kind is Kind.DATE else texts
    return Folders(columns, told.indices)


def json_lines(lines: pa.Array, folders: Folders, booleans: frozenset[str]) -> pa.Array:
    """Documents with the columns of folders behind their own; what is no object stays as it is."""
    if not folders.columns:
        return lines
    named = (
        {n: boolean(x) if n in booleans else x for n, x in zip(folders.columns, row, strict=True)}
        for row in zip(*folders.columns.values(), strict=True)
    )
    tails = pa.array([orjson.dumps(values)[1:] for values in named], pa.binary()).take(folders.of_rows)
    nothing = pa.scalar(b"", pa.binary())
    between = pc.if_else(pc.match_substring_regex(lines, _EMPTY), nothing, pa.scalar(b",", pa.binary()))
    body = pc.replace_substring_regex(lines, _END, "")
    made = pc.binary_join_element_wise(body, between, tails, nothing)
    return pc.if_else(pc.match_substring_regex(lines, _OBJECT), made, lines)


def _root(files: TopicFiles) -> str:
    """The path of the folder under which folders are columns."""
    path = files.options.get("basePath", files.path)
    path = urlparse(path).path if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path
    return re.split(r"[^/]*[*?\[{]", path, maxsplit=1)[0].rstrip("/")


def _values(path: str, root: str) -> dict[str, str | None]:
    """Name in upper case -> value of the folders of a file below the root."""
    found = unquote(urlparse(_PART.sub("", path)).path)
    below = found.removeprefix(root) if found.startswith(f"{root}/") else found
    pairs = (part.split("=", 1) for part in below.split("/")[:-1] if "=" in part)
    return {unquote(n).upper(): None if v == _NULL else unquote(v) for n, v in pairs}


def _days(text: str | None) -> str | None:
    """A date as JSON documents have it: days since 1970. What is no date stays, and is told by the decoder."""
    if text is None:
        return None
    try:
        return str((date.fromisoformat(text) - _EPOCH).days)
    except ValueError:
        return text

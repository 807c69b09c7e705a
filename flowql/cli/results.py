"""Answers, written as they come: aligned, as JSON, CSV, Arrow or Parquet, to stdout or to a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

import pyarrow as pa
import typer

from flowql.cli.options import Output
from flowql.cli.render import counted, note, plain, table_lines, write_csv, write_json, write_lines
from flowql.query.answer import Answer, Done
from flowql.query.errors import COVERAGE, MISSING, STANDBY
from flowql.query.far_times import values_or_texts

BINARY = (Output.ARROW, Output.PARQUET)
ENDINGS = {f".{o.value}": o for o in Output if o is not Output.TABLE}


def destination(given: Sequence[str], default: Output) -> tuple[Output, Path | None]:
    """How and where to write: words that are no format name a file, whose ending decides if nothing else does.

    Raises usage errors for two of a kind, and for binary formats on a terminal, which they may confuse.
    """
    words = {o.value: o for o in Output}
    forms = [words[g] for g in given if g in words]
    files = [Path(g) for g in given if g not in words]
    if len(forms) > 1 or len(files) > 1:
        raise typer.BadParameter(f"-o takes one format and one file, not {' and '.join(given)}")
    file = files[0] if files else None
    if file is not None and not forms and file.suffix.lower() not in ENDINGS:
        raise typer.BadParameter(f"-o {file}: choose from {', '.join(words)}, or a file that ends in one of them")
    form = forms[0] if forms else ENDINGS[file.suffix.lower()] if file is not None else default
    if form in BINARY and file is None and sys.stdout.isatty():
        raise typer.BadParameter(
            f"-o {form.value} is not for a terminal: name a file (-o rows.{form.value}) or use a pipe"
        )
    return form, file


def write_answer(answer: Answer, output: Output, file: Path | None = None) -> int:
    """Write all rows; how many there were. A file appears when it is whole."""
    counted = _Counted(answer)
    if output in BINARY:
        with _binary(file) as sink:
            _write_binary(sink, answer.schema, counted, output)
    else:
        with _text(file) as text:
            _write_text(text, answer, counted, output)
    return counted.rows


def done_line(done: Done) -> str:
    """The effect of a statement, in a line."""
    return f"{done.verb} {counted(done.rows, 'row')} of {done.table}"


def partly(answer: Answer) -> str:
    """How many partitions an incomplete answer covers, and why; empty for a complete one."""
    metadata = answer.schema.metadata or {}
    if MISSING not in metadata:
        return ""
    why = metadata[MISSING].decode()
    return metadata[COVERAGE].decode() + (f": {why}" if why else "")


class _Counted:
    """Batches, and how many rows they had."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self.rows = answer, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._answer.batches:
            self.rows += batch.num_rows
            yield batch


def _write_binary(sink: IO[bytes], schema: pa.Schema, batches: _Counted, output: Output) -> None:
    if output is Output.ARROW:
        with pa.ipc.new_stream(sink, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return
    import pyarrow.parquet as pq  # 0.1 s that others do without

    with pq.ParquetWriter(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_text(file: TextIO, answer: Answer, batches: _Counted, output: Output) -> None:
    schema, rows = answer.schema, python_rows(batches)
    if output is Output.JSON and (said := _said(answer)):  # an array would be taken for all of it
        file.write(f'{json.dumps(said).removesuffix("}")}, "rows":\n')
        write_json(file, schema.names, rows)
        file.write("}\n")
    elif output is Output.JSON:
        write_json(file, schema.names, rows)
    elif output is Output.CSV:
        write_csv(file, schema.names, rows)
    else:
        write_lines(file, answer_lines(schema, rows))
        if not batches.rows:
            note("(none)")


def _said(answer: Answer) -> dict[str, str]:
    """How many partitions an incomplete answer covers, and for which of them standby copies answer."""
    metadata = answer.schema.metadata or {}
    keys = {COVERAGE: "partitions", MISSING: "missing"} if MISSING in metadata else {}
    return {name: metadata[key].decode() for key, name in {**keys, STANDBY: "standby"}.items() if key in metadata}


def answer_lines(schema: pa.Schema, rows: Iterator[Sequence[Any]]) -> Iterator[str]:
    """Rows as an aligned table; numbers end at one place."""
    right = [
        pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in (f.type for f in schema)
    ]
    return table_lines(schema.names, ([plain(v) for v in row] for row in rows), right)


def python_rows(batches: Iterator[pa.RecordBatch] | _Counted) -> Iterator[Sequence[Any]]:
    for batch in batches:
        yield from zip(*(values_or_texts(column) for column in batch.columns), strict=True)


@contextmanager
def _binary(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _replacing(file) as part, part.open("wb") as made:
        yield made


@contextmanager
def _text(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with _replacing(file) as part, part.open("w", encoding="utf-8", newline="") as made:
        yield made


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A file beside it that takes its place at the end, or is removed if that is not reached."""
    part = file.with_name(f".{file.name}.part")
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)

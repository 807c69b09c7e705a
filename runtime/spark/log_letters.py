"""Dead letters of a native stream on their way to the commit: files by what they were found in. No pyspark.

Spark runs a batch that failed again over the same records, and its readers cut them alike, so the same file is written again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.spark.log_append import Piece
from flowql.runtime.spark.shapes import DEAD, from_ipc

_SUFFIX = ".letters"


def put_letters(folder: Path, raw: RawBatch, letters: bytes) -> None:
    """Keep the dead letters (IPC of PRODUCE_SCHEMA) of these records. In a worker."""
    folder.mkdir(parents=True, exist_ok=True)
    topic = quote(raw.tp.topic, safe="")
    path = folder / f"{topic}={raw.tp.partition}={raw.first_offset}={raw.next_offset}{_SUFFIX}"
    unready = path.with_suffix(f".{os.getpid()}")
    unready.write_bytes(letters)
    unready.replace(path)


def letters_between(
    folder: Path, query: str, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Iterator[Piece]:
    """The dead letters of records from `start` to `end`, in their order."""
    for tp, first, after, path in sorted(_kept(folder)):
        if start.get(tp, 0) <= first and after <= end.get(tp, 0):
            yield Piece(DEAD, query, 0, tp.partition, first, from_ipc(path.read_bytes()))


def drop_letters(folder: Path, end: Mapping[TopicPartition, int]) -> None:
    """Those of records below `end` are in the log."""
    for tp, _, after, path in _kept(folder):
        if after <= end.get(tp, 0):
            path.unlink(missing_ok=True)


def _kept(folder: Path) -> Iterator[tuple[TopicPartition, int, int, Path]]:
    for path in folder.glob(f"*{_SUFFIX}"):
        topic, partition, first, after = path.stem.split("=")
        yield TopicPartition(unquote(topic), int(partition)), int(first), int(after), path

"""The ends of the partitions that a commit wrote, as text for the metadata of the position that counts the commit.

Brokers take 4,096 bytes of such metadata (`offset.metadata.max.bytes`). Names of topics share most of their characters, so the text is compressed.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from flowql.runtime.log.base import TopicPartition

CHARS_MAX = 3_600  # about 350 partitions; the text around it needs far less than the rest


class WrittenEnd(NamedTuple):
    """end: the partition's records ended there, or later, before the commit. mark: of the commit's last record in it (`mark_of`)."""

    end: int
    mark: int


def mark_of(records: pa.RecordBatch) -> int:
    """16 bits of the last record, by which it is found again. records: at least one row of PRODUCE_SCHEMA or RECORD_SCHEMA."""
    last = records.num_rows - 1
    return mark(records.column("key")[last].as_py(), records.column("value")[last].as_py())


def mark(key: bytes | None, value: bytes | None) -> int:
    """16 bits of a record.

    >>> mark(b"k", b"v") == mark(b"k", b"v") != mark(b"k", None)
    True
    """
    return zlib.crc32(value or b"", zlib.crc32(key or b"", value is None)) & 0xFFFF


def encode(ends: Mapping[TopicPartition, WrittenEnd]) -> str:
    """At most CHARS_MAX characters without a space; the last partitions are left out where there are too many.

    >>> decode(encode({TopicPartition("t", 2): WrittenEnd(10, 7)}))
    {TopicPartition(topic='t', partition=2): WrittenEnd(end=10, mark=7)}
    >>> encode({})
    ''
    """
    kept = list(ends.items())
    while len(text := _text(kept)) > CHARS_MAX:
        kept = kept[: len(kept) * CHARS_MAX // (len(text) + 40)]
    return text


def decode(text: str) -> dict[TopicPartition, WrittenEnd]:
    """Reverses `encode`: ends by topic and partition."""
    found: dict[TopicPartition, WrittenEnd] = {}
    for line in zlib.decompress(b85decode(text)).decode().splitlines() if text else ():
        topic, *entries = line.split(" ")
        for entry in entries:
            partition, end, marked = (int(number, 16) for number in entry.split(","))
            found[TopicPartition(topic, partition)] = WrittenEnd(end, marked)
    return found


def _text(ends: Iterable[tuple[TopicPartition, WrittenEnd]]) -> str:
    lines = [
        " ".join([topic, *(f"{tp.partition:x},{w.end:x},{w.mark:x}" for tp, w in of_topic)])
        for topic, of_topic in groupby(sorted(ends), key=lambda entry: entry[0].topic)
    ]
    return b85encode(zlib.compress("\n".join(lines).encode())).decode() if lines else ""

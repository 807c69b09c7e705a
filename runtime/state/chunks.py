"""Rows in chunks, for readers of many rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_FIRST, _GROWTH, _MAX = 32, 4, 4096


def chunk_sizes() -> Iterator[int]:
    """How many rows to read at a time: few at first, as a reader may want no more."""
    size = _FIRST
    while True:
        yield size
        size = min(_MAX, _GROWTH * size)


def chunked(rows: Iterator[tuple[K, V]]) -> Iterator[tuple[list[K], list[V]]]:
    """Keys and values of some rows at a time; none is empty."""
    for size in chunk_sizes():
        chunk = list(islice(rows, size))
        if not chunk:
            return
        yield [k for k, _ in chunk], [v for _, v in chunk]

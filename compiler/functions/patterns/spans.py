"""Parts of the strings of a column: where matches and their groups begin and end, in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowql.compiler.functions.lazy_arrow import Ints, np, pa, pc

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Spans:
    """Where each match and its groups begin and end, in bytes of its string; -1 for groups that did not take part.

    rows: the row of each match, in order. groups: number -> (begins, ends).
    """

    rows: Ints
    groups: dict[int, tuple[Ints, Ints]]

    def chosen(self, which: npt.NDArray[np.bool_]) -> Spans:
        return Spans(self.rows[which], {g: (b[which], e[which]) for g, (b, e) in self.groups.items()})


def in_order(parts: list[Spans], groups: frozenset[int]) -> Spans:
    """Matches by their rows; those of a row stay in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([p.rows for p in parts]) if parts else np.zeros(0, np.int64)
    order = np.argsort(rows, kind="stable")
    made = {}
    for g in groups:
        begins, ends = (np.concatenate([p.groups[g][i] for p in parts]) if parts else rows for i in (0, 1))
        made[g] = begins[order], ends[order]
    return Spans(rows[order], made)


def moved(found: Spans, by: Ints) -> Spans:
    """by: bytes, of each match."""
    moved = {g: (np.where(b < 0, -1, b + by), np.where(b < 0, -1, e + by)) for g, (b, e) in found.groups.items()}
    return Spans(found.rows, moved)


def first_of_row(found: Spans) -> npt.NDArray[np.bool_]:
    return np.diff(found.rows, prepend=-1) > 0


def texts(column: pa.Array, rows: Ints, begins: Ints, ends: Ints) -> pa.Array:
    """The parts of strings; NULL where a part begins at -1. column: strings without nulls."""
    offsets, data = buffers(column)
    sizes = np.where(begins < 0, 0, ends - begins)
    made = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(sizes, out=made[1:])
    source = np.repeat(offsets[rows] + np.maximum(begins, 0) - made[:-1], sizes) + np.arange(made[-1])
    picked = pa.py_buffer(data[source])
    absent = begins < 0
    valid = pa.array(~absent).buffers()[1] if absent.any() else None
    return pa.Array.from_buffers(pa.large_string(), len(rows), [valid, pa.py_buffer(made), picked]).cast(pa.string())


def buffers(column: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Where each string begins in the bytes of a column, and these; one more for the end of the last one."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return offsets, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def lengths(column: pa.Array) -> Ints:
    """In bytes."""
    sizes: Ints = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def next_character(data: npt.NDArray[np.uint8], at: Ints) -> Ints:
    """Behind the character that begins at a byte; one further at the end."""
    at = at + 1
    for _ in range(3):
        inside = at < len(data)
        at = at + (inside & (data[np.where(inside, at, 0)] & 0xC0 == 0x80) if len(data) else 0)
    return at


def character_before(data: npt.NDArray[np.uint8], at: Ints) -> Ints:
    """Where the character before a byte begins."""
    at = at - 1
    for _ in range(3):
        at = at - (data[at] & 0xC0 == 0x80)
    return at

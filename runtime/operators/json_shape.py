"""The shape of a flat JSON record: what all records of its kind have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_PAIR = re.compile(
    rb'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*(?:"([^"\\\x00-\x1f]*)"|([^"\\,{}\[\]\x00-\x20]+))'
)


@dataclass(frozen=True, slots=True)
class Shape:
    """literals[0] value literals[1] value ... literals[n]; `texts[i]`: value i stands between quotes; `keys[i]`: its key."""

    literals: tuple[bytes, ...]
    texts: tuple[bool, ...]
    keys: tuple[str, ...]

    @property
    def quotes(self) -> int:
        return sum(piece.count(b'"') for piece in self.literals)


def learn_shape(record: bytes) -> Shape | None:
    """The shape of a record; None if it is not an object of plain texts and scalars."""
    if not record.startswith(b"{") or not record.endswith(b"}"):
        return None
    literals, texts, keys = [], [], []
    start, at = 0, 1
    while (m := _PAIR.match(record, at)) is not None:
        is_text = m.group(2) is not None
        value = m.span(2 if is_text else 3)
        literals.append(record[start : value[0]])
        texts.append(is_text)
        keys.append(m.group(1))
        start, at = value[1], m.end()
        rest = record[at : at + 1]
        if rest == b"}" and at + 1 == len(record):
            try:
                names = tuple(k.decode() for k in keys)
            except UnicodeDecodeError:
                return None
            return Shape((*literals, record[start:]), tuple(texts), names)
        if rest != b",":
            return None
        at += 1
    return None


@lru_cache(maxsize=64)
def anchors(shape: Shape) -> tuple[tuple[int | None, int], ...]:
    """Where each literal starts: so many bytes from that quote of the record, None for the end of the record."""
    found: list[tuple[int | None, int]] = []
    quote = 0
    for piece in shape.literals:
        before = piece.find(b'"')
        found.append((None, -len(piece)) if before < 0 else (quote, -before))
        quote += piece.count(b'"')
    return tuple(found)

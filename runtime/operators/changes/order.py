"""Values to be ordered by as one text, so that state keeps rows in that order and finds the first one by a seek."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.functions.generated import compiled
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.operators.keys import freeze
from flowql.runtime.state.keys import value_encoder

# No tag is 00 or FF: bytes of texts end with 00 and may contain 00 FF, and those of descending columns are inverted. So what follows
# a text tells where it ends; behind a descending column an end mark does, as it may be the last one.
_NULL_FIRST, _VALUE, _NULL_LAST, _END = b"\x01", b"\x02", b"\x03", b"\x01"
_LIST_END, _FIELD, _NULL_FIELD = b"\x00", b"\x01", b"\x02"
_FROZEN = frozenset({Kind.DOUBLE, Kind.ARRAY, Kind.STRUCT, Kind.MAP})  # others are their own frozen form
# Written as `flowql.runtime.state.keys` does, in one step: the tag and 8 bytes with the sign flipped.
_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
_TAGGED, _SIGN = struct.Struct(">BQ"), 1 << 63
_INVERTED = bytes(255 - b for b in range(256))


@dataclass(frozen=True, slots=True)
class SortPart:
    """One value of a sort key."""

    type: SqlType
    descending: bool = False
    nulls_first: bool = False

    def reversed(self) -> SortPart:
        """The same value in the opposite order."""
        return SortPart(self.type, not self.descending, not self.nulls_first)


def order_text(parts: Sequence[SortPart]) -> Callable[[Sequence[Any]], str]:
    """A function from the values of a sort key to a text whose order (by code point) is the order of the keys.

    The text has one character per byte: a store keeps a text within a value in C, bytes are slow there.

    >>> from flowql.compiler.plan.types import INT
    >>> text = order_text([SortPart(INT, descending=True)])
    >>> sorted([3, None, 5], key=lambda v: text([v]))
    [5, 3, None]
    """
    columns = [_column(p) for p in parts]
    if len(columns) > 1 and all(p.type.kind in _WHOLE for p in parts):
        return _whole_text(parts, lambda values: b"".join([c(v) for c, v in zip(columns, values, strict=True)]))
    if len(columns) == 1:
        (only,) = columns
        return lambda values: only(values[0]).decode("latin-1")
    return lambda values: b"".join([c(v) for c, v in zip(columns, values, strict=True)]).decode("latin-1")


def _whole_text(parts: Sequence[SortPart], general: Callable[[Sequence[Any]], bytes]) -> Callable[[Sequence[Any]], str]:
    """The same in one step for whole numbers and times; values with a NULL among them take the general way."""
    form = struct.Struct(">" + "".join("BQB" if p.descending else "BQ" for p in parts))
    tag, end, top = _VALUE[0], _END[0], (1 << 64) - 1
    given = [
        f"{tag}, {top - _SIGN} - values[{i}], {end}" if p.descending else f"{tag}, values[{i}] + {_SIGN}"
        for i, p in enumerate(parts)
    ]
    packed = eval(compiled(f"lambda values: pack({', '.join(given)})", "eval"), {"pack": form.pack})

    def text(values: Sequence[Any]) -> str:
        try:
            made: bytes = packed(values)
        except TypeError:
            made = general(values)
        return made.decode("latin-1")

    return text


def _nested(t: SqlType) -> Callable[[Any], bytes]:
    """How a frozen value is written: as in a key, but NULL is the largest element of an array and the largest field, as in PostgreSQL."""
    if t.kind is Kind.ARRAY:
        element = _nested(t.element)
        return lambda v: b"".join([_NULL_LAST if x is None else _VALUE + element(x) for x in v]) + _LIST_END
    if t.kind is Kind.STRUCT:
        fields = [_nested(f) for _, f in t.fields]
        return lambda v: b"".join([_NULL_FIELD if x is None else _FIELD + f(x) for x, f in zip(v, fields, strict=True)])
    return value_encoder(t)


def _column(part: SortPart) -> Callable[[Any], bytes]:
    t = part.type
    null = _NULL_FIRST if part.nulls_first else _NULL_LAST
    if t.kind in _WHOLE and not part.descending:
        pack = _TAGGED.pack
        return lambda v: null if v is None else pack(_VALUE[0], v + _SIGN)
    encode = _nested(t)
    if part.descending:
        return lambda v: null if v is None else _VALUE + encode(freeze(v, t)).translate(_INVERTED) + _END
    if t.kind not in _FROZEN:
        return lambda v: null if v is None else _VALUE + encode(v)
    return lambda v: null if v is None else _VALUE + encode(freeze(v, t))

"""Values of stores as bytes: msgpack, with what msgpack cannot tell apart tagged.

Three forms, by the first byte (C1 is no msgpack type):
- a plain msgpack array: a tuple of numbers, text, bytes, booleans and nulls; no extra byte, no Python per element;
- C1 01: scalars (but bytes) and tuples of scalars: typed decoding brings tuples back in C;
- C1 02: anything: tuples nested deeper, Decimal, dicts with other than text keys and integers beyond 64 bits are msgpack
  extensions, as is text with lone surrogates; lists and dicts with text keys are themselves. A Decimal is its text, or a scale and 64 or 128 bits,
  which columns write (`decimal_lead`, `wide_decimal_lead`), and an integer its text or 128 bits (`WIDE_INT_LEAD`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import msgspec
import numpy as np

from flowql.compiler.functions.distinct_values import DistinctValues
from flowql.runtime.state.rows import Value

_Scalar = int | float | str | bool | None
_encode = msgspec.msgpack.Encoder().encode
_decode_plain = msgspec.msgpack.Decoder(tuple).decode
_decode_nested = msgspec.msgpack.Decoder(tuple[_Scalar | tuple[_Scalar, ...], ...]).decode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_plains = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_decode_nesteds = msgspec.msgpack.Decoder(list[tuple[_Scalar | tuple[_Scalar, ...], ...]]).decode

_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
_TYPED = _PLAIN - {bytes}  # msgspec cannot tell bytes from text in a union
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_TUPLE, _DECIMAL, _DICT, _INT, _TEXT, _SCALED, _WIDE_INT = 1, 2, 3, 4, 5, 6, 7
NESTED_MARK, TAGGED_MARK = b"\xc1\x01", b"\xc1\x02"
_ARRAY = struct.Struct(">BI")  # msgpack's longest header of an array
_NARROW, _WIDE = 8, 16  # bytes of a number behind its scale
_ARRAY_TAG, _EXT_8, _FIX_EXT_16 = 0xDD, 0xC7, 0xD8
_EXACT = Context(prec=60)
SHORT_EXT_MAX = 255  # bytes behind `tuple_lead`
# The bytes in front of the 128 bits of an integer, big-endian, in a value that begins with TAGGED_MARK.
WIDE_INT_LEAD = bytes([_FIX_EXT_16, _WIDE_INT])


def encode_value(value: Value) -> bytes:
    """The bytes of a value. Raises TypeError for what is no reference value.

    >>> decode_value(encode_value((1, (2, 3), [4], Decimal("5.0"))))
    (1, (2, 3), [4], Decimal('5.0'))
    """
    try:
        if _PLAIN.issuperset(map(type, value)):
            return _encode(value)
        if all([type(v) in _TYPED or (type(v) is tuple and _TYPED.issuperset(map(type, v))) for v in value]):
            return NESTED_MARK + _encode(value)
    except (OverflowError, UnicodeEncodeError):  # an integer beyond 64 bits, a lone surrogate
        pass
    if any(isinstance(v, DistinctValues) for v in value):
        return encode_value(tuple(tuple(v) if isinstance(v, DistinctValues) else v for v in value))
    return TAGGED_MARK + _encode([_tag(v) for v in value])


def decode_value(data: bytes) -> Value:
    """The inverse of `encode_value`."""
    if data[0] != 0xC1:
        return _decode_plain(data)
    if data[1] == 1:
        return _decode_nested(memoryview(data)[2:])
    return tuple(_untag(v) for v in _decode_any(memoryview(data)[2:]))


def decode_values(data: Sequence[bytes]) -> list[Value]:
    """As `decode_value` for each; as one list in C where all are of one form, as those of a store mostly are."""
    header = _ARRAY.pack(_ARRAY_TAG, len(data))
    marks = {d[:2] if d[0] == 0xC1 else b"" for d in data}
    if marks == {b""}:
        return _decode_plains(header + b"".join(data))
    if marks == {NESTED_MARK}:
        return _decode_nesteds(header + b"".join([d[2:] for d in data]))
    return list(map(decode_value, data))


def decimal_lead(scale: int) -> bytes:
    """The bytes in front of the 64 bits of n, big-endian, in a value that begins with TAGGED_MARK: together the Decimal n / 10**scale."""
    return bytes([_EXT_8, 1 + _NARROW, _SCALED, scale])


def wide_decimal_lead(scale: int) -> bytes:
    """As `decimal_lead`, in front of 128 bits."""
    return bytes([_EXT_8, 1 + _WIDE, _SCALED, scale])


def tuple_lead(length: int) -> bytes:
    """The bytes in front of the array of a tuple, of so many bytes, in a value that begins with TAGGED_MARK."""
    return bytes([_EXT_8, length, _TUPLE])


def array_header(length: int) -> bytes:
    """The bytes in front of the elements of an array."""
    if length < 1 << 4:
        return bytes([0x90 | length])
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return _ARRAY.pack(_ARRAY_TAG, length)


def encode_metadata(metadata: dict[str, Any]) -> bytes:
    """A task's metadata: any nest of reference values under text keys."""
    return encode_value((metadata,))


def decode_metadata(data: bytes) -> dict[str, Any]:
    """The inverse of `encode_metadata`: a new dict each time."""
    (metadata,) = decode_value(data)
    assert isinstance(metadata, dict)
    return metadata


def _tag(v: Any) -> Any:
    kind = type(v)
    if kind is int:
        if _INT_MIN <= v <= _INT_MAX:
            return v
        return msgspec.msgpack.Ext(_INT, str(v).encode())
    if kind is str and not _is_utf8(v):
        return msgspec.msgpack.Ext(_TEXT, v.encode("utf-8", "surrogatepass"))
    if kind in _PLAIN:
        return v
    if isinstance(v, list):
        return [_tag(x) for x in v]
    if isinstance(v, tuple):
        return msgspec.msgpack.Ext(_TUPLE, _encode([_tag(x) for x in v]))
    if isinstance(v, dict):
        if all(type(k) is str and _is_utf8(k) for k in v):
            return {k: _tag(x) for k, x in v.items()}
        return msgspec.msgpack.Ext(_DICT, _encode([_tag(x) for pair in v.items() for x in pair]))
    if isinstance(v, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(v).encode())
    if isinstance(v, np.generic):  # a column's element that was not converted
        return _tag(v.item())
    raise TypeError(f"a value of type {kind.__name__} cannot be kept in a store: {v!r}")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _untag(v: Any) -> Any:
    if isinstance(v, msgspec.msgpack.Ext):
        if v.code == _DECIMAL:
            return Decimal(bytes(v.data).decode())
        if v.code == _SCALED:
            data = bytes(v.data)
            return _EXACT.scaleb(Decimal(int.from_bytes(data[1:], "big", signed=True)), -data[0])
        if v.code == _WIDE_INT:
            return int.from_bytes(bytes(v.data), "big", signed=True)
        if v.code == _INT:
            return int(bytes(v.data))
        if v.code == _TEXT:
            return bytes(v.data).decode("utf-8", "surrogatepass")
        items = [_untag(x) for x in _decode_any(v.data)]
        return tuple(items) if v.code == _TUPLE else dict(zip(items[::2], items[1::2], strict=True))
    if isinstance(v, list):
        return [_untag(x) for x in v]
    if isinstance(v, dict):
        return {k: _untag(x) for k, x in v.items()}
    return v

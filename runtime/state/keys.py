"""Keys as bytes whose order is the order of the key tuples, NULL first.

Each part starts with a tag (0 NULL, 1 a value), so a tuple's prefix encodes to a prefix of its bytes: range bounds may be
prefixes. Integers and times are 8 bytes big-endian with the sign flipped; doubles their IEEE bits in total order, where
-0.0 is 0.0 and NaN is one value above all others, as in SQL; text and bytes end with 00, an inner 00 is 00 FF (no tag is
FF, so the end is unambiguous); decimals are 16 bytes of the unscaled integer, for the scale belongs to the type. A list
is its elements, each with tag 1 or 2, and an end mark 0, so a shorter list comes first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Ints
from flowql.runtime.state.rows import Key

_SIGN = 1 << 63
_MASK = (1 << 64) - 1
_DECIMAL_SIGN = 1 << 127
_EXACT = Context(prec=100)  # the default context would round a DECIMAL(38, s)
_NULL, _VALUE = b"\x00", b"\x01"
_LIST_END, _ELEMENT_NULL, _ELEMENT = b"\x00", b"\x01", b"\x02"
_INTEGERS = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})

_U64 = struct.Struct(">Q")
_F64 = struct.Struct(">d")
_TAGGED_U64 = struct.Struct(">BQ")

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]  # (data, start) -> (value, end)


class KeyCodec:
    """The encoding of one list of key types; make it through `key_codec`, which remembers them."""

    def __init__(self, types: tuple[SqlType, ...]) -> None:
        self.types = types
        self._encoders = [_encoder(t) for t in types]
        self._decoders = [_decoder(t) for t in types]
        self._single = types[0].kind if len(types) == 1 else None
        pair = len(types) == 2 and all(t.kind in _INTEGERS for t in types)  # as of a window of a number
        self._pair = struct.Struct(">BQBQ") if pair else None
        # Keys are looked up in dicts first, where a NaN equals only itself: stores canonicalise such keys.
        self.has_double = any(map(_holds_double, types))

    def encode(self, key: Key) -> bytes:
        """The bytes of a key, or of a prefix of one."""
        assert len(key) <= len(self._encoders), f"key {key!r} has more parts than the {len(self.types)} it should have"
        return b"".join(
            [_NULL if v is None else _VALUE + e(v) for v, e in zip(key, self._encoders, strict=False)],
        )

    def encode_many(self, keys: Iterable[Key]) -> list[bytes]:
        """As `encode` for each, column by column; fastest for integers and texts without NULLs."""
        keys = keys if isinstance(keys, (list, tuple)) else list(keys)
        if self._single in _INTEGERS:
            pack = _TAGGED_U64.pack
            try:
                return [pack(1, k + _SIGN) for (k,) in keys]  # type: ignore[operator]
            except TypeError:  # a NULL among them
                return [self.encode(k) for k in keys]
        if self._single is Kind.STRING:
            try:
                return [b"\x01%b\x00" % k.encode().replace(b"\0", b"\0\xff") for (k,) in keys]  # type: ignore[union-attr]
            except (AttributeError, UnicodeEncodeError):  # a NULL or a lone surrogate among them
                return [self.encode(k) for k in keys]
        if self._pair is not None:
            pack = self._pair.pack
            try:
                return [pack(1, a + _SIGN, 1, b + _SIGN) for a, b in keys]  # type: ignore[operator]
            except (TypeError, ValueError):  # a NULL among them, or a prefix of a key
                return [self.encode(k) for k in keys]
        try:
            columns = list(zip(*keys, strict=True))
        except ValueError:  # prefixes of different lengths
            return [self.encode(k) for k in keys]
        if len(columns) > len(self.types) or not columns:
            return [self.encode(k) for k in keys]
        return list(map(b"".join, zip(*map(_encoded_column, self.types, self._encoders, columns), strict=True)))

    def decode(self, data: bytes) -> Key:
        """The inverse of `encode` for a whole key."""
        if self._single is Kind.STRING and data[0] == 1 and data.find(0, 1) == len(data) - 1:  # nothing is escaped
            return (data[1:-1].decode("utf-8", "surrogatepass"),)
        parts: list[Any] = []
        at = 0
        for decode in self._decoders:
            if data[at] == 0:
                parts.append(None)
                at += 1
            else:
                value, at = decode(data, at + 1)
                parts.append(value)
        assert at == len(data), f"{len(data) - at} bytes after the key"
        return tuple(parts)

    def decode_many(self, data: Sequence[bytes]) -> list[Key]:
        """As `decode` for each; much faster for a single integer or text column and for two integers, without NULLs."""
        joined, n = b"".join(data), len(data)
        if self._single in _INTEGERS and len(joined) == _TAGGED_U64.size * n:  # a NULL is shorter
            return [(v - _SIGN,) for _, v in _TAGGED_U64.iter_unpack(joined)]
        if self._pair is not None and len(joined) == self._pair.size * n:
            return [(a - _SIGN, b - _SIGN) for _, a, _, b in self._pair.iter_unpack(joined)]
        if self._single is Kind.STRING and joined.count(0) == n and _NULL not in data:  # nothing is escaped
            return list(zip(joined[1:-1].decode("utf-8", "surrogatepass").split("\0\1"))) if n else []
        return list(map(self.decode, data))

    def canonical(self, key: Key) -> Key:
        """The key with the one NaN object that equals itself in a dict."""
        return _canonical(key) if self.has_double else key


def _encoded_column(t: SqlType, encoder: Encode, column: Sequence[Any]) -> list[bytes]:
    """A part of many keys, each with its tag."""
    try:
        if t.kind in _INTEGERS:
            pack = _TAGGED_U64.pack
            return [pack(1, v + _SIGN) for v in column]
        if t.kind is Kind.STRING:
            return [b"\x01%b\x00" % v.encode().replace(b"\0", b"\0\xff") for v in column]
    except (TypeError, AttributeError, UnicodeEncodeError):  # a NULL or a lone surrogate among them
        pass
    return [_NULL if v is None else _VALUE + encoder(v) for v in column]


@lru_cache(maxsize=4096)
def key_codec(types: tuple[SqlType, ...]) -> KeyCodec:
    """The codec of these key types."""
    return KeyCodec(types)


def encode(key: Key, types: Sequence[SqlType]) -> bytes:
    """The ordered bytes of a key of these types.

    >>> from flowql.compiler.plan.types import BIGINT, STRING
    >>> encode(("a", 1), (STRING, BIGINT)) < encode(("a", 2), (STRING, BIGINT)) < encode(("b", None), (STRING, BIGINT))
    True
    """
    return key_codec(tuple(types)).encode(key)


def decode(data: bytes, types: Sequence[SqlType]) -> Key:
    """The inverse of `encode`."""
    return key_codec(tuple(types)).decode(data)


def value_encoder(t: SqlType) -> Callable[[Any], bytes]:
    """How a frozen value that is not NULL is written in a key: no value's bytes start with those of another."""
    return _encoder(t)


def encode_time(ms: int) -> bytes:
    """A time as `encode` writes it: the last 8 bytes of the key of a window or join store."""
    return _U64.pack(ms + _SIGN)


def decode_time(data: bytes) -> int:
    """The time in the last 8 bytes of an encoded key."""
    return int.from_bytes(data[-8:], "big") - _SIGN


def decode_times(encoded: Sequence[bytes]) -> Ints:
    """`decode_time` of each."""
    times = np.frombuffer(b"".join([e[-8:] for e in encoded]), ">u8").astype(np.uint64)
    return (times ^ np.uint64(1 << 63)).view(np.int64)


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return math.nan if value != value else value
    if isinstance(value, tuple):
        return tuple(map(_canonical, value))
    return value


def _holds_double(t: SqlType) -> bool:
    return t.kind is Kind.DOUBLE or any(map(_holds_double, t.args)) or any(_holds_double(f) for _, f in t.fields)


def _encoder(t: SqlType) -> Encode:
    if t.kind in _INTEGERS:
        return lambda v: _U64.pack(v + _SIGN)
    if t.kind is Kind.ARRAY:
        return _list_encoder(_encoder(t.element))
    if t.kind is Kind.STRUCT:
        return _struct_encoder([_encoder(f) for _, f in t.fields])
    if t.kind is Kind.MAP:  # frozen to a tuple of (key, value) pairs
        return _list_encoder(_struct_encoder([_encoder(a) for a in t.args]))
    if t.kind is Kind.DECIMAL:
        return _decimal_encoder(t.scale)
    return _SCALAR_ENCODERS[t.kind]


def _decoder(t: SqlType) -> Decode:
    if t.kind in _INTEGERS:
        return lambda data, at: (_U64.unpack_from(data, at)[0] - _SIGN, at + 8)
    if t.kind is Kind.ARRAY:
        return _list_decoder(_decoder(t.element))
    if t.kind is Kind.STRUCT:
        return _struct_decoder([_decoder(f) for _, f in t.fields])
    if t.kind is Kind.MAP:
        return _list_decoder(_struct_decoder([_decoder(a) for a in t.args]))
    if t.kind is Kind.DECIMAL:
        return _decimal_decoder(t.scale)
    return _SCALAR_DECODERS[t.kind]


def _encode_bool(v: Any) -> bytes:
    return b"\x01" if v else b"\x00"


def _encode_double(v: Any) -> bytes:
    if v != v:
        return b"\xff" * 8
    bits = _U64.unpack(_F64.pack(v + 0.0))[0]  # -0.0 + 0.0 is 0.0
    return _U64.pack(bits ^ _MASK if bits & _SIGN else bits | _SIGN)


def _decode_double(data: bytes, at: int) -> tuple[Any, int]:
    bits = _U64.unpack_from(data, at)[0]
    if bits == _MASK:
        return math.nan, at + 8
    return _F64.unpack(_U64.pack(bits ^ _SIGN if bits & _SIGN else bits ^ _MASK))[0], at + 8


def _encode_bytes(v: Any) -> bytes:
    return bytes(v).replace(b"\0", b"\0\xff") + b"\0"


def _encode_text(v: Any) -> bytes:
    # JSON input may hold lone surrogates; they order by code point like everything else.
    return v.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0"


def _decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.index(b"\0", at)
    while data[end + 1 : end + 2] == b"\xff":
        end = data.index(b"\0", end + 2)
    return data[at:end].replace(b"\0\xff", b"\0"), end + 1


def _decode_text(data: bytes, at: int) -> tuple[str, int]:
    raw, end = _decode_bytes(data, at)
    return raw.decode("utf-8", "surrogatepass"), end


def _decimal_encoder(scale: int) -> Encode:
    def encode_decimal(v: Any) -> bytes:
        unscaled = _EXACT.scaleb(v, scale)
        whole = int(unscaled)
        assert whole == unscaled, f"{v} has more than {scale} decimals"
        return (whole + _DECIMAL_SIGN).to_bytes(16, "big")

    return encode_decimal


def _decimal_decoder(scale: int) -> Decode:
    def decode_decimal(data: bytes, at: int) -> tuple[Any, int]:
        whole = int.from_bytes(data[at : at + 16], "big") - _DECIMAL_SIGN
        return _EXACT.scaleb(Decimal(whole), -scale), at + 16

    return decode_decimal


def _list_encoder(element: Encode) -> Encode:
    def encode_list(v: Any) -> bytes:
        return b"".join([_ELEMENT_NULL if x is None else _ELEMENT + element(x) for x in v]) + _LIST_END

    return encode_list


def _list_decoder(element: Decode) -> Decode:
    def decode_list(data: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while (tag := data[at]) != 0:
            item, at = (None, at + 1) if tag == 1 else element(data, at + 1)
            items.append(item)
        return tuple(items), at + 1

    return decode_list


def _struct_encoder(fields: list[Encode]) -> Encode:
    def encode_struct(v: Any) -> bytes:
        return b"".join([_NULL if x is None else _VALUE + f(x) for x, f in zip(v, fields, strict=True)])

    return encode_struct


def _struct_decoder(fields: list[Decode]) -> Decode:
    def decode_struct(data: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        for field in fields:
            item, at = (None, at + 1) if data[at] == 0 else field(data, at + 1)
            items.append(item)
        return tuple(items), at

    return decode_struct


_SCALAR_ENCODERS: dict[Kind, Encode] = {
    Kind.BOOLEAN: _encode_bool,
    Kind.DOUBLE: _encode_double,
    Kind.STRING: _encode_text,
    Kind.BYTES: _encode_bytes,
    Kind.NULL: lambda _v: b"",
}
_SCALAR_DECODERS: dict[Kind, Decode] = {
    Kind.BOOLEAN: lambda data, at: (data[at] == 1, at + 1),
    Kind.DOUBLE: _decode_double,
    Kind.STRING: _decode_text,
    Kind.BYTES: _decode_bytes,
    Kind.NULL: lambda _data, at: (None, at),
}

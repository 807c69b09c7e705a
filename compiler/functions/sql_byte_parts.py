"""Bits and bytes of BYTES in standard SQL, their texts in an encoding, checksums, and UUIDs. Places count from 0; the lowest bit of a byte is its first."""

from __future__ import annotations

import random
import uuid
import zlib

from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import BIGINT, BYTES, INT, STRING

_ENCODINGS = {
    "UTF8": "utf-8", "UTF-8": "utf-8", "LATIN1": "latin-1", "ISO88591": "latin-1", "SQL_ASCII": "ascii", "WIN1252": "cp1252",
    "LATIN9": "iso8859-15", "WIN1251": "cp1251", "KOI8R": "koi8-r", "EUC_JP": "euc_jp", "SJIS": "shift_jis", "GBK": "gbk", "BIG5": "big5",
}  # fmt: skip


def _encoding(name: str) -> str:
    found = _ENCODINGS.get(name.upper())
    if found is None:
        raise ValueError(f'"{name}" is not an encoding; use one of: {", ".join(_ENCODINGS)}')
    return found


def _place(data: bytes, n: int, per_byte: int) -> int:
    """Raises ValueError behind the end."""
    if not 0 <= n < len(data) * per_byte:
        raise ValueError(f"index {n} out of valid range, 0..{len(data) * per_byte - 1}")
    return n


def _bit(data: bytes, n: int) -> int:
    byte, bit = divmod(_place(data, n, 8), 8)
    return data[byte] >> bit & 1


def _with_bit(data: bytes, n: int, value: int) -> bytes:
    byte, bit = divmod(_place(data, n, 8), 8)
    if value not in (0, 1):
        raise ValueError("new bit must be 0 or 1")
    return _with_byte(data, byte, data[byte] & ~(1 << bit) | value << bit)


def _with_byte(data: bytes, n: int, value: int) -> bytes:
    _place(data, n, 1)
    return data[:n] + bytes([value & 0xFF]) + data[n + 1 :]


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a string cannot contain character 0")
    return text


standard(
    "GEN_RANDOM_UUID",
    takes(gives=STRING),
    by=lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    deterministic=False,
    also=("UUIDV4", "UUID_GENERATE_V4"),
)
standard("BIT_COUNT", takes(BYTES, gives=BIGINT), by=lambda v: int.from_bytes(v, "big").bit_count())
standard("GET_BIT", takes(BYTES, INT, gives=INT), takes(BYTES, BIGINT, gives=INT), by=_bit)
standard("GET_BYTE", takes(BYTES, INT, gives=INT), by=lambda v, n: v[_place(v, n, 1)])
standard(
    "SET_BIT",
    takes(BYTES, INT, INT, gives=BYTES),
    takes(BYTES, BIGINT, INT, gives=BYTES),
    by=_with_bit,
)
standard("SET_BYTE", takes(BYTES, INT, INT, gives=BYTES), by=_with_byte)
standard(
    "CONVERT_FROM",
    takes(BYTES, STRING, gives=STRING),
    by=lambda v, name: _without_nul(v.decode(_encoding(name))),
)
standard(
    "CONVERT_TO",
    takes(STRING, STRING, gives=BYTES),
    by=lambda text, name: text.encode(_encoding(name)),
)
standard("CRC32", takes(BYTES, gives=BIGINT), by=zlib.crc32)

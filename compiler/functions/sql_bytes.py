"""Functions of bytes in standard SQL, and the texts of bytes as PostgreSQL reads and writes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import random
import re
import uuid
import zlib
from collections.abc import Callable

from flowql.compiler.functions.bounds import PART_MAX
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import BIGINT, BYTES, INT, STRING

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_ESCAPE = re.compile(rb"\\(?:(\\)|([0-3][0-7]{2}))?")
_ESCAPE_BYTES = 4
_LINE = 76  # characters of base64 before a line ends, as MIME says


def bytes_of_text(text: str) -> bytes:
    r"""Bytes as PostgreSQL reads them: `\x1f20`, or characters with `\\` and octal escapes. Raises ValueError."""
    if text.startswith("\\x"):
        return bytes_of_hex(text[2:])
    raw, parts, at = text.encode(), [], 0
    while at < len(raw):
        end = _part_end(raw, at)
        parts.append(_ESCAPE.sub(_unescaped, raw[at:end]))
        at = end
    return b"".join(parts)


def _part_end(raw: bytes, at: int) -> int:
    """The end of the part that begins at `at`, where an escape may begin; other threads run between parts."""
    end = at + PART_MAX
    last = raw.rfind(b"\\", end - _ESCAPE_BYTES, end)
    if last < 0 or end >= len(raw):
        return end
    run = raw[at : last + 1]
    return end if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0 else last


def _unescaped(m: re.Match[bytes]) -> bytes:
    if m[1] or m[2]:
        return m[1] or bytes([int(m[2], 8)])
    raise ValueError("invalid input syntax for type bytea")


def bytes_of_hex(text: str) -> bytes:
    """Pairs of digits, with white space between pairs. Raises ValueError."""
    parts = text.split()
    if not all(_HEX.fullmatch(p) for p in parts):
        raise ValueError(f'invalid hexadecimal data: "{text}"')
    return bytes.fromhex("".join(parts))


def text_of_bytes(value: bytes) -> str:
    r"""`\x1f20`."""
    return f"\\x{value.hex()}"


def _escaped(value: bytes) -> str:
    return "".join("\\\\" if b == 92 else chr(b) if 0 < b < 128 else f"\\{b:03o}" for b in value)


def _base64(value: bytes) -> str:
    text = base64.b64encode(value).decode()
    return "\n".join(text[i : i + _LINE] for i in range(0, len(text), _LINE))


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as e:
        raise ValueError(f"{text!r} is not base64") from e


_WRITE: dict[str, Callable[[bytes], str]] = {"hex": bytes.hex, "base64": _base64, "escape": _escaped}
_READ: dict[str, Callable[[str], bytes]] = {"hex": bytes_of_hex, "base64": _of_base64, "escape": bytes_of_text}


def known_format(name: str) -> str:
    """The name of a format in lower case. Raises ValueError."""
    word = name.lower()
    if word not in _WRITE:
        raise ValueError(f'unrecognized encoding: "{name}"; use hex, base64 or escape')
    return word


def _decode(text: str, name: str) -> bytes:
    word = known_format(name)
    if word == "escape" and text.startswith("\\x"):
        raise ValueError("invalid input syntax for type bytea")
    return _READ[word](text)


standard(
    "ENCODE",
    takes(BYTES, STRING, gives=STRING),
    by=lambda value, name: _WRITE[known_format(name)](value),
)
standard("DECODE", takes(STRING, STRING, gives=BYTES), by=_decode)
standard(
    "MD5",
    takes(STRING, gives=STRING),
    takes(BYTES, gives=STRING),
    by=lambda v: hashlib.md5(v.encode() if isinstance(v, str) else v, usedforsecurity=False).hexdigest(),
)
for _name, _hash in (
    ("SHA224", hashlib.sha224),
    ("SHA256", hashlib.sha256),
    ("SHA384", hashlib.sha384),
    ("SHA512", hashlib.sha512),
):
    standard(_name, takes(BYTES, gives=BYTES), by=lambda v, hashed=_hash: hashed(v).digest())
standard(
    "TO_HEX",
    takes(INT, gives=STRING),
    takes(BIGINT, gives=STRING),
    by_types=lambda r: lambda v: f"{v & (0xFFFF_FFFF if r.args[0] == INT else 0xFFFF_FFFF_FFFF_FFFF):x}",
)


# --- bits and bytes, texts in an encoding, checksums, UUIDs; places count from 0, the lowest bit of a byte is its first ---


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

"""Functions of bytes in standard SQL, and the texts of bytes as PostgreSQL reads and writes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
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

"""Functions of BYTES and of encodings."""

from __future__ import annotations

import base64
import binascii
import re
import struct as packing
from collections.abc import Callable, Sequence
from random import getrandbits
from uuid import UUID

from flowql.compiler.functions.numeric import INT_MAX
from flowql.compiler.functions.registry import scalar, takes
from flowql.compiler.plan.types import BIGINT, BYTES, DOUBLE, INT, STRING

_PREFIXED_HEX = re.compile(r"0[xX]([0-9a-fA-F]*)")
_HEX = re.compile(r"((?:[0-9a-fA-F]{2})*)|[xX]'((?:[0-9a-fA-F]{2})*)'")


def _from_hex(text: str) -> bytes:
    """Pairs of hex digits, bare or as X'…'; after 0x an odd number of digits gets a zero in front."""
    prefixed = _PREFIXED_HEX.fullmatch(text)
    if prefixed:
        digits = prefixed[1]
        return bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
    m = _HEX.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not hexadecimal")
    return bytes.fromhex(m[1] or m[2] or "")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError(f"{text!r} is not base64") from e


_READ: dict[str, Callable[[str], bytes]] = {
    "hex": _from_hex,
    "ascii": lambda s: s.encode("ascii", "replace"),
    "utf8": lambda s: s.encode("utf-8"),
    "base64": _from_base64,
}
_WRITE: dict[str, Callable[[bytes], str]] = {
    "hex": lambda b: b.hex().upper(),
    "ascii": lambda b: b.decode("ascii", "replace"),
    "utf8": lambda b: b.decode("utf-8", "replace"),
    "base64": lambda b: base64.b64encode(b).decode(),
}


def _coding(name: str) -> str:
    word = name.lower().replace("-", "")
    if word not in _READ:
        raise ValueError(f"unknown encoding {name!r}; use hex, utf8, ascii or base64")
    return word


def to_bytes(text: str, encoding: str) -> bytes:
    """The bytes a text stands for in hex, utf8, ascii or base64."""
    return _READ[_coding(encoding)](text)


def from_bytes(value: bytes, encoding: str) -> str:
    """The text of bytes; hex in upper case."""
    return _WRITE[_coding(encoding)](value)


def encode(text: str, source: str, target: str) -> str:
    """A text from one encoding to another; hex in lower case, as ksqlDB's ENCODE (TO_BYTES and FROM_BYTES differ)."""
    result = from_bytes(to_bytes(text, source), target)
    return result.lower() if _coding(target) == "hex" else result


def _order(name: str) -> str:
    word = name.upper()
    if word not in ("BIG_ENDIAN", "LITTLE_ENDIAN"):
        raise ValueError(f"unknown byte order {name!r}; use BIG_ENDIAN or LITTLE_ENDIAN")
    return ">" if word == "BIG_ENDIAN" else "<"


def _unpacker(code: str, size: int) -> Callable[..., int | float]:
    def run(value: bytes, order: str = "BIG_ENDIAN") -> int | float:
        if len(value) != size:
            raise ValueError(f"{size} bytes are needed, got {len(value)}")
        result: int | float = packing.unpack(_order(order) + code, value)[0]
        return result

    return run


assert packing.calcsize("<i") * 8 == INT_MAX.bit_length() + 1


def _is_encoding(args: Sequence[str], wanted: str) -> bool:
    return args[1].lower().replace("-", "") == f"'{wanted}'"


scalar(
    "TO_BYTES",
    takes(STRING, STRING, gives=BYTES),
    by=to_bytes,
    spark=lambda a, _r: f"CAST({a[0]} AS BINARY)" if _is_encoding(a, "utf8") else "",
)
scalar(
    "FROM_BYTES",
    takes(BYTES, STRING, gives=STRING),
    by=from_bytes,
    spark=lambda a, _r: f"hex({a[0]})" if _is_encoding(a, "hex") else "",
)
scalar("ENCODE", takes(STRING, STRING, STRING, gives=STRING), by=encode)
for _name, _type, _code, _size in (
    ("INT_FROM_BYTES", INT, "i", 4),
    ("BIGINT_FROM_BYTES", BIGINT, "q", 8),
    ("DOUBLE_FROM_BYTES", DOUBLE, "d", 8),
):
    scalar(
        _name,
        takes(BYTES, STRING, gives=_type, needs=1),
        by=_unpacker(_code, _size),
    )


def _uuid(data: bytes) -> str:
    if len(data) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(data)}")
    return str(UUID(bytes=data))


scalar(
    "UUID",
    takes(BYTES, gives=STRING, needs=0),
    by=lambda *data: _uuid(data[0]) if data else str(UUID(int=getrandbits(128), version=4)),
    deterministic=False,
    duckdb=lambda a, _r: (
        f"CASE WHEN octet_length({a[0]}) = 16 THEN "
        f"regexp_replace(lower(hex({a[0]})), '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '\\1-\\2-\\3-\\4-\\5') END"
        if a
        else ""
    ),
)

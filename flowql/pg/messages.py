"""Messages of PostgreSQL's protocol 3.0: reading them within limits, and making the replies.

Formats: PostgreSQL 15's documentation, "Frontend/Backend Protocol", chapters "Message Formats" and "Message Flow".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flowql.pg.errors import PgError
from flowql.pg.types import PgColumn

PROTOCOL, PROTOCOL_MAJOR = 196_608, 3
CANCEL, SSL, GSS = 80_877_102, 80_877_103, 80_877_104
STARTUP_BYTES_MAX = 10_000  # as PostgreSQL has it
MESSAGE_BYTES_MAX = 1 << 20  # of a client that is known; a statement has 256 KiB at most
_I16, _I32 = struct.Struct("!h"), struct.Struct("!i")


class Reader:
    """The fields of a message, in order. Raises PgError 08P01 where it ends too early or a string is not UTF-8."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def int16(self) -> int:
        return int(_I16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_I32.unpack(self.take(4))[0])

    def count(self) -> int:
        """A number of fields that follow, at most 65,535."""
        return self.int16() & 0xFFFF

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise malformed("insufficient data left in message")
        self._at += size
        return self._data[self._at - size : self._at]

    def string(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise malformed("invalid string in message")
        raw = self.take(end - self._at)
        self._at += 1
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise PgError("22021", f"invalid byte sequence for encoding UTF8: {error}") from error

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        if not self.at_end:
            raise malformed("invalid message format")


def malformed(title: str) -> PgError:
    return PgError("08P01", title)


@dataclass(frozen=True, slots=True)
class Parse:
    """oids: of the types of its first parameters, 0 for one that is not named."""

    name: str
    sql: str
    oids: tuple[int, ...]

    @classmethod
    def of(cls, r: Reader) -> Parse:
        made = cls(r.string(), r.string(), tuple(r.int32() & 0xFFFFFFFF for _ in range(r.count())))
        r.end()
        return made


@dataclass(frozen=True, slots=True)
class Bind:
    """formats, results: 0 for text and 1 for binary; one for all, one for each, or none, which means text."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]

    @classmethod
    def of(cls, r: Reader) -> Bind:
        portal, statement = r.string(), r.string()
        formats = tuple(_format(r) for _ in range(r.count()))
        values = list[bytes | None]()
        for _ in range(r.count()):
            size = r.int32()
            values.append(None if size == -1 else r.take(size))
        made = cls(portal, statement, formats, tuple(values), tuple(_format(r) for _ in range(r.count())))
        r.end()
        return made


def _format(r: Reader) -> int:
    if (found := r.int16()) not in (0, 1):
        raise malformed(f"unsupported format code: {found}")
    return found


def spread(formats: Sequence[int], count: int) -> list[int]:
    """A format for each of so many values. Raises PgError 08P01 where the numbers do not fit."""
    if len(formats) == count:
        return list(formats)
    if len(formats) > 1:
        raise malformed(f"{len(formats)} formats are given for {count} values")
    return [formats[0] if formats else 0] * count


def message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + _I32.pack(len(body) + 4) + body


def text(value: str) -> bytes:
    """A string; PostgreSQL's end at a zero byte, which is therefore left out."""
    return value.encode("utf-8", "replace").replace(b"\0", b"") + b"\0"


def ready(state: bytes) -> bytes:
    """state: I for none, T for a transaction, E for a failed one."""
    return message(b"Z", state)


def complete(tag: str) -> bytes:
    return message(b"C", text(tag))


def parameter(name: str, value: str) -> bytes:
    return message(b"S", text(name), text(value))


def row_description(columns: Sequence[PgColumn], formats: Sequence[int]) -> bytes:
    parts = [_I16.pack(len(columns))]
    for column, form in zip(columns, formats, strict=True):
        t = column.type
        parts += [text(column.name), struct.pack("!ihihih", 0, 0, _signed(t.oid), t.size, t.modifier, form)]
    return message(b"T", *parts)


def parameter_description(oids: Iterable[int]) -> bytes:
    found = [_signed(o) for o in oids]
    return message(b"t", _I16.pack(len(found)), *(_I32.pack(o) for o in found))


def _signed(oid: int) -> int:
    return oid - (1 << 32) if oid >= 1 << 31 else oid


def failure(error: PgError, severity: str = "ERROR", kind: bytes = b"E") -> bytes:
    """An error, or with kind N a notice."""
    fields = {"S": severity, "V": severity, "C": error.state, "M": error.title}
    if error.detail:
        fields["D"] = error.detail
    if error.help:
        fields["H"] = error.help
    if error.position:
        fields["P"] = str(error.position)
    return message(kind, *(k.encode() + text(v) for k, v in fields.items()), b"\0")


PARSED, BOUND, CLOSED = message(b"1"), message(b"2"), message(b"3")
NO_DATA, SUSPENDED, EMPTY = message(b"n"), message(b"s"), message(b"I")
COPY_DONE = message(b"c")
AUTHENTICATED = message(b"R", _I32.pack(0))
SASL, SASL_CONTINUE, SASL_FINAL = 10, 11, 12


def authentication(kind: int, data: bytes) -> bytes:
    return message(b"R", _I32.pack(kind), data)


def key_data(pid: int, secret: int) -> bytes:
    return message(b"K", _I32.pack(pid), struct.pack("!I", secret))


def copy_out(columns: int) -> bytes:
    """Text of so many columns follows."""
    return message(b"H", b"\0", _I16.pack(columns), _I16.pack(0) * columns)


def copy_in(columns: int, *, binary: bool = False) -> bytes:
    """Asks for the rows of so many columns."""
    return message(b"G", bytes([binary]), _I16.pack(columns), _I16.pack(binary) * columns)


def copy_data(data: bytes) -> bytes:
    return message(b"d", data)


def negotiate(options: Sequence[str]) -> bytes:
    """The newest protocol here is 3.0, and these options of it are unknown."""
    return message(b"v", _I32.pack(PROTOCOL), _I32.pack(len(options)), *(text(o) for o in options))

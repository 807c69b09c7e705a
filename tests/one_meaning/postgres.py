"""A PostgreSQL of one's own under a temporary folder, where it is installed, and just enough of its protocol to ask it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.one_meaning.answers import NAN, Answer, Double

BIN = Path("/usr/lib/postgresql/15/bin")
_BOOL, _TEXTS, _DATE, _TIME, _STAMP, _STAMPTZ, _JSONB = 16, (25, 1043, 2950), 1082, 1083, 1114, 1184, 3802
_NUMBERS, _DOUBLES = (20, 21, 23, 1700), (700, 701)
_ARRAYS = {1000: _BOOL, 1005: 21, 1007: 23, 1016: 20, 1231: 1700, 1022: 701, 1009: 25, 1015: 25, 1182: _DATE, 1115: _STAMP, 1185: _STAMPTZ, 3807: _JSONB}  # fmt: skip


def installed() -> bool:
    return (BIN / "initdb").exists()


class Refused(Exception):
    """What PostgreSQL answers to a statement it does not carry out. state: SQLSTATE."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state


@contextmanager
def server() -> Iterator[Postgres]:
    """A cluster whose texts are ordered by code points, and whose letters are Unicode's; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="one-meaning-postgres-"))
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if as_user:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    data, quiet = folder / "data", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c jit=off -c statement_timeout=20s -c timezone=UTC -c extra_float_digits=1"
    try:
        locale = ["--lc-collate=C", "--lc-ctype=C.UTF-8", "-E", "UTF8"]
        subprocess.run(
            [*as_user, BIN / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", *locale], check=True, **quiet
        )  # type: ignore[call-overload]
        subprocess.run([*as_user, BIN / "pg_ctl", "-D", data, "-o", options, "-w", "start"], check=True, **quiet)  # type: ignore[call-overload]
        try:
            connection = Postgres(str(folder / ".s.PGSQL.5432"))
            yield connection
            connection.close()
        finally:
            subprocess.run([*as_user, BIN / "pg_ctl", "-D", data, "-m", "immediate", "stop"], check=False, **quiet)  # type: ignore[call-overload]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Postgres:
    """One session, of the simple protocol, with values as texts."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._stream = self._socket.makefile("rb")
        body = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"
        self._socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._until_ready()

    def close(self) -> None:
        self._socket.close()

    def run(self, sql: str) -> Answer:
        """The rows of the last statement. Raises Refused."""
        body = sql.encode() + b"\0"
        self._socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self._until_ready()

    def ask(self, sql: str) -> Answer:
        """An error about a value is a row that fails, any other one refuses the statement."""
        try:
            return self.run(sql)
        except Refused as error:
            fails = error.state[:2] == "22" or error.state == "21000"
            return Answer("failed" if fails else "refused", text=f"{error.state} {error}")

    def _until_ready(self) -> Answer:
        types: list[int] = []
        rows: list[tuple[Any, ...]] = []
        refused: Refused | None = None
        while True:
            kind, size = struct.unpack("!ci", self._stream.read(5))
            body = self._stream.read(size - 4)
            match kind:
                case b"T":
                    types, rows = _types(body), []
                case b"D":
                    rows.append(tuple(_read(v, t) for v, t in zip(_fields(body), types, strict=True)))
                case b"E":
                    parts = {p[:1]: p[1:].decode() for p in body.split(b"\0") if p}
                    refused = Refused(parts[b"C"], parts[b"M"])
                case b"Z":
                    if refused is not None:
                        raise refused
                    return Answer("rows", tuple(rows), tuple(map(str, types)))


def _types(body: bytes) -> list[int]:
    (count,), at, found = struct.unpack("!h", body[:2]), 2, []
    for _ in range(count):
        at = body.index(b"\0", at) + 1
        found.append(struct.unpack("!ihihih", body[at : at + 18])[2])
        at += 18
    return found


def _fields(body: bytes) -> Iterator[bytes | None]:
    (count,), at = struct.unpack("!h", body[:2]), 2
    for _ in range(count):
        (size,) = struct.unpack("!i", body[at : at + 4])
        at += 4
        yield None if size < 0 else body[at : at + size]
        at += max(size, 0)


def _read(raw: bytes | None, type_: int) -> Any:
    return None if raw is None else _of(raw.decode(), type_)


def _of(text: str, type_: int) -> Any:
    if type_ == _BOOL:
        return text == "t"
    if type_ in _NUMBERS:
        number = Decimal(text)
        return number.normalize() + 0 if number else Decimal(0)
    if type_ in _DOUBLES:
        return NAN if text == "NaN" else Double(float(text))
    if type_ == _DATE:
        return ("day", _day(text)) if text[0].isdigit() else text
    if type_ == _TIME:
        return time.fromisoformat(text)
    if type_ in (_STAMP, _STAMPTZ):
        return _moment(text)
    if type_ in _ARRAYS:
        return _array(text, _ARRAYS[type_])
    return text


def _day(text: str) -> int:
    """The day of a date of any year. 400 years have 146,097 days."""
    year, month, day = map(int, text.removesuffix(" BC").split("-"))
    year = 1 - year if text.endswith("BC") else year
    eras, within = divmod(year, 400)
    return (date(within + 400, month, day) - date(1970, 1, 1)).days + (eras - 1) * 146_097


def _moment(text: str) -> Any:
    """In microseconds, of any year."""
    era = " BC" if text.endswith(" BC") else ""
    day, _, clock = text.removesuffix(" BC").removesuffix("+00").partition(" ")
    if not clock:  # infinity
        return text
    hours, minutes, seconds = clock.split(":")
    whole = (_day(day + era) * 24 + int(hours)) * 60 + int(minutes)
    return ("at", whole * 60_000_000 + int(Decimal(seconds) * 1_000_000))


def _array(text: str, type_: int) -> Any:
    """Of one dimension."""
    found, at = [], 1
    if "=" in text.split("{")[0]:
        text = text[text.index("{") :]
    while at < len(text) - 1:
        if text[at] == '"':
            at, value = at + 1, ""
            while text[at] != '"':
                at += text[at] == "\\"
                value += text[at]
                at += 1
            at += 1
            found.append(_of(value, type_))
        else:
            end = at
            while text[end] not in ",}":
                end += 1
            word, at = text[at:end], end
            found.append(None if word == "NULL" else _of(word, type_))
        at += 1
    return tuple(found)

"""A client that sends what a test wants, also what no driver would."""

from __future__ import annotations

import socket
import struct
from typing import Any

ANSWER_S = 120  # the process of the protocol has a low priority, so that it waits where all processors are busy


class Wire:
    """One connection. `ask` and `extended` return (kind, body) of all messages until ReadyForQuery."""

    def __init__(self, port: int, *, start: bool = True, path: str = "", **settings: str) -> None:
        """path: of a socket in the file system, instead of a port."""
        if path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(ANSWER_S)
            self.socket.connect(path)
        else:
            self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self.stream = self.socket.makefile("rb")
        self.key = (0, 0)
        if start:
            given = {"user": "ada", "database": "x", **settings}
            body = b"".join(f"{k}\0{v}\0".encode() for k, v in given.items()) + b"\0"
            self.socket.sendall(struct.pack("!ii", len(body) + 8, 196_608) + body)
            self.begun = self.until_ready()
            key = dict(self.begun).get(b"K")
            self.key = struct.unpack("!iI", key) if key else (0, 0)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.socket.close()

    def send(self, *messages: tuple[bytes, bytes]) -> None:
        self.socket.sendall(b"".join(k + struct.pack("!i", len(b) + 4) + b for k, b in messages))

    def message(self) -> tuple[bytes, bytes]:
        """EOFError if the connection has ended."""
        head = self.stream.read(5)
        if len(head) < 5:
            raise EOFError
        return head[:1], self.stream.read(struct.unpack("!i", head[1:])[0] - 4)

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        found = []
        while not found or found[-1][0] != b"Z":
            found.append(self.message())
        return found

    def ask(self, sql: str) -> list[tuple[bytes, bytes]]:
        self.send((b"Q", sql.encode() + b"\0"))
        return self.until_ready()

    def rows(self, sql: str) -> list[tuple[str | None, ...]]:
        """As texts. Raises Failed."""
        return rows_of(self.ask(sql))


class Failed(Exception):
    """fields: of the error, by their letters."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(f"{fields.get('C')} {fields.get('M')}")
        self.fields, self.state = fields, fields["C"]


def fields_of(body: bytes) -> dict[str, str]:
    return {p[:1].decode(): p[1:].decode() for p in body.split(b"\0") if p}


def rows_of(messages: list[tuple[bytes, bytes]]) -> list[tuple[str | None, ...]]:
    for kind, body in messages:
        if kind == b"E":
            raise Failed(fields_of(body))
    return [tuple(None if v is None else v.decode() for v in values(b)) for k, b in messages if k == b"D"]


def values(body: bytes) -> list[bytes | None]:
    (count,), at, found = struct.unpack("!h", body[:2]), 2, list[Any]()
    for _ in range(count):
        (size,) = struct.unpack("!i", body[at : at + 4])
        at += 4
        found.append(None if size < 0 else body[at : at + size])
        at += max(size, 0)
    return found


def tags(messages: list[tuple[bytes, bytes]]) -> list[str]:
    return [b[:-1].decode() for k, b in messages if k == b"C"]


def parse(sql: str, *oids: int, name: str = "") -> tuple[bytes, bytes]:
    return b"P", f"{name}\0{sql}\0".encode() + struct.pack(f"!H{len(oids)}I", len(oids), *oids)


def bind(
    *given: bytes | None, formats: tuple[int, ...] = (), results: tuple[int, ...] = (), portal: str = "", name: str = ""
) -> tuple[bytes, bytes]:
    parts = [
        f"{portal}\0{name}\0".encode(),
        struct.pack(f"!h{len(formats)}h", len(formats), *formats),
        struct.pack("!H", len(given)),
    ]
    parts += [struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in given]
    return b"B", b"".join(parts) + struct.pack(f"!h{len(results)}h", len(results), *results)


def describe(kind: str = "P", name: str = "") -> tuple[bytes, bytes]:
    return b"D", f"{kind}{name}\0".encode()


def execute(limit: int = 0, portal: str = "") -> tuple[bytes, bytes]:
    return b"E", f"{portal}\0".encode() + struct.pack("!i", limit)


SYNC = (b"S", b"")

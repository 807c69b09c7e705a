"""A client of WebSocket for tests: blocking, text messages, and the code of the end."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
TIMEOUT_S = 30.0


class Refused(Exception):
    """The answer in place of the handshake."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body!r}")
        self.status, self.body = status, body


class Closed(Exception):
    """The connection has ended. code: None without a closing frame."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class WebSocket:
    """A connection after its handshake. subprotocol: that the server has chosen."""

    def __init__(self, connection: socket.socket, subprotocol: str | None, data: bytes) -> None:
        self._socket, self.subprotocol, self._data = connection, subprotocol, data

    def receive(self) -> str:
        """The next message. Answers pings. Raises Closed."""
        while True:
            first, second = self._take(2)
            length = second & 0x7F
            if length >= 126:
                length = int.from_bytes(self._take(2 if length == 126 else 8), "big")
            assert (first & 0xF0, second & 0x80) == (0x80, 0), "servers send whole frames without a mask"
            payload, opcode = self._take(length), first & 0x0F
            if opcode == TEXT:
                return payload.decode()
            if opcode == CLOSE:
                self.send(CLOSE, payload[:2])
                raise Closed(int.from_bytes(payload[:2], "big"), payload[2:].decode())
            if opcode == PING:
                self.send(PONG, payload)

    def send(self, opcode: int, payload: bytes) -> None:
        """Errors of a connection that the other side has closed are left to `receive`."""
        n, mask = len(payload), os.urandom(4)
        size = struct.pack("!B", 0x80 | n) if n < 126 else struct.pack("!BQ", 0x80 | 127, n)
        repeated = (mask * (n // 4 + 1))[:n]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(n, "big")
        try:
            self._socket.sendall(bytes([0x80 | opcode]) + size + mask + masked)
        except OSError:
            return

    def _take(self, count: int) -> bytes:
        while len(self._data) < count:
            try:
                part = self._socket.recv(1 << 16)
            except ConnectionError:
                part = b""
            if not part:
                raise Closed(None)
            self._data += part
        taken, self._data = self._data[:count], self._data[count:]
        return taken


@contextmanager
def connected(port: int, path: str, headers: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> Iterator[WebSocket]:
    """Raises Refused, and Closed if there is no answer."""
    given = {
        "Host": f"127.0.0.1:{port}", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers,
    }  # fmt: skip
    head = f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in given.items()) + "\r\n"
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
    except OSError as error:
        raise Closed(None) from error
    with connection:
        connection.sendall(head.encode())
        said = b""
        while b"\r\n\r\n" not in said:
            part = connection.recv(1 << 16)
            if not part:
                raise Closed(None)
            said += part
        head, _, rest = said.decode("latin-1").partition("\r\n\r\n")
        status, fields = int(head.split(" ")[1]), head.lower().split("\r\n")
        if status != 101:
            body = rest.encode("latin-1")
            while part := connection.recv(1 << 16):
                body += part
            raise Refused(status, body)
        assert "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in fields  # the example of RFC 6455
        chosen = [f.partition(": ")[2] for f in fields if f.startswith("sec-websocket-protocol: ")]
        yield WebSocket(connection, chosen[0] if chosen else None, rest.encode("latin-1"))

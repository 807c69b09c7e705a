"""Requests to an instance, by http or https, on Python's own client: httpx alone takes half a second to import, before a command
begins (0.55 s against 0.04: `python -X importtime -c "import httpx"`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from multiprocessing.connection import wait  # select(2) takes no descriptor above 1,023
from socket import SHUT_RDWR, socket
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext  # 10 ms to import

PIECE_BYTES = 1 << 16
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
REUSE_S = (
    2.0  # servers close idle connections after 5 s; for a request sent at that moment it is unknown whether it arrived
)


class Unreachable(Exception):
    """No response, or an incomplete one; the text has the reason. sent: the request may have arrived."""

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's response. Its body is read once, as a whole or piece by piece; both raise Unreachable."""

    response: HTTPResponse
    socket: socket

    @property
    def is_success(self) -> bool:
        return 200 <= self.response.status < 300

    def read(self) -> bytes:
        return b"".join(self.pieces())

    def within(self, seconds: float) -> None:
        """Unreachable from here on if nothing comes for so long."""
        self.socket.settimeout(seconds)

    def break_off(self) -> None:
        """Nothing more comes; a thread that waits for a piece gets Unreachable. Any thread."""
        with suppress(OSError):
            self.socket.shutdown(SHUT_RDWR)

    def pieces(self) -> Iterator[bytes]:
        while True:
            with _reaching():
                piece = self.response.read1(PIECE_BYTES)
            if not piece and self.response.length:
                raise Unreachable(f"IncompleteRead {self.response.length} bytes are missing")
            if not piece:
                return
            yield piece


class Http:
    """Requests to one port. Any thread; each has a connection of its own while it lasts. tls: for https."""

    def __init__(
        self,
        port: int,
        headers: Mapping[str, str],
        *,
        connect_s: float,
        answer_s: float,
        host: str = "127.0.0.1",
        tls: SSLContext | None = None,
    ) -> None:
        self._port, self._headers, self._host, self._tls = port, headers, host, tls
        self._connect_s, self._answer_s = connect_s, answer_s
        self._free: list[tuple[HTTPConnection, float]] = []  # to be used again, since when; append and pop are atomic

    @contextmanager
    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        answer_s: float | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Generator[Reply]:
        """Raises Unreachable. answer_s: for this one, how long nothing may come. headers: in addition, as Accept."""
        with _reaching(sent=False):
            connection = self._connection()
            if answer_s is not None:
                connection.sock.settimeout(answer_s)
        try:
            with _reaching():
                connection.request(method, path, body or None, {**self._headers, **headers})
                sent_on = connection.sock
                response = connection.getresponse()
            yield Reply(response, sent_on)
            if response.length is not None:  # all of it is on its way
                with suppress(OSError, HTTPException):
                    response.read()
            if response.isclosed() and not response.will_close:  # read to its end
                self._free.append((connection, time.monotonic()))
                return
        except BaseException:
            connection.close()
            raise
        connection.close()

    def close(self) -> None:
        while self._free:
            self._free.pop()[0].close()

    def _connection(self) -> HTTPConnection:
        while self._free:
            connection, since_s = self._free.pop()
            fresh = time.monotonic() - since_s < REUSE_S
            if fresh and connection.sock is not None and not wait([connection.sock], 0):
                connection.sock.settimeout(self._answer_s)
                return connection
            connection.close()  # the server closes it soon, or has done so and says it
        host, port, limit_s = self._host, self._port, self._connect_s
        made = (
            HTTPConnection(host, port, timeout=limit_s)
            if self._tls is None
            else HTTPSConnection(host, port, timeout=limit_s, context=self._tls)
        )
        made.connect()
        made.sock.settimeout(self._answer_s)
        return made


@contextmanager
def _reaching(*, sent: bool = True) -> Generator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{type(error).__name__} {error}".rstrip(), sent=sent) from error

"""Requests to an instance, mostly on this machine, on Python's own client: httpx alone takes half a second to import, before a command
begins (0.55 s against 0.04: `python -X importtime -c "import httpx"`).
"""

from __future__ import annotations

import select
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse

PIECE_BYTES = 1 << 16


class Unreachable(Exception):
    """Nobody answers, or the answer broke off; the text says how."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server says. Its body is read once, as a whole or piece by piece; both raise Unreachable."""

    response: HTTPResponse

    @property
    def is_success(self) -> bool:
        return 200 <= self.response.status < 300

    def read(self) -> bytes:
        return b"".join(self.pieces())

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
    """Requests to one port. Any thread; each has a connection of its own while it lasts."""

    def __init__(
        self, port: int, headers: Mapping[str, str], *, connect_s: float, answer_s: float, host: str = "127.0.0.1"
    ) -> None:
        self._port, self._headers, self._host = port, headers, host
        self._connect_s, self._answer_s = connect_s, answer_s
        self._free: list[HTTPConnection] = []  # to be used again; append and pop are atomic

    @contextmanager
    def request(self, method: str, path: str, body: bytes = b"") -> Generator[Reply]:
        """Raises Unreachable."""
        with _reaching():
            connection = self._connection()
        try:
            with _reaching():
                connection.request(method, path, body or None, dict(self._headers))
                response = connection.getresponse()
            yield Reply(response)
            if response.length is not None:  # all of it is on its way
                with suppress(OSError, HTTPException):
                    response.read()
            if response.isclosed() and not response.will_close:  # read to its end
                self._free.append(connection)
                return
        except BaseException:
            connection.close()
            raise
        connection.close()

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def _connection(self) -> HTTPConnection:
        while self._free:
            connection = self._free.pop()
            if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                return connection
            connection.close()  # the server has closed it meanwhile, and says so
        connection = HTTPConnection(self._host, self._port, timeout=self._connect_s)
        connection.connect()
        connection.sock.settimeout(self._answer_s)
        return connection


@contextmanager
def _reaching() -> Generator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{type(error).__name__} {error}".rstrip()) from error

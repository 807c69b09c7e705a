"""Requests that arrive whole, in a plain form, and their answers: without h11, which takes most of the processor time of a look-up.

h11 reads all others and decides what is malformed: requests in parts, several in one, and those with headers that say how to read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

HEAD_BYTES_MAX = 8_192
JOINED_BYTES_MAX = 1 << 16  # of a body that is written together with the head
# HTTP/1.1 (RFC 9112) of visible ASCII: no folded lines, no space before a colon. One line matches in one way only.
_HEAD = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1\r\n((?:[\w\-]+:[ \t]*[!-~](?:[ -~]*[!-~])?\r\n)+)\r\n")
_HEADER = re.compile(rb"([\w\-]+):[ \t]*([!-~][^\r]*)\r\n")
_FOR_H11 = frozenset((b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade"))
_CLOSE = (b"connection", b"close")
_NO_BODY = frozenset((204, 304))


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """headers: names in lower case."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @classmethod
    def of(cls, data: bytes) -> WholeRequest | None:
        """None for all that h11 is to read."""
        head = _HEAD.match(data, 0, HEAD_BYTES_MAX)
        if head is None:
            return None
        headers = [(name.lower(), value) for name, value in _HEADER.findall(head[3])]
        known = dict(headers)
        if len(known) != len(headers) or b"host" not in known or not _FOR_H11.isdisjoint(known):
            return None
        body, length = data[head.end() :], known.get(b"content-length", b"0")
        if not (length.isdigit() and len(length) < 10 and int(length) == len(body)):
            return None
        if known.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return None
        return cls(head[1].decode(), head[2], headers, body)


class WholeCycle(RequestResponseCycle):
    """A request that was read whole, and its answer, which goes as one write if it is short. Its connection stays open unless the answer closes it."""

    _head = b""  # not written yet
    _left: int | None = 0  # bytes of the body that follow; None: in chunks

    async def send(self, message: Mapping[str, Any]) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        expected = "http.response.body" if self.response_started else "http.response.start"
        if self.response_complete or message["type"] != expected:
            raise RuntimeError(f"{message['type']} instead of {expected}")
        if self.response_started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._begin(message["status"], [*self.default_headers, *message.get("headers", ())])

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        length = next((value for name, value in headers if name == b"content-length"), None)
        self._left = int(length) if length is not None else 0 if status in _NO_BODY else None
        if self._left is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        self.keep_alive = self.keep_alive and _CLOSE not in headers
        lines = [b"HTTP/1.1 %d %s" % (status, STATUS_PHRASES[status]), *(b"%s: %s" % h for h in headers)]
        self._head = b"\r\n".join([*lines, b"", b""])
        if self._head.count(b"\n") != len(lines) + 1 or self._head.count(b"\r") != len(lines) + 1:
            raise RuntimeError("a header with a line break")
        if self._left is None:  # its body may begin much later
            self._write(b"")

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._left is None:
            last = b"" if more else b"0\r\n\r\n"
            self._write(b"%x\r\n%s\r\n%s" % (len(body), body, last) if body else last)
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("a body of another length than its head says")
            self._write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head and len(data) > JOINED_BYTES_MAX:
            self.transport.write(head)
            head = b""
        self.transport.write(head + data)

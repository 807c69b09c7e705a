"""Changes of a subscription as events in JSON: server-sent events (WHATWG, HTML, section "Server-sent events"), and messages of a WebSocket.

One event has all changes between two places at which a subscription can continue, and the second place as its id: a client that connects again
sends the id of the last event that it has received whole, so it gets each change once. An event ends where transactions do. The changes of more than
`GROUP_MAX` rows are in several events, of which the last one has an id.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from flowql.query.change import Rebuilt
from flowql.server.failures import Failure, to_wire
from flowql.server.following import Point
from flowql.server.row_text import json_objects

MEDIA_TYPE = "text/event-stream"
RETRY_MS = 1_000
_HEAD = 2  # columns of `to_batch` before those of the row


class JsonEvents(ABC):
    """`begin`, `reset`, `changes`, `error` and `end`. Subclasses write an event."""

    @abstractmethod
    def written(self, name: str, data: bytes, place: str | None, *, first: bool = False) -> bytes:
        """data: JSON without line breaks. place: the id. first: of a connection."""

    @property
    def end(self) -> bytes:
        return self.written("end", b"{}", None)

    def begun(self, point: Point) -> bytes:
        if point.reset:
            return self._told("reset", {"reason": point.reset}, point, first=True)
        return self._told("begin", {}, point, first=True)

    def rows(self, changes: pa.RecordBatch, after: Point) -> bytes:
        names = changes.schema.names[_HEAD:]
        row = pa.StructArray.from_arrays(changes.columns[_HEAD:], names)
        shown = pa.RecordBatch.from_arrays([*changes.columns[:_HEAD], row], names=["op", "rowtime", "row"])
        return self.written("changes", b"[" + json_objects(shown, ",") + b"]", None if after.is_part else after.token)

    def rebuilt(self, rebuilt: Rebuilt, after: Point) -> bytes:
        return self._told("reset", {"reason": str(rebuilt)}, after)

    def reset(self, point: Point) -> bytes:
        return self._told("reset", {"reason": point.reset}, point)

    def error(self, error: Failure) -> bytes:
        return self.written("error", json.dumps(to_wire(error)).encode(), None)

    def _told(self, name: str, about: dict[str, Any], point: Point, *, first: bool = False) -> bytes:
        data = json.dumps({**about, "columns": list(point.columns)}, ensure_ascii=False).encode()
        return self.written(name, data, point.token, first=first)


class Events(JsonEvents):
    """The form for clients of server-sent events."""

    alive = b": alive\n\n"

    def written(self, name: str, data: bytes, place: str | None, *, first: bool = False) -> bytes:
        retry = f"retry: {RETRY_MS}\n" if first else ""
        id_ = "" if place is None else f"id: {place}\n"
        return f"{retry}event: {name}\n{id_}data: ".encode() + data + b"\n\n"


class Messages(JsonEvents):
    """The form for clients of WebSocket: each event is one message in JSON. Tokens have only characters that JSON leaves as they are."""

    alive = b'{"event":"alive"}'

    def written(self, name: str, data: bytes, place: str | None, *, first: bool = False) -> bytes:
        id_ = "" if place is None else f'"id":"{place}",'
        return f'{{"event":"{name}",{id_}"data":'.encode() + data + b"}"

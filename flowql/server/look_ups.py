"""Several point look-ups in one request, which the gateway sends: each answer is an Arrow stream behind its length."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from flowql.errors import CommandError, RuntimeFailure
from flowql.query.answer import Answer
from flowql.query.options import QueryEngine
from flowql.server.bodies import fields_of
from flowql.server.entries import Call, Entry
from flowql.server.routes import Limit
from flowql.server.streaming import ARROW, decode, encode

PATH = "/look-ups"
LOOK_UPS_MAX = 16  # one request holds up the others of the loop for some milliseconds
_LENGTH = struct.Struct("!I")  # 0: no answer


@dataclass(frozen=True, slots=True)
class LookUp:
    """visible: folded names of relations that it may read; None: all."""

    sql: str
    engine: QueryEngine | None
    visible: list[str] | None


def read_answers(data: bytes) -> list[Answer | None]:
    """The answers of a response; None where the request itself has to be sent."""
    return list(_answers(data))


def _answers(data: bytes) -> Iterator[Answer | None]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield decode(iter([data[at : at + length]])) if length else None
        at += length


def _read(body: Mapping[str, Any]) -> list[LookUp]:
    return [LookUp(**fields_of(given, LookUp)) for given in body["look_ups"]][:LOOK_UPS_MAX]


async def _look_ups(call: Call) -> Response:
    asked: Sequence[LookUp] = call.body
    return Response(b"".join(_encoded(call, look_up) for look_up in asked), media_type=ARROW)


def _encoded(call: Call, asked: LookUp) -> bytes:
    visible = None if asked.visible is None else frozenset(asked.visible)
    try:
        found = call.server.queries.look_up(asked.sql, asked.engine, visible)
        data = b"" if found is None else b"".join(encode(found))
    except (CommandError, RuntimeFailure):  # the request itself gives the error
        data = b""
    return _LENGTH.pack(len(data)) + data


LOOK_UPS = Entry(
    "POST",
    PATH,
    _look_ups,
    "read",
    "Several look-ups of rows by key.",
    read=_read,
    produces=(ARROW,),
    limit=Limit(body_bytes=1 << 20),
    internal=True,
    local=True,
)

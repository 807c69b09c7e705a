"""Responses with the rows of an answer, which are written while the client reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from flowql.query.answer import Answer, Begun
from flowql.query.errors import COVERAGE, STANDBY
from flowql.query.pace import Share
from flowql.runtime.events import WARNING, say
from flowql.server.entries import Call
from flowql.server.row_forms import FORMS, Form, chosen
from flowql.server.streaming import BrokenOff, gathered, paced

# Headers of an answer about many instances, such as `4 of 8 partitions`.
HEADERS: Mapping[bytes, str] = {COVERAGE: "flowql-partitions", STANDBY: "flowql-standby"}
SHORT_PARTS = 3  # an answer of one batch has two
LOOK_S = 0.5  # how often to check that the client is still connected


async def answered(
    call: Call, ask: Callable[[Begun], Answer], now: Callable[[], Answer | None] = lambda: None
) -> Response:
    """The answer in the form that the client accepts. If the client disconnects, the computation ends. ask: begins it, in another thread.
    now: gives it if it needs no waiting.
    """
    media_type = chosen(call.request.headers.get("accept", ""))
    found = now()
    if found is not None:
        return given(call, found)
    breaks_off: list[Callable[[], None]] = []
    computing = call.server.readers.run(lambda: Opened.of(ask(breaks_off.append), FORMS[media_type], media_type))
    return _begun(call, await computed(call.request, computing, breaks_off))


def given(call: Call, found: Answer) -> Response:
    """An answer that was found, in the form that the client accepts."""
    media_type = chosen(call.request.headers.get("accept", ""))
    return _begun(call, Opened.of(found, FORMS[media_type], media_type))


def _begun(call: Call, opened: Opened) -> Response:
    database = call.server.queries.database
    return opened.response(database.limits.settings.time_ms / 1000, database.share)


async def computed(request: Request, beginning: Awaitable[Opened], breaks_off: Iterable[Callable[[], None]]) -> Opened:
    """The beginning of an answer, computed in another thread as long as the client is connected."""
    computing = asyncio.ensure_future(beginning)
    while not computing.done():
        await asyncio.wait([computing], timeout=LOOK_S)
        if not computing.done() and await request.is_disconnected():
            for break_off in breaks_off:
                break_off()
    return await computing


@dataclass(frozen=True, slots=True)
class Opened:
    """The first pieces of an answer, made in the thread that computed it: one that is short needs no other turn of threads."""

    first: list[bytes]
    rest: Generator[bytes]
    media_type: str
    headers: Mapping[str, str]

    @classmethod
    def of(cls, answer: Answer, form: Form, media_type: str) -> Opened:
        said = answer.schema.metadata or {}
        headers = {header: said[key].decode().partition(":")[0] for key, header in HEADERS.items() if key in said}
        pieces = form(answer)
        try:
            return cls(list(islice(pieces, SHORT_PARTS)), pieces, media_type, headers)
        except BrokenOff as error:
            if error.__cause__ is not None:
                raise error.__cause__ from None
            raise

    def response(self, time_s: float, share: Share) -> Response:
        """time_s: for what comes after the first pieces, however slowly they are read. share: what they may take of the interpreter."""
        if len(self.first) < SHORT_PARTS:  # that was all
            return Response(b"".join(self.first), media_type=self.media_type, headers=self.headers)
        return Rows(self.first, paced(gathered(self.rest), share), self.media_type, time_s, self.headers)


class Rows(StreamingResponse):
    """Streams an answer. If the client disconnects, the computation ends; if it does not read in time, the answer is aborted."""

    def __init__(
        self,
        first: Iterable[bytes],
        rest: Generator[bytes],
        media_type: str,
        time_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._rest, self._time_s = rest, time_s
        super().__init__(chain(first, rest), media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The server closes the connection of an answer that returns without its end."""
        try:
            with suppress(BrokenOff):
                async with asyncio.timeout(self._time_s):
                    await super().__call__(scope, receive, send)
        except TimeoutError:
            say(WARNING, "interactive_query.slow", f"an answer was not read within {self._time_s:,.0f} s")
        finally:
            self._rest.close()

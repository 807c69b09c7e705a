"""Point look-ups in the state of the instance: those that wait at the same time are one request, which costs it little more than a single one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from flowql.gateway.relay import Relay
from flowql.query.answer import Answer
from flowql.query.options import QueryEngine
from flowql.server.look_ups import LOOK_UPS_MAX, PATH, read_answers
from flowql.server.readers import Visible


@dataclass(frozen=True, slots=True)
class _Waiting:
    sql: str
    engine: QueryEngine | None
    visible: Visible
    found: asyncio.Future[Answer | None]


class LookUps:
    """One loop."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, sql: str, engine: QueryEngine | None, visible: Visible) -> Answer | None:
        """The answer. None if the instance does not know the query as a look-up, or would have to wait for the rows."""
        found = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(sql, engine, visible, found))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())
        answer: Answer | None = await found
        return answer

    async def _send(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:LOOK_UPS_MAX], self._waiting[LOOK_UPS_MAX:]
                for waiting, answer in zip(some, await self._answers(some), strict=True):
                    if not waiting.found.done():  # or its client has left
                        waiting.found.set_result(answer)
        finally:
            self._sending = None

    async def _answers(self, some: Sequence[_Waiting]) -> Sequence[Answer | None]:
        nothing = [None] * len(some)
        asked = [
            {"sql": w.sql, "engine": w.engine, "visible": None if w.visible is None else sorted(w.visible)}
            for w in some
        ]
        try:
            found = read_answers(await self._relay.post(PATH, json.dumps({"look_ups": asked}).encode()))
        except Exception:  # each request is sent by itself then, and gets the error
            return nothing
        return found if len(found) == len(some) else nothing

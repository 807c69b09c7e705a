"""The other instances of an application: asked for the rows of their partitions, side by side, within a time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from flowql.query.committed import Part, Wanted
from flowql.query.room import Room
from flowql.runtime.app.member_topic import MemberAddress, MemberReader, write_member
from flowql.runtime.clock import Clock
from flowql.runtime.errors import LogError
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Log
from flowql.server.http import Http, Reply, Unreachable
from flowql.server.parts import decode, wanted_to_data

CONNECT_S, SILENT_S, ANSWER_S = (
    1.0,
    10.0,
    60.0,
)  # until a connection, between two parts of an answer, for the whole answer
HURRIED_S = 1.0  # until an answer begins where standby copies may answer, and between two parts of it
AVOIDED_S = 5.0  # a host that does not answer is not asked again so soon: each interactive query would wait for it
ASKED_AT_ONCE = 16


class Members:
    """Any thread. process_id: which of them this instance is; it does not ask itself."""

    def __init__(self, log: Log, application_id: str, process_id: str, clock: Clock) -> None:
        self._log, self._id, self._own, self._clock = log, application_id, process_id, clock
        self._reader = MemberReader(log, application_id)
        self._lock = threading.Lock()  # guards the reader
        self._avoided: dict[tuple[MemberAddress, bool], float] = {}  # by whether it was asked in a hurry

    def join(self, member: MemberAddress) -> None:
        """From now on others find this one."""
        write_member(self._log, self._id, self._own, member, self._clock.wall_ms())

    def leave(self) -> None:
        """Removes its address from the topic. A failure to write is only logged: others notice when requests fail."""
        try:
            write_member(self._log, self._id, self._own, None, self._clock.wall_ms())
        except LogError as error:
            say(WARNING, "log.trouble", f"{type(error).__name__}: {error}")

    def rows(self, wanted: Sequence[Wanted], room: Room, hurried: bool = False) -> tuple[list[Part], list[str]]:
        """The rows of all other members, and a sentence about each that did not answer. Implements `Others`.
        room: memory of the interactive query. hurried: members have `HURRIED_S` to begin.

        QueryError if it is more than there is room for, here or at one of them.
        """
        try:
            with self._lock:
                others = {p: m for p, m in self._reader.read().items() if p != self._own}
        except LogError as error:
            return [], [f"other instances are not known: {error}"]
        if not others:
            return [], []
        body = json.dumps(wanted_to_data(wanted)).encode()
        with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(others)), "members") as pool:
            answers = list(pool.map(lambda m: self._asked(m, body, room, hurried=hurried), others.values()))
        return [p for parts, _ in answers for p in parts], [why for _, why in answers if why]

    def _asked(self, member: MemberAddress, body: bytes, room: Room, *, hurried: bool) -> tuple[list[Part], str]:
        """Its parts, or why there are none. Half of an answer is none."""
        now = time.monotonic()
        if self._avoided.get((member, hurried), 0.0) > now:
            return [], f"{member} did not answer a moment ago"
        headers = {"Authorization": f"Bearer {member.token}"}
        http = Http(
            member.port, headers, connect_s=CONNECT_S, answer_s=HURRIED_S if hurried else SILENT_S, host=member.host
        )
        try:
            with http.request("POST", "/rows", body) as reply:
                if not reply.is_success:
                    return [], f"{member} refused: {reply.response.status}"
                return list(decode(_in_time(reply, now + ANSWER_S, room))), ""
        except (Unreachable, ValueError, KeyError, OSError) as error:
            if time.monotonic() - now >= CONNECT_S:
                self._avoided = {m: at for m, at in self._avoided.items() if at > now} | {
                    (member, hurried): time.monotonic() + AVOIDED_S
                }
            return [], f"{member} does not answer: {error}"
        finally:
            http.close()


def _in_time(reply: Reply, limit: float, room: Room) -> Iterator[bytes]:
    for piece in reply.pieces():
        room.take(len(piece))
        if time.monotonic() > limit:
            raise Unreachable(f"no whole answer within {ANSWER_S:.0f} s")
        yield piece

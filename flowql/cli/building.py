"""Generations that are being built, as `status` tells of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from flowql.cli.progress import progress
from flowql.cli.render import note
from flowql.cli.status import described
from flowql.server.client import Client

_LOOK_S = 0.1
_QUIET_S = 10.0  # after so long without progress it is said why, and again as long after
Query = dict[str, Any]


def with_building(queries: Sequence[Query]) -> list[Query]:
    """Each generation as a query of its own."""
    beside = [
        {**q["building"], "id": q["id"]} for q in _built(queries) if q["building"]["generation"] != q["generation"]
    ]
    return [*queries, *beside]


def _built(queries: Sequence[Query]) -> list[Query]:
    return [q for q in queries if q.get("building")]


def await_built(client: Client) -> bool:
    """A bar until all that is being rebuilt serves; why it does not get on is said meanwhile. False if interrupted."""
    waiting = _built(client.status()["queries"])
    if not waiting:
        return True
    done, left = _progress(waiting)
    said_s, last = time.monotonic(), (done, left)
    try:
        with progress("rebuilding", done + left) as advance:
            advance(done)
            while waiting:
                time.sleep(_LOOK_S)
                waiting = _built(client.status()["queries"])
                now = _progress(waiting)
                advance(max(0, last[1] - now[1]))
                if now != last:
                    said_s, last = time.monotonic(), now
                elif time.monotonic() - said_s > _QUIET_S:
                    said_s = time.monotonic()
                    for q in waiting:
                        note(f"{q['id']}: {described(q['building'])}")
    except KeyboardInterrupt:
        note(f"{', '.join(q['id'] for q in waiting)}: still being rebuilt in the background; see  flowql status")
        return False
    return True


def _progress(queries: Sequence[Query]) -> tuple[int, int]:
    return sum(q["building"]["records_in"] for q in queries), sum(q["building"]["lag"] for q in queries)

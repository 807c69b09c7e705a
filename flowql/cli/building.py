"""Generations that are being built, as `status` tells of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from flowql.cli.progress import progress
from flowql.cli.render import note
from flowql.cli.status import BUILT, described
from flowql.errors import CommandError
from flowql.server.client import Calls

STUCK = "FQ5205"
_LOOK_S = 0.1
QUIET_S = 10.0  # after so long without progress it is said why, and again as long after
Query = dict[str, Any]


def with_building(queries: Sequence[Query]) -> list[Query]:
    """Each generation as a query of its own."""
    beside = [
        {**q["building"], "id": q["id"]} for q in _built(queries) if q["building"]["generation"] != q["generation"]
    ]
    return [*queries, *beside]


def _built(queries: Sequence[Query]) -> list[Query]:
    return [q for q in queries if q.get("building")]


def await_built(client: Calls, only: Sequence[str] | None = None) -> bool:
    """Shows a progress bar until all rebuilt generations serve or wait for promotion, and says why if the rebuild is stalled. False if
    interrupted. only: ids of the queries to wait for; None: all.
    """
    waiting = _not_yet(client, only)
    if waiting and not _await(client, waiting, only):
        return False
    held = [q["id"] for q in _built(client.status()["queries"])]
    if held and only is None:
        note(f"{', '.join(held)}: {BUILT}; to compare:  flowql diff NAME,  to let it serve:  flowql promote")
    return True


def _await(client: Calls, waiting: list[Query], only: Sequence[str] | None) -> bool:
    done, left = _progress(waiting)
    said_s, last = time.monotonic(), (done, left)
    try:
        with progress("rebuilding", done + left) as advance:
            advance(done)
            while waiting:
                time.sleep(_LOOK_S)
                waiting = _not_yet(client, only)
                now = _progress(waiting)
                advance(max(0, last[1] - now[1]))
                if now != last:
                    said_s, last = time.monotonic(), now
                elif time.monotonic() - said_s > QUIET_S:
                    said_s = time.monotonic()
                    check_built(waiting)
                    for q in waiting:
                        note(f"{q['id']}: {described(q['building'])}")
    except KeyboardInterrupt:
        note(f"{', '.join(q['id'] for q in waiting)}: still being rebuilt in the background; see  flowql status")
        return False
    return True


def check_built(queries: Sequence[Query]) -> None:
    """CommandError if a generation will not be built, however long one waits: what it reads is gone, or its results were damaged."""
    broken = [f"{q['id']}: {q['building']['last_error']}" for q in _built(queries) if q["building"]["state"] == "error"]
    if broken:
        raise CommandError("; ".join(dict.fromkeys(broken)), code=STUCK, help="flowql status")


def _not_yet(client: Calls, only: Sequence[str] | None) -> list[Query]:
    """Generations that are not built yet, or are to serve."""
    found = [q for q in _built(client.status()["queries"]) if only is None or q["id"] in only]
    return [q for q in found if q["building"]["why"] != BUILT]


def _progress(queries: Sequence[Query]) -> tuple[int, int]:
    return sum(q["building"]["records_in"] for q in queries), sum(q["building"]["lag"] for q in queries)

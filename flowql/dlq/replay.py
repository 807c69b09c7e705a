"""Repaired records are sent to an instance, which rebuilds the queries that missed them or gives them the records once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from flowql.compiler.plan.topology import Plan
from flowql.dlq.repair import Repaired, check_never_read
from flowql.query.dead_letters import Letter
from flowql.runtime.log.appending import Redelivery
from flowql.server.client import Calls

_AT_ONCE, _BYTES_AT_ONCE = 2_000, 3 << 19  # of a call


def queries_of(letters: Sequence[Letter]) -> tuple[str, ...]:
    """The queries that failed on any of these letters."""
    return tuple(sorted({q for x in letters for q in x.queries}))


def replay(client: Calls, repaired: Sequence[Repaired]) -> None:
    """Rebuild the queries that failed on these records, with all that read their results, over the records as they were repaired.

    After a crash in between the letters are still open, and the same call does the rest.
    """
    client.replay(list(_calls(_wanted(repaired))) or [[]])


def append(client: Calls, repaired: Sequence[Repaired], plan: Plan) -> dict[str, dict[str, Any]]:
    """Give records, as repaired, once more to the queries that missed them, beside their input. By query, what became of them.

    Each call is one commit. What fails in between leaves the letters of the rest open, and the same command does the rest.
    """
    check_never_read(repaired, plan)
    known = {q.id for q in plan.queries}
    found: dict[str, dict[str, Any]] = {}
    for some in _calls([replace(w, queries=tuple(q for q in w.queries if q in known)) for w in _wanted(repaired)]):
        for query, said in client.append(some).items():
            sums = found.setdefault(query, dict.fromkeys(said, 0))
            sums.update({n: sums[n] + v if n != "table" else v for n, v in said.items()})
    return found


def _wanted(repaired: Sequence[Repaired]) -> list[Redelivery]:
    """Letters that are about a record."""
    return [
        Redelivery(
            r.letter.tp,
            r.letter.offset,
            r.repair,
            r.letter.queries,
            (r.repair.key, r.repair.value, r.repair.timestamp_ms)
            != (r.letter.key, r.letter.value, r.letter.timestamp_ms),
        )
        for r in repaired
        if r.letter.tp is not None and r.letter.offset is not None
    ]


def _calls(wanted: Sequence[Redelivery]) -> Iterator[list[Redelivery]]:
    """The redeliveries in groups that fit into one request."""
    some: list[Redelivery] = []
    size = 0
    for w in wanted:
        needs = 512 + (len(w.repair.key or b"") + len(w.repair.value or b"")) * 3 // 2
        if some and (size + needs > _BYTES_AT_ONCE or len(some) == _AT_ONCE):
            yield some
            some, size = [], 0
        some.append(w)
        size += needs
    if some:
        yield some

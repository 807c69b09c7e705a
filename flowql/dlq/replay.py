"""Repairs are written, and the queries that missed the records are rebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowql.compiler.plan.deployed import About
from flowql.compiler.plan.topology import Plan
from flowql.deploy.request import DeployRequest
from flowql.dlq.repair import NOT_HERE, Repaired, check_never_read
from flowql.errors import CommandError
from flowql.query.dead_letters import Letter
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.repairs import CONFIG, Repair, Repairs, encode, topic_name
from flowql.server.address import LOST
from flowql.server.client import Client

_WRITER = "flowql-dlq"
_AT_ONCE, _BYTES_AT_ONCE = 2_000, 3 << 19  # of a call


def queries_of(letters: Sequence[Letter]) -> tuple[str, ...]:
    """The queries that failed on any of these letters."""
    return tuple(sorted({q for x in letters for q in x.queries}))


def replay(
    client: Client, log: Log, application_id: str, repaired: Sequence[Repaired], queries: Sequence[str], now_ms: int
) -> None:
    """Rebuild these queries, with all that read their results, over the records as they were repaired.

    Repairs are on the log before the deployment. Where that is refused they are taken back; after a crash in between the letters
    are still open, and the same call does the rest.
    """
    repairs = {
        (r.letter.tp, r.letter.offset): r.repair
        for r in repaired
        if r.letter.tp is not None and r.letter.offset is not None
    }
    deployed = client.deployed()[0]
    if deployed.held:
        title = f"{', '.join(deployed.held)}: built and held back (--shadow); a replay would let it serve"
        raise CommandError(title, code=NOT_HERE, help="flowql promote  or  flowql abandon  first")
    request = DeployRequest(refresh=tuple(queries), about=About(f"replay of {len(repaired):,} dead letters"))
    known = Repairs(log, application_id)
    before = {place: known.get(*place) for place in repairs}
    write(log, application_id, repairs, now_ms)
    try:
        client.deploy(deployed.plan, request)
    except CommandError as error:
        if (
            error.code != LOST
        ):  # without an answer it may have been done: the repairs stay, and the same call does the rest
            write(log, application_id, before, now_ms)
        raise


def append(client: Client, repaired: Sequence[Repaired], plan: Plan) -> dict[str, dict[str, Any]]:
    """Give records, as repaired, once more to the queries that missed them, beside their input. By query, what became of them.

    Each call is one commit. What fails in between leaves the letters of the rest open, and the same command does the rest.
    """
    check_never_read(repaired, plan)
    known = {q.id for q in plan.queries}
    wanted = [
        Redelivery(
            r.letter.tp,
            r.letter.offset,
            r.repair,
            tuple(q for q in r.letter.queries if q in known),
            (r.repair.key, r.repair.value, r.repair.timestamp_ms)
            != (r.letter.key, r.letter.value, r.letter.timestamp_ms),
        )
        for r in repaired
        if r.letter.tp is not None and r.letter.offset is not None
    ]
    found: dict[str, dict[str, Any]] = {}
    for some in _calls(wanted):
        for query, said in client.append(some).items():
            sums = found.setdefault(query, dict.fromkeys(said, 0))
            sums.update({n: sums[n] + v if n != "table" else v for n, v in said.items()})
    return found


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


def write(
    log: Log, application_id: str, repairs: Mapping[tuple[TopicPartition, int], Repair | None], now_ms: int
) -> None:
    """In one transaction. None takes a repair back."""
    if not repairs:
        return
    topic = topic_name(application_id)
    log.admin().create_topic(topic, 1, CONFIG)
    producer = log.producer(f"{_WRITER}-{application_id}")
    try:
        producer.begin()
        producer.send(TopicPartition(topic, 0), encode(repairs, now_ms))
        producer.commit()
    finally:
        producer.close()

"""Repairs are written, and the queries that missed the records are rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.plan.deployed import About
from flowql.deploy.asked import Asked
from flowql.dlq.letters import Letter
from flowql.dlq.repair import NOT_HERE, Repaired
from flowql.errors import CommandError
from flowql.server.client import LOST, Client
from runtime.log.base import Log, TopicPartition
from runtime.log.repairs import CONFIG, Repair, Repairs, encode, topic_name

_WRITER = "flowql-dlq"


def queries_of(letters: Sequence[Letter]) -> tuple[str, ...]:
    """Those that failed on any of them."""
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
    asked = Asked(refresh=tuple(queries), about=About(f"replay of {len(repaired):,} dead letters"))
    known = Repairs(log, application_id)
    before = {place: known.get(*place) for place in repairs}
    write(log, application_id, repairs, now_ms)
    try:
        client.deploy(deployed.plan, asked)
    except CommandError as error:
        if (
            error.code != LOST
        ):  # without an answer it may have been done: the repairs stay, and the same call does the rest
            write(log, application_id, before, now_ms)
        raise


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

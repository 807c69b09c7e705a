"""Repairs are written, and the queries that missed the records are rebuilt."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.plan.deployed import About
from flowql.deploy.asked import Asked
from flowql.dlq.letters import Letter
from flowql.dlq.repair import Repaired
from flowql.errors import CommandError
from flowql.server.client import Client
from runtime.log.base import Log, TopicPartition
from runtime.log.repairs import CONFIG, Repair, encode, topic_name

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
    plan = client.deployed()[0].plan
    asked = Asked(refresh=tuple(queries), about=About(f"replay of {len(repaired):,} dead letters"))
    write(log, application_id, repairs, now_ms)
    try:
        client.deploy(plan, asked)
    except CommandError:
        write(log, application_id, dict.fromkeys(repairs), now_ms)
        raise


def write(
    log: Log,
    application_id: str,
    repairs: dict[tuple[TopicPartition, int], Repair] | dict[tuple[TopicPartition, int], None],
    now_ms: int,
) -> None:
    """In one transaction. None takes a repair back."""
    if not repairs:
        return
    topic = topic_name(application_id)
    log.admin().create_topic(topic, 1, CONFIG)
    producer = log.producer(f"{_WRITER}-{application_id}")
    try:
        producer.begin()
        producer.send(TopicPartition(topic, 0), encode(dict(repairs), now_ms))
        producer.commit()
    finally:
        producer.close()

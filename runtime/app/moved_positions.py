"""Committed positions of the application's group that another program has moved, such as `kafka-consumer-groups --reset-offsets`.

Tasks go on at positions of their own, which belong to their state. So such a reset has no effect, and that is said.
"""

from __future__ import annotations

from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.topology import Plan
from flowql.runtime.errors import LogError
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Admin, TopicPartition


def note_moved(admin: Admin, application_id: str, plan: Plan) -> str:
    """A sentence about the positions that are not FlowQL's, whose metadata is never empty; empty if there are none, or brokers do not tell."""
    read = {topic: q.id for q in plan.queries for topic in topics_read(q)}
    try:
        counts = admin.partition_counts(list(read))
        tps = [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]
        positions = admin.stable_positions(application_id, tps)
    except LogError:
        return ""
    moved = sorted(tp for tp, position in positions.items() if not position.metadata)
    if not moved:
        return ""
    said = (
        f"another program has moved {len(moved)} committed positions of group {application_id} ({moved[0]} to {positions[moved[0]].offset}); queries "
        f"go on where their state is; to process records again:  flowql deploy --full-refresh {read[moved[0].topic]}"
    )
    say(WARNING, "positions.moved", said)
    return said

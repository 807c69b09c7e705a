"""Ticks as text: a statement returns the tick that shows what it wrote.

The text names offsets of source partitions, `own/0:12,own/1:7`. Numbers of ticks would not do: they are of one instance or leader, and a
statement may be carried out where no instance runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowql.query.errors import INVALID, QueryError
from flowql.runtime.log.base import TopicPartition

Ends = Mapping[TopicPartition, int]


def as_text(ends: Ends) -> str:
    return ",".join(f"{tp.topic}/{tp.partition}:{end}" for tp, end in sorted(ends.items()))


def as_ends(text: str) -> dict[TopicPartition, int]:
    """The inverse of `as_text`. Raises QueryError."""
    found = dict[TopicPartition, int]()
    try:
        for part in filter(None, text.split(",")):
            where, end = part.rsplit(":", 1)
            topic, partition = where.rsplit("/", 1)
            found = later(found, {TopicPartition(topic, int(partition)): int(end)})
    except ValueError:
        help_ = "give it as a statement or an answer has returned it, such as  orders/0:12"
        raise QueryError(f"{text[:80]!r} is not a tick", code=INVALID, help=help_) from None
    return found


def later(one: Ends, other: Ends) -> dict[TopicPartition, int]:
    """A tick that shows what both show."""
    return {**one, **{tp: max(end, one.get(tp, 0)) for tp, end in other.items()}}

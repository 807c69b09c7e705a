"""Records of a topic in portions, for a client that continues at the position of the last one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flowql.compiler.plan.topology import Plan
from flowql.runtime.log.base import Log, TopicPartition
from flowql.topics.codecs import RecordReader, source_over
from flowql.topics.records import json_lines, read_records, start_of

_BYTES_MAX = 8 << 20  # of an answer; one larger record is an answer of its own
_POSITION = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})*")


def records_of(
    log: Log, plan: Plan, topic: str, position: str | None, limit: int, *, beginning: bool
) -> tuple[list[bytes], str]:
    """At most `limit` records as JSON objects, partition by partition, and the position after them.

    position: of an earlier answer; None: the end, or with `beginning` the first record. If the number of partitions has changed, it starts again at
    the first records. Raises CommandError for a topic that does not exist.
    """
    ends, begins = start_of(log, topic, beginning=False), start_of(log, topic, beginning=True)
    offsets = dict(begins if beginning else ends)
    if position is not None:
        given = [int(part) for part in position.split("-")]
        known = given if len(given) == len(ends) else list(begins.values())
        offsets = {tp: max(offset, begins[tp]) for tp, offset in zip(sorted(ends), known, strict=True)}
    found: list[bytes] = []
    size, reader = 0, RecordReader(source_over(plan, topic))
    for batch in read_records(log, offsets, ends):
        assert batch is not None, "it ends"
        for offset, line in zip(batch.records.column(0).to_pylist(), json_lines(batch, reader), strict=True):
            if len(found) == limit or (found and size + len(line) > _BYTES_MAX):
                return found, _position(offsets)
            found.append(line.rstrip(b"\n"))
            size += len(line)
            offsets[batch.tp] = offset + 1
    return found, _position(ends)


def _position(offsets: Mapping[TopicPartition, int]) -> str:
    return "-".join(str(offset) for _, offset in sorted(offsets.items()))


def is_position(text: str) -> bool:
    """Whether a string has the form of a position."""
    return _POSITION.fullmatch(text) is not None

"""Who places the records of topics: what a source says of it (PARTITIONER), and which topics a query cannot read beside each other for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.logical import Scan, Sink
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import ExchangeSource, Operator, SubTopology
from flowql.compiler.plan.watermarks import EmitClosed

MURMUR2, CRC32, CUSTOM = "murmur2", "crc32", "custom"
# As clients call them: Java's and librdkafka's settings `partitioner`.
NAMES: Mapping[str, str] = {
    MURMUR2: MURMUR2, "murmur2_random": MURMUR2, CRC32: CRC32, "consistent": CRC32, "consistent_random": CRC32, CUSTOM: CUSTOM,
}  # fmt: skip
# Their state is of a partition, or of rows by something else than the key of their records.
_NOT_BY_KEY = (AsyncMap, EmitClosed, Process, Sink, TemporalFilter)


def meeting_scans(operators: Sequence[Operator]) -> dict[str, Scan]:
    """Sources, by operator, whose records of one key have to come to one task: tables, and what an operator keeps state of by key. A windowed
    key may have been placed without its window.
    """
    by_key = any(op.stores and not isinstance(op.spec, _NOT_BY_KEY) for op in operators)
    return {
        op.id: op.spec
        for op in operators
        if isinstance(op.spec, Scan) and op.schema.window is None and (by_key or op.spec.kind == "table")
    }


def placed_differently(sub: SubTopology, written: Collection[str], single: Collection[str]) -> tuple[str, str] | None:
    """Two things that a task reads side by side, with their partitioners, as a message names them; None if nothing is known to differ.

    written: sources whose topics FlowQL writes. single: those of one partition.
    """
    scans = meeting_scans(sub.operators)
    found: dict[str, str] = {}
    for scan in scans.values():
        partitioner = scan.partitioner or (MURMUR2 if scan.source in written else "")
        if partitioner and scan.source not in single:
            found.setdefault(partitioner, f"{scan.source}, which is placed by {partitioner}")
    if found and any(isinstance(op.spec, ExchangeSource) for op in sub.operators):
        found.setdefault(MURMUR2, f"rows that the query moves, which are placed by {MURMUR2}")
    first, *others = found.values() if len(found) > 1 else [""]
    return (first, others[0]) if others else None

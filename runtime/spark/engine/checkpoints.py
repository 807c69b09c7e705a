"""Checkpoints on disk: how far they are, and whether a query can go on from one. Reads Spark's files; no pyspark.

A checkpoint folder has `offsets/N` (what batch N reads, written before it runs) and `commits/N` (batch N is done). The log knows
the next epoch of the same run (`flowql.runtime.spark.log_append`), and commits a batch's results between the two. So `commits` is at
the log's last epoch or one behind it, and `offsets` has that epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import TopicDescription
from flowql.runtime.spark.engine.deployed import Record
from flowql.runtime.spark.errors import CheckpointLost, CheckpointOfOtherQuery, ResultsOfBatch
from flowql.runtime.spark.folders import Folder
from flowql.runtime.spark.log_append import CommittedEpochs
from flowql.runtime.spark.log_offsets import Offsets

NONE = -1  # no batch yet
REBUILD = "--rebuild  with flowql run or flowql deploy recomputes it and all that reads it"


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest batch with an `offsets` and with a `commits` file; NONE for no batch."""

    planned: int = NONE
    committed: int = NONE


def progress_of(checkpoint: Folder) -> Progress:
    return Progress(_newest(checkpoint / "offsets"), _newest(checkpoint / "commits"))


def positions_after(checkpoint: Folder, batch: int) -> Offsets:
    """Next offset by topic and partition after a batch; of several sources the lowest. {} when it is not known."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    found: Offsets = {}
    for line in lines[2:]:  # the version, what Spark keeps for itself, then a line per source
        said = json.loads(line) if line.startswith("{") else {}
        for topic, at in said.items():
            if not isinstance(at, dict):  # a source of another kind: files
                continue
            known = found.setdefault(topic, {})
            for partition, offset in at.items():
                known[partition] = min(offset, known.get(partition, offset))
    return found


def check_fits(query: QueryPlan, record: Record | None, committed: CommittedEpochs | None, checkpoint: Folder) -> None:
    """Whether a stream of the query may start on its checkpoint; raises what stands against it.

    record: of the query in `plan.json`; committed: of its results in the log.
    """
    if record is None:
        if committed is not None and committed.next_epoch:
            title = (
                f"{query.id} has results in the log (up to batch {committed.next_epoch - 1}), but its checkpoint is gone "
                f"({checkpoint})"
            )
            raise CheckpointLost(title, help=REBUILD)
        return
    if record.form == "batch":
        title = f"the results of {query.id} were computed as a batch, so a stream has no position to continue from"
        raise ResultsOfBatch(title, help=REBUILD)
    if record.definition != query.definition:
        title = f"{query.id} has changed since its checkpoint was made ({checkpoint})"
        raise CheckpointOfOtherQuery(title, help=REBUILD)
    done = progress_of(checkpoint)
    logged = committed.next_epoch - 1 if committed is not None and committed.run == record.run else NONE
    if done.committed in (logged, logged - 1) and (logged == NONE or done.planned >= logged):
        return
    has = f"it ends with batch {done.committed}" if done.committed > NONE else "it is gone"
    title = (
        f"the checkpoint of {query.id} does not fit its results in the log, which end with batch {logged}: {has} "
        f"({checkpoint})"
    )
    raise CheckpointLost(title, help=REBUILD)


def check_partitions(query: QueryPlan, checkpoint: Folder, described: Mapping[str, TopicDescription]) -> None:
    """Raises where the checkpoint has positions of another number of partitions than a topic has: keys may be in others than their state."""
    for topic, at in positions_after(checkpoint, progress_of(checkpoint).planned).items():
        now = described[topic].partitions if topic in described else len(at)
        if now != len(at):
            title = f"{topic} has {now} partitions, and had {len(at)} when {query.id} began: keys may be in other partitions than their state"
            raise CheckpointOfOtherQuery(title, help=REBUILD)


def lag(positions: Mapping[str, Mapping[str, int]], first: Offsets, after: Offsets) -> int:
    """Records between positions and the ends `after`; where there is no position, from the begin `first`."""
    behind = 0
    for topic, at in after.items():
        for partition, end in at.items():
            start = max(positions.get(topic, {}).get(partition, 0), first[topic][partition])
            behind += max(0, end - start)
    return behind


def _newest(folder: Folder) -> int:
    try:
        return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=NONE)
    except FileNotFoundError:
        return NONE
    except NotADirectoryError as error:
        raise StateError(f"{folder} is not a folder of a checkpoint") from error

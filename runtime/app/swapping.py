"""The swap of a generation where a log cannot replace records in a commit (Kafka): recorded steps that any member can continue.

The records of a swap and their writers:

- the plan topic, key `plan`: `Deployed`, with `swap` from the beginning of a swap to its end. Only `PlanWriter` writes it, so each
  record follows from the one before, and a fenced writer can write nothing more.
- the metadata topic, key = task: `parked` in a task's metadata is the id of the swap for which it has stopped. The last commit of the task
  writes it, with the producer of its member: so only the owner can write it, together with all results of the task. (A single instance
  needs no such mark: no other process runs its tasks.)
- the plan topic, key `swap-STAGING-PARTITION`: the progress of a `Move`. `MoveExecutor` writes it in the transaction that appends
  the records themselves.

The steps, what holds after each, and what a restart does there:

1. `swap` without moves. The tasks of the old generation are parked, and those of the new one once they have reached the positions of the old
   ones. *No member starts a parked task while the swap is recorded*: the new owner of a task reads both topics to their ends before it
   starts the task, and the previous owner has parked it or is fenced by the group. A restart continues to wait for the tasks. A deployment,
   or the leader after some time, can write a record without `swap`: then all tasks continue as before, and nothing has changed.
2. `swap` with moves, once every task of both generations is recorded as parked. From here on the swap cannot be taken back, and only the process
   that carries it out writes to the topics. The moves have the end offsets of the old records and the positions of tasks in the staging topics.
3. Old records of streams are deleted in all partitions before any new record is appended; deleting may be repeated. Then, for each
   move, transactions append the new records, or the difference between two tables, with the progress. A process that takes over first
   fences the previous one (`PlanWriter`) and continues from the recorded progress, so each record is appended once. `places` maps a reader's
   position in the staging topic to an offset in the topic: exactly the records before that position lie before that offset.
4. The record of the plan that now serves, without `swap`. Tasks start again with their positions translated by `Deployed.moved`, which
   stays recorded because a task may be without an owner for a long time. Staging topics are deleted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.deployed import (
    Deployed,
    How,
    Move,
    Moved,
    Swap,
    SwapGroup,
    groups_of,
    is_held,
    moved_in,
    takes_difference,
)
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import sink_of
from flowql.runtime.app.hosts import PlanHost
from flowql.runtime.app.plan_topic import topic_name
from flowql.runtime.app.plan_writer import PlanWriter, writer_of
from flowql.runtime.app.replacing import difference
from flowql.runtime.errors import LogDenied, LogUnavailable
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Admin, Log, TopicPartition
from flowql.runtime.task import dead_letters
from flowql.runtime.task.position_names import topic_named

POLICY = "cleanup.policy"
COMPACT = "kafka-configs --alter --entity-type topics --entity-name {topic} --add-config cleanup.policy=compact"
DELETE = "kafka-configs --alter --entity-type topics --entity-name {topic} --delete-config cleanup.policy"
BUILT = "built, waits for promote"
NEAR_RECORDS = 50_000  # a generation that is no further behind catches up in about a second
CHUNK_ROWS, CHUNK_BYTES = 20_000, 8 << 20  # of one transaction


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """Progress of a move. at: records of the staging partition before this offset are in the topic. places: see `Moved`."""

    swap: int
    at: int
    places: tuple[tuple[int, int], ...] = ()
    done: bool = False


# For each task: (name of its query, partition, positions by name).
TaskPositions = Collection[tuple[str, int, Mapping[str, int]]]


def moves_of(
    deployed: Deployed, group: SwapGroup, admin: Admin, application_id: str, tasks: TaskPositions
) -> tuple[Move, ...]:
    """The moves of a swap. All writers of the topics of the group have stopped. tasks: of the new generation."""
    topics, found = admin.topics(), list[Move]()
    for topic, staging in group.staging.items():
        how: How = "difference" if takes_difference(deployed, group, topic) else "replace"
        tps = [TopicPartition(topic, p) for p in range(topics[topic].partitions)]
        ends = {tp: admin.written_offset(tp) for tp in tps}
        if not any(ends[tp] > admin.begin_offset(tp) for tp in tps):
            how = "append"
        for tp in tps:
            positions = [at.items() for _, partition, at in tasks if partition == tp.partition]
            readers = {at for of_task in positions for name, at in of_task if topic_named(name) == staging}
            end = admin.written_offset(TopicPartition(staging, tp.partition))
            found.append(Move(staging, topic, tp.partition, how, ends[tp], end, tuple(sorted(readers))))
    letters = dead_letters.topic_name(application_id)
    for query in group.queries:
        staging = dead_letters.staging_topic(application_id, runtime_name(query))
        if staging in topics:
            end = admin.written_offset(TopicPartition(staging, 0))
            found.append(Move(staging, letters, 0, "append", 0, end))
    return tuple(found)


def let_delete(deployed: Deployed, group: SwapGroup, admin: Admin) -> None:
    """Before there is no way back: of a table that becomes a stream nothing is compacted any more. (And brokers delete nothing from a
    topic that is only compacted.)
    """
    known, streams = admin.topics(), set(changed_kinds(deployed, group, admin).streams)
    for topic in group.topics if deployed.prefix else ():
        if "delete" not in known[topic].config.get(POLICY, "delete") and not takes_difference(deployed, group, topic):
            streams.add(topic)
    for topic in sorted(streams):
        admin.alter_topic(topic, {POLICY: None})


def compact_tables(deployed: Deployed, group: SwapGroup, admin: Admin) -> None:
    """When the new records are there: retention would take the rows of what was a stream. LogUnavailable: it is to be done again."""
    for topic in changed_kinds(deployed, group, admin).tables:
        try:
            admin.alter_topic(topic, {POLICY: "compact"})
        except LogDenied as error:  # the right was there when it was deployed
            text = (
                f"{topic} is a table now and would lose rows by retention: {error}; type  {COMPACT.format(topic=topic)}"
            )
            say(WARNING, "topic.policy", text)


@dataclass(frozen=True, slots=True)
class ChangedKinds:
    """Topics whose cleanup.policy is not that of what they will hold: streams lose none to compaction, tables none to retention."""

    streams: tuple[str, ...]
    tables: tuple[str, ...]


def changed_kinds(deployed: Deployed, group: SwapGroup, admin: Admin) -> ChangedKinds:
    """Topics whose kind changes with the swap of this group. A cleanup policy that was set on a topic with records stays."""
    known, found = admin.topics(), dict[str, list[str]]({"stream": [], "table": []})
    for topic in sorted(group.topics.keys() & known.keys()):
        policy, history = known[topic].config.get(POLICY, "delete"), deployed.history(topic)
        kinds = {sink_of(q).kind for q in group.queries if q.topic == topic}
        new = "table" if kinds == {"table"} else "stream"
        if history is not None and history.kind != new and ("compact" in policy) != (new == "table"):
            found[new].append(topic)
    return ChangedKinds(tuple(found["stream"]), tuple(found["table"]))


def all_wait(deployed: Deployed, why: Mapping[str, str]) -> bool:
    """Whether all that is left to be done is to promote what is built. why: what the swap of each group waits for, by name."""
    groups = groups_of(deployed)
    return (
        deployed.swap is None
        and bool(groups)
        and all(is_held(deployed, g) and why.get(g.name) == BUILT for g in groups)
    )


def missing_topics(admin: Admin, group: SwapGroup) -> list[str]:
    """Topics of a group that were deleted: there is nothing to swap in to."""
    known = admin.topics()
    return sorted(t for t in group.all_topics if t not in known)


def results_are_seen(admin: Admin, group: SwapGroup) -> bool:
    """Whether all that both generations have committed is to be seen. Brokers answer a commit a little before that."""
    known = admin.topics()
    topics = [t for t in group.all_topics if t in known]
    tps = [TopicPartition(t, p) for t in topics for p in range(known[t].partitions)]
    ends = admin.end_offsets(tps)
    return all(ends.get(tp, 0) >= admin.written_offset(tp) for tp in tps)


def begun(deployed: Deployed, group: SwapGroup) -> Deployed:
    """Step 1."""
    swap = Swap(deployed.swaps + 1, group.name)
    return replace(deployed, swap=swap, swaps=swap.id)


def with_moves(
    deployed: Deployed, group: SwapGroup, admin: Admin, application_id: str, tasks: TaskPositions
) -> Deployed:
    """Step 2. See `moves_of`."""
    assert deployed.swap is not None, "nothing swaps in"
    moves = moves_of(deployed, group, admin, application_id, tasks)
    return replace(deployed, swap=replace(deployed.swap, moves=moves))


def taken_back(deployed: Deployed) -> Deployed:
    """The deployment record as before step 1."""
    assert deployed.swap is not None, "nothing swaps in"
    assert deployed.swap.moves is None, "there is no way back any more"
    return replace(deployed, swap=None)


def group_of_swap(deployed: Deployed) -> SwapGroup | None:
    """The group that swaps in, if one does."""
    swap = deployed.swap
    return None if swap is None else next(g for g in groups_of(deployed) if g.name == swap.group)


class MoveExecutor:
    """Carries out the moves of a swap, a transaction at a time. After an error of `step` it is of no more use."""

    def __init__(self, log: Log, application_id: str, writer: PlanWriter) -> None:
        swap = writer.deployed.swap
        assert swap is not None, "nothing swaps in"
        assert swap.moves is not None, "tasks are still being parked"
        self._log, self._app, self._writer, self._swap, self._moves = log, application_id, writer, swap, swap.moves
        self._progress = {k: p for k, p in read_progress(log, application_id).items() if p.swap == swap.id}

    def step(self, now_ms: int) -> bool:
        """The next transaction; True when there is nothing left but `finish`. LogUnavailable: not everything is to be seen yet."""
        for move in self._deletions_first():
            known = self._progress.get(_key(move))
            if known is None or not known.done:
                self._go_on(move, known, now_ms)
                return False
        return True

    def _deletions_first(self) -> Iterator[Move]:
        """Moves in the order in which they are worked on. A reader of a stream never finds new records in one partition and old ones in
        another: nothing is appended before the old records of all partitions are deleted.
        """
        yield from (m for m in self._moves if m.how == "replace" and _key(m) not in self._progress)
        yield from self._moves

    def finish(self, now_ms: int) -> Deployed:
        """Step 4: what serves from now on."""
        deployed = self._writer.deployed
        group = group_of_swap(deployed)
        assert group is not None
        compact_tables(deployed, group, self._log.admin())
        places = [
            Moved(m.staging, m.topic, m.partition, self._progress[_key(m)].places) for m in self._moves if m.readers
        ]
        after = moved_in(deployed, group, places)
        gone = [(self._plan_topic, _records([(_key(m), None) for m in self._moves], now_ms))]
        self._writer.write(after, now_ms, records=gone)
        for query in group.queries:
            say(INFO, "query.swapped", query=query.id, generation=query.generation)
        return after

    @property
    def _plan_topic(self) -> TopicPartition:
        return TopicPartition(topic_name(self._app), 0)

    def _go_on(self, move: Move, known: MoveProgress | None, now_ms: int) -> None:
        records: Sequence[pa.RecordBatch]
        if known is None:
            records, after = self._first(move)
        else:
            known = self._placed(move, known)
            records, at = self._next(move, known.at)
            after = replace(known, at=at, done=known.at >= move.staged_end)
        topic = TopicPartition(move.topic, move.partition)
        said = _records([(_key(move), _written(after))], now_ms)
        self._writer.transact([*((topic, batch) for batch in records), (self._plan_topic, said)])
        self._progress[_key(move)] = after

    def _first(self, move: Move) -> tuple[Sequence[pa.RecordBatch], MoveProgress]:
        """Deletes replaced records. For a table, one difference covers all that its readers have read; history follows."""
        topic, staging = TopicPartition(move.topic, move.partition), TopicPartition(move.staging, move.partition)
        if move.how == "replace" and self._log.admin().begin_offset(topic) < move.end:
            self._log.admin().drop_before(topic, move.end)
        if move.how != "difference":
            return (), MoveProgress(self._swap.id, 0)
        for tp, end in ((topic, move.end), (staging, move.staged_end)):
            if self._log.admin().end_offset(tp) < end:
                raise LogUnavailable(f"not all of {tp} is to be seen yet")
        at = min(move.readers, default=move.staged_end)
        return difference(self._log, staging, at, topic, move.end), MoveProgress(self._swap.id, at)

    def _placed(self, move: Move, known: MoveProgress) -> MoveProgress:
        """Adds the new position of a reader at this member: all before it is committed, nothing behind it is written."""
        if known.at not in move.readers or known.at in dict(known.places):
            return known
        offset = self._log.admin().written_offset(TopicPartition(move.topic, move.partition))
        return replace(known, places=(*known.places, (known.at, offset)))

    def _next(self, move: Move, at: int) -> tuple[Sequence[pa.RecordBatch], int]:
        """Records from a position in the staging topic on, at most to the next one that a reader has; and where they end."""
        limit = min((r for r in move.readers if r > at), default=move.staged_end)
        if at >= limit:
            return (), at
        reader = self._log.reader(TopicPartition(move.staging, move.partition), at)
        batch = reader.read(CHUNK_ROWS, CHUNK_BYTES)
        position = reader.position
        reader.close()
        if batch is None:
            if position < limit:
                raise LogUnavailable(f"not all of {move.staging} is to be seen yet")
            return (), limit
        rows = int(np.searchsorted(batch.records.column(0).to_numpy(), limit))
        return [batch.records.slice(0, rows).select(PRODUCE_SCHEMA.names)], min(batch.next_offset, limit)


class SwapExecutor:
    """Carries out a recorded swap, as the writer of the plan. Owned by the reconciler's thread."""

    def __init__(self, host: PlanHost) -> None:
        self._host = host
        self._writer: PlanWriter | None = None
        self._move_executor: MoveExecutor | None = None

    def open(self) -> PlanWriter:
        """Becomes the writer of the plan, unless it is already."""
        if self._writer is None:
            self._writer = writer_of(self._host)
        return self._writer

    def release(self) -> None:
        """Closes the writer: another member leads, an attempt has failed, or nothing is left to do."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._move_executor = None

    def step(self) -> Deployed | None:
        """Carries out the next transaction of the swap in `deployed`.

        Returns None while transactions are left, then the newest record. That record no longer has the swap, or never had it.
        """
        host, ours = self._host, self._host.deployed.swap
        assert ours is not None, "nothing swaps in"
        try:
            newest = self.open().deployed
            if newest.swap is not None and newest.swap.id == ours.id:
                if self._move_executor is None:
                    self._move_executor = MoveExecutor(host.log, host.config.application_id, self.open())
                if not self._move_executor.step(host.clock.wall_ms()):
                    return None
                newest = self._move_executor.finish(host.clock.wall_ms())
        except BaseException:
            self.release()
            raise
        self.release()
        return newest


def read_progress(log: Log, application_id: str) -> dict[bytes, MoveProgress]:
    """The recorded progress of all moves, by key."""
    found: dict[bytes, MoveProgress] = {}
    for key, value in _pairs(log, TopicPartition(topic_name(application_id), 0)):
        if key is not None and key.startswith(_PREFIX):
            found.pop(key, None)
            if value is not None:
                found[key] = _read(value)
    return found


_PREFIX = b"swap-"


def _key(move: Move) -> bytes:
    return _PREFIX + f"{move.staging}-{move.partition}".encode()


def _written(p: MoveProgress) -> bytes:
    return json.dumps({"swap": p.swap, "at": p.at, "places": p.places, "done": p.done}).encode()


def _read(value: bytes) -> MoveProgress:
    data = json.loads(value)
    places = tuple((int(there), int(here)) for there, here in data["places"])
    return MoveProgress(data["swap"], data["at"], places, data["done"])


def _records(found: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> pa.RecordBatch:
    columns = [[now_ms] * len(found), [k for k, _ in found], [v for _, v in found], [None] * len(found)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


def _pairs(log: Log, tp: TopicPartition) -> Iterator[tuple[bytes | None, bytes | None]]:
    with closing(log.reader(tp, EARLIEST)) as reader:
        while (batch := reader.read(10_000, 1 << 26)) is not None:
            columns = (batch.records.column(name).to_pylist() for name in ("key", "value"))
            yield from zip(*columns, strict=True)

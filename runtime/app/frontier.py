"""Progress tracking for empty channels of repartition topics: whether rows may still arrive that other rows must not overtake.

In a single process a channel knows its upstream task. In a group that task may run on any member, so progress is read from the log, by probes. A
probe takes the end offsets of the inputs of upstream tasks. Once the committed positions of these tasks have reached them, all results of those
records are in the repartition topic. A channel that has been read up to the end that the topic then has is *complete* for the probe: later rows
come from records that were appended later. Rows that had arrived before the probe began need not wait any longer (rule R5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.state.manager import StateManager
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput, Probes
from flowql.runtime.task.task import Task


@dataclass(frozen=True, slots=True)
class Upstream:
    """A task that writes to repartitions. reads: its source partitions. before: its upstream tasks."""

    reads: frozenset[TopicPartition]
    before: tuple[TaskId, ...] = ()


class Frontier:
    """Only the thread of the group step uses it. `tasks`: every task of the plan; `writers`: repartition topic -> the sub-topology that writes it."""

    def __init__(self, admin: Admin, group: str) -> None:
        self.probes = Probes()
        self.tasks: Mapping[TaskId, Upstream] = {}
        self.writers: Mapping[str, tuple[str, int]] = {}  # topic -> query and sub-topology
        self._admin, self._group = admin, group
        self._done: dict[TaskId, int] = {}  # the last probe for which all of a task's results are in its topics
        self._pending: dict[TaskId, tuple[int, dict[TopicPartition, int]]] = {}

    def set_plan(self, tasks: Mapping[TaskId, Upstream], writers: Mapping[str, tuple[str, int]]) -> None:
        """Starts to track the tasks of a new plan."""
        self.tasks, self.writers = tasks, writers
        self._done, self._pending = {}, {}

    def probe(self, inputs: Iterable[LogInput]) -> bool:
        """Begins a probe for channels that delay other rows, and ends those whose tasks have reached the offsets. True if a channel has become complete. After a LogError the caller probes again later.

        A channel whose writer is not known belongs to a query that is being stopped: no task waits for it any more.
        """
        channels = [i for i in inputs if i.waited_for and self._writer(i) in self.tasks]
        if not channels:
            return False
        self.probes.started += 1
        writers = {id(channel): self._writer(channel) for channel in channels}
        involved = self._closure(set(writers.values()))
        self._begin(involved)
        self._finish()
        completed = False
        for channel in channels:
            done = self._done.get(writers[id(channel)], 0)
            if done > channel.complete:
                channel.complete_at = self._admin.written_offset(channel.tp)
                channel.complete = done  # after the other: a thread may be looking
                completed = True
        return completed

    def _writer(self, channel: LogInput) -> TaskId:
        return TaskId(*self.writers[channel.tp.topic], channel.source)

    def _closure(self, tasks: set[TaskId]) -> list[TaskId]:
        """These tasks and all tasks upstream of them, sorted."""
        found, todo = set(tasks), list(tasks)
        while todo:
            new = [t for t in self.tasks[todo.pop()].before if t not in found]
            found.update(new)
            todo += new
        return sorted(found)

    def _begin(self, tasks: Iterable[TaskId]) -> None:
        """Note the ends of what tasks read. For tasks behind others it does so when those are done, and for the probe that they have completed."""
        for task in tasks:
            if task in self._pending:
                continue
            before = self.tasks[task].before
            number = min((self._done.get(t, 0) for t in before), default=self.probes.started)
            if number > self._done.get(task, 0):
                reads = sorted(self.tasks[task].reads)
                inner = [tp for tp in reads if tp.topic in self.writers]
                ends = self._admin.end_offsets([tp for tp in reads if tp not in inner])
                # Committed and visible is not the same: what was written counts.
                self._pending[task] = number, ends | {tp: self._admin.written_offset(tp) for tp in inner}

    def _finish(self) -> None:
        tps = sorted({tp for _, ends in self._pending.values() for tp in ends})
        positions = {tp: p.offset for tp, p in self._admin.stable_positions(self._group, tps).items()}
        for task, (number, ends) in list(self._pending.items()):
            if all(positions.get(tp, 0) >= end for tp, end in ends.items()):
                self._done[task] = number
                del self._pending[task]


class RepartitionCleanup:
    """Deletes processed records of repartitions. Only the thread of the group step uses it."""

    def __init__(self, admin: Admin, state: StateManager) -> None:
        self._admin, self._state = admin, state
        self._before: dict[TopicPartition, int] = {}

    def delete_processed(self, tasks: Iterable[Task]) -> None:
        """Deletes processed records of the repartitions that these tasks read.

        The positions come from the records of tasks, where the next owner of a task begins. The committed positions of the group may be further:
        they also move over transaction markers.
        """
        for task in tasks:
            channels = [i for i in task.logs.values() if i.channel is not None]
            record = self._state.local_record(str(task.id)) if channels else None
            if record is None:
                continue
            positions = record.read().get("positions", {})
            for tp in sorted({i.tp for i in channels}):
                offset = min(positions.get(i.name, 0) for i in channels if i.tp == tp)
                if offset > self._before.get(tp, 0):
                    self._admin.drop_before(tp, offset)
                    self._before[tp] = offset

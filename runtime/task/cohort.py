"""Joint micro-batches: one call of the program for small inputs of several tasks of one sub-topology.

A micro-batch has a fixed cost, and an input with many partitions has few rows in each. Position, order, state, stream time and dead letters
stay those of each task, and each task publishes its part for itself. If a joint micro-batch fails, each of its tasks is processed alone, which finds the
record or the task that fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from flowql.runtime.clock import Clock
from flowql.runtime.functions.runs import run_of
from flowql.runtime.log.base import RawBatch
from flowql.runtime.task.channels import Known
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import DecodedRows
from flowql.runtime.task.input_slice import Taken
from flowql.runtime.task.program import JointPart
from flowql.runtime.task.task import Begins, Task

INPUTS_MAX = 256  # of a joint micro-batch: so many positions fit into a slot of the beat file


class Cohort:
    """The tasks that one thread holds during a slice. current: the task that is processed or publishes now; an exception belongs to it."""

    def __init__(self, tasks: Sequence[Task], clock: Clock, known: Known | None = None) -> None:
        """known: tasks that were asked just now whether they are idle."""
        self.current = tasks[0]
        self._tasks, self._clock = tasks, clock
        self._known = Known() if known is None else known

    def process(self, budget_ns: int, begins: Begins) -> int:
        """Runs tasks until the budget is spent or each had its turn; at least one micro-batch. Returns rows processed."""
        start, rows = self._clock.cost_ns(), 0
        waiting, alone = deque(self._tasks), set[TaskId]()
        while waiting:
            left_ns = budget_ns - (self._clock.cost_ns() - start)
            if rows and left_ns <= 0:
                break
            members = self._members((t for t in waiting if t.id not in alone), budget_ns)
            if len(members) > 1:
                rows += self._run_jointly(members, budget_ns, begins, alone)
                joined = {t.id for t in members} - alone
                waiting = deque(t for t in waiting if t.id not in joined)
            else:
                self.current = waiting.popleft()
                rows += self.current.process(left_ns, begins)
            self._known = Known()
        return rows

    def _members(self, tasks: Iterable[Task], budget_ns: int) -> list[Task]:
        """The first tasks whose rows fit into one micro-batch together."""
        found, rows, inputs, most = list[Task](), 0, 0, 0
        for task in tasks:
            if not (task.joins and task.runnable_with(self._known)):
                continue
            rows, inputs = rows + task.buffered_rows, inputs + len(task.logs)
            if found and (rows > most or inputs > INPUTS_MAX or len(found) == found[0].sizer.tasks):
                break
            most = most or task.sizer.joint.rows(budget_ns)
            found.append(task)
        return found

    def _run_jointly(self, members: Sequence[Task], budget_ns: int, begins: Begins, alone: set[TaskId]) -> int:
        """One micro-batch of the rows of these tasks. alone: gets those that are to be processed alone instead."""
        lead = members[0]
        measured, taken = lead.measure(), list[tuple[Task, Taken]]()
        begins(members)
        try:
            _decode(members)
            for task in members:
                mine = task.take(lead.rows_max(budget_ns), self._known)
                if mine.rows:
                    taken.append((task, mine))
                else:
                    alone.add(task.id)
            parts = [JointPart(t.program, mine.batches, mine.rows, mine.context()) for t, mine in taken]
            rows = sum(part.rows for part in parts)
            with run_of(lambda: rows):
                outputs = lead.program.execute_jointly(parts) if parts else []
        except Exception:  # each of them raises it again alone, or does not
            alone.update(t.id for t in members)
            _discard(members)
            return 0
        except BaseException:
            _discard(members)
            raise
        for n, ((task, mine), part) in enumerate(zip(taken, parts, strict=True)):
            self.current = task
            try:
                task.publish(mine, part.run, outputs[n])
            except BaseException:
                _discard(t for t, _ in taken[n:])
                raise
        measured(rows, len(taken))
        return rows


def _decode(tasks: Sequence[Task]) -> None:
    """Decodes the first batches of their inputs, all at once where the program can."""
    for name, first in tasks[0].logs.items():
        if (decode := tasks[0].program.joint_decoder(first.operator)) is None:
            continue
        sources = [(t, t.logs[name]) for t in tasks if name in t.logs]
        heads = [(t, s, s.head()) for t, s in sources if s.decoded is None and not s.skipped]
        found = [(t, s, head) for t, s, head in heads if head is not None]
        decoded = decode([head for _, _, head in found]) if found else []
        for (task, source, _), rows in zip(found, decoded, strict=True):
            source.decode_next(partial(_decoded_before, rows, task, source.operator))


def _decoded_before(
    rows: DecodedRows, task: Task, operator: str, raw: RawBatch, fetched: Sequence[RawBatch]
) -> DecodedRows:
    """These rows, unless more records were gathered with theirs meanwhile."""
    return rows if raw is rows.raw else task.program.decode(operator, task.state, raw, fetched)


def _discard(tasks: Iterable[Task]) -> None:
    for task in tasks:
        task.state.discard()

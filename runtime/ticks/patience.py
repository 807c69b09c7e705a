"""How long a commit waits for queries on their way to the end of a tick: a tick that is in one commit leaves no row in a topic that shows a part of it.

The wait is bounded: by commit intervals, which are short where a query has a latency target, by half of the memory for what is not committed, and by
queries of more weight, whose rows never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from flowql.compiler.plan.topology import Plan
from flowql.runtime.events import WARNING, is_a_step, say
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.graph import Stage
from flowql.runtime.ticks.host import TickHost

# In commit intervals. FIRST: no view of this instance has finished a tick, so the tick is all history, and nothing is shown before it. STILL: without a row read, such as in a function
# that hangs, which must not hold up the commits of others.
WHOLE, FIRST, STILL = 10, 100, 3
FULL = "half of the memory for uncommitted rows is in use; the setting `memory` decides its size"
OUTRANKED = "rows of a query of more weight wait"
UNKNOWN = "the ends of its sources were not known in time"


@dataclass(slots=True)
class Patience:
    """With the tasks that write one topic, from one cut to the next. reached: the sum of their positions when it last grew, after `at_ms` of waiting.
    bound: why a commit last waited for them no more. split: how often a cut found that a part of a tick was published.
    """

    reached: int = -1
    at_ms: int = 0
    bound: str = "a commit did not wait for it"
    split: int = 0

    def is_over(
        self, host: TickHost, of: Stage, tasks: Sequence[Task], waited_ms: int, grace_ms: int, *, is_first: bool
    ) -> bool:
        """Whether a commit that has waited so long waits no more. grace_ms: that it waits for all. is_first: none has finished a tick yet."""
        if waited_ms < grace_ms or not of.is_combined:
            return waited_ms >= grace_ms
        if is_outranked(of.queries, host.running, host.tasks_of):
            self.bound = OUTRANKED
            return True
        interval_ms = host.commit.interval_ms
        reached = sum(i.position for task in tasks for i in task.logs.values())
        if reached != self.reached:
            self.reached, self.at_ms = reached, waited_ms
        longest = interval_ms * (FIRST if is_first else WHOLE)
        if not all(task.status is TaskStatus.RUNNING for task in tasks):
            self.bound = "a task of it does not run"
        elif waited_ms >= longest:
            self.bound = f"it takes more than {longest:,} ms"
        elif waited_ms - self.at_ms >= interval_ms * STILL:
            self.bound = f"it read nothing for {interval_ms * STILL:,} ms"
        else:
            return False
        return True

    def note_split(self, of: Stage, tasks: Sequence[Task], tick: int) -> None:
        """At a cut that does not find these tasks at the line of a tick."""
        if of.is_combined and any(map(has_published, tasks)):
            self.split += 1
            if is_a_step(self.split - 1, self.split):
                query, needs = ", ".join(of.queries), f"needs more than one commit, as {self.bound}"
                said = f"tick {tick} of {query} {needs}: its topic has rows of a part of the tick until it ends"
                say(WARNING, "tick.split", said, query=query, tick=tick, total=self.split, bound=self.bound)

    def begin(self) -> None:
        """At a cut."""
        self.reached, self.at_ms = -1, 0


def is_outranked(queries: Collection[str], running: Plan, tasks_of: Callable[[str], Sequence[Task]]) -> bool:
    """Whether rows of a query with more weight than these wait for a commit."""
    weights = {q.id: q.weight for q in running.queries}
    most = max((weights.get(q, 0) for q in queries), default=0)
    return any(has_published(task) for query, weight in weights.items() if weight > most for task in tasks_of(query))


def has_published(task: Task) -> bool:
    """Since the last cut. The epoch lock is held."""
    return isinstance(task.state, ManagedTask) and task.state.is_dirty

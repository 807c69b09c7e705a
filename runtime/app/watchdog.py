"""The watchdog: a step whose `run_once` does not return is named in status and log, and a member leaves its group for it (rule R15).

The watchdog does not end the step: a function that hangs cannot be interrupted. A member that leaves commits nothing more, records for the
other members which micro-batch does not end (`flowql.runtime.app.hung`), and keeps its threads and tasks; other members continue from the last commit.
Once the step has ended the member joins the group again, as a new member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flowql.runtime.clock import Clock
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.events import ERROR, INFO, WARNING, say
from flowql.runtime.scheduler.manager import TaskManager

LOOK_MS = 1_000
PAUSED_MS = 20_000  # between two looks: longer than any thread waits for a processor
STUCK_MS = 30_000  # far longer than the slowest step that makes progress
LEAVE_MS = 120_000  # tasks that move cost their new owner a restoration: not for a pause
TELL_MS = 30_000  # before that it tries for this long to record the hung micro-batch
# A compaction has no time limit.
PATIENT = frozenset({"cleanup"})
# Another member could not take over the work of these steps. Without a placement step a member sends no heartbeats, and others take over in any case.
STAYS = PATIENT | {
    "placement",
    "consumer-main",
    "consumer-restore",
    "rates",
    "remote",
    "sizes",
    "merge",
    "memory",
    "watchdog",
    "statistics",
}


@dataclass(frozen=True, slots=True)
class StuckStep:
    """A step that has not returned for `for_ms`. task: held by its thread. where: the code that the thread is in."""

    step: str
    for_ms: int
    task: str | None
    where: str

    @property
    def waits_for_disk(self) -> bool:
        """Its innermost call is one of the physical store, so no function is to blame. (`runtime/state/rocks.py` alone calls RocksDB.)"""
        return self.where.rpartition(" > ")[2].startswith("rocks.py:")

    def to_data(self) -> dict[str, Any]:
        return {"step": self.step, "for_ms": self.for_ms, "task": self.task, "where": self.where}


class GroupMember(Protocol):
    """The part of an instance that is a member of a group."""

    def stay_away(self, *, away: bool) -> None:
        """Leaves its group, with the loss of all partitions, or joins it again."""
        ...

    def tell_hung(self, stuck: Sequence[StuckStep]) -> bool:
        """Records for the other members which micro-batches do not end. False if that failed and has to be repeated. It blocks."""
        ...


class WatchedHost(Protocol):
    """The instance, as far as the watchdog needs it."""

    clock: Clock
    manager: TaskManager
    commit: CommitStep

    @property
    def group(self) -> GroupMember | None: ...


class Watchdog:
    """A step. Each thread notes in `rounds` when its round began, and removes it when it has ended; `stuck` may be asked by any."""

    def __init__(self, host: WatchedHost) -> None:
        self._host = host
        self.rounds: dict[str, int] = {}  # start times (ms) of the rounds of running steps, by name
        self._named: dict[str, int] = {}  # steps that were reported as stuck, with their start times
        self._looked_ms: int | None = None
        self.is_away = False  # this member has left its group
        self._leaves_ms: int | None = None  # since when it wants to leave
        self.where: Callable[[str], str] = lambda _step: ""  # the code that a step's thread is in

    def stuck(self, now_ms: int) -> list[StuckStep]:
        holders = {thread: task for task, thread in self._host.manager.running().items()}
        return [
            StuckStep(step, now_ms - since, holders.get(step), self.where(step))
            for step, since in sorted(self.rounds.copy().items())
            if now_ms - since >= STUCK_MS and step not in PATIENT
        ]

    def run_once(self, now_ms: int) -> int:
        self._forgive_pause(now_ms)
        stuck = self.stuck(now_ms)
        self._say(stuck, now_ms)
        if self._host.group is not None:
            self._look_after_member(self._host.group, stuck, now_ms)
        return LOOK_MS

    def _forgive_pause(self, now_ms: int) -> None:
        """Who was stopped as a whole (a paused container) did not look meanwhile: rounds count from now on."""
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        if looked_ms is not None and now_ms - looked_ms > PAUSED_MS:
            for step in list(self.rounds):
                self.rounds[step] = now_ms

    def _say(self, stuck: list[StuckStep], now_ms: int) -> None:
        """Each round once, and that it has ended."""
        now = {s.step: now_ms - s.for_ms for s in stuck}
        for s in stuck:
            if self._named.get(s.step) != now[s.step]:
                query = None if s.task is None else s.task.rpartition("/")[0]
                said = f"{s.step} has not finished a round for {s.for_ms // 1000} s"
                say(ERROR, "step.stuck", said, query=query, task=s.task, step=s.step, where=s.where)
        for step in self._named.keys() - now.keys():
            say(INFO, "step.goes_on", f"{step} goes on", step=step)
        self._named = now

    def _look_after_member(self, member: GroupMember, stuck: list[StuckStep], now_ms: int) -> None:
        leaves = self._leaves_ms is not None
        causes = [s for s in stuck if s.step not in STAYS and (leaves or s.for_ms >= LEAVE_MS)]
        if causes and not self.is_away:
            self._leave(member, causes, now_ms)
        elif leaves and not causes:
            say(INFO, "member.returned", "it joins its group again")
            member.stay_away(away=False)
            self.is_away, self._leaves_ms = False, None

    def _leave(self, member: GroupMember, causes: list[StuckStep], now_ms: int) -> None:
        """The others learn of what hangs before they can get it; without brokers they do not, after a while."""
        why = f"{causes[0].step} is stuck: this member has left its group until it continues"
        if self._leaves_ms is None:
            self._leaves_ms = now_ms
            self._host.commit.lose(why)  # first: others may have the partitions as soon as they are given back
        told = member.tell_hung([s for s in causes if s.for_ms >= LEAVE_MS])
        self._looked_ms = self._host.clock.timer_ms()  # brokers may have taken their time
        if not told and now_ms - self._leaves_ms < TELL_MS:
            return
        say(WARNING, "member.left", why, task=causes[0].task)
        member.stay_away(away=True)
        self.is_away = True

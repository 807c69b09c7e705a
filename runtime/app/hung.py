"""Functions that hang: an instance that starts again, and the members that get its tasks, learn of it before they begin them.

Without that a function that does not return takes out one member after another: each leaves its group for it (`flowql.runtime.app.watchdog`),
and the next one begins the same run. With it the query is `hung` on every member, and the others' queries go on; `flowql resume` has it
tried again, and so has a deployment that changes it. A function that keeps the interpreter lock leaves its process no way to tell: the
watchdog process ends it and writes a file (`flowql.runtime.app.freeze`), which the next start passes on to the topic before it makes any task.

A member that dies inside of micro-batches (a function that ends the process, a fault, memory) passes them on in the same way. One death is a
suspicion, as it may have any reason and several micro-batches may have been in progress: the next owner tries these queries one at a time
(`flowql.runtime.app.trials`). The second death before one of them has passed the place holds the query like one that hung.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from flowql.compiler.plan.generations import user_id
from flowql.runtime.app.freeze import Frozen, forget_frozen, read_frozen
from flowql.runtime.app.hung_topic import DEATHS_MAX, HungMicroBatch, HungReader, release, write_hung
from flowql.runtime.app.trials import TrialHost, Trials
from flowql.runtime.app.watchdog import StuckStep
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.errors import LogError
from flowql.runtime.events import ERROR, WARNING, say

LOOK_MS = 1_000  # between two looks for what other members say
ABSENT_MS = 5_000  # the same while there is no topic, for which brokers are asked


class HungHost(TrialHost, Protocol):
    """The instance, as far as it is needed here."""

    commit: CommitStep


class HungQueries:
    """Owned by the group step's thread, but for `tell`; of an instance alone by the reconciler's, and by the one that starts it."""

    def __init__(self, host: HungHost) -> None:
        self._host = host
        self._reader = HungReader(host.log, host.config.application_id)
        self._trials = Trials(host)
        self._at_ms = 0
        self._passed_on = False

    def look(self, now_ms: int) -> None:
        """Now and then: what was said since, and what was released. LogError: another time.

        A member that was ended passes on what it was doing even if it gets no task: others wait until it has been silent for long enough, and then begin its tasks.
        """
        if now_ms >= self._at_ms:
            self._at_ms = now_ms + LOOK_MS
            self._pass_on()
            self._reader.read_on()
            self.apply()
            if not self._reader.is_open:
                self._at_ms = now_ms + ABSENT_MS
        self._trials.look()

    def learn(self) -> None:
        """Everything that was said before this call. LogError: to be tried again before tasks are made."""
        self._pass_on()
        self._reader.read_to_end()
        self.apply()

    def _pass_on(self) -> None:
        """Writes to the log which micro-batches the watchdog process has reported since the last start."""
        host = self._host
        frozen = [] if self._passed_on or host.config.data_dir is None else read_frozen(host.config.data_dir)
        if not frozen:
            self._passed_on = True  # the file is only written when this process has ended
            return
        me, now_ms = host.config.process_id, host.clock.wall_ms()
        self._reader.read_to_end()
        earlier = {one.suspect: one.deaths for one in self._reader.hung if one.member == me}
        runs = [_run_of(f, me, earlier) for f in frozen if f.query]
        if runs:
            write_hung(host.log, host.config.application_id, runs, now_ms)
        for f in frozen:
            at = {"task": f.task, "position": f.position, "where": f.where} if f.query else {}
            event = "instance.died" if f.died else "instance.frozen"
            say(ERROR, event, f.why, query=f.id or None, **at, process=f.pid, trace=f.trace)
        assert host.config.data_dir is not None, "its file was read"
        forget_frozen(host.config.data_dir)

    def apply(self) -> None:
        """Applies the known runs to the running queries. Another definition or generation counts as another query."""
        running = {q.id: q.definition for q in self._host.running.queries}
        runs = [run for run in self._reader.hung if running.get(run.query) == run.definition]
        deaths = Counter[tuple[str, str, str]]()
        for run in runs:
            deaths[run.suspect] += run.deaths
        held = [run for run in runs if not run.deaths or deaths[run.suspect] >= DEATHS_MAX]
        newest = {run.query: run.reason for run in sorted(held, key=lambda run: run.at_ms)}
        self._host.query_states.set_hung(newest)
        self._trials.suspect([run for run in runs if run.deaths and run.query not in newest])

    def tell(self, stuck: Sequence[StuckStep], owns: Callable[[str], bool], confirm: Callable[[], None]) -> bool:
        """Records micro-batches that do not end. owns: whether a task belongs to this member now. confirm: raises StaleMember if the
        others have given it up. False if it has to be repeated.

        The watchdog calls it before this member leaves its group because of them. It blocks.
        """
        host = self._host
        now_ms, runs = host.clock.wall_ms(), []
        for s in stuck:
            query = host.running.by_id.get(s.task.rpartition("/")[0]) if s.task is not None else None
            if query is None or s.task is None or s.waits_for_disk or not owns(s.task):
                continue
            where, at_ms = s.where.rpartition(" > ")[2], now_ms - s.for_ms
            whose = user_id(query.id, query.generation)
            runs.append(HungMicroBatch(query.id, whose, query.definition, s.task, host.config.process_id, at_ms, where))
        if not runs:
            return True
        try:
            confirm()  # a frozen member that was replaced tells nothing
            write_hung(host.log, host.config.application_id, runs, now_ms)
        except LogError as error:
            say(WARNING, "log.trouble", f"other members do not learn what hangs here: {error}", query=runs[0].query)
            return not error.retriable
        return True

    def release(self, ids: Sequence[str]) -> list[str]:
        """Have queries tried again, by all members. ids: as people use them. Those that were hung. Any thread, one at a time; it blocks."""
        host = self._host
        app, me = host.config.application_id, host.config.process_id
        return release(host.log, app, me, ids, host.clock.wall_ms())


def _run_of(one: Frozen, member: str, earlier: Mapping[tuple[str, str, str], int]) -> HungMicroBatch:
    """earlier: deaths of this member that are on record."""
    deaths = earlier.get((one.query, one.definition, one.task), 0) + 1 if one.died else 0
    at = one.positions if one.died else {}
    return HungMicroBatch(
        one.query, one.id, one.definition, one.task, member, one.at_ms, one.where, one.position, deaths, at
    )

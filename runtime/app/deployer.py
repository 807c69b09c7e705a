"""Accepts deployments from any thread other than those of steps: decides what changes, and has the reconciler carry it out.

A single instance sends a request to its reconciler; a member of a group writes the record to the plan topic, where all members read it (rule R11).

While commits fail (disk full, brokers unreachable) nothing can be deployed: the answer comes after `BLOCKED_MS` with the reason, and nothing
has changed. A deployment that only pauses and resumes queries takes effect at once and is recorded by the next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from flowql.compiler.plan.deployed import AS_BEFORE, DEPLOY, About, Deployed, Entry, Hold, SwapGroup
from flowql.compiler.plan.diff import PlanChange, QueryChange, decide_change
from flowql.compiler.plan.generations import runtime_name, topic_of, topics_read
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app import plan_topic
from flowql.runtime.app.announcing import announced
from flowql.runtime.app.comparing import side_by_side
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.deployment import (
    NO_HISTORIES,
    Deployment,
    Histories,
    is_same,
    refuse_compacted,
    refuse_outside_records,
)
from flowql.runtime.app.forwarding import refuse_forward
from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.group_swap import GroupSwap
from flowql.runtime.app.hosts import DeploymentHost, PlanHost
from flowql.runtime.app.plan_topic import other_applications, read_deployed, read_others
from flowql.runtime.app.plan_writer import writer_of
from flowql.runtime.app.rebuilding import Rebuilding
from flowql.runtime.app.reconciler import CoroutineRequest, Reconciler
from flowql.runtime.app.recovery import check_deployment_lost
from flowql.runtime.app.swapping import all_wait
from flowql.runtime.app.unrecorded import made_by, unrecorded
from flowql.runtime.errors import (
    CommitsBlocked,
    HandoverUnfit,
    LogError,
    LogUnavailable,
    OutsideRecords,
    RuntimeFailure,
    StaleMember,
    Superseded,
)
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.serde.registry import KNOWN
from flowql.runtime.topology.partitions import check_partitions, planned_partitions
from flowql.runtime.topology.query import ensure_sources, ensure_topics
from flowql.runtime.topology.table_statements import check_tables

LOOK_S = 0.02  # between two looks at a request
ANNOUNCE_TRIES, ANNOUNCE_S = 60, 0.5
BLOCKED_MS = 3_000  # a deployment waits this long for commits that fail
HANGS_MS = 60_000  # a coroutine that takes longer counts as hung
HANDOVER_MS = 540_000  # but loading a history may take longer; the client waits for its answer for 600 s
WITHDRAWN_MS = 1_000  # what is taken back has ended after so long, if it can be taken back


class Deployer:
    """See the module. group: of a member; it is the reconciler then."""

    def __init__(
        self,
        host: DeploymentHost,
        deployment: Deployment,
        rebuilding: Rebuilding,
        reconciler: Reconciler,
        group: GroupStep | None,
    ) -> None:
        self._host, self._deployment, self._rebuilding = host, deployment, rebuilding
        self._reconciler, self._group = reconciler, group
        self.moved_positions = ""  # by another program, found at the start; for status
        self.swaps: Rebuilding | GroupSwap = rebuilding if group is None else group.swap

    def resume(self) -> Plan:
        """Start what was deployed when the instance last ran, from its committed positions. A member's tasks follow."""
        host = self._host
        group, app = self._group, host.config.application_id
        stored = read_deployed(host.log, app) if group is None else group.plans.at_start
        # Only an instance itself moves positions in an embedded log.
        if stored is not None and host.config.changelogs:
            self.moved_positions = note_moved(host.admin, app, stored.serving)
        if group is not None:
            self._await_plan(group)
        else:
            self._resume_alone(stored)
        self._record_pauses()
        return host.deployed.serving

    def _resume_alone(self, stored: Deployed | None) -> None:
        host = self._host
        if stored is None and host.config.changelogs:
            check_deployment_lost(host.log, host.config.application_id)
        if stored is not None:
            stored = self._after_others(stored)
            self._wait(self._reconciler.ask(self._learn_hung))  # on the one thread that looks
            self._wait(self._reconciler.ask(partial(self._deployment.begun, stored)))
            say(INFO, "instance.resumed", f"{len(stored.serving.queries)} queries")
        self._delete_unrecorded()

    def _record_pauses(self) -> None:
        """Queries that this start leaves out are paused from now on, for all members, as if `flowql pause` had done it."""
        host = self._host
        while without := set(host.config.without):
            seen = host.deployed
            paused = tuple(q.id for q in seen.plan.queries if q.id in {*seen.plan.paused, *without})
            try:
                self.deploy(replace(seen.plan, paused=paused), seen=seen, about=About("pause"))
            except Superseded:  # a swap has ended, or another member has deployed
                continue
            break
        host.query_states.pauses_are_recorded()

    def _after_others(self, stored: Deployed) -> Deployed:
        """The stored deployment, read after the previous owner of this role can no longer write its swap."""
        if stored.wanted is None or self._host.log.drops_with_commits:
            return stored
        writer = writer_of(self._host)
        writer.close()
        return writer.deployed

    def deploy(
        self,
        plan: Plan,
        *,
        refresh: Collection[str] = (),
        forward: Collection[str] = (),
        seen: Deployed | None = None,
        about: About = DEPLOY,
        swap: Hold = AS_BEFORE,
        histories: Histories = NO_HISTORIES,
        dry_run: bool = False,
    ) -> tuple[QueryChange, ...]:
        """Starts the deployment of `plan`. Queries that did not change continue undisturbed.

        A changed query is computed again as a new generation beside the serving one, and serves once it has caught up (`Rebuilding`); see
        `rebuilt`. refresh: ids of queries to rebuild although they did not change. forward: ids of queries that must not be
        rebuilt; raises ForwardRefused where that is impossible (`flowql.compiler.plan.diff`). seen: the recorded deployment on which the decision
        is based; raises Superseded if it is no longer recorded. about: for the history. swap: which generations wait until they are promoted.
        histories: computed histories of rebuilt queries, by id: these continue from there instead of the first record; raises HandoverUnfit.
        dry_run: only decides, and raises the errors that would refuse the deployment before any change.
        CommitsBlocked: nothing has changed, or what is under way ends when commits get through again.
        """
        host = self._host

        @self._unless_recorded
        def decide() -> PlanChange:
            now, known = self._still(seen), self._partitions()
            return decide_change(now, plan, refresh=refresh, forward=forward, partitions=known, swap=swap)

        if (
            self._group is not None
        ):  # else what others have deployed, and is not known here yet, would pass for what runs
            self._await_plan(self._group)
        before = host.deployed
        asks = bool(refresh or forward or swap != AS_BEFORE or histories)
        if histories and self._group is not None:
            raise HandoverUnfit("a history can be handed over to an instance that is alone, not to one of many")
        if self._group is None and not asks and not dry_run and _only_pauses(self._still(seen), plan):
            paused = self._unless_recorded(lambda: decide_change(self._still(seen), plan))
            return self._pause(plan, paused, about).changes
        change = decide()
        if is_same(change.deployed, before):
            return change.changes
        self._refuse(before, change.deployed)
        if dry_run:
            return change.changes
        if self._group is None:
            ensure_sources(change.deployed.plan, host.admin)
        KNOWN.remember(plan.schemas)
        if self._group is None:
            hangs_ms = HANDOVER_MS if histories else HANGS_MS
            change = self._carried_out(partial(self._changed, decide, about, histories), hangs_ms)
        else:
            change = self._announce(decide, about, self._group)
        for c in change.changes:
            if c.action != "none":
                say(INFO, "query.deployed", query=c.query, action=c.action, state=c.state)
        return change.changes

    def _refuse(self, before: Deployed, after: Deployed) -> None:
        """LogError of the class that says why the log, or what lies in it, does not permit this deployment."""
        host = self._host
        check_tables(before.plan, after.plan, host.admin)
        host.repaired.repairs.read_on()
        check_partitions(before, after.plan, host.log, host.repaired.repairs.topics())
        refuse_compacted(host, after)
        refuse_other_applications(host, after)
        if self._group is None:
            refuse_outside_records(host, after)
        else:  # members write under names of their own
            refuse_forward(after)

    def side_by_side(self, group: SwapGroup, look: Callable[[], None]) -> int:
        """Calls `look` while both generations of a group are at the same offsets. Returns how many records the new one is ahead: 0 except in a member."""
        if self._group is not None:
            return side_by_side(self._host, self._group.swap, group, look, lambda: self._host.look(LOOK_S))
        self._wait(self._reconciler.ask(partial(self._rebuilding.side_by_side, group, look)))
        return 0

    def release_hung(self, ids: Collection[str]) -> None:
        """Has queries tried again whose function hung on some instance. ids: as people use them."""
        host = self._host
        if host.hung.release(sorted(ids)) and self._group is None:  # a member looks by itself
            self._wait(self._reconciler.ask(self._learn_hung))

    def _learn_hung(self) -> Coroutine:
        yield from ()
        self._host.hung.learn()

    @property
    def applied(self) -> int:
        """The number of the deployment that this member has applied; 0 for an instance alone."""
        return 0 if self._group is None else self._group.applied_id

    @property
    def rebuilt(self) -> bool:
        """Whether no query is being rebuilt, started or removed."""
        return self._host.deployed.wanted is None and self._quiet

    @property
    def at_rest(self) -> bool:
        """As `rebuilt`, but also true if all rebuilt generations wait until they are promoted."""
        return self._quiet and (self._host.deployed.wanted is None or all_wait(self._host.deployed, self.swaps.why))

    @property
    def _quiet(self) -> bool:
        return self._group is not None or self._reconciler.idle

    def _partitions(self) -> dict[str, int]:
        return {name: info.partitions for name, info in self._host.admin.topics().items()}

    def _still(self, seen: Deployed | None) -> Deployed:
        """The recorded deployment. Raises Superseded if it is not `seen`; progress of a swap does not count as a difference."""
        now = self._host.deployed
        if seen is not None and now is not seen and not is_same(now, seen):
            raise Superseded("another deployment or the end of a rebuild came first")
        return now

    def _unless_recorded(self, decide: Callable[[], PlanChange]) -> Callable[[], PlanChange]:
        """`decide`, which is not called again once its change is on record: the instance may start over after the commit."""
        last: PlanChange | None = None

        def decided() -> PlanChange:
            nonlocal last
            if last is None or not is_same(last.deployed, self._host.deployed):
                last = decide()
            return last

        return decided

    def _entry(self, change: PlanChange, about: About) -> Entry:
        changes = tuple((c.query, c.action, c.because) for c in change.changes if c.action != "none")
        return Entry(change.deployed.id, self._host.clock.wall_ms(), about, changes, change.deployed.plan)

    # -- alone

    def _changed(self, decide: Callable[[], PlanChange], about: About, histories: Histories) -> Coroutine:
        """Decides at its start, as a swap may have ended before; its result is None while a swap is recorded."""
        host = self._host
        if host.deployed.swap is not None:
            return None
        before, change = host.deployed, decide()
        if is_same(change.deployed, before):  # it is on record, and the instance has started over since
            return change
        known = ensure_sources(change.deployed.plan, host.admin)
        planned = planned_partitions(before, change.deployed, {name: info.partitions for name, info in known.items()})
        options = made_by(host.config.application_id, change.deployed) if host.log.drops_with_commits else {}
        try:
            ensure_topics(change.deployed.plan, host.admin, planned, options)
            yield from self._deployment.changed(change.deployed, self._entry(change, about), histories)
        except Exception:
            with suppress(LogError):  # the next start does it
                self._delete_unrecorded()
            raise
        return change

    def _delete_unrecorded(self) -> None:
        """Deletes topics of a deployment that failed: the next one may need other numbers of partitions."""
        host = self._host
        for topic in unrecorded(host.log, host.config.application_id, host.deployed):
            host.admin.delete_topic(topic)

    def _pause(self, plan: Plan, decide: Callable[[], PlanChange], about: About) -> PlanChange:
        """Pauses and resumes queries. The record may be committed later; after a crash before that they are as before."""
        while True:
            change: PlanChange
            change, recorded = self._carried_out(partial(self._paused, plan, decide, about))
            try:
                self._until(recorded)
            except StaleMember:  # the instance starts over, and the commit may be on record
                continue
            except CommitsBlocked:
                pass
            return change

    def _paused(self, plan: Plan, decide: Callable[[], PlanChange], about: About) -> Coroutine:
        """The change, and the commit that records it; None while a swap is recorded."""
        if self._host.deployed.swap is not None:
            return None
        change = decide()
        if is_same(change.deployed, self._host.deployed):
            return change, self._host.commit.request()
        if not _only_pauses(self._host.deployed, plan):
            raise Superseded("another deployment came first")
        assert _building(change.deployed) == _building(self._host.deployed), "a pause begins and ends no generation"
        return change, (yield from self._deployment.paused(change.deployed, self._entry(change, about)))

    def _carried_out(self, coroutine: Callable[[], Coroutine], hangs_ms: int = HANGS_MS) -> Any:
        """The result of a coroutine that has to wait for the end of a swap, or until an instance alone has started over."""
        while True:
            with suppress(StaleMember):
                if (result := self._wait(self._reconciler.ask(coroutine), hangs_ms)) is not None:
                    return result
            self._host.look(LOOK_S)  # the swap goes on when brokers are back

    def _wait(self, request: CoroutineRequest, hangs_ms: int = HANGS_MS) -> Any:
        """The result of a request. CommitsBlocked: see `deploy`."""
        try:
            return self._until(request.done, hangs_ms)
        except CommitsBlocked as blocked:
            if request.done.cancel():  # it has not begun
                raise
            request.withdrawn = str(blocked)
        end_ms = self._host.clock.timer_ms() + WITHDRAWN_MS
        while not request.done.done() and self._host.clock.timer_ms() < end_ms:
            self._host.look(LOOK_S, request.done)
        if request.done.done():
            return request.done.result()
        raise CommitsBlocked(f"{self._why()}: what was begun takes effect when that is over")

    def _until(self, done: Future[Any], hangs_ms: int = HANGS_MS) -> Any:
        """The result of a future. Raises CommitsBlocked if it is not done in time: commits fail, or a function does not return."""
        host, begun_ms = self._host, self._host.clock.timer_ms()
        since_ms = begun_ms
        while not done.done():
            if host.fatal is not None:  # the thread that should complete it may have died
                raise RuntimeFailure(f"the instance is broken: {host.fatal}") from host.fatal
            now_ms = host.clock.timer_ms()
            since_ms = since_ms if host.commit.held_up else now_ms
            if now_ms - since_ms > BLOCKED_MS or now_ms - begun_ms > hangs_ms:
                raise CommitsBlocked(f"{self._why()}, and nothing has changed")
            host.look(LOOK_S, done)
        return done.result()

    def _why(self) -> str:
        """Why a coroutine does not end, as far as it is known."""
        if why := self._host.commit.held_up:
            return f"commits fail ({why})"
        return f"it is not done after {HANGS_MS // 1000} s: a function does not return, perhaps (flowql status)"

    # -- a member

    def _announce(self, decide: Callable[[], PlanChange], about: About, group: GroupStep) -> PlanChange:
        """Deploy for all members: the record goes to its topic, from where each of them takes it (rule R11)."""
        host = self._host
        for left in reversed(range(ANNOUNCE_TRIES)):
            self._await_plan(group)
            try:
                if host.deployed.swap is None or host.deployed.swap.moves is None:
                    decided = decide()
                    if (change := announced(host, decided, self._entry(decided, about))) is not None:
                        break
            except StaleMember:  # another member writes just now
                if not left:
                    raise
            host.look(ANNOUNCE_S)
        else:
            raise Superseded("a swap goes on, or other members deploy")
        self._await_plan(group)
        return change

    def _await_plan(self, group: GroupStep) -> None:
        """Until what is in the plan topic now runs here. LogUnavailable where brokers went away meanwhile."""
        topic = TopicPartition(plan_topic.topic_name(self._host.config.application_id), 0)
        try:
            self._host.wait(group.applied(self._host.admin.end_offset(topic)))
        except TimeoutError as error:
            why = f": {group.trouble}" if group.trouble else ""
            raise LogUnavailable(f"{topic.topic} cannot be read up to its end, {error}{why}") from error


def _only_pauses(before: Deployed, plan: Plan) -> bool:
    """Whether something is paused or let go, and nothing else differs."""
    differs = before.plan.paused != plan.paused and replace(before.plan, paused=()) == replace(plan, paused=())
    return differs and bool(before.plan.queries)  # else there may be no topic for the record yet


def _building(deployed: Deployed) -> set[str]:
    """Names under which the queries run that are being built."""
    return {runtime_name(q) for q in deployed.building}


# Committed positions of the application's group that another program has moved, such as `kafka-consumer-groups --reset-offsets`.
#
# Tasks go on at positions of their own, which belong to their state. So such a reset has no effect, and that is said.


def note_moved(admin: Admin, application_id: str, plan: Plan) -> str:
    """A sentence about the positions that are not FlowQL's, whose metadata is never empty; empty if there are none, or brokers do not tell."""
    read = {topic: q.id for q in plan.queries for topic in topics_read(q)}
    try:
        counts = admin.partition_counts(list(read))
        tps = [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]
        positions = admin.stable_positions(application_id, tps)
    except LogError:
        return ""
    moved = sorted(tp for tp, position in positions.items() if not position.metadata)
    if not moved:
        return ""
    said = (
        f"another program has moved {len(moved)} committed positions of group {application_id} ({moved[0]} to {positions[moved[0]].offset}); queries "
        f"go on where their state is; to process records again:  flowql deploy --full-refresh {read[moved[0].topic]}"
    )
    say(WARNING, "positions.moved", said)
    return said


# Refuses a deployment that would write once more what another application has written to the same log.
#
# That happens when the name of a project was changed, and when two projects have results, or rows of INSERT VALUES, of the same topic.
# An embedded log keeps which applications have written to a topic. Brokers do not: there the plan records of the other applications are read.


def refuse_other_applications(host: PlanHost, after: Deployed) -> None:
    """OutsideRecords if a new result, or a new row of INSERT VALUES, would be in its topic with that of another application."""
    known, before, app = host.admin.topics(), host.deployed, host.config.application_id
    names = other_applications(app, known)
    if not names:
        return
    new = {q.topic: q for q in _new_results(before, after) if q.topic in known}
    rows = {(topic_of(after.plan, row), row) for row in after.plan.inserts} - before.rows_inserted()
    if not new and not rows:
        return
    others = read_others(host.log, app)
    for topic, query in new.items():
        partitions = [TopicPartition(topic, p) for p in range(known[topic].partitions)]
        for other in _writers(host.admin, topic, partitions, names, others):
            raise OutsideRecords(
                f"{topic} holds results of {other}, and {query.id} of {app} would write the same once more: where the name of the project "
                f"was changed, write  name: {other}  in flowql.yaml again; else give the result another topic (KAFKA_TOPIC), or "
                f"flowql topic delete {topic}"
            )
    for other, deployed in others.items():
        for topic in sorted({topic for topic, _ in rows & deployed.rows_inserted()} & known.keys()):
            raise OutsideRecords(
                f"{other} has written a row of INSERT VALUES to {topic} that {app} would write once more: where the name of the project was "
                f"changed, write  name: {other}  in flowql.yaml again; else take the statement out of this project"
            )


def _new_results(before: Deployed, after: Deployed) -> Iterator[QueryPlan]:
    """Queries that write a topic which no query of this application has written."""
    served = before.serving.writers
    yield from (q for q in after.plan.queries if q.topic not in served and before.history(q.topic) is None)


def _writers(
    admin: Admin,
    topic: str,
    partitions: Sequence[TopicPartition],
    names: Sequence[str],
    others: Mapping[str, Deployed],
) -> list[str]:
    """Other applications whose queries have written to a topic that has records."""
    found = set[str]()
    for tp in partitions:
        known = admin.writers(tp)
        if known is not None:
            found |= known & set(names)
        elif admin.end_offset(tp) > admin.begin_offset(tp):
            found |= {name for name, deployed in others.items() if _has_written(deployed, topic)}
    return sorted(found)


def _has_written(deployed: Deployed, topic: str) -> bool:
    return deployed.history(topic) is not None or topic in deployed.serving.writers

"""Deployments to an instance that is alone: what a decided change does to tasks, topics and the plan topic.

One commit makes it true: state of what goes is dropped, rows of INSERT VALUES and the record of the deployment are written.
Rebuilt queries start beside the serving ones, on staging topics; `flowql.runtime.app.rebuilding` brings it to its swap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from flowql.compiler.plan.deployed import Deployed, Entry, SwapGroup, groups_of, running_plan
from flowql.compiler.plan.diff import decide_change
from flowql.compiler.plan.generations import (
    inserts_into,
    runtime_name,
    staging_name,
    under_own_name,
    user_id,
)
from flowql.compiler.plan.partitions import NONE_KNOWN, resized_sources
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app import forwarding, handover
from flowql.runtime.app.coroutines import Coroutine, stopped
from flowql.runtime.app.hosts import DeploymentHost, PlanHost
from flowql.runtime.app.internal_topics import unneeded
from flowql.runtime.app.plan_topic import deployed_records, other_applications, write_deployed
from flowql.runtime.app.query_state import SUSPENDED
from flowql.runtime.app.query_tasks import QueryTasks
from flowql.runtime.app.recomputing import STATE_LOST, outside_writers, unrecoverable
from flowql.runtime.app.swapping import COMPACT, DELETE, POLICY, changed_kinds
from flowql.runtime.app.upstream import UpstreamWaits
from flowql.runtime.commit.replacement import PartitionChange
from flowql.runtime.errors import (
    LogDenied,
    LogError,
    OutsideRecords,
    RebuildUnsupported,
    StateLost,
    TopicMissing,
)
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import Admin, Log, NewTopic, TopicInfo, TopicPartition
from flowql.runtime.state.computed_history import ComputedHistory
from flowql.runtime.task.dead_letters import staging_topic
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.topology.partitions import first_offset, planned_partitions
from flowql.runtime.topology.query import build_inserts

Records = list[tuple[TopicPartition, pa.RecordBatch]]
Histories = Mapping[str, ComputedHistory]  # by the id of a query that begins: where its generation goes on
NO_HISTORIES: Histories = {}
# The whole history of a generation, as its readers begin with it; and by what such a topic is known, where that can be said.
WHOLE = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
STAGING = {**WHOLE, "flowql.staging": "true"}

# Others may write to a topic until the commit that moves its records: its new partitions begin so far above where it ended before.
MARGIN = 1 << 20


class Deployment:
    """Coroutines of the reconciler."""

    def __init__(self, host: DeploymentHost, tasks: QueryTasks, upstream: UpstreamWaits) -> None:
        self._host, self._tasks, self._upstream = host, tasks, upstream
        self._unrecorded: set[str] = (
            set()
        )  # queries whose state was loaded, perhaps in part, and that no record names yet

    def begun(self, stored: Deployed) -> Coroutine:
        """Everything that is on record, at a start or after an I/O error of the state."""
        if self._host.state_lost:
            say(WARNING, "state.lost", self._host.state_lost)
        yield from self.remade(stored) if self._host.state_lost else self.resumed(stored)

    def resumed(self, stored: Deployed) -> Coroutine:
        """Everything that was deployed when the instance last ran, from its committed positions.

        Queries of a swap that is on record begin when it is done.
        """
        host = self._host
        host.serve(stored, host.commit.next_sequence - 1)
        swapping = [g for g in groups_of(stored) if stored.swap is not None and g.name == stored.swap.group]
        later = {runtime_name(q) for g in swapping for q in (*g.queries, *g.gone)}
        yield from self.dropped_of(
            {q.id for q in host.running.queries} | {runtime_name(q) for q in stored.serving.queries}
        )
        yield from self.started([q for q in host.running.queries if q.id not in later])
        self._stop_lost()
        delete_leftovers(self._host)

    def dropped_of(self, known: Collection[str]) -> Coroutine:
        """State goes of queries that were swapped out just before the instance died, and of a history that no record followed."""
        host = self._host
        tasks = [t for t in host.state.committed_tasks() if "/" in t and t.rpartition("/")[0] not in known]
        if tasks:
            yield host.commit.request(lambda: self._tasks.close((), dropped=tasks))

    def remade(self, stored: Deployed) -> Coroutine:
        """The deployment without its state: all queries are rebuilt from their inputs, as far as those are complete.

        Results serve as they are meanwhile; the queries that made them cannot go on. Rebuilds in progress begin again, with as many
        partitions as its staging topics have.
        """
        host, plan = self._host, stored.plan
        for forward in stored.forwards:
            text = f"all results are computed with the text deployed with --forward in deployment {forward.deployment}"
            say(WARNING, "query.remade", text, query=forward.query)
        host.serve(stored, host.commit.next_sequence - 1)
        gone = unrecoverable(host, plan)
        unbuilt = replace(stored, wanted=None)  # no generation goes on whose tasks have lost their positions
        change = decide_change(unbuilt, plan, refresh=[q.id for q in plan.queries if q.id not in gone], why=STATE_LOST)
        lost = tuple((runtime_name(q), gone.get(q.id, "")) for q in change.deployed.serving.queries)
        host.running = Plan()
        yield from self.changed(replace(change.deployed, lost=lost))

    def _stop_lost(self) -> None:
        """Queries whose state is lost and whose input is not whole: they are known, and do not run."""
        host, lost = self._host, dict(self._host.deployed.lost)
        for query in host.deployed.serving.queries:
            if (why := lost.get(runtime_name(query))) and runtime_name(query) not in host.queries:
                self._tasks.add([under_own_name(query)], ())
                remedy = f"to drop it alone:  flowql deploy --select {query.id} --prune  without it in the project"
                host.query_states.stop(runtime_name(query), StateLost(f"its state is lost, and {why}; {remedy}"))

    def changed(self, after: Deployed, entry: Entry | None = None, histories: Histories = NO_HISTORIES) -> Coroutine:
        """From what is deployed to `after`. Until its commit nothing has changed but that what goes has been stopped.

        entry: of the history of deployments. histories: of queries that begin with what another engine has computed. Raises HandoverUnfit.
        """
        refuse_outside_records(self._host, after)
        forwarded, now = forwarding.forwarded(after), running_plan(after)
        gone = [q.id for q in self._host.running.queries if q.id not in now.by_id]
        if gone or forwarded:  # while commits do not get through nothing is stopped
            yield self._host.commit.request(withdrawable=True)
        try:
            yield from forwarding.at_rest(self._host, forwarded)
            yield from self._changed(after, entry, gone, forwarded, histories)
        except Exception:
            yield from self._let_go([*forwarded, *gone])
            with suppress(LogError):  # brokers may be away: the next deployment does it
                delete_leftovers(self._host)
            raise

    def paused(self, after: Deployed, entry: Entry) -> Coroutine:
        """Queries pause, others go on, at once. The record is of the next commit, of which this gives the future."""
        yield from ()
        host = self._host
        after = with_names_for(host.log, after, host.config.application_id)
        record = deployed_records(after, host.config.application_id, host.clock.wall_ms(), entry)
        host.query_states.set_paused(running_plan(after).paused)
        with host.state.epoch_lock:
            host.serve(after, host.commit.next_sequence)
        return host.commit.request(lambda: host.collector.add(*record))

    def _changed(
        self,
        after: Deployed,
        entry: Entry | None,
        gone: Sequence[str],
        forwarded: Sequence[str],
        histories: Histories,
    ) -> Coroutine:
        """forwarded: queries that are held and go on with a new text."""
        host = self._host
        # First, as topics of a deployment that ended half way may have another number of partitions.
        delete_leftovers(host)
        known = {name: info.partitions for name, info in host.admin.topics().items()}
        after = with_names_for(host.log, after, host.config.application_id)
        planned = planned_partitions(host.deployed, after, known)
        if not host.log.drops_with_commits:  # there, topics that exist stay as they are
            planned |= known
        resized = resized_sources(host.deployed, after.plan, known)
        refuse_rebuild(host, after)
        was, now = host.running, running_plan(after)
        new = [q for q in now.queries if q.id not in was.by_id]
        create_staging(host, after, planned)
        records = inserted(host, after, planned)
        taken_over = yield from self._taken_over(after, new, histories)
        leaving, going_on = forwarding.tasks_of(host, gone), forwarding.tasks_of(host, forwarded)
        host.query_states.end(gone)
        yield from stopped(host, [*leaving, *going_on])
        if leaving or going_on:  # what they published belongs to the commit before
            yield host.commit.request()
        after = forwarding.recorded(host, after)
        # Also of queries that could not be built after a restart. A serving query that does not run still answers from its state.
        kept = {name for name, _ in after.lost}
        ended = {*gone, *(name for name, _ in host.deployed.lost)} - kept
        dropped = [t for t in host.state.committed_tasks() if t.rpartition("/")[0] in ended]
        begins = {t: first_offset(host.log, t, known[t]) + MARGIN for t in resized}
        after = replace(after, begins=tuple({**dict(after.begins), **_at_once(begins, resized)}.items()))
        if entry is not None:
            entry = replace(entry, forwards=tuple(f for f in after.forwards if f.deployment == after.id))
        records += taken_over.letters
        records.append(write_deployed(after, host.admin, host.config.application_id, host.clock.wall_ms(), entry))

        def at_the_cut() -> None:
            host.commit.replacements += taken_over.results
            host.commit.reshapes += [PartitionChange(t, n, begins[t], keeps=True) for t, n in resized.items()]
            self._tasks.close(leaving, dropped=dropped, standing=kept)
            self._tasks.close_for_others(going_on)
            for tp, batch in records:
                host.collector.add(tp, batch)
            host.serve(after, host.commit.next_sequence)

        yield host.commit.request(at_the_cut, withdrawable=not (gone or forwarded))
        self._unrecorded.clear()
        self._tasks.forget([*gone, *forwarded])
        yield from self.started([*new, *(q for q in now.queries if q.id in forwarded)], retried=True)
        host.query_states.set_paused(now.paused)
        self._stop_lost()
        delete_leftovers(self._host)

    def _taken_over(self, after: Deployed, new: Sequence[QueryPlan], histories: Histories) -> Coroutine:
        """The state of histories is in the store, for tasks that the record still to come names; what else they bring (`handover.HistoryOutputs`)."""
        host, brought = self._host, handover.HistoryOutputs([], [])
        left = [t for t in host.state.committed_tasks() if t.rpartition("/")[0] in self._unrecorded]
        if left:  # of an attempt that failed: a query of that name would begin with it
            yield host.commit.request(lambda: self._tasks.close((), dropped=left))
        self._unrecorded.clear()
        staged = {runtime_name(q) for q in after.building}
        for query in new:
            history = histories.get(user_id(query.id, query.generation))
            if history is not None:
                self._unrecorded.add(query.id)
                yield from handover.taken_over(host, query, history, brought, staged=query.id in staged)
        return brought

    def _let_go(self, names: Sequence[str]) -> Coroutine:
        """Queries that were to end, or to go on with a new text, go on as the newest record says: the deployment has failed."""
        host = self._host
        ended = {n for n in names if any(t.status is TaskStatus.CLOSED for t in forwarding.tasks_of(host, [n]))}
        ended |= {n for n in names if n not in host.queries or host.query_states.of(n).ending}
        again = [q for q in host.running.queries if q.id in ended and host.query_states.of(q.id).state is not SUSPENDED]
        tasks = forwarding.tasks_of(host, [q.id for q in again])
        yield from stopped(host, tasks)
        with host.state.epoch_lock:
            self._tasks.close_for_others(tasks)
        self._tasks.forget([q.id for q in again])
        yield from self.started(again, retried=True)
        host.query_states.release_after_swap(names)

    def started(self, queries: Sequence[QueryPlan], *, retried: bool = False) -> Coroutine:
        """Queries get tasks as of the last commit, and run. retried: if brokers are unavailable, the reconciler starts them later, as no
        caller repeats this.
        """
        host, tasks = self._host, self._tasks
        tasks.add(queries, host.running.paused)
        tasks.refresh(host.running)
        yield from tasks.start(tasks.build([q.id for q in queries], retried=retried), self._upstream)


def _at_once(begins: Mapping[str, int], partitions: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """First offsets of topics all of whose partitions begin at the same one."""
    return {topic: (begin,) * partitions[topic] for topic, begin in begins.items()}


def with_names_for(log: Log, after: Deployed, application_id: str) -> Deployed:
    """A decided record, with names of staging topics that a log takes."""
    return after if log.drops_with_commits else replace(after, prefix=f"{application_id}-")


def create_staging(host: PlanHost, after: Deployed, planned: Mapping[str, int] = NONE_KNOWN) -> None:
    """Topics for generations that begin now, with as many partitions as those whose place they are to take will have.

    planned: where that is not as many as they have.
    """
    if not (groups := groups_of(after)):
        return
    known, config = host.admin.topics(), WHOLE if after.prefix else STAGING
    wanted: dict[str, NewTopic] = {}
    for group in groups:
        for topic, staging in group.staging.items():
            if staging not in known:
                wanted[staging] = NewTopic(planned.get(topic) or known[topic].partitions, config)
        for query in group.queries:
            wanted[staging_topic(host.config.application_id, runtime_name(query))] = NewTopic(1, config)
    host.admin.create_topics(wanted)


def delete_leftovers(host: PlanHost, writers: Callable[[], Sequence[str]] = list) -> Sequence[str]:
    """Deletes staging topics of what is not built (any more): abandoned, swapped in before a crash, or never begun because of one; and changelogs and
    repartitions of queries and generations that are gone. writers: other members that may still write to the latter; they are returned if some are kept
    for them.

    Topics whose names others may use as well: those of generations that are known to have begun, and empty ones that only a deployment of this
    application can have made, which died before its record.
    """
    deployed, app = host.deployed, host.config.application_id
    made = (
        0 if host.config.shared else 1
    )  # a single instance is the only one that creates topics of the next generation
    wanted = {t for g in groups_of(deployed) for t in g.staging.values()}
    wanted |= {staging_topic(app, runtime_name(q)) for q in deployed.building}
    known = host.admin.topics()
    for name, info in known.items():
        if name in wanted:
            continue
        of_prefix = deployed.prefix and (
            _has_begun(deployed, app, name, made) or (made and _is_unused(host, info, known))
        )
        if of_prefix or (not deployed.prefix and STAGING.items() <= info.config.items()):
            with suppress(TopicMissing):  # another member was quicker
                host.admin.delete_topic(name)
    gone = unneeded(host.log, deployed, app, known) if host.config.changelogs else []
    if gone and (waiting := writers()):
        return waiting
    for name in gone:
        _delete_internal(host, name)
    return ()


def _delete_internal(host: PlanHost, topic: str) -> None:
    try:
        host.admin.delete_topic(topic)
    except TopicMissing:
        pass
    except LogError as error:
        if error.retriable:
            raise
        say(WARNING, "topic.left", f"{topic} is of no more use, and cannot be deleted: {error}", topic=topic)


def _is_unused(host: PlanHost, info: TopicInfo, known: Collection[str]) -> bool:
    """Whether this is a staging topic of this application without records. It says what such a topic says, and no other application has its name."""
    app = host.config.application_id
    others = [f"{other}-" for other in other_applications(app, known) if other.startswith(f"{app}-")]
    named = re.fullmatch(rf"{re.escape(app)}-.+\.g\d+-staging", info.name) and not info.name.startswith((*others,))
    if not named or not WHOLE.items() <= info.config.items():
        return False
    return not any(host.admin.written_offset(TopicPartition(info.name, p)) for p in range(info.partitions))


def _has_begun(deployed: Deployed, application_id: str, name: str, more: int) -> bool:
    """Whether this is the staging topic of a generation that is on record, or of so many more."""
    number = re.search(r"\.g(\d+)(-staging)?$", name)
    if number is None:
        return False
    generation = int(number[1])
    topics = {
        staging_name(h.topic, generation, deployed.prefix) for h in deployed.histories if generation <= h.last + more
    }
    letters = {
        staging_topic(application_id, f"{q}@{generation}") for q, last in deployed.last if generation <= last + more
    }
    return name in topics | letters


def inserted(host: PlanHost, after: Deployed, planned: Mapping[str, int] = NONE_KNOWN) -> Records:
    """New rows of INSERT VALUES, and all rows of those whose topic begins a generation, in its staging topic.

    Rows are new in a serving topic if the serving statements do not have them: a generation with more or fewer rows may have been
    abandoned.
    """
    plan = after.plan
    building = {t: (n, g.staging[t]) for g in groups_of(after) for t, n in g.topics.items()}
    begun = {t: n for g in groups_of(host.deployed) for t, n in g.topics.items()}
    topics = {s.name: s.topic for s in plan.sources}
    now_ms = host.clock.wall_ms()
    served, known = [i for i in plan.inserts if topics[i.target] not in building], host.deployed.rows_inserted()
    new = [i for i in served if (topics[i.target], i) not in known]
    if host.deployed.forgotten:
        _refuse_inserted_twice(host, sorted({topics[i.target] for i in new}), planned)
    found = build_inserts(plan, new, host.admin, now_ms, planned)
    fresh = {*plan.inserts}.difference(host.deployed.plan.inserts)
    for topic, (number, staging) in building.items():
        rows = [i for i in inserts_into(plan, topic) if begun.get(topic) != number or i in fresh]
        staged = build_inserts(plan, rows, host.admin, now_ms, planned)
        found += [(TopicPartition(staging, tp.partition), batch) for tp, batch in staged]
    return found


def _refuse_inserted_twice(host: PlanHost, topics: Sequence[str], planned: Mapping[str, int]) -> None:
    """LogError where rows of INSERT VALUES are perhaps in a topic already: the record that would say so is lost."""
    for topic in topics:
        for p in range(planned.get(topic, 0)):
            if host.config.application_id in (host.admin.writers(TopicPartition(topic, p)) or ()):
                raise LogError(
                    f"rows of INSERT VALUES were written to {topic} by a deployment whose record is damaged and left out, and would be "
                    f"written again: remove these statements, or  flowql topic delete {topic}  and import its other records again"
                )


def refuse_rebuild(host: PlanHost, after: Deployed) -> None:
    """RebuildUnsupported where a swap could not replace what lies in its topics."""
    for group in groups_of(after) if not host.log.drops_with_commits else ():
        _refuse_policies(after, group, host.admin)
    refuse_compacted(host, after)


def refuse_compacted(host: PlanHost, after: Deployed) -> None:
    """RebuildUnsupported where old records cannot be deleted: of a stream in a topic that was created compacted."""
    groups = groups_of(after) if not host.log.drops_with_commits else ()
    known = host.admin.topics() if groups else {}
    for group in groups:
        for topic in group.topics:
            policy = known[topic].config.get("cleanup.policy", "delete") if topic in known else "delete"
            history = after.history(topic)
            streams = history is not None and history.kind == "stream"
            if "delete" not in policy and streams:
                names = ", ".join(q.id for q in group.queries if q.topic == topic)
                raise RebuildUnsupported(
                    f"{names} would have to be rebuilt, and brokers do not delete records of {topic}, which is only compacted: alter "
                    "its cleanup.policy to compact,delete or give the result another topic (KAFKA_TOPIC)"
                )


def _refuse_policies(after: Deployed, group: SwapGroup, admin: Admin) -> None:
    known, changed = admin.topics(), changed_kinds(after, group, admin)
    for topic in (*changed.streams, *changed.tables):
        try:
            admin.alter_topic(topic, {POLICY: known[topic].config.get(POLICY)})  # as it is: that needs the right, too
        except LogDenied as error:
            command = COMPACT.format(topic=topic) if topic in changed.tables else DELETE.format(topic=topic)
            raise RebuildUnsupported(
                f"{topic} would become a {'table' if topic in changed.tables else 'stream'}, and its cleanup.policy cannot be changed "
                f"({error}); type  {command}  when nothing writes to it, or give the result another topic (KAFKA_TOPIC)"
            ) from error


def refuse_outside_records(host: PlanHost, after: Deployed) -> None:
    """OutsideRecords if a topic that is to be replaced holds records that others than its queries have written."""
    groups = groups_of(after)
    known = host.admin.topics() if groups else {}
    begun = {t: n for g in groups_of(host.deployed) for t, n in g.topics.items()}
    for group in groups:
        for topic, number in group.topics.items():
            if topic not in known or begun.get(topic) == number:
                continue
            if others := outside_writers(host, topic, known[topic].partitions):
                queries = ", ".join(q.id for q in group.queries if q.topic == topic)
                raise OutsideRecords(
                    f"{topic} holds records that {others} has written, not its queries: to rebuild {queries} would lose them; "
                    "flowql deploy --forward  applies the change to new records and keeps them, or give the result another topic "
                    "(KAFKA_TOPIC)"
                )


def is_same(a: Deployed, b: Deployed) -> bool:
    """Whether two records differ in nothing but their numbers, and in how far a swap is."""
    plain = [replace(d, id=0, histories=(), last=(), swap=None, swaps=0, prefix="") for d in (a, b)]
    return plain[0] == plain[1]

"""Deployments to an instance that is alone: what a decided change does to tasks, topics and the plan topic.

One commit makes it true: state of what goes is dropped, rows of INSERT VALUES and the record of the deployment are written.
What has to be rebuilt starts beside what serves, on staging topics; `runtime.app.rebuilding` brings it to its swap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from compiler.plan.deployed import Deployed, Entry, groups_of, in_place, running_plan, takes_difference
from compiler.plan.diff import decide_change
from compiler.plan.generations import (
    inserts_into,
    numbered,
    runtime_name,
    sink_of,
    topic_written,
    topics_read,
    under_own_name,
    writers_of,
)
from compiler.plan.partitions import resized_sources
from compiler.plan.topology import Plan, QueryPlan
from runtime.app import exchanging
from runtime.app.exchanges import Exchanges
from runtime.app.plan_topic import write_deployed
from runtime.app.procedures import Procedure, handed_over, in_polling, stopped
from runtime.app.query_state import SUSPENDED
from runtime.app.reconciler import Host as ReconcilerHost
from runtime.app.reconciler import build
from runtime.app.replacing import emptied
from runtime.app.running import RunningQuery
from runtime.app.threads import share_interpreter
from runtime.build.partitions import first_offset, planned_partitions
from runtime.build.query import BuiltQuery, build_inserts
from runtime.commit.coordinator import CommitStep, Reshape
from runtime.errors import OutsideRecords, RebuildUnsupported, StateLost
from runtime.events import WARNING, say
from runtime.log.base import Log, TopicPartition
from runtime.output.collector import RecordCollector
from runtime.task.dead_letters import staging_topic
from runtime.task.status import TaskStatus
from runtime.task.task import Task

Records = list[tuple[TopicPartition, pa.RecordBatch]]
# The whole history of a generation, as its readers begin with it; and by what such a topic is known.
STAGING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "flowql.staging": "true"}

# Others may write to a topic until the commit that moves its records: its new partitions begin so far above where it ended before.
MARGIN = 1 << 20


class Host(ReconcilerHost, Protocol):
    """The instance, as seen from here."""

    log: Log
    commit: CommitStep
    collector: RecordCollector
    deployed: Deployed

    @property
    def exchanges(self) -> Exchanges: ...

    def serve(self, deployed: Deployed, sequence: int) -> None:
        """At a cut, or before anything runs: from the commit of that sequence on this is what is deployed."""
        ...

    def set_account(self, q: QueryPlan) -> None: ...

    def allow_coalescing(self) -> None: ...


class Deployment:
    """Its coroutines are run one at a time, by whoever has the reconciler's turn."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def resumed(self, stored: Deployed) -> Procedure:
        """Everything that was deployed when the instance last ran, from its committed positions."""
        self._host.serve(stored, self._host.commit.next_sequence - 1)
        self._take_away_old_records()
        yield from self.started(self._host.running.queries)
        self._stop_lost()
        self.delete_leftovers()

    def remade(self, stored: Deployed) -> Procedure:
        """What was deployed, without its state: all queries are rebuilt from their inputs, as far as those are whole.

        Results serve as they are meanwhile; the queries that made them cannot go on.
        """
        host, plan = self._host, stored.plan
        for forward in stored.forwards:
            text = f"all its results are made with the text that came forward in deployment {forward.deployment}"
            say(WARNING, "query.remade", text, query=forward.query)
        host.serve(replace(stored, wanted=None), host.commit.next_sequence - 1)
        gone = {q.id: why for q in plan.queries if (why := self._unreadable_history(plan, q))}
        change = decide_change(stored, plan, refresh=[q.id for q in plan.queries if q.id not in gone])
        lost = tuple((runtime_name(q), gone.get(q.id, "")) for q in change.deployed.serving.queries)
        host.running = Plan()
        yield from self.changed(replace(change.deployed, lost=lost))

    def _stop_lost(self) -> None:
        """Queries whose state is lost and whose input is not whole: they are known, and do not run."""
        host, lost = self._host, dict(self._host.deployed.lost)
        for query in host.deployed.serving.queries:
            if (why := lost.get(runtime_name(query))) and runtime_name(query) not in host.queries:
                host.queries[runtime_name(query)] = RunningQuery(under_own_name(query), BuiltQuery())
                host.query_states.add(runtime_name(query))
                remedy = f"to drop it alone:  flowql deploy --select {query.id} --prune  without it in the project"
                host.query_states.stop(runtime_name(query), StateLost(f"its state is lost, and {why}; {remedy}"))

    def _unreadable_history(self, plan: Plan, query: QueryPlan) -> str:
        """Which input of a query is not whole (any more), or nothing. Results that are rebuilt count as whole."""
        written, admin = writers_of(plan), self._host.admin
        for topic in topics_read(query):
            for p in range(0 if topic in written else admin.topics()[topic].partitions):
                begin = admin.begin_offset(TopicPartition(topic, p))
                if begin > self._host.deployed.begin(topic, p):
                    return f"records of {topic}-{p} before offset {begin} are gone (retention)"
        return ""

    def changed(self, after: Deployed, entry: Entry | None = None) -> Procedure:
        """From what is deployed to `after`. Until its commit nothing has changed but that what goes has been stopped.

        entry: of the history.
        """
        refuse_outside_records(self._host, after)
        exchanged = exchanging.exchanged(after)
        try:
            yield from exchanging.at_rest(self._host, exchanged)
            yield from self._changed(after, entry, exchanged)
        except Exception:
            yield from self._let_go(exchanged)
            raise

    def _changed(self, after: Deployed, entry: Entry | None, exchanged: Sequence[str]) -> Procedure:
        """exchanged: queries that are held and go on with a new text."""
        host = self._host
        known = {name: info.partitions for name, info in host.admin.topics().items()}
        planned = planned_partitions(host.deployed, after, known)
        if not host.log.drops_with_commits:  # there, topics that exist stay as they are
            planned |= known
        resized = resized_sources(host.deployed, after.plan, known)
        cleared: Records = []
        if after.wanted is not None and not host.log.drops_with_commits:
            after, cleared = self._in_place(after)
        was, now = host.running, running_plan(after)
        gone = [q.id for q in was.queries if now.query(q.id) is None]
        new = [q for q in now.queries if was.query(q.id) is None]
        self._create_staging(after, planned)
        records = [*cleared, *self._inserted(after, planned)]
        leaving, going_on = exchanging.tasks_of(host, gone), exchanging.tasks_of(host, exchanged)
        host.query_states.end(gone)
        yield from stopped(host, [*leaving, *going_on])
        if leaving or going_on:  # what they published belongs to the commit before
            yield host.commit.request()
        after = exchanging.recorded(host, after)
        # Also of queries that could not be built after a restart. What serves and does not run goes on answering from its state.
        kept = {name for name, _ in after.lost}
        ended = {*gone, *(name for name, _ in host.deployed.lost)} - kept
        dropped = [t for t in host.state.committed_tasks() if t.rpartition("/")[0] in ended]
        begins = {t: first_offset(host.log, t, known[t]) + MARGIN for t in resized}
        after = replace(after, begins=tuple({**dict(after.begins), **_at_once(begins, resized)}.items()))
        if entry is not None:
            entry = replace(entry, forwards=tuple(f for f in after.forwards if f.deployment == after.id))
        records.append(write_deployed(after, host.admin, host.config.application_id, host.clock.wall_ms(), entry))

        def at_the_cut() -> None:
            host.commit.reshapes += [Reshape(t, n, begins[t], keeps=True) for t, n in resized.items()]
            self.close_tasks(leaving, dropped, standing=kept)
            self._close_for_others(going_on)
            for tp, batch in records:
                host.collector.add(tp, batch)
            host.serve(after, host.commit.next_sequence)

        yield host.commit.request(at_the_cut)
        yield from self.forgotten([*gone, *exchanged])
        self._take_away_old_records()
        for query in now.queries:
            if query.id in host.queries:
                host.queries[query.id].plan = query
                host.set_account(query)
        yield from self.started([*new, *(q for q in now.queries if q.id in exchanged)])
        host.query_states.set_paused(now.paused)
        self._stop_lost()
        self.delete_leftovers()

    def _close_for_others(self, tasks: Sequence[Task]) -> None:
        """Tasks whose places others will take: their state stays. The epoch lock is held."""
        self._host.exchanges.put_aside(lane for task in tasks for lane in task.exchanges.values())
        self.close_tasks(tasks, ())

    def _let_go(self, names: Sequence[str]) -> Procedure:
        """Queries that were to go on with a new text go on as the newest record says: the deployment has failed."""
        host = self._host
        ended = {n for n in names if any(t.status is TaskStatus.CLOSED for t in exchanging.tasks_of(host, [n]))}
        ended |= set(names) - host.queries.keys()
        again = [q for q in host.running.queries if q.id in ended and host.query_states.of(q.id).state is not SUSPENDED]
        with host.state.epoch_lock:
            self._close_for_others(exchanging.tasks_of(host, [q.id for q in again]))
        yield from self.forgotten([q.id for q in again])
        yield from self.started(again)
        host.query_states.release_after_swap(names)

    # -- parts that a swap uses as well

    def started(self, queries: Sequence[QueryPlan]) -> Procedure:
        """Queries get tasks as of the last commit, and run."""
        host, tasks = self._host, list[Task]()
        for q in queries:
            host.set_account(q)
            host.query_states.add(q.id, paused=q.id in host.running.paused)  # before it gets its first slice
            running = host.queries[q.id] = RunningQuery(q, BuiltQuery())
            built = build(host, q, host.running)
            if built is not None:
                running.built = built
                host.begin(built)
                tasks += built.tasks
        share_interpreter(len(host.queries))
        host.allow_coalescing()
        yield from handed_over(host, tasks, host.state.restoring())

    def forgotten(self, queries: Iterable[str]) -> Procedure:
        """Queries whose tasks are stopped are known no more."""
        for name in queries:
            running = self._host.queries.pop(name, None)
            if running is None:  # its state was lost: it did not run
                continue
            inputs = [i for task in running.built.tasks for i in task.logs.values()]
            yield in_polling(self._host.polling, partial(self._host.polling.remove_inputs, inputs))
            self._host.query_states.forget(name)
            self._host.scans.release(name)

    def close_tasks(self, tasks: Iterable[Task], dropped: Iterable[str], standing: Collection[str] = ()) -> None:
        """At a cut: state of stopped tasks is closed, that of `dropped` goes with this commit. The epoch lock is held.

        standing: queries that will never go on, and whose state stays nevertheless.
        """
        gone, still_open = set(dropped), set(self._host.state.open_tasks())
        for task in tasks:
            if str(task.id) in still_open:
                self._host.state.close_task(str(task.id))
            if str(task.id) in gone or task.id.query in standing:
                for lane in task.exchanges.values():
                    self._host.exchanges.close(lane)
        for name in sorted(gone):
            self._host.state.drop_task(name)

    def delete_leftovers(self) -> None:
        """Staging topics of what is not built (any more): abandoned, swapped in before a crash, or never begun because of one."""
        deployed, app = self._host.deployed, self._host.config.application_id
        wanted = {numbered(t, n) for g in groups_of(deployed) for t, n in g.topics.items()}
        wanted |= {staging_topic(app, runtime_name(q)) for q in deployed.building}
        for name, info in self._host.admin.topics().items():
            if STAGING.items() <= info.config.items() and name not in wanted:
                self._host.admin.delete_topic(name)

    # -- parts of `changed`

    def _create_staging(self, after: Deployed, planned: Mapping[str, int]) -> None:
        """Topics for generations that begin now, with as many partitions as those whose place they are to take will have."""
        known = self._host.admin.topics()
        for group in groups_of(after):
            for topic, number in group.topics.items():
                if numbered(topic, number) not in known:
                    self._host.admin.create_topic(numbered(topic, number), planned[topic], STAGING)
            for query in group.queries:
                letters = staging_topic(self._host.config.application_id, runtime_name(query))
                self._host.admin.create_topic(letters, 1, STAGING)

    def _in_place(self, after: Deployed) -> tuple[Deployed, Records]:
        """A rebuild on a log that cannot replace records in a commit: tables get tombstones for all their keys with the commit
        that stops the old generation, streams lose their records after it; then the new generation writes from the beginning.
        """
        admin, ends, cleared = self._host.admin, dict[str, tuple[int, ...]](), Records()
        known = admin.topics()
        for group in groups_of(after):
            for topic in group.topics.keys() & known.keys():
                tps = [TopicPartition(topic, p) for p in range(known[topic].partitions)]
                ends[topic] = tuple(admin.end_offset(tp) for tp in tps)
                if takes_difference(after, group, topic):
                    cleared += [(tp, b) for tp in tps for b in emptied(self._host.log, tp)]
                rows = [i for i in inserts_into(after.plan, topic) if i in self._host.deployed.plan.inserts]
                cleared += build_inserts(after.plan, rows, admin, self._host.clock.wall_ms())
        return in_place(after, ends), cleared

    def _take_away_old_records(self) -> None:
        """Of streams that were rebuilt in place; again after a crash."""
        host = self._host
        kinds = {topic_written(q): sink_of(q).kind for q in host.deployed.serving.queries}
        for topic, begins in host.deployed.begins:
            for p, begin in enumerate(begins if kinds.get(topic) == "stream" else ()):
                if host.admin.begin_offset(TopicPartition(topic, p)) < begin:
                    host.admin.drop_before(TopicPartition(topic, p), begin)

    def _inserted(self, after: Deployed, planned: Mapping[str, int]) -> Records:
        """Rows of INSERT VALUES that are new, and all of those whose topic begins a generation, in its staging topic.

        What is new in a topic that serves is what those who serve do not have: a generation that was to have more rows, or fewer, may
        be abandoned.
        """
        host, plan = self._host, after.plan
        building = {t: n for g in groups_of(after) for t, n in g.topics.items()}
        begun = {t: n for g in groups_of(host.deployed) for t, n in g.topics.items()}
        topics = {s.name: s.topic for s in plan.sources}
        now_ms = host.clock.wall_ms()
        served = [i for i in plan.inserts if topics[i.target] not in building]
        new = [i for i in served if i not in host.deployed.serving.inserts]
        found = build_inserts(plan, new, host.admin, now_ms, planned)
        fresh = [i for i in plan.inserts if i not in host.deployed.plan.inserts]
        for topic, number in building.items():
            rows = [i for i in inserts_into(plan, topic) if begun.get(topic) != number or i in fresh]
            staged = build_inserts(plan, rows, host.admin, now_ms, planned)
            found += [(TopicPartition(numbered(tp.topic, number), tp.partition), batch) for tp, batch in staged]
        return found


def _at_once(begins: Mapping[str, int], partitions: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """First offsets of topics all of whose partitions begin at the same one."""
    return {topic: (begin,) * partitions[topic] for topic, begin in begins.items()}


def refuse_rebuild(after: Deployed) -> None:
    """RebuildUnsupported if something would have to be rebuilt by many instances."""
    names = [q.id for q in after.building]
    if names:
        raise RebuildUnsupported(
            f"{', '.join(names)} would have to be rebuilt, and of an application that many instances share (instances: many) "
            "results cannot be replaced yet: give the changed result another name, or run one instance for the change"
        )


def refuse_outside_records(host: Host, after: Deployed) -> None:
    """OutsideRecords if a topic that is to be replaced holds records that others than its queries have written."""
    known, own = host.admin.topics(), {host.config.application_id}
    begun = {t: n for g in groups_of(host.deployed) for t, n in g.topics.items()}
    for group in groups_of(after):
        for topic, number in group.topics.items():
            if topic not in known or begun.get(topic) == number:
                continue
            for p in range(known[topic].partitions):
                others = (host.admin.writers(TopicPartition(topic, p)) or frozenset()) - own
                if others:
                    queries = ", ".join(q.id for q in group.queries if topic_written(q) == topic)
                    raise OutsideRecords(
                        f"{topic} holds records that {', '.join(sorted(others))} has written, not its queries: "
                        f"to rebuild {queries} would lose them; "
                        "flowql deploy --forward  applies the change to what comes and keeps them, or give the result another topic "
                        "(KAFKA_TOPIC)"
                    )


def is_same(a: Deployed, b: Deployed) -> bool:
    """Whether two records differ in nothing but their numbers."""
    return replace(a, id=0, histories=(), last=()) == replace(b, id=0, histories=(), last=())


def refuse_hold(after: Deployed, log: Log) -> None:
    """RebuildUnsupported if a swap would be held back where results are replaced as they are rebuilt."""
    if after.held and not log.drops_with_commits:
        raise RebuildUnsupported(
            "on Kafka a rebuild takes the place of the results as it goes: no swap can be held back (--shadow)"
        )

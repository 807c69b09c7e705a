"""An instance: one set of clients, one physical store, one commit for all its queries; as steps that threads or a test repeat."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from traceback import format_exception
from typing import Any

from flowql.compiler.plan.deployed import Deployed, running_plan
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app.allocator import UnusedMemory
from flowql.runtime.app.beat_file import BeatFile
from flowql.runtime.app.careful import CarefulQueries
from flowql.runtime.app.checkpoints import FREE_ENOUGH_BYTES, RemoteCheckpoints
from flowql.runtime.app.consistent_snapshot import REFUSED, TIMEOUT_S, ConsistentSnapshots
from flowql.runtime.app.deployer import Deployer
from flowql.runtime.app.deployment import Deployment
from flowql.runtime.app.exchanges import STORE as EXCHANGE_STORE
from flowql.runtime.app.exchanges import Exchanges
from flowql.runtime.app.group import GroupStep
from flowql.runtime.app.hung import HungQueries
from flowql.runtime.app.import_positions import ImportPositions, topics_of
from flowql.runtime.app.member_ticks import agree_on_ticks
from flowql.runtime.app.micro_batch_notes import MicroBatchNotes, slots_of
from flowql.runtime.app.missed_deletions import KnownTimes, note
from flowql.runtime.app.plan_topic import PlanReader, deployed_ms, topic_name
from flowql.runtime.app.polling import PollingStep
from flowql.runtime.app.publishing import EpochPublisher
from flowql.runtime.app.query_rates import RateSampler
from flowql.runtime.app.query_state import FAILED, STOPPED, SUSPENDED, QueryStates
from flowql.runtime.app.query_tasks import QueryTasks
from flowql.runtime.app.rebuilding import Rebuilding
from flowql.runtime.app.reconciler import Reconciler
from flowql.runtime.app.recovery import check_mode, check_records, recover
from flowql.runtime.app.restoration import RestorationStep
from flowql.runtime.app.restore_process import restore_process
from flowql.runtime.app.running import RunningQuery
from flowql.runtime.app.single_instance import SingleInstanceReconciler
from flowql.runtime.app.suspension import misplaced, suspend, unreadable
from flowql.runtime.app.threads import RARE_WAIT_MS_MAX, NamedStep, ThreadGroup, named
from flowql.runtime.app.torn_commits import TornCommits
from flowql.runtime.app.uploads import InstanceUploads
from flowql.runtime.app.upstream import LocalProgress, UpstreamWaits
from flowql.runtime.app.warm_starts import CheckpointStarts
from flowql.runtime.app.watchdog import Watchdog
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.clock import Clock
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.config import InstanceConfig, commit_interval_ms, slice_ns
from flowql.runtime.errors import RuntimeFailure, StateError
from flowql.runtime.events import ERROR, INFO, WARNING, say
from flowql.runtime.log.base import Clients, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.repairs import RepairedLog
from flowql.runtime.metrics import Metrics
from flowql.runtime.output.collector import RecordCollector
from flowql.runtime.placement.step import PlacementStep
from flowql.runtime.remote.objects import objects_at
from flowql.runtime.scheduler.executor import ProcessingStep
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.changelog import (
    CHANGELOG,
    COMPACTED,
    ChangelogWriter,
    RecordUnreadable,
    changelog_topic,
    changelogs_of,
    is_complete,
    last_commit_ms,
    lost_records,
    metadata_topic,
)
from flowql.runtime.state.cleaner import Cleaner
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.physical import Physical
from flowql.runtime.state.remote.warm_start import WarmStarts
from flowql.runtime.state.statistics import StateStatistics, StoreSizes
from flowql.runtime.state.store import Snapshot
from flowql.runtime.state.task_state import ManagedTask
from flowql.runtime.task import dead_letters
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.member import MemberTicks
from flowql.runtime.ticks.ticks import Ticks
from flowql.runtime.ticks.whole_states import TakenSnapshot
from flowql.runtime.topology.query import BuiltQuery, readers, upsert_topics
from flowql.runtime.topology.scans import Scans

FATAL_CHECK_S = 0.05
STOP_S = 60.0  # for the last commit
LAST_PLACE_S = 5.0  # for queries that read the same to come to one place before it
SERVING_KEPT = 8  # plans that a snapshot taken just now may still belong to


class Instance:
    """The engine over one log and one physical store.

    `steps` are its loops. `deploy`, `status` and `snapshot` may be called from any thread but not from a step; with threads they
    block until the steps have done their part, with a driver `await_step` runs the steps meanwhile.
    """

    commit: CommitStep

    def __init__(self, log: Log, physical: Physical, clock: Clock, config: InstanceConfig) -> None:
        self.log, self.clock, self.config, budget = log, clock, config, config.budget
        self.metrics = Metrics()
        self.state_lost = ""  # why the state has to be made anew from inputs
        self.deployed = Deployed()
        self.running = Plan()  # what runs: of each query all generations, by names that tell them apart
        self._serving: list[tuple[int, Plan]] = [(0, Plan())]  # from which commit on a plan serves; the newest last
        self.queries: dict[str, RunningQuery] = {}
        self.fatal: BaseException | None = None
        self._threads: ThreadGroup | None = None
        self.await_step: Callable[[], None] | None = None  # set by the driver: run some steps while waiting
        assert not config.shared or (config.changelogs and config.process_id), "members share state by changelogs"
        log.hold(config.transactional_id)
        self.admin = log.admin()
        self.state = StateManager(
            physical,
            replace(budget.state, run_rows_min=config.run_rows_min),
            changelog=lambda _: config.changelogs,
            shared=config.shared,
        )
        check_mode(log, config)
        self.plan_reader = PlanReader(log, config.application_id) if config.shared else None
        if self.plan_reader is not None:
            check_records(log, config.application_id, self.plan_reader)
        else:  # that of a member comes task by task, when it is known which are here (`GroupStep`)
            self.recover()
        self.collector = RecordCollector(budget.uncommitted_output_bytes)
        self.exchanges = Exchanges(self.state)
        self.careful = CarefulQueries(self.state, config.application_id)
        self.scans = Scans(self.metrics, clock.wall_ms)
        self.publisher = EpochPublisher(self)
        self.manager = TaskManager(
            clock,
            config.policy,
            self.publisher.may_run,
            config.threads,
            self.publisher.has_reserve,
            lambda: self.commit.is_busy,
        )
        self.repaired = RepairedLog(log, config.application_id)  # what continuous and interactive queries read
        self.main = ConsumerFacade(self.repaired, f"{config.application_id}-main", budget.fetch_buffer_bytes)
        self.restore = ConsumerFacade(self.repaired, f"{config.application_id}-restore", budget.fetch_buffer_bytes)
        self.query_states = QueryStates(self.manager, self.metrics, clock, config.without)
        self.polling = PollingStep(
            self.main,
            self.restore,
            self.admin,
            self.manager,
            self.metrics,
            budget.input_buffer_bytes,
            self.query_states,
            partial(unreadable, self),
            partial(misplaced, self),
        )
        self.ticks = MemberTicks(self, config.application_id) if config.shared else Ticks(self)
        self.tasks = QueryTasks(self)
        self.commit = CommitStep(
            log,
            config.application_id,
            self.state,
            self.collector,
            clock,
            self.metrics,
            positions=self.tasks.positions,
            ahead_of_cut=self.exchanges.encode_ahead,
            before_cut=self.publisher.before_cut,
            interval_ms=self._commit_interval_ms,
            on_commit=self._committed,
            on_refused=partial(suspend, self),
            readers=lambda topic: readers(self.running, topic, config.application_id),
            alignment=self.ticks,
            changelog=self._changelog_writer(),
            transactional_id=config.transactional_id if config.shared else None,
        )
        self.processing = [
            ProcessingStep(f"processing-{n}", self.manager, clock, self.metrics) for n in range(config.threads)
        ]
        self.preemption = ProcessingStep("preemption", self.manager, clock, self.metrics, preempts=True)
        self.checkpoints, starts = self._remote()
        self.restoration = RestorationStep(
            self.restore,
            self.admin,
            self.state,
            config.application_id,
            weight_of=self._weight_of,
            has_to_yield=self.manager.has_work_of_far_more,
            hand_over=lambda task: self.polling.command(partial(self._adopt, task)),
            on_error=self._restore_failed,
            clock=clock,
            process=restore_process(log, self.state.restored.incoming),
            starts=starts,
        )
        self.polling.places_of_others = self._places_of_others
        self.torn_commits = TornCommits(self.admin, config.application_id, lambda: self.running)
        self.polling.look_at_commits = self.torn_commits.look
        self._imports = ImportPositions(log, lambda: topics_of(self.running), needed=not log.supports_redo)
        self.cleaner = Cleaner(self.state, upkeep=self._upkeep)
        self.rates = RateSampler(self.metrics, self.manager, lambda: self.queries, clock)
        self.watchdog = Watchdog(self)
        self.sizes = StoreSizes(physical, self.state.committed_stores, clock)
        self.statistics = StateStatistics(physical)
        self.merger = self.state.merger(clock)
        self.uploads = self._uploads()
        self.consistent_snapshots = ConsistentSnapshots(
            self.state,
            self.commit,
            self.manager,
            clock,
            tasks=self.tasks_of,
            trouble=self.trouble,
            look=self.look,
        )
        dead_letters.ensure_topic(log, config.application_id, config.dead_letters)
        self.hung = HungQueries(self)
        self.placement = PlacementStep(
            log, config.application_id, config.process_id, clock.wall_ms, config.transactional_id_of, config.rack
        )
        self.group = group = GroupStep(self, self.tasks) if config.shared else None
        agree_on_ticks(self, self.ticks, group)
        away_since_ms = last_commit_ms(log, config.application_id) if config.changelogs else None
        self._known_times = KnownTimes(
            clock, away_since_ms, self.tasks_of, lambda: 0 if group is None else group.others_ms
        )
        upstream = UpstreamWaits(self, LocalProgress(self))
        deployment = Deployment(self, self.tasks, upstream)
        self.rebuilding = Rebuilding(self, self.tasks, deployment)
        self.reconciler: Reconciler = self.group or SingleInstanceReconciler(
            self, self.tasks, deployment, self.rebuilding, upstream, self.commit.withdraw
        )
        self.commit.on_lost = self.reconciler.lose
        self.deployer = Deployer(self, deployment, self.rebuilding, self.reconciler, self.group)
        self.resume, self.deploy = self.deployer.resume, self.deployer.deploy

    def recover(self) -> None:
        """Brings the state of an instance alone to the last commit; empties it if that is impossible. No task is open."""
        self.state_lost = recover(self.log, self.state, self.config, self.clock.wall_ms())

    def _uploads(self) -> InstanceUploads | None:
        """Backups of log and state into the remote store; on Kafka the log is not here."""
        config = self.config
        if not config.remote_state or config.data_dir is None or not isinstance(self.log, EmbeddedLog):
            return None
        return InstanceUploads(
            partial(objects_at, config.remote_state),
            config.data_dir,
            self.log,
            self.state,
            config.application_id,
            self.clock,
            deployed_ms=partial(deployed_ms, self.log, config.application_id),
            queries=lambda: list(self.queries),
        )

    def _remote(self) -> tuple[RemoteCheckpoints | None, CheckpointStarts | None]:
        """The steps that upload checkpoints and that begin with them; None without `remote_state`."""
        url, app = self.config.remote_state, self.config.application_id
        if not url or not self.config.changelogs:
            return None, None
        objects = objects_at(url)
        reader = self.config.transactional_id
        warm = WarmStarts(objects, app)
        checkpoints = RemoteCheckpoints(
            objects, self.state, app, reader, self._running_tasks, self.clock, warm.unreadable.add, self._free_bytes
        )
        on_adopted = checkpoints.copier.missing.update
        starts = CheckpointStarts(warm, self.log, self.admin, self.state, app, self.clock, on_adopted)
        return checkpoints, starts

    def _free_bytes(self) -> int:
        """Free space of the disk that has the state."""
        folder = self.config.data_dir
        return FREE_ENOUGH_BYTES if folder is None else shutil.disk_usage(folder).free

    def _running_tasks(self) -> list[str]:
        """Those that are open, of the weightiest queries first."""
        weights = {t: self._weight_of(t.rpartition("/")[0]) for t in self.state.open_tasks() if "/" in t}
        return sorted(weights, key=lambda t: (-weights[t], t))

    def _changelog_writer(self) -> ChangelogWriter | None:
        if not self.config.changelogs:
            return None
        app, describe = self.config.application_id, self.admin.describe_topics
        if self.config.shared:
            self.admin.create_topic(metadata_topic(app), 1, COMPACTED)
            return ChangelogWriter(
                app,
                complete=True,
                describe=describe,
                writer=self.config.transactional_id,
                applied=lambda: self.deployer.applied,
                written=lambda kind: self.placement.written(kind),
            )
        try:
            complete = is_complete(self.log, app)
            lost = self._lost_records() if complete else ""
        except RecordUnreadable as error:  # the changelogs cannot be restored from
            complete, lost = False, str(error)
        if lost:
            say(
                WARNING, "state.redo", f"{lost}; from here on the state can no longer be restored from changelogs alone"
            )
            complete = False
        self.admin.create_topic(metadata_topic(app), 1, COMPACTED)
        self.admin.create_topic(changelog_topic(app, EXCHANGE_STORE.name), 1, CHANGELOG)
        return ChangelogWriter(app, complete=complete, describe=describe)

    def _lost_records(self) -> str:
        """The records that the log has lost and the local state contains; empty if there are none."""
        records = (self.state.local_record(task) for task in self.state.committed_tasks())
        held = [tp for r in records if r is not None for tp in changelogs_of(self.config.application_id, r)]
        return next(iter(lost_records(self.admin, held).values()), "")

    @property
    def plan(self) -> Plan:
        """The serving plan, which interactive queries read."""
        return self.deployed.serving

    @property
    def clients(self) -> Clients:
        """How many clients the instance has of its log, counted; the same whatever the number of queries."""
        return self.log.clients()

    # -- threads

    def steps(self) -> list[NamedStep]:
        """All loops of the instance with their thread names (docs/internals/runtime.md, "Threads and what each owns")."""
        main, restore = named("consumer-main", self.main.loop), named("consumer-restore", self.restore.loop)
        polling, commit = named("polling", self.polling), named("commit", self.commit)
        self.main.wake, self.restore.wake = main.wake, restore.wake
        self.main.loop.notify = self.restore.loop.notify = self.polling.wake = polling.wake
        self.commit.wake = commit.wake
        restoration = named("restoration", self.restoration)
        self.restoration.wake = self.restoration.standbys.wake = restoration.wake
        processing = [NamedStep(p.name, p, p.wait, self.manager.signal) for p in self.processing]
        processing.append(
            NamedStep(self.preemption.name, self.preemption, self.preemption.wait, self.manager.signal_preempting)
        )
        rare = partial(named, wait_ms_max=RARE_WAIT_MS_MAX)
        watching = [rare("rates", self.rates), rare("sizes", self.sizes), rare("cleanup", self.cleaner)]
        watching += [rare("merge", self.merger), rare("statistics", self.statistics), rare("watchdog", self.watchdog)]
        if self.uploads is not None:
            watching.append(named("remote", self.uploads))
        if self.checkpoints is not None:
            watching.append(named("remote", self.checkpoints))
        watching.append(named("memory", UnusedMemory(self.config.budget.instance_bytes)))
        reconciler, placement = named("reconciler", self.reconciler), named("placement", self.placement)
        self.reconciler.wake = self.placement.notify = reconciler.wake
        self.placement.wake = placement.wake
        members = [placement] if self.group is not None else []
        return [main, restore, restoration, polling, reconciler, *members, *processing, commit, *watching]

    def start(self, beats: BeatFile | None = None) -> None:
        """Start the threads. Not used with a driver. beats: where they note what they begin."""
        steps = self.steps()
        slots = {} if beats is None else slots_of(beats, [s.name for s in steps])
        for p in (*self.processing, self.preemption):
            if p.name in slots:
                p.begins = MicroBatchNotes(slots[p.name], lambda task: self.running.by_id.get(task.query))
        self._threads = ThreadGroup(steps, self.clock, self._thread_died, self.watchdog, slots)
        self._threads.start()

    def _thread_died(self, name: str, error: BaseException) -> None:
        """The instance is broken: futures that wait fail (`wait`), and no more input is processed."""
        self.fatal = self.fatal or error  # the first one is the cause
        say(
            ERROR,
            "thread.died",
            f"{type(error).__name__}: {error}",
            thread=name,
            trace="".join(format_exception(error)),
        )
        if name == "commit":
            self.commit.fail(error)

    def stop(self) -> list[str]:
        """Commit what is published, end all threads, close clients and state. Names of threads that would not end.

        Records that cannot be committed (full disk, broken instance) are processed again after the next start.
        """
        stuck: list[str] = []
        if self._threads is not None:
            self._stop_consistently()
            self.query_states.end(list(self.queries))
            self._last_commit()
            if self.group is not None:  # partitions that are revoked from here on must not be committed any more
                self.commit.lose("the instance stops")
            stuck = self._threads.stop()
            if self.uploads is not None and self.fatal is None:
                self.uploads.finish()
        self.close()
        return stuck

    def close(self) -> None:
        """Release clients, state and the directory (after the steps have ended)."""
        with ExitStack() as last:  # each of them, whatever the others raise
            for closing in (self.log, self.state, self.restoration, self.commit, self.restore.loop, self.main.loop):
                last.callback(closing.close)
            if self.uploads is not None:
                last.callback(self.uploads.close)
            last.callback(self.ticks.let_go)
            last.callback(self.deployer.swaps.release)
            if self.group is not None:
                last.callback(self.placement.close)
            if self.fatal is None:
                with suppress(StateError):  # no space, say: the log keeps the redo
                    self.commit.flush()

    def _stop_consistently(self) -> None:
        """The directory of a stopped instance answers as consistently as a live one, if that takes no longer than `LAST_PLACE_S`."""
        if self.fatal is None and not self.commit.blocked:
            with suppress(RuntimeFailure):  # it breaks just now: what is committed stands
                self.ticks.halt()
                until_ms = self.clock.timer_ms() + int(LAST_PLACE_S * 1000)
                while not self.ticks.is_at_rest() and self.clock.timer_ms() < until_ms:
                    self.look(LAST_PLACE_S, self.commit.request())
                others = [q for q in self.queries if not self.ticks.follows(q)]
                self.consistent_snapshots.snapshot(others, LAST_PLACE_S, stay=True).snapshot.close()

    def _last_commit(self) -> None:
        done = self.commit.request()
        for _ in range(int(STOP_S / FATAL_CHECK_S)):
            if self.fatal is not None or self.commit.blocked or futures.wait([done], FATAL_CHECK_S).done:
                return

    def wait(self, future: Any, timeout_s: float = 60.0) -> Any:
        """The result of a future that the steps complete."""
        if self.await_step is None:
            for _ in range(int(timeout_s / FATAL_CHECK_S)):
                if self.fatal is not None and not future.done():  # the thread that should complete it may have died
                    raise RuntimeFailure(f"the instance is broken: {self.fatal}") from self.fatal
                if futures.wait([future], FATAL_CHECK_S).done:
                    return future.result()
            raise TimeoutError(f"not done within {timeout_s:.0f} s")
        while not future.done():
            self.await_step()
        return future.result()

    # -- commits

    def _committed(self) -> None:
        """Commit thread."""
        self.manager.signal()
        held = set(self.query_states.having(SUSPENDED))
        self.careful.look({n: q.built.tasks for n, q in list(self.queries.items()) if n not in held})

    def _commit_interval_ms(self) -> int:
        plans = [q.plan for q in list(self.queries.values())]
        targets = [self.config.latency_target_ms, *(p.latency_target_ms for p in plans)]
        prompt = any(PRIORITY_WEIGHTS[p.priority] > PRIORITY_WEIGHTS["normal"] for p in plans)
        return commit_interval_ms([t for t in targets if t], 0 if prompt else self.commit.cpu_ns)

    # -- restoration

    def _places_of_others(self) -> dict[TopicPartition, int]:
        """Where partitions are read that the main consumer does not read; 0 of those that are only read when somebody commits to them."""
        found = dict(self.restoration.places())
        app = self.config.application_id
        if self.config.changelogs:
            found[TopicPartition(metadata_topic(app), 0)] = 0
        if self.deployed.id:
            found[TopicPartition(topic_name(app), 0)] = 0
        return found

    def _weight_of(self, query: str) -> int:
        """For restoration. 0: nobody waits for it."""
        running = self.queries.get(query)
        return 0 if running is None or self.query_states.of(query).paused else running.plan.weight

    def _adopt(self, task: Task) -> None:
        """A restored task enters the task manager. Polling thread."""
        assert not self.restoration.owns(task), f"{task.id} has two owners"
        task.become(TaskStatus.RUNNING)
        say(INFO, "task.restored", query=task.id.query, task=task.id)
        if self.query_states.of(task.id.query).state is not STOPPED:
            self.polling.add_inputs(list(task.logs.values()))
        self.manager.add(task)

    def _upkeep(self) -> None:
        self.log.maintain(self.clock.wall_ms())
        self._imports.look(self.clock.timer_ms())

    def _restore_failed(self, query: str, error: Exception) -> None:
        self.commit.look_at_state(error)
        said = f"{type(error).__name__}: {error} (restoration)"
        self.query_states.count_error(query, said)
        say(ERROR, "query.failed", said, query=query)

    # -- deployment

    def serve(self, deployed: Deployed, sequence: int) -> None:
        """From the commit of this sequence on `deployed` is what is on record. At a cut, or before anything runs."""
        self._serving = [*self._serving[-SERVING_KEPT:], (sequence, deployed.serving)]
        self.deployed, self.running = deployed, running_plan(deployed)
        self.publisher.staged = frozenset(runtime_name(q) for q in deployed.building)

    def position(self, tp: TopicPartition, positions: Mapping[str, int], begin: Callable[[TopicPartition], int]) -> int:
        """The offset at which a task continues; without a position, the start of the serving generation in the partition."""
        known = self.deployed.position(*tp, positions)
        return max(begin(tp), self.deployed.begin(*tp)) if known is None else known

    def plan_at(self, sequence: int) -> Plan:
        """The plan that serves as of a commit: a snapshot of that commit goes with it."""
        return next((plan for since, plan in reversed(self._serving) if since <= sequence), self._serving[0][1])

    def begin(self, built: BuiltQuery) -> None:
        """Positions of new tasks are resolved once, at deploy (rule R3)."""
        with self.state.epoch_lock.join():
            for task in built.tasks:
                if isinstance(task.state, ManagedTask):  # an epoch may have been aborted since it was opened
                    task.state.begin_again()
                if not task.state.metadata:
                    task.state.publish({**task.progress, "stream_times": {}})
                    self.commit.dirty = True
                elif note([task]):  # before others may take it for one that was not away
                    self.commit.dirty = True
            self.ticks.adopt(built.tasks)

    def known_ms(self, task: TaskId, position: str, metadata: Mapping[str, Any]) -> int:
        """When a task that is made had read everything of an input, at the latest."""
        return self._known_times.of(task, position, metadata)

    def allow_coalescing(self) -> None:
        """Merge updates of a key where all readers of the topic see a table; a new reader may have changed that."""
        self.collector.upsert_topics = topics = upsert_topics(self.running) if self.config.coalesce else set()
        for running in list(self.queries.values()):
            for task in running.built.tasks:
                task.program.coalesce = running.plan.topic in topics

    def set_account(self, q: QueryPlan) -> None:
        self.manager.set_query(q.id, q.weight, slice_ns(q.latency_target_ms))

    # -- reading

    def snapshot(self) -> Snapshot:
        """All state as of the last commit, every query as far as it was."""
        return self.state.snapshot()

    def snapshot_of(self, queries: Collection[str], take: Callable[[], Snapshot] | None = None) -> TakenSnapshot:
        """State in which these queries are at one place of their inputs, or the last commit and why it is not.

        take: gives the last commit otherwise than as a snapshot.
        """
        if (found := self.ticks.snapshot(queries, TIMEOUT_S, self.look)) is not None:
            if not found.newest or take is None:
                return found
            taken = take()
            other, kept = (
                (found.snapshot, taken) if taken.sequence == found.snapshot.sequence else (taken, found.snapshot)
            )
            other.close()  # it is of a later commit, or the same as the other
            return replace(found, snapshot=kept)
        if len(queries) > 1:
            at_one_place = self.consistent_snapshots.snapshot(queries, take=take)
            return TakenSnapshot(at_one_place.snapshot, at_one_place.reason)
        return TakenSnapshot((take or self.snapshot)())

    def tasks_of(self, query: str) -> Sequence[Task]:
        return running.built.tasks if (running := self.queries.get(query)) is not None else ()

    def may_run(self, query: str) -> bool:
        return self.query_states.knows(query) and self.query_states.of(query).may_run

    def is_refused(self, query: str) -> bool:
        return self.trouble(query) == REFUSED

    def trouble(self, query: str) -> str:
        """Why a query is stalled; empty if it is not. A refused query stays refused while it is paused: its results are withdrawn."""
        record = self.query_states.of(query)
        if record.state is STOPPED or (record.paused and record.state is not SUSPENDED):
            return "paused"
        if any(task.status is TaskStatus.RESTORING for task in self.tasks_of(query)):
            return "restoring"
        if record.hung:
            return "hung"
        if record.waits_for:
            return f"it waits for {record.waits_for}"
        if record.awaits_trial:
            return "an instance died in its micro-batch, and other suspected queries are tried first"
        if record.swapping:
            return "a new generation of it takes over"
        return {SUSPENDED: REFUSED, FAILED: "failed"}.get(record.state, "")

    def look(self, wait_s: float, until: Future[Any] | None = None) -> None:
        """Run the steps for a moment, or until a future is done."""
        if self.await_step is not None:
            self.await_step()
        else:
            futures.wait([until or Future()], wait_s)

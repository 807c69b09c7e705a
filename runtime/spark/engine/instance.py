"""A project on Spark: one session, one stream or batch per query, one thread that looks after them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flowql.compiler.plan.diff import QueryChange, diff_plans
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.clock import Clock, SystemClock
from flowql.runtime.config import LetterRetention
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.log.base import Log
from flowql.runtime.log.files import Lock
from flowql.runtime.spark.configuration import cores_here
from flowql.runtime.spark.engine.changed_files import ChangedFiles
from flowql.runtime.spark.engine.checkpoint_state import SparkSnapshot, apart, pin, reader, sequence_of
from flowql.runtime.spark.engine.checkpoints import NONE, lag
from flowql.runtime.spark.engine.deployed import Deployed, Form, Record, hold_folder, load
from flowql.runtime.spark.engine.deployment import check, decide_rebuild, prepare, ways
from flowql.runtime.spark.engine.feeders import is_feeder, with_feeders
from flowql.runtime.spark.engine.file_rows import ReadRows, rows_by_source
from flowql.runtime.spark.engine.order import outside_topics, topics_followed, topics_read
from flowql.runtime.spark.engine.over_files import FileHistory
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.status import Rates, functions_status, query_status, with_state
from flowql.runtime.spark.engine.streams import RunningQuery, Stream
from flowql.runtime.spark.engine.supervisor import Pace, Supervisor
from flowql.runtime.spark.engine.thread import StepThread
from flowql.runtime.spark.engine.work import run_batch, run_over_files, start_stream
from flowql.runtime.spark.errors import SessionDied, SparkFailure
from flowql.runtime.spark.folders import HadoopPath
from flowql.runtime.spark.history import complete_queries
from flowql.runtime.spark.log_address import Address, KafkaAddress, absolute, brokers_answer, open_log
from flowql.runtime.spark.log_offsets import Offsets, bounds, capped
from flowql.runtime.spark.log_source import register
from flowql.runtime.spark.session import (
    check_session,
    close_session,
    described,
    in_pool,
    living,
    open_session,
    require_spark,
)
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.storage import is_remote, reach
from flowql.runtime.spark.store_check import check_store
from flowql.runtime.spark.workers import INSTANCE, REMOVE_S, check_workers, check_writing, shared_folders
from flowql.runtime.topology.partitions import refuse_partitions
from flowql.runtime.topology.table_statements import check_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# continuous: streams that go on. caught up: streams that end where their input ends now. bounded: batches over all of it.
Mode = Literal["continuous", "caught up", "bounded"]
Progress = Callable[[dict[str, Any]], None]
Pack = Callable[[Path], None]
MODULES = "flowql_modules.zip"
WAIT_S = 0.1
STREAMS_MIN = 2  # of a run that is to end, at once: while one of them is planned another one computes
TRANSACTION_MS_MAX = 900_000  # transaction.max.timeout.ms of a broker that was told nothing


class SparkInstance:
    """The queries of a project on Spark, over an embedded log that this process holds, or over Kafka.

    Opening it starts nothing. `start` opens the session; deployments and interactive queries may come from any thread.
    """

    def __init__(
        self,
        address: Address,
        state_dir: Path,
        settings: SparkSettings,
        application_id: str,
        *,
        mode: Mode = "continuous",
        clock: Clock | None = None,
        dead_letters: LetterRetention | None = None,
        pack: Pack | None = None,
    ) -> None:
        """pack: writes an archive of FlowQL's modules, which go to the workers of a cluster; None where they have it."""
        require_spark()
        address = _long(address) if mode == "bounded" else absolute(address)
        log = open_log(address)
        self._folder: Lock | None = None
        try:
            self._folder = hold_folder(state_dir, application_id)
            log.hold(application_id)
            self._deployed = load(state_dir)
        except BaseException:
            self._release(log)
            raise
        kept = dead_letters or LetterRetention()
        self.site = Site(address, state_dir.absolute(), log, application_id, settings, kept)
        self.mode: Mode = mode
        self.fatal: BaseException | None = None
        self._clock, self._pack = clock or SystemClock(), pack
        self._spark: SparkSession | None = None
        self._thread = StepThread(self._step, self._clock, self._died)
        self._watch: LogWatch | None = None
        self._watching: StepThread | None = None
        if isinstance(address, KafkaAddress):
            asked = partial(brokers_answer, address, ANSWER_S)
            self._watch = LogWatch(address.settings.bootstrap, asked, self._clock)
            self._watching = StepThread(self._watch.run_once, self._clock, lambda _error: None, "spark-brokers")
        self._supervisor: Supervisor | None = None
        self._launcher: SparkLauncher | None = None
        self._rates = Rates()
        self._changed_files = ChangedFiles(self.site, self._clock)
        self._entries: dict[str, dict[str, Any]] = {}  # of `status`, as brokers last told
        self._functions: list[dict[str, Any]] = []
        self._epochs_before: dict[str, int] = {}

    @property
    def plan(self) -> Plan:
        return self._deployed.plan

    @property
    def form(self) -> Form:
        return form_of(self.mode)

    def start(self) -> None:
        """Open the session; in continuous mode go on with what was deployed. Raises SparkFailure.

        A query that cannot go on from what is kept of it is in state error until it is deployed with `rebuild`.
        """
        check_store(self.site.settings.conf, self.site.settings.checkpoint)
        self._spark = open_session(self.site.settings, self.site.application_id, self.site.state_dir)
        self.site.use(self._spark)
        with living():
            self._begin(self._spark)
        self._thread.start()
        if self._watching is not None:
            self._watching.start()

    def _begin(self, spark: SparkSession) -> None:
        settings = self.site.settings
        reach(spark, settings.checkpoint)
        if not settings.is_local:
            self._bring_modules(spark)
            check_workers(spark, shared_folders(self.site.address, self.site.shared, settings.files), INSTANCE)
            if isinstance(root := self.site.root, HadoopPath):
                check_writing(spark, root)
        self._launcher = SparkLauncher(spark, self.site)
        # With a cluster as well: each stream begins with Python processes of this machine.
        self._supervisor = Supervisor(self._launcher, max(STREAMS_MIN, settings.cores(cores_here()) or cores_here()))
        self._deployed = self.site.newest(self._deployed)
        self._adopt(self._deployed)
        self._epochs_before = self._epochs()
        if self.mode == "continuous":
            for name, failure in check(self.site, self._deployed, self.plan, "stream").items():
                self._supervisor.queries[name].given_up(failure)
            self._supervisor.run_continuously()

    def deploy(self, plan: Plan, *, rebuild: bool = False, dry_run: bool = False) -> Sequence[QueryChange]:
        """Make `plan` what runs. Queries whose kept state no longer fits, with all that read their results, are an error, or with
        `rebuild` computed anew. dry_run: change nothing, and raise what would be refused.
        """
        before = self._deployed
        refuse_partitions(before.plan, plan, self.site.log)
        check_tables(before.plan, plan, self.site.log.admin())
        changes = diff_plans(before.plan, plan)
        how = ways(plan, self.site.settings, self.form)
        anew = decide_rebuild(self.site, before, plan, how, self.form, asked=rebuild)
        if dry_run:
            return changes
        with living(), self._thread.between_steps():
            touched = {c.query for c in changes if c.action in ("change", "remove", "priority")}
            touched |= set(before.plan.paused) ^ set(plan.paused)
            self._halt(touched | anew if self.form == "stream" else {q.id for q in before.plan.queries})
            self._deployed = prepare(
                self.site, before, plan, how, form=self.form, rebuild=anew, now_ms=self._clock.wall_ms()
            )
            self._adopt(self._deployed)
        return changes

    def catch_up(self) -> Callable[[], bool]:
        """Process what there is now; the answer tells whether that is done."""
        ends = self._outside_ends()
        if self.mode == "continuous":
            return lambda: self._reached(ends)
        supervisor = self._running()
        with self._thread.between_steps():
            if self._launcher is not None:
                self._launcher.begin()
            supervisor.run_once_over(self._launcher_plan(), batch=self.mode == "bounded")
        return lambda: supervisor.finished

    def run_until_caught_up(self, progress: Progress = lambda status: None) -> None:
        """`catch_up`, waited for. progress: is given `status()` now and then. RuntimeFailure with what failed for good."""
        done = self.catch_up()
        while not done():
            if isinstance(self.fatal, SparkFailure):
                raise self.fatal
            if self.fatal is not None:
                raise RuntimeFailure(f"the instance is broken: {self.fatal}") from self.fatal
            progress(self.status())
            self._thread.wait(WAIT_S)
        progress(self.status())
        failed = [q for q in self._running().queries.values() if q.state == "error"]
        if failed:
            raise RuntimeFailure("; ".join(f"{q.plan.id}: {q.last_error}" for q in failed))

    def snapshot(self) -> SparkSnapshot:
        """The state of the queries, as of the last batch of each."""
        deployed = self._deployed
        sequence = sequence_of(self.site, deployed)
        return SparkSnapshot(pin(self.site, deployed), sequence, reader(self._session, self.site, deployed.plan))

    def file_rows(self) -> Mapping[str, ReadRows]:
        """The sources that are read from files, see `file_rows.rows_by_source`."""
        return rows_by_source(self.site, self._deployed.plan, self._session)

    def apart(self, queries: Collection[str]) -> str:
        """Why results of these queries are not at one position of the input they share; empty if they are."""
        return apart(self.site, self._deployed, queries)

    @property
    def sequence(self) -> int:
        """Another number after every commit of any query."""
        return sequence_of(self.site, self._deployed)

    def status(self) -> dict[str, Any]:
        """`queries` and `functions` of the public JSON of `status`."""
        queries = [] if self._supervisor is None else list(self._supervisor.queries.values())
        trouble = "" if self._watch is None else self._watch.trouble
        if trouble:  # to ask brokers would take half a minute for each
            entries = [with_state(self._entries[r.plan.id], r, trouble) for r in queries if r.plan.id in self._entries]
            return {"queries": entries, "functions": self._functions}
        now_ms, found = self._clock.timer_ms(), []
        for running in queries:
            entry = query_status(self.site, running, self._rates)
            self._rates.add(running.plan.id, entry["records_in"], now_ms)
            found.append(entry)
        self._entries = {entry["id"]: entry for entry in found}
        records = {running.plan.id: running.record for running in queries}
        self._functions = functions_status(self.site, self.plan, records)
        return {"queries": found, "functions": self._functions}

    @property
    def commits(self) -> int:
        """Epochs in the log since it was opened."""
        return sum(n - self._epochs_before.get(run, 0) for run, n in self._epochs().items())

    def stop(self) -> None:
        """End streams, session and process; what is not committed is processed again after the next start."""
        dead = isinstance(self.fatal, SessionDied)
        with suppress(Exception) if dead else living():
            self._cancel()
        self._thread.stop()
        if self._watching is not None:
            self._watching.stop()
        if self._supervisor is not None:
            for running in self._supervisor.queries.values():
                with suppress(Exception) if dead else living():
                    running.halt()
        if self._spark is not None:
            self._remove_temporary(self._spark)
            close_session(self._spark)
            self._spark = None
        self.site.close()
        self._release(self.site.log)

    # -- inside

    def _bring_modules(self, spark: SparkSession) -> None:
        """Executors fetch the archive when they run their first task, also those that come later."""
        if self._pack is None:
            return
        archive = self.site.state_dir / "spark" / MODULES
        self._pack(archive)
        spark.sparkContext.addPyFile(str(archive))
        register(spark)  # again: a data source takes the archives along that the session had when it was made known

    def _remove_temporary(self, spark: SparkSession) -> None:
        """Nothing goes on from what is at the address. An instance that was refused at start has written nothing there."""
        settings = self.site.settings
        if settings.temporary and is_remote(settings.checkpoint) and self._supervisor is not None:
            HadoopPath(lambda: spark, settings.checkpoint).remove_within(REMOVE_S)

    def _session(self) -> SparkSession:
        assert self._spark is not None, "the instance was not started"
        return self._spark

    def _release(self, log: Log) -> None:
        log.close()
        if self._folder is not None:
            self._folder.release()
            self._folder = None

    def _step(self, now_ms: int) -> int:
        check_session()
        supervisor = self._running()
        self._changed_files.look((q for q, r in supervisor.queries.items() if is_feeder(r.plan)), now_ms)
        with living():
            return supervisor.run_once(now_ms)

    def _cancel(self) -> None:
        """A batch that is being computed ends now; it is computed again another time."""
        unfinished = self._supervisor is not None and not self._supervisor.finished  # None: refused while it started
        if self.mode == "bounded" and self._spark is not None and unfinished:
            self._spark.sparkContext.cancelAllJobs()

    def _died(self, error: BaseException) -> None:
        self.fatal = self.fatal or error

    def _running(self) -> Supervisor:
        assert self._supervisor is not None, "the instance was not started"
        return self._supervisor

    def _launcher_plan(self) -> Plan:
        assert self._launcher is not None, "the instance was not started"
        return self._launcher.plan

    def _halt(self, queries: set[str]) -> None:
        if self._supervisor is None:
            return
        for name, running in self._supervisor.queries.items():
            if name in queries:
                running.halt()

    def _adopt(self, deployed: Deployed) -> None:
        """Let the supervisor have the queries; those it runs already go on."""
        if self._supervisor is None or self._launcher is None:
            return
        before = self._supervisor.queries
        found = {}
        whole = with_feeders(deployed.plan, self.site.settings.files, deployed.direct(self.site.settings))
        for query in whole.queries:
            running, record = before.get(query.id), deployed.records.get(query.id)
            if running is None or running.stream is None or running.record != record:
                running = RunningQuery(query, record)
            running.plan, running.paused = query, query.id in deployed.plan.paused
            found[query.id] = running
        self._launcher.plan, self._launcher.records = whole, deployed.records
        self._supervisor.queries = found

    def _epochs(self) -> dict[str, int]:
        """How many epochs each run has in the log."""
        found = [self.site.epochs_of_record(q, r) for q, r in self._deployed.records.items()]
        return {p.run: p.next_epoch for p in found if p is not None}

    def _outside_ends(self) -> Offsets:
        known = self.site.log.admin().partition_counts(outside_topics(self.plan))
        return bounds(self.site.log, list(known))[1]

    def _reached(self, ends: Offsets) -> bool:
        """Every query has read outside topics up to `ends`, and inside topics up to where they are."""
        for running in self._running().queries.values():
            first, after = self.site.bounds(topics_followed(running.plan, running.record), running.record)
            after |= {t: at for t, at in ends.items() if t in after}
            if lag(self.site.positions(running.plan, running.record), first, after):
                return False
        return True


def form_of(mode: Mode) -> Form:
    """The form in which queries run in a mode."""
    return "batch" if mode == "bounded" else "stream"


def _long(address: Address) -> Address:
    """A batch is one transaction, however large: brokers give it the longest time they give by default."""
    if not isinstance(address, KafkaAddress):
        return absolute(address)
    options = {"transaction.timeout.ms": str(TRANSACTION_MS_MAX), **address.settings.options}
    return replace(address, settings=replace(address.settings, options=options))


# Whether the brokers of a log on Kafka answer, said within seconds: streams learn it from calls that wait for half a minute. No pyspark.

LOOK_MS = 4_000
ANSWER_S = 4.0  # so long is waited for an answer: what is said comes 8 s after brokers have gone at most


class LogWatch:
    """answers: asks the brokers at `place`; blocks for ANSWER_S at most. A thread of its own repeats `run_once`; others read `trouble`."""

    def __init__(self, place: str, answers: Callable[[], bool], clock: Clock) -> None:
        self._place, self._answers, self._clock = place, answers, clock
        self._since_ms: int | None = None
        self.trouble = ""

    def run_once(self, now_ms: int) -> int:
        if self._answers():
            if self._since_ms is not None:
                gone_s = (self._clock.timer_ms() - self._since_ms) // 1000
                say(INFO, "log.answers", f"the Kafka brokers at {self._place} answer again, after {gone_s} s")
            self._since_ms, self.trouble = None, ""
        elif self._since_ms is None:
            self._since_ms = now_ms
            self.trouble = f"the Kafka brokers at {self._place} do not answer; queries continue from their last micro-batch when they do"
            say(WARNING, "log.trouble", self.trouble)
        return LOOK_MS


# The supervisor's requests carried out by a session: each query in the pool of its priority, on its checkpoint.


class SparkLauncher:
    """Implements `flowql.runtime.spark.engine.supervisor.Launcher`. `plan` and `records` are replaced at a deployment."""

    def __init__(self, spark: SparkSession, site: Site) -> None:
        self._spark, self._site = spark, site
        self.plan = Plan()
        self.records: Mapping[str, Record] = {}
        self._history: FileHistory | None = None
        self._ends: Offsets = {}

    def begin(self) -> None:
        """Another run over all queries: files are read as they are from now on, and topics that none of them writes up to where they end now, so that all
        queries see the same: those that run later would meet records without what earlier ones would have made of others.
        """
        outside = self._site.log.admin().partition_counts(outside_topics(self.plan))
        self._ends = bounds(self._site.log, list(outside))[1]
        if self._history is not None:
            self._history.close()
        self._history = None

    def stream(self, query: RunningQuery, pace: Pace) -> Stream:
        assert query.record is not None
        self._use()
        self._site.staging.clear(query.plan.id)
        with in_pool(self._spark, query.plan.priority):
            ends = self._ends if pace == "available now" else {}
            return start_stream(self._spark, self._site, self.plan, query.plan, query.record, pace, ends)

    def batch(self, query: RunningQuery) -> None:
        assert query.record is not None
        self._use()
        self._site.staging.clear(query.plan.id)
        span, whole = (
            self._span(query.plan),
            replace(self.plan, queries=tuple(q for q in self.plan.queries if not is_feeder(q))),
        )
        with in_pool(self._spark, query.plan.priority), described(self._spark, query.plan.id):
            if query.plan.id in complete_queries(whole, self._site.settings):
                self._history = self._history or FileHistory(self._spark, whole, self._site.settings)
                run_over_files(self._history, self._site, query.plan, query.record)
            else:
                run_batch(self._spark, self._site, self.plan, query.plan, query.record, span)
        self._site.note_inputs(query.plan.id, span[1])

    def _span(self, query: QueryPlan) -> tuple[Offsets, Offsets]:
        """The input of a batch: everything but earlier results that other queries of this run will still replace."""
        first, after = self._site.bounds(topics_read(query), self.records.get(query.id))
        for record in self.records.values():
            for topic, at in record.replaces.items():
                for partition, offset in at.items() if topic in first else ():
                    first[topic][partition] = max(first[topic][partition], offset)
        return first, capped(after, self._ends)

    def _use(self) -> None:
        """Writers look up data sources in the session of their thread, which by default is none."""
        sessions = self._spark._get_j_spark_session_class(self._spark._jvm)
        sessions.setActiveSession(self._spark._jsparkSession)

    def epoch(self, query: RunningQuery) -> int:
        committed = self._site.epochs_of_record(query.plan.id, query.record)
        return NONE if committed is None else committed.next_epoch - 1

    def behind(self, query: RunningQuery) -> int:
        topics = set(topics_followed(query.plan, query.record)) - outside_topics(self.plan)
        return lag(self._site.positions(query.plan, query.record), *self._site.bounds(topics, query.record))

    def ends(self, query: RunningQuery) -> Offsets:
        return bounds(self._site.log, topics_followed(query.plan, query.record))[1]

    def lacks(self, query: RunningQuery, ends: Offsets) -> bool:
        first, _ = self._site.bounds(list(ends), query.record)
        return lag(self._site.positions(query.plan, query.record), first, ends) > 0

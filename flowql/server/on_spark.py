"""Spark as an engine behind a target."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flowql.compiler.plan.deployed import AS_BEFORE, DEPLOY, About, Entry, Hold
from flowql.compiler.plan.deployed import Deployed as Deployment
from flowql.compiler.plan.diff import QueryChange, decide_change
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import check_engine, log_at
from flowql.deploy.decision import check_kept_prefix
from flowql.deploy.extents import Extent
from flowql.deploy.pins import of_spark
from flowql.deploy.settings import UNSUPPORTED_TARGET, Settings
from flowql.deploy.spark_package import write_flowql
from flowql.errors import CommandError
from flowql.query.committed import Commit, Take, queries_behind
from flowql.query.database import QueryDatabase
from flowql.query.errors import NOTHING, QueryError
from flowql.query.spark import SparkCommit
from flowql.runtime.app.beat_file import BeatFile
from flowql.runtime.app.member_topic import MemberAddress
from flowql.runtime.app.plan_topic import topic_name
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import Superseded
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.spark.engine.checkpoint_state import (
    LazySession,
    SparkSnapshot,
    apart,
    pin,
    reader,
    sequence_of,
    session_at_rest,
)
from flowql.runtime.spark.engine.deployed import Deployed, load
from flowql.runtime.spark.engine.deployment import decide_rebuild, ways
from flowql.runtime.spark.engine.file_rows import rows_by_source
from flowql.runtime.spark.engine.instance import SparkInstance, form_of
from flowql.runtime.spark.engine.site import Site, root_of
from flowql.runtime.spark.engine.status import functions_status, stopped_status
from flowql.runtime.spark.log_address import Address, KafkaAddress
from flowql.runtime.spark.session import master_to_read
from flowql.runtime.spark.storage import is_remote, reach
from flowql.runtime.spark.store_check import check_store
from flowql.runtime.topology.table_statements import carry_out
from flowql.server.engine import Mode
from flowql.server.process import process_metrics
from flowql.server.spark_heartbeat import HeartbeatWriter, read_heartbeat

TOGETHER_S, _LOOK_S = 1.0, 0.02  # how long an interactive query waits for continuous queries to reach one commit


def open_spark(settings: Settings, mode: Mode) -> SparkEngine:
    """See `flowql.server.choice.open_engine`."""
    check_kept_prefix(load(settings.state_dir).plan, settings.prefix)
    address, app = _address(settings), settings.application_id
    if settings.kafka is not None:
        with closing(log_at(settings.log_dir, settings.kafka, app)) as log:
            check_engine(log, app, topic_name(app), "a target with `engine: runtime`")
    instance = SparkInstance(
        address,
        settings.state_dir,
        settings.spark,
        app,
        mode=mode,
        dead_letters=settings.dead_letters,
        pack=write_flowql,
    )
    return SparkEngine(instance, settings)


class SparkEngine:
    """Implements `flowql.server.engine.Engine`."""

    def __init__(self, instance: SparkInstance, settings: Settings) -> None:
        self.instance, self._settings = instance, settings
        self._status_lock = threading.Lock()  # a status notes counters for the rates of the next
        self._heartbeat = HeartbeatWriter(lambda: instance.site.root, self.status, SystemClock())

    @property
    def plan(self) -> Plan:
        return self.instance.plan

    @property
    def fatal(self) -> BaseException | None:
        return self.instance.fatal

    @property
    def commits(self) -> int:
        return self.instance.commits

    @property
    def blocked(self) -> str | None:
        return None  # a batch that fails is tried again, and its query says why

    def start(self, beats: BeatFile | None = None) -> None:
        del beats  # functions run in Spark's workers
        self.instance.start()
        self._heartbeat.start()

    @property
    def deployed(self) -> Deployment:
        """A changed query begins anew in place: there is one plan at a time."""
        return Deployment(self.instance.plan)

    def deploy(
        self,
        plan: Plan,
        *,
        rebuild: bool = False,
        refresh: Collection[str] = (),
        forward: Collection[str] = (),
        seen: Deployment | None = None,
        about: About = DEPLOY,
        swap: Hold = AS_BEFORE,
        backfills: Collection[str] = (),
        dry_run: bool = False,
    ) -> Sequence[QueryChange]:
        if backfills:
            title = "a computed history is handed over to a target with `engine: runtime`"
            raise CommandError(title, code=UNSUPPORTED_TARGET, help="flowql run --bounded recomputes everything")
        if swap.hold:
            title = "--shadow is not supported for targets with `engine: spark`, which build no second generation"
            raise CommandError(
                title,
                code=UNSUPPORTED_TARGET,
                help="try the change on a separate target, and compare:  flowql verify",
            )
        if refresh:
            title = "--full-refresh is not supported for targets with `engine: spark`"
            raise CommandError(title, code=UNSUPPORTED_TARGET, help="flowql run --bounded recomputes everything")
        onward = [c.query for c in decide_change(self.deployed, plan, forward=forward).changes if c.action == "forward"]
        if onward:
            title = f"{', '.join(onward)} cannot continue with new SQL: not supported for targets with `engine: spark`"
            raise CommandError(
                title, code=UNSUPPORTED_TARGET, help="deploy without --forward and ON_CHANGE = 'forward'"
            )
        if seen is not None and seen.serving != self.instance.plan:
            raise Superseded("another deployment came first")
        return self.instance.deploy(plan, rebuild=rebuild, dry_run=dry_run)

    def carry_out(self, plan: Plan) -> Mapping[str, int]:
        site = self.instance.site
        return carry_out(site.log, plan, site.application_id, SystemClock().wall_ms())

    def catch_up(self) -> Callable[[], bool]:
        return self.instance.catch_up()

    def topics(self) -> Mapping[str, int]:
        return self.instance.site.partitions()

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        """A changed query begins a new checkpoint in place of the old one."""
        return {}

    def deployments(self) -> list[Entry]:
        raise _no_history()

    def diff(self, name: str, database: QueryDatabase) -> dict[str, Any]:
        del database
        title = f"{name}: a target with `engine: spark` builds no second generation"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="flowql verify  compares targets")

    def free_bytes(self) -> int | None:
        return None

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        del detail  # there is no more to tell
        with self._status_lock:
            found = self.instance.status()
        instance = _instance(os.getpid(), self._settings) | process_metrics() | {"functions": found["functions"]}
        return {"instance": instance, "queries": found["queries"]}

    @property
    def shared(self) -> bool:
        return False

    def join(self, member: MemberAddress) -> None:
        raise AssertionError("an application on Spark has one instance")

    def take(self, relations: Sequence[str]) -> Commit:
        instance = self.instance
        site, plan = instance.site, instance.plan
        queries = queries_behind(plan, relations)
        _wait_while(lambda: instance.apart(queries) != "")
        # Looked at once more behind the snapshot: where a batch comes in between, the commit is not at rest, or says so.
        snapshot = instance.snapshot()
        reason = instance.apart(queries)
        newest, files = (lambda: instance.sequence), instance.file_rows()
        return SparkCommit(plan, snapshot, site.log, site.application_id, reason, newest=newest, files=files)

    def newest(self, relation: str) -> Commit | None:
        return None  # its rows are in files

    def take_at(self, relations: Sequence[str], tick: int) -> Commit | None:
        return None  # it is alone

    def take_copied(self, relations: Sequence[str]) -> Commit:
        """There is no copy of what Spark keeps."""
        return self.take(relations)

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        return {}  # its jobs follow no ticks

    def copied(self) -> Path | None:
        return None

    @property
    def applied(self) -> int:
        return 0

    def release_hung(self, ids: Sequence[str]) -> None:
        """There is one instance, which holds no query for that."""

    def append(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        title = "--append is not supported on Spark: its jobs read nothing but their topics"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="use a target with `engine: runtime`")

    def pin(self) -> int:
        raise of_spark()

    def stop(self) -> None:
        self._heartbeat.stop()
        self.instance.stop()


def _no_history() -> CommandError:
    title = "targets with `engine: spark` keep no history of deployments"
    return CommandError(title, code=UNSUPPORTED_TARGET, help="restore the previous files, and:  flowql deploy")


def _wait_while(apart: Callable[[], bool]) -> None:
    limit = time.monotonic() + TOGETHER_S
    while apart() and time.monotonic() < limit:
        time.sleep(_LOOK_S)


class SparkAtRest:
    """Implements `flowql.server.engine.AtRest`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def deployed(self) -> tuple[Deployment, Mapping[str, int]]:
        with self._site() as (site, deployed):
            return Deployment(deployed.plan), site.partitions() if site is not None else {}

    def refuse(self, plan: Plan, mode: Mode) -> None:
        """Checkpoints at an address are read by a session: of those nothing is known here."""
        settings, form = self._settings.spark, form_of(mode)
        with self._site() as (site, deployed):
            if site is not None and isinstance(site.root, Path):
                decide_rebuild(site, deployed, plan, ways(plan, settings, form), form, asked=False)

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        """A changed query begins a new checkpoint in place of the old one."""
        return {}

    def deployments(self) -> list[Entry]:
        raise _no_history()

    def free_bytes(self) -> int | None:
        return None

    def status(self) -> dict[str, Any]:
        """The heartbeat of an instance that runs, on any machine; else what was committed."""
        s, now_ms = self._settings, SystemClock().wall_ms()
        with self._opened(master_to_read()) as (site, deployed, session):
            beat = read_heartbeat(root_of(s.spark, s.state_dir, s.application_id, session))
            if beat is not None and beat.is_current(now_ms):
                return {**beat.status, "instance": {**beat.status["instance"], "host": beat.host, "at_ms": beat.at_ms}}
            queries: list[Mapping[str, Any]] = []
            functions: list[dict[str, Any]] = []
            if site is not None:
                queries = [stopped_status(site, q, deployed.records.get(q.id)) for q in deployed.plan.queries]
                functions = functions_status(site, deployed.plan, deployed.records)
            elif beat is not None:  # the embedded log is on the other machine
                queries = [{**q, "state": "stopped", "rate": 0.0, "rate_in": 0.0} for q in beat.status["queries"]]
        instance = _instance(None, s) | {"functions": functions}
        if beat is not None and beat.running and not beat.is_of_this_host:
            instance["last_heartbeat"] = {"host": beat.host, "pid": beat.pid, "age_ms": now_ms - beat.at_ms}
        return {"instance": instance, "queries": queries}

    @contextmanager
    def commits(self) -> Iterator[Take]:
        with self._opened(self._settings.spark.master) as (site, deployed, session):
            if site is None or not deployed.plan.sources:
                raise self._nothing_has_run()
            at, plan, sequence = site, deployed.plan, sequence_of(site, deployed)
            yield lambda relations: SparkCommit(
                plan,
                SparkSnapshot(pin(at, deployed), sequence, reader(session, at, plan)),
                at.log,
                at.application_id,
                apart(at, deployed, queries_behind(plan, relations)),
                newest=lambda: sequence_of(at, deployed),
                files=rows_by_source(at, plan, session),
            )

    def _nothing_has_run(self) -> QueryError:
        title = f"nothing has run in {self._settings.data_dir} yet"
        files = self._settings.spark.files
        notebooks = (
            "; results that flowql.spark.run or start have written are in their files alone: read those with Spark"
        )
        return QueryError(title, code=NOTHING, help="flowql deploy" + (notebooks if files else ""))

    @contextmanager
    def _opened(self, master: str) -> Iterator[tuple[Site | None, Deployed, LazySession]]:
        """`_site` with what any machine has deployed last, and a session with this master, which is started when it is asked for."""
        s, place = self._settings, self._settings.spark.checkpoint
        with (
            self._site() as (site, known),
            session_at_rest(replace(s.spark, master=master), s.application_id, s.state_dir) as session,
        ):
            if is_remote(place):
                check_store(s.spark.conf, place)
                reach(session(), place)
                if site is not None:
                    site.use(session())
                    known = site.newest(known)
            yield site, known, session

    @contextmanager
    def _site(self) -> Iterator[tuple[Site | None, Deployed]]:
        """The folders, if there are any, and what has been deployed as far as it is known without a session: at an address, by this machine."""
        s = self._settings
        if s.kafka is None and not s.log_dir.is_dir():
            yield None, Deployed()
            return
        log = log_at(s.log_dir, s.kafka, s.application_id)
        try:
            site = Site(_address(s), s.state_dir, log, s.application_id, s.spark, s.dead_letters)
            known = load(s.state_dir)
            yield site, known if is_remote(s.spark.checkpoint) else site.newest(known)
        finally:
            log.close()


def _address(settings: Settings) -> Address:
    """Where Spark's own processes find the log."""
    if settings.kafka is None:
        return settings.log_dir
    return KafkaAddress(settings.kafka, settings.application_id)


def _instance(pid: int | None, settings: Settings) -> dict[str, Any]:
    running = pid is not None
    return {
        "pid": pid,
        "engine": "spark",
        "log": "embedded" if settings.kafka is None else "kafka",
        "threads": settings.spark.cores(os.cpu_count() or 1) or 0,
        "clients": {"consumers": 0, "producers": 0, "admins": int(running)},
        "physical_stores": 0,
        "dead_letters_kept": asdict(settings.dead_letters),
        "master": settings.spark.master,
    }

"""`flowql run` and `serve`: an instance in the foreground."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from flowql.api.deploying import deploy_request, wanted_of_engine, wanted_plan
from flowql.cli.building import QUIET_S, STUCK, check_built, with_building
from flowql.cli.changes import left_out, note_left_out
from flowql.cli.deployment import note_rows
from flowql.cli.options import LogLevelOption, Scope, WithoutOption, scoped, with_log_level
from flowql.cli.progress import progress
from flowql.cli.render import counted, note, show_diagnostics
from flowql.cli.status import lost_text
from flowql.config.load import shown_path
from flowql.deploy.decision import decide
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.events import EVENT, LOGGER, is_a_step
from flowql.server.choice import at_rest
from flowql.server.engine import Engine, Mode
from flowql.server.host import Host

# --- An instance that starts while brokers are away waits for them, as a running one does ---

LOOK_S = 2.0  # for an answer, and between two attempts
TOLD_S = 60.0  # between two messages


class BrokerWait:
    """Waits until brokers answer, and says so on standard error once a minute.

    stopping: sleeps for that many seconds; True when the command was asked to end, which ends it with exit code 0.
    """

    def __init__(self, settings: Settings, stopping: Callable[[float], bool]) -> None:
        self._settings, self._stopping = settings, stopping
        self._began_s: float | None = None
        self._told_s: float | None = None

    def until_they_answer(self) -> None:
        """Returns at once for another log. LogDenied where brokers refuse this user, CommandError without an address."""
        if self._settings.kafka is None or not self._settings.kafka.bootstrap:
            return
        from flowql.runtime.log.kafka.admin import KafkaAdmin  # loads a client that other targets do without
        from flowql.runtime.log.kafka.connection import Connection

        admin = KafkaAdmin(Connection.to(self._settings.kafka), f"{self._settings.application_id}-waits")
        while True:
            try:
                admin.greet(LOOK_S)
                break
            except LogUnavailable as error:
                self.again(error)
        if self._began_s is not None:
            note("brokers answer")

    def again(self, error: LogUnavailable) -> None:
        """Says why it waits, unless it just has, and sleeps."""
        assert self._settings.kafka is not None, "only brokers are waited for"
        now_s, where = time.monotonic(), self._settings.kafka.bootstrap
        if self._began_s is None:
            self._began_s = now_s
        if self._told_s is None:
            note(f"the instance starts when brokers at {where} answer: {error}")
        elif now_s - self._told_s >= TOLD_S:
            note(f"brokers at {where} have not answered for {now_s - self._began_s:.0f} s: {error}")
        if self._told_s is None or now_s - self._told_s >= TOLD_S:
            self._told_s = now_s
        if self._stopping(LOOK_S):
            raise typer.Exit


def slept(seconds: float) -> bool:
    """Sleeps in a command that ends with Ctrl-C."""
    time.sleep(seconds)
    return False


# --- An instance in the process of a command: Ctrl-C and SIGTERM end it after a commit ---


@contextmanager
def hosting(settings: Settings, mode: Mode = "continuous") -> Iterator[Host]:
    """A started host; closed, with everything processed committed, when the block ends. Main thread only."""
    stopping = threading.Event()
    before = {n: signal.signal(n, lambda *_: stopping.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        host = _started(settings, mode, stopping)
        try:
            yield host
        finally:
            host.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _started(settings: Settings, mode: Mode, stopping: threading.Event) -> Host:
    """One that runs until it is stopped waits for brokers; one that ends by itself fails without them."""
    waits = BrokerWait(settings, stopping.wait)
    while True:
        if mode == "continuous":
            waits.until_they_answer()
        host = Host(settings, mode, stopping)
        try:
            host.start()
            return host
        except LogUnavailable as error:  # they went away again, or only some of them are there
            if mode != "continuous":
                raise
            waits.again(error)


LOST_SHOWN = 10  # queries whose losses stand in the line at the end
FAILURES_MAX = 3  # restarts of a query after which --until-caught-up gives it up
_POLL_S, _FIRST_POLL_S = 0.05, 0.005  # a small project is done at once
_LOOKS_PER_STATUS = 6
_BLOCKED_LOOK_S = 1.0

States = Sequence[dict[str, Any]]  # of the serving queries, and of generations that are being built, as in status


@scoped("project target deployed var")
def run(
    scope: Scope,
    log_level: LogLevelOption = None,
    without: WithoutOption = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all existing records are committed.")
    ] = False,
    bounded: Annotated[
        bool,
        typer.Option("--bounded", help="Compute all existing records once as a batch (Spark targets)."),
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Discard state that no longer fits and recompute it.")
    ] = False,
) -> None:
    """Run the project here, until Ctrl-C.

    Accepts queries and deployments from other processes.
    """
    found = scope.read()
    settings = with_log_level(settings_of(found), log_level)
    mode: Mode = "bounded" if bounded else "caught up" if until_caught_up else "continuous"
    if mode == "continuous":
        BrokerWait(settings, slept).until_they_answer()
    deployed, topics = at_rest(settings).deployed()
    plan = wanted_plan(found, running=deployed.plan, topics=topics, warn=show_diagnostics)
    settings = replace(settings, without=left_out(without, settings.engine, deployed.plan, plan))
    request = deploy_request(scope.select, found, plan, deployed.plan, rebuild=rebuild, without=settings.without)
    decision = decide(deployed, plan, request, partitions=topics)  # what is refused starts nothing
    if not rebuild:
        at_rest(settings).refuse(decision.plan, mode)
    began = time.monotonic()
    with event_notes(settings.engine), hosting(settings, mode) as host:
        service = host.service
        running = service.deployed.plan
        plan = wanted_of_engine(service, found, plan, running=deployed.plan, topics=topics)
        request = deploy_request(scope.select, found, plan, running, rebuild=rebuild, without=settings.without)
        done = service.deploy(plan, request)
        if done["withheld"]:
            note(f"{', '.join(done['withheld'])}: not in the project; still running. To remove:  flowql deploy --prune")
        note_rows(done)
        note_left_out(settings.without)
        count = len(service.deployed.plan.queries)  # some of them may not serve yet
        note(f"{found.name}: {counted(count, 'query', 'queries')} on {shown_path(settings.data_dir)}")
        states = _await_restored(host)
        if mode != "continuous":
            states = _catch_up(host, states)
        else:
            blocked = _Blocked()
            while not host.wait(_BLOCKED_LOOK_S):
                blocked.look(host.engine.blocked)
            states = _queries(host.engine)
        for line in _of_queries(states) if bounded or settings.engine == "spark" else ():
            note(line)
        note(_summary(states, host.engine.commits, time.monotonic() - began))


def _catch_up(host: Host, states: States) -> States:
    """Until every source is read up to its current end, and all results are committed, or it is told to stop. How all queries are then."""
    engine = host.engine
    caught_up = engine.catch_up()
    left = total = _lag(states)
    blocked = _Blocked()
    with progress("catching up", total) as advance:
        looks, moved_s = 0, time.monotonic()
        while not caught_up():
            if host.wait(min(_POLL_S, _FIRST_POLL_S * (looks + 1))):
                return _queries(engine)
            looks += 1
            if looks % _LOOKS_PER_STATUS:  # a status takes the interpreter from those that are at work
                continue
            states = _queries(engine)
            _check_failing(states)
            blocked.look(engine.blocked)
            now = _lag(states)
            advance(left - now)
            if now != left:
                left, moved_s = now, time.monotonic()
            elif time.monotonic() - moved_s > QUIET_S:
                check_built(states)
    states = _queries(engine)
    _check_broken(states)
    return states


class _Blocked:
    """Says once that commits do not get through, and once that they do again."""

    def __init__(self) -> None:
        self._told = False

    def look(self, reason: str | None) -> None:
        if reason and not self._told:
            note(f"commits fail and are retried: {reason}")
        elif self._told and not reason:
            note("commits get through again")
        self._told = bool(reason)


def _await_restored(host: Host) -> States:
    """A progress bar while lost state is restored from changelogs. Queries with complete state run meanwhile. How all queries are then."""
    states = _queries(host.engine)
    done, total = _restored(states)
    if not total:
        return states
    with progress("restoring state", total) as advance:
        while total and not host.wait(_POLL_S * _LOOKS_PER_STATUS):
            states = _queries(host.engine)
            now, total = _restored(states)
            advance(now - done)
            done = now
    return states


def _restored(states: States) -> tuple[int, int]:
    """Restored records of changelogs, and their total for the waiting queries; (0, 0) when all are restored."""
    found = [q["restored"] for q in states if "restored" in q]
    return sum(r["records"] for r in found), sum(r["total"] for r in found)


def _lag(states: States) -> int:
    return sum(q["lag"] for q in states)


def _queries(engine: Engine) -> States:
    return with_building(engine.status()["queries"])


def _check_broken(states: States) -> None:
    """A query whose source was deleted, or whose function hung, has not caught up, whatever the progress of the others."""
    broken = [s for s in states if s["state"] in ("error", "hung")]
    if broken:
        raise CommandError("; ".join(f"{s['id']}: {s['last_error']}" for s in broken), code=STUCK, help="flowql status")


def _check_failing(states: States) -> None:
    """Give up when only queries that fail repeatedly have work left."""
    failing = [s for s in states if s["errors"] >= FAILURES_MAX and (s["lag"] or s["state"] == "failed")]
    if failing and all(s in failing or not s["lag"] for s in states):
        title = "; ".join(f"{s['id']} keeps failing: {s['last_error']}" for s in failing)
        raise CommandError(title, code=STUCK, help="flowql status")


def _of_queries(states: States) -> list[str]:
    """The row counts of each query: of a batch, or of a stream since it began."""
    lines = []
    for s in states:
        counts = f"{s['records_in']:,} rows in, {s['records_out']:,} out, {s['late_records']:,} late, {s['dead_letters']:,} dead"
        tied = f", {s['ties']:,} keys with several values at one time (the greatest counts)" if s.get("ties") else ""
        lines.append(f"  {s['id']}: {counts}{tied}")
    return lines


def _summary(states: States, committed: int, seconds: float) -> str:
    read_, written = (sum(s[k] for s in states) for k in ("records_in", "records_out"))
    done = f"{counted(read_, 'record')} in, {written:,} out, {counted(committed, 'commit')} in {seconds:.1f} s"
    lost = [f"{s['id']}: {text}" for s in states if (text := lost_text(s))]
    more = [f"{len(lost) - LOST_SHOWN:,} more queries (flowql status)"] if len(lost) > LOST_SHOWN else []
    return "; ".join([done, *lost[:LOST_SHOWN], *more])


# Events of a Spark instance in the foreground as lines for the person: what fails and where, and that it goes on.

FAILED = "query.failed"
_SHOWN = ("log.", "files.changed", "files.unread")  # those whose text is a whole sentence, and which nothing else shows


class EventNotes(logging.Handler):
    """A failure that comes again with the same reason is said ever more seldom."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[str, tuple[str, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        parts, message = getattr(record, EVENT, None), record.getMessage()
        if parts is None:
            return
        if parts["event"] == FAILED:
            self._failed(parts["query"], message)
        elif parts["event"].startswith(_SHOWN):
            note(message)

    def _failed(self, query: str, reason: str) -> None:
        before = self._failures.get(query, ("", 0))
        count = before[1] + 1 if before[0] == reason else 1
        self._failures[query] = reason, count
        if is_a_step(count - 1, count):
            times = "" if count == 1 else f" ({count} times)"
            note(f"{query} failed{times}, and is tried again from its last micro-batch: {reason}")


@contextmanager
def event_notes(engine: str) -> Iterator[None]:
    """While the block runs, in a process with an instance of this engine. (The runtime's own are in `status` and its log.)"""
    if engine != "spark":
        yield
        return
    handler = EventNotes()
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)


# --- `flowql serve`: the instance in the foreground, without a project being deployed to it ---


@scoped("project target var")
def serve(scope: Scope, log_level: LogLevelOption = None, without: WithoutOption = None) -> None:
    """Run the deployed project, until Ctrl-C.

    `flowql deploy` in another process changes it.
    """
    settings = with_log_level(settings_of(scope.load()), log_level)
    if without:
        BrokerWait(settings, slept).until_they_answer()
        ids = left_out(without, settings.engine, at_rest(settings).deployed()[0].plan)
        settings = replace(settings, without=ids)
    with hosting(settings) as host:
        note(f"serving {settings.data_dir}, {len(host.service.plan.queries)} queries; Ctrl-C stops")
        note_left_out(settings.without)
        host.serve()

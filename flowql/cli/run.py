"""`flowql run`: the project in the foreground."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from flowql.api.deploying import deploy_request, wanted_of_engine, wanted_plan
from flowql.cli.brokers import BrokerWait, slept
from flowql.cli.building import QUIET_S, STUCK, check_built, with_building
from flowql.cli.deployment import note_rows
from flowql.cli.foreground import hosting
from flowql.cli.lost import lost_text
from flowql.cli.options import LogLevelOption, Scope, WithoutOption, scoped, with_log_level
from flowql.cli.progress import progress
from flowql.cli.render import note, show_diagnostics
from flowql.cli.without import left_out, note_left_out
from flowql.config.load import shown_path
from flowql.deploy.decision import decide
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError
from flowql.runtime.events import EVENT, LOGGER, is_a_step
from flowql.server.choice import at_rest
from flowql.server.engine import Engine, Mode
from flowql.server.host import Host

LOST_SHOWN = 10  # queries whose losses stand in the line at the end
FAILURES_MAX = 3  # restarts of a query after which --until-caught-up gives it up
_POLL_S, _FIRST_POLL_S = 0.05, 0.005  # a small project is done at once
_LOOKS_PER_STATUS = 6
_BLOCKED_LOOK_S = 1.0

States = Sequence[dict[str, Any]]  # of the serving queries, and of generations that are being built, as in status


@scoped("project target deployed var")
def command(
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
        note(f"{found.name}: {count} {'query' if count == 1 else 'queries'} on {shown_path(settings.data_dir)}")
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
    commits = "1 commit" if committed == 1 else f"{committed:,} commits"
    records = "1 record" if read_ == 1 else f"{read_:,} records"
    done = f"{records} in, {written:,} out, {commits} in {seconds:.1f} s"
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

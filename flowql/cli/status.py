"""`flowql status`: the queries of an instance and their progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import typer

from flowql.cli.monitoring.amounts import duration, size
from flowql.cli.monitoring.table import function_lines
from flowql.cli.options import Scope, scoped
from flowql.cli.place import place_of
from flowql.cli.render import counted, note, print_json, print_rows, write_lines
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.deploy.settings import settings_of
from flowql.runtime.app.beat_file import Activity
from flowql.runtime.clock import iso_time
from flowql.runtime.config import LetterRetention
from flowql.server.running import NotAnswering, RunningProcess
from flowql.topics.keeping import letters_kept

# --- Rows that a query did not use, in words: late rows, dead letters, skipped records ---

_KINDS = (
    ("late_records", "late row", "late rows"),
    ("dead_letters", "dead letter", "dead letters"),
    ("skipped_records", "skipped record", "skipped records"),
)


def lost_text(query: Mapping[str, Any]) -> str:
    """The words for an entry of `status`; empty if nothing is lost.

    >>> lost_text({"late_records": 1200, "dead_letters": 1, "skipped_records": 0})
    '1,200 late rows, 1 dead letter'
    """
    counts = ((query.get(key) or 0, one, many) for key, one, many in _KINDS)
    return ", ".join(counted(n, one, many) for n, one, many in counts if n)


LATE_COLUMNS = ("operator", "partition", "late rows", "furthest behind", "stream time")


def late_rows(query: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """A row for each operator and partition of an entry of `status` that dropped late rows."""
    for each in query.get("late") or ():
        behind = duration(each["behind_ms"]) if each["behind_ms"] else ""
        yield each["operator"], each["partition"], each["rows"], behind, shown_moment(each["stream_time"])


def shown_moment(ms: int) -> str:
    """ISO-8601 in UTC; the number itself where no calendar has it."""
    try:
        return iso_time(ms)
    except (ValueError, OverflowError, OSError):
        return str(ms)


NO_ANSWER = 3  # exit code: an instance runs and does not answer
# Field -> its heading. Fits in 80 columns with queries of ordinary names; what went wrong last stands below.
COLUMNS = {
    "id": "query",
    "state": "state",
    "priority": "priority",
    "lag": "lag",
    "records_in": "in",
    "records_out": "out",
    "late_records": "late",
    "dead_letters": "dead",
    "errors": "errors",
}
BUILT = "built, waits for promote"  # as the engine says it
SKIPPED = {"skipped_records": "skipped"}  # shown where there are any
WAITING = {"waiting_rows": "waiting"}  # shown where there are any
# Shown where queries call asynchronous functions.
CALLING = {"in_flight": "calls", **WAITING, "parked_rows": "parked"}
# The last batch in the log, and records a second.
ON_SPARK = {"batch": "batch", "rate": "rate"}


@scoped("project target output var")
def command(scope: Scope) -> None:
    """Show the queries of an instance and their progress.

    For a stopped instance, shows the last commit. For an instance that does not answer, shows its threads, with
    exit code 3.
    """
    project = scope.load()
    place = place_of(project)
    try:
        client = place.connect()
    except NotAnswering as error:
        if scope.as_json:
            print_json(silent_status(error.process, project.target.engine))
        else:
            write_lines(sys.stderr, silent_lines(error.process))
        raise typer.Exit(NO_ANSWER) from error
    if client is not None:
        with closing(client):
            found = client.status()
    else:
        from flowql.server.choice import at_rest  # loads the engine's reading side

        found = at_rest(settings_of(project)).status()
    if scope.as_json:
        print_json(found)
        return
    note(_headline(found["instance"]))
    for trouble in found["instance"].get("trouble", ()):
        note(troubled(trouble))
    for stuck in found["instance"].get("stuck", ()):
        note(held_up(stuck))
    for said in found["instance"].get("notes", ()):
        note(said)
    if said := behind(found["instance"].get("remote")):
        note(said)
    if not found["queries"]:
        note("nothing is deployed")
        return
    rows = [{**q, "priority": _priority(q), **_waiting(q)} for q in found["queries"]]
    columns = COLUMNS | (SKIPPED if any(q.get("skipped_records") for q in found["queries"]) else {})
    columns |= CALLING if any("in_flight" in row for row in rows) else {}
    columns |= WAITING if any(row.get("waiting_rows") for row in rows) else {}
    columns |= ON_SPARK if found["instance"]["engine"] == "spark" else {}
    print_rows(list(columns.values()), [["" if row.get(c) is None else row[c] for c in columns] for row in rows])
    if lines := function_lines(found):
        write_lines(sys.stdout, ["", *lines])
    if any(q["dead_letters"] for q in found["queries"]) and (kept := found["instance"].get("dead_letters_kept")):
        note(f"dead letters are {letters_kept(LetterRetention(**kept))}")
    by_id = {q["id"]: q for q in found["queries"]}
    for q in found["queries"]:
        if behind_whom := _held_up_by(q, by_id):
            note(f"{q['id']} waits for {behind_whom}")
        if q["state"] == "paused":
            note(f"{q['id']} is paused; it continues with:  flowql resume {q['id']}")
        if q["last_error"]:
            note(f"{q['id']}: {q['last_error']}")
        for ahead in q.get("ahead") or ():
            note(f"{q['id']}: {far_ahead(ahead)}")
        if held := q.get("now"):
            note(f"{q['id']}: {stands_still(held)}")
        for each in q.get("notes") or ():
            note(f"{q['id']}: {each}")
        if q.get("building"):
            note(f"{q['id']}: {described(q['building'])}")


def _held_up_by(query: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> str:
    """The queries that have to come first before this one shows anything new, and why they take long; empty if none does."""
    wait = query.get("waits") or {}
    found = list[str]()
    for name in wait.get("whom", ()) if wait.get("for") in ("tick", "upstream") else ():
        other = by_id.get(name, {})
        if other and other["state"] != "running":
            found.append(f"{name}, which is {other['state']}")
        elif lag := other.get("lag"):
            found.append(f"{name}, which has {counted(lag, 'record', 'records')} left")
    return "; ".join(found)


def _waiting(query: dict[str, Any]) -> dict[str, int]:
    """Rows that wait for calls or for a time, and calls under way, as columns."""
    found = query.get("waiting")
    if not found:
        return {}
    calling = {"in_flight": found["in_flight"], "parked_rows": found["parked"]} if "in_flight" in found else {}
    return {"waiting_rows": found["calls"] + found["windows"], **calling}


def far_ahead(ahead: dict[str, Any]) -> str:
    """The effect of a record with a time in the future on its partition."""
    hours = ahead["ahead_ms"] / 3_600_000
    return (
        f"stream time of partition {ahead['partition']} is {hours:,.1f} h ahead of the clock; records until then are late "
        "there (MAX_AHEAD of a source keeps such times out)"
    )


def stands_still(held: dict[str, int]) -> str:
    """The effect on a view that compares with `NOW()` of a clock that was set back."""
    return (
        f"the clock was set back: NOW() stays at {shown_moment(held['moment_ms'])}, {held['ahead_ms'] / 3_600_000:,.1f} h ahead of it, and no row appears or "
        "expires until then (--full-refresh of the view computes it as of the clock)"
    )


def troubled(trouble: dict[str, Any]) -> str:
    """Partitions that cannot be read at the moment, and since when."""
    where = f"{trouble['partition']} is not read" if trouble["partition"] else "the log is in trouble"
    tried = f", tried {trouble['times']:,} times" if trouble["times"] > 1 else ""
    return f"{where} for {trouble['for_ms'] / 1000:.0f} s{tried}: {trouble['error']}"


def behind(remote: dict[str, Any] | None) -> str:
    """How far the remote store is behind at most; empty if it has everything, or there is none."""
    if remote is None:
        return ""
    commits = max((q["behind_commits"] for q in remote["queries"].values()), default=0)
    if remote["away"] is not None:
        return f"the remote store gets nothing, and lacks {commits:,} commits: {remote['away']}"
    if not commits:
        return ""
    waiting = remote["waiting_bytes"]
    ages = [q["behind_ms"] for q in remote["queries"].values() if q["behind_ms"] is not None]
    since = f", the newest is {max(ages) / 1000:,.0f} s old" if ages else ", which are the first"
    return f"the remote store lacks {commits:,} commits{since}; {waiting / (1 << 20):,.1f} MB wait"


def held_up(stuck: dict[str, Any]) -> str:
    """A thread that makes no progress, and the code it runs."""
    task = f" with task {stuck['task']}" if stuck["task"] else ""
    return f"{stuck['step']} has not finished a round for {stuck['for_ms'] / 1000:.0f} s{task}: {stuck['where']}"


def described(building: dict[str, Any]) -> str:
    """The progress of a generation that is being built, and what it waits for."""
    done = building["records_in"]
    if building["why"] == BUILT:
        return f"generation {building['generation']} is {BUILT} ({done:,} records)"
    parts = [f"generation {building['generation']} is being built: {done:,} of {done + building['lag']:,} records"]
    if building["why"]:
        parts.append(building["why"])
    if building["last_error"]:
        parts.append(building["last_error"])
    return "; ".join(parts)


def _priority(query: dict[str, Any]) -> str:
    """Its name, with the weight where a query has one of its own."""
    name, weight = query["priority"], query["weight"]
    return f"{name}" if PRIORITY_WEIGHTS.get(name) == weight else f"{name} ({weight})"


def _headline(instance: dict[str, Any]) -> str:
    if last := instance.get("last_heartbeat"):
        age_s = last["age_ms"] / 1000
        return f"no instance is running here; the last heartbeat of process {last['pid']} on {last['host']} is {age_s:,.0f} s old"
    if instance["pid"] is None:
        return "no instance is running; start it with:  flowql deploy"
    if instance["engine"] == "spark":
        where = f" on {instance['host']}, {_since(instance['at_ms'])} ago" if "host" in instance else ""
        return f"process {instance['pid']}{where}: Spark on {instance['master']}, log {instance['log']}"
    clients, group = instance["clients"], instance.get("group")
    rack = f", rack {group['rack']}" if group and group["rack"] else ""
    share = f", {group['partitions']} of {group['of']} partitions{rack}" if group else ""
    return (
        f"process {instance['pid']}: {instance['threads']} threads, log {instance['log']}, "
        f"{clients['consumers']} consumers, {clients['producers']} producer{share}{_tables(instance)}{_gateway(instance)}"
    )


def _tables(instance: dict[str, Any]) -> str:
    """The memory of rows of local tables that are kept for statements."""
    used, most = instance.get("tables_memory_bytes"), instance.get("tables_memory_bytes_max")
    return f", rows of tables in {size(used)} of {size(most)}" if used else ""


def _gateway(instance: dict[str, Any]) -> str:
    """The memory of the process that serves the ports of `api` and `pg`."""
    found = instance.get("gateway")
    return f", gateway {size(found['memory_bytes'])} of {size(found['memory_bytes_max'])}" if found else ""


def _since(at_ms: int) -> str:
    """The age of a status that another machine has written, by its clock."""
    return f"{max(0.0, time.time() - at_ms / 1000):.0f} s"


# The activity of an instance that runs and does not answer, read from its file (`flowql.runtime.app.beat_file`).

SHOWN = 8  # threads


def silent_status(process: RunningProcess, engine: str) -> dict[str, Any]:
    """The public JSON of `status` (docs/reference/status.md). Queries are not listed: what they do is not known from outside."""
    seen = process.seen
    instance: dict[str, Any] = {
        "pid": process.pid,
        "engine": engine,
        "answers": False,
        "suspended": process.is_suspended,
        "state": None if seen is None else seen.state,
        "silent_s": None if seen is None else round(seen.silent_s, 1),
        "frozen_s": 0.0 if seen is None else round(seen.frozen_s, 1),
        "threads": [] if seen is None else [_thread(a) for a in seen.activities],
    }
    return {"instance": instance, "queries": []}


def silent_lines(process: RunningProcess) -> list[str]:
    """The same for people."""
    doing = process.doing()
    lines = [f"process {process.pid} runs and does not answer{f': {doing}' if doing else ''}"]
    seen = process.seen
    if seen is None:
        return lines
    if seen.frozen_s:
        lines.append(f"it has used {seen.frozen_s:,.0f} s of processor time since its last sign of life")
    lines += [_line(a) for a in seen.activities[:SHOWN]]
    lines.append("flowql stop  ends it, flowql stop --force  also if it does not react; what is committed stays")
    return lines


def _thread(activity: Activity) -> dict[str, Any]:
    return {
        "step": activity.step,
        "for_s": round(activity.for_s, 1),
        "query": activity.id or None,
        "task": activity.task or None,
        "micro_batch_s": None if activity.batch_s is None else round(activity.batch_s, 1),
        "positions": dict(activity.positions),
    }


def _line(activity: Activity) -> str:
    line = f"  {activity.step} for {activity.for_s:,.1f} s"
    if activity.batch_s is None:
        return line
    positions = ", ".join(f"{name} at offset {offset:,}" for name, offset in activity.positions.items())
    return f"{line}: {activity.id} task {activity.task}, a micro-batch for {activity.batch_s:,.1f} s{f' ({positions})' if positions else ''}"

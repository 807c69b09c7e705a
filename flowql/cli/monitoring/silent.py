"""What an instance does that runs and does not answer, as its file tells (`flowql.runtime.app.beat_file`)."""

from __future__ import annotations

from typing import Any

from flowql.runtime.app.beat_file import Activity
from flowql.server.running import RunningProcess

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

"""The history of deployments: what became of each, and which of them to go back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowql.compiler.plan.deployed import Deployed, Entry, Forward
from flowql.compiler.plan.generations import runtime_name
from flowql.compiler.plan.topology import Plan
from flowql.errors import CommandError

NO_DEPLOYMENT = "FQ5210"


def result_of(entry: Entry, entries: Sequence[Entry], deployed: Deployed) -> str:
    """In a word or two."""
    if entry.done_ms is not None:
        return "serves" if entry.id == deployed.id else "done"
    if entry.id == deployed.id:
        return "rebuilding"
    after = next((e.id for e in entries if e.id > entry.id), deployed.id)
    return f"went on in {after}"


def counts_of(entry: Entry) -> dict[str, int]:
    """How many queries were added, rebuilt, ..."""
    found: dict[str, int] = {}
    for _, action, _ in entry.changes:
        found[action] = found.get(action, 0) + 1
    return found


def to_data(entry: Entry, entries: Sequence[Entry], deployed: Deployed) -> dict[str, Any]:
    """The public JSON of an entry of the history."""
    return {
        "id": entry.id,
        "ms": entry.ms,
        "how": entry.about.how,
        "files": dict(entry.about.files),
        "changes": [{"query": q, "action": a, "because": b or None} for q, a, b in entry.changes],
        "forward": [_forward(f, entry) for f in entry.forwards],
        "done_ms": entry.done_ms,
        "seconds": None if entry.done_ms is None else round((entry.done_ms - entry.ms) / 1000, 3),
        "result": result_of(entry, entries, deployed),
    }


def _forward(forward: Forward, entry: Entry) -> dict[str, Any]:
    """From where on a new text holds: of each partition that it reads, and of each that it writes, the first offset."""
    query = next((q.id for q in entry.plan.queries if runtime_name(q) == forward.query), forward.query)
    spans = {"reads": forward.reads, "results": forward.results}
    return {"query": query} | {
        what: [{"topic": t, "partition": p, "offset": at} for t, p, at in found] for what, found in spans.items()
    }


def entry_of(entries: Sequence[Entry], number: int) -> Entry:
    """CommandError for one that is not in the history."""
    found = next((e for e in entries if e.id == number), None)
    if found is None:
        known = f"{entries[0].id} to {entries[-1].id}" if entries else "none yet"
        raise CommandError(f"there is no deployment {number}", code=NO_DEPLOYMENT, help=f"there are {known}")
    return found


def before(entries: Sequence[Entry], deployed: Deployed) -> Entry:
    """The newest whose queries were others than those that are wanted now. CommandError if there is none."""
    now = _queries(deployed.plan)
    found = next((e for e in reversed(entries) if e.plan.queries and _queries(e.plan) != now), None)
    if found is None:
        raise CommandError("there is no earlier deployment", code=NO_DEPLOYMENT, help="flowql deployments")
    return found


def _queries(plan: Plan) -> set[tuple[str, str]]:
    return {(q.id, q.definition) for q in plan.queries}

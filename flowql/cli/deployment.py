"""A deployment as people read it: a line per query, readers below the query because of which they are rebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowql.cli.monitoring.amounts import duration
from flowql.cli.render import note, print_json, print_rows
from flowql.deploy.costs import shown_size

Change = Mapping[str, Any]


def show_deployment(done: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Every query's fate, what of its state is kept, and what it reads anew. done: the public JSON of a deployment."""
    if as_json:
        print_json(done)
        return
    changes, withheld = done["changes"], done["withheld"]
    columns = {"query": 0, "change": 1, "state": 2, "to read": 3, "why": 4}
    rows = [
        (before + c["query"], c["class"], c["state"] or "", "" if done["applied"] else _reads(c), c["why"])
        for before, c in _tree(changes)
    ]
    shown = [i for name, i in columns.items() if i < 3 or any(row[i] for row in rows)]
    print_rows([name for name, i in columns.items() if i in shown], [[row[i] for i in shown] for row in rows])
    for sentence in done["lost_history"]:
        note(f"gone: {sentence}; a rebuild needs --accept-history")
    note_rows(done)
    if withheld:
        note(f"{', '.join(withheld)}: not in the project; still running. To remove:  flowql deploy --prune")
    if waiting := [q for q in done["waiting"] if not done["applied"]]:
        let = "" if set(waiting) <= set(done["held"]) else "; without --shadow it serves"
        note(f"{', '.join(waiting)}: built, waits for promote{let}")
    held = set(done["waiting"]) ^ set(done["held"])  # is held from now on, or not any more
    changed = sum((_is_changed(c) or c["query"] in held) and c["query"] not in withheld for c in changes)
    if not done["applied"]:
        if done["disk_bytes"]:
            note(f"until the swap two generations take about {shown_size(done['disk_bytes'])} more")
        note(f"{changed} to change; nothing was done (--dry-run)")
    else:
        note(f"{changed} changed" if changed else "no changes")


def _is_changed(change: Change) -> bool:
    """Whether this deployment changes it, and not an earlier one that is still building it."""
    building = change.get("building")
    return building == "dropped" or (change["action"] != "none" and building != "continued")


def note_rows(done: Mapping[str, Any]) -> None:
    """How many rows statements of the project have changed, by table."""
    for topic, rows in done.get("rows_left", {}).items():
        stay = "row of INSERT VALUES stays" if rows == 1 else "rows of INSERT VALUES stay"
        note(f"{rows:,} {stay} in {topic}, though the project no longer has {'it' if rows == 1 else 'them'}")
    for table, rows in done.get("rows_changed", {}).items():
        note(f"statements of the project changed {rows:,} {'row' if rows == 1 else 'rows'} of {table}")


def _tree(changes: Sequence[Change]) -> Iterator[tuple[str, Change]]:
    """Each change once, with what is drawn before it."""
    ids = {c["query"] for c in changes}
    below: dict[str, list[Change]] = {}
    for c in changes:
        parent = c["because"] if c["because"] in ids and not _is_circle(c, changes) else ""
        below.setdefault(parent, []).append(c)

    def lines(parent: str, indent: str) -> Iterator[tuple[str, Change]]:
        children = below.get(parent, [])
        for i, c in enumerate(children):
            last = i + 1 == len(children)
            branch, more = ("", "") if not parent else ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield indent + branch, c
            yield from lines(c["query"], indent + more)

    return lines("", "")


def _is_circle(change: Change, changes: Sequence[Change]) -> bool:
    """Queries of a circle name each other as the cause: one that comes back to itself stands at the left."""
    causes = {c["query"]: c["because"] for c in changes}
    at, seen = change["because"], set[str]()
    while at and at not in seen:
        if at == change["query"]:
            return True
        seen.add(at)
        at = causes.get(at)
    return False


def _reads(change: Change) -> str:
    reads = change["reads"]
    if reads is None:
        return ""
    rate = "" if reads["measured"] else "?"
    said = f"{reads['records']:,} records, {shown_size(reads['bytes'])}, {duration(reads['seconds'] * 1000)}{rate}"
    return said + (f", up to {reads['records']:,} calls of {' and of '.join(reads['calls'])}" if reads["calls"] else "")

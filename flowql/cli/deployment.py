"""A deployment as people read it: a line per query, readers below the query because of which they are rebuilt."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowql.cli.monitoring.amounts import duration
from flowql.cli.render import counted, note, print_json, print_rows
from flowql.deploy.costs import shown_size

Change = Mapping[str, Any]
# Class of a query, or change of a relation -> colour of its line.
_COLORS = {"unchanged": "dim", "added": "green", "removed": "red", "rebuilt": "yellow", "changed": "yellow"}
_OTHERS = "cyan"
_RELATIONS = ("stream or table", "change", "what")
_CLASSES = ("added", "rebuilt", "forward", "removed", "metadata", "compatible", "unchanged")


def show_deployment(done: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Every query's fate, what of its state is kept, and what it reads anew. done: the public JSON of a deployment."""
    if as_json:
        print_json(done)
        return
    names, rows = _table(done)
    print_rows(names, rows, colors=_colors(rows))
    if relations := [(r["name"], r["change"], _differences(r)) for r in done["relations"]]:
        sys.stdout.write("\n")
        print_rows(_RELATIONS, relations, colors=_colors(relations))
    for sentence in notes_of(done):
        note(sentence)
    changed = done["changed"]
    if not done["applied"]:
        note(f"{changed} to change; to apply:  flowql deploy" if changed else "no changes")
    else:
        note(f"{changed} changed" if changed else "no changes")


def markdown_of(done: Mapping[str, Any], heading: str) -> str:
    """A plan as Markdown, without the queries that do not change."""
    made = [c["class"] for c in done["changes"] if c["query"] not in done["withheld"]]
    count = {kind: made.count(kind) for kind in _CLASSES}
    said = ", ".join(f"{n} {kind}" for kind, n in count.items() if n)
    parts = [f"### {heading}", f"**{counted(done['changed'], 'change')}** (queries: {said or 'none'})"]
    names, rows = _table(done)
    if rows := [[_code(row[0]), *map(_escaped, row[1:])] for row in rows if row[1] != "unchanged"]:
        parts.append(_markdown_table(names, rows))
    if relations := [(_code(r["name"]), r["change"], _escaped(_differences(r))) for r in done["relations"]]:
        parts.append(_markdown_table(_RELATIONS, relations))
    if sentences := notes_of(done):
        parts.append("\n".join(f"- {_escaped(sentence)}" for sentence in sentences))
    return "\n\n".join(parts)


def notes_of(done: Mapping[str, Any]) -> list[str]:
    """Everything that is to be said about a deployment beside the table."""
    withheld, found = done["withheld"], []
    found += [f"gone: {sentence}; a rebuild needs --accept-history" for sentence in done["lost_history"]]
    found += _rows(done)
    if withheld:
        found.append(f"{', '.join(withheld)}: not in the project; still running. To remove:  flowql deploy --prune")
    if waiting := [q for q in done["waiting"] if not done["applied"]]:
        let = "" if set(waiting) <= set(done["held"]) else "; without --shadow it serves"
        found.append(f"{', '.join(waiting)}: built, waits for promote{let}")
    if done["disk_bytes"] and not done["applied"]:
        found.append(f"until the swap two generations take about {shown_size(done['disk_bytes'])} more")
    return found


def note_rows(done: Mapping[str, Any]) -> None:
    """How many rows statements of the project have changed, by table."""
    for sentence in _rows(done):
        note(sentence)


def _rows(done: Mapping[str, Any]) -> Iterator[str]:
    if not done["applied"]:
        for topic, rows in done["rows_added"].items():
            yield f"{counted(rows, 'row')} of INSERT VALUES to be written to {topic}"
        if n := done["statements_added"]:
            yield f"{counted(n, 'statement')} that {'changes' if n == 1 else 'change'} rows of tables to be carried out"
    for topic, rows in done["rows_left"].items():
        stay = "row of INSERT VALUES stays" if rows == 1 else "rows of INSERT VALUES stay"
        yield f"{rows:,} {stay} in {topic}, though the project no longer has {'it' if rows == 1 else 'them'}"
    for table, rows in done.get("rows_changed", {}).items():
        yield f"statements of the project changed {counted(rows, 'row')} of {table}"


def _table(done: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Names of columns, and a row for each query; columns that say nothing are left out."""
    columns = ("query", "change", "state", "to read", "why")
    rows = [
        (before + c["query"], c["class"], c["state"] or "", "" if done["applied"] else _reads(c), c["why"])
        for before, c in _tree(done["changes"])
    ]
    shown = [i for i in range(len(columns)) if i < 3 or any(row[i] for row in rows)]
    return [columns[i] for i in shown], [[row[i] for i in shown] for row in rows]


def _differences(relation: Mapping[str, Any]) -> str:
    return "; ".join(relation["columns"]) or ("its options" if relation["change"] == "changed" else "")


def _colors(rows: Sequence[Sequence[str]]) -> list[str]:
    return [_COLORS.get(row[1], _OTHERS) for row in rows]


def _markdown_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(name: str) -> str:
    """A name with the branches of the tree before it, which keep their indentation."""
    branches, _, name = name.rpartition(" ")
    return f"{branches.replace(' ', '&nbsp;')} `{name}`" if branches else f"`{name}`"


def _escaped(text: str) -> str:
    """Text as Markdown shows it as it is. An underscore within a word has no meaning there."""
    return re.sub(r"([\\`*<>|\[\]~])", r"\\\1", text).replace("\n", " ")


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

"""The outcome of every statement, for a person: IMPORT.md and the lines on the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flowql.ksqldb.notes import MEANING, Note
from flowql.ksqldb.project import Imported
from flowql.ksqldb.replay import Definition

FILE = "IMPORT.md"
_ROLES = {
    "type": "type",
    "source": "source",
    "query": "query",
    "insert": "INSERT INTO",
    "rows": "INSERT VALUES",
    "assert": "ASSERT",
}


def report(imported: Imported, scripts: Sequence[str]) -> str:
    """The text of IMPORT.md."""
    lines = ["# Imported from ksqlDB", "", f"Read: {', '.join(f'`{s}`' for s in scripts)}.", ""]
    lines += [f"{summary(imported).capitalize()}."]
    for kind, meaning in MEANING.items():
        found = [n for n in imported.notes if n.kind == kind]
        if found:
            lines += ["", f"## {kind.capitalize()}", "", f"What {meaning}:", ""]
            lines += [_item(n) for n in found]
    lines += ["", "## Where everything is", "", "| name | what | from | to |", "|---|---|---|---|"]
    lines += [_row(d, file) for d, file in imported.made]
    lines += ["", "## What next", "", "```console", *(f"$ {c}" for c in steps()), "```", ""]
    return "\n".join(lines)


def summary(imported: Imported) -> str:
    """`2 types, 3 sources, 5 queries`."""
    roles = [("type", ("type",)), ("source", ("source",)), ("query", ("query", "insert"))]
    counts = [(name, sum(d.role in of for d, _ in imported.made)) for name, of in roles]
    return ", ".join(_count(n, name) for name, n in counts if n) or "nothing that defines anything"


def steps() -> Iterator[str]:
    """The next commands to run in the folder of the project."""
    yield "flowql validate"
    yield "flowql lineage"
    yield "flowql deploy"


def _count(n: int, one: str) -> str:
    many = "queries" if one == "query" else f"{one}s"
    return f"{n} {one if n == 1 else many}"


def _item(note: Note) -> str:
    place = f"`{note.place}` " if note.place else ""
    help_ = re.sub(r":  (.*)", r": `\1`", note.help)
    return f"- {place}{note.text}" + (f". {help_[:1].upper()}{help_[1:]}" if help_ else "")


def _row(d: Definition, file: str) -> str:
    return f"| `{d.name}` | {_ROLES[d.role]} | `{d.span.path}:{d.span.line}` | `{file}` |"


def note_lines(notes: Sequence[Note]) -> Iterator[str]:
    """One note per line, those of a kind together."""
    width = max((len(n.short_place) for n in notes), default=0)
    for kind in MEANING:
        for note in notes:
            if note.kind == kind:
                yield f"  {kind:8}  {note.short_place:{width}}  {note.text}".rstrip()

"""Cases as files of SQL: what someone from another system writes, and how DuckDB says the same.

A heading begins each part of a file, and its statements follow:

    --- tables          run before each of the cases below it
    --- changes         run after each of them
    --- a title         a case: views, and statements that change or ask
    --- a title; refused: what is named

A comment `/* duckdb ... */` behind a statement is what DuckDB runs in its place; an empty one is nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).parent / "cases"
STYLES = ("postgresql", "flink", "risingwave")
_HEADING = re.compile(r"^--- (.+)$", re.MULTILINE)
_PIECE = re.compile(r"/\* duckdb\b(?P<reference>.*?)\*/|;|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|.", re.DOTALL)
_VIEW = re.compile(
    r"\s*CREATE\s+(OR\s+REPLACE\s+)?(MATERIALIZED\s+)?VIEW\s+(IF\s+NOT\s+EXISTS\s+)?", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Step:
    """A statement. reference: the statement for DuckDB."""

    sql: str
    reference: str


@dataclass(frozen=True, slots=True)
class Case:
    """A case. refused: what the error names that is expected for now, or nothing."""

    style: str
    title: str
    steps: tuple[Step, ...]
    refused: str = ""


def load(style: str) -> list[Case]:
    """The cases of a style, in the order of its file."""
    _, *parts = _HEADING.split((FOLDER / f"{style}.sql").read_text())
    tables: tuple[Step, ...] = ()
    found: list[Case] = []
    first = 0  # case of the tables
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        if title == "tables":
            tables, first = steps(text), len(found)
        elif title == "changes":
            found[first:] = [replace(c, steps=c.steps + steps(text)) for c in found[first:]]
        else:
            named, _, refused = title.partition("; refused: ")
            found.append(Case(style, named, tables + steps(text), refused))
    return found


def steps(text: str) -> tuple[Step, ...]:
    """The statements of a text.

    >>> steps("SELECT ';' AS a; SELECT 1e0; /* duckdb SELECT 1; */ ")
    (Step(sql="SELECT ';' AS a", reference="SELECT ';' AS a"), Step(sql='SELECT 1e0', reference='SELECT 1;'))
    """
    found: list[Step] = []
    written = ""
    for piece in _PIECE.finditer(text):
        reference = piece["reference"]
        if reference is not None:
            found[-1] = replace(found[-1], reference=reference.strip())
        elif piece[0] == ";":
            found.append(Step(written.strip(), _VIEW.sub("CREATE VIEW ", written.strip(), count=1)))
            written = ""
        elif written or not piece[0].isspace():
            written += piece[0]
    assert not written.strip(), f"a statement without its semicolon: {written}"
    return tuple(found)

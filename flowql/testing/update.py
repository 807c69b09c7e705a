"""`flowql test --update`: expectations in YAML files rewritten to what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flowql.testing.case import Expected, Row, Verdict
from flowql.testing.yaml_form import rows_text

Change = tuple[int, int, str]


def update(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Rewrite the rows of failed expectations; the rest of the file stays as it is. File -> expectations rewritten."""
    changes: dict[str, list[Change]] = {}
    for v in verdicts:
        for f in v.findings:
            if f.expected is not None and f.expected.at is not None:
                start, end, column = f.expected.at
                is_block = Path(v.case.file).read_text()[start] != "["
                text = rows_text([_columns(r, f.expected) for r in f.actual], column if is_block else None)
                changes.setdefault(v.case.file, []).append((start, end, text))
    for name, found in changes.items():
        path = Path(name)
        path.write_text(_applied(path.read_text(), found))
    return {name: len(found) for name, found in changes.items()}


def _applied(text: str, changes: Sequence[Change]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _columns(row: Row, expected: Expected) -> dict[str, Any]:
    """A found row in the columns that the expectation named; all, where it named none."""
    named = {c.upper() for r in expected.rows for c in r.values}
    out = {c: v for c, v in row.values.items() if not named or c.upper() in named}
    if any(r.rowtime_ms is not None for r in expected.rows) and row.rowtime_ms is not None:
        out["ROWTIME"] = row.rowtime_ms
    return {**out, "TOMBSTONE": True} if row.tombstone else out

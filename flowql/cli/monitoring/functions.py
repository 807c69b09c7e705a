"""The costs of calls of user-defined functions, as lines of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowql.cli.aligned import table_lines
from flowql.cli.monitoring.amounts import count

COLUMNS = ("function", "module", "calls", "us/call", "failed", "lost processes")


def function_lines(status: Mapping[str, Any]) -> list[str]:
    """A heading and a line per function that has been called; none where there is none."""
    found = status["instance"].get("functions", ())
    rows = [
        [
            f["function"],
            f["module"],
            count(f["calls"]),
            f"{f['seconds'] * 1e6 / f['calls']:.1f}",
            count(f["failures"]),
            count(f["lost_processes"]),
        ]
        for f in found
    ]
    return list(table_lines(COLUMNS, rows, [False, False, True, True, True, True])) if rows else []

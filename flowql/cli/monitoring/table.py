"""One status as a picture: a headline, an aligned table, and what went wrong last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from flowql.cli.monitoring.amounts import count, duration, percent, size
from flowql.cli.monitoring.columns import BY_KEY, Column, Query, fitting, least, matching, ordered, wanted
from flowql.cli.render import counted, table_lines

# --- The costs of calls of user-defined functions, as lines of a table ---

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


STYLES = {
    "error": "bold red",
    "failed": "red",
    "hung": "red",
    "blocked": "red",
    "restoring": "cyan",
    "paused": "yellow",
}
HEADING, SORTED, FAINT = "bold", "bold reverse", "dim"


@dataclass(slots=True)
class View:
    """The choice of columns and rows. first: of the queries, the one in the first line."""

    sort: str = "share"
    reverse: bool = False
    filter: str = ""
    first: int = 0

    def select(self, status: Mapping[str, Any]) -> list[Query]:
        """The queries to show, in order."""
        return ordered(matching(status["queries"], self.filter), self.sort, reverse=self.reverse)


def headline(status: Mapping[str, Any], cpu: float | None = None) -> str:
    """The instance in a line. cpu: processors it uses now."""
    i, queries = status["instance"], status["queries"]
    rate, behind = sum(q.get("rate_in") or 0 for q in queries), sum(q["lag"] for q in queries)
    parts = [f"process {i['pid']}", f"up {duration(i['uptime_s'] * 1000)}"]
    parts += [
        counted(len(queries), "query", "queries"),
        f"{count(rate)} in/s",
        f"lag {count(behind)}",
    ]
    if cpu is not None:
        parts.append(f"CPU {percent(cpu)}")
    parts.append(f"memory {size(i['memory_bytes'])}")
    if i.get("tables_memory_bytes"):
        parts.append(f"tables {size(i['tables_memory_bytes'])} of {size(i['tables_memory_bytes_max'])}")
    if gateway := i.get("gateway"):
        parts.append(f"gateway {size(gateway['memory_bytes'])} of {size(gateway['memory_bytes_max'])}")
    if "commit_ms" in i:
        parts.append(f"commit {duration(i['commit_ms'])}")
    return "  ".join([*parts, f"{i['engine']} on {i['log']}"])


def state_line(found: Mapping[str, Any]) -> str:
    """A line with RocksDB's statistics. found: `state` of the instance."""
    looked = found["cache_hits"] + found["cache_misses"]
    hits = percent(found["cache_hits"] / looked if looked else None)
    parts = [f"state {size(found['files_bytes'])}", f"{hits} of blocks from the cache"]
    parts.append(f"look-ups p99 {found['calls']['multi_get']['p99_ms']:.2f}ms")
    if found["compactions"] or found["pending_compaction_bytes"]:
        parts.append(f"{size(found['pending_compaction_bytes'])} to be compacted")
    if found["stall_s"]:
        parts.append(f"writes held up for {duration(found['stall_s'] * 1000)}")
    return "  ".join(parts)


def picture(
    status: Mapping[str, Any], view: View, width: int, *, height: int | None = None, cpu: float | None = None
) -> RenderableType:
    """At most `height` lines."""
    lines = [_cut(headline(status, cpu), width, "")]
    if found := status["instance"].get("state"):
        lines.append(_cut(state_line(found), width, ""))
    if status["instance"].get("blocked"):
        lines.append(_cut(f"commits fail: {status['instance']['blocked']}", width, STYLES["blocked"]))
    queries = view.select(status)
    wrong = [q for q in queries if q["last_error"] and q["state"] != "running"]
    functions = function_lines(status)
    below = min(2, len(wrong)) + (len(functions) + 1 if functions else 0)
    room = len(queries) if height is None else max(1, height - len(lines) - 2 - below)
    view.first = max(0, min(view.first, len(queries) - room))
    shown = queries[view.first : view.first + room]
    lines += [Text(""), *rows(shown, view, width)]
    if not queries:
        lines.append(Text(f"no query has {view.filter!r}" if view.filter else "nothing is deployed", FAINT))
    lines += [_cut(f"{q['id']}: {q['last_error']}", width, STYLES["failed"]) for q in wrong[:2]]
    if functions:
        lines += [Text(""), *(_cut(line, width, HEADING if not n else "") for n, line in enumerate(functions))]
    return Group(*(lines if height is None else lines[:height]))


def rows(queries: Sequence[Query], view: View, width: int) -> list[Text]:
    """The table: a heading and a line per query."""
    columns = fitting(queries, width)
    widths = _widths(columns, queries, width)
    lines = [Text(" ").join(_heading(c, w, view) for c, w in zip(columns, widths, strict=True))]
    lines[0].rstrip()
    for q in queries:
        cells = (_fit(c.text(q), w, left=c.left) for c, w in zip(columns, widths, strict=True))
        lines.append(Text(" ".join(cells).rstrip(), STYLES.get(q["state"], "")))
    return lines


def _widths(columns: Sequence[Column], queries: Sequence[Query], width: int) -> list[int]:
    """Numbers as wide as they are; what is left is for names, then for what queries are doing."""
    found = [least(c, queries) for c in columns]
    left = width - sum(found) - len(columns) + 1
    for n, column in enumerate(columns):
        if column.key in ("query", "doing"):
            more = max(0, min(left, wanted(column, queries) - found[n]))
            found[n], left = found[n] + more, left - more
    return found


def _heading(column: Column, width: int, view: View) -> Text:
    is_sorted = column is BY_KEY[view.sort]
    return Text(_fit(column.heading, width, left=column.left), SORTED if is_sorted else HEADING)


def _fit(text: str, width: int, *, left: bool) -> str:
    cut = text if len(text) <= width else f"{text[: width - 1]}…"
    return cut.ljust(width) if left else cut.rjust(width)


def _cut(text: str, width: int, style: str) -> Text:
    return Text(_fit(text, width, left=True).rstrip(), style)


def text_of(status: Mapping[str, Any], view: View, width: int) -> str:
    """The picture without colour."""
    plain = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    with plain.capture() as captured:
        plain.print(picture(status, view, width))
    return captured.get()

"""What is right and may still not be what was meant: warnings and hints about a query that compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.plan.logical import Aggregate, Join, Node, Scan, Window, walk_nodes
from flowql.compiler.plan.topology import QueryPlan, SourceDef

LOST_WINDOWS, TIMELESS_TABLE = "FQ2120", "FQ2121"
_DAY_MS = 86_400_000


def hints_about(query: QueryPlan, sources: Mapping[str, SourceDef], span: Span) -> Iterator[Diagnostic]:
    """In the order of the plan, each once. span: of the statement."""
    said: set[str] = set()
    for node in walk_nodes(query.logical):
        spec = node.spec
        if isinstance(spec, Aggregate) and spec.emit_final and spec.window is not None:
            if _outruns_retention(spec.window):
                yield _lost_windows(query, spec.window, span)
        elif isinstance(spec, Join) and spec.shape == "stream-table":
            for table in _tables(node.inputs[1]):
                source = sources.get(table)
                if source is not None and source.query is None and source.timestamp is None and table not in said:
                    said.add(table)
                    yield _timeless(query, table, span)


def _outruns_retention(window: Window) -> bool:
    """Whether a pause as long as a window can close one and outrun its retention at once."""
    if window.kind == "session":
        return False
    grace = max(_DAY_MS - window.size_ms, 0) if window.grace_ms is None else window.grace_ms
    closes = window.size_ms + grace
    return (window.retention_ms or 0) < closes + window.size_ms


def _lost_windows(query: QueryPlan, window: Window, span: Span) -> Diagnostic:
    return Diagnostic(
        LOST_WINDOWS,
        f"{query.id} loses windows where its input pauses",
        span,
        "EMIT FINAL, and windows are kept for their size and grace only",
        why="the record that closes a window gives it. If that record is so late that stream time jumps over the next window, too, the window "
        "is forgotten already and gives no row. ksqlDB does the same",
        help=f"keep windows for longer than the input pauses:  WINDOW {window.kind.upper()} (..., RETENTION 7 DAYS, ...)",
        severity="hint" if window.grace_ms is None else "warning",  # who says a grace waits for windows to close
    )


def _tables(node: Node) -> list[str]:
    return [n.spec.source for n in walk_nodes(node) if isinstance(n.spec, Scan) and n.spec.kind == "table"]


def _timeless(query: QueryPlan, table: str, span: Span) -> Diagnostic:
    return Diagnostic(
        TIMELESS_TABLE,
        f"{query.id} joins rows of {table} as of the times of its records",
        span,
        f"no column of {table} is its time",
        why=f"an event finds the rows of {table} that were there before it: those of records that are written now are not found by events of "
        "yesterday",
        help=f"`flowql topic import` without --timestamp lets rows of a table count from the beginning; or say  TIMESTAMP = 'COLUMN'  in {table}",
        severity="hint",
    )

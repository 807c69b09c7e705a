"""Warnings and hints about a query that compiled and may not do what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flowql.compiler.analyze.relations.closing import has_watermark
from flowql.compiler.analyze.relations.time_windows import is_time_window
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, CreateAs, CreateSource, Func, Lit, Statement
from flowql.compiler.dialect.standard.statement_tree import CreateView
from flowql.compiler.dialect.standard.tree import TableFunction
from flowql.compiler.dialect.walks import walk
from flowql.compiler.plan.logical import Aggregate, Join, Node, Scan, Window, walk_nodes
from flowql.compiler.plan.topology import QueryPlan, SourceDef
from flowql.compiler.plan.watermarks import AppendOnly

LOST_WINDOWS, TIMELESS_TABLE, KEPT_WINDOWS, DAY_BEHIND, NEVER_TRUE = "FQ2120", "FQ2121", "FQ2091", "FQ2114", "FQ2123"
_WITHOUT_EFFECT = {
    "REPLICAS": "set  replication  of the target in flowql.yaml, for all topics",
    "RETENTION_MS": "flowql topic retention TOPIC '7 days'",
    "CLEANUP_POLICY": "flowql topic retention TOPIC --compact",
}
_DAY_MS = 86_400_000


def hints_about(
    query: QueryPlan | None, sources: Mapping[str, SourceDef], statement: Statement, span: Span
) -> Iterator[Diagnostic]:
    """Yields hints about the query, each once, then hints about the statement. A statement that makes no query passes None as `query`."""
    if query is not None:
        yield from _of_query(query, sources, statement, span)
    given = statement.properties if isinstance(statement, CreateSource | CreateAs) else ()
    for p in given:
        if p.name in _WITHOUT_EFFECT:  # properties of ksqlDB's topics
            title, help = f"{p.name} has no effect", _WITHOUT_EFFECT[p.name]
            yield Diagnostic("FQ2122", title, p.span, "not used", help=help, severity="warning")


def _of_query(
    query: QueryPlan, sources: Mapping[str, SourceDef], statement: Statement, span: Span
) -> Iterator[Diagnostic]:
    said: set[str] = set()
    nodes = walk_nodes(query.logical)
    if isinstance(statement, CreateView):
        written = walk(statement.tree)
        yield from _never_true(written)
        yield from _kept_windows(query, nodes, written)
        yield from _a_day_behind(query, nodes, sources, statement, span)
    for node in nodes:
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


def _never_true(written: Sequence[Ast]) -> Iterator[Diagnostic]:
    """Comparisons with a NULL that is written."""
    for n in written:
        if (
            isinstance(n, Func)
            and n.name in ("eq", "ne")
            and any(isinstance(a, Lit) and a.kind == "null" for a in n.args)
        ):
            test = "IS NULL" if n.name == "eq" else "IS NOT NULL"
            yield Diagnostic(
                NEVER_TRUE,
                "a comparison with NULL is never true",
                n.span,
                "NULL for every row",
                help=f"write  {test}",
                severity="warning",
            )


def _kept_windows(query: QueryPlan, nodes: Sequence[Node], written: Sequence[Ast]) -> Iterator[Diagnostic]:
    """The first time window of a view over streams, of which none says when windows are over."""
    windows = (n for n in written if isinstance(n, TableFunction) and is_time_window(n))
    streams = all(n.spec.kind == "stream" for n in nodes if isinstance(n.spec, Scan))
    if streams and not has_watermark(query.logical) and (window := next(windows, None)) is not None:
        yield Diagnostic(
            KEPT_WINDOWS,
            f"{query.id} keeps all its windows",
            window.span,
            "no watermark says when a window is over",
            why="over a stream without a watermark no record is late, so each window may still get one",
            help="declare WATERMARK FOR the time in CREATE STREAM, or write  WITH (RETENTION = '7 DAYS')  after the name of the view: it drops"
            " the state of windows that are over, and keeps their rows",
            severity="hint",
        )


def _a_day_behind(
    query: QueryPlan, nodes: Sequence[Node], sources: Mapping[str, SourceDef], statement: CreateView, span: Span
) -> Iterator[Diagnostic]:
    """A join that has a RETENTION though none is written."""
    if any(p.name == "RETENTION" for p in statement.properties):
        return
    marked = (n for n in nodes if isinstance(n.spec, AppendOnly) and n.spec.watermark is not None)
    read = (n.inputs[0].spec.source for n in marked if isinstance(n.inputs[0].spec, Scan))
    if any((found := sources.get(name)) is not None and found.watermark is None for name in read):
        yield Diagnostic(
            DAY_BEHIND,
            f"{query.id} drops records that are more than a day behind",
            span,
            "a join of streams without a watermark",
            why="rows are dropped when no record can meet them, and without a watermark any record might",
            help="say how far behind records may be, with  WITH (RETENTION = '1 DAY')  after the name of the view",
            severity="hint",
        )


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
        f"{query.id} loses windows when its input pauses",
        span,
        "EMIT FINAL, and windows are kept for their size and grace only",
        why="the record that closes a window emits its row. If that record moves stream time past the next window as well, the window "
        "has been dropped by then and emits nothing. ksqlDB does the same",
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

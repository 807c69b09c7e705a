"""GAP_FILL in FROM: the rows of a relation, and rows for the times that are missing between two of them.

    GAP_FILL(relation, time, INTERVAL '1' MINUTE [, LOCF(a)] [, INTERPOLATE(b)] [, KEEPNULL(c)] [, PARTITION_BY(k, ...)])

Behind each row stands one for every step of the interval before the next row of its partition. There LOCF has the value of the row in front of the
gap, INTERPOLATE the values in equal steps up to the next row's, all other columns but the time and those of PARTITION_BY are NULL. The query
is made with LEAD and generate_series, so a change recomputes the gaps around it. The function is RisingWave's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.relation import Rel, RelColumn
from flowql.compiler.catalog.names import correction, listing
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Name
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import duration_ms
from flowql.compiler.dialect.standard.parser import parse_fragment
from flowql.compiler.dialect.standard.queries import parse_query
from flowql.compiler.dialect.standard.refuse import fail
from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.plan.types import Kind

N = TypeVar("N", bound=t.Node)
_EXAMPLE = "write  GAP_FILL(t, ts, INTERVAL '1' MINUTE, LOCF(a), PARTITION_BY(k))"
_FILLS = ("locf", "interpolate", "keepnull", "partition_by")


def is_gap_fill(function: t.TableFunction) -> bool:
    return function.call.name == ("gap_fill",)


def gap_filled(function: t.TableFunction, table: t.Table, rel: Rel) -> t.Query:
    """The query that GAP_FILL stands for. rel: the relation of `table`."""
    call = function.call
    if len(call.args) < 3:
        fail("FQ1009", "GAP_FILL takes a relation, its time column and an interval", call.span, help=_EXAMPLE)
    _, time, step, *fills = call.args
    known = {c.name: c for c in rel.shown}
    at = _column(time, known)
    if at.type.kind is not Kind.TIMESTAMP:
        raise mistake(
            "FQ2005", f"the time column of GAP_FILL is {at.type}, not TIMESTAMP", time.span, "not a time", help=_EXAMPLE
        )
    if not isinstance(step, t.Interval):
        fail("FQ1001", "expected the step as an interval", step.span, help=_EXAMPLE)
    ms = duration_ms(step)
    if ms <= 0:
        fail("FQ1009", "the step of GAP_FILL must be longer than zero", step.span, help=_EXAMPLE)
    by = {n: _fill(f, known) for f in fills for n in _names(f, known)}
    made = _query(table, rel.shown, at.name, ms, by)
    return _placed(made, call.span)


def _column(node: t.Expr, known: dict[str, RelColumn]) -> RelColumn:
    if not isinstance(node, Name) or len(node.parts) > 1:
        fail("FQ1001", "expected the name of a column", node.span, help=_EXAMPLE)
    name = node.parts[0]
    if name not in known:
        title, edit = f"column '{name}' of GAP_FILL is not in its relation", correction(node.span, name, known)
        raise mistake("FQ2002", title, node.span, "unknown column", help=f"columns are {listing(known)}", edit=edit)
    return known[name]


def _names(node: t.Expr, known: dict[str, RelColumn]) -> list[str]:
    """The columns that LOCF(a), INTERPOLATE(a), KEEPNULL(a) or PARTITION_BY(a, b) names."""
    if not isinstance(node, t.Call) or node.name[-1] not in _FILLS or not node.args:
        fail("FQ1001", "expected LOCF, INTERPOLATE, KEEPNULL or PARTITION_BY", node.span, help=_EXAMPLE)
    return [_column(a, known).name for a in node.args]


def _fill(node: t.Expr, known: dict[str, RelColumn]) -> str:
    """How a call fills its columns."""
    assert isinstance(node, t.Call)
    name = node.name[-1]
    for column in (_column(a, known) for a in node.args):
        if name == "interpolate" and not column.type.is_numeric:
            title = f"INTERPOLATE takes numbers, and {column.name} is {column.type}"
            raise mistake("FQ2005", title, node.span, "not a number", help=f"write  LOCF({column.name})")
    return name


def _query(table: t.Table, columns: tuple[RelColumn, ...], time: str, ms: int, by: dict[str, str]) -> t.Query:
    """In `r` are the rows with what follows each, in `g` the times from a row's own to that of the next."""
    step = f"INTERVAL '{ms / 1000} seconds'"
    keys = ", ".join(quoted(c.name) for c in columns if by.get(c.name) == "partition_by")
    over = f"OVER ({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {quoted(time)})"
    moved = [c.name for c in columns if by.get(c.name) == "interpolate"]
    following = [f"LEAD({quoted(n)}) {over} AS {_next(n)}" for n in dict.fromkeys((time, *moved))]
    own, until = f"r.{quoted(time)}", f"r.{_next(time)}"
    steps = f"CEIL(EXTRACT(EPOCH FROM {until} - {own}) / {ms / 1000})"
    items = [_item(c, time, by.get(c.name, "keepnull"), steps) for c in columns]
    relation = ".".join(map(quoted, table.name))
    return parse_fragment(
        SourceText(
            "GAP_FILL",
            f"SELECT {', '.join(items)} FROM (SELECT *, {', '.join(following)} FROM {relation}) AS r "
            f"LEFT JOIN generate_series({own}, COALESCE({until}, {own}), {step}) WITH ORDINALITY AS g (at, n) ON TRUE "
            f"WHERE g.at IS NULL OR g.n = 1 OR g.at < {until}",
        ),
        parse_query,
    )


def _item(c: RelColumn, time: str, fill: str, steps: str) -> str:
    own = f"r.{quoted(c.name)}"
    if c.name == time:
        return f"COALESCE(g.at, {own}) AS {quoted(c.name)}"
    if fill in ("partition_by", "locf"):
        return f"{own} AS {quoted(c.name)}"
    made = ""
    if fill == "interpolate":
        # Whole numbers go up in whole steps.
        whole = "BIGINT" if c.type.kind in (Kind.INT, Kind.BIGINT) else "DOUBLE PRECISION"
        part = (
            f"(r.{_next(c.name)} - {own}) / CAST({steps} AS {whole if c.type.kind is not Kind.DECIMAL else 'BIGINT'})"
        )
        of = f"NUMERIC({c.type.precision}, {c.type.scale})" if c.type.kind is Kind.DECIMAL else _TYPES[c.type.kind]
        made = f" ELSE CAST({own} + (g.n - 1) * ({part}) AS {of})"
    return f"CASE WHEN g.at IS NULL OR g.n = 1 THEN {own}{made} END AS {quoted(c.name)}"


_TYPES = {Kind.INT: "INT", Kind.BIGINT: "BIGINT", Kind.DOUBLE: "DOUBLE PRECISION"}


def _next(name: str) -> str:
    return quoted(f"next {name}")


def _placed(node: N, span: Span) -> N:
    """The tree with the place of the call in that of its own text."""
    made = walks.with_children(node, lambda child: _placed(child, span))
    return replace(made, span=span)

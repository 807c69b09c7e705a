"""RETENTION of a view over streams without a watermark: how far a record may be behind the latest one of its partition.

before: GroupAggregate(Project(window_start := f(ts), AppendOnly(Scan)))
after:  GroupAggregate(Project(window_start := f(ts), AppendOnly(Scan, ts - RETENTION)))

The time is the column that windows are made of, or that the condition of a join bounds. A record that is further behind is late: it is left
out and counted, as by the watermark of a source (`flowql.compiler.plan.watermarks`), and state that only such records could meet is dropped.
A join whose condition bounds the times of both sides has a RETENTION of `JOINED_MS` if none is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relation import sources_read
from flowql.compiler.analyze.relations.records import is_stream
from flowql.compiler.analyze.relations.relation import WindowBound
from flowql.compiler.analyze.relations.time_bounds import bounds_of, time_passed
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Node, Project
from flowql.compiler.plan.types import Kind
from flowql.compiler.plan.watermarks import AppendOnly, Watermark

JOINED_MS = 86_400_000  # as ksqlDB has it where no GRACE PERIOD is given
PAIRING = ("inner", "left", "right", "full")  # joins that give pairs


# From the root of the plan, the number of an input at each node: equal nodes may stand in several places.
Path = tuple[int, ...]


class _Timed(NamedTuple):
    """The rows of a stream without a watermark. path: where the plan has them. column: their time."""

    path: Path
    rows: Node
    column: str


@dataclass(frozen=True, slots=True)
class Retention:
    """RETENTION of a view. ms: None if none is given. span: of its value."""

    ms: int | None = None
    span: Span = NOWHERE


def with_retention(node: Node, windows: Mapping[str, WindowBound], retention: Retention, catalog: Catalog) -> Node:
    """The plan where the streams behind windows and bounded joins have watermarks. Raises CompileError.

    If no RETENTION is given, joins of streams have one: those over views have not, where records of several partitions come in any order.
    """
    found = list(_of_joins(node))
    if retention.ms is None:
        found = [t for t in found if _is_source(t.rows, catalog)]
    else:
        found += [t for w in windows.values() for t in _of_column(node, w.column)]
        if not found:
            raise mistake(
                "FQ2113",
                "RETENTION of a view that keeps nothing by the time of a stream",
                retention.span,
                "no time column decides what is kept",
                why="it is for windows and joins over streams that have no watermark: their state is dropped by the times of records",
                help="leave it out, or use TUMBLE, HOP or CUMULATE over a TIMESTAMP column or ROWTIME of a stream",
            )
    columns = {t.path: t.column for t in reversed(found)}
    return _marked(node, columns, JOINED_MS if retention.ms is None else retention.ms)


def _marked(node: Node, columns: Mapping[Path, str], delay: int, path: Path = ()) -> Node:
    if not columns:
        return node
    if path in columns:
        return replace(node, spec=AppendOnly(Watermark(columns[path], delay)))
    below = tuple(_marked(n, columns, delay, (*path, i)) for i, n in enumerate(node.inputs))
    return node if all(a is b for a, b in zip(below, node.inputs, strict=True)) else replace(node, inputs=below)


def _placed(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """All nodes of the plan, inputs first, with their places."""
    for i, below in enumerate(node.inputs):
        yield from _placed(below, (*path, i))
    yield path, node


def _is_source(rows: Node, catalog: Catalog) -> bool:
    """Whether other programs write the stream, each key in the order of its records."""
    (name,) = sources_read(rows)
    source = catalog.sources.get(name)
    return source is not None and source.query is None


def _of_column(node: Node, column: str) -> Iterator[_Timed]:
    """Where a column comes from that a projection of the plan gives: names of columns are unique in it."""
    for path, n in _placed(node):
        if isinstance(n.spec, Project) and column in n.schema.names:
            yield from _origins(path, n, column)


def _origins(path: Path, node: Node, column: str) -> Iterator[_Timed]:
    match node.spec:
        case AppendOnly(watermark=None) if is_stream(node) and _is_time(node, column):
            yield _Timed(path, node, column)
        case Project(columns):
            of = next((time_passed(c.expr) for c in columns if c.name == column), None)
            if of is not None:
                yield from _origins((*path, 0), node.inputs[0], of)
        case _:
            for i, below in enumerate(node.inputs):
                if column in below.schema.names:
                    yield from _origins((*path, i), below, column)


def _is_time(node: Node, column: str) -> bool:
    field = node.schema.get(column)
    return column == ROWTIME if field is None else field.type.kind is Kind.TIMESTAMP


def _of_joins(node: Node) -> Iterator[_Timed]:
    """The times of streams that the conditions of joins bound by each other from both sides."""
    for path, join in _placed(node):
        if not (isinstance(join.spec, EquiJoin) and join.spec.kind in PAIRING and all(map(is_stream, join.inputs))):
            continue
        left, right = (i.schema.names for i in join.inputs)
        above = {(b.column, b.other) for b in bounds_of(join.spec, left, right)}
        below = {(b.other, b.column) for b in bounds_of(join.spec, right, left)}
        for pair in sorted(above & below):
            sides = enumerate(zip(join.inputs, pair, strict=True))
            made = [list(_origins((*path, i), side, column)) for i, (side, column) in sides]
            if all(made):
                yield from (t for side in made for t in side)
                break

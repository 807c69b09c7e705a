"""How the rows of a view are found by key: the key of a view's topic is hidden, but a visible column often has the same values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowql.compiler.plan.changes import Consolidate, EquiJoin
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import Filter, Materialise, Project, Scan, Sink
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import (
    ExchangeSink,
    ExchangeSource,
    Operator,
    Plan,
    QueryPlan,
    SourceDef,
    SubTopology,
)
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.query.of_plan import OfPlan
from flowql.query.views import ViewMaker, sink_view

Origin = tuple[object, ...]  # columns of one origin have the same value in each row
_PASSING = (AppendOnly, Consolidate, ExchangeSink, Filter, Materialise, Sink)
_DEPTH_MAX = 64  # of operators and views above each other


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """key: that of the topic. parts: by the folded names of visible columns, the part of the key that has the same values. view: the store in which the
    query of a view keeps its rows.
    """

    key: tuple[Field | None, ...]
    parts: Mapping[str, Field]
    view: ViewMaker | None = None


def keyed_rows(plan: Plan, source: SourceDef) -> KeyedRows:
    """How rows are found whose columns are known."""
    known = _known(plan)
    if source.name not in known:
        known[source.name] = _keyed(plan, source)
    return known[source.name]


_known = OfPlan[dict[str, KeyedRows]](lambda _: {})


def _keyed(plan: Plan, source: SourceDef) -> KeyedRows:
    query = _writer(plan, source)
    view = sink_view(query) if query is not None else None
    key = tuple(f for f in source.schema if f.role in ("key", "window"))
    parts = {f.name.casefold(): f for f in key if f.name in source.visible}
    if len(parts) < len(key):
        origins = _of_relation(plan, source, _DEPTH_MAX)
        hidden = {origins[f.name]: f for f in key if f.name in origins}
        for f in source.schema:
            part = hidden.get(origins.get(f.name, ()))
            if part is not None and f.name in source.visible and f.type == part.type:
                parts.setdefault(f.name.casefold(), part)
    return KeyedRows(key, parts, view)


def _writer(plan: Plan, source: SourceDef) -> QueryPlan | None:
    """The one query that writes a relation."""
    writers = plan.writers.get(source.topic, ())
    return writers[0] if len(writers) == 1 and source.query is not None else None


def _of_relation(plan: Plan, source: SourceDef, depth: int) -> Mapping[str, Origin]:
    query = _writer(plan, source)
    if query is None or depth <= 0:
        return {f.name: (source.name, f.name) for f in source.schema}
    for sub in query.subtopologies:
        for op in sub.operators:
            if isinstance(op.spec, Sink):
                return _of_operator(plan, query, sub, op, depth)
    return {}


def _of_operator(plan: Plan, query: QueryPlan, sub: SubTopology, op: Operator, depth: int) -> Mapping[str, Origin]:
    """The origins of the columns that an operator gives."""
    own: dict[str, Origin] = {f.name: (query.id, op.id, f.name) for f in op.schema}
    spec = op.spec
    if depth <= 0:
        return own
    if isinstance(spec, ExchangeSource):
        for other in query.subtopologies:
            for sink in other.operators:
                if isinstance(sink.spec, ExchangeSink) and sink.spec.topic == spec.topic:
                    return _of_operator(plan, query, other, sink, depth - 1)
        return own
    if isinstance(spec, Scan):
        read = next((s for s in plan.sources if s.name == spec.source), None)
        below = _of_relation(plan, read, depth - 1) if read is not None else {}
        return {name: below.get(name, made) for name, made in own.items()}
    inputs = [next(o for o in sub.operators if o.id == i) for i in op.inputs]
    origins = [_of_operator(plan, query, sub, i, depth - 1) for i in inputs]
    if isinstance(spec, EquiJoin):
        sides = {name: (query.id, op.id, n, o) for n, of in enumerate(origins) for name, o in of.items()}
        return {name: sides.get(name, made) for name, made in own.items()}
    if isinstance(spec, Project):
        return {
            c.name: origins[0].get(c.expr.name, own[c.name]) if isinstance(c.expr, Column) else own[c.name]
            for c in spec.columns
            if c.name in own
        }
    if isinstance(spec, _PASSING) and len(origins) == 1:
        return {name: origins[0].get(name, made) for name, made in own.items()}
    return own

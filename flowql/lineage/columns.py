"""Which columns a column is computed from, and what is computed from it.

A column *comes from* those whose values it is made of, through expressions, aggregates and keys. What merely decides whether a row
is there - a filter, the condition of a join - is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from flowql.compiler.plan.asynchronous import AsyncCall, AsyncMap
from flowql.compiler.plan.changes import GroupAggregate, GroupCall, Over, SetOperation, WindowCall
from flowql.compiler.plan.expr import Expr, columns_of
from flowql.compiler.plan.logical import Aggregate, Explode, Join, Node, Project, Rekey, Scan
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.topology import Plan

Place = tuple[str, str]  # relation, column
Origins = Mapping[str, frozenset[Place]]  # column of a node -> where its values come from
NOTHING: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnGraph:
    """comes_from: of each column of a result, the columns of what its queries read that it is made of."""

    comes_from: Mapping[Place, frozenset[Place]]

    def upstream(self, place: Place) -> dict[Place, frozenset[Place]]:
        """The column and all before it, each with what it comes from directly."""
        return self._reached(place, lambda p: self.comes_from.get(p, NOTHING))

    def downstream(self, place: Place) -> dict[Place, frozenset[Place]]:
        """The column and all after it, each with what is made of it directly."""
        after: dict[Place, set[Place]] = {}
        for made, sources in self.comes_from.items():
            for source in sources:
                after.setdefault(source, set()).add(made)
        return self._reached(place, lambda p: frozenset(after.get(p, ())))

    @staticmethod
    def _reached(place: Place, step: Callable[[Place], frozenset[Place]]) -> dict[Place, frozenset[Place]]:
        found: dict[Place, frozenset[Place]] = {}
        waiting = [place]
        while waiting:
            current = waiting.pop()
            if current not in found:
                found[current] = step(current)
                waiting += sorted(found[current])
        return found


def of_plan(plan: Plan) -> ColumnGraph:
    """The columns of all results that can be seen. Several queries may write one: then a column comes from all of theirs."""
    found: dict[Place, frozenset[Place]] = {}
    for query in plan.queries:
        result, origins = plan.source(query.sink), _origins(query.logical)
        for column in result.visible if result is not None else origins:
            place = (query.sink, column)
            found[place] = found.get(place, NOTHING) | origins.get(column, NOTHING)
    return ColumnGraph(found)


def _origins(node: Node) -> Origins:
    """Columns a node does not make itself come from those of the same name below."""
    if isinstance(node.spec, Scan):
        return {f.name: frozenset({(node.spec.source, f.name)}) for f in node.schema}
    below = [_origins(i) for i in node.inputs]
    made = _made(node, below)
    return {f.name: made.get(f.name, _named(below, f.name)) for f in node.schema}


def _made(node: Node, below: list[Origins]) -> Origins:
    """The columns a node computes."""
    of = partial(_of, below)
    match node.spec:
        case Project(columns):
            return {c.name: of([c.expr]) for c in columns}
        case Rekey(keys):
            return {k.name: of([k.expr]) for k in keys}
        case Explode(functions):
            return {f.name: of([f.expr]) for f in functions}
        case Aggregate(aggregates):
            return {a.name: of(a.args) for a in aggregates}
        case GroupAggregate(calls=calls, sessions=sessions):
            read = (*node.spec.partition, *(() if sessions is None else 2 * (sessions.time,)))
            grouped = {f.name: _named(below, k) for f, k in zip(node.schema.key, read, strict=True)}
            return {**grouped, **_results(below, calls)}
        case Over(calls=calls) | AsyncMap(calls):
            return _results(below, calls)
        case SetOperation():
            return _matched(node, below)
        case Join(key_name=key):
            sides = [i.schema.fields[0].name for i in node.inputs if i.schema.fields]
            return {key: _all(_named(below, side) for side in sides)}
        case Process():  # what code makes of a row is not known
            every = _all(places for b in below for places in b.values())
            return dict.fromkeys(node.schema.names, every)
    return {}


def _results(below: list[Origins], calls: Iterable[GroupCall | WindowCall | AsyncCall]) -> Origins:
    return {c.name: _all(_named(below, a) for a in c.args) for c in calls}


def _matched(node: Node, below: list[Origins]) -> Origins:
    """Columns of a set operation, by position. Rows of EXCEPT are those of its first input."""
    spec = node.spec
    inputs = node.inputs[:1] if isinstance(spec, SetOperation) and spec.kind == "except" else node.inputs
    values = [[b[f.name] for f in i.schema.value] for i, b in zip(inputs, below, strict=False)]
    origins = [_all(places) for places in zip(*values, strict=True)]
    key, value = ([f.name for f in fields] for fields in (node.schema.key, node.schema.value))
    return dict(zip(key, origins, strict=False)) | dict(zip(value, origins, strict=True))


def _of(below: list[Origins], exprs: Iterable[Expr]) -> frozenset[Place]:
    return _all(_named(below, c) for e in exprs for c in columns_of(e))


def _named(below: list[Origins], name: str) -> frozenset[Place]:
    return _all(b.get(name, NOTHING) for b in below)


def _all(parts: Iterable[frozenset[Place]]) -> frozenset[Place]:
    return frozenset(place for part in parts for place in part)

"""The graph of a plan: streams and tables, and the queries between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowql.compiler.functions.user import plain_name
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, Over, SetOperation, TemporalJoin, TopN, VersionJoin
from flowql.compiler.plan.explain import duration
from flowql.compiler.plan.logical import Aggregate, Explode, Filter, Join, Node, Rekey, Scan, Window, walk_nodes
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import NO_ROWS, Plan, QueryPlan, SourceDef
from flowql.compiler.plan.watermarks import EmitClosed


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or table. columns: (name, type). declared: over a topic, not the result of a query."""

    name: str
    kind: str
    topic: str
    columns: tuple[tuple[str, str], ...]
    declared: bool


@dataclass(frozen=True, slots=True)
class Flow:
    """A query: what it reads, what it writes, and in a few words what it does."""

    query: str
    reads: tuple[str, ...]
    writes: str
    priority: str
    does: tuple[str, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Graph:
    """relations: each before what is made of it, where that is possible (an INSERT INTO may close a circle)."""

    relations: tuple[Relation, ...]
    flows: tuple[Flow, ...]

    def relation(self, name: str) -> Relation | None:
        return next((r for r in self.relations if r.name == name), None)

    def upstream(self, names: Iterable[str]) -> frozenset[str]:
        """These relations and all upstream of them."""
        return self._reached(names, {(f.writes, r) for f in self.flows for r in f.reads})

    def downstream(self, names: Iterable[str]) -> frozenset[str]:
        """These relations and all downstream of them."""
        return self._reached(names, {(r, f.writes) for f in self.flows for r in f.reads})

    def around(self, names: Iterable[str]) -> Graph:
        """The inputs and dependents of these relations, with the other inputs of the dependents."""
        names = list(names)
        on_the_way = self.upstream(names) | self.downstream(names)
        flows = tuple(f for f in self.flows if f.writes in on_the_way)
        shown = on_the_way.union(*(f.reads for f in flows))
        return Graph(tuple(r for r in self.relations if r.name in shown), flows)

    @staticmethod
    def _reached(names: Iterable[str], steps: set[tuple[str, str]]) -> frozenset[str]:
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [after for before, after in steps if before == name]
        return frozenset(found)


def of_plan(plan: Plan) -> Graph:
    """All relations and queries of a plan."""
    return Graph(tuple(map(_relation, plan.listed)), tuple(map(_flow, plan.queries)))


def _relation(source: SourceDef) -> Relation:
    columns = tuple((f.name, str(f.type)) for f in source.schema)
    return Relation(source.name, source.kind, source.topic, columns, source.query is None)


def _flow(query: QueryPlan) -> Flow:
    nodes = list(walk_nodes(query.logical))
    reads = dict.fromkeys(n.spec.source for n in nodes if isinstance(n.spec, Scan) and n.spec.source != NO_ROWS.name)
    does = dict.fromkeys(words for n in nodes if (words := _words(n)))
    return Flow(query.id, tuple(reads), query.sink, query.priority, tuple(does), query.sql.strip())


def _words(node: Node) -> str:
    match node.spec:
        case Filter():
            return "filter"
        case Join(shape="foreign-key", kind=kind):
            return f"{kind} foreign-key join"
        case Join(kind=kind) | EquiJoin(kind=kind):
            return f"{kind} join"
        case TemporalJoin(kind=kind) | VersionJoin(kind=kind):
            return f"{kind} temporal join"
        case SetOperation(kind=kind):
            return kind
        case TopN():
            return "top rows"
        case Over():
            return "window functions"
        case TemporalFilter():
            return "filter by the clock"
        case EmitClosed():
            return "closed windows"
        case Explode():
            return "explode"
        case AsyncMap(calls):
            return f"calls of {', '.join(dict.fromkeys(plain_name(c.function) for c in calls))}"
        case Process(topology=topology):
            return f"processors of {topology.partition('@')[0]}"
        case Aggregate(window=window) if window is not None:
            return f"aggregate, {_window(window)}"
        case GroupAggregate(sessions=sessions) if sessions is not None:
            return f"aggregate, session {duration(sessions.gap)}"
        case GroupAggregate(final=True) | Aggregate(emit_final=True):
            return "aggregate, closed windows"
        case Aggregate() | GroupAggregate():
            return "aggregate"
        case Rekey():
            return "repartition"
    return ""


def _window(window: Window) -> str:
    size = duration(window.size_ms)
    if window.kind in ("hopping", "cumulating"):
        return f"{window.kind} {size} every {duration(window.advance_ms)}"
    return f"{window.kind} {size}"


# --- The graph as Mermaid text, for pages that draw it (a README, a wiki) ---


def mermaid(graph: Graph) -> str:
    """A flowchart: sources as cylinders, results as boxes with what their query does."""
    ids = {r.name: f"r{i}" for i, r in enumerate(graph.relations)}
    lines = ["flowchart LR"]
    for relation in graph.relations:
        does = [w for f in graph.flows if f.writes == relation.name for w in f.does]
        label = "<br/>".join(
            [_text(relation.name), f"<small>{', '.join([relation.kind, *dict.fromkeys(does)])}</small>"]
        )
        shape = ("[(", ")]") if relation.declared else ("[", "]")
        lines.append(f'  {ids[relation.name]}{shape[0]}"{label}"{shape[1]}')
    for flow in graph.flows:
        lines += [f"  {ids[read]} --> {ids[flow.writes]}" for read in flow.reads]
    return "\n".join(lines) + "\n"


def _text(name: str) -> str:
    return name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")

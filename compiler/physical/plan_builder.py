"""The state of a compilation: catalogue and queries so far, and what each bound statement does to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from flowql.compiler.analyze.assertions import Assertion, SchemaAssertion, TopicAssertion
from flowql.compiler.analyze.async_calls import place_async_calls
from flowql.compiler.analyze.dependencies import place_of
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.options import NO_OPTIONS, QueryOptions
from flowql.compiler.analyze.statements import (
    Bound,
    BoundChange,
    BoundDrop,
    BoundQuery,
    BoundRows,
    BoundSource,
    BoundType,
)
from flowql.compiler.catalog.catalog import (
    Catalog,
    add_source,
    add_type,
    drop_source,
    drop_type,
    forget_query,
    no_rows,
    record_query,
)
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import QueryControl, SetProperty
from flowql.compiler.optimize.rules import optimise
from flowql.compiler.physical.definition import definition_of, is_same
from flowql.compiler.physical.planner import Topology, plan_query
from flowql.compiler.physical.unrepeatable import checked_unrepeatable
from flowql.compiler.plan.logical import Node, Scan, SchemaRef, walk_nodes
from flowql.compiler.plan.partitioners import placed_differently
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import NO_ROWS, InsertValues, Plan, QueryPlan, SourceDef


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """How a query's plan was optimised: the plan before, and (rule, plan after) for each rule that changed it."""

    unoptimised: Node
    steps: tuple[tuple[str, Node], ...] = ()


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The effect of one statement: `create`, `query`, `insert`, `change`, `drop`, `type`, `set`, `assert`, `terminate`, `pause`, `resume` or `nothing` (IF
    EXISTS and its like).

    query: the persistent query it made or replaced. rows: the values of INSERT VALUES, one for each row.
    change: of a local table. ended: queries it removed.
    """

    action: str
    name: str = ""
    query: QueryPlan | None = None
    ended: tuple[str, ...] = ()
    rows: tuple[InsertValues, ...] = ()
    change: TableChange | None = None


class PlanBuilder:
    """Changes with every applied statement; a refused one leaves it as it was."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        overrides: Mapping[str, QueryOptions],
        previous: Plan | None,
        topic_partitions: Mapping[str, int],
    ) -> None:
        self.catalog = catalog
        self.trace: dict[str, RuleTrace] = {}
        self._overrides, self._previous, self._partitions = overrides, previous, topic_partitions
        before = previous or Plan()
        self._queries_before = {q.id: q for q in before.queries}
        self._sources_before = {s.name: s for s in before.sources}
        self._results_before = {s.topic for s in before.sources if s.query is not None}  # topics that queries write
        self._read: dict[str, frozenset[str]] = {}  # the sources that each query reads, by its id
        self._queries: dict[str, QueryPlan] = {}
        self._resized: dict[
            str, int | None
        ] = {}  # sources whose topics get another number of partitions; None: not known
        self._inserts: list[InsertValues] = []
        self._equal = Counter[InsertValues]()  # how many of each
        self._changes: list[TableChange] = []
        self._paused: dict[str, None] = {}
        self.assertions: list[Assertion] = []

    def plan(self, properties: Mapping[str, str]) -> Plan:
        return Plan(
            sources=tuple(s for s in self.catalog.sources.values() if not s.is_hidden or self._is_read(s.name)),
            queries=tuple(self._queries.values()),
            inserts=tuple(self._inserts),
            properties=tuple(sorted(properties.items())),
            paused=tuple(q for q in self._queries if q in self._paused),
            schemas=self._schemas(),
            changes=tuple(self._changes),
            prefix=self.catalog.naming.prefix,
        )

    def _is_read(self, source: str) -> bool:
        return any(source in self._read[q] for q in self._queries)

    def _schemas(self) -> tuple[SchemaRef, ...]:
        """Those of sources, behind those of the plan that runs: its records stay."""
        before = self._previous.schemas if self._previous is not None else ()
        formats = [f for s in self.catalog.sources.values() for f in (s.key_format, s.value_format)]
        own = [f.schema for f in formats if f.schema is not None and f.schema.id and not f.schema.registry]
        return tuple(dict.fromkeys((*before, *own)))

    def apply(self, bound: Bound, options: QueryOptions) -> StatementResult:
        """Carry out a bound statement. `options` beat those of the statement. Raises CompileError."""
        match bound:
            case BoundSource():
                return self._source(bound)
            case BoundQuery():
                return self._query(bound, options)
            case BoundRows():
                self._insert(bound.inserts)
                return StatementResult("insert", bound.inserts[0].target, rows=bound.inserts)
            case BoundChange():
                self._changes.append(bound.change)
                return StatementResult("change", bound.change.target, change=bound.change)
            case BoundDrop():
                return self._drop(bound)
            case BoundType():
                self.catalog = add_type(
                    self.catalog,
                    bound.name,
                    bound.type,
                    bound.written,
                    if_not_exists=bound.if_not_exists,
                    span=bound.span,
                )
                return StatementResult("type", bound.name)
            case SetProperty():
                return StatementResult("set", bound.name)
            case QueryControl():
                return self._control(bound)
            case TopicAssertion() | SchemaAssertion():
                self.assertions.append(bound)
                return StatementResult("assert")

    def _source(self, bound: BoundSource) -> StatementResult:
        name = bound.source.name
        if bound.if_not_exists and name in self.catalog.sources:
            return StatementResult("nothing", name)
        self.catalog = add_source(self.catalog, bound.source, or_replace=bound.or_replace, span=bound.span)
        return StatementResult("create", name)

    def _query(self, bound: BoundQuery, options: QueryOptions) -> StatementResult:
        if bound.creates and bound.if_not_exists and bound.sink.name in self.catalog.sources:
            return StatementResult("nothing", bound.sink.name)
        merged = _merged(bound.options, options)
        query_id = merged.query_id or self._default_id(bound)
        for key in (bound.sink.name, query_id):
            merged = _merged(merged, self._overrides.get(key, NO_OPTIONS))
        if query_id in self._queries and not bound.or_replace:
            raise mistake("FQ2050", f"query {query_id} exists already", bound.span, "the id is taken")
        catalog = self.catalog
        if bound.creates:
            sink = replace(bound.sink, query=query_id)
            catalog = add_source(catalog, sink, or_replace=bound.or_replace, span=bound.span)
        elif bound.adopts:
            adopted = replace(bound.sink, query=query_id)
            catalog = replace(catalog, sources={**catalog.sources, adopted.name: adopted})
        if NO_ROWS.name in bound.reads:
            catalog = replace(catalog, sources={NO_ROWS.name: no_rows(catalog), **catalog.sources})
        query = self._compile(bound, query_id, merged, catalog)
        self._read[query_id] = frozenset(n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan))
        self.catalog = record_query(catalog, query_id, bound.reads, bound.sink.name)
        self._queries[query_id] = query
        return StatementResult("query", bound.sink.name, query)

    def _default_id(self, bound: BoundQuery) -> str:
        if bound.creates:
            return f"C{bound.sink.kind[0].upper()}AS_{bound.sink.name}"
        n = 1
        while f"INSERT_{bound.sink.name}_{n}" in self._queries:
            n += 1
        return f"INSERT_{bound.sink.name}_{n}"

    def _compile(self, bound: BoundQuery, query_id: str, options: QueryOptions, catalog: Catalog) -> QueryPlan:
        placed = place_async_calls(bound.node)
        steps = optimise(placed)
        logical = steps[-1][1] if steps else placed
        unrepeatable = checked_unrepeatable(logical)
        kept = self._unchanged(query_id, bound.node, logical, catalog)
        partitions = self._source_partitions(catalog)
        if kept is not None and not any(name in self._resized for name in bound.reads):
            logical, topology = kept.logical, Topology(kept.subtopologies, kept.repartitions)
        else:
            topology = plan_query(logical, query_id, partitions)
            _check_partitioners(topology, catalog, partitions, bound.span)
        definition = kept.definition if kept is not None else definition_of(bound.node, catalog.sources)
        self.trace[query_id] = RuleTrace(bound.node, tuple(steps))
        priority = options.priority or "normal"
        return QueryPlan(
            id=query_id,
            sink=bound.sink.name,
            sql=bound.sql,
            definition=definition,
            logical=logical,
            subtopologies=topology.subtopologies,
            priority=priority,
            weight=options.weight or PRIORITY_WEIGHTS[priority],
            latency_target_ms=options.latency_target_ms,
            repartitions=topology.repartitions,
            generation=1 if kept is None or topology.subtopologies != kept.subtopologies else kept.generation,
            on_change=options.on_change or (None if unrepeatable else "rebuild"),
            unrepeatable=unrepeatable,
        )

    def _unchanged(self, query_id: str, bound: Node, optimised: Node, catalog: Catalog) -> QueryPlan | None:
        """The query as the previous plan has it, if it is the same."""
        kept = self._queries_before.get(query_id)
        if kept is None or self._previous is None:
            return None
        return kept if is_same(kept, self._previous, bound, optimised, catalog.sources) else None

    def _source_partitions(self, catalog: Catalog) -> dict[str, int]:
        """As they will be: those of a declaration that has changed, and of what is made of such a source none that is known."""
        known = {}
        for name, source in sorted(catalog.sources.items(), key=lambda item: item[1].query is None):  # see `_follow`
            there = self._partitions.get(source.topic)
            if name not in self._resized and self._is_resized(source):
                self._resized[name] = source.partitions
            self._follow(source, catalog)
            known[name] = self._resized.get(name, source.partitions if there is None else there)
        return {n: p for n, p in known.items() if p is not None}

    def _follow(self, source: SourceDef, catalog: Catalog) -> None:
        """A stream or table over the topic of a result has the number that the result gets, whatever its topic has now."""
        if source.query is not None or source.partitions is not None:
            return
        made = [s for s in catalog.sources.values() if s.query is not None and s.topic == source.topic]
        if made and made[0].name in self._resized:
            self._resized[source.name] = self._resized[made[0].name]
        elif not made and source.topic in self._results_before:
            self._resized[source.name] = None  # the statement of its query comes later, or is gone

    def _is_resized(self, source: SourceDef) -> bool:
        """Whether it may get another number of partitions than it has: its topic's, or by another topic."""
        if self._previous is None:
            return False
        before = self._sources_before.get(source.name)
        if source.topic not in self._partitions:
            return before is not None and (before.topic, before.partitions) != (source.topic, source.partitions)
        if source.query is not None and source.topic not in self._results_before:
            return True  # what it holds was made by a query that is gone
        if before is not None and before.partitions != source.partitions:
            declared_first = source.query is None and before.partitions is None
            return source.partitions != self._partitions[source.topic] and not declared_first
        query = self._queries.get(source.query) if source.query is not None else None
        if query is None or source.partitions is not None:
            return False
        read = self._read[query.id]
        return not read.isdisjoint(self._resized) or self._reads_another_number(query, read, source.topic)

    def _reads_another_number(self, query: QueryPlan, read: Collection[str], topic: str) -> bool:
        """Whether a query whose text has changed reads sources with another number than its topic has. One that has not changed may
        write to a topic that was created with another number of partitions.
        """
        before = self._queries_before.get(query.id)
        if before is not None and before.definition == query.definition:
            return False
        topics = [s.topic for name in read if (s := self.catalog.sources.get(name)) is not None]
        return any(self._partitions.get(t, self._partitions[topic]) != self._partitions[topic] for t in topics)

    def _drop(self, bound: BoundDrop) -> StatementResult:
        if bound.kind == "type":
            self.catalog = drop_type(self.catalog, bound.name, if_exists=bound.if_exists, span=bound.span)
            return StatementResult("drop", bound.name)
        if bound.name not in self.catalog.sources and bound.if_exists:
            return StatementResult("nothing", bound.name)
        writers = self.catalog.writers.get(bound.name, ())
        self.catalog = drop_source(self.catalog, bound.name, bound.kind, if_exists=bound.if_exists, span=bound.span)
        for q in writers:
            self._end(q)
        self._inserts = [i for i in self._inserts if i.target != bound.name]
        self._equal = Counter({i: n for i, n in self._equal.items() if i.target != bound.name})
        self._changes = [c for c in self._changes if c.target != bound.name]
        return StatementResult("drop", bound.name, ended=writers)

    def _control(self, bound: QueryControl) -> StatementResult:
        meant = tuple(self._queries) if not bound.query else (self._meant(bound),)
        for q in meant:
            if bound.verb == "terminate":
                self._leave_source(self._queries[q])
                self._end(q)
            elif bound.verb == "pause":
                self._paused[q] = None
            else:
                self._paused.pop(q, None)
        return StatementResult(bound.verb, bound.query, ended=meant if bound.verb == "terminate" else ())

    def _meant(self, bound: QueryControl) -> str:
        """The query of that id. Ids of ksqlDB end in a number that counts its statements, and those of INSERT INTO are nothing else."""
        plain = re.sub(r"_\d+$", "", bound.query)
        inserts = [q for q in self._queries if q.startswith("INSERT_")]
        for wanted in (bound.query, plain):
            found = [q for q in self._queries if q.casefold() == wanted.casefold()]
            if found:
                return found[0]
        if plain == "INSERTQUERY" and len(inserts) == 1:
            return inserts[0]
        hint = did_you_mean(bound.query, self._queries) or f"queries are {listing(self._queries) or 'none'}"
        if plain == "INSERTQUERY" and inserts:
            hint = f"INSERT INTO queries are {listing(inserts)}"
        raise mistake("FQ2054", f"there is no query {bound.query}", place_of(bound), "unknown query", help=hint)

    def _leave_source(self, query: QueryPlan) -> None:
        """Keeps the result of a removed query as a stream or table over its topic."""
        made = self.catalog.sources.get(query.sink)
        if made is not None and made.query == query.id:
            left = replace(made, query=None)
            self.catalog = replace(self.catalog, sources={**self.catalog.sources, left.name: left})

    def _insert(self, rows: Iterable[InsertValues]) -> None:
        """Keeps each row with its occurrence among equal ones."""
        for row in rows:
            self._inserts.append(replace(row, occurrence=self._equal[row]))
            self._equal[row] += 1

    def _end(self, query_id: str) -> None:
        self._queries.pop(query_id, None)
        self._paused.pop(query_id, None)
        self.trace.pop(query_id, None)
        self.catalog = forget_query(self.catalog, query_id)


def _merged(base: QueryOptions, over: QueryOptions) -> QueryOptions:
    """`base` with what `over` gives."""
    return QueryOptions(
        over.priority or base.priority,
        over.weight or (base.weight if over.priority is None else None),
        over.latency_target_ms or base.latency_target_ms,
        over.query_id or base.query_id,
        over.on_change or base.on_change,
    )


def _check_partitioners(topology: Topology, catalog: Catalog, partitions: Mapping[str, int], at: Span) -> None:
    """CompileError for topics that a task reads side by side although their sources say that their records are placed differently."""
    written = {s.name for s in catalog.sources.values() if s.query is not None or s.is_own_table}
    single = {name for name, n in partitions.items() if n == 1}
    for sub in topology.subtopologies:
        if (differ := placed_differently(sub, written, single)) is not None:
            first, second = differ
            title = f"the query would read {first}, beside {second}: rows of one key would be in different tasks"
            copy = "copy the topic, and use the copy in the query:  CREATE STREAM placed AS SELECT * FROM ..."
            raise mistake("FQ4089", title, at, "placed differently", help=copy)

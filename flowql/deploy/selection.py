"""The queries that a deployment selects (`--select`), and the plan in which all others stay as they run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.generations import topics_read
from flowql.compiler.plan.logical import Scan, Sink, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.errors import CommandError

CONFLICT, NO_QUERY, APART = "FQ5201", "FQ5202", "FQ5207"
MARK = "+"  # before a name: what it reads, too; behind it: what reads it, too


def find_query(plan: Plan, name: str) -> QueryPlan:
    """By id or by name of its result, in any case. Raises CommandError with the nearest name."""
    for query in plan.queries:
        if name in (query.id, query.sink):
            return query
    for query in plan.queries:
        if name.casefold() in (query.id.casefold(), query.sink.casefold()):
            return query
    known = [n for q in plan.queries for n in (q.id, q.sink)]
    hint = did_you_mean(name, known) or (f"queries are {', '.join(q.id for q in plan.queries)}" if known else "")
    raise CommandError(f"there is no query {name}", code=NO_QUERY, help=hint)


def names_of(query: QueryPlan) -> list[str]:
    """Streams and tables a query reads or writes."""
    return _reads(query) + [n.spec.name for n in walk_nodes(query.logical) if isinstance(n.spec, Sink)]


def _reads(query: QueryPlan) -> list[str]:
    return [n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)]


# -- which queries


def chosen(names: Sequence[str], wanted: Plan, base: Plan) -> frozenset[str] | None:
    """The ids that `--select` names; None for no names, which means all.

    Each is a query of the project, or one that only runs. `NAME` brings what it needs that does not run yet, `+NAME` all that it is
    made of, `NAME+` all that is made of it. Raises CommandError for an unknown name.
    """
    if not names:
        return None
    found: set[str] = set()
    for name in names:
        query = _named(name.strip(MARK), wanted, base)
        plan = wanted if query.id in wanted.by_id else base
        found.add(query.id)
        if name.startswith(MARK):
            found |= _closure(plan, [query], _needed_by)
        if name.endswith(MARK):
            found |= _closure(plan, [query], _readers_of)
    return frozenset(found | _missing(wanted, base, found))


def _named(name: str, wanted: Plan, base: Plan) -> QueryPlan:
    """The query of that name in the project, else among the running ones."""
    both = replace(wanted, queries=(*wanted.queries, *(q for q in base.queries if q.id not in wanted.by_id)))
    return find_query(both, name)


def _missing(wanted: Plan, base: Plan, ids: Collection[str]) -> set[str]:
    """Ids of the queries that these queries need and that do not run."""
    begun = [q for q in wanted.queries if q.id in ids]
    return _closure(wanted, begun, lambda plan, q: [n for n in _needed_by(plan, q) if n.id not in base.by_id])


def select(plan: Plan, names: Sequence[str]) -> Plan:
    """The part of a plan that the named queries (by id or by name of their result) need. All of it for no names."""
    ids = chosen(names, plan, Plan())
    if ids is None:
        return plan
    queries = tuple(q for q in plan.queries if q.id in ids)
    needed = {n for q in queries for n in names_of(q)}
    return replace(
        plan,
        sources=tuple(s for s in plan.sources if s.name in needed),
        queries=queries,
        inserts=tuple(i for i in plan.inserts if i.target in needed),
        changes=tuple(c for c in plan.changes if c.target in needed),
    )


def _closure(
    plan: Plan, begin: Iterable[QueryPlan], neighbours: Callable[[Plan, QueryPlan], list[QueryPlan]]
) -> set[str]:
    found, waiting = set[str](), list(begin)
    while waiting:
        for query in neighbours(plan, waiting.pop()):
            if query.id not in found:
                found.add(query.id)
                waiting.append(query)
    return found


def _needed_by(plan: Plan, query: QueryPlan) -> list[QueryPlan]:
    """The queries that write what a query reads (also as a topic: a source may be declared over a result) or inserts into.

    Queries that write the same topic under another name are not among them: they are independent.
    """
    topics = {s.name: s.topic for s in plan.sources}
    names, read = names_of(query), {topics[n] for n in _reads(query) if n in topics}
    return [q for q in plan.queries if q.sink in names or topics.get(q.sink) in read]


def _readers_of(plan: Plan, query: QueryPlan) -> list[QueryPlan]:
    topics = {s.name: s.topic for s in plan.sources}
    return [q for q in plan.queries if topics.get(query.sink) in {topics.get(n) for n in _reads(q)}]


# -- the plan


def merged(base: Plan, wanted: Plan, ids: Collection[str] | None, gone: Collection[str]) -> Plan:
    """The plan in which the queries `ids` are as the project has them, and all others as they are in `base`.

    ids: None for all of the project. gone: ids of `base` that are left out. What a query that stays needs stays as well: streams,
    tables, rows of INSERT VALUES, its pause. Raises CommandError where the two do not go together.
    """
    new = {q.id: q for q in wanted.queries if ids is None or q.id in ids}
    kept = {q.id: q for q in base.queries if q.id not in new and q.id not in gone}
    names = [q.id for q in wanted.queries if q.id in new or q.id in kept]
    names += [i for i in kept if i not in names]
    queries = {**kept, **new}
    _check_inputs(base, queries.values(), kept, gone)
    sources, from_project = _sources(base, wanted, new, kept, everything=ids is None)
    inserts = [i for i in wanted.inserts if i.target in from_project]
    here = {s.name for s in sources} - from_project
    inserts += [i for i in base.inserts if i.target in here]
    changes = [c for c in wanted.changes if c.target in from_project]
    changes += [c for c in base.changes if c.target in here]
    begins = {q for q in wanted.paused if q not in base.by_id}
    plan = replace(
        wanted,
        sources=sources,
        queries=_in_order([queries[i] for i in names]),
        inserts=tuple(inserts),
        changes=tuple(changes),
        schemas=tuple(dict.fromkeys((*base.schemas, *wanted.schemas))),  # of records that stay
        paused=tuple(i for i in names if i in base.paused or i in begins),
    )
    _check(plan, base, wanted, new)
    return plan


def _in_order(queries: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """Each behind the queries whose results it reads, else as they come: topics are made in this order."""
    left, found = list(queries), list[QueryPlan]()
    while left:
        written = {q.id: q.topic for q in left}
        free = (q for q in left if not any(t in topics_read(q) for i, t in written.items() if i != q.id))
        query = next(free, left[0])  # one of a circle
        left.remove(query)
        found.append(query)
    return tuple(found)


def _sources(
    base: Plan, wanted: Plan, new: dict[str, QueryPlan], kept: dict[str, QueryPlan], *, everything: bool
) -> tuple[tuple[SourceDef, ...], frozenset[str]]:
    """Those of the project that are meant, and those of `base` that stay; and the names of the former."""
    needed = {n for q in new.values() for n in names_of(q)}
    stay = {n for q in kept.values() for n in names_of(q)}
    made = {s.name for s in base.sources if s.query in kept}
    found = {s.name: s for s in wanted.sources if s.name not in made and (everything or s.name in needed)}
    from_project = frozenset(found)
    for source in base.sources:
        of_nobody = not everything and source.query is None
        if source.name not in found and (source.name in stay or source.name in made or of_nobody):
            found[source.name] = source
    for source in wanted.sources:
        if source.name in made and (everything or source.query in new):
            _refuse_second_maker(source, base)
    return tuple(found.values()), from_project


def _refuse_second_maker(source: SourceDef, base: Plan) -> None:
    made = base.source(source.name)
    assert made is not None, "it is made by a query that stays"
    title = f"{made.query} still runs and makes {source.name}, which the project now defines differently"
    raise CommandError(title, code=CONFLICT, help="remove the old query with it:  flowql deploy --prune")


def _check(plan: Plan, base: Plan, wanted: Plan, new: Collection[str]) -> None:
    """CommandError if a query reads of a result what that does not have, as only one of the two is of the project."""
    for query in plan.queries:
        origin = wanted if query.id in new else base
        for node in walk_nodes(query.logical):
            if not isinstance(node.spec, Scan):
                continue
            there, expected = plan.source(node.spec.source), origin.source(node.spec.source)
            if there is None or expected is None or there is expected or there.query is None:
                continue
            used = [f for f in expected.schema if any(n.name == f.name for n in node.schema)]
            wrong = [f.name for f in used if f not in there.schema.fields]
            if wrong or _how(there) != _how(expected):
                _refuse_apart(query, there, wrong, is_new=query.id in new)


def _check_inputs(base: Plan, queries: Collection[QueryPlan], kept: Collection[str], gone: Collection[str]) -> None:
    """CommandError if a query that stays reads a result that no query makes any more: it would stand still without a word."""
    written = {q.topic for q in queries}
    for ended in (q for q in base.queries if q.id in gone and q.topic not in written):
        for query in queries:
            if query.id in kept and ended.topic in topics_read(query):
                title = (
                    f"{query.id} keeps running and reads {ended.sink}, which would get no more rows without {ended.id}"
                )
                raise CommandError(title, code=APART, help=f"flowql deploy --prune --select {ended.id}{MARK}")


def _how(source: SourceDef) -> tuple[object, ...]:
    """The properties, beside columns, that decide how the records of a source are read."""
    key = tuple((f.name, f.type) for f in source.schema.key)
    return (source.topic, source.kind, source.key_format.name, source.value_format.name, source.timestamp, key)


def _refuse_apart(query: QueryPlan, source: SourceDef, columns: Sequence[str], *, is_new: bool) -> None:
    what = f"reads {', '.join(columns)} of {source.name}" if columns else f"reads {source.name}"
    if is_new:
        title = f"{query.id} {what} as the project defines it, and {source.query} is not selected and runs as it was"
        help_ = f"flowql deploy --select +{query.id}"
    else:
        title = (
            f"{query.id} {what} as it was, and {source.query} changes that; {query.id} is not part of this deployment"
        )
        help_ = f"flowql deploy --select {source.query}{MARK}, or --prune if the project has no {query.id}"
    raise CommandError(title, code=APART, help=help_)

"""Answers about the catalogue: what LIST, SHOW, DESCRIBE, EXPLAIN and the backslash commands say. Pure: rows and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.cli.names import Names, find
from flowql.cli.render import numeric, table_lines
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.explain import outline_text, tree_text
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef, StoreSpec, stores_of
from flowql.query.errors import UNKNOWN, QueryError


@dataclass(frozen=True, slots=True)
class Rows:
    """A table, with lines above and below it."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    head: str = ""
    foot: str = ""


def lines(columns: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Rows as an aligned table; columns of numbers end at one place. cells: the rows as texts."""
    right = [numeric(column) for column in zip(*rows, strict=True)] if rows else None
    return table_lines(columns, cells, right)


def relations(plan: Plan, kind: str = "") -> Rows:
    """Streams and tables, or those of one kind; without one also the internal stores."""
    rows = [(s.name, str(s.kind), s.topic, s.query or "") for s in plan.listed if kind in ("", s.kind)]
    names = {r[0] for r in rows}
    if not kind:
        rows += [(s.name, "store", "", q.id) for q, s in stores_of(plan) if s.name not in names]
    return Rows(("name", "kind", "topic", "made by"), rows)


def queries(plan: Plan, status: Mapping[str, Any]) -> Rows:
    states = {q["id"]: q["state"] for q in status["queries"]} if status else {q.id: "stopped" for q in plan.queries}
    rows = [(q.id, q.sink, states.get(q.id, ""), q.priority, _one_line(q.sql)) for q in plan.queries]
    return Rows(("query", "result", "state", "priority", "statement"), rows)


def topics(plan: Plan, found: Mapping[str, int], *, internal: bool = False) -> Rows:
    """Topics with what is declared over them. internal: also those the instance keeps for itself."""
    names: dict[str, list[str]] = {}
    for s in plan.sources:
        names.setdefault(s.topic, []).append(s.name)
    rows = [(t, n, " ".join(names.get(t, []))) for t, n in sorted(found.items()) if internal or t in names]
    return Rows(("topic", "partitions", "sources"), rows)


def types(found: Mapping[str, Any]) -> Rows:
    """Custom types by name, as the project's files define them."""
    return Rows(("type", "meaning"), [(n, str(t)) for n, t in sorted(found.items())])


def pairs(what: str, found: Mapping[str, str]) -> Rows:
    """Names with a text each."""
    return Rows((what, "value"), sorted(found.items()))


def connectors() -> Rows:
    """None, ever: what ksqlDB would ask of Kafka Connect."""
    return Rows(("connector", "kind", "state"), [], foot="FlowQL runs no connectors; ask the Kafka Connect that does")


def functions(pattern: str = "") -> Rows:
    """The functions whose name contains the pattern."""
    from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the catalogue; 0.1 s
    from flowql.compiler.functions.descriptions import descriptions
    from flowql.compiler.functions.registry import all_aggregates, all_functions

    kinds = dict.fromkeys(filter(str.isupper, all_functions()), "") | dict.fromkeys(all_aggregates(), "aggregate")
    found = [(n, k, descriptions()[n].summary) for n, k in sorted(kinds.items()) if pattern.upper() in n]
    return Rows(("function", "kind", "result"), found)


def function(name: str) -> str:
    """One function: what it gives, and an example."""
    from flowql.compiler.functions.descriptions import descriptions

    found = descriptions().get(name.upper())
    if found is None:
        raise QueryError(f"there is no function {name}", code=UNKNOWN, help=did_you_mean(name.upper(), descriptions()))
    return f"{name.upper()}\n  {found.summary}\n  {found.example}"


def describe(plan: Plan, name: str) -> Rows:
    """The columns of a stream, table or store, and where it comes from."""
    found = find(plan, name)
    if found is None:
        known = Names.of(plan).relations
        hint = did_you_mean(name, known) or "\\d  lists streams, tables and stores"
        raise QueryError(f"there is no stream, table or store {name}", code=UNKNOWN, help=hint)
    return _store(plan, found) if isinstance(found, StoreSpec) else _source(plan, found)


def _source(plan: Plan, source: SourceDef) -> Rows:
    formats = f"topic {source.topic}, key {source.key_format.name}, value {source.value_format.name}"
    head = f"{source.kind} {source.name} ({formats})"
    foot = []
    if source.query is not None:
        query = plan.by_id.get(source.query)
        foot.append(f"made by {source.query}" + (f":\n{_indented(query.sql)}" if query is not None else ""))
        foot += [f"store {s.name}" for q, s in stores_of(plan) if q.id == source.query and s.name != source.name]
    foot += [f"read by {q.id}" for q in plan.queries if source.name in _reads(q)]
    return Rows(("column", "type", ""), _columns(source.shown), head, "\n".join(foot))


def _store(plan: Plan, store: StoreSpec) -> Rows:
    owner = next((q.id for q, s in stores_of(plan) if s.name == store.name), "")
    fields = (*store.key.fields, *store.value.fields)
    marked = [(f.name, str(f.type), "key" if f in store.key.fields else "") for f in fields]
    return Rows(("column", "type", ""), marked, f"store {store.name} of {owner} ({store.kind})")


def _columns(schema: Schema) -> list[tuple[str, str, str]]:
    rows = [(f.name, str(f.type), _role(f)) for f in schema]
    if schema.window is not None and schema.get("WINDOWSTART") is None:
        rows += [(n, "BIGINT", "window") for n in ("WINDOWSTART", "WINDOWEND")]
    return rows


def _role(field: Field) -> str:
    return "" if field.role == "value" else field.role


def explain(plan: Plan, name: str) -> str:
    """The plan of a query that runs, by its id or its result."""
    for query in plan.queries:
        if name.casefold() in (query.id.casefold(), query.sink.casefold()):
            return outline_text(query)
    known = [n for q in plan.queries for n in (q.id, q.sink)]
    hint = did_you_mean(name, known) or "SHOW QUERIES;  shows what runs"
    raise QueryError(f"there is no query {name}", code=UNKNOWN, help=hint)


def explain_push(query: QueryPlan) -> str:
    return f"a push query, computed in this process:\n{_indented(tree_text(query.logical))}"


def _reads(query: QueryPlan) -> set[str]:
    return {n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)}


def _one_line(sql: str) -> str:
    return " ".join(sql.split())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())

"""An interactive query as a plan over the rows that its relations have at one commit.

It is bound as a view is. What a view alone knows is left out: watermarks, the passing of time, and which rows have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowql.compiler.analyze.relations.array_queries import as_aggregates
from flowql.compiler.analyze.relations.composed_aggregates import of_others
from flowql.compiler.analyze.relations.definitions import relations_read
from flowql.compiler.analyze.relations.expressions import Correlated
from flowql.compiler.analyze.relations.grouping import with_own_aggregates
from flowql.compiler.analyze.relations.query import QueryBinder
from flowql.compiler.analyze.relations.view import as_people_write
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.dialect.standard.type_names import in_standard_words
from flowql.compiler.plan.changes import Consolidate, SortKey, TemporalJoin, VersionJoin
from flowql.compiler.plan.expr import Column, Expr, columns_of, conjuncts
from flowql.compiler.plan.logical import Filter, Format, Materialise, Node, Project, Scan, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import NO_ROWS, SourceDef
from flowql.compiler.plan.types import SqlType
from flowql.compiler.plan.visit import substitute
from flowql.compiler.plan.watermarks import AppendOnly

_NO_FORMAT = Format("NONE")
_PASSING = (AppendOnly, Consolidate, Filter, Materialise, Project)


@dataclass(frozen=True, slots=True)
class Readable:
    """A relation that can be asked. key: the columns whose values no two of its rows share, where there are such. hidden: columns that `*` does not show."""

    schema: Schema
    key: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of the answer: its name, and what it is called in the plan."""

    name: str
    column: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """node: gives the rows. columns: those of the answer, which `order`, `limit` and `offset` are of. conditions: by relation; rows that do
    not meet them cannot change the answer.
    """

    node: Node
    columns: tuple[ShownColumn, ...]
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    conditions: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)


def bind_asked(query: t.Query, readable: Mapping[str, Readable], catalog: Catalog) -> AskedQuery:
    """The plan of an interactive query. readable: by the names in FROM. Raises CompileError with its places in the text."""
    sources = {name: _source(name, r) for name, r in readable.items()}
    query = as_aggregates(of_others(query))
    if query.emit is not None:
        unsupported(f"EMIT {query.emit.upper()} of an interactive query", query.span, "leave it out")
    catalog = replace(catalog, sources=sources)
    try:
        return _bound(with_own_aggregates(query, catalog), QueryBinder(catalog, NO_ROWS), query.span)
    except Correlated:
        unsupported("a correlated sub-query of this form", query.span, "write it as a join")
    except CompileError as error:
        raise type(error)(*(in_standard_words(as_people_write(d)) for d in error.diagnostics)) from None


def names_read(query: t.Query) -> tuple[str, ...]:
    """The relations that a query names, each once."""
    return tuple(dict.fromkeys(relations_read(query)))


def _source(name: str, readable: Readable) -> SourceDef:
    """The relation as a source whose rows are only added: at one commit no row goes."""
    fields = tuple(Field(f.name, f.type, "key" if f.name in readable.key else "value") for f in readable.schema)
    columns = tuple(f.name for f in fields if f.name not in readable.hidden)
    return SourceDef(name, "stream", name, Schema(fields), _NO_FORMAT, _NO_FORMAT, columns=columns)


def _bound(query: t.Query, binder: QueryBinder, span: Span) -> AskedQuery:
    rel, columns, order, limit, offset = binder.asked(query)
    if any(isinstance(n.spec, TemporalJoin | VersionJoin) for n in walk_nodes(rel.node)):
        unsupported("FOR SYSTEM_TIME AS OF in an interactive query", span, "ask a view that has this join")
    shown = tuple(ShownColumn(c.name, c.column, c.type) for c in rel.shown)
    keys = tuple(o.key(c) for o, c in zip(order, columns, strict=True))
    return AskedQuery(rel.node, shown, keys, limit, offset, _conditions(rel.node))


def _conditions(root: Node) -> dict[str, tuple[Expr, ...]]:
    """By relation, for those that are read once: conditions on its columns. Rows that do not meet them cannot change the answer."""
    found: dict[str, tuple[Expr, ...]] = {}
    nodes = walk_nodes(root)
    read = Counter(n.spec.source for n in nodes if isinstance(n.spec, Scan))
    for n in nodes:
        if isinstance(n.spec, Filter):
            below, meaning = _origin(n.inputs[0])
            if isinstance(below.spec, Scan) and read[below.spec.source] == 1:
                parts = conjuncts(n.spec.predicate)
                own = (p for p in parts if all(isinstance(meaning.get(c), Column) for c in columns_of(p)))
                found[below.spec.source] = (
                    *found.get(below.spec.source, ()),
                    *(substitute(p, meaning) for p in own),
                )
    return found


def _origin(node: Node) -> tuple[Node, dict[str, Expr]]:
    """The node whose rows filters and projections pass on, and each column as an expression over that node."""
    meaning: dict[str, Expr] = {f.name: Column(f.type, f.name) for f in node.schema}
    while isinstance(node.spec, _PASSING):
        if isinstance(node.spec, Project):
            exprs = {c.name: c.expr for c in node.spec.columns}
            meaning = {n: exprs.get(e.name, e) if isinstance(e, Column) else e for n, e in meaning.items()}
        (node,) = node.inputs
    return node, meaning

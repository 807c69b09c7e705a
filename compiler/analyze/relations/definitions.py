"""The query of a view with its EMIT, and what is named in such a query and stands for another: common table expressions, views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from flowql.compiler.analyze.relations.closing import emitted, has_watermark
from flowql.compiler.analyze.relations.gap_fill import is_gap_fill
from flowql.compiler.analyze.relations.relation import Names, Rel, copied, renamed_source
from flowql.compiler.analyze.relations.time_windows import is_time_window, source_of
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.dialect.standard.statement_tree import CreateView
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.topology import SourceDef


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression, and those that the names inside it mean.

    bound: its relation when it has been named before, and how many names stood for queries in that.
    """

    definition: t.With
    tables: Tables
    bound: list[tuple[Rel, int]] = field(default_factory=list)


Tables = Mapping[str, CommonTable]
NO_TABLES: Tables = {}


class Binding(Protocol):
    """Binds the queries of a statement. follows_watermark: one of them waits for a watermark."""

    names: Names
    follows_watermark: bool

    @property
    def inlined(self) -> int: ...

    def query(self, query: t.Query, tables: Tables = NO_TABLES) -> Rel: ...

    def count_inlined(self, table: t.Table, times: int = 1) -> None: ...


def relations_read(node: t.Node, common: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names in FROM, at any depth, that mean no common table expression. common: names that mean one here."""
    if isinstance(node, t.Query):
        for table in node.with_:  # each may name those before it
            yield from relations_read(table.query, common | {table.name} if node.recursive else common)
            common |= {table.name}
    for part in walks.walk(node, t.Query, t.With):
        if isinstance(part, t.Query) and part is not node:
            yield from relations_read(part, common)
        elif isinstance(part, t.TableFunction) and (is_time_window(part) or is_gap_fill(part)) and part.call.args:
            yield from relations_read(source_of(part), common)
        elif isinstance(part, t.Table) and not (len(part.name) == 1 and part.name[0] in common):
            yield part.name[-1]


def whole(binder: Binding, query: t.Query, retained: Callable[[Node], Node] = lambda node: node) -> Rel:
    """The relation of the query of a view. retained: gives its plan the RETENTION of the view."""
    if query.emit == "final":
        unsupported("EMIT FINAL of a view", query.span, "write  EMIT ON WINDOW CLOSE")
    closes = query.emit == "on window close"
    binder.follows_watermark |= closes
    rel = binder.query(replace(query, emit=None))
    rel = replace(rel, node=retained(rel.node))
    return replace(rel, node=emitted(rel.node, binder.names.windows, query.span)) if closes else rel


def rows_of(binder: Binding, common: CommonTable, table: t.Table) -> Rel:
    """Bound once: where the same rows are needed twice, they are computed once (`flowql.compiler.physical.planner`)."""
    if common.bound:
        rel, inlined = common.bound[0]
        binder.count_inlined(table, inlined)
        return copied(rel, binder.names)
    before = binder.inlined
    binder.count_inlined(table)
    rel = binder.query(common.definition.query, common.tables)
    common.bound.append((rel, binder.inlined - before))
    return rel


def in_place(binder: Binding, source: SourceDef, table: t.Table) -> Rel | None:
    """A view in the place of its name: its topic holds rows and no watermark, which a query that waits for one needs."""
    query = definition_of(source)
    if query is None:
        return None
    binder.count_inlined(table)
    rel = whole(binder, query)
    return renamed_source(rel, source.name, source.visible) if has_watermark(rel.node) else None


def definition_of(source: SourceDef) -> t.Query | None:
    """The query of a view, from the text that the catalogue keeps; None for all else."""
    if not source.columns or source.query is None or source.is_own_table:
        return None
    (statement,), mistakes = parse_trees(SourceText(f"definition of {source.name}", source.statement))
    assert not mistakes, "a view was made from this text"
    assert isinstance(statement, CreateView)
    return statement.tree


def is_plain(name: str, catalog: Catalog) -> bool:
    """Whether it is no stream with a watermark, and no view of one."""
    source = catalog.sources.get(name)
    query = None if source is None else definition_of(source)
    follows = source is not None and source.watermark is not None
    return not follows and (query is None or all(is_plain(n, catalog) for n in relations_read(query)))

"""A query given as structure: its FlowQL fragments parsed one by one into the tree SQL text gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect.ast import JoinClause, Property, Query, Star, TableRef
from flowql.compiler.dialect.parser import (
    parse_expression,
    parse_join,
    parse_select_items,
    parse_table_ref,
    parse_window,
)
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.parser import expression_tree, items_tree, join_tree, relation_tree
from flowql.compiler.driver import DialectName, QueryDefinition
from flowql.config.reader import Item, under

T = TypeVar("T")
_OPTIONS = ("priority", "weight", "latency_target", "on_change")


@dataclass(slots=True)
class _Fragments:
    """Parses the fragments of one query and keeps what is wrong with them."""

    items: Mapping[str, Item]
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def one(self, key: str, parse: Callable[[SourceText], T]) -> T | None:
        item = self.items.get(key)
        return self._parsed(item, parse) if item is not None else None

    def many(self, key: str, parse: Callable[[SourceText], T]) -> tuple[T, ...]:
        item = self.items.get(key)
        parsed = [self._parsed(i, parse) for i in (item.value if item is not None else ())]
        return tuple(p for p in parsed if p is not None)

    def _parsed(self, item: Item, parse: Callable[[SourceText], T]) -> T | None:
        try:
            return parse(item.value)
        except CompileError as e:
            self.diagnostics.extend(e.diagnostics)
            return None


def structured_query(
    items: Mapping[str, Item], span: Span, dialect: DialectName
) -> tuple[QueryDefinition | None, list[Diagnostic]]:
    """The definition, None when a fragment is missing or wrong. span: of the whole entry."""
    fragments = _Fragments(items)
    into = items.get("into") or items.get("name")
    missing = [k for k in ("from", "select") if k not in items or items[k].value == []]
    if into is None:
        missing.insert(0, "into")
    for key in missing:
        title = f"this query has no `{key}`"
        fragments.diagnostics.append(Diagnostic("FQ3010", title, span, help=f"add  {key}: ..., or write it as `sql:`"))
    query = _tree(fragments, span) if dialect == "standard" else _query(fragments, span)
    if fragments.diagnostics or into is None:
        return None, fragments.diagnostics
    name = _folded(into, dialect)
    kind = items["kind"].value if "kind" in items else None
    return QueryDefinition(name, query, kind, properties=_properties(items, name), span=into.span), []


def _query(fragments: _Fragments, span: Span) -> Query:
    source = fragments.one("from", parse_table_ref)
    joins: tuple[JoinClause, ...] = fragments.many("join", parse_join)
    select = tuple(s for items in fragments.many("select", parse_select_items) for s in items)
    return Query(
        select=select,
        source=source if source is not None else TableRef(""),
        joins=joins,
        where=fragments.one("where", parse_expression),
        group_by=_keys(fragments, "group_by", parse_select_items),
        partition_by=_keys(fragments, "partition_by", parse_select_items),
        window=fragments.one("window", parse_window),
        having=fragments.one("having", parse_expression),
        emit=_emit(fragments),
        span=_place(fragments, span),
    )


def _tree(fragments: _Fragments, span: Span) -> t.Query:
    """The query as the tree of standard SQL."""
    source: t.Relation | None = fragments.one("from", relation_tree)
    for join in fragments.many("join", join_tree):
        source = replace(join, left=source) if source is not None else source
    at = _place(fragments, span)
    select = t.Select(
        tuple(i for items in fragments.many("select", items_tree) for i in items),
        source,
        time_window=fragments.one("window", parse_window),
        where=fragments.one("where", expression_tree),
        group_by=_keys(fragments, "group_by", items_tree),
        partition_by=_keys(fragments, "partition_by", items_tree),
        having=fragments.one("having", expression_tree),
        span=at,
    )
    return t.Query(select, emit=_emit(fragments), span=at)


def _emit(fragments: _Fragments) -> Literal["changes", "final"] | None:
    emit = fragments.items.get("emit")
    return emit.value if emit is not None else None


def _place(fragments: _Fragments, span: Span) -> Span:
    first = fragments.items.get("from")
    return first.span if first is not None else span


def _keys(fragments: _Fragments, key: str, parse: Callable[[SourceText], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The expressions of a list; an entry may hold several, separated by commas. parse: reads a select list."""
    found: list[Any] = []
    for s in (s for items in fragments.many(key, parse) for s in items):
        if s.alias is not None or isinstance(s.expr, Star):
            what = "an alias" if s.alias is not None else "`*`"
            title = f"`{key}` takes expressions, not {what}"
            fragments.diagnostics.append(Diagnostic("FQ3010", title, s.span, "not an expression"))
        else:
            found.append(s.expr)
    return tuple(found)


def _properties(items: Mapping[str, Item], into: str) -> tuple[Property, ...]:
    """WITH properties; the analyzer checks them as it does those of SQL text."""
    given = under(items, "with")
    found = [Property(k.upper(), i.value, i.key, i.span) for k, i in given.items()]
    found += [Property(k.upper(), items[k].value, items[k].key, items[k].span) for k in _OPTIONS if k in items]
    if "into" in items and "name" in items and items["name"].value.upper() != into.upper():
        name = items["name"]
        found.append(Property("QUERY_ID", name.value, name.key, name.span))
    return tuple(found)


def _folded(item: Item, dialect: DialectName) -> str:
    """A name as SQL would read it: quoted as it is, else folded."""
    text = str(item.value)
    if len(text) > 2 and text[0] == text[-1] and text[0] in '`"':
        return text[1:-1]
    return text.upper() if dialect == "ksql" else text.lower()

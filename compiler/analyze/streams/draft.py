"""A SELECT that steps of a stream are added to: into it where SQL could say them there, around it where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import (
    Ast,
    Func,
    JoinClause,
    Lit,
    Name,
    Query,
    SelectItem,
    Star,
    TableRef,
    WindowClause,
)

AS_VALUE = "AS_VALUE"  # marks a copy of a key column


@dataclass(frozen=True, slots=True)
class Draft:
    """A SELECT whose columns are known.

    keys: names of its key columns. items: its columns by name, in order, in terms of its sources. whole: they are those of its only source.
    """

    source: TableRef
    keys: tuple[str, ...]
    items: Mapping[str, Ast]
    whole: bool = False
    joins: tuple[JoinClause, ...] = ()
    where: Ast | None = None
    group_by: tuple[Ast, ...] = ()
    partition_by: tuple[Ast, ...] = ()
    window: WindowClause | None = None
    having: Ast | None = None
    emit: Literal["changes", "final"] | None = None
    at: Span = field(default=NOWHERE, compare=False)

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(n for n in self.items if n not in self.keys)

    @property
    def is_chosen(self) -> bool:
        """Whether it has columns of a stream or table as they are, all of its rows."""
        plain = self.where is None and self.source.query is None and self.names_rows
        return plain and all(isinstance(e, Name) and len(e.parts) == 1 for e in self.items.values())

    def inner_name(self, name: str) -> str:
        """The name of a column in the input of a join: the source's name if the source is joined, else the name in the draft."""
        expr = self.items[name]
        return expr.parts[-1] if self.is_chosen and isinstance(expr, Name) else name

    @property
    def names_rows(self) -> bool:
        """Whether ROWTIME and its like are those of its only source."""
        return not (self.joins or self.group_by or self.partition_by)


def read(relation: str, keys: Sequence[str], columns: Sequence[str], at: Span) -> Draft:
    """All columns of a stream or table."""
    return Draft(TableRef(relation, span=at), tuple(keys), {c: Name((c,)) for c in columns}, whole=True, at=at)


def around(draft: Draft) -> Draft:
    """A SELECT of all columns of another one."""
    source = TableRef("", query=query_of(draft), span=draft.at)
    return Draft(source, draft.keys, {n: Name((n,)) for n in draft.items}, whole=True, at=draft.at)


def query_of(draft: Draft) -> Query:
    """The draft as a syntax tree."""
    return Query(
        select=_select(draft),
        source=draft.source,
        joins=draft.joins,
        where=draft.where,
        group_by=draft.group_by,
        partition_by=draft.partition_by,
        window=draft.window,
        having=draft.having,
        emit=draft.emit,
        span=draft.at,
    )


def _select(draft: Draft) -> tuple[SelectItem, ...]:
    if draft.whole:
        return (SelectItem(Star(), span=draft.at),)
    return tuple(_item(n, e, draft.at) for n, e in draft.items.items())


def _item(name: str, expr: Ast, at: Span) -> SelectItem:
    span = expr.span
    alias = None if isinstance(expr, Name) and expr.parts == (name,) else name
    return SelectItem(expr, alias, span if span != NOWHERE else at)


def is_plain(expr: Ast) -> bool:
    """Whether it is a column as it is, so that another expression can have it in its place."""
    return isinstance(expr, Name)


def filtered(draft: Draft, condition: Ast) -> Draft:
    """condition: in terms of the draft's sources."""
    if draft.group_by:
        return replace(draft, having=_both(draft.having, condition))
    return replace(draft, where=_both(draft.where, condition))


def _both(first: Ast | None, second: Ast) -> Ast:
    return second if first is None else Func("and", (first, second), second.span)


def with_items(draft: Draft, items: Mapping[str, Ast], keys: Sequence[str] | None = None) -> Draft:
    """Other columns, in terms of the draft's sources. A copy of a key column is marked as such."""
    names = draft.keys if keys is None else tuple(keys)
    key_exprs = [items[k] for k in names]
    marked = {n: e if n in names or e not in key_exprs else Func(AS_VALUE, (e,)) for n, e in items.items()}
    return replace(draft, items={**{k: marked[k] for k in names}, **marked}, keys=names, whole=False)


def struct_of(draft: Draft, names: Sequence[str], at: Span) -> Ast:
    """A STRUCT of these columns; NULL without columns."""
    if not names:
        return Lit("null", None, at)
    parts = ((Lit("string", n, at), draft.items[n]) for n in names)
    return Func("struct", tuple(p for pair in parts for p in pair), at)


def conjunction(parts: Sequence[Ast], at: Span) -> Ast:
    return reduce(lambda a, b: Func("and", (a, b), at), parts)

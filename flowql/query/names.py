"""Names of columns without an alias, as PostgreSQL gives them: of the answer, and of queries in FROM and WITH, where they can be referred to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.tree_names import NAMELESS, tree_name

N = TypeVar("N", bound=t.Node)
B = TypeVar("B", bound=t.Body)


def names_of(query: t.Query) -> tuple[str | None, ...]:
    """The names of the columns of an answer; None for `*`, which is any number of them, "" for those that DuckDB names as well."""
    select = _first(query.body)
    return tuple(map(_name, select.items)) if isinstance(select, t.Select) else ()


def _name(item: t.Item) -> str | None:
    if isinstance(item.expr, t.Star):
        return None
    return item.alias or ("" if isinstance(item.expr, t.ColumnRef) else tree_name(item.expr))


def named(given: Sequence[str], names: Sequence[str | None]) -> Sequence[str]:
    """The names of the columns of an answer. given: DuckDB's. names: of `names_of`; those of the one `*` stay DuckDB's."""
    stars = names.count(None)
    if not names or stars > 1 or (not stars and len(names) != len(given)) or len(names) - stars > len(given):
        return given
    if not stars:
        return [n or g for n, g in zip(names, given, strict=True)]
    at = names.index(None)
    around = [*names[:at], *("" for _ in range(len(given) - len(names) + 1)), *names[at + 1 :]]
    return [n or g for n, g in zip(around, given, strict=True)]


def with_names(node: N) -> N:
    """A tree whose queries in FROM and WITH name all their columns that have a name."""
    made = t.with_children(node, with_names)
    if isinstance(made, t.Derived | t.With):
        body = _named(made.query.body)
        made = replace(made, query=replace(made.query, body=body)) if body is not made.query.body else made
    return made


def _first(body: t.Body) -> t.Body:
    while isinstance(body, t.Query | t.SetOperation):
        body = body.body if isinstance(body, t.Query) else body.left
    return body


def _named(body: t.Body) -> t.Body:
    if isinstance(body, t.Query):
        inner = _named(body.body)
        return body if inner is body.body else replace(body, body=inner)
    if isinstance(body, t.SetOperation):
        left = _named(body.left)
        return body if left is body.left else replace(body, left=left)
    if not isinstance(body, t.Select):
        return body
    names = [i.alias or ("" if isinstance(i.expr, t.Star | t.ColumnRef) else tree_name(i.expr)) for i in body.items]
    known = Counter(names)
    items = tuple(
        replace(i, alias=n) if i.alias is None and n not in ("", NAMELESS) and known[n] == 1 else i
        for i, n in zip(body.items, names, strict=True)
    )
    return replace(body, items=items) if items != body.items else body

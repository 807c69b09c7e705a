"""A statement as short as it still differs in the same way: many shorter ones are tried in one project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.parser import parse_trees
from flowql.compiler.dialect.standard.statement_tree import QueryStatement
from flowql.compiler.dialect.standard.write_queries import query_sql
from tests.one_meaning.check import CHANGED, Difference, Outcome, run
from tests.one_meaning.postgres import Postgres
from tests.one_meaning.statements import Batch, Statement

CANDIDATES_MAX, ROUNDS_MAX, CHANGES = 40, 12, 4


def reduced(found: Difference, batch: Batch, partitions: int, postgres: Postgres | None) -> Difference:
    """The same difference of a shorter statement over the same rows."""
    ways = [w for w in found.ways if w != "postgres"]
    theirs = postgres if "postgres" in found.ways or found.right else None
    for _ in range(ROUNDS_MAX):
        shorter = _candidates(found.statement.over_tables)
        if not shorter:
            break
        tried = replace(batch, statements=tuple(map(Statement, shorter)))
        outcome = Outcome()
        outcome.add(tried, run(tried, ways, partitions, theirs, changes=CHANGES if CHANGED in found.kind else 0))
        same = [d for d in outcome.differences if d.label == found.label]
        if not same:
            break
        found = replace(min(same, key=lambda d: len(d.statement.text)), number=found.number)
    return found


def _candidates(sql: str) -> Sequence[str]:
    """Statements without one part of this one: the shortest ones, and others from all over it."""
    trees, _ = parse_trees(SourceText("statement.sql", sql))
    (tree,) = trees
    assert isinstance(tree, QueryStatement)
    size = len(query_sql(tree.query))
    texts = {text for q in _without_one(tree.query) if (text := _written(q)) and len(text) < size}
    ordered = sorted(texts, key=lambda s: (len(s), s))
    return ordered if len(ordered) <= CANDIDATES_MAX else ordered[:: -(-len(ordered) // CANDIDATES_MAX)]


def _written(query: t.Query) -> str:
    try:
        return query_sql(query)
    except Exception:  # a tree that no text has
        return ""


def _without_one(node: Any) -> Iterator[Any]:
    """The node with one node below it dropped, or in the place of its parent."""
    if isinstance(node, t.Expr):
        yield from (c for c in walks.children(node) if isinstance(c, t.Expr))
    if isinstance(node, t.Join):
        yield from (node.left, node.right)
    if isinstance(node, t.SetOperation):
        yield from (node.left, node.right)
    if isinstance(node, t.Query) and isinstance(node.body, t.Query):
        yield node.body
    for f in fields(node):
        for value in _shorter(getattr(node, f.name)):
            yield replace(node, **{f.name: value})


def _shorter(value: Any) -> Iterator[Any]:
    """A field's value without one of its parts, or with a shorter one."""
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            yield value[:i] + value[i + 1 :]
            yield from ((*value[:i], v, *value[i + 1 :]) for v in _shorter(part) if v is not None)
    elif is_dataclass(value):
        yield None
        yield from _without_one(value)
    elif value is True:
        yield False

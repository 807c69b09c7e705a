"""Joins of streams without a bound of time, which are refused, whatever they are written with: ON, USING, NATURAL or a comma."""

from __future__ import annotations

from collections.abc import Iterator

from flowql.compiler.analyze.joins import UNBOUNDED_JOIN
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relation import sources_read
from flowql.compiler.analyze.relations.definitions import is_plain, relations_read
from flowql.compiler.analyze.relations.records import is_stream
from flowql.compiler.analyze.relations.retention import PAIRING
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard import walks
from flowql.compiler.plan.changes import EquiJoin
from flowql.compiler.plan.logical import Node, walk_nodes


def refuse_unbounded(query: t.Query, node: Node, catalog: Catalog) -> None:
    """node: the plan, where joins know which of their rows are dropped. Raises CompileError.

    Both sides of a join of streams without watermarks grow for ever, and so would its state.
    """
    for join in walk_nodes(node):
        if not (isinstance(join.spec, EquiJoin) and join.spec.kind in PAIRING) or all(join.spec.closing):
            continue
        if all(_is_endless(i, catalog) for i in join.inputs):
            sides = [frozenset(sources_read(i)) for i in join.inputs]
            raise mistake(
                UNBOUNDED_JOIN,
                "this join of two streams has no time bound",
                _place(query, sides[0], sides[1]),
                "both inputs are unbounded",
                why="every row would have to be kept forever",
                help="bound the time of one stream by that of the other one, from both sides, as in"
                "  ON a.id = b.id AND a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts",
            )


def _is_endless(node: Node, catalog: Catalog) -> bool:
    """Whether its rows are records of streams, none of which has a watermark."""
    return is_stream(node) and all(is_plain(n, catalog) for n in sources_read(node))


def _place(query: t.Query, left: frozenset[str], right: frozenset[str]) -> Span:
    """The innermost join with a relation of each side on each side: the first one that lacks the bound."""
    found = [j for j in _joins(query) if _parts(j, left, right) or _parts(j, right, left)]
    least = min(found, key=lambda j: len(walks.walk(j)), default=None)
    return query.span if least is None else least.at


def _parts(join: t.Join, left: frozenset[str], right: frozenset[str]) -> bool:
    return bool(left & set(relations_read(join.left)) and right & set(relations_read(join.right)))


def _joins(query: t.Query) -> Iterator[t.Join]:
    return (n for n in walks.walk(query) if isinstance(n, t.Join))

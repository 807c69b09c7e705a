"""Which items of a select list are the key columns, and the projection that follows."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relation import KeyColumn, project, with_key_roles
from flowql.compiler.analyze.select import Item
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.plan.expr import Column, Expr
from flowql.compiler.plan.logical import NamedExpr, Node


def choose_keys(
    items: Sequence[Item], keys: Sequence[KeyColumn], sink: str, noun: str, span: Span
) -> list[tuple[Item, str]]:
    """For each key column the item that selects it, and the plan name it was selected by.

    noun: what the key is to the user: `key column`, `join expression`, ... Raises when one is missing or taken twice.
    """
    chosen: list[tuple[Item, str] | None] = []
    for key in keys:
        name = next((v for v in key.viable if any(_selects(i, v) for i in items)), None)
        found = [i for i in items if name is not None and _selects(i, name)]
        check_once(found)
        chosen.append((found[0], name) if found and name is not None else None)
    if any(c is None for c in chosen):
        raise _missing(keys, sink, noun, span)
    return [c for c in chosen if c is not None]


def check_once(found: Sequence[Item]) -> None:
    """found: the items of a SELECT list that are the same key. Raises for several."""
    if len(found) > 1:
        title = f"the projection contains a key column more than once: {listing([f'`{i.name}`' for i in found])}"
        raise mistake("FQ2023", title, found[1].span, "the key again", help="copy it with AS_VALUE(...)")


def _selects(item: Item, column: str) -> bool:
    return not item.copy and isinstance(item.expr, Column) and item.expr.name == column


def _missing(keys: Sequence[KeyColumn], sink: str, noun: str, span: Span) -> Exception:
    several = any(len(k.texts) > 1 for k in keys)
    texts = [t for k in keys for t in k.texts]
    plural = "s" if len(texts) > 1 else ""
    example = ", ".join(k.texts[0] for k in keys)
    title = f"key missing from projection: the query used to build `{sink}` must include the {noun}{plural} {listing(texts, 'or' if several else 'and')} in its projection (eg, SELECT {example}...)"
    why = "a row without its key cannot be placed or found again"
    if any(k.synthetic for k in keys):
        why = f"{example} was added as a synthetic key column because the join criteria did not match any source column"
    return mistake("FQ2022", title, span, "no key", why=why, help=f"add {example} to the SELECT list")


def final_projection(node: Node, keys: Sequence[tuple[str, Expr]], values: Sequence[Item], span: Span) -> Node:
    """Key columns, window bounds, then values; the projection every query ends with."""
    if not values:
        raise mistake(
            "FQ2024",
            "the projection contains no value columns",
            span,
            "only key columns",
            help="add a column, for example AS_VALUE(...) of the key",
        )
    bounds = [NamedExpr(f.name, Column(f.type, f.name)) for f in node.schema if f.role == "window"]
    columns = [NamedExpr(n, e) for n, e in keys] + bounds + [NamedExpr(v.name, v.expr) for v in values]
    return with_key_roles(project(node, columns), [n for n, _ in keys])

"""QUALIFY as a condition on a query in FROM: its window functions become columns of that query."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.dialects import identifier
from flowql.compiler.dialect.foreign.kinds import sources
from flowql.compiler.dialect.foreign.translation import Translation
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

_QUERY = "qualified"


def qualified(tr: Translation, node: Node, made: Node) -> Node:
    """made: the translated SELECT without QUALIFY. Raises Untranslated."""
    items = _named(tr, node, made)
    made.set("qualify", None)
    condition = tr(node.args["qualify"].this)
    for i, window in enumerate(
        list(condition.find_all(exp.Window)) or ([condition] if isinstance(condition, exp.Window) else []), 1
    ):
        name = identifier(f"qualify_{i}")
        made.append("expressions", exp.Alias(this=window.copy(), alias=name))
        if window is condition:
            condition = exp.Column(this=name.copy())
        else:
            window.replace(exp.Column(this=name.copy()))
    outer = exp.Select(expressions=[exp.Column(this=identifier(n)) for n in items])
    for clause in ("with_", "order", "limit", "offset", "distinct"):
        outer.set(clause, made.args.get(clause))
        made.set(clause, None)
    _check_order(node, outer, items)
    inner = exp.Subquery(this=made, alias=exp.TableAlias(this=identifier(_QUERY)))
    outer.set("from_", exp.From(this=inner))
    outer.set("where", exp.Where(this=condition))
    return outer


def _named(tr: Translation, node: Node, made: Node) -> list[str]:
    """The names of the columns, each of which gets one. Raises Untranslated where `*` stands for unknown columns."""
    names: list[str] = []
    for i, item in enumerate(list(made.expressions), 1):
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            names += _columns(tr, node, item)
            continue
        name = item.alias_or_name or f"column_{i}"
        if not isinstance(item, exp.Alias) and not isinstance(item, exp.Column):
            item.replace(exp.Alias(this=item.copy(), alias=identifier(name)))
        names.append(name)
    if len(set(names)) < len(names):
        refuse(
            node,
            "QUALIFY of a query with two columns of one name",
            "its columns are those of a query in FROM here",
            "give each column a different name",
        )
    return names


def _columns(tr: Translation, node: Node, item: Node) -> list[str]:
    table = item.args["table"].name if isinstance(item, exp.Column) and item.args.get("table") is not None else ""
    relations = [s for s in sources(node) if not table or s.alias_or_name.lower() == table]
    known = [tr.kinds.relation(r) for r in relations]
    if not relations or any(k is None for k in known):
        refuse(
            node,
            "QUALIFY with *",
            "the columns of its relations are not known",
            "write the columns, or put the CREATE TABLE of the relation into the files",
        )
    return [name for k in known if k is not None for name in k]


def _check_order(node: Node, outer: Node, items: list[str]) -> None:
    for o in outer.args["order"].expressions if outer.args.get("order") else ():
        if not (isinstance(o.this, exp.Column) and o.this.name in items) and not isinstance(o.this, exp.Literal):
            refuse(
                node,
                "ORDER BY an expression beside QUALIFY",
                "the rows are those of a query in FROM here",
                "select the expression and order by its name",
            )
        if isinstance(o.this, exp.Column):
            o.this.set("table", None)

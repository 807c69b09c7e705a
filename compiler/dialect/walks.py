"""Walks over syntax trees, and rewriting of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from flowql.compiler.dialect.ast import Node, Statement

N = TypeVar("N", bound=Node)
Tree = Node | Statement | tuple[Any, ...] | None  # one tree, or several


def children(node: Node | Statement) -> list[Node]:
    """The nodes right below a node, in the order of its fields."""
    found: list[Node] = []
    for name in _names(type(node)):
        _add_nodes(getattr(node, name), found)
    return found


_NAMES: dict[type[Any], tuple[str, ...]] = {}


def _names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a class of nodes, kept because listing them costs more than looking at them."""
    if kind not in _NAMES:
        _NAMES[kind] = tuple(f.name for f in fields(kind))
    return _NAMES[kind]


def _add_nodes(value: object, to: list[Node]) -> None:
    if isinstance(value, Node):
        to.append(value)
    elif isinstance(value, tuple):
        for v in value:
            _add_nodes(v, to)


def rebuilt(node: Any, rule: Callable[[Any], Node | None], *kinds: type[Node]) -> Any:
    """The tree or trees with what `rule` gives in the place of nodes, or of those of the kinds; a node for which it gives None is kept,
    and its parts are looked at.
    """
    if isinstance(node, tuple):
        made = tuple(rebuilt(n, rule, *kinds) for n in node)
        return node if all(a is b for a, b in zip(made, node, strict=True)) else made
    if not isinstance(node, Node):
        return node
    replaced = rule(node) if not kinds or isinstance(node, kinds) else None
    return with_children(node, lambda child: rebuilt(child, rule, *kinds)) if replaced is None else replaced


def with_children(node: N, by: Callable[[Any], Any]) -> N:
    """The node with `by` of each node right below it in that one's place; the node itself where nothing changes."""
    changed = {n: v for n in _names(type(node)) if (v := _changed(old := getattr(node, n), by)) is not old}
    return replace(node, **changed) if changed else node


def _changed(value: Any, by: Callable[[Any], Any]) -> Any:
    if isinstance(value, Node):
        return by(value)
    if isinstance(value, tuple):
        made = tuple(_changed(v, by) for v in value)
        return value if all(a is b for a, b in zip(made, value, strict=True)) else made
    return value


def levels(node: Node | Statement) -> list[Sequence[Node | Statement]]:
    """The node, the nodes right below it, those right below these, and so on."""
    found: list[Sequence[Node | Statement]] = []
    level: Sequence[Node | Statement] = [node]
    while level:
        found.append(level)
        level = [c for n in level for c in children(n)]
    return found


def _roots(trees: tuple[Any, ...] | None) -> list[Node]:
    found: list[Node] = []
    _add_nodes(trees, found)
    return found


def contains(tree: Tree, kind: type[Node]) -> bool:
    """Whether a node of that kind is in the tree, or in one of the trees."""
    return any(isinstance(n, kind) for n in walk(tree))


def walk(tree: Tree, *closed: type[Node]) -> list[Node]:
    """All nodes of a tree or of several, a node before what is below it. closed: kinds of nodes below which nothing is looked for, unless
    the tree is one.
    """
    found = [tree] if isinstance(tree, Node) else []
    waiting = children(tree)[::-1] if isinstance(tree, Node | Statement) else _roots(tree)[::-1]
    while waiting:
        found.append(here := waiting.pop())
        if not isinstance(here, closed):
            waiting.extend(reversed(children(here)))
    return found

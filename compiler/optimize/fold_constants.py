"""Compute calls of constants once, at compile time.

before: Filter(amount > 2 * 50)      after: Filter(amount > 100)

A call that fails stays: at run time it makes a dead letter per row, as it would without the rule.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.functions.folding import folded
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.visit import map_nodes, map_spec


def fold_constants(node: Node) -> Node:
    """Rule: see the module."""
    return map_nodes(node, _fold_node)


def _fold_node(node: Node) -> Node:
    spec = map_spec(node.spec, folded)
    return node if spec == node.spec else replace(node, spec=spec)

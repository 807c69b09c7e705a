"""Compute calls of constants once, at compile time.

before: Filter(amount > 2 * 50)      after: Filter(amount > 100)

A call that fails stays: at run time it makes a dead letter per row, as it would without the rule.
"""

from __future__ import annotations

from flowql.compiler.functions.folding import fold_call
from flowql.compiler.plan.expr import Call
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.visit import map_exprs


def fold_constants(node: Node) -> Node:
    """Rule: see the module."""
    return map_exprs(node, fold_call, Call)

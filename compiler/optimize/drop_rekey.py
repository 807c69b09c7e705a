"""Remove a rekey that gives rows the key they have.

before: Rekey(ID := ID, Scan(key ID))      after: Scan(key ID)

Kept where it drops rows with a null key (GROUP BY and joins on a stream); the planner makes no repartition of it.
"""

from __future__ import annotations

from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import Node, Rekey
from flowql.compiler.plan.visit import rule_for


@rule_for(Rekey)
def drop_rekey(node: Node) -> Node:
    """Rule: see the module."""
    spec = node.spec
    if not isinstance(spec, Rekey):
        return node
    below = node.inputs[0]
    same = all(isinstance(k.expr, Column) and k.expr.name == k.name for k in spec.keys)
    if not same or [k.name for k in spec.keys] != [f.name for f in below.schema.key] or below.schema.window is not None:
        return node
    nulls_matter = spec.drop_null and node.change == "append"
    return node if nulls_matter or not spec.keys else below

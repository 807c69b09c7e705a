"""EMIT ON WINDOW CLOSE of groups of rows that only come: the aggregation gives each group once, and no operator holds its results back.

before: EmitClosed(w2 at +10, Project(w2 := w, n, GroupAggregate(by w, n := COUNT(*), forgotten at w + 10)))
after:  Project(w2 := w, n, GroupAggregate(by w, n := COUNT(*), given at w + 10))
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze.relations.records import only_adds
from flowql.compiler.plan.changes import GroupAggregate
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import Node, Project
from flowql.compiler.plan.visit import rule_for
from flowql.compiler.plan.watermarks import EmitClosed


@rule_for(EmitClosed)
def close_groups(node: Node) -> Node:
    """Rule: see the module."""
    if not isinstance(node.spec, EmitClosed):
        return node
    at = {(c.column, c.after) for c in node.spec.columns}
    chain, (below,) = list[Node](), node.inputs
    while isinstance(below.spec, Project):
        passed = {c.name: c.expr.name for c in below.spec.columns if isinstance(c.expr, Column)}
        if len(passed) < len(below.spec.columns):  # a column may fail for the result of some of the rows
            return node
        at = {(passed[column], after) for column, after in at}
        chain.append(below)
        (below,) = below.inputs
    spec = below.spec
    if not isinstance(spec, GroupAggregate) or not spec.closing or not only_adds(below.inputs[0]):
        return node
    keys = dict(zip((f.name for f in below.schema.key), spec.keys, strict=True))
    if {(keys.get(column), after) for column, after in at} != {(c.column, c.after) for c in spec.closing}:
        return node
    made = replace(below, spec=replace(spec, final=True))
    for above in reversed(chain):
        made = replace(above, inputs=(made,))
    return made

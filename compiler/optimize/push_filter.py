"""Filter earlier: below projections and changes of key, on the stream side of a stream-table join, and below inner joins of streams that forget nothing.

before: Filter(L_A > 1, Project(L_A := A, Scan))     after: Project(L_A := A, Filter(A > 1, Scan))
before: Filter(L_A > 1 AND R_B = 2, Join(L, R))      after: Filter(R_B = 2, Join(Filter(L_A > 1, L), R))

Never past an operator that looks at stream time (stream-stream joins, aggregations): rows that are dropped below it would no longer move
it (rule R4). An inner join of streams does not look at it where both sides keep rows for longer than any two times of records are apart.
Only deterministic predicates move, and none over the result of a user-defined function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.user import is_users
from flowql.compiler.plan.event_times import EARLIEST_MS
from flowql.compiler.plan.expr import Call, Expr, columns_of, conjunction, conjuncts, walk
from flowql.compiler.plan.logical import Explode, Filter, Join, Node, Project, Rekey, Scan, Union, walk_nodes
from flowql.compiler.plan.visit import map_nodes, substitute


def push_filter(node: Node) -> Node:
    """Rule: see the module."""
    return map_nodes(node, _push, Filter)


def _push(node: Node) -> Node:
    if not isinstance(node.spec, Filter) or not is_deterministic(node.spec.predicate):
        return node
    below = node.inputs[0]
    if isinstance(below.spec, Project):
        return below_project(node, below, below.spec, _push)
    if isinstance(below.spec, Rekey):
        return _below_rekey(node, below, below.spec)
    if isinstance(below.spec, Join) and below.spec.shape == "stream-table":
        return _below_join(node, below, (0,))
    if isinstance(below.spec, Join) and _forgets_nothing(below, below.spec):
        return _below_join(node, below, (0, 1))
    return node


def below_project(node: Node, below: Node, spec: Project, push: Callable[[Node], Node]) -> Node:
    """The projection over the filter; push: moves the filter on from there."""
    assert isinstance(node.spec, Filter)
    columns = {c.name: c.expr for c in spec.columns}
    used = [columns[n] for n in columns_of(node.spec.predicate) if n in columns]
    if not is_deterministic(*used) or calls_users(*used):
        return node
    source = below.inputs[0]
    filtered = Node(Filter(substitute(node.spec.predicate, columns)), (source,), source.schema, source.change)
    return replace(below, inputs=(push(filtered),))


def _below_rekey(node: Node, below: Node, spec: Rekey) -> Node:
    assert isinstance(node.spec, Filter)
    keys = {k.name: k.expr for k in spec.keys}
    if not is_deterministic(*keys.values()):
        return node
    source = below.inputs[0]
    filtered = Node(Filter(substitute(node.spec.predicate, keys)), (source,), source.schema, source.change)
    return replace(below, inputs=(_push(filtered),))


def _below_join(node: Node, join: Node, sides: tuple[int, ...]) -> Node:
    """On these sides, conditions that read columns of one side alone, and not the key."""
    assert isinstance(node.spec, Filter)
    key = {f.name for f in join.schema if f.role == "key"}
    kept, inputs = conjuncts(node.spec.predicate), list(join.inputs)
    for side in sides:
        own = set(inputs[side].schema.names) - key
        moved = [c for c in kept if columns_of(c) and columns_of(c) <= own]
        if moved:
            kept = [c for c in kept if c not in moved]
            below = inputs[side]
            inputs[side] = _push(Node(Filter(conjunction(moved)), (below,), below.schema, below.change))
    if len(kept) == len(conjuncts(node.spec.predicate)):
        return node
    joined = replace(join, inputs=tuple(inputs))
    return replace(node, spec=Filter(conjunction(kept)), inputs=(joined,)) if kept else joined


def _forgets_nothing(node: Node, spec: Join) -> bool:
    """Whether an inner join of streams keeps every row for all times: no row is late then, and none expires."""
    if spec.shape != "stream-stream" or spec.kind != "inner" or min(spec.before_ms, spec.after_ms) < 0:
        return False
    kept_ms = spec.before_ms + spec.after_ms + (spec.grace_ms or 0)
    below = [n.spec for i in node.inputs for n in walk_nodes(i)]
    if not all(isinstance(s, Scan | Project | Filter | Explode | Rekey | Union | Join) for s in below):
        return False  # it may give rows a time of its own
    times = [s.times for s in below if isinstance(s, Scan)]
    first_ms = min(EARLIEST_MS if t.earliest_ms is None else t.earliest_ms for t in times)
    return kept_ms >= max(t.latest_ms for t in times) - first_ms


def calls_users(*exprs: Expr) -> bool:
    """Whether one calls a user-defined function: with a copy of it below, each row would be given to the function twice."""
    return any(isinstance(c, Call) and is_users(c.name) for c in walk(*exprs))


def is_deterministic(*exprs: Expr) -> bool:
    calls = [c for c in walk(*exprs) if isinstance(c, Call)]
    return all((f := lookup(c.name)) is None or f.deterministic for c in calls)

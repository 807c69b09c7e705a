"""Read and carry only the columns that something above uses.

before: Project(A, Scan(A, B, C))      after: Project(A, Scan(A))

Keys of tables and of join inputs stay, and window bounds. Values are decoded, stored and shuffled less.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    GroupCall,
    Over,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.expr import columns_of
from flowql.compiler.plan.logical import Aggregate, Explode, Filter, Join, Materialise, Node, Project, Rekey, Scan
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.visit import columns_read
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed

Names = frozenset[str]


def prune_columns(node: Node) -> Node:
    """Rule: see the module."""
    return _prune(node, frozenset(node.schema.names))


def _prune(node: Node, needed: Names) -> Node:
    match node.spec:
        case Scan():
            return replace(node, schema=_scan_schema(node, needed))
        case Project(columns):
            needed |= _bound_to_key(node)
            kept = tuple(c for c in columns if c.name in needed)
            below = _prune(node.inputs[0], columns_of(*(c.expr for c in kept)))
            schema = _only(node.schema, frozenset(c.name for c in kept))
            return Node(replace(node.spec, columns=kept), (below,), schema, node.change)
        case Filter() | Materialise():
            keys = _keys(node.inputs[0]) if node.change != "append" else frozenset()
            below = _prune(node.inputs[0], needed | columns_read(node.spec) | keys)
            return replace(node, inputs=(below,), schema=below.schema)
        case Explode(functions):
            made = frozenset(f.name for f in functions)
            below = _prune(node.inputs[0], (needed - made) | columns_read(node.spec))
            return replace(node, inputs=(below,), schema=_only(node.schema, frozenset(below.schema.names) | made))
        case AsyncMap():
            return _prune_calls(node, node.spec, needed)
        case Rekey(keys):
            names = frozenset(k.name for k in keys)
            below = _prune(node.inputs[0], (needed - names) | columns_of(*(k.expr for k in keys)))
            return replace(node, inputs=(below,), schema=_only(node.schema, needed | names))
        case Aggregate():
            if node.spec.null_groups:  # of standard SQL, where groups do not depend on their aggregates
                aggregates = tuple(a for a in node.spec.aggregates if a.name in needed)
                schema = _only(node.schema, _keys(node) | frozenset(a.name for a in aggregates))
                node = replace(node, spec=replace(node.spec, aggregates=aggregates), schema=schema)
            below = _prune(node.inputs[0], columns_read(node.spec) | _keys(node.inputs[0]))
            return replace(node, inputs=(below,))
        case Join():
            return _prune_join(node, needed)
        case EquiJoin(_, left_keys, right_keys) | TemporalJoin(_, left_keys, right_keys):
            closing = [c.column for side in node.spec.closing for c in side] if isinstance(node.spec, EquiJoin) else []
            return _prune_join(node, needed, frozenset((*left_keys, *right_keys, *closing)))
        case VersionJoin(_, left_keys, right_keys, left_time, right_time):
            return _prune_join(node, needed, frozenset((*left_keys, *right_keys, left_time, right_time)))
        case GroupAggregate(calls=calls):
            return _prune_groups(node, needed, calls)
        case TopN(keys, order):
            own = frozenset((*keys, *(k.column for k in order)))
            below = _prune(node.inputs[0], (needed - {node.spec.rank}) | own | _keys(node.inputs[0]))
            return replace(
                node, inputs=(below,), schema=_only(node.schema, frozenset(below.schema.names) | {node.spec.rank})
            )
        case Over(keys, order, calls):
            made = frozenset(c.name for c in calls)
            read = [*keys, *(k.column for k in order), *(a for c in calls for a in (*c.args, c.filter) if a)]
            below = _prune(node.inputs[0], (needed - made) | frozenset(read) | _keys(node.inputs[0]))
            return replace(node, inputs=(below,), schema=_only(node.schema, frozenset(below.schema.names) | made))
        case Consolidate() | AppendOnly() | EmitClosed() | TemporalFilter():
            below = _prune(node.inputs[0], needed | _read(node.spec) | _keys(node.inputs[0]))
            return replace(node, inputs=(below,), schema=below.schema)
    return replace(node, inputs=tuple(_prune(i, frozenset(i.schema.names)) for i in node.inputs))


def _prune_calls(node: Node, spec: AsyncMap, needed: Names) -> Node:
    """Removes asynchronous calls whose results are not used. The key stays, as the order of rows depends on it."""
    made, calls = frozenset(c.name for c in spec.calls), tuple(c for c in spec.calls if c.name in needed)
    if not calls:
        return _prune(node.inputs[0], needed)
    read = frozenset(a for c in calls for a in c.args)
    below = _prune(node.inputs[0], (needed - made) | read | _keys(node.inputs[0]))
    columns = tuple(f for f in node.schema.fields if f.name in needed & made)
    schema = Schema((*below.schema.fields, *columns), node.schema.window)
    return replace(node, spec=replace(spec, calls=calls), inputs=(below,), schema=schema)


def _read(spec: Consolidate | AppendOnly | EmitClosed | TemporalFilter) -> Names:
    """The columns that the operator itself looks at."""
    match spec:
        case AppendOnly(watermark):
            return frozenset() if watermark is None else frozenset({watermark.column})
        case EmitClosed(columns):
            return frozenset(c.column for c in columns)
        case TemporalFilter():
            return frozenset(spec.columns)
    return frozenset()


def _prune_groups(node: Node, needed: Names, calls: tuple[GroupCall, ...]) -> Node:
    """Drops aggregates that no later step reads. The session operator needs at least one."""
    assert isinstance(node.spec, GroupAggregate)
    least = calls[:1] if node.spec.sessions is not None else ()
    kept = tuple(c for c in calls if c.name in needed) or least
    read = [a for c in kept for a in (*c.args, *(k.column for k in c.order), c.filter)]
    own = (*node.spec.partition, *(() if node.spec.sessions is None else (node.spec.sessions.time,)))
    below = _prune(node.inputs[0], frozenset((*own, *filter(None, read))) | _keys(node.inputs[0]))
    schema = _only(node.schema, _keys(node) | frozenset(c.name for c in kept))
    return replace(node, spec=replace(node.spec, calls=kept), inputs=(below,), schema=schema)


def _prune_join(node: Node, needed: Names, keys: Names = frozenset()) -> Node:
    inputs = []
    for i in node.inputs:
        wanted = (needed & frozenset(i.schema.names)) | _keys(i) | columns_read(node.spec) | keys
        inputs.append(_prune(i, wanted & frozenset(i.schema.names)))
    return replace(node, inputs=tuple(inputs), schema=_only(node.schema, needed | _keys(node)))


def _keys(node: Node) -> Names:
    return frozenset(f.name for f in node.schema.fields if f.role in ("key", "window"))


def _bound_to_key(node: Node) -> Names:
    """Key and window columns of a table must stay; of a stream only window bounds must (they belong to the key)."""
    roles = ("window",) if node.change == "append" else ("window", "key")
    return frozenset(f.name for f in node.schema.fields if f.role in roles)


def _scan_schema(node: Node, needed: Names) -> Schema:
    assert isinstance(node.spec, Scan)
    keys = frozenset(f.name for f in node.schema.key)
    time = node.spec.timestamp.column if node.spec.timestamp is not None else ""
    if needed & keys or time in keys:
        needed |= keys  # the parts of a key are read together: some formats tell them apart by their place
    needed |= _bound_to_key(node)
    kept = tuple(f for f in node.schema.fields if f.name in needed)
    # A batch without columns says nothing of its rows to some kernels: keep one that no record can spoil.
    spare = tuple(f for f in node.schema.fields if f.role == "pseudo")[:1] or node.schema.fields[:1]
    return Schema(kept or spare, node.schema.window)


def _only(schema: Schema, names: Names) -> Schema:
    return Schema(tuple(f for f in schema.fields if f.name in names), schema.window)

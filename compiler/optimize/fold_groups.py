"""Groups of rows that only come are folded: state is one accumulator per aggregate, and a row is read by columns.

before: Consolidate(Project(GroupAggregate(SUM(a), Project(AppendOnly(Scan)))))
after:  Project(Aggregate(sql_sum(a), Rekey(b, Project(Scan))))

Where no row leaves, both give the same rows to the last bit for the aggregates and keys below; a sum that may
overflow is not among them, as a fold leaves the row out with which it does. A watermark closes the groups of either. One task gives all
changes of a group, in order, so behind any aggregation whose groups are the row identity `Consolidate` has nothing to do.
"""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze.relation import rekey
from flowql.compiler.analyze.relations.records import as_records
from flowql.compiler.functions.registry import AGGREGATE_NAMES, lookup_aggregate
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.user import is_users
from flowql.compiler.plan.changes import Consolidate, GroupAggregate, GroupCall
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Aggregate, AggregateCall, Filter, NamedExpr, Node, Project
from flowql.compiler.plan.types import BOOLEAN, Kind, SqlType
from flowql.compiler.plan.visit import columns_read, rule_for
from flowql.compiler.plan.watermarks import Closing

# Equal keys have the same bytes in each format of a repartition.
_KEYS = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP)
_SUMMED_DIGITS = 20  # 10 ** 18 such numbers have a sum that fits


@rule_for(Consolidate, GroupAggregate)
def fold_groups(node: Node) -> Node:
    """Rule: see the module."""
    if isinstance(node.spec, Consolidate):
        return node.inputs[0] if _gives_groups(node.inputs[0]) else node
    return _fold(node, node.spec) if isinstance(node.spec, GroupAggregate) else node


def _gives_groups(node: Node) -> bool:
    """Whether the row identity is the key of groups that one operator gives."""
    names = {f.name for f in node.schema.key}
    while isinstance(node.spec, Project | Filter):
        if isinstance(node.spec, Project):
            exprs = [c.expr for c in node.spec.columns if c.name in names]
            if not all(isinstance(e, Column) for e in exprs):
                return False
            names = {e.name for e in exprs if isinstance(e, Column)}
        (node,) = node.inputs
    return isinstance(node.spec, Aggregate | GroupAggregate) and names == {f.name for f in node.schema.key}


def _fold(node: Node, spec: GroupAggregate) -> Node:
    types = {f.name: f.type for f in node.inputs[0].schema.fields}
    calls = [_call(c, types) for c in spec.calls]
    if (
        spec.sessions is not None
        or not spec.keys
        or None in calls
        or any(types[k].kind not in _KEYS for k in spec.keys)
    ):
        return node
    records = as_records(node.inputs[0])
    if records is None:
        return node
    made = Aggregate(tuple(c for c in calls if c is not None), null_groups=True)
    if not columns_read(made) | set(spec.keys) <= set(records.schema.names):  # the identity of a row is among them
        return node
    keys = [NamedExpr(f.name, Column(f.type, k)) for f, k in zip(node.schema.key, spec.keys, strict=True)]
    below = rekey(records, keys, drop_null=False)
    names = dict(zip(spec.keys, (k.name for k in keys), strict=True))
    closing = tuple(Closing(names[c.column], c.after) for c in spec.closing)
    made = replace(made, closing=closing, emit_final=spec.final)
    return Node(made, (below,), node.schema, "retract")


def _call(call: GroupCall, types: dict[str, SqlType]) -> AggregateCall | None:
    """The fold that gives the same; None if there is none."""
    own = is_users(call.function)
    function = lookup_aggregate(AGGREGATE_NAMES.get(call.function, call.function))
    if function is None or call.distinct or (not own and (call.init or not function.arrow)):
        return None
    args: tuple[Expr, ...] = tuple(Column(types[a], a) for a in call.args)
    if call.function in ("SUM", "AVG") and not _is_small(args[0].type):
        return None
    try:
        resolved = function.resolve(tuple(a.type for a in args), call.init)
    except FunctionTypeError:
        return None
    if resolved.args != tuple(a.type for a in args) or resolved.result != call.type:
        return None
    if call.filter:  # where it is not true there is no value
        met, value = Column(BOOLEAN, call.filter), args[0] if args else Literal(BOOLEAN, True)
        args = (Call(value.type, "case", (met, value, Literal(value.type, None))),)
    return AggregateCall(call.name, function.name, args, call.type, call.init)


def _is_small(t: SqlType) -> bool:
    return t.kind in (Kind.INT, Kind.BIGINT) or (t.kind is Kind.DECIMAL and t.precision <= _SUMMED_DIGITS)

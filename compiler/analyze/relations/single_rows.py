"""Plans whose form alone says that they have at most one row: a sub-query of such a plan may stand for a value as it is."""

from __future__ import annotations

from flowql.compiler.analyze.relations.joins import EQUAL
from flowql.compiler.plan.changes import EquiJoin, GroupAggregate, TopN
from flowql.compiler.plan.expr import Call, Column, Expr, columns_of, conjuncts
from flowql.compiler.plan.logical import Filter, Node, Project, Scan, walk_nodes
from flowql.compiler.plan.watermarks import AppendOnly


def at_most_one(node: Node, fixed: frozenset[str] = frozenset()) -> bool:
    """Whether there is at most one row for one value of each of the columns `fixed`.

    before: (SELECT v FROM u WHERE k = 1), k the PRIMARY KEY      after: at_most_one(Filter(k = 1, ...)) is True
    """
    if not _has_identity(node):
        return False
    if {f.name for f in node.schema.key} <= fixed:
        return True
    match node.spec:
        case Project(columns):
            below = {c.expr.name for c in columns if c.name in fixed and isinstance(c.expr, Column)}
            return at_most_one(node.inputs[0], frozenset(below))
        case Filter(predicate):
            return at_most_one(node.inputs[0], fixed | {n for c in conjuncts(predicate) if (n := _constant(c))})
        case GroupAggregate(keys):
            pairs = zip(keys, node.schema.key, strict=True)
            return at_most_one(node.inputs[0], frozenset(k for k, f in pairs if f.name in fixed))
        case TopN(keys, _, limit, _, function):
            first = function == "row_number" and limit is not None and limit <= 1 and fixed.issuperset(keys)
            return first or at_most_one(node.inputs[0], fixed)
        case EquiJoin():
            return _joined_once(node, node.spec, fixed)
    return False


def _has_identity(node: Node) -> bool:
    """Whether the key columns of a node tell its rows apart; those of a record of a stream do not."""
    if not isinstance(node.spec, (Scan, AppendOnly)):
        return True
    return all(not isinstance(n.spec, Scan) or n.spec.kind == "table" for n in walk_nodes(node))


def _constant(condition: Expr) -> str:
    """The column that a condition compares with a constant; empty for another condition."""
    if not isinstance(condition, Call) or condition.name != EQUAL:
        return ""
    a, b = condition.args
    if isinstance(b, Column):
        a, b = b, a
    return a.name if isinstance(a, Column) and not columns_of(b) else ""


def _joined_once(node: Node, join: EquiJoin, fixed: frozenset[str]) -> bool:
    """One row of a side has at most one of the other where the keys of the join name no more than one there."""
    left, right = node.inputs
    if join.kind in ("semi", "anti"):
        return at_most_one(left, fixed)
    if join.kind in ("inner", "left") and at_most_one(left, fixed):
        return at_most_one(right, fixed | set(join.right_keys))
    return (
        join.kind in ("inner", "right") and at_most_one(right, fixed) and at_most_one(left, fixed | set(join.left_keys))
    )

"""Joins of relations: which conditions are equalities of both sides, in which order relations meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowql.compiler.analyze.relations.relation import Names, Rel, as_columns, filtered
from flowql.compiler.functions.coercion import unify
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.sql_comparison import NULL_IF_FAILED, PREFIX
from flowql.compiler.plan.changes import EquiJoin, EquiJoinKind
from flowql.compiler.plan.expr import Call, Expr, columns_of, conjunction, conjuncts
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import INT, Kind

# Kinds that show no row of a side for which the condition is not true: it may be filtered before.
_FILTER_LEFT, _FILTER_RIGHT = ("inner", "semi", "right"), ("inner", "semi", "anti", "left")
_SHOWS = {"left": (True, False), "right": (False, True), "full": (True, True), "anti": (True, False)}
EQUAL, NOT_DISTINCT = PREFIX + "eq", "is_not_distinct"


@dataclass(frozen=True, slots=True)
class Equality:
    """left = right, each an expression over one side, both of one type."""

    left: Expr
    right: Expr
    null_safe: bool


def equality(condition: Expr, left: frozenset[str], right: frozenset[str]) -> Equality | None:
    """The condition as an equality of both sides, if it is one."""
    if not isinstance(condition, Call) or condition.name not in (EQUAL, NOT_DISTINCT, PREFIX + NOT_DISTINCT):
        return None
    a, b = condition.args
    if columns_of(a) <= right and columns_of(b) <= left:
        a, b = b, a
    if not (columns_of(a) and columns_of(b) and columns_of(a) <= left and columns_of(b) <= right):
        return None
    if a.type != b.type:
        try:
            _, (a, b) = unify((a, b), strict=True)
        except FunctionTypeError:
            return None
    if a.type.kind in (Kind.MAP,):
        return None
    return Equality(a, b, condition.name != EQUAL)


def all_conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction; of `(a AND x) OR (a AND y)` also a, so that it may be the key of a join."""
    parts: list[Expr] = []
    for part in conjuncts(condition):
        common = _common(part)
        parts += [*(c for c in common if c not in parts), part]
    return parts


def _common(e: Expr) -> list[Expr]:
    if not isinstance(e, Call) or e.name != "or":
        return []
    branches = [conjuncts(b) for b in _branches(e)]
    return [c for c in branches[0] if all(c in b for b in branches[1:])]


def _branches(e: Expr) -> list[Expr]:
    return [b for a in e.args for b in _branches(a)] if isinstance(e, Call) and e.name == "or" else [e]


def joined(kind: EquiJoinKind, left: Rel, right: Rel, conditions: Sequence[Expr], names: Names) -> Rel:
    """Pairs for which all conditions are true. Columns: those of the left, then of the right; of semi and anti those of the left."""
    pairs: list[Equality] = []
    others: list[Expr] = []
    found = [(c, equality(c, left.names, right.names)) for c in conditions]
    null_safe = bool(found) and all(e is None or e.null_safe for _, e in found)
    for condition, pair in found:
        if pair is not None and pair.null_safe == null_safe:
            pairs.append(pair)
        elif kind in _FILTER_LEFT and frozenset() < columns_of(condition) <= left.names:
            left = filtered(left, [condition])
        elif kind in _FILTER_RIGHT and frozenset() < columns_of(condition) <= right.names:
            right = filtered(right, [condition])
        else:
            others.append(condition)
    shown = _SHOWS.get(kind, (False, False)) if not null_safe else (False, False)
    left, left_keys = as_columns(left, [_key(p.left, null=shown[0]) for p in pairs], names, "key")
    right, right_keys = as_columns(right, [_key(p.right, null=shown[1]) for p in pairs], names, "key")
    residual = conjunction(others) if others else None
    spec = EquiJoin(kind, tuple(left_keys), tuple(right_keys), residual, null_safe and bool(pairs))
    sides = [left] if kind in ("semi", "anti") else [left, right]
    keys = [f for s in sides for f in s.node.schema.key]
    if kind == "full":
        keys.append(Field(names.fresh("__missing"), INT, "key"))
    rest = [f for s in sides for f in s.node.schema if f.role != "key"]
    node = Node(spec, (left.node, right.node), Schema((*keys, *rest)), "retract")
    return Rel(node, tuple(c for s in sides for c in s.columns))


def _key(e: Expr, *, null: bool) -> Expr:
    """A key of a side whose rows are shown without a match is NULL where it fails; of another side the row is left out."""
    return Call(e.type, NULL_IF_FAILED, (e,)) if null and isinstance(e, Call) else e


def _decided_by(names: frozenset[str], conditions: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The conditions that read some of these columns and no others, and the rest."""
    own: list[Expr] = []
    rest: list[Expr] = []
    for c in conditions:
        read = columns_of(c)
        (own if read and read <= names else rest).append(c)
    return own, rest


def joined_all(factors: Sequence[Rel], conditions: Sequence[Expr], names: Names) -> Rel:
    """An inner join of all. Conditions on one relation filter it; the next relation to join is one that an equality connects."""
    waiting = list(conditions)
    rels: list[Rel] = []
    for factor in factors:
        own, waiting = _decided_by(factor.names, waiting)
        rels.append(filtered(factor, own))
    columns = tuple(c for f in factors for c in f.columns)
    whole, *rest = rels
    while rest:
        chosen = next((r for r in rest if any(equality(c, whole.names, r.names) for c in waiting)), rest[0])
        rest.remove(chosen)
        now, waiting = _decided_by(whole.names | chosen.names, waiting)
        whole = joined("inner", whole, chosen, now, names)
    return Rel(filtered(whole, waiting).node, columns)

"""Calls of constants, computed. A call that fails stays: at run time it makes a dead letter per row."""

from __future__ import annotations

from decimal import Decimal

from flowql.compiler.functions.casts import caster
from flowql.compiler.functions.registry import lookup
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.visit import map_expr

_FOLDED_MAX = 64 << 10  # characters of a constant in a plan; a longer one is made for each row


def folded(e: Expr) -> Expr:
    """The expression with calls of constants computed."""
    return map_expr(e, fold_call, Call)


def fold_call(e: Expr) -> Expr:
    """A call of constants as its value, if it can be computed now."""
    if not isinstance(e, Call) or not e.args or not all(isinstance(a, Literal) for a in e.args):
        return e
    function = lookup(e.name)
    if function is None or not function.deterministic or function.lazy or function.table or e.name == "field":
        return e
    values = [a.value for a in e.args if isinstance(a, Literal)]
    if function.null_propagating and any(v is None for v in values):
        return Literal(e.type, None, e.span)
    if e.name == "cast":
        return _fold_cast(e)
    try:
        found = function.resolve(tuple(a.type for a in e.args))
        if found.result != e.type or found.args != tuple(a.type for a in e.args):
            return e
        value = function.reference(found)(*values)
    except Exception:
        return e
    plain = value is None or isinstance(value, (bool, int, float, str, bytes, Decimal))
    if isinstance(value, (str, bytes)) and len(value) > _FOLDED_MAX:
        return e
    return Literal(e.type, value, e.span) if plain else e


def _fold_cast(e: Call) -> Expr:
    """A cast of a number to another number; other casts depend on formats and are left to the row."""
    (operand,) = e.args
    if not (isinstance(operand, Literal) and operand.type.is_numeric and e.type.is_numeric):
        return e
    try:
        return Literal(e.type, caster(operand.type, e.type)(operand.value), e.span)
    except (ArithmeticError, ValueError):
        return e

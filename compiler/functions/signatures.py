"""Overloads: which argument types a function takes, and what each call gives.

A parameter is a pattern: a SQL type, a type variable, or a container of patterns. An argument fits exactly, or by
the implicit conversions of ksqlDB (INT -> BIGINT -> DECIMAL -> DOUBLE; NULL to anything). The overload with the
least conversion wins; of equals the one declared first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, Kind, SqlType, array, decimal, map_of


class FunctionTypeError(Exception):
    """No overload fits the argument types. The text names the function and the types; `hint` may suggest a cast."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a call binds: the types its arguments are coerced to, and the type of its result."""

    args: tuple[SqlType, ...]
    result: SqlType


@dataclass(frozen=True, slots=True)
class Var:
    """A type variable: the same type wherever it stands in one overload. `kinds` limits it when not empty."""

    name: str
    kinds: frozenset[Kind] = frozenset()


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """ARRAY of a pattern."""

    element: Pattern


@dataclass(frozen=True, slots=True)
class MapOf:
    """MAP of patterns."""

    key: Pattern
    value: Pattern


@dataclass(frozen=True, slots=True)
class StructOf:
    """A STRUCT that has fields of these names, whatever their case, beside any others; bound under `name`. An INT may stand for a BIGINT there."""

    name: str
    fields: tuple[tuple[str, Pattern], ...]


@dataclass(frozen=True, slots=True)
class AnyDecimal:
    """A DECIMAL of any precision and scale; bound under `name`."""

    name: str = "D"


@dataclass(frozen=True, slots=True)
class LambdaOf:
    """A lambda whose body has the type bound to `result`."""

    result: Pattern


Pattern = SqlType | Var | ArrayOf | MapOf | StructOf | AnyDecimal | LambdaOf
Bindings = Mapping[str, SqlType]

T, K, V, U = Var("T"), Var("K"), Var("V"), Var("U")
DEC = AnyDecimal()
_EXACT, _NULL, _ZONE, _WIDEN = 0, 1, 1, 10
_NUMERIC_ORDER = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)
_INTEGER_DIGITS = {Kind.INT: 10, Kind.BIGINT: 19}


def lambda_type(body: SqlType) -> SqlType:
    """The type under which a lambda argument is given to `Function.resolve`: LAMBDA of its body's type."""
    return SqlType(Kind.LAMBDA, args=(body,))


@dataclass(frozen=True, slots=True)
class Overload:
    """One list of parameters. `variadic`: the last parameter may repeat, `min_repeat` times or more. needs: parameters after so many may be
    left out; None: no parameter may.

    result: a type, a pattern over the bound variables, or a function of the coerced argument types.
    """

    params: tuple[Pattern, ...]
    result: Pattern | Callable[[tuple[SqlType, ...]], SqlType]
    variadic: bool = False
    min_repeat: int = field(default=1)
    needs: int | None = None

    def fit(self, types: Sequence[SqlType]) -> tuple[int, Resolution] | None:
        params = self._params_for(len(types))
        if params is None:
            return None
        bound: dict[str, SqlType] = {}
        cost = 0
        for p, t in sorted(zip(params, types, strict=True), key=lambda pt: pt[1].kind is Kind.NULL):
            c = _match(p, t, bound)
            if c is None:
                return None
            cost += c
        args = tuple(_substitute(p, bound) for p in params)
        result = self.result(args) if callable(self.result) else _substitute(self.result, bound)
        return cost, Resolution(args, result)

    def _params_for(self, n: int) -> tuple[Pattern, ...] | None:
        if not self.variadic:
            least = len(self.params) if self.needs is None else self.needs
            return self.params[:n] if least <= n <= len(self.params) else None
        fixed = self.params[:-1]
        if n < len(fixed) + self.min_repeat:
            return None
        return fixed + (self.params[-1],) * (n - len(fixed))


def as_decimal(t: SqlType) -> SqlType:
    """The DECIMAL that holds every value of an integer type; a DECIMAL is itself."""
    return t if t.kind is Kind.DECIMAL else decimal(_INTEGER_DIGITS[t.kind], 0)


def widen_decimals(a: SqlType, b: SqlType) -> SqlType:
    """The smallest DECIMAL, up to 38 digits, that holds values of both."""
    scale = max(a.scale, b.scale)
    return decimal(min(38, max(a.precision - a.scale, b.precision - b.scale) + scale), scale)


def _rank(t: SqlType) -> int | None:
    return _NUMERIC_ORDER.index(t.kind) if t.kind in _NUMERIC_ORDER else None


def _widening(to: Kind, t: SqlType) -> int | None:
    """The cost of passing `t` where a `to` is wanted, or None."""
    if t.kind is to:
        return _EXACT
    source = _rank(t)
    if to is Kind.MICROS and t.kind is Kind.TIMESTAMP:
        return _WIDEN
    if source is None or to not in _NUMERIC_ORDER:
        return None
    steps = _NUMERIC_ORDER.index(to) - source
    return _WIDEN * steps if steps > 0 else None


def _match(p: Pattern, t: SqlType, bound: dict[str, SqlType]) -> int | None:
    if isinstance(p, LambdaOf):
        return _match(p.result, t.args[0], bound) if t.kind is Kind.LAMBDA and t.args else None
    if t.kind is Kind.LAMBDA:
        return None
    if t.kind is Kind.NULL:
        return _NULL
    if isinstance(p, SqlType):
        if p.form != t.form:
            return None
        if p.zoned != t.zoned:
            cost = _widening(p.kind, t) if p.kind in _MOMENTS else None
            return None if cost is None else cost + _ZONE
        return _EXACT if p == t else (None if p.kind in (Kind.ARRAY, Kind.MAP) else _widening(p.kind, t))
    if isinstance(p, AnyDecimal):
        return _match_decimal(p, t, bound)
    if isinstance(p, Var):
        return _match_var(p, t, bound)
    if isinstance(p, StructOf):
        return _match_struct(p, t, bound)
    if isinstance(p, ArrayOf):
        return _match(p.element, t.element, bound) if t.kind is Kind.ARRAY else None
    if t.kind is not Kind.MAP:
        return None
    key, value = _match(p.key, t.args[0], bound), _match(p.value, t.args[1], bound)
    return None if key is None or value is None else key + value


def _match_struct(p: StructOf, t: SqlType, bound: dict[str, SqlType]) -> int | None:
    """Values within are given as they are, so their types fit as they are."""
    known = {n.casefold(): f for n, f in t.fields}
    if t.kind is not Kind.STRUCT or len(known) < len(t.fields):
        return None
    for name, wanted in p.fields:
        found = known.get(name.casefold())
        whole = found == INT and wanted == BIGINT
        if found is None or found.kind is Kind.NULL or not (whole or _match(wanted, found, bound) == _EXACT):
            return None
    bound[p.name] = t
    return _EXACT


def _match_decimal(p: AnyDecimal, t: SqlType, bound: dict[str, SqlType]) -> int | None:
    cost = _widening(Kind.DECIMAL, t)
    if cost is None:
        return None
    wanted = as_decimal(t)
    bound[p.name] = widen_decimals(bound[p.name], wanted) if p.name in bound else wanted
    return cost


def _match_var(p: Var, t: SqlType, bound: dict[str, SqlType]) -> int | None:
    if p.kinds and t.kind not in p.kinds:
        return None
    known = bound.get(p.name)
    if known is None or known == t:
        bound[p.name] = t
        return _EXACT
    if known.kind is Kind.DECIMAL and t.kind is Kind.DECIMAL:
        bound[p.name] = widen_decimals(known, t)
        return _EXACT
    common = common_numeric(known, t)
    if common is None:
        return None
    bound[p.name] = common
    return _WIDEN


def common_numeric(a: SqlType, b: SqlType) -> SqlType | None:
    """The wider of two numeric types, or None when one is not numeric."""
    if not (a.is_numeric and b.is_numeric):
        return None
    if Kind.DOUBLE in (a.kind, b.kind):
        return DOUBLE
    if Kind.DECIMAL in (a.kind, b.kind):
        return widen_decimals(as_decimal(a), as_decimal(b))
    return BIGINT if Kind.BIGINT in (a.kind, b.kind) else INT


def _substitute(p: Pattern, bound: Bindings) -> SqlType:
    if isinstance(p, SqlType):
        return p
    if isinstance(p, (Var, AnyDecimal, StructOf)):
        return bound.get(p.name, SqlType(Kind.NULL))
    if isinstance(p, ArrayOf):
        return array(_substitute(p.element, bound))
    if isinstance(p, LambdaOf):
        return lambda_type(_substitute(p.result, bound))
    return map_of(_substitute(p.key, bound), _substitute(p.value, bound))


def describe(p: Pattern) -> str:
    """A parameter as a person reads it."""
    if isinstance(p, SqlType):
        return str(p)
    if isinstance(p, Var):
        return p.name
    if isinstance(p, AnyDecimal):
        return "DECIMAL"
    if isinstance(p, StructOf):
        return f"STRUCT<{', '.join(f'{n} {describe(f)}' for n, f in p.fields)}>"
    if isinstance(p, ArrayOf):
        return f"ARRAY<{describe(p.element)}>"
    if isinstance(p, LambdaOf):
        return "LAMBDA"
    return f"MAP<{describe(p.key)}, {describe(p.value)}>"


def not_accepted(name: str, types: Sequence[SqlType], hint: str = "") -> FunctionTypeError:
    """The error of a call that fits no overload."""
    return FunctionTypeError(f"Function '{name}' does not accept parameters ({', '.join(map(str, types))})", hint)

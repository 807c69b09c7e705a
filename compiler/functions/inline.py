"""Expressions as Python source text.

A `GeneratedExpr` is the source text of one expression. Temporaries are bound by `:=`, so NULL checks need no statements and CASE,
AND, OR and COALESCE stay lazy. What has no text of its own here becomes a call of the function's reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.functions import arithmetic
from flowql.compiler.functions.comparison import SYMBOLS as COMPARISONS
from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN, wrap32, wrap64
from flowql.compiler.functions.registry import Function, Prepare, lookup
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.sql_arithmetic import RANGES, SQL_ARITHMETIC, out_of_range
from flowql.compiler.functions.sql_comparison import NULL_IF_FAILED, PREFIX, SQL_SYMBOLS
from flowql.compiler.functions.user import function_in_plan
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, LambdaVar, Literal
from flowql.compiler.plan.types import Kind

_PLAIN = frozenset(
    {Kind.INT, Kind.BIGINT, Kind.STRING, Kind.BOOLEAN, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.DECIMAL, Kind.BYTES}
    | {Kind.MICROS}
)
_RANGES = {Kind.INT: (INT_MIN, INT_MAX, "wrap32"), Kind.BIGINT: (BIGINT_MIN, BIGINT_MAX, "wrap64")}
_PYTHON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# With doubles a < b needs care: NaN is above every number and equal to itself.
_DOUBLES = {
    "eq": "({a} == {b} or ({a} != {a} and {b} != {b}))",
    "ne": "({a} != {b} and ({a} == {a} or {b} == {b}))",
    "lt": "({a} < {b} or ({b} != {b} and {a} == {a}))",
    "gt": "({b} < {a} or ({a} != {a} and {b} == {b}))",
    "le": "not ({b} < {a} or ({a} != {a} and {b} == {b}))",
    "ge": "not ({a} < {b} or ({b} != {b} and {a} == {a}))",
}
_ARITHMETIC = frozenset(arithmetic.SYMBOLS) | {"neg"}
# ksqlDB's tests, FALSE or TRUE also for NULL.
_NEVER_NULL = frozenset(COMPARISONS) | {"is_distinct", "is_not_distinct", "between", "not_between", "in", "not_in"}
_DEPTH_MAX = 16  # Python's parser refuses about 200 nested brackets; deeper expressions become local functions


class NullInLambda(ValueError):
    """Arithmetic on NULL inside a lambda, which fails the whole call as in ksqlDB."""


def _null_in_lambda() -> Any:
    raise NullInLambda("arithmetic on NULL inside a lambda")


@dataclass(frozen=True, slots=True)
class GeneratedExpr:
    """Source text. nullable: the value may be None. simple: a name or constant, free to repeat."""

    src: str
    nullable: bool = True
    simple: bool = False


class Emitter:
    """Generates source text from expressions over one row; collects the names the source needs."""

    def __init__(self, columns: Sequence[str], *, constants_apart: bool = False) -> None:
        """constants_apart: give constants names, so that the source is the same whatever their values."""
        self._constants_apart = constants_apart
        self._index = {c: i for i, c in enumerate(columns)}
        self._used: set[int] = set()
        self._hoisted: list[str] = []
        self.scopes: list[dict[str, str]] = []
        self._nested = 0  # depth of lambdas and thunks, whose names a hoisted function could not see
        self._count = 0
        self._depth = 0
        self.index = 0  # of the expression that is emitted, for reports of values that fail
        self.names: dict[str, Any] = {
            "wrap32": wrap32,
            "wrap64": wrap64,
            "null_in_lambda": _null_in_lambda,
            "out_of_range": out_of_range,
        }

    def prologue(self) -> list[str]:
        """Statements that load the columns and define hoisted parts."""
        return [f"c{i} = row[{i}]" for i in sorted(self._used)] + self._hoisted

    def emit(self, e: Expr) -> GeneratedExpr:
        if isinstance(e, Column):
            i = self._index[e.name]
            self._used.add(i)
            return GeneratedExpr(f"c{i}", simple=True)
        if isinstance(e, Literal):
            return self._literal(e)
        if isinstance(e, LambdaVar):
            return GeneratedExpr(next(s[e.name] for s in reversed(self.scopes) if e.name in s), simple=True)
        if isinstance(e, Lambda):
            return self._lambda(e)
        assert isinstance(e, Call)
        return self._nest(e)

    def _nest(self, e: Call) -> GeneratedExpr:
        self._depth += 1
        part = self._call(e)
        self._depth -= 1
        if self._depth and self._depth % _DEPTH_MAX == 0 and not self._nested:
            name = self.fresh("h")
            self._hoisted.append(f"def {name}(): return {part.src}")
            return GeneratedExpr(f"{name}()", part.nullable)
        return part

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    def constant(self, value: Any, prefix: str = "k") -> str:
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def _literal(self, e: Literal) -> GeneratedExpr:
        v = e.value
        if self._constants_apart and v is not None and not isinstance(v, bool):
            return GeneratedExpr(self.constant(v), nullable=False, simple=True)
        if v is None or isinstance(v, (bool, int, str)):
            return GeneratedExpr(f"({v!r})" if isinstance(v, int) else repr(v), v is None, simple=True)
        if isinstance(v, float) and math.isfinite(v):
            return GeneratedExpr(f"({v!r})", nullable=False, simple=True)
        return GeneratedExpr(self.constant(v), nullable=False, simple=True)

    def _lambda(self, e: Lambda) -> GeneratedExpr:
        params = {p: self.fresh("p") for p in e.params}
        self.scopes.append(params)
        body = self._inside(e.body)
        self.scopes.pop()
        return GeneratedExpr(f"(lambda {', '.join(params.values())}: {body.src})", nullable=False)

    def attempt(self, e: Expr) -> GeneratedExpr:
        """An expression that is NULL where it fails, whatever it stands in."""
        if _cannot_fail(e):
            return self.emit(e)
        return GeneratedExpr(f"attempt(lambda: {self._inside(e).src}, {self.index})")

    def attempt_apart(self, e: Expr) -> GeneratedExpr:
        """An expression that is NULL where it fails, which leaves the row as it is: reported as `~index`."""
        return GeneratedExpr(f"attempt(lambda: {self._inside(e).src}, {~self.index})")

    def _inside(self, e: Expr) -> GeneratedExpr:
        """An expression whose text stands inside a lambda or thunk."""
        self._nested += 1
        part = self.emit(e)
        self._nested -= 1
        return part

    def guard(self, args: Sequence[Expr], build: Callable[..., str], otherwise: str = "None") -> GeneratedExpr:
        """`build(names of the values)`, or `otherwise` when one is NULL."""
        tests: list[str] = []
        refs: list[str] = []
        nullable = False
        for p in map(self.emit, args):
            nullable = nullable or p.nullable
            ref = p.src if p.simple else self.fresh("t")
            refs.append(ref)
            if not p.simple:
                tests.append(f"({ref} := {p.src}) is None")
            elif p.nullable:
                tests.append(f"{ref} is None")
        if not tests:
            return GeneratedExpr(build(*refs), nullable=False)
        return GeneratedExpr(f"({otherwise} if {' or '.join(tests)} else {build(*refs)})", nullable)

    def _call(self, e: Call) -> GeneratedExpr:
        special = _SPECIAL.get(e.name)
        part = special(self, e) if special else None
        return part if part is not None else self._by_reference(e)

    def _by_reference(self, e: Call) -> GeneratedExpr:
        function = function_in_plan(e.name)
        if function is None:
            raise LookupError(f"the plan calls {e.name}, which is not in this catalogue of functions")
        resolution = Resolution(tuple(a.type for a in e.args), e.type)
        if function.prepare is not None and (part := self._prepared(e, function.prepare, resolution)) is not None:
            return part
        f = self.constant(function.reference(resolution), "f")
        if function.lazy:
            thunks = (f"(lambda: {self._inside(a).src})" for a in e.args)
            return GeneratedExpr(f"{f}({', '.join(thunks)})")
        if not function.null_propagating:
            return GeneratedExpr(
                f"{f}({', '.join(self.emit(a).src for a in e.args)})", nullable=e.name not in _NEVER_NULL
            )
        return self._propagating(e, f, function)

    def _prepared(self, e: Call, prepare: Prepare, resolution: Resolution) -> GeneratedExpr | None:
        """A call of one argument, where the others are constants."""
        varying = [a for a in e.args if not (isinstance(a, Literal) and a.value is not None)]
        if len(varying) != 1 or isinstance(varying[0], Literal):
            return None
        found = prepare(resolution, [a.value if isinstance(a, Literal) else None for a in e.args])
        if found is None:
            return None
        f = self.constant(found, "f")
        return GeneratedExpr(self.guard(varying, lambda ref: f"{f}({ref})").src)

    def _propagating(self, e: Call, f: str, _function: Function) -> GeneratedExpr:
        otherwise = "null_in_lambda()" if self.scopes and e.name in _ARITHMETIC else "None"
        part = self.guard(e.args, lambda *refs: f"{f}({', '.join(refs)})", otherwise)
        return GeneratedExpr(part.src, nullable=True)


def _arithmetic(g: Emitter, e: Call) -> GeneratedExpr | None:
    kind = e.type.kind
    if e.name in ("div", "mod") or kind not in (Kind.INT, Kind.BIGINT, Kind.DOUBLE):
        return None  # a text can be too large
    symbol = arithmetic.SYMBOLS[e.name]
    otherwise = "null_in_lambda()" if g.scopes else "None"
    if kind is Kind.DOUBLE:
        return g.guard(e.args, lambda a, b: f"({a} {symbol} {b})", otherwise)
    low, high, wrap = _RANGES[kind]
    t = g.fresh("t")
    return g.guard(
        e.args, lambda a, b: f"({t} if {low} <= ({t} := {a} {symbol} {b}) <= {high} else {wrap}({t}))", otherwise
    )


def _sql_arithmetic(g: Emitter, e: Call) -> GeneratedExpr | None:
    kind = e.type.kind
    if kind not in RANGES or e.name in ("sql_div", "sql_mod"):
        return None
    symbol, (low, high), t = SQL_ARITHMETIC[e.name], RANGES[kind], g.fresh("t")
    return g.guard(
        e.args, lambda a, b: f"({t} if {low} <= ({t} := {a} {symbol} {b}) <= {high} else out_of_range({kind.value!r}))"
    )


def _comparison(g: Emitter, e: Call) -> GeneratedExpr | None:
    left, right = (a.type.kind for a in e.args)
    if left is Kind.DOUBLE and right is Kind.DOUBLE:
        part = g.guard(e.args, lambda a, b: _DOUBLES[e.name].format(a=a, b=b), "False")
    elif left in _PLAIN and right in _PLAIN:
        part = g.guard(e.args, lambda a, b: f"{a} {_PYTHON[e.name]} {b}", "False")
    else:
        return None
    return GeneratedExpr(f"({part.src})", nullable=False)


def _sql_comparison(g: Emitter, e: Call) -> GeneratedExpr | None:
    left, right = (a.type.kind for a in e.args)
    op = e.name.removeprefix(PREFIX)
    if left is Kind.DOUBLE and right is Kind.DOUBLE:
        return g.guard(e.args, lambda a, b: f"({_DOUBLES[op].format(a=a, b=b)})")
    if left in _PLAIN and right in _PLAIN:
        return g.guard(e.args, lambda a, b: f"({a} {_PYTHON[op]} {b})")
    return None


def _logical(g: Emitter, e: Call) -> GeneratedExpr | None:
    first = g.emit(e.args[0])
    rest = [g.emit(a) for a in e.args[1:]]
    if first.nullable or any(p.nullable for p in rest):
        return _three_valued(g, e.name, [first, *rest])
    return GeneratedExpr("(" + f" {e.name} ".join(p.src for p in (first, *rest)) + ")", nullable=False)


def _three_valued(g: Emitter, name: str, parts: list[GeneratedExpr]) -> GeneratedExpr:
    """`and` is FALSE at the first FALSE, else NULL if an operand was; `or` likewise with TRUE."""
    decisive, other = ("False", "True") if name == "and" else ("True", "False")
    refs = [g.fresh("t") for _ in parts]
    decided = " or ".join(f"({r} := {p.src}) is {decisive}" for r, p in zip(refs, parts, strict=True))
    unknown = " or ".join(f"{r} is None" for r, p in zip(refs, parts, strict=True) if p.nullable)
    return GeneratedExpr(f"({decisive} if {decided} else None if {unknown} else {other})")


def _not(g: Emitter, e: Call) -> GeneratedExpr:
    part = g.guard(e.args, lambda a: f"(not {a})")
    return GeneratedExpr(part.src, part.nullable)


def _case(g: Emitter, e: Call) -> GeneratedExpr:
    parts: list[str] = []
    nullable = False
    for when, then in zip(e.args[:-1:2], e.args[1::2], strict=True):
        w, t = g.emit(when), g.emit(then)
        nullable = nullable or t.nullable
        parts.append(f"{t.src} if {w.src}{' is True' if w.nullable else ''} else ")
    default = g.emit(e.args[-1])
    return GeneratedExpr(f"({''.join(parts)}{default.src})", nullable or default.nullable)


def _coalesce(g: Emitter, e: Call) -> GeneratedExpr:
    """The first value that is not None; what stands behind a value that cannot be NULL is dead."""
    parts: list[str] = []
    last = GeneratedExpr("None", simple=True)
    for p in map(g.emit, e.args):
        last = p
        if not p.nullable:
            break
        ref = p.src if p.simple else g.fresh("t")
        parts.append(f"{ref} if {ref if p.simple else f'({ref} := {p.src})'} is not None else ")
    return GeneratedExpr(f"({''.join(parts)}{last.src if not last.nullable else 'None'})", last.nullable)


def _null_test(g: Emitter, e: Call) -> GeneratedExpr:
    p = g.emit(e.args[0])
    if (
        not p.nullable
    ):  # what may fail is computed all the same; a comparison of what folds to a constant would be warned of
        known = "False" if e.name == "is_null" else "True"
        return GeneratedExpr(known if p.simple else f"({p.src}, {known})[1]", nullable=False)
    test = "is None" if e.name == "is_null" else "is not None"
    return GeneratedExpr(f"({p.src} {test})", nullable=False)


def _cast(g: Emitter, e: Call) -> GeneratedExpr | None:
    source, target = e.args[0].type, e.type
    if source == target or source.kind is Kind.NULL or (source.kind, target.kind) == (Kind.INT, Kind.BIGINT):
        return g.emit(e.args[0])
    if source.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL) and target.kind is Kind.DOUBLE:
        return g.guard(e.args, lambda a: f"float({a})")
    return None


def _field(g: Emitter, e: Call) -> GeneratedExpr | None:
    name = e.args[1]
    if not isinstance(name, Literal):
        return None
    part = g.guard(e.args[:1], lambda s: f"{s}[{name.value!r}]")
    return GeneratedExpr(part.src)


def _subscript(g: Emitter, e: Call) -> GeneratedExpr | None:
    if e.args[0].type.kind is not Kind.MAP:
        return None
    return GeneratedExpr(g.guard(e.args, lambda m, k: f"{m}.get({k})").src)


def _constructor(g: Emitter, e: Call) -> GeneratedExpr:
    """ARRAY, MAP and STRUCT: an element that fails is NULL in its place. A key that fails leaves no map."""
    function = lookup(e.name)
    assert function is not None
    f = g.constant(function.reference(Resolution(tuple(a.type for a in e.args), e.type)), "f")
    keys = e.name == "map"
    parts = [g.emit(a) if keys and i % 2 == 0 else g.attempt(a) for i, a in enumerate(e.args)]
    return GeneratedExpr(f"{f}({', '.join(p.src for p in parts)})", nullable=False)


def _cannot_fail(e: Expr) -> bool:
    return isinstance(e, (Column, Literal, LambdaVar)) or (isinstance(e, Call) and e.name in ("array", "struct"))


def _in(g: Emitter, e: Call) -> GeneratedExpr | None:
    items = e.args[1:]
    if e.args[0].type.kind not in _PLAIN or not all(isinstance(i, Literal) and i.type == e.args[0].type for i in items):
        return None
    values = g.constant(frozenset(i.value for i in items if isinstance(i, Literal)) - {None})
    value = g.emit(e.args[0])
    word = "not in" if e.name == "not_in" else "in"
    return GeneratedExpr(f"({value.src} {word} {values})", nullable=False)


def _sql_in(g: Emitter, e: Call) -> GeneratedExpr | None:
    items = e.args[1:]
    if e.args[0].type.kind not in _PLAIN or not all(isinstance(i, Literal) and i.type == e.args[0].type for i in items):
        return None
    listed = {i.value for i in items if isinstance(i, Literal)}
    values = g.constant(frozenset(listed) - {None})
    if None not in listed:
        return g.guard(e.args[:1], lambda v: f"({v} in {values})")
    part = g.guard(e.args[:1], lambda v: f"(True if {v} in {values} else None)")
    return GeneratedExpr(part.src)


CONSTRUCTORS = ("array", "map", "struct")
_SPECIAL: dict[str, Callable[[Emitter, Call], GeneratedExpr | None]] = {
    **dict.fromkeys(CONSTRUCTORS, _constructor),
    **dict.fromkeys(("add", "sub", "mul"), _arithmetic),
    **dict.fromkeys(SQL_ARITHMETIC, _sql_arithmetic),
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(SQL_SYMBOLS, _sql_comparison),
    "sql_in": _sql_in,
    NULL_IF_FAILED: lambda g, e: g.attempt_apart(e.args[0]),
    **dict.fromkeys(("and", "or"), _logical),
    **dict.fromkeys(("COALESCE", "IFNULL"), _coalesce),
    **dict.fromkeys(("is_null", "is_not_null"), _null_test),
    **dict.fromkeys(("in", "not_in"), _in),
    "not": _not,
    "case": _case,
    "cast": _cast,
    "field": _field,
    "subscript": _subscript,
}

"""and, or, not in three-valued logic, CASE, and functions that choose among their arguments: all lazy, as a later operand may fail where an earlier one decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.comparison import EXACT_IN_DUCKDB, exact
from flowql.compiler.functions.registry import (
    Lowering,
    define,
    named,
    same_for_all,
    scalar,
    takes,
    takes_many,
)
from flowql.compiler.functions.signatures import (
    FunctionTypeError,
    Resolution,
    T,
    common_numeric,
    not_accepted,
    widen_decimals,
)
from flowql.compiler.functions.spark_text import null_where
from flowql.compiler.functions.values import less, same
from flowql.compiler.plan.types import BOOLEAN, DOUBLE, INT, STRING, Kind, SqlType

Thunk = Callable[[], Any]


def _booleans(name: str) -> Callable[[tuple[SqlType, ...]], Resolution]:
    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        for t in types:
            if t.kind not in (Kind.BOOLEAN, Kind.NULL):
                raise FunctionTypeError(f"{name.upper()} needs BOOLEAN operands, not {t}")
        return Resolution(tuple(BOOLEAN for _ in types), BOOLEAN)

    return resolve


def _decided_by(deciding: bool) -> Callable[..., bool | None]:
    """AND is decided by the first FALSE, OR by the first TRUE."""

    def run(*operands: Thunk) -> bool | None:
        unknown = False
        for operand in operands:
            v = operand()
            if v is deciding:
                return deciding
            unknown = unknown or v is None
        return None if unknown else not deciding

    return run


def _joined(operator: str) -> Lowering:
    return lambda a, _r: f"({f' {operator} '.join(a)})"


def _negated(args: Sequence[str], _r: Resolution) -> str:
    return f"(NOT {args[0]})"


define(
    "and",
    _booleans("and"),
    same_for_all(_decided_by(False)),
    null_propagating=False,
    lazy=True,
    duckdb=_joined("AND"),
    spark=_joined("AND"),
)
define(
    "or",
    _booleans("or"),
    same_for_all(_decided_by(True)),
    null_propagating=False,
    lazy=True,
    duckdb=_joined("OR"),
    spark=_joined("OR"),
)


def _one_boolean(types: tuple[SqlType, ...]) -> Resolution:
    (t,) = types
    return _booleans("not")((t,))


define("not", _one_boolean, lambda _r: lambda v: not v, duckdb=_negated, spark=_negated)


def _case_types(types: tuple[SqlType, ...]) -> Resolution:
    """when1, then1, ..., else. All results have one type (numbers widen); NULL fits any."""
    results = [*types[1:-1:2], types[-1]]
    known = [t for t in results if t.kind is not Kind.NULL]
    if not known:
        raise FunctionTypeError("invalid CASE: all branches have NULL type", "cast one: CAST(NULL AS STRING)")
    common = known[0]
    for t in known[1:]:
        wider = common if t == common else common_numeric(common, t)
        if wider is None:
            raise FunctionTypeError(f"invalid CASE: its branches have different types, {common} and {t}")
        common = wider
    for t in types[:-1:2]:
        if t.kind not in (Kind.BOOLEAN, Kind.NULL):
            raise FunctionTypeError(f"invalid CASE: WHEN needs a BOOLEAN, not {t}")
    args = [common if i % 2 or i == len(types) - 1 else BOOLEAN for i in range(len(types))]
    return Resolution(tuple(args), common)


def _case(*operands: Thunk) -> Any:
    for i in range(0, len(operands) - 1, 2):
        if operands[i]() is True:
            return operands[i + 1]()
    return operands[-1]()


def _case_sql(args: Sequence[str], _r: Resolution) -> str:
    whens = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
    return f"(CASE {whens} ELSE {args[-1]} END)"


define(
    "case",
    _case_types,
    lambda _r: _case,
    null_propagating=False,
    lazy=True,
    duckdb=_case_sql,
    spark=_case_sql,
)


def _coalesce(*operands: Thunk) -> Any:
    for operand in operands:
        if (v := operand()) is not None:
            return v
    return None


def _coalesce_sql(args: Sequence[str], _r: Resolution) -> str:
    return f"coalesce({', '.join(args)})"


_FIRST: dict[str, Any] = {
    "by": _coalesce,
    "null_propagating": False,
    "lazy": True,
    "duckdb": _coalesce_sql,
    "spark": _coalesce_sql,
}
scalar("COALESCE", takes_many(T, gives=T), **_FIRST)
scalar("IFNULL", takes(T, T, gives=T), **_FIRST)
scalar(
    "NULLIF",
    takes(T, T, gives=T),
    by=lambda a, b: None if a is None or (b is not None and same(a, b)) else a,
    null_propagating=False,
    duckdb=lambda a, r: f"nullif({a[0]}, {a[1]})" if r.args[0].kind in EXACT_IN_DUCKDB else "",
    spark=exact(lambda a: f"(CASE WHEN {a[0]} = {a[1]} THEN NULL ELSE {a[0]} END)"),
)
scalar(
    "AS_VALUE",
    takes(T, gives=T),
    by=lambda v: v,
    null_propagating=False,
    duckdb=lambda a, _r: a[0],
    spark=lambda a, _r: a[0],
)

_TEMPORAL = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
_COMPARED = frozenset({Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE, Kind.STRING, Kind.BYTES, *_TEMPORAL})


def _extreme_types(name: str) -> Callable[[tuple[SqlType, ...]], Resolution]:
    """One type for all arguments; NULL fits any, text fits dates, a DOUBLE takes all numbers."""

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        known = [t for t in types if t.kind is not Kind.NULL]
        common = _common_extreme(name, types, known)
        return Resolution(tuple(common for _ in types), common)

    return resolve


def _common_extreme(name: str, types: tuple[SqlType, ...], known: list[SqlType]) -> SqlType:
    kinds = {t.kind for t in known}
    if not known or not kinds <= _COMPARED:
        raise not_accepted(name, types)
    if len(kinds) == 1:
        common = known[0]
        for t in known[1:]:
            common = widen_decimals(common, t) if t.kind is Kind.DECIMAL else common
        return common
    if all(t.is_numeric for t in known):
        if Kind.DOUBLE in kinds:
            return DOUBLE
        listed = ", ".join(map(str, types))
        raise FunctionTypeError(
            f"Function '{name}' cannot be resolved due to ambiguous parameters ({listed})", "cast them to one type"
        )
    temporal = kinds - {Kind.STRING}
    if len(temporal) == 1 and temporal <= set(_TEMPORAL):
        return next(t for t in known if t.kind is not Kind.STRING)
    raise not_accepted(name, types)


def _greatest(*values: Any) -> Any:
    return _best(values, less)


def _least(*values: Any) -> Any:
    return _best(values, lambda best, v: less(v, best))


def _best(values: Sequence[Any], is_better: Callable[[Any, Any], bool]) -> Any:
    """is_better: (the best value so far, another one) -> whether the other one is better."""
    best = None
    for v in values:
        if v is not None and (best is None or is_better(best, v)):
            best = v
    return best


def _if_exact(function: str) -> Lowering:
    lowering = named(function)
    return lambda args, r: lowering(args, r) if r.result.kind in EXACT_IN_DUCKDB else ""


def _of_some(function: str) -> Lowering:
    """Spark's needs two arguments."""
    return exact(lambda a: f"{function}({', '.join(a)})" if len(a) > 1 else a[0])


for _name, _f in (("GREATEST", _greatest), ("LEAST", _least)):
    define(
        _name,
        _extreme_types(_name),
        same_for_all(_f),
        null_propagating=False,
        duckdb=_if_exact(_name.lower()),
        spark=_of_some(_name.lower()),
    )


def _elt(n: int | None, *texts: str | None) -> str | None:
    return texts[n - 1] if n is not None and 1 <= n <= len(texts) else None


def _field(wanted: str | None, *texts: str | None) -> int:
    return 0 if wanted is None else next((i for i, t in enumerate(texts, 1) if t == wanted), 0)


def _field_on_spark(args: Sequence[str], _r: Resolution) -> str:
    whens = " ".join(f"WHEN {args[0]} = {a} THEN {i}" for i, a in enumerate(args[1:], 1))
    return f"(CASE {whens} ELSE 0 END)"


scalar(
    "ELT",
    takes_many(INT, STRING, gives=STRING),
    by=_elt,
    null_propagating=False,
    spark=lambda a, _r: null_where(f"{a[0]} < 1 OR {a[0]} >= {len(a)}", f"elt({', '.join(a)})"),
)
scalar(
    "FIELD",
    takes_many(STRING, STRING, gives=INT),
    by=_field,
    null_propagating=False,
    spark=_field_on_spark,
)

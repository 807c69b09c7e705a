"""and, or, not in three-valued logic, and CASE: all lazy, as a later operand may fail where an earlier one decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.registry import Lowering, define, same_for_all
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, common_numeric
from flowql.compiler.plan.types import BOOLEAN, Kind, SqlType

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

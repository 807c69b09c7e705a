"""Comparisons, IN and TRY of standard SQL, in three-valued logic: an operand that is NULL makes the answer unknown, which is NULL.

`dialect: standard` binds these in the place of ksqlDB's `eq`, `lt`, ... and `in` (`flowql.compiler.functions.dialects`). NOT, AND, OR, CASE and
IS [NOT] DISTINCT FROM have one meaning in both. Truth values are ordered, FALSE before TRUE, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.comparison import NAMES, SYMBOLS, comparable, exact, in_types
from flowql.compiler.functions.decimal_columns import compared
from flowql.compiler.functions.registry import FAILURES, Lowering, define, same_for_all, scalar, standard, takes
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, T
from flowql.compiler.functions.values import is_ordered, less, same
from flowql.compiler.plan.types import BIGINT, BOOLEAN, STRING, Kind, SqlType

PREFIX = "sql_"
# The function of each comparison -> its sign.
SQL_SYMBOLS = {PREFIX + op: sign for op, sign in SYMBOLS.items()}


def _resolver(op: str) -> Callable[[tuple[SqlType, ...]], Resolution]:
    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        a, b = types
        pair = (STRING, STRING) if a.kind is b.kind is Kind.NULL else comparable(a, b)
        if pair is None or (op in ("lt", "le", "gt", "ge") and not all(map(has_sql_order, pair))):
            raise FunctionTypeError(f"cannot compare {a} to {b} with {NAMES[op]}", "add an explicit CAST")
        return Resolution(pair, BOOLEAN)

    return resolve


def has_sql_order(t: SqlType) -> bool:
    """Whether values are compared with `<`: those of ksqlDB's dialect, truth values, and arrays of such."""
    return is_ordered(t) or t.kind is Kind.BOOLEAN or (t.kind is Kind.ARRAY and has_sql_order(t.element))


def _less(a: Any, b: Any) -> bool:
    """Arrays element by element, NULL behind every value, the shorter one first."""
    if not isinstance(a, list):
        return less(a, b)
    for x, y in zip(a, b, strict=False):
        if x is None or y is None:
            if x is not y:
                return y is None
        elif _less(x, y):
            return True
        elif _less(y, x):
            return False
    return len(a) < len(b)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": same,
    "ne": lambda a, b: not same(a, b),
    "lt": _less,
    "le": lambda a, b: not _less(b, a),
    "gt": lambda a, b: _less(b, a),
    "ge": lambda a, b: not _less(a, b),
}


def sign_between(sign: str) -> Callable[[Sequence[str]], str]:
    """The SQL text of a comparison, NULL where an operand is."""
    return lambda args: f"({args[0]} {sign} {args[1]})"


def _duckdb(sign: str) -> Lowering:
    plain = exact(sign_between(sign))

    def lowering(args: Sequence[str], r: Resolution) -> str:
        decimals = all(t.kind is Kind.DECIMAL for t in r.args)
        return plain(args, r) or (f'("{compared(*r.args)}"({args[0]}, {args[1]}) {sign} 0)' if decimals else "")

    return lowering


for _op, _sign in SYMBOLS.items():
    define(
        PREFIX + _op,
        _resolver(_op),
        same_for_all(_TESTS[_op]),
        duckdb=_duckdb(_sign),
        spark=exact(sign_between(_sign)),
    )


def _is_in(v: Any, *items: Any) -> bool | None:
    if v is None:
        return None
    if any(x is not None and same(v, x) for x in items):
        return True
    return None if None in items else False


def list_sql(args: Sequence[str]) -> str:
    """The SQL text of IN."""
    return f"({args[0]} IN ({', '.join(args[1:])}))"


define(
    "sql_in",
    in_types,
    same_for_all(_is_in),
    null_propagating=False,
    duckdb=exact(lambda a: list_sql(a) if len(a) > 1 else ""),
    spark=exact(lambda a: list_sql(a) if len(a) > 1 else ""),
)

# --- TRY: NULL in the place of a value that fails, without a dead letter. TRY_CAST is TRY of a CAST ---
#
# `null_if_failed` is NULL with a dead letter, and no query can name it. A join that shows a row without a match wraps the key of the row in it,
# since a condition that fails is not true.

NULL_IF_FAILED = "null_if_failed"


def _tried(operand: Callable[[], Any]) -> Any:
    try:
        return operand()
    except FAILURES:
        raise
    except Exception:  # whatever a reference raises is a value that fails
        return None


standard("TRY", takes(T, gives=T), by=_tried, null_propagating=False, lazy=True)

define(
    NULL_IF_FAILED,
    lambda types: Resolution(types, types[0]),
    lambda _r: _tried,
    null_propagating=False,
    lazy=True,
    duckdb=lambda args, _r: args[0],  # a row for which it fails is declined by what it calls
)

# --- a sub-query that has one row by its data: with several rows it fails, as in PostgreSQL ---

SINGLE_ROW = "sql_single_row"
_SEVERAL = "more than one row returned by a subquery used as an expression"


def _single(value: Any, rows: int | None) -> Any:
    if rows is not None and rows > 1:
        raise ValueError(_SEVERAL)
    return value


scalar(
    SINGLE_ROW,
    takes(T, BIGINT, gives=T),
    by=_single,
    null_propagating=False,
    duckdb=lambda args, _r: args[0],
    declines=lambda args, _r: f"(COALESCE({args[1]}, 0) > 1)",
)

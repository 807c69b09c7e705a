"""Comparisons, membership and ranges: eq ne lt le gt ge, is_distinct, between, in, is_null, like.

As in ksqlDB a comparison with NULL is FALSE, not NULL, so `NOT (a = NULL)` is TRUE. Texts beside a date, time or
timestamp are read as one; a DATE beside a TIMESTAMP is its midnight. NaN equals itself and is above all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.bounds import PARSED_CHARS_MAX
from flowql.compiler.functions.patterns.like import like, like_pattern
from flowql.compiler.functions.registry import Lowering, Prepare, Reference, define
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, as_decimal, common_numeric
from flowql.compiler.functions.spark_text import is_plain_text
from flowql.compiler.functions.sql_calendar import common_moment
from flowql.compiler.functions.values import is_ordered, less, same
from flowql.compiler.plan.types import BOOLEAN, STRING, TIMESTAMP, TIMESTAMPTZ, Kind, SqlType

SYMBOLS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
NAMES = {
    "eq": "EQUAL",
    "ne": "NOT_EQUAL",
    "lt": "LESS_THAN",
    "le": "LESS_THAN_OR_EQUAL",
    "gt": "GREATER_THAN",
    "ge": "GREATER_THAN_OR_EQUAL",
    "is_distinct": "IS_DISTINCT_FROM",
    "is_not_distinct": "IS_NOT_DISTINCT_FROM",
}
_TEMPORAL = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
# DuckDB's LIKE is a greedy search as well, which compares a segment at each place: the product of the lengths of a string and a pattern, about 50 ms.
DUCKDB_LIKE_MAX = 50_000_000
# Kinds that DuckDB orders and equates as the reference does.
EXACT_IN_DUCKDB = frozenset(
    {Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.STRING, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIME, Kind.BYTES}
    | {Kind.DECIMAL, Kind.MICROS}
)


def comparable(a: SqlType, b: SqlType) -> tuple[SqlType, SqlType] | None:
    """The types both sides are converted to before a comparison, or None when they cannot be compared."""
    if "INTERVAL" in (a.form, b.form):  # different texts may be equal
        return None
    if a == b:
        return a, b
    if a.kind is Kind.NULL or b.kind is Kind.NULL:
        other = b if a.kind is Kind.NULL else a
        return other, other
    if a.form or b.form:
        return None
    if a.kind is b.kind is Kind.TIMESTAMP:
        return TIMESTAMPTZ, TIMESTAMPTZ
    if a.kind is Kind.STRING and b.kind in _TEMPORAL:
        return b, b
    if b.kind is Kind.STRING and a.kind in _TEMPORAL:
        return a, a
    if (moment := common_moment(a, b)) is not None:
        return moment, moment
    if {a.kind, b.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        return TIMESTAMP, TIMESTAMP
    common = common_numeric(a, b)
    if common is not None and common.kind is Kind.DECIMAL:
        return as_decimal(a), as_decimal(b)  # decimals of any scale compare exactly as they are
    return None if common is None else (common, common)


def _resolver(op: str) -> Callable[[tuple[SqlType, ...]], Resolution]:
    nulls_allowed = op.startswith("is_")

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        a, b = types
        if not nulls_allowed and Kind.NULL in (a.kind, b.kind):
            raise FunctionTypeError(f"comparison with NULL is not supported: {a} {SYMBOLS[op]} {b}", "use IS NULL")
        pair = comparable(a, b)
        if pair is None or (op in ("lt", "le", "gt", "ge") and not all(map(is_ordered, pair))):
            raise FunctionTypeError(f"cannot compare {a} to {b} with {NAMES[op]}", "add an explicit CAST")
        return Resolution(pair, BOOLEAN)

    return resolve


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": same,
    "ne": lambda a, b: not same(a, b),
    "lt": less,
    "le": lambda a, b: not less(b, a),
    "gt": lambda a, b: less(b, a),
    "ge": lambda a, b: not less(a, b),
}


def _false_on_null(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: a is not None and b is not None and test(a, b)


def distinct(a: Any, b: Any) -> bool:
    """IS DISTINCT FROM: NULL is a value equal to itself."""
    return (a is not b) if a is None or b is None else not same(a, b)


def exact(template: Callable[[Sequence[str]], str]) -> Lowering:
    """A lowering for the types that DuckDB (and Spark) order and equate as the reference does."""

    def lowering(args: Sequence[str], r: Resolution) -> str:
        alike = all(t.kind in EXACT_IN_DUCKDB and t == r.args[0] for t in r.args)
        return template(args) if alike or _decimals_fit(r.args) else ""

    return lowering


def _decimals_fit(types: Sequence[SqlType]) -> bool:
    """Whether DuckDB can bring these decimals to one scale within 38 digits."""
    if any(t.kind is not Kind.DECIMAL for t in types):
        return False
    return max(t.precision - t.scale for t in types) + max(t.scale for t in types) <= 38


def _constant(f: Reference) -> Callable[[Resolution], Reference]:
    return lambda _r: f


def _compared(op: str) -> Lowering:
    return exact(lambda a: f"coalesce({a[0]} {SYMBOLS[op]} {a[1]}, FALSE)")


for _op in SYMBOLS:
    define(
        _op,
        _resolver(_op),
        _constant(_false_on_null(_TESTS[_op])),
        null_propagating=False,
        duckdb=_compared(_op),
        spark=_compared(_op),
    )
define(
    "is_distinct",
    _resolver("is_distinct"),
    _constant(distinct),
    null_propagating=False,
    duckdb=exact(lambda a: f"({a[0]} IS DISTINCT FROM {a[1]})"),
    spark=exact(lambda a: f"(NOT ({a[0]} <=> {a[1]}))"),
)
define(
    "is_not_distinct",
    _resolver("is_not_distinct"),
    _constant(lambda a, b: not distinct(a, b)),
    null_propagating=False,
    duckdb=exact(lambda a: f"({a[0]} IS NOT DISTINCT FROM {a[1]})"),
    spark=exact(lambda a: f"({a[0]} <=> {a[1]})"),
)


def _between_types(types: tuple[SqlType, ...]) -> Resolution:
    v, low, high = types
    pairs = comparable(v, low), comparable(v, high)
    if pairs[0] is None or pairs[1] is None or not is_ordered(pairs[0][0]):
        raise FunctionTypeError(f"cannot compare {v} with BETWEEN {low} AND {high}", "add an explicit CAST")
    if pairs[0][0] != pairs[1][0]:
        return _between_widest(pairs[0], pairs[1], types)
    return Resolution((pairs[0][0], pairs[0][1], pairs[1][1]), BOOLEAN)


def _between_widest(
    low: tuple[SqlType, SqlType], high: tuple[SqlType, SqlType], types: tuple[SqlType, ...]
) -> Resolution:
    widest = comparable(low[0], high[0])
    if widest is None:
        raise FunctionTypeError(f"cannot compare {types[0]} with BETWEEN {types[1]} AND {types[2]}")
    common = widest[0] if widest[0] == widest[1] else common_numeric(*widest)
    assert common is not None
    return Resolution((common, common, common), BOOLEAN)


def _between(v: Any, low: Any, high: Any) -> bool:
    return v is not None and low is not None and high is not None and not less(v, low) and not less(high, v)


def _range_sql(args: Sequence[str]) -> str:
    return f"coalesce({args[0]} BETWEEN {args[1]} AND {args[2]}, FALSE)"


for _op, _negated in (("between", False), ("not_between", True)):
    _lowering = exact((lambda a: f"(NOT {_range_sql(a)})") if _negated else _range_sql)
    define(
        _op,
        _between_types,
        _constant((lambda v, low, high: not _between(v, low, high)) if _negated else _between),
        null_propagating=False,
        duckdb=_lowering,
        spark=_lowering,
    )


def in_types(types: tuple[SqlType, ...]) -> Resolution:
    """All of one type; `coercion.unify` brings mixed lists there first."""
    common = types[0]
    for t in types[1:]:
        pair = comparable(common, t)
        if pair is None:
            raise FunctionTypeError(f"operator does not exist: {types[0]} = {t}", "add an explicit CAST")
        common = pair[0] if pair[0] == pair[1] else (common_numeric(*pair) or pair[0])
    return Resolution(tuple(common for _ in types), BOOLEAN)


def _is_in(v: Any, *items: Any) -> bool:
    return v is not None and any(x is not None and same(v, x) for x in items)


def _list_sql(args: Sequence[str]) -> str:
    """An empty list, which SQL cannot write, goes to the reference."""
    return f"coalesce({args[0]} IN ({', '.join(args[1:])}), FALSE)" if len(args) > 1 else ""


def _no_list_sql(args: Sequence[str]) -> str:
    return f"(NOT {_list_sql(args)})" if len(args) > 1 else ""


for _op, _negated in (("in", False), ("not_in", True)):
    _lowering = exact(_no_list_sql if _negated else _list_sql)
    define(
        _op,
        in_types,
        _constant((lambda v, *items: not _is_in(v, *items)) if _negated else _is_in),
        null_propagating=False,
        duckdb=_lowering,
        spark=_lowering,
    )


def _one_of_any(types: tuple[SqlType, ...]) -> Resolution:
    (t,) = types
    return Resolution((t,), BOOLEAN)


def _null_sql(test: str) -> Lowering:
    return lambda a, _r: f"({a[0]} {test})"


for _op, _symbol in (("is_null", "IS NULL"), ("is_not_null", "IS NOT NULL")):
    define(
        _op,
        _one_of_any,
        _constant((lambda v: v is None) if _op == "is_null" else (lambda v: v is not None)),
        null_propagating=False,
        duckdb=_null_sql(_symbol),
        spark=_null_sql(_symbol),
    )


def _like_types(types: tuple[SqlType, ...]) -> Resolution:
    if any(t.kind not in (Kind.STRING, Kind.NULL) for t in types):
        raise FunctionTypeError(f"LIKE needs STRING operands, not ({', '.join(map(str, types))})", "add a CAST")
    return Resolution(tuple(STRING for _ in types), BOOLEAN)


def _not_like(v: str, pattern: str, escape: str = "\\") -> bool:
    return not like(v, pattern, escape)


def _prepared(*, negated: bool) -> Prepare:
    def prepare(_r: Resolution, constants: Sequence[Any]) -> Reference | None:
        if constants[0] is not None:
            return None
        test = like_pattern(*constants[1:]).test()
        return (lambda s: not test(s)) if negated else test

    return prepare


def _like_sql(args: Sequence[str], _r: Resolution) -> str:
    if _is_plain(args):
        return f"({args[0]} LIKE {args[1]})"
    return f"(CASE WHEN {_bad_pattern(args)} THEN NULL ELSE {args[0]} LIKE {args[1]} ESCAPE {_escape(args)} END)"


def _escape(args: Sequence[str]) -> str:
    return args[2] if len(args) > 2 else "'\\'"


def _bad_pattern(args: Sequence[str]) -> str:
    """Patterns on which DuckDB fails the statement (TRY does not catch it), or compares too much; some are fine and only decline."""
    escape = _escape(args)
    slow = f"CAST(strlen({args[0]}) AS HUGEINT) * strlen({args[1]}) > {DUCKDB_LIKE_MAX}"
    return (
        f"(strlen({escape}) <> 1 OR ends_with({args[1]}, {escape}) OR strlen({args[1]}) > {PARSED_CHARS_MAX} OR {slow})"
    )


def _is_plain(args: Sequence[str]) -> bool:
    """A constant pattern without escapes, the common and quick case."""
    return len(args) == 2 and args[1].startswith("'") and "\\" not in args[1] and len(args[1]) <= PARSED_CHARS_MAX


def _like_declines(args: Sequence[str], _r: Resolution) -> str:
    return "" if _is_plain(args) else _bad_pattern(args)


def _like_on_spark(args: Sequence[str], _r: Resolution) -> str:
    """Constant patterns without escapes: Spark ends the job at a bad one."""
    if len(args) != 2 or not is_plain_text(args[1]) or not _is_found_at_once(args[1][1:-1]):
        return ""
    return f"({args[0]} LIKE {args[1]})"


def _is_found_at_once(pattern: str) -> bool:
    """Whether Java, which Spark gives LIKE to as a regular expression, reads a string once: each further % reads it again from each place."""
    _, *behind = pattern.split("%")
    inner = [part for part in behind[:-1] if part]
    return not inner or (len(inner) == 1 and not behind[-1])


def _not_like_on_spark(args: Sequence[str], r: Resolution) -> str:
    sql = _like_on_spark(args, r)
    return f"(NOT {sql})" if sql else ""


for _op in ("like", "not_like"):
    define(
        _op,
        _like_types,
        _constant(like if _op == "like" else _not_like),
        prepare=_prepared(negated=_op == "not_like"),
        duckdb=_like_sql if _op == "like" else (lambda a, r: f"(NOT {_like_sql(a, r)})"),
        declines=_like_declines,
        spark=_like_on_spark if _op == "like" else _not_like_on_spark,
    )

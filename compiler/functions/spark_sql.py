"""Expressions as Spark SQL text, where that means exactly what the reference means.

`lower` gives the text, and where the reference would raise a predicate that is TRUE for such rows: the value is NULL there,
as everywhere in FlowQL, and the row is also a dead letter. What has no text runs as the reference itself, in an Arrow UDF
(`flowql.runtime.spark.native`). The text means the same with and without ANSI mode and in every time zone of a session; names that differ
by case alone need `spark.sql.caseSensitive`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowql.compiler.functions.comparison import SYMBOLS
from flowql.compiler.functions.inline import CONSTRUCTORS
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_ranges import without_failure
from flowql.compiler.functions.spark_text import constant, quoted
from flowql.compiler.functions.sql_comparison import SQL_SYMBOLS
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, walk
from flowql.compiler.plan.types import spark_type

_SIGNS = SYMBOLS | SQL_SYMBOLS
NODES_MAX = 1_000  # of one expression: Spark compiles it to one method


@dataclass(frozen=True, slots=True)
class SparkSql:
    """A lowered expression. fails: predicate over the same columns, never NULL, TRUE where the reference raises; or None."""

    sql: str
    fails: str | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    """`quiet`: where a part fails the text is NULL already."""

    sql: str
    fails: str | None = None
    quiet: bool = True


class _NotLowered(Exception):
    """Some part of the expression has no Spark text."""


def lower(expr: Expr) -> SparkSql | None:
    """The expression in Spark SQL, of exactly the Spark type of `expr.type`; None when a part has no lowering.

    >>> from flowql.compiler.plan.types import BIGINT
    >>> price = Column(BIGINT, "price")
    >>> lower(Call(BIGINT, "mod", (price, Literal(BIGINT, 7))))
    SparkSql(sql='CAST((`price` % 7L) AS BIGINT)', fails=None)
    """
    try:
        found = _bounded(expr)
    except _NotLowered:
        return None
    sql = found.sql
    if found.fails is not None and not found.quiet:
        sql = f"CASE WHEN {found.fails} THEN NULL ELSE {sql} END"
    if isinstance(expr, Call):
        sql = f"CAST({sql} AS {spark_type(expr.type)})"
    return SparkSql(sql, found.fails)


def lower_predicate(expr: Expr) -> SparkSql | None:
    """A predicate of a filter: FALSE and NULL are the same there, so comparisons stay as Spark's sources can use them."""
    if isinstance(expr, Call) and expr.name == "and":
        parts = [lower_predicate(a) for a in expr.args]
        known = [p for p in parts if p is not None]
        if len(known) == len(parts) and all(p.fails is None for p in known):
            return SparkSql("(" + " AND ".join(p.sql for p in known) + ")")
    lowered = lower(expr)
    sign = _SIGNS.get(expr.name) if isinstance(expr, Call) else None
    if lowered is None or not isinstance(expr, Call) or sign is None or lowered.fails is not None:
        return lowered
    args = [_bounded(a).sql for a in expr.args]
    return SparkSql(f"({args[0]} {sign} {args[1]})")


def _bounded(expr: Expr) -> _Text:
    if sum(1 for _ in walk(expr)) > NODES_MAX:
        raise _NotLowered
    return _lower(expr)


def _lower(e: Expr) -> _Text:
    if isinstance(e, Column):
        return _Text(quoted(e.name))
    if isinstance(e, Literal):
        return _Text(_known(constant(e)))
    if not isinstance(e, Call):
        raise _NotLowered
    if e.name == "field":
        return _field(e)
    args = [_lower(a) for a in e.args]
    if e.name in CONSTRUCTORS and any(a.fails is not None for a in args):
        raise _NotLowered  # an element that fails is NULL in its place; a lowering says of a whole expression that it fails
    texts = [a.sql for a in args]
    if plain := without_failure(e, texts):
        return _joined(e, args, plain, "")
    function = lookup(e.name)
    if function is None or function.spark is None or function.table:
        raise _NotLowered
    resolution = Resolution(tuple(a.type for a in e.args), e.type)
    sql = _known(function.spark(texts, resolution))
    fails = function.spark_fails(texts, resolution) if function.spark_fails else ""
    if fails and e.name in ("div", "mod", "sql_mod") and isinstance(e.args[1], Literal) and e.args[1].value:
        fails = ""  # a constant divisor other than zero
    return _joined(e, args, sql, fails)


def _known(sql: str) -> str:
    if not sql:
        raise _NotLowered
    return sql


def _field(e: Call) -> _Text:
    name = e.args[1]
    if not isinstance(name, Literal) or not isinstance(name.value, str):
        raise _NotLowered
    base = _lower(e.args[0])
    return _Text(f"{base.sql}.{quoted(name.value)}", base.fails, base.quiet)


def _joined(e: Call, args: Sequence[_Text], sql: str, own: str) -> _Text:
    """The text of a call with the failures of its parts, each where the reference would come to it."""
    found = []
    for i, a in enumerate(args):
        if a.fails is not None:
            reached = _REACHED.get(e.name, _guarded if _stops_at_null(e) else _always)([x.sql for x in args], i)
            found.append(f"({a.fails} AND {reached})" if reached else a.fails)
    strict = _stops_at_null(e) and e.name not in SYMBOLS
    quiet = not found or (strict and all(a.quiet for a in args))
    if own:
        found.append(f"coalesce({own}, FALSE)")
    return _Text(sql, "(" + " OR ".join(found) + ")" if found else None, quiet)


def _stops_at_null(e: Call) -> bool:
    """A NULL argument ends the evaluation, left to right."""
    function = lookup(e.name)
    return e.name == "cast" or e.name in SYMBOLS or (function is not None and function.null_propagating)


Reached = Callable[[Sequence[str], int], str]


def _always(_args: Sequence[str], _i: int) -> str:
    return ""


def _guarded(args: Sequence[str], i: int) -> str:
    return " AND ".join(f"{a} IS NOT NULL" for a in args[:i])


def _undecided(decisive: str) -> Reached:
    return lambda args, i: " AND ".join(f"NOT ({a} <=> {decisive})" for a in args[:i])


def _all_null(args: Sequence[str], i: int) -> str:
    return " AND ".join(f"{a} IS NULL" for a in args[:i])


def _branch(args: Sequence[str], i: int) -> str:
    """when_0, then_0, when_1, ..., else: the conditions before are not TRUE, and that of a `then` is."""
    is_then = i % 2 == 1 and i < len(args) - 1
    before = args[: i - 1 : 2] if is_then else args[:i:2]
    tests = [f"NOT ({a} <=> TRUE)" for a in before]
    return " AND ".join([*tests, f"{args[i - 1]} <=> TRUE"] if is_then else tests)


_REACHED: dict[str, Reached] = {
    "and": _undecided("FALSE"),
    "or": _undecided("TRUE"),
    "case": _branch,
    "COALESCE": _all_null,
    "IFNULL": _all_null,
}

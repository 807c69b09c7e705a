"""Spark lowerings of operators, logic and comparisons.

Integers wrap as Java's and FlowQL's, and where the reference raises, as at a zero divisor, the text gives NULL and `fails` is
TRUE. The texts say so themselves, as Spark decides both by a setting (ANSI mode).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowql.compiler.functions.arithmetic import SYMBOLS
from flowql.compiler.functions.comparison import SYMBOLS as COMPARISONS
from flowql.compiler.functions.comparison import exact
from flowql.compiler.functions.numeric import MAX_PRECISION
from flowql.compiler.functions.registry import Lowering, lower_on_spark
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_text import (
    constant,
    is_plain_text,
    null_where,
    whole,
    wrapped_bigint,
    wrapped_int,
)
from flowql.compiler.functions.sql_comparison import SQL_SYMBOLS, list_sql, sign_between
from flowql.compiler.plan.expr import Literal
from flowql.compiler.plan.types import BIGINT, INT, Kind, spark_type

_NAN = "CAST('NaN' AS DOUBLE)"
TRIED = {"add": "try_add", "sub": "try_subtract", "mul": "try_multiply", "div": "try_divide", "mod": "try_mod"}
_LONG = 400  # characters of operands that are not written twice: a chain of n operators would double n times
_DIVISOR_DIGITS = 18  # a quotient then has too short a period for two roundings to differ from one


def _arithmetic(op: str) -> Lowering:
    symbol = SYMBOLS[op]

    def lowering(args: Sequence[str], r: Resolution) -> str:
        a, b = args
        kind = r.result.kind
        if kind is Kind.STRING:
            return f"concat({a}, {b})"
        if kind is Kind.DECIMAL:
            return exact_decimal(op, a, b, r)
        if kind is Kind.DOUBLE:
            return _double_quotient(op, a, b) if op in ("div", "mod") else f"({a} {symbol} {b})"
        if op == "mod":
            return f"({a} % {b})" if whole(b) else f"try_mod({a}, {b})"
        if op == "div":
            return _integer_quotient(a, b, kind)
        return _integer(op, a, b, kind)

    return lowering


def _integer(op: str, a: str, b: str, kind: Kind) -> str:
    """add, sub, mul. The sum of two INTs is a BIGINT; that of two BIGINTs is tried, and only where there is none exact and cut."""
    if kind is Kind.INT:
        return wrapped_int(f"CAST({a} AS BIGINT) {SYMBOLS[op]} CAST({b} AS BIGINT)")
    exact_one = wrapped_bigint(f"(CAST({a} AS DECIMAL(19, 0)) {SYMBOLS[op]} CAST({b} AS DECIMAL(19, 0)))")
    if len(a) + len(b) > _LONG:
        return exact_one
    return f"coalesce({TRIED[op]}({a}, {b}), {exact_one})"


def _integer_quotient(a: str, b: str, kind: Kind) -> str:
    """The least number has no positive counterpart: divided by -1 it stays."""
    known = whole(b)
    quotient = f"CAST({a} AS BIGINT) DIV {b}"
    if known is None or known == -1:
        lowest = f"{a} = {constant(Literal(BIGINT, -(2**63)))} AND {b} = -1" if kind is Kind.BIGINT else "FALSE"
        quotient = f"CASE WHEN {b} = 0 THEN NULL WHEN {lowest} THEN {a} ELSE {quotient} END"
    elif known == 0:
        quotient = "CAST(NULL AS BIGINT)"
    return wrapped_int(quotient) if kind is Kind.INT else f"({quotient})"


def _negated_number(args: Sequence[str], r: Resolution) -> str:
    v, kind = args[0], r.result.kind
    return kept_least(v, f"-{v}", kind) if kind in (Kind.INT, Kind.BIGINT) else f"(-{v})"


def kept_least(v: str, sql: str, kind: Kind) -> str:
    """`sql`, but for the least integer of the type itself: its positive counterpart wraps to it."""
    return f"(CASE WHEN {v} = {least(kind)} THEN {v} ELSE {sql} END)"


def least(kind: Kind) -> str:
    """The least INT or BIGINT."""
    return constant(Literal(BIGINT, -(2**63)) if kind is Kind.BIGINT else Literal(INT, -(2**31)))


def _double_quotient(op: str, a: str, b: str) -> str:
    """IEEE where Spark gives NULL: a zero divisor."""
    if op == "mod":
        return f"(CASE WHEN {b} = 0D AND {a} IS NOT NULL THEN {_NAN} ELSE {a} % {b} END)"
    positive = f"(({a} > 0D) = (CAST({b} AS STRING) <> '-0.0'))"
    infinite = f"CASE WHEN {positive} THEN CAST('Infinity' AS DOUBLE) ELSE CAST('-Infinity' AS DOUBLE) END"
    nothing = f"CASE WHEN isnan({a}) OR {a} = 0D THEN {_NAN} ELSE {infinite} END"
    return f"(CASE WHEN {b} = 0D AND {a} IS NOT NULL THEN {nothing} ELSE {a} / {b} END)"


def exact_decimal(op: str, a: str, b: str, r: Resolution) -> str:
    """Exact where Spark cuts no intermediate type to 38 digits: its rules are the same (both come from Hive)."""
    (p1, s1), (p2, s2) = ((t.precision, t.scale) for t in r.args)
    if op == "div":
        scale = max(6, s1 + p2 + 1)
        digits = p1 - s1 + s2 + scale
        if p2 > _DIVISOR_DIGITS:
            return ""
    elif op == "mod":
        digits = max(p1 - s1, p2 - s2) + max(s1, s2)
    else:
        digits = p1 + p2 + 1 if op == "mul" else max(p1 - s1, p2 - s2) + max(s1, s2) + 1
    if digits > MAX_PRECISION:
        return ""
    made = f"{TRIED[op]}({a}, {b})" if op in ("div", "mod") else f"{a} {SYMBOLS[op]} {b}"
    return f"TRY_CAST({made} AS {spark_type(r.result)})"


def _zero_divisor(args: Sequence[str], r: Resolution) -> str:
    if r.result.kind is Kind.DOUBLE:
        return ""
    return f"({args[0]} IS NOT NULL AND coalesce({args[1]} = 0, FALSE))"


for _op in SYMBOLS:
    lower_on_spark(_op, _arithmetic(_op), _zero_divisor if _op in ("div", "mod") else None)
lower_on_spark("neg", _negated_number)


def _compare(op: str) -> Lowering:
    return exact(lambda a: f"coalesce({a[0]} {COMPARISONS[op]} {a[1]}, FALSE)")


for _op in COMPARISONS:
    lower_on_spark(_op, _compare(_op))
lower_on_spark("is_distinct", exact(lambda a: f"(NOT ({a[0]} <=> {a[1]}))"))
lower_on_spark("is_not_distinct", exact(lambda a: f"({a[0]} <=> {a[1]})"))


for _op, _sign in SQL_SYMBOLS.items():
    lower_on_spark(_op, exact(sign_between(_sign)))
lower_on_spark("sql_in", exact(lambda a: list_sql(a) if len(a) > 1 else ""))
lower_on_spark("sql_concat", lambda a, r: f"concat({a[0]}, {a[1]})" if r.result.kind is Kind.STRING else "")


def _range(a: Sequence[str]) -> str:
    return f"coalesce({a[0]} BETWEEN {a[1]} AND {a[2]}, FALSE)"


def _member(a: Sequence[str]) -> str:
    return f"coalesce({a[0]} IN ({', '.join(a[1:])}), FALSE)"


def _negated(sql: Callable[[Sequence[str]], str]) -> Callable[[Sequence[str]], str]:
    return lambda a: f"(NOT {sql(a)})"


lower_on_spark("between", exact(_range))
lower_on_spark("not_between", exact(_negated(_range)))
lower_on_spark("in", exact(lambda a: _member(a) if len(a) > 1 else ""))
lower_on_spark("not_in", exact(lambda a: f"(NOT {_member(a)})" if len(a) > 1 else ""))
lower_on_spark("is_null", lambda a, _r: f"({a[0]} IS NULL)")
lower_on_spark("is_not_null", lambda a, _r: f"({a[0]} IS NOT NULL)")


def _like(args: Sequence[str], _r: Resolution) -> str:
    """Constant patterns without escapes: Spark ends the job at a bad one."""
    if len(args) != 2 or not is_plain_text(args[1]) or not _is_found_at_once(args[1][1:-1]):
        return ""
    return f"({args[0]} LIKE {args[1]})"


def _is_found_at_once(pattern: str) -> bool:
    """Whether Java, which Spark gives LIKE to as a regular expression, reads a string once: each further % reads it again from each place."""
    _, *behind = pattern.split("%")
    inner = [part for part in behind[:-1] if part]
    return not inner or (len(inner) == 1 and not behind[-1])


def _not_like(args: Sequence[str], r: Resolution) -> str:
    sql = _like(args, r)
    return f"(NOT {sql})" if sql else ""


lower_on_spark("like", _like)
lower_on_spark("not_like", _not_like)
lower_on_spark("and", lambda a, _r: "(" + " AND ".join(a) + ")")
lower_on_spark("or", lambda a, _r: "(" + " OR ".join(a) + ")")
lower_on_spark("not", lambda a, _r: f"(NOT {a[0]})")


def _case(args: Sequence[str], _r: Resolution) -> str:
    whens = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
    return f"(CASE {whens} ELSE {args[-1]} END)"


def _coalesce(args: Sequence[str], _r: Resolution) -> str:
    return f"coalesce({', '.join(args)})"


lower_on_spark("case", _case)
lower_on_spark("COALESCE IFNULL", _coalesce)
lower_on_spark("NULLIF", exact(lambda a: f"(CASE WHEN {a[0]} = {a[1]} THEN NULL ELSE {a[0]} END)"))
lower_on_spark("AS_VALUE", lambda a, _r: a[0])
lower_on_spark("GREATEST", exact(lambda a: f"greatest({', '.join(a)})" if len(a) > 1 else a[0]))
lower_on_spark("LEAST", exact(lambda a: f"least({', '.join(a)})" if len(a) > 1 else a[0]))


def _field(args: Sequence[str], _r: Resolution) -> str:
    whens = " ".join(f"WHEN {args[0]} = {a} THEN {i}" for i, a in enumerate(args[1:], 1))
    return f"(CASE {whens} ELSE 0 END)"


lower_on_spark("ELT", lambda a, _r: null_where(f"{a[0]} < 1 OR {a[0]} >= {len(a)}", f"elt({', '.join(a)})"))
lower_on_spark("FIELD", _field)

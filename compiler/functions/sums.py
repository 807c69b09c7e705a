"""SUM and AVG of both dialects, and SUM_LIST. They are two entries each, as they mean different things:

| | ksqlDB | standard SQL |
|---|---|---|
| SUM of INT, BIGINT | in the type of the argument; wraps | BIGINT, DECIMAL(38, 0); a row with which it overflows is an error of that row |
| SUM of DECIMAL(p, s) | DECIMAL(p, s), which overflows | DECIMAL(38, s) |
| SUM, AVG of DOUBLE | added one after the other: the last digits depend on the order | exact, rounded once |
| AVG of INT, BIGINT | DOUBLE, of a sum in 64 bits | DECIMAL(38, 18) |
| AVG of DECIMAL(p, s) | DOUBLE | DECIMAL(38, s), with 18 places at least |
| of nothing | 0, 0.0 | NULL |

An accumulator of standard SQL is (sum, number of values): it tells "no values" from zero, also after values were taken out again. Its fold keeps
a sum of doubles as the parts of Shewchuk's expansion ("Adaptive Precision Floating-Point Arithmetic", 1997), beside the numbers of NaNs and infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from typing import Any

from flowql.compiler.functions.aggregate_forms import (
    Add,
    Asked,
    Init,
    OnSpark,
    OverRelations,
    SparkCall,
)
from flowql.compiler.functions.duckdb_text import DECLINED, SUM_DIGITS, digits, finisher, whole_sql
from flowql.compiler.functions.exact_sums import linear_sum, ratio
from flowql.compiler.functions.lazy_arrow import pa
from flowql.compiler.functions.numeric import (
    BIGINT_MAX,
    BIGINT_MIN,
    MAX_PRECISION,
    WIDE,
    NumericOverflow,
    fit_decimal,
    wrap32,
    wrap64,
)
from flowql.compiler.functions.registry import ArrowCall, define_aggregate, register_columns
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.spark_text import text, wrapped_int
from flowql.compiler.plan.types import BIGINT, DOUBLE, Kind, SqlType, arrow_type, decimal, duckdb_type

NUMERIC_SCALE = 18  # of a bare NUMERIC, and of quotients
_ZERO: dict[Kind, Any] = {Kind.INT: 0, Kind.BIGINT: 0, Kind.DOUBLE: 0.0}
_INTEGERS = (Kind.INT, Kind.BIGINT)
# (parts of the sum, NaNs, infinities, negative infinities) of doubles.
_NO_PARTS: tuple[Any, ...] = ((), 0, 0, 0)
_DOUBLE_EXACT = 2**53  # up to here a whole number is a double
_BEYOND = "the SUM of a group is beyond what is added exactly here: 2^35 rows, or a sum of 2^91. Group by more columns, or run the query on the runtime"
_PLACES = 100  # binary, of a double that DuckDB adds


# --- ksqlDB ---


def _identity(_r: Resolution, _init: Init) -> Callable[[Any], Any]:
    return lambda acc: acc


def _number(name: str, result: Callable[[SqlType], SqlType]) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1 or not types[0].is_numeric:
            raise not_accepted(name, types, f"{name} takes one number")
        return Resolution(types, result(types[0]))

    return resolve


def zero_of(t: SqlType) -> Any:
    return Decimal(0).scaleb(-t.scale) if t.kind is Kind.DECIMAL else _ZERO[t.kind]


def summing(t: SqlType, sign: int = 1) -> Callable[[Any, Any], Any]:
    """Accumulator ± value in the type: integers wrap, a DECIMAL that overflows is an error of this value."""
    if t.kind is Kind.DOUBLE:
        return (lambda acc, v: acc + v) if sign > 0 else (lambda acc, v: acc - v)
    if t.kind is Kind.DECIMAL:
        step = WIDE.add if sign > 0 else WIDE.subtract  # the operators would round to 28 digits
        return lambda acc, v: fit_decimal(step(acc, v), t.precision, t.scale)
    wrap = wrap32 if t.kind is Kind.INT else wrap64
    return lambda acc, v: wrap(acc + sign * v)


def _skip_null(step: Callable[[Any, Any], Any]) -> Add:
    return lambda acc, v: acc if v is None else step(acc, v)


def _sum_from_partial(r: Resolution, _init: Init) -> Add:
    t = r.result

    def run(total: Any) -> Any:
        if total is None:
            return zero_of(t)
        if t.kind is Kind.DOUBLE:
            return float(total)
        return fit_decimal(total, t.precision, t.scale) if t.kind is Kind.DECIMAL else summing(t)(0, int(total))

    return run


def _reason_against(name: str, types: Sequence[SqlType]) -> str:
    if types[0].kind is Kind.DOUBLE or (name == "AVG" and types[0].kind is Kind.DECIMAL):
        return f"{name} of DOUBLE depends on the order of addition in its last digits"
    if types[0].kind is Kind.DECIMAL:
        return "the record with which a SUM of DECIMAL overflows is a dead letter, and Spark does not say which it is"
    return ""


def _sum_on_spark(call: SparkCall) -> str:
    """Integers wrap, as adding modulo 2^64 and cutting gives the same."""
    if call.types[0].kind is Kind.INT:
        return wrapped_int(f"coalesce(sum({call.args[0]}), 0L)")
    return f"coalesce({_wrapping_sum(call.args[0])}, 0L)"


def _wrapping_sum(sql: str) -> str:
    """The low 64 bits of the sum of BIGINTs: ANSI mode ends the job where `sum` overflows, here after 2^31 rows of a group.

    Elsewhere both halves wrap at 2^64, the lower one without harm: only its upper 32 bits are carried, which wrap as the result does.
    """
    high, low = f"sum(shiftright({sql}, 32))", f"sum(({sql}) & 4294967295L)"
    return f"(shiftleft({high} + shiftrightunsigned({low}, 32), 32) | ({low} & 4294967295L))"


def _average_on_spark(call: SparkCall) -> str:
    """The double nearest to sum / count; where the sum is no double, by way of 18 decimal places."""
    n = f"count({call.args[0]})"
    total = f"sum({call.args[0]})" if call.types[0].kind is Kind.INT else _wrapping_sum(call.args[0])
    near = f"CAST({total} AS DOUBLE) / CAST({n} AS DOUBLE)"
    far = f"CAST(CAST({total} AS DECIMAL(20, 0)) / CAST({n} AS DECIMAL(17, 0)) AS DOUBLE)"
    exact = f"{total} BETWEEN -{_DOUBLE_EXACT}L AND {_DOUBLE_EXACT}L"
    return f"CASE WHEN {n} = 0 THEN 0D WHEN {exact} THEN {near} ELSE {far} END"


define_aggregate(
    "SUM",
    _number("SUM", lambda t: t),
    initial=lambda r, _i: zero_of(r.result),
    add=lambda r, _i: _skip_null(summing(r.result)),
    undo=lambda r, _i: _skip_null(summing(r.result, -1)),
    merge=lambda r, _i: summing(r.result),
    result=_identity,
    arrow=("sum",),
    spark=OnSpark(_sum_on_spark, partial(_reason_against, "SUM")),
    from_partial=_sum_from_partial,
)


def _avg_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) != 1 or not types[0].is_numeric:
        raise not_accepted("AVG", types, "AVG takes one number")
    exact = types[0].kind in (Kind.INT, Kind.BIGINT)
    return Resolution((BIGINT if exact else DOUBLE,), DOUBLE)


def _average(_r: Resolution, _init: Init) -> Callable[[Any], Any]:
    return lambda acc: acc[0] / acc[1] if acc[1] else 0.0


def _avg_step(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(r: Resolution, _init: Init) -> Add:
        step = summing(r.args[0], sign)
        return lambda acc, v: acc if v is None else (step(acc[0], v), acc[1] + sign)

    return make


def _avg_merge(r: Resolution, _init: Init) -> Callable[[Any, Any], Any]:
    step = summing(r.args[0])
    return lambda a, b: (step(a[0], b[0]), a[1] + b[1])


def _avg_from_partial(r: Resolution, _init: Init) -> Add:
    t = r.args[0]
    total_of = float if t.kind is Kind.DOUBLE else (lambda v: wrap64(int(v)))
    return lambda total, n: (zero_of(t) if total is None else total_of(total), n or 0)


define_aggregate(
    "AVG",
    _avg_types,
    initial=lambda r, _i: (zero_of(r.args[0]), 0),
    add=_avg_step(1),
    undo=_avg_step(-1),
    merge=_avg_merge,
    result=_average,
    arrow=("sum", "count"),
    spark=OnSpark(_average_on_spark, partial(_reason_against, "AVG")),
    from_partial=_avg_from_partial,
)


def _list_sum_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) != 1 or types[0].kind is not Kind.ARRAY or not types[0].element.is_numeric:
        raise not_accepted("SUM_LIST", types, "SUM_LIST takes an ARRAY of numbers")
    return Resolution(types, types[0].element)


def _list_sum(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(r: Resolution, _init: Init) -> Add:
        step = summing(r.result, sign)

        def run(acc: Any, items: list[Any] | None) -> Any:
            for v in items or ():
                acc = acc if v is None else step(acc, v)
            return acc

        return run

    return make


define_aggregate(
    "SUM_LIST",
    _list_sum_types,
    initial=lambda r, _i: zero_of(r.result),
    add=_list_sum(1),
    undo=_list_sum(-1),
    merge=lambda r, _i: summing(r.result),
    result=_identity,
)


# --- standard SQL: as a stream is folded ---


def _sum_type(t: SqlType) -> SqlType:
    if t.kind is Kind.DECIMAL:
        return decimal(MAX_PRECISION, t.scale)
    return {Kind.INT: BIGINT, Kind.BIGINT: decimal(MAX_PRECISION, 0)}.get(t.kind, DOUBLE)


def _average_type(t: SqlType) -> SqlType:
    return DOUBLE if t.kind is Kind.DOUBLE else decimal(MAX_PRECISION, max(t.scale, NUMERIC_SCALE))


def _grown(parts: tuple[float, ...], v: float) -> tuple[float, ...]:
    """The expansion with one value more: no part overlaps another, and together they are the sum, without rounding."""
    rest = []
    for part in parts:
        large, small = (v, part) if abs(v) >= abs(part) else (part, v)
        v = large + small
        if lost := small - (v - large):
            rest.append(lost)
    if math.isinf(v):
        raise NumericOverflow("the sum is out of the range of DOUBLE")
    return (*rest, v) if v else tuple(rest)


def _double_step(sign: int) -> Callable[[Any, float], Any]:
    def step(total: Any, v: float) -> Any:
        parts, nans, above, below = total
        if math.isfinite(v):
            return _grown(parts, sign * v), nans, above, below
        if v != v:
            return parts, nans + sign, above, below
        return (parts, nans, above + sign, below) if v > 0 else (parts, nans, above, below + sign)

    return step


def _double_total(total: Any) -> float:
    parts, nans, above, below = total
    if nans or (above and below):
        return math.nan
    return math.inf if above else -math.inf if below else math.fsum(parts)


def _double_mean(total: Any, n: int) -> float:
    """The double nearest to the exact mean, which a rounded sum might miss."""
    whole = _double_total(total)
    if not math.isfinite(whole):
        return whole
    fractions = [part.as_integer_ratio() for part in total[0]]
    below = max((d for _, d in fractions), default=1)  # all are powers of two
    return sum(m * (below // d) for m, d in fractions) / (below * n)


def _double_merge(a: Any, b: Any) -> Any:
    parts = a[0]
    for v in b[0]:
        parts = _grown(parts, v)
    return (parts, *(x + y for x, y in zip(a[1:], b[1:], strict=True)))


def _exact_step(t: SqlType, sign: int) -> Callable[[Any, Any], Any]:
    """Sum ± value of an argument of type `t`. Integers are exact at any size; decimals must fit their sum's type."""
    if t.kind is Kind.DOUBLE:
        return _double_step(sign)
    if t.kind is Kind.DECIMAL:
        exact = WIDE.add if sign > 0 else WIDE.subtract
        return lambda total, v: fit_decimal(exact(total, v), MAX_PRECISION, t.scale)
    if t.kind is Kind.INT:
        return lambda total, v: _bigint(total + sign * v)
    return lambda total, v: total + sign * v


def _bigint(total: int) -> int:
    if not BIGINT_MIN <= total <= BIGINT_MAX:
        raise NumericOverflow("the sum is out of the range of BIGINT")
    return total


def _nothing(r: Resolution, _init: Init) -> Any:
    t = r.args[0]
    if t.kind is Kind.DOUBLE:
        return _NO_PARTS, 0
    return (Decimal(0).scaleb(-t.scale) if t.kind is Kind.DECIMAL else 0), 0


def _exact_fold(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(r: Resolution, _init: Init) -> Add:
        step = _exact_step(r.args[0], sign)
        return lambda acc, v: acc if v is None else (step(acc[0], v), acc[1] + sign)

    return make


def _exact_merge(r: Resolution, _init: Init) -> Callable[[Any, Any], Any]:
    t = r.args[0]
    both = _double_merge if t.kind is Kind.DOUBLE else _exact_step(t, 1)
    return lambda a, b: (both(a[0], b[0]), a[1] + b[1])


def _exact_from_partial(r: Resolution, init: Init) -> Add:
    """Adds the sum and the number of a batch's values. A sum of doubles has been rounded by then."""
    t, nothing = r.args[0], _nothing(r, init)
    if t.kind is Kind.DOUBLE:
        step = _double_step(1)
        return lambda total, n: (step(_NO_PARTS, float(total)), n) if n else nothing
    whole = int if t.kind in _INTEGERS else (lambda total: fit_decimal(total, MAX_PRECISION, t.scale))
    return lambda total, n: (whole(total), n) if n else nothing


def _total(r: Resolution, _init: Init) -> Callable[[Any], Any]:
    if r.args[0].kind is Kind.DOUBLE:
        return lambda acc: _double_total(acc[0]) if acc[1] else None
    if r.args[0].kind is Kind.BIGINT:
        return lambda acc: Decimal(acc[0]) if acc[1] else None
    return lambda acc: acc[0] if acc[1] else None


def _mean(r: Resolution, _init: Init) -> Callable[[Any], Any]:
    if r.result.kind is Kind.DOUBLE:
        return lambda acc: _double_mean(acc[0], acc[1]) if acc[1] else None
    quantum = Decimal(1).scaleb(-r.result.scale)

    def mean(acc: Any) -> Decimal | None:
        if not acc[1]:
            return None
        exact = WIDE.divide(Decimal(acc[0]), Decimal(acc[1]))
        return exact.quantize(quantum, rounding=ROUND_HALF_UP, context=WIDE)

    return mean


def _averaging(make: Callable[[Resolution, Init], Add]) -> Callable[[Resolution, Init], Add]:
    """A step of AVG. Where the average may be out of its type's range, which is an error as of a sum, it is looked at."""

    def averaging(r: Resolution, init: Init) -> Add:
        step, mean = make(r, init), _mean(r, init)
        limit = Decimal(10) ** (r.result.precision - r.result.scale)

        def run(acc: Any, v: Any) -> Any:
            made = step(acc, v)
            if (value := mean(made)) is not None and abs(value) >= limit:
                raise NumericOverflow(f"the average is out of the range of {r.result}")
            return made

        t = r.args[0]
        narrower = t.kind is Kind.DECIMAL and t.precision - t.scale > r.result.precision - r.result.scale
        return run if narrower else step

    return averaging


# --- standard SQL: over relations, and over rows that are all there ---


def _asked(call: Asked, *, mean: bool) -> str | None:
    """Sums are whole numbers in DuckDB, and finished once for each group."""
    if len(call.args) != 1 or not call.types[0].is_numeric:
        return None
    (t,), (arg,), result = call.types, call.args, call.result
    if t.kind is Kind.DOUBLE:
        return _asked_doubles(call, mean=mean)
    if not mean and result.kind in (*_INTEGERS, Kind.DECIMAL) and result.scale == t.scale:
        return f"CAST({call.over(f'sum({call.of}{arg})')} AS {duckdb_type(result)})"
    finish = finisher("AVG" if mean else "SUM", linear_sum((t,), result, mean=mean), t, result, lambda n, s: (n, s))
    return (
        f'"{finish}"({call.over(f"count({call.of}{arg})")}, {digits(call.over(f"sum({call.of}{whole_sql(arg, t)})"))})'
    )


def _asked_doubles(call: Asked, *, mean: bool) -> str:
    """Exact, by the whole parts and the fractions as whole numbers of 2**-100; declines rows of which one has more digits, and what is not finite."""
    of, arg, over = call.of, call.args[0], call.over
    whole = f"trunc({arg})"
    fraction = f"(({arg} - {whole}) * {float(2**_PLACES)!r})"
    odd = f"NOT isfinite({arg}) OR abs({arg}) >= {float(2**_PLACES)!r} OR {fraction} <> trunc({fraction})"
    parts = [
        digits(over(f"sum({of}CASE WHEN {odd} THEN error('{DECLINED}') ELSE CAST({part} AS HUGEINT) END)"))
        for part in (whole, fraction)
    ]
    name = f"{'AVG' if mean else 'SUM'}@DOUBLES"

    def finish(columns: Sequence[pa.Array]) -> pa.Array:
        made = []
        for n, m, f in zip(*(c.to_pylist() for c in columns), strict=True):
            made.append(ratio((int(m) << _PLACES) + int(f), -_PLACES, n if mean else 1) if n else None)
        return pa.array(made, arrow_type(DOUBLE))

    register_columns(name, ArrowCall((BIGINT, SUM_DIGITS, SUM_DIGITS), DOUBLE, finish))
    return f'"{name}"({over(f"count({of}{arg})")}, {", ".join(parts)})'


# --- standard SQL: on Spark ---


def _reason_against_exact(name: str, types: Sequence[SqlType]) -> str:
    """Sums of integers in a wider type never overflow (`exact_sum` has a bound)."""
    if types[0].kind is Kind.DOUBLE:
        return f"{name} of DOUBLE is exact, and Spark's depends on the order of addition"
    if types[0].kind is Kind.DECIMAL:
        return f"the record with which {name} of DECIMAL overflows is a dead letter, and Spark does not say which it is"
    return ""


def _exact_sum_on_spark(call: SparkCall) -> str:
    """NULL of nothing."""
    return f"sum({call.args[0]})" if call.types[0].kind is Kind.INT else _whole_sum_on_spark(call)


def _whole_sum_on_spark(call: SparkCall) -> str:
    """The DECIMAL(30, 0) sum of BIGINTs; of any number of them where it is kept."""
    return f"sum(CAST({call.args[0]} AS DECIMAL(20, 0)))" if call.kept else exact_sum(call.args[0])


def exact_sum(sql: str, low_bits: int = 28) -> str:
    """The DECIMAL(30, 0) sum of BIGINTs by two sums of BIGINTs, in half the time of a sum of DECIMALs.

    The lower bits are good for 2^(63 - low_bits) rows of a group, the upper ones until their own sum is beyond a BIGINT; by default for
    2^35 rows and a sum of 2^91. All rows of the group are counted, as most queries count them anyway. The job ends with an error where one of
    them is not good: `try_sum` is NULL then, in ANSI mode or not.
    """
    high, low, n = f"try_sum(shiftright({sql}, {low_bits}))", f"sum(({sql}) & {2**low_bits - 1}L)", "count(*)"
    whole = f"CAST(CAST({high} AS DECIMAL(20, 0)) * {2**low_bits}BD + CAST({low} AS DECIMAL(20, 0)) AS DECIMAL(30, 0))"
    beyond = f"{high} IS NULL OR {n} >= {2 ** (63 - low_bits)}L"
    return f"CASE WHEN {low} IS NULL THEN NULL WHEN {beyond} THEN raise_error({text(_BEYOND)}) ELSE {whole} END"


def _exact_average_on_spark(call: SparkCall) -> str:
    """To 18 places, halves away from zero: the whole part and the rest of a division of integers, as Spark's own rounds earlier."""
    n, all_ = f"CAST(count({call.args[0]}) AS DECIMAL(17, 0))", _whole_sum_on_spark(call)
    whole = f"CAST({all_} DIV {n} AS DECIMAL(19, 0))"
    rest = f"CAST({all_} - {whole} * {n} AS DECIMAL(17, 0))"
    scaled = f"abs({rest}) * CAST('2000000000000000000' AS DECIMAL(19, 0))"
    places = f"CAST(({scaled} + {n}) DIV ({n} * CAST(2 AS DECIMAL(1, 0))) AS DECIMAL(19, 0))"
    fraction = f"CAST({places} * CAST('0.000000000000000001' AS DECIMAL(18, 18)) AS DECIMAL(19, 18))"
    mean = f"{whole} + CASE WHEN {rest} < 0 THEN -{fraction} ELSE {fraction} END"
    return f"CASE WHEN {n} = 0 THEN NULL ELSE {mean} END"


define_aggregate(
    "sql_sum",
    _number("SUM", _sum_type),
    initial=_nothing,
    add=_exact_fold(1),
    undo=_exact_fold(-1),
    merge=_exact_merge,
    result=_total,
    arrow=("sum", "count"),
    spark=OnSpark(_exact_sum_on_spark, partial(_reason_against_exact, "SUM")),
    from_partial=_exact_from_partial,
    relation=OverRelations(
        ("SUM",),
        lambda types: _number("SUM", _sum_type)(types, ()).result,
        linear=lambda args, result: linear_sum(args, result, mean=False),
        asked=lambda call: _asked(call, mean=False),
    ),
)
define_aggregate(
    "sql_avg",
    _number("AVG", _average_type),
    initial=_nothing,
    add=_averaging(_exact_fold(1)),
    undo=_averaging(_exact_fold(-1)),
    merge=_averaging(_exact_merge),
    result=_mean,
    arrow=("sum", "count"),
    spark=OnSpark(_exact_average_on_spark, partial(_reason_against_exact, "AVG")),
    from_partial=_exact_from_partial,
    relation=OverRelations(
        ("AVG",),
        lambda types: _number("AVG", _average_type)(types, ()).result,
        linear=lambda args, result: linear_sum(args, result, mean=True),
        asked=lambda call: _asked(call, mean=True),
    ),
)

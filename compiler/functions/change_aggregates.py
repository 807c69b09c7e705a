"""The aggregates of relations that change (`flowql.compiler.plan.changes.GroupCall`): what is added can be taken out again, exactly.

*Linear* ones keep a few numbers per group; those of no rows are `zero`, and those of two sets of rows are added part by part, where
a row that is taken out counts -1 times. *Ordered* ones need the values themselves: the runtime keeps them as an ordered multiset
per group. NULL arguments are left out by all but COUNT(*) and ARRAY_AGG, FIRST_VALUE, LAST_VALUE. Over no rows a COUNT is 0, all
others are NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from flowql.compiler.functions import change_bits, change_statistics
from flowql.compiler.functions.exact_sums import (
    NO_DOUBLES,
    add_doubles,
    as_double,
    divided,
    double_part,
    from_whole,
    plus,
    ratio,
    reduced,
    scaled,
    whole_of,
)
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import aggregate_in_plan, is_users
from flowql.compiler.plan.types import BIGINT, DOUBLE, JSONB, Kind, SqlType, array

Acc = Any  # an immutable reference value (`AggregateFunction.initial`)


class OutOfRange(ArithmeticError):
    """A result that its type cannot hold."""


@dataclass(frozen=True, slots=True)
class Linear:
    """part: (arguments of a row, how many times it counts) -> accumulator of that row alone; None where the row does not count.
    of_sum: where sums of a column suffice, as a vector kernel makes them: (rows that are not NULL, m, e) -> accumulator of values
    that are m * 2**e together.
    """

    zero: Acc
    part: Callable[[tuple[Any, ...], int], Acc | None]
    add: Callable[[Acc, Acc], Acc]
    result: Callable[[Acc], Any]
    of_sum: Callable[[int, int, int], Acc] | None = None


# How an ordered aggregate reads its multiset: the first value, the last one, all in order, or a place in it.
Reading = Literal["first", "last", "all", "place"]


@dataclass(frozen=True, slots=True)
class Ordered:
    """nulls: NULL arguments are values like others. by_argument: ordered by its argument, whatever ORDER BY says.

    result: of `all`, (values with their counts, in order) -> result. fraction and continuous: of `place`.
    """

    reading: Reading
    nulls: bool = False
    by_argument: bool = False
    result: Callable[[Sequence[tuple[Any, int]]], Any] | None = None
    fraction: float = 0.0
    continuous: bool = False


def aggregate(
    function: str, args: tuple[SqlType, ...], result: SqlType, init: tuple[Any, ...] = ()
) -> Linear | Ordered | None:
    """The aggregate of that name for these types; None if there is none.

    >>> total = aggregate("SUM", (SqlType(Kind.INT),), SqlType(Kind.BIGINT))
    >>> total.result(total.add(total.part((5,), 1), total.part((3,), -1))), total.result(total.zero)
    (2, None)
    """
    if is_users(function):
        return _of_project(function, args, result)
    if function == "COUNT":
        return _count()
    if function in ("SUM", "AVG") and len(args) == 1 and args[0].is_numeric:
        return _sum(args[0], result, mean=function == "AVG")
    if function in _VARIANCES and len(args) == 1 and args[0].is_numeric:
        return _variance(args[0], *_VARIANCES[function])
    if function in change_statistics.FUNCTIONS and len(args) == 2 and all(t.is_numeric for t in args):
        return Linear(
            change_statistics.ZERO,
            change_statistics.pairs(args),
            change_statistics.added,
            change_statistics.result_of(function, args),
        )
    if function in change_bits.FUNCTIONS and args[0].kind in (Kind.INT, Kind.BIGINT):
        part, of_bits = change_bits.bits(args[0]), change_bits.result_of(function, args[0])
        return Linear(change_bits.ZERO, part, change_bits.added, of_bits)
    if function in ("BOOL_AND", "EVERY", "BOOL_OR"):
        return _booleans(every=function != "BOOL_OR")
    if function in ("PERCENTILE_CONT", "PERCENTILE_DISC") and len(init) == 1:
        return Ordered("place", by_argument=True, fraction=float(init[0]), continuous=function == "PERCENTILE_CONT")
    if function == "STRING_AGG":
        return Ordered("all", result=_joined(str(init[0])) if init else _delimited)
    return _ORDERED.get(function)


def result_type(function: str, args: tuple[SqlType, ...]) -> SqlType | None:
    """The type of what an aggregate gives, COUNT, SUM and AVG apart; None where it does not take these types."""
    numeric = function in _VARIANCES or function in change_statistics.FUNCTIONS
    wanted = _OF_KIND.get(function)
    if (
        (wanted is not None and args[0].kind is not wanted)
        or ((numeric or function == "PERCENTILE_CONT") and not all(t.is_numeric for t in args))
        or (function in change_bits.FUNCTIONS and args[0].kind not in (Kind.INT, Kind.BIGINT))
        or (function in ("MIN", "MAX", "MODE") and args[0] == JSONB)
    ):
        return None
    if function == "REGR_COUNT":
        return BIGINT
    if function == "ARRAY_AGG":
        return array(args[0])
    return DOUBLE if numeric or function == "PERCENTILE_CONT" else args[0]


def needs_values(function: str) -> bool:
    """Whether an aggregate needs the values themselves."""
    return is_users(function) or function in _names_of_ordered()


def _names_of_ordered() -> frozenset[str]:
    return frozenset({*_ORDERED, "PERCENTILE_CONT", "PERCENTILE_DISC", "STRING_AGG"})


def names_of_best() -> frozenset[str]:
    """Names of the aggregates that show the first or the last value in an order."""
    return frozenset(n for n, kind in _ORDERED.items() if kind.reading in ("first", "last"))


def names() -> frozenset[str]:
    """All aggregates there are."""
    linear = {"COUNT", "SUM", "AVG", "BOOL_AND", "BOOL_OR", "EVERY", *change_bits.FUNCTIONS}
    return _names_of_ordered() | linear | _VARIANCES.keys() | change_statistics.FUNCTIONS.keys()


def _count() -> Linear:
    return Linear(
        0,
        lambda args, weight: None if args and None in args else weight,
        lambda a, b: a + b,
        lambda acc: acc,
        of_sum=lambda n, _m, _e: n,
    )


def _sum(t: SqlType, result: SqlType, *, mean: bool) -> Linear:
    """Accumulator: (values that are not NULL, their sum as a whole number or as a `DoubleSum`)."""
    if t.kind is Kind.DOUBLE:

        def of_doubles(acc: Acc) -> Any:
            return as_double(acc[1], acc[0] if mean else 1) if acc[0] else None

        return Linear(
            (0, *NO_DOUBLES),
            lambda args, weight: None if args[0] is None else (weight, *double_part(args[0], weight)),
            lambda a, b: (a[0] + b[0], *add_doubles(a[1:], b[1:])),
            lambda acc: of_doubles((acc[0], acc[1:])),
            of_sum=lambda n, m, e: (n, *reduced(m, e), 0, 0, 0),
        )
    whole = whole_of(t)
    write = _whole_result(t, result)

    def part(args: tuple[Any, ...], weight: int) -> Acc | None:
        return None if args[0] is None else (weight, whole(args[0]) * weight)

    return Linear(
        (0, 0),
        part,
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda acc: write(acc[1], acc[0] if mean else 1) if acc[0] else None,
        of_sum=(lambda n, m, _e: (n, m)) if t.kind in (Kind.INT, Kind.BIGINT) else None,
    )


def _whole_result(t: SqlType, result: SqlType) -> Callable[[int, int], Any]:
    """(whole number in the scale of `t`, divisor) -> value of the result's type. Raises OutOfRange."""
    scale = t.scale if t.kind is Kind.DECIMAL else 0
    if result.kind is Kind.DOUBLE:
        return lambda n, divisor: n / (divisor * 10**scale)
    if result.kind is Kind.DECIMAL:
        up = result.scale - scale
        limit = 10**result.precision

        def decimal(n: int, divisor: int) -> Any:
            whole = divided(n * 10 ** max(up, 0), divisor * 10 ** max(-up, 0))
            if abs(whole) >= limit:
                raise OutOfRange(f"the result does not fit in {result}")
            return from_whole(whole, result.scale)

        return decimal
    bits = 31 if result.kind is Kind.INT else 63

    def integer(n: int, divisor: int) -> Any:
        whole = divided(n, divisor * 10**scale)
        if not -(1 << bits) <= whole < 1 << bits:
            raise OutOfRange(f"the result does not fit in {result}")
        return whole

    return integer


_OF_KIND = {"BOOL_AND": Kind.BOOLEAN, "EVERY": Kind.BOOLEAN, "BOOL_OR": Kind.BOOLEAN, "STRING_AGG": Kind.STRING}
# function -> (it is over a sample: divided by n - 1; it is the root).
_VARIANCES = {
    "VAR_POP": (False, False),
    "VAR_SAMP": (True, False),
    "VARIANCE": (True, False),
    "STDDEV_POP": (False, True),
    "STDDEV_SAMP": (True, True),
    "STDDEV": (True, True),
}


def _variance(t: SqlType, sample: bool, root: bool) -> Linear:
    """Accumulator: (n, sum, sum of squares, values that are not finite), sums as m and e: nothing is rounded before the end."""
    whole = whole_of(t) if t.kind is not Kind.DOUBLE else None
    unit = Fraction(1, 10**t.scale) if t.kind is Kind.DECIMAL else Fraction(1)

    def part(args: tuple[Any, ...], weight: int) -> Acc | None:
        v = args[0]
        if v is None:
            return None
        if whole is None and not math.isfinite(v):
            return weight, 0, 0, 0, 0, weight
        m, e = scaled(v) if whole is None else reduced(whole(v), 0)
        return (weight, *reduced(m * weight, e), *reduced(m * m * weight, 2 * e), 0)

    def add(a: Acc, b: Acc) -> Acc:
        return (a[0] + b[0], *plus(a[1:3], b[1:3]), *plus(a[3:5], b[3:5]), a[5] + b[5])

    def result(acc: Acc) -> Any:
        n, m, e, m2, e2, odd = acc
        if n <= sample:
            return None
        if odd:
            return math.nan
        squares = Fraction(m2) * Fraction(2) ** e2 - (Fraction(m) * Fraction(2) ** e) ** 2 / n
        found = squares * unit * unit / (n - sample)
        return _root(found) if root else ratio(found.numerator, 0, found.denominator)

    return Linear((0, 0, 0, 0, 0, 0), part, add, result)


def _root(value: Fraction) -> float:
    """The square root, also of what is too small or too large for a double."""
    half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    near_one = value / Fraction(4) ** half
    return math.ldexp(math.sqrt(near_one), half)


def _booleans(*, every: bool) -> Linear:
    """Accumulator: (how many are true, how many are false)."""

    def result(acc: Acc) -> Any:
        true, false = acc
        if not true and not false:
            return None
        return not false if every else bool(true)

    return Linear(
        (0, 0),
        lambda args, weight: None if args[0] is None else (weight, 0) if args[0] else (0, weight),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result,
    )


def _of_project(function: str, args: tuple[SqlType, ...], result: SqlType) -> Ordered | None:
    """Over the rows of a group in the order of ORDER BY, or of their values: no row needs to be taken out again."""
    found = aggregate_in_plan(function)
    if found is None or found.of_rows is None:
        return None
    of_rows, one = found.of_rows(Resolution(args, result)), len(args) == 1

    def over(values: Sequence[tuple[Any, int]]) -> Any:
        return of_rows((v,) if one else v for v, n in values for _ in range(n))

    return Ordered("all", nulls=found.takes_null, result=over)


def _joined(separator: str) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    def result(values: Sequence[tuple[Any, int]]) -> Any:
        return separator.join([v for v, n in values for _ in range(n)]) if values else None

    return result


def _delimited(values: Sequence[tuple[tuple[str, str], int]]) -> Any:
    """Each value but the first one behind the delimiter of its own row."""
    parts = [part for (v, delimiter), n in values for _ in range(n) for part in (delimiter, v)]
    return "".join(parts[1:]) if parts else None


def _array(values: Sequence[tuple[Any, int]]) -> Any:
    return [v for v, n in values for _ in range(n)] if values else None


def _most_frequent(values: Sequence[tuple[Any, int]]) -> Any:
    """The first of those that come most often."""
    return max(values, key=lambda pair: pair[1])[0] if values else None


_ORDERED = {
    "ANY_VALUE": Ordered("first", by_argument=True),  # the least one, so that the same rows give the same
    "MODE": Ordered("all", by_argument=True, result=_most_frequent),
    "MIN": Ordered("first", by_argument=True),
    "MAX": Ordered("last", by_argument=True),
    "FIRST_VALUE": Ordered("first", nulls=True),
    "LAST_VALUE": Ordered("last", nulls=True),
    "ARRAY_AGG": Ordered("all", nulls=True, result=_array),
}

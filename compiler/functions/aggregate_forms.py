"""The forms of an aggregate beside the fold of a stream: over relations that change, and over rows that are all there.

*Linear* aggregates keep a few numbers per group; those of no rows are `zero`, and those of two sets of rows are added part by part, where
a row that is taken out counts -1 times. *Ordered* ones need the values themselves: the runtime keeps them as an ordered multiset
per group. NULL arguments are left out by all but COUNT(*) and ARRAY_AGG, FIRST_VALUE, LAST_VALUE. Over no rows a COUNT is 0, all
others are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flowql.compiler.plan.types import Kind, SqlType

Init = tuple[Any, ...]  # constant arguments of an aggregate
Add = Callable[..., Any]
Acc = Any  # an immutable reference value (`AggregateFunction.initial`)
# Types whose order in DuckDB is that of views.
_ORDERED = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS, Kind.STRING)  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class Asked:
    """A call over rows that are all there. args: SQL texts. over: an aggregate of DuckDB -> with FILTER and OVER. order: of the rows, as ORDER BY lists it."""

    args: Sequence[str]
    types: Sequence[SqlType]
    result: SqlType
    init: Sequence[object]
    over: Callable[[str], str]
    distinct: bool = False
    order: str = ""
    windowed: bool = False

    @property
    def of(self) -> str:
        return "DISTINCT " if self.distinct else ""

    @property
    def is_ordered(self) -> bool:
        """Whether DuckDB orders the argument as views do."""
        return self.types[0].kind in _ORDERED and not self.types[0].form


@dataclass(frozen=True, slots=True)
class OverRelations:
    """An aggregate of standard SQL over relations.

    names: as written; plans have the first one (`flowql.compiler.plan.changes.GroupCall`).
    result: types of the arguments -> type of the value; None where it does not take them.
    linear, ordered: the form that changes are applied to, one of both. linear: (types of the arguments, type of the value) -> the form, or None.
    asked: DuckDB's SQL, of exactly the DuckDB type of the result, where that gives exactly the same; None for others. Where a value leaves its
    range the statement may fail: then the reference decides what is wrong.
    """

    names: tuple[str, ...]
    result: Callable[[tuple[SqlType, ...]], SqlType | None]
    linear: Callable[[tuple[SqlType, ...], SqlType], Linear | None] | None = None
    ordered: Callable[[Init], Ordered] | None = None
    asked: Callable[[Asked], str | None] = lambda _call: None
    arguments: int = 1


@dataclass(frozen=True, slots=True)
class SparkCall:
    """A call as an aggregate of Spark. args: SQL texts. place: Spark SQL by which rows come one after the other.

    kept: by a stream, whose state has no bound of rows and is read by later versions.
    """

    args: Sequence[str]
    types: Sequence[SqlType]
    place: str
    kept: bool = False


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Spark SQL of an aggregate, cast to its type by whoever calls it.

    reason: types of the arguments -> why Spark's is not the same; "" where it is. placed: goes by the order of rows, so they must come by it.
    """

    sql: Callable[[SparkCall], str]
    reason: Callable[[Sequence[SqlType]], str] = lambda _types: ""
    placed: bool = False

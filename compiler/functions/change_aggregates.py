"""The aggregates over relations by their names in plans (`flowql.compiler.plan.changes.GroupCall`): what is added can be taken out again, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

from flowql.compiler.functions.aggregate_forms import Add, Asked, Init, Linear, Ordered, OverRelations
from flowql.compiler.functions.registry import OVER_RELATIONS, AddRuns, define_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.user import aggregate_in_plan, is_users
from flowql.compiler.functions.values import identity
from flowql.compiler.plan.changes import GroupCall
from flowql.compiler.plan.types import Kind, SqlType


def aggregate(
    function: str, args: tuple[SqlType, ...], result: SqlType, init: tuple[Any, ...] = ()
) -> Linear | Ordered | None:
    """The aggregate of that name for these types; None if there is none.

    >>> from flowql.compiler.functions import builtin
    >>> total = aggregate("SUM", (SqlType(Kind.INT),), SqlType(Kind.BIGINT))
    >>> total.result(total.add(total.part((5,), 1), total.part((3,), -1))), total.result(total.zero)
    (2, None)
    """
    if is_users(function):
        return _of_project(function, args, result)
    found = OVER_RELATIONS.get(function)
    if found is None:
        return None
    return found.ordered(init) if found.ordered is not None else found.linear and found.linear(args, result)


def result_type(function: str, args: tuple[SqlType, ...]) -> SqlType | None:
    """The type of what an aggregate gives; None where it does not take these types. Raises FunctionTypeError where it says why."""
    return OVER_RELATIONS[function].result(args)


def needs_values(function: str) -> bool:
    """Whether an aggregate needs the values themselves."""
    found = OVER_RELATIONS.get(function)
    return is_users(function) or (found is not None and found.ordered is not None)


def shows_one(function: str, init: Init) -> bool:
    """Whether an aggregate shows the first or the last value in an order."""
    found = OVER_RELATIONS.get(function)
    return found is not None and found.ordered is not None and found.ordered(init).reading in ("first", "last")


def keeps_all_values(call: GroupCall, *, appends: bool) -> bool:
    """Whether a group has the values of a call. Where rows only come, the value that is shown is enough for MIN, MAX and their like."""
    if appends and shows_one(call.function, call.init):
        return False
    return call.distinct or needs_values(call.function)


def names() -> frozenset[str]:
    """All aggregates there are."""
    return frozenset(OVER_RELATIONS)


def asked_sql(function: str, call: Asked) -> str | None:
    """The SQL of an aggregate over rows that are all there; None where it has none."""
    found = OVER_RELATIONS.get(function)
    is_inexact = call.distinct and bool(call.types) and call.types[0].kind is Kind.DOUBLE and function != "COUNT"
    return None if found is None or is_inexact else found.asked(call)


def _of_project(function: str, args: tuple[SqlType, ...], result: SqlType) -> Ordered | None:
    """Over the rows of a group in the order of ORDER BY, or of their values: no row needs to be taken out again."""
    found = aggregate_in_plan(function)
    if found is None or found.of_rows is None:
        return None
    of_rows, one = found.of_rows(Resolution(args, result)), len(args) == 1

    def over(values: Sequence[tuple[Any, int]]) -> Any:
        return of_rows((v,) if one else v for v, n in values for _ in range(n))

    return Ordered("all", nulls=found.takes_null, result=over)


def linear_aggregate(relation: OverRelations, *, takes: str) -> None:
    """Register an aggregate of standard SQL that keeps numbers alone. takes: its arguments in words, for errors.

    The fold of a stream is made of the linear form, so a view over a stream gives what the same view over a table gives, to the last bit.
    """
    name, pairs, of = relation.names[0], relation.arguments > 1, relation.linear
    assert of is not None

    def resolve(types: tuple[SqlType, ...], init: Init) -> Resolution:
        result = relation.result(types) if len(types) == relation.arguments and not init else None
        if result is None:
            raise not_accepted(name, types, f"{name} takes {takes}")
        return Resolution(types, result)

    def linear(r: Resolution) -> Linear:
        found = of(r.args, r.result)
        assert found is not None
        return found

    def step(weight: int) -> Callable[[Resolution, Init], Add]:
        def make(r: Resolution, _init: Init) -> Add:
            part, add = linear(r).part, linear(r).add

            def run(acc: Any, *args: Any) -> Any:
                made = None if None in args else part(args, weight)
                return acc if made is None else add(acc, made)

            return run

        return make

    def runs(r: Resolution) -> AddRuns:
        """Equal values of a group in a batch are one part."""
        part, add = linear(r).part, linear(r).add

        def run(accs: Sequence[Any], offsets: Sequence[int], columns: Sequence[Sequence[Any]]) -> list[Any]:
            rows = list(zip(*columns, strict=True)) if pairs else columns[0]
            made = list(accs)
            for i, (start, end) in enumerate(pairwise(offsets)):
                for row, n in Counter(rows[start:end]).items():
                    args = row if pairs else (row,)
                    found = None if None in args else part(args, n)
                    made[i] = made[i] if found is None else add(made[i], found)
            return made

        return run

    define_aggregate(
        f"sql_{name.lower()}",
        resolve,
        initial=lambda r, _i: linear(r).zero,
        add=step(1),
        undo=step(-1),
        merge=lambda r, _i: linear(r).add,
        result=lambda r, _i: linear(r).result,
        add_runs=runs,
        relation=relation,
    )


# --- the different values of a group ---
#
# They are kept in order of arrival, with a set beside them, so a further value costs the same for any number of values.
# Small groups are plain tuples. A store keeps tuples, and the set is made again when the first value comes after a load.

FEW = 16  # values of a plain tuple, which is searched from the beginning
_PLAIN = frozenset(
    {int, str, bytes, bool, type(None)}
)  # hashes of equal values are equal, and a column has one of them


class DistinctValues:
    """An immutable view of the first `count` values of lists that only grow. Equal to the tuple of its values.

    Adding to the newest view appends to its lists; adding to an older one, whose successor failed or was dropped, copies them.
    """

    __slots__ = ("_count", "_grown")

    def __init__(self, grown: _Grown, count: int) -> None:
        self._grown, self._count = grown, count

    def has(self, v: Any) -> bool:
        return self._newest().has(v)

    def plus(self, v: Any) -> DistinctValues:
        """With one more value, which must not be in it."""
        grown = self._newest()
        grown.append(v)
        return DistinctValues(grown, self._count + 1)

    def kept_bytes(self, measure: Callable[[Any], int]) -> int:
        """The size of all values together. measure: gives the size of one value; each call passes the same function."""
        return self._newest().kept_bytes(measure)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return islice(self._grown.values, self._count)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, DistinctValues | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _newest(self) -> _Grown:
        if len(self._grown.values) != self._count:
            self._grown = _Grown(self)
        return self._grown


class _Grown:
    """The values that views share. They only grow: nothing is removed or replaced."""

    __slots__ = ("_bytes", "_measured", "_seen", "values")

    def __init__(self, values: Any) -> None:
        self.values: list[Any] = list(values)
        self._seen = set(map(_hashed, self.values))
        self._measured = self._bytes = 0

    def has(self, v: Any) -> bool:
        return _hashed(v) in self._seen

    def append(self, v: Any) -> None:
        self.values.append(v)
        self._seen.add(_hashed(v))

    def kept_bytes(self, measure: Callable[[Any], int]) -> int:
        self._bytes += sum(map(measure, islice(self.values, self._measured, None)))
        self._measured = len(self.values)
        return self._bytes


def _hashed(v: Any) -> Hashable:
    return v if type(v) in _PLAIN else identity(v)


Distinct = tuple[Any, ...] | DistinctValues


def with_value(values: Distinct, v: Any, limit: int, same: Callable[[Any, Any], bool]) -> Distinct:
    """With a value, unless it is in them or they are `limit` already. same: whether two values are equal, for small groups."""
    if len(values) >= limit:
        return values
    if isinstance(values, tuple):
        if len(values) < FEW:
            return values if any(same(x, v) for x in values) else (*values, v)
        values = DistinctValues(_Grown(values), len(values))
    return values if values.has(v) else values.plus(v)

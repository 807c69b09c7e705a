"""The aggregates over relations by their names in plans (`flowql.compiler.plan.changes.GroupCall`): what is added can be taken out again, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from flowql.compiler.functions.aggregate_forms import Add, Asked, Init, Linear, Ordered, OverRelations
from flowql.compiler.functions.registry import OVER_RELATIONS, AddRuns, define_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.user import aggregate_in_plan, is_users
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
    found = OVER_RELATIONS.get(function)
    if found is None:
        return _of_project(function, args, result) if is_users(function) else None
    return found.ordered(init) if found.ordered is not None else found.linear and found.linear(args, result)


def result_type(function: str, args: tuple[SqlType, ...]) -> SqlType | None:
    """The type of what an aggregate gives; None where it does not take these types. Raises FunctionTypeError where it says why."""
    return OVER_RELATIONS[function].result(args)


def needs_values(function: str) -> bool:
    """Whether an aggregate needs the values themselves."""
    found = OVER_RELATIONS.get(function)
    return is_users(function) if found is None else found.ordered is not None


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

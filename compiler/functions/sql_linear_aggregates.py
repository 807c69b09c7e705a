"""Aggregates of standard SQL over streams: those of relations that keep a few numbers per group (`change_aggregates.Linear`).

There is one meaning of each, so that a view over a stream gives what the same view over a table gives, to the last bit. STDDEV_SAMP is
the sample standard deviation here; ksqlDB's function of that name is the sample variance. COUNT, MIN, MAX, SUM and AVG over streams have
forms of their own, which are folded by columns; `tests/compiler/functions/test_one_aggregate.py` compares them with those of relations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from flowql.compiler.functions import change_bits, change_statistics
from flowql.compiler.functions.aggregates import Add, Init
from flowql.compiler.functions.change_aggregates import Linear, aggregate, result_type
from flowql.compiler.functions.registry import AddRuns, AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.plan.types import SqlType

# Names as written -> the aggregate of relations.
SAME = {
    **{n: n for n in ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", "BOOL_AND", "BOOL_OR")},
    **{n: n for n in (*change_bits.FUNCTIONS, *change_statistics.FUNCTIONS)},
    **{"VARIANCE": "VAR_SAMP", "STDDEV": "STDDEV_SAMP", "EVERY": "BOOL_AND"},
}
_SUMMARIES = {
    "VAR_POP": "The population variance; NULLs are left out, NULL when there is nothing.",
    "VAR_SAMP": "The sample variance; NULL below two values.",
    "STDDEV_POP": "The population standard deviation; NULLs are left out, NULL when there is nothing.",
    "STDDEV_SAMP": "The sample standard deviation; NULL below two values.",
    "BOOL_AND": "Whether all values are true; NULLs are left out, NULL when there is nothing.",
    "BOOL_OR": "Whether a value is true; NULLs are left out, NULL when there is nothing.",
}


def plan_name(function: str) -> str:
    """What a plan calls an aggregate of relations where it is one of a stream."""
    return f"sql_{function.lower()}"


def _register(function: str) -> None:
    pairs = function in change_statistics.FUNCTIONS

    def resolve(types: tuple[SqlType, ...], init: Init) -> Resolution:
        result = result_type(function, types) if len(types) == 1 + pairs and not init else None
        if result is None:
            raise not_accepted(function, types, f"{function} takes {'two numbers' if pairs else 'another argument'}")
        return Resolution(types, result)

    def linear(r: Resolution) -> Linear:
        found = aggregate(function, r.args, r.result)
        assert isinstance(found, Linear)
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
            rows = columns[0] if not pairs else list(zip(*columns, strict=True))
            made = list(accs)
            for i, (start, end) in enumerate(pairwise(offsets)):
                for row, n in Counter(rows[start:end]).items():
                    args = row if pairs else (row,)
                    found = None if None in args else part(args, n)
                    made[i] = made[i] if found is None else add(made[i], found)
            return made

        return run

    summary = "The statistic over rows where neither is NULL." if pairs else "The bits of all values combined."
    register_aggregate(
        AggregateFunction(
            plan_name(function),
            resolve,
            initial=lambda r, _i: linear(r).zero,
            add=step(1),
            undo=step(-1),
            merge=lambda r, _i: linear(r).add,
            result=lambda r, _i: linear(r).result,
            add_runs=runs,
            summary=_SUMMARIES.get(function, summary),
            example=f"{function}({'y, x' if pairs else 'x'})",
        )
    )


for _function in dict.fromkeys(SAME.values()):
    _register(_function)

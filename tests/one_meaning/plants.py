"""Faults that the comparison must find within 500 statements: `python -m tests.one_meaning --plant NAME`.

Each is planted on one way of this process: into the operators of views, into what DuckDB computes of an interactive query, or into what writes rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import cache
from multiprocessing import get_context
from typing import Any

from flowql.compiler.functions import builtin, inline, sums
from flowql.compiler.functions.registry import lookup, register
from flowql.compiler.plan.expr import Literal
from flowql.compiler.plan.types import Kind, duckdb_type
from flowql.runtime.operators.changes import order
from flowql.runtime.operators.changes.top_n import TopNOperator
from tests.one_meaning.check import Outcome, run
from tests.one_meaning.postgres import Postgres
from tests.one_meaning.statements import batch

assert builtin  # the functions are registered


def plant(name: str) -> None:
    """Raises KeyError with the names if there is none of this name."""
    PLANTS[name]()


def found_after(name: str, seed: int, size: int, statements: int, ways: Sequence[str], postgres: str) -> int:
    """After how many statements a difference is found that is not there without the fault; 0 if it is not found.

    seed: of the first batch. size: of a batch. postgres: the address of one, or empty.
    """
    for n in range(statements // size):
        clean, planted = (_labels(seed + n, size, tuple(ways), postgres, fault) for fault in ("", name))
        new = [number for number, label in sorted(planted - clean)]
        if new:
            return n * size + new[0] + 1
    return 0


@cache
def _labels(seed: int, size: int, ways: tuple[str, ...], postgres: str, fault: str) -> set[tuple[int, str]]:
    """The differences of a batch, in a process of its own. Those without a fault are found once for all faults."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_differing, seed, size, ways, postgres, fault).result()


def _differing(seed: int, size: int, ways: Sequence[str], postgres: str, fault: str) -> set[tuple[int, str]]:
    logging.getLogger("flowql").setLevel(logging.CRITICAL)
    if fault:
        plant(fault)
    made, outcome = batch(seed, size), Outcome()
    outcome.add(made, run(made, ways, 1, Postgres(postgres) if postgres else None))
    return {(d.number, d.label) for d in outcome.differences}


def _set(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name}: plant the fault elsewhere"
    setattr(owner, name, value)


def _around(name: str, by: Callable[[Any, tuple[Any, ...]], Any]) -> None:
    """What a function gives for a row, changed, without the forms that would not ask it."""
    function = lookup(name)
    assert function is not None
    make = function.reference

    def reference(resolution: Any) -> Any:
        call = make(resolution)
        return lambda *args: by(call(*args), args)

    register(replace(function, reference=reference, prepare=None, duckdb=None), replace=True)


def _in_duckdb(name: str, by: Callable[[str, Sequence[str], Any], str]) -> None:
    """What DuckDB is asked for a function, changed: views, whose batches are small here, ask their own code."""
    function = lookup(name)
    assert function is not None
    assert function.duckdb is not None
    make = function.duckdb
    register(replace(function, duckdb=lambda args, r: by(make(args, r), args, r)), replace=True)


def _rounding() -> None:
    """An interactive query rounds halves of a DOUBLE away from zero."""

    def rounded(made: str, args: Sequence[str], r: Any) -> str:
        return f"round({args[0]}, 0)" if r.args[0].kind is Kind.DOUBLE else made

    _in_duckdb("sql_round", rounded)


def _division() -> None:
    """An interactive query divides whole numbers downwards."""

    def floored(made: str, args: Sequence[str], r: Any) -> str:
        is_whole = all(t.kind in (Kind.INT, Kind.BIGINT) for t in r.args)
        return f"TRY(CAST(floor({args[0]} / {args[1]}) AS {duckdb_type(r.result)}))" if is_whole else made

    _in_duckdb("sql_div", floored)


def _time_zone() -> None:
    """Zones with a summer time are an hour off; `flowql test`, a process of its own, knows them."""
    summer = {"Europe/Berlin", "America/New_York"}
    _around("sql_timezone", lambda r, a: r + 3_600_000 if summer & set(map(str, a)) and isinstance(r, int) else r)


def _guessed_type() -> None:
    """An interactive query takes the average of whole numbers for a whole number."""
    make = sums._asked

    def whole(call: Any, *, mean: bool) -> str | None:
        made = make(call, mean=mean)
        is_guessed = mean and call.types[0].kind in (Kind.INT, Kind.BIGINT)
        return f"CAST(trunc({made}) AS {duckdb_type(call.result)})" if is_guessed else made

    _set(sums, "_asked", whole)


def _empty_aggregate() -> None:
    """The sum of nothing is 0."""
    make = sums.linear_sum

    def never_null(args: Any, result: Any, *, mean: bool) -> Any:
        made = make(args, result, mean=mean)
        return made and replace(made, result=lambda acc: made.result(acc) if acc[0] or mean else 0)

    _set(sums, "linear_sum", never_null)


def _float_sum() -> None:
    """An interactive query adds doubles one after the other."""

    def added(call: Any, *, mean: bool) -> str:
        return str(call.over(f"{'avg' if mean else 'sum'}({call.of}{call.args[0]})"))

    _set(sums, "_asked_doubles", added)


def _null_order() -> None:
    """NULLs are at the other end of an order."""
    make = order._column
    _set(order, "_column", lambda part: make(replace(part, nulls_first=not part.nulls_first)))


def _text_comparison() -> None:
    """Texts are compared whatever their case."""
    make = inline._sql_comparison

    def comparison(g: Any, e: Any) -> Any:
        if not all(a.type.kind is Kind.STRING for a in e.args):
            return make(g, e)
        op = inline._PYTHON[e.name.removeprefix("sql_")]
        return g.guard(e.args, lambda a, b: f"(({a}).lower() {op} ({b}).lower())")

    for name, found in inline._SPECIAL.items():
        if found is make:
            inline._SPECIAL[name] = comparison
            _around(name, lambda r, _: r)  # without its form in DuckDB


def _value_binder() -> None:
    """A DECIMAL that is written into a stream loses a digit."""
    from flowql.compiler.analyze import statements

    make = vars(statements)["insert_row"]

    def inserted(*args: Any) -> Any:
        row = make(*args)
        return replace(row, values=tuple(map(_cut, row.values)))

    _set(statements, "insert_row", inserted)


def _cut(e: Any) -> Any:
    return replace(e, value=round(e.value, 1)) if isinstance(e, Literal) and isinstance(e.value, Decimal) else e


def _limit_tie() -> None:
    """The last row that is shown brings one more."""
    make = TopNOperator.__init__

    def init(self: Any, plan: Any, inputs: Any) -> None:
        make(self, plan, inputs)
        if self._end is not None and not plan.spec.rank:
            self._end += 1

    _set(TopNOperator, "__init__", init)


PLANTS = {
    "rounding": _rounding,
    "guessed type": _guessed_type,
    "null order": _null_order,
    "value binder": _value_binder,
    "empty aggregate": _empty_aggregate,
    "float sum": _float_sum,
    "text comparison": _text_comparison,
    "time zone": _time_zone,
    "division": _division,
    "limit tie": _limit_tie,
}

"""Arithmetic and sums of standard SQL against exact numbers: the right value, or an error where a database has one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from random import Random
from typing import Any

import duckdb
import pytest

from flowql.compiler.functions.builtin import FAMILIES
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import AggregateFunction, lookup, lookup_aggregate
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.sql_arithmetic import result_decimal
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, Kind, SqlType, decimal
from tests.compiler.functions.texts import call

assert FAMILIES
INTS = [None, 0, 1, -1, 2, -2, 3, 7, -7, 2**31 - 1, -(2**31), 46341]
BIGS = [*INTS, 2**31, 2**62, 2**63 - 1, -(2**63), 3037000500]
DOUBLES = [None, 0.0, 1.5, -2.5, 1e308, -1e308, 5e-324, 1e-200, math.inf, -math.inf, math.nan]
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%"}
WIDE = Context(prec=200, rounding=ROUND_HALF_UP)


def run(name: str, types: tuple[SqlType, ...], values: tuple[Any, ...]) -> Any:
    """The value of a function over columns of these types; "error" where it fails."""
    names = [f"c{i}" for i in range(len(types))]
    failed: list[Exception] = []
    kernel = compile_row(
        [call(name, [Column(t, n) for t, n in zip(types, names, strict=True)])],
        names,
        on_error=lambda _i, e: failed.append(e),
    )
    (value,) = kernel(values)
    assert all(isinstance(e, ArithmeticError) for e in failed)
    return "error" if failed else value


@pytest.mark.parametrize(("t", "values"), [(INT, INTS), (BIGINT, BIGS)], ids=str)
def test_integers_are_exact_or_an_error(t: SqlType, values: list[int | None]) -> None:
    db = duckdb.connect()
    sql = {"INT": "INTEGER", "BIGINT": "BIGINT"}[t.kind.value]
    for (op, sign), a, b in itertools.product(SIGNS.items(), values, values):
        (expected,) = db.execute(f"SELECT TRY(?::{sql} {sign} ?::{sql})", [a, b]).fetchone() or ()
        wanted = "error" if expected is None and None not in (a, b) else expected
        if op == "mod" and b == -1 and a is not None:
            wanted = 0  # PostgreSQL's, also of the least integer
        assert run(f"sql_{op}", (t, t), (a, b)) == wanted, f"{a} {sign} {b}"
    assert [run("sql_neg", (t,), (v,)) for v in (5, None, min(v for v in values if v is not None))] == [
        -5,
        None,
        "error",
    ]


def test_doubles_are_numbers_of_their_range_or_an_error() -> None:
    for op, a, b in itertools.product(SIGNS, DOUBLES, DOUBLES):
        found = run(f"sql_{op}", (DOUBLE, DOUBLE), (a, b))
        if a is None or b is None:
            assert found is None
        elif op in ("div", "mod") and b == 0:
            assert found == "error"
        elif op != "mod" and all(map(math.isfinite, (a, b))):
            exact = {
                "add": Fraction(a) + Fraction(b),
                "sub": Fraction(a) - Fraction(b),
                "mul": Fraction(a) * Fraction(b),
            }
            value = Fraction(a) / Fraction(b) if op == "div" else exact[op]
            try:
                wanted: Any = float(value)
            except OverflowError:
                wanted = "error"
            if wanted == 0.0 and value != 0:
                wanted = "error"
            assert found == wanted, f"{a} {op} {b}"
        else:
            assert isinstance(found, float)


TYPES = [(9, 2), (10, 0), (38, 18), (38, 0), (20, 10), (5, 5)]


@pytest.mark.parametrize("op", SIGNS)
def test_decimals_are_exact_to_their_scale_or_an_error(op: str) -> None:
    chance = Random(7)
    seen: set[str] = set()
    for (p1, s1), (p2, s2) in itertools.product(TYPES, TYPES):
        types = decimal(p1, s1), decimal(p2, s2)
        function = lookup(f"sql_{op}")
        assert function is not None
        result = function.resolve(types).result
        assert (result.kind, result.precision <= 38, result.scale <= result.precision) == (Kind.DECIMAL, True, True)
        for _ in range(6):
            a, b = (
                Decimal(chance.choice([0, 1, chance.randrange(10**p)])).scaleb(-s, WIDE)
                for p, s in ((p1, s1), (p2, s2))
            )
            wanted = _rounded(op, a, b, result)
            found = run(f"sql_{op}", types, (a, b))
            assert found == wanted, f"{types[0]} {a} {op} {types[1]} {b}: {result}"
            seen.add("error" if found == "error" else "value")
    assert seen == {"value", "error"}


def _rounded(op: str, a: Decimal, b: Decimal, to: SqlType) -> Any:
    x, y = Fraction(a), Fraction(b)
    if op in ("div", "mod") and not y:
        return "error"
    exact: dict[str, Callable[[], Fraction]] = {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: x * y,
        "div": lambda: x / y,
        "mod": lambda: x - y * math.trunc(x / y),
    }
    scaled = exact[op]() * 10**to.scale
    whole = math.floor(abs(scaled) + Fraction(1, 2)) * (1 if scaled >= 0 else -1)
    return "error" if abs(whole) >= 10**to.precision else Decimal(whole).scaleb(-to.scale, WIDE)


def test_bare_numerics_keep_eighteen_places() -> None:
    numeric = decimal(38, 18)
    for op in SIGNS:
        function = lookup(f"sql_{op}")
        assert function is not None
        assert function.resolve((numeric, numeric)).result == numeric, op


# --- sums ---


def of(name: str, *types: SqlType) -> tuple[AggregateFunction, Resolution]:
    function = lookup_aggregate(name)
    assert function is not None
    return function, function.resolve(types, ())


@pytest.mark.parametrize(
    ("t", "total", "mean"),
    [
        (INT, BIGINT, decimal(38, 18)),
        (BIGINT, decimal(38, 0), decimal(38, 18)),
        (decimal(9, 2), decimal(38, 2), decimal(38, 18)),
        (decimal(38, 20), decimal(38, 20), decimal(38, 20)),
        (DOUBLE, DOUBLE, DOUBLE),
    ],
    ids=str,
)
def test_sums_have_wider_types(t: SqlType, total: SqlType, mean: SqlType) -> None:
    assert (of("sql_sum", t)[1].result, of("sql_avg", t)[1].result) == (total, mean)


VALUES: dict[SqlType, list[Any]] = {
    INT: [None, 1, -5, 2**31 - 1, -(2**31)],
    BIGINT: [None, 1, -5, 2**63 - 1, -(2**63)],
    decimal(9, 2): [None, Decimal("0.01"), Decimal("-9999999.99")],
    DOUBLE: [None, 0.1, 1e300, -1e300, 1e-300, 3.5, -0.0],
}


@pytest.mark.parametrize("t", VALUES, ids=str)
@pytest.mark.parametrize("name", ["sql_sum", "sql_avg"])
def test_what_was_taken_out_again_leaves_no_trace(name: str, t: SqlType) -> None:
    """Against exact fractions, whatever came and went in between; NULL where nothing is left."""
    function, r = of(name, t)
    add, undo = function.add(r, ()), function.undo(r, ()) if function.undo else None
    assert undo is not None
    chance, acc, inside, empty = Random(5), function.initial(r, ()), [], 0
    for _ in range(400):
        if inside and chance.random() < 0.55:
            acc = undo(acc, inside.pop(chance.randrange(len(inside))))
        else:
            inside.append(chance.choice(VALUES[t]))
            acc = add(acc, inside[-1])
        known = [v for v in inside if v is not None]
        found = function.result(r, ())(acc)
        empty += not known
        assert found == _exact(name, known, r.result), inside
    assert empty > 3


def _exact(name: str, known: list[Any], to: SqlType) -> Any:
    if not known:
        return None
    total = sum(map(Fraction, known), Fraction(0))
    if to.kind is Kind.DOUBLE:
        return float(total) if name == "sql_sum" else float(total) / len(known)
    value = total if name == "sql_sum" else total / len(known)
    scaled = value * 10**to.scale
    whole = math.floor(abs(scaled) + Fraction(1, 2)) * (1 if scaled >= 0 else -1)
    return whole if to.kind is Kind.BIGINT else Decimal(whole).scaleb(-to.scale, WIDE)


@pytest.mark.parametrize("t", VALUES, ids=str)
def test_parts_merge_as_rows_add(t: SqlType) -> None:
    function, r = of("sql_sum", t)
    add, merge = function.add(r, ()), function.merge(r, ()) if function.merge else None
    assert merge is not None
    parts = []
    for some in (VALUES[t], VALUES[t][:1], [], VALUES[t][1:3]):
        acc = function.initial(r, ())
        for v in some:
            acc = add(acc, v)
        parts.append(acc)
    whole = parts[0]
    for p in parts[1:]:
        whole = merge(whole, p)
    known = [v for v in [*VALUES[t], *VALUES[t][1:3]] if v is not None]
    assert function.result(r, ())(whole) == _exact("sql_sum", known, r.result)


def test_infinities_go_as_they_came() -> None:
    function, r = of("sql_sum", DOUBLE)
    add, undo, result = function.add(r, ()), function.undo(r, ()) if function.undo else None, function.result(r, ())
    assert undo is not None
    acc = add(add(function.initial(r, ()), 2.5), math.inf)
    assert result(acc) == math.inf
    both = add(acc, -math.inf)
    assert math.isnan(result(both))
    assert result(undo(undo(both, -math.inf), math.inf)) == 2.5
    assert math.isnan(result(add(acc, math.nan)))


@pytest.mark.parametrize(
    ("t", "v"),
    [(decimal(38, 0), Decimal(10**38 - 1)), (DOUBLE, 1.7e308), (decimal(38, 18), Decimal(10**20 - 1))],
    ids=str,
)
def test_a_sum_out_of_range_is_an_error(t: SqlType, v: Any) -> None:
    function, r = of("sql_sum", t)
    add = function.add(r, ())
    with pytest.raises(ArithmeticError):
        add(add(function.initial(r, ()), v), v)


def test_an_average_out_of_range_is_an_error() -> None:
    function, r = of("sql_avg", decimal(38, 0))
    with pytest.raises(ArithmeticError, match="average"):
        function.add(r, ())(function.initial(r, ()), Decimal(10**30))


def test_a_product_keeps_its_places_while_twenty_digits_stay_before_them() -> None:
    """TPC-H's `sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))` has six places, as in PostgreSQL."""
    left, right = decimal(31, 4), decimal(16, 2)
    a, b = Decimal("90000000000000.1234"), Decimal("1.07")
    assert run("sql_mul", (left, right), (a, b)) == a * b
    assert run("sql_mul", (left, right), (Decimal(10) ** 26, Decimal(10) ** 13)) == "error"
    assert result_decimal("mul", left, right) == decimal(38, 6)
    assert result_decimal("mul", decimal(38, 18), decimal(38, 18)) == decimal(38, 18)

"""Aggregates that take out what was added: nothing is left of it, and nothing is rounded before the end."""

from __future__ import annotations

import math
import operator
import random
import statistics
from decimal import Decimal
from fractions import Fraction
from functools import reduce

import duckdb
import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from flowql.compiler.functions import builtin
from flowql.compiler.functions.aggregate_forms import Linear, Ordered, OutOfRange
from flowql.compiler.functions.change_aggregates import aggregate, names, needs_values
from flowql.compiler.functions.exact_sums import divided
from flowql.compiler.functions.numeric import NumericOverflow
from flowql.compiler.functions.registry import OVER_RELATIONS
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, SqlType, decimal

assert builtin.FAMILIES
PAIRS = {n for n, r in OVER_RELATIONS.items() if r.arguments == 2}
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SMALL = st.floats(-1e6, 1e6, allow_nan=False)


def linear(function: str, arg: SqlType, result: SqlType) -> Linear:
    found = aggregate(function, (arg, arg) if function in PAIRS else (arg,), result)
    assert isinstance(found, Linear)
    return found


def total(of: Linear, *changes: tuple[object, int]) -> object:
    acc = of.zero
    for value, weight in changes:
        part = of.part((value,), weight)
        acc = acc if part is None else of.add(acc, part)
    return acc


@given(kept=st.lists(FINITE), gone=st.lists(st.floats()), seed=st.randoms())
@example(kept=[1.7e308, 1.7e308], gone=[math.inf], seed=random.Random(1))
def test_a_sum_of_doubles_is_that_of_what_is_left_rounded_once(kept, gone, seed):
    changes = [(v, 1) for v in (*kept, *gone)] + [(v, -1) for v in gone]
    seed.shuffle(changes)
    of = linear("SUM", DOUBLE, DOUBLE)
    acc = total(of, *changes)
    if not kept:
        assert of.result(acc) is None
        return
    try:
        rounded = float(sum(map(Fraction, kept)))
    except OverflowError:  # more than a double holds: an error, as in PostgreSQL
        with pytest.raises(NumericOverflow):
            of.result(acc)
    else:
        assert of.result(acc) == rounded


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([-math.inf], -math.inf),
    ],
)
def test_infinities_and_nan_leave_again(values, expected):
    of = linear("SUM", DOUBLE, DOUBLE)
    acc = total(of, *((v, 1) for v in values))
    assert of.result(acc) == expected or (of.result(acc) != of.result(acc) and expected != expected)
    acc = of.add(acc, total(of, *((v, -1) for v in values), (2.5, 1)))
    assert of.result(acc) == 2.5


@given(kept=st.lists(SMALL, min_size=2), gone=st.lists(FINITE))
def test_variances_are_those_of_what_is_left(kept, gone):
    expected = {"VAR_POP": statistics.pvariance, "VAR_SAMP": statistics.variance, "STDDEV_POP": statistics.pstdev}
    for function, reference in expected.items():
        of = linear(function, DOUBLE, DOUBLE)
        acc = total(of, *((v, 1) for v in gone), *((v, 1) for v in kept), *((v, -1) for v in gone))
        assert of.result(acc) == pytest.approx(float(reference(map(Fraction, kept))), rel=1e-12, abs=1e-300)


def test_one_value_has_no_sample_variance():
    of = linear("VAR_SAMP", INT, DOUBLE)
    assert of.result(total(of, (5, 1))) is None
    assert linear("VAR_POP", INT, DOUBLE).result(total(of, (5, 1))) == 0.0


def test_sums_beyond_the_result_type_are_errors_and_come_back():
    of = linear("SUM", BIGINT, BIGINT)
    acc = total(of, (2**63 - 1, 1), (1, 1))
    with pytest.raises(OutOfRange):
        of.result(acc)
    assert of.result(of.add(acc, total(of, (1, -1)))) == 2**63 - 1
    narrow = linear("SUM", decimal(10, 2), decimal(5, 2))
    assert narrow.result(total(narrow, (Decimal("999.99"), 1))) == Decimal("999.99")
    with pytest.raises(OutOfRange):
        narrow.result(total(narrow, (Decimal("999.99"), 1), (Decimal("0.01"), 1)))


@pytest.mark.parametrize(
    ("n", "by", "expected"), [(5, 2, 3), (-5, 2, -3), (4, 3, 1), (-4, 3, -1), (7, 7, 1), (0, 3, 0)]
)
def test_halves_are_rounded_away_from_zero(n, by, expected):
    assert divided(n, by) == expected


def test_nothing_but_a_count_has_a_value_over_no_rows():
    for function in (n for n in names() if not needs_values(n)):
        arg = BOOLEAN if function in ("BOOL_AND", "BOOL_OR", "EVERY") else BIGINT
        of = linear(function, arg, BIGINT if function == "COUNT" else DOUBLE)
        if function in PAIRS:
            assert of.part((None, 1), 1) is of.part((1, None), 1) is None
        nothing = of.zero if function in PAIRS else total(of, (None, 1))
        for acc in (of.zero, nothing):
            assert of.result(acc) == (0 if function in ("COUNT", "REGR_COUNT") else None)


@given(kept=st.lists(st.integers(-(2**31), 2**31 - 1)), gone=st.lists(st.integers(-9, 9)), seed=st.randoms())
def test_bits_are_those_of_the_values_that_are_left(kept, gone, seed):
    changes = [(v, 1) for v in (*kept, *gone)] + [(v, -1) for v in gone]
    seed.shuffle(changes)
    for function, by in (("BIT_AND", operator.and_), ("BIT_OR", operator.or_), ("BIT_XOR", operator.xor)):
        of = linear(function, INT, INT)
        assert of.result(total(of, *changes)) == (reduce(by, kept) if kept else None)


def test_the_delimiter_of_each_text_stands_before_it():
    of = aggregate("STRING_AGG", (STRING, STRING), STRING)
    assert isinstance(of, Ordered)
    assert of.result([(("a", "-"), 1), (("b", "+"), 2)]) == "a+b+b"


@given(kept=st.lists(st.tuples(SMALL, SMALL)), gone=st.lists(st.tuples(SMALL, SMALL)))
def test_statistics_of_pairs_are_those_of_what_is_left(kept, gone):
    with duckdb.connect() as reference:
        reference.execute("CREATE TABLE t (y DOUBLE, x DOUBLE)")
        if kept:
            reference.executemany("INSERT INTO t VALUES (?, ?)", [list(p) for p in kept])
        (n, pop, ssx) = reference.execute("SELECT regr_count(y, x), covar_pop(y, x), regr_sxx(y, x) FROM t").fetchone()
    for function, expected in (("REGR_COUNT", n), ("COVAR_POP", pop), ("REGR_SXX", ssx)):
        of = linear(function, DOUBLE, DOUBLE)
        acc = of.zero
        for pair, weight in [*((p, 1) for p in (*kept, *gone)), *((p, -1) for p in gone)]:
            acc = of.add(acc, of.part(pair, weight))
        nearly = pytest.approx(expected, rel=1e-6, abs=1e-3 * max(1, len(kept))) if expected is not None else None
        assert of.result(acc) == nearly


def test_what_cannot_follow_changes_is_not_there():
    assert aggregate("TOPK", (INT,), INT) is None
    assert aggregate("SUM", (BOOLEAN,), BIGINT) is None
    assert isinstance(aggregate("MIN", (INT,), INT), Ordered)

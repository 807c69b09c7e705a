"""CAST between all types, and one type for several expressions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from flowql.compiler.functions.casts import UnsupportedCast, caster
from flowql.compiler.functions.coercion import unify
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from tests.compiler.functions.texts import literal


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        (array(INT), STRING, [1, None], "[1, null]"),
        (map_of(STRING, INT), STRING, {"a": 1, "b": 2}, "{a=1, b=2}"),
        (struct(("F0", INT), ("f1", INT)), STRING, {"F0": 1, "f1": None}, "Struct{F0=1}"),
        (BIGINT, INT, 2**31, -(2**31)),
        (DOUBLE, INT, -1.9, -1),
        (DOUBLE, INT, 1e20, 2**31 - 1),
        (DOUBLE, BIGINT, float("nan"), 0),
        (STRING, DOUBLE, " 1e2 ", 100.0),
        (STRING, decimal(2, 1), "0.99", Decimal("1.0")),
        (STRING, BOOLEAN, "Yes", True),
        (STRING, BOOLEAN, "on", False),
        (decimal(4, 2), INT, Decimal("-10.91"), -10),
        (decimal(4, 2), STRING, Decimal("0.10"), "0.10"),
        (DOUBLE, STRING, 1e10, "1.0E10"),
        (DOUBLE, STRING, 4.9e-324, "4.9E-324"),
        (DOUBLE, STRING, 100.0, "100.0"),
        (DOUBLE, decimal(3, 1), 0.25, Decimal("0.3")),
        (TIME, STRING, 5000, "00:00:05"),
        (TIMESTAMP, TIME, -2000, 86_398_000),
        (TIMESTAMP, DATE, -1, -1),
        (TIMESTAMP, STRING, 0, "1970-01-01T00:00:00.000"),
        (STRING, TIMESTAMP, "2022-04-28T21:44:47.943Z", 1651182287943),
        (STRING, TIMESTAMP, "2020", 1577836800000),
        (STRING, DATE, "1970-01-11", 10),
        (STRING, TIME, "01:00", 3_600_000),
        (
            map_of(STRING, map_of(STRING, STRING)),
            map_of(STRING, map_of(STRING, INT)),
            {"a": {"b": "10"}},
            {"a": {"b": 10}},
        ),
        (
            struct(("A", BIGINT), ("B", STRING)),
            struct(("A", STRING), ("C", STRING)),
            {"A": 1, "B": "x"},
            {"A": "1", "C": None},
        ),
    ],
)
def test_cast(source: SqlType, target: SqlType, value: Any, expected: Any) -> None:
    result = caster(source, target)(value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (STRING, INT, "1.0"),
        (STRING, INT, "2147483648"),
        (STRING, DOUBLE, "ten"),
        (STRING, TIMESTAMP, "foo"),
        (STRING, DATE, "1970-02-30"),
        (decimal(4, 1), decimal(2, 1), Decimal("123.4")),
        (INT, decimal(2, 1), 10),
    ],
)
def test_cast_that_fails(source: SqlType, target: SqlType, value: Any) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        caster(source, target)(value)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (STRING, map_of(STRING, INT)),
        (BOOLEAN, INT),
        (INT, BOOLEAN),
        (BYTES, STRING),
        (STRING, struct(("F0", INT))),
        (INT, DATE),
    ],
)
def test_cast_that_does_not_exist(source: SqlType, target: SqlType) -> None:
    with pytest.raises(UnsupportedCast, match=r"Cast of .* is not supported"):
        caster(source, target)


def unified(*exprs: Expr) -> tuple[SqlType, Any]:
    t, args = unify(exprs)
    row = compile_row(args, ["i", "b", "s"])((30, 40, "text"))
    return t, list(row)


INT_COLUMN, B, S = Column(INT, "i"), Column(BIGINT, "b"), Column(STRING, "s")


def test_text_literals_adapt_to_numbers() -> None:
    assert unified(literal(None), literal(10), literal("20"), INT_COLUMN, B) == (BIGINT, [None, 10, 20, 30, 40])
    assert unified(literal(10), literal("2e1"), B) == (decimal(19, 0), [Decimal(10), Decimal(20), Decimal(40)])
    assert unified(B, literal("4.5"))[0] == decimal(20, 1)


def test_number_literals_adapt_to_text_columns() -> None:
    assert unified(literal(1), S) == (STRING, ["1", "text"])


def test_structs_take_the_union_of_their_fields() -> None:
    one = Call(struct(("X", INT), ("Y", BIGINT)), "struct", (INT_COLUMN, B))
    two = Call(struct(("Y", INT), ("Z", BIGINT)), "struct", (INT_COLUMN, B))
    t, values = unified(literal(None), one, two)
    assert t == array(struct(("X", INT), ("Y", BIGINT), ("Z", BIGINT))).element
    assert values == [None, {"X": 30, "Y": 40, "Z": None}, {"X": None, "Y": 30, "Z": 40}]


@pytest.mark.parametrize(
    ("exprs", "words"),
    [
        ((literal(1), literal("not a number")), 'INTEGER: "not a number"'),
        ((INT_COLUMN, S), "INT = STRING"),
        ((INT_COLUMN, literal(True)), "INT = BOOLEAN"),
        ((Column(array(BIGINT), "b"), literal(1)), "ARRAY<BIGINT> = INT"),
        ((S, Column(DOUBLE, "d")), "STRING = DOUBLE"),
        ((Literal(BOOLEAN, True), literal("maybe")), "BOOLEAN"),
    ],
)
def test_what_has_no_common_type(exprs: tuple[Expr, ...], words: str) -> None:
    with pytest.raises(FunctionTypeError) as error:
        unify(exprs)
    assert words in str(error.value)

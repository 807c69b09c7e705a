"""Types and meaning of the operators."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from flowql.compiler.functions.evaluate import compile_predicate, compile_row
from flowql.compiler.functions.registry import Function, QueryFailure, lookup, register, unregister
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, LambdaVar, Literal
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from tests.compiler.functions.texts import call


def resolve(name: str, *types: SqlType) -> Resolution:
    function = lookup(name)
    assert function is not None
    return function.resolve(types)


def run(expr: Expr, **row: Any) -> Any:
    """The value of an expression; an error is raised."""
    errors: list[Exception] = []
    (value,) = compile_row([expr], list(row), on_error=lambda _i, e: errors.append(e))(tuple(row.values()))
    if errors:
        raise errors[0]
    return value


def of(name: str, *args: tuple[SqlType, Any]) -> Any:
    """The operator over columns of these types and values."""
    columns = {f"c{i}": v for i, (_, v) in enumerate(args)}
    return run(call(name, [Column(t, f"c{i}") for i, (t, _) in enumerate(args)]), **columns)


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("add", INT, BIGINT, BIGINT),
        ("add", INT, DOUBLE, DOUBLE),
        ("mul", BIGINT, decimal(3, 3), decimal(23, 3)),
        ("add", decimal(4, 2), INT, decimal(13, 2)),
        ("sub", decimal(4, 2), decimal(5, 1), decimal(7, 2)),
        ("mul", decimal(4, 2), decimal(4, 2), decimal(9, 4)),
        ("div", decimal(4, 2), decimal(4, 2), decimal(11, 7)),
        ("mod", decimal(4, 2), decimal(5, 1), decimal(4, 2)),
        ("add", decimal(38, 2), decimal(38, 2), decimal(38, 2)),
        ("add", decimal(4, 2), DOUBLE, DOUBLE),
        ("add", STRING, STRING, STRING),
    ],
)
def test_result_types(op: str, a: SqlType, b: SqlType, expected: SqlType) -> None:
    assert resolve(op, a, b).result == expected


@pytest.mark.parametrize(
    ("op", "types", "words"),
    [
        ("add", (BOOLEAN, INT), "BOOLEAN + INT"),
        ("sub", (STRING, STRING), "unsupported arithmetic"),
        ("lt", (array(INT), array(INT)), "LESS_THAN"),
        ("eq", (INT, STRING), "cannot compare INT to STRING"),
        ("eq", (NULL, INT), "NULL"),
        ("LEN", (INT,), "does not accept parameters (INT)"),
        ("GREATEST", (INT, BIGINT), "ambiguous"),
        ("GREATEST", (), "does not accept parameters ()"),
        ("COALESCE", (), "does not accept parameters ()"),
        ("EXPLODE", (map_of(STRING, INT),), "MAP<STRING, INT>"),
        ("DATEADD", (DATE, INT, DATE), "(DATE, INT, DATE)"),
        ("case", (BOOLEAN, INT, STRING), "different types"),
    ],
)
def test_type_errors_name_the_types(op: str, types: tuple[SqlType, ...], words: str) -> None:
    with pytest.raises(FunctionTypeError) as error:
        resolve(op, *types)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("op", "t", "a", "b", "expected"),
    [
        ("add", INT, 2**31 - 1, 1, -(2**31)),
        ("mul", BIGINT, 2**62, 2, -(2**63)),
        ("div", INT, -7, 2, -3),
        ("mod", INT, -7, 2, -1),
        ("div", INT, -(2**31), -1, -(2**31)),
        ("div", DOUBLE, 1.0, 0.0, math.inf),
        ("add", STRING, "a", "b", "ab"),
        ("add", INT, None, 1, None),
        ("div", decimal(4, 2), Decimal("10.10"), Decimal("2.00"), Decimal("5.0500000")),
        ("mod", decimal(4, 2), Decimal("10.10"), Decimal("-2.00"), Decimal("0.10")),
    ],
)
def test_arithmetic(op: str, t: SqlType, a: Any, b: Any, expected: Any) -> None:
    value = of(op, (t, a), (t, b))
    assert value == expected
    assert str(value) == str(expected)


@pytest.mark.parametrize("t", [INT, BIGINT])
def test_division_by_zero_fails_for_whole_numbers(t: SqlType) -> None:
    with pytest.raises(ZeroDivisionError):
        of("div", (t, 1), (t, 0))


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_a_comparison_with_null_is_false(op: str) -> None:
    assert of(op, (INT, None), (INT, 1)) is False
    assert of(op, (DOUBLE, None), (DOUBLE, None)) is False


def test_nan_is_equal_to_itself_and_above_all() -> None:
    assert of("eq", (DOUBLE, math.nan), (DOUBLE, math.nan)) is True
    assert of("gt", (DOUBLE, math.nan), (DOUBLE, math.inf)) is True
    assert of("le", (DOUBLE, math.nan), (DOUBLE, 1.0)) is False


def test_text_is_read_beside_a_date() -> None:
    assert of("gt", (DATE, 11), (STRING, "1970-01-11")) is True
    assert of("eq", (TIMESTAMP, 10), (STRING, "1970-01-01T00:00:00.010")) is True
    assert of("gt", (DATE, 10), (TIMESTAMP, 863_999_999)) is True


def test_structs_and_arrays_compare_deeply() -> None:
    t = struct(("A", array(DOUBLE)))
    assert of("eq", (t, {"A": [1.0, math.nan, None]}), (t, {"A": [1.0, math.nan, None]})) is True
    assert of("ne", (t, {"A": [1.0]}), (t, {"A": [2.0]})) is True


TRUTH = [(a, b) for a in (True, False, None) for b in (True, False, None)]


@pytest.mark.parametrize(("a", "b"), TRUTH)
def test_three_valued_logic(a: bool | None, b: bool | None) -> None:
    conjunction = False if False in (a, b) else None if None in (a, b) else True
    disjunction = True if True in (a, b) else None if None in (a, b) else False
    assert of("and", (BOOLEAN, a), (BOOLEAN, b)) is conjunction
    assert of("or", (BOOLEAN, a), (BOOLEAN, b)) is disjunction


def _failing(name: str, error: type[Exception]) -> None:
    def fail(_v: Any) -> Any:
        raise error("asked for")

    register(Function(name, lambda types: Resolution(types, types[0]), lambda _r: fail), replace=True)


def test_branches_not_taken_are_not_computed() -> None:
    _failing("FAILS", ValueError)
    try:
        bad = Call(BOOLEAN, "FAILS", (Literal(BOOLEAN, True),))
        worse = Call(INT, "FAILS", (Literal(INT, 1),))
        a, yes = Column(BOOLEAN, "a"), Literal(BOOLEAN, True)
        assert run(Call(BOOLEAN, "and", (a, bad)), a=False) is False
        assert run(Call(BOOLEAN, "or", (yes, bad)), a=True) is True
        assert run(Call(INT, "case", (a, Literal(INT, 1), worse)), a=True) == 1
        assert run(Call(INT, "COALESCE", (Literal(INT, 2), worse)), a=True) == 2
        with pytest.raises(ValueError, match="asked for"):
            run(Call(INT, "case", (a, Literal(INT, 1), worse)), a=False)
    finally:
        unregister("FAILS")


def test_one_failing_expression_leaves_the_others() -> None:
    a = Column(INT, "a")
    errors: list[tuple[int, str]] = []
    exprs = [call("div", [a, Literal(INT, 0)]), call("add", [a, Literal(INT, 1)]), a]
    kernel = compile_row(exprs, ["a"], on_error=lambda i, e: errors.append((i, type(e).__name__)))
    assert kernel((5,)) == (None, 6, 5)
    assert errors == [(0, "ZeroDivisionError")]


def test_a_query_failure_passes_through() -> None:
    _failing("STOPS", QueryFailure)
    try:
        kernel = compile_row([Call(INT, "STOPS", (Literal(INT, 1),))], [])
        with pytest.raises(QueryFailure):
            kernel(())
    finally:
        unregister("STOPS")


def test_a_predicate_is_false_for_null_and_failure() -> None:
    errors: list[Exception] = []
    a = Column(INT, "a")
    test = call("gt", [call("div", [Literal(INT, 10), a]), Literal(INT, 1)])
    predicate = compile_predicate(test, ["a"], on_error=lambda _i, e: errors.append(e))
    assert [predicate((v,)) for v in (2, 9, 0, None)] == [True, False, False, False]
    assert len(errors) == 1


def test_arithmetic_on_null_inside_a_lambda_fails_the_call() -> None:
    body = call("add", [LambdaVar(INT, "x"), Literal(INT, 1)])
    expr = Call(array(INT), "TRANSFORM", (Column(array(INT), "xs"), Lambda(INT, ("x",), body)))
    assert run(expr, xs=[1, 2]) == [2, 3]
    with pytest.raises(ValueError, match="NULL inside a lambda"):
        run(expr, xs=[1, None])


def test_deep_expressions_compile() -> None:
    expr: Expr = Column(INT, "a")
    for i in range(150):
        expr = call("add", [expr, Literal(INT, i % 3)]) if i % 2 else call("ABS", [expr])
    assert run(expr, a=1) == 1 + sum(i % 3 for i in range(150) if i % 2)


def test_constants_that_are_equal_but_differ_stay_apart() -> None:
    zeros = [call("mul", [Literal(DOUBLE, z), Literal(DOUBLE, 1.0)]) for z in (0.0, -0.0)]
    assert [math.copysign(1, run(z)) for z in zeros] == [1.0, -1.0]


def test_like_with_escapes() -> None:
    assert of("like", (STRING, "%"), (STRING, "!%"), (STRING, "!")) is True
    assert of("like", (STRING, "x"), (STRING, "!%"), (STRING, "!")) is False
    assert of("like", (STRING, "a\nb"), (STRING, "a_b")) is True
    assert of("not_like", (STRING, "a"), (STRING, "b%")) is True


def test_whether_a_constant_is_null_warns_of_nothing() -> None:
    """Python warns of `is` beside what it folds to a literal; and what may fail is computed all the same."""
    failures: list[Exception] = []
    for divisor, expected in ((1, (False,)), (0, (None,))):
        ratio = Call(INT, "div", (Literal(INT, 1), Literal(INT, divisor)))
        kernel = compile_row([Call(BOOLEAN, "is_null", (ratio,))], [], on_error=lambda _i, e: failures.append(e))
        assert kernel(()) == expected
    assert len(failures) == 1
    one = Literal(INT, 1)
    assert compile_row([Call(BOOLEAN, "is_null", (Call(INT, "add", (one, one)),))], [])(()) == (False,)

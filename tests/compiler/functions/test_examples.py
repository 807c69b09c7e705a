"""Every function has a summary and an example, and the example is true: in standard SQL, or with the catalogue's names (`texts.py`)."""

import math
from decimal import Decimal

import pytest

from flowql.compiler.functions.descriptions import descriptions
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import all_aggregates, all_functions
from tests.compiler.functions.test_sql_values import bound, shown
from tests.compiler.functions.texts import parse_example

FUNCTIONS = all_functions()


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items()])
def test_example_of_function_is_true(name: str) -> None:
    example = descriptions()[name].example
    if name.startswith("sql_") and "sql_" not in example:
        sql, _, result = example.rpartition(" -> ")
        (expr,), expected = bound(sql), eval(result, {"NULL": None, "Decimal": Decimal})
    else:
        expr, expected = parse_example(example)
    expected = math.inf if expected == "Infinity" else expected
    errors: list[Exception] = []
    (value,) = compile_row([expr], [], on_error=lambda _i, e: errors.append(e))(())
    assert not errors
    if value is not None and type(value) is not type(expected):  # times, intervals, JSONB: what PostgreSQL shows
        value = shown(value, expr.type)
    assert value == expected


def test_every_function_is_described_once() -> None:
    assert sorted(descriptions()) == sorted([*FUNCTIONS, *all_aggregates()])
    assert all(d.example and d.summary.endswith(".") for d in descriptions().values())

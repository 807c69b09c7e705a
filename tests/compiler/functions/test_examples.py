"""Every function has a summary and an example, and the example is true."""

import math

import pytest

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import all_aggregates, all_functions
from tests.compiler.functions.texts import parse_example

FUNCTIONS = all_functions()


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items()])
def test_example_of_function_is_true(name: str) -> None:
    function = FUNCTIONS[name]
    assert function.summary
    expr, expected = parse_example(function.example)
    errors: list[Exception] = []
    (value,) = compile_row([expr], [], on_error=lambda _i, e: errors.append(e))(())
    assert not errors
    assert value == (math.inf if expected == "Infinity" else expected)
    assert type(value) is type(expected) or expected == "Infinity"


def test_every_aggregate_is_described() -> None:
    assert all(a.summary and a.example for a in all_aggregates().values())

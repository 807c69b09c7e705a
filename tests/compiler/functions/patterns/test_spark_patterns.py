"""Spark's engine, which backtracks, gets no pattern of a user, and reads a string once for those of casts."""

from __future__ import annotations

import pytest

from flowql.compiler.functions import builtin, spark_casts
from flowql.compiler.functions.patterns.java import parse_java
from flowql.compiler.functions.registry import all_functions
from tests.compiler.functions.patterns.backtracking import tried

assert builtin.FAMILIES
OF_CASTS = (spark_casts._DIGITS, spark_casts._NUMBER, spark_casts._NAMED)


def test_functions_of_patterns_run_in_workers_on_spark() -> None:
    """With the same kernels, so with the same matches and limits; LIKE is the only one that Spark may compute, where it reads a string once."""
    functions = {n: f for n, f in all_functions().items() if "REGEXP" in n.upper() or n in ("sql_similar", "sql_ilike")}
    assert len(functions) > 12
    assert [n for n, f in functions.items() if f.spark is not None] == []


@pytest.mark.parametrize("pattern", OF_CASTS)
@pytest.mark.parametrize("long", ["{}", "1{}", "1.{}", "1e{}", "Infinity{}"])
@pytest.mark.parametrize("char", "1 ")
def test_patterns_of_casts_read_a_string_once_in_java(pattern: str, long: str, char: str) -> None:
    """With `[0-9]+[.]?[0-9]*` Java tried each place between the digits: 16,000 of them and an x took 52 s."""
    root = parse_java(pattern).root
    counts = [tried(root, long.format(char * n) + "x") for n in (20, 40)]
    assert counts[1] < 2.5 * counts[0]

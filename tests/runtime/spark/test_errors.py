"""Errors carry their way round, also out of a worker process."""

from __future__ import annotations

import pickle

import pytest

from flowql.compiler.diagnostics.codes import code_pages
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.spark import errors as subject
from flowql.runtime.spark.errors import SparkFailure, SparkUnsupported

ALL = [e for e in vars(subject).values() if isinstance(e, type) and issubclass(e, SparkFailure)]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [e.code for e in ALL]
    assert len(set(codes)) == len(codes) > 10
    assert set(codes) <= set(code_pages())
    assert all(issubclass(e, RuntimeFailure) for e in ALL)


def test_the_text_has_the_way_round() -> None:
    assert str(SparkFailure("it broke", help="mend it")) == "it broke\nhelp: mend it"
    assert str(SparkFailure("it broke")) == "it broke"


def test_what_is_unsupported_names_node_reason_and_way_round() -> None:
    error = SparkUnsupported("Aggregate", "no TOPK", "use MAX", query="CTAS_T_0")
    assert str(error) == "Aggregate of query CTAS_T_0 does not run on Spark: no TOPK\nhelp: use MAX"
    assert error.code == "FQ4110"


@pytest.mark.parametrize("error", [SparkFailure("t", help="h"), SparkUnsupported("n", "r", "w", query="q")])
def test_errors_cross_processes(error: SparkFailure) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))

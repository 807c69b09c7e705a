"""Random trees of standard SQL; `python -m tests.compiler.dialect.standard --seeds N` tries more of them."""

from __future__ import annotations

import random

import pytest

from flowql.compiler.dialect.ast import Func
from flowql.compiler.dialect.standard.tree import OPERATORS, Form
from tests.compiler.dialect.standard.checks import check_broken, check_round_trip, check_sqlglot, nodes_of, tree_of
from tests.compiler.dialect.standard.trees import TreeMaker

SEEDS = 240
PARTS = 3
NEGATED = ("between", "between_symmetric", "in", "like", "ilike", "similar")
FORMS = {
    "and", "or", "not", "neg", "plus", "is_distinct", "is_not_distinct", "case", "case_of", "row", "ROW", "array", "map", "struct", "subscript",
    "SLICE", "field", "EXTRACT", "TIMEZONE", "CURRENT_DATE", "CURRENT_TIMESTAMP", "POWER", "~", "overlaps", *NEGATED, *(f"not_{n}" for n in NEGATED),
    *(f"is{n}_{test}" for n in ("", "_not") for test in ("null", "true", "false", "unknown")),
}  # fmt: skip


@pytest.mark.parametrize("part", range(PARTS))
def test_a_tree_that_is_written_reads_back(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        check_round_trip(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_sqlglot_reads_the_same(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        check_sqlglot(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_broken_text_gives_diagnostics(part: int) -> None:
    for seed in range(part, 2 * SEEDS, PARTS):
        check_broken(seed)


def test_every_kind_of_node_is_among_them() -> None:
    nodes = [n for seed in range(2 * SEEDS) for n in nodes_of(TreeMaker(random.Random(seed)).statement(3))]
    met = {type(n).__name__ for n in [*nodes, *nodes_of(tree_of("INSERT INTO t VALUES (DEFAULT)"))]}
    assert _kinds(Form) - met == {"Form"}
    assert met >= {"Name", "Lit", "Func", "LambdaFn", "Star", "SelectItem"}
    assert {*OPERATORS.values(), *FORMS} <= {n.name for n in nodes if isinstance(n, Func)}


def _kinds(base: type) -> set[str]:
    return {base.__name__, *(k for b in base.__subclasses__() for k in _kinds(b))}


def test_a_span_covers_the_text_of_its_node() -> None:
    text = "SELECT a + b * 2 AS x FROM t JOIN (SELECT 1) q ON q.i = t.i WHERE NOT c IS NULL"
    said = {
        n.name if isinstance(n, Func) else type(n).__name__: text[n.span.column - 1 :][: n.span.length]
        for n in nodes_of(tree_of(text))
    }
    assert said["Join"] == "t JOIN (SELECT 1) q ON q.i = t.i"
    assert said["Derived"] == "(SELECT 1) q"
    assert said["not"] == "NOT c IS NULL"
    assert said["is_null"] == "c IS NULL"

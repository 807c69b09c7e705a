"""The cases of `python -m tests.styles`: what is right stays right, and what is refused is one of those noted so."""

from __future__ import annotations

import random

import pytest

from tests.slt.session import Shape
from tests.styles.cases import STYLES, Case, load, steps
from tests.styles.check import check

SAMPLE, SEED = 20, 20260417  # cases of each style: all of them take a minute
SHAPES = (Shape(), Shape(vector=False, partitions=3), Shape(vector=True, partitions=8))


def _sample() -> list[Case]:
    rng = random.Random(SEED)
    return [c for style in STYLES for c in rng.sample(load(style), SAMPLE)]


@pytest.mark.turns("cases")
@pytest.mark.parametrize("case", _sample(), ids=lambda c: f"{c.style}: {c.title}")
def test_a_statement_in_the_style_of_another_system_is_right_or_refused_as_noted(case: Case) -> None:
    result = check(case, SHAPES[len(case.title) % len(SHAPES)])
    assert result.kind in ("right", "refused") if case.refused else result.kind == "right", result.reason


@pytest.mark.parametrize("style", STYLES)
def test_a_style_has_sixty_statements_of_which_forty_are_not_noted_as_refused(style: str) -> None:
    cases = load(style)
    assert len(cases) >= 60
    assert sum(not c.refused for c in cases) >= 40
    assert len({c.title for c in cases}) == len(cases)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("CREATE VIEW v AS SELECT a + 1 AS b FROM t", "right"),
        ("CREATE VIEW v AS SELECT a + 2 AS b FROM t", "wrong"),
        ("CREATE VIEW v AS SELECT a + 1 AS c FROM t", "wrong"),
        ("CREATE VIEW v AS SELECT no_such(a) AS b FROM t", "refused"),
    ],
)
def test_what_differs_from_duckdb_is_wrong(statement: str, kind: str) -> None:
    text = f"CREATE TABLE t (a int); INSERT INTO t VALUES (1); {statement}; /* duckdb CREATE VIEW v AS SELECT a + 1 AS b FROM t */"
    assert check(Case("postgresql", "made", steps(text))).kind == kind

"""Nexmark as views of standard SQL, of few events: `python -m tests.pipelines.nexmark_views` runs it with as many as one asks for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flowql.bench.nexmark_input import write_log
from tests.pipelines.nexmark_views import compare, expected, run

pytestmark = pytest.mark.turns("long")

EVENTS, SEED = 1_000, 17


def test_views_over_the_auction_site_equal_duckdb_after_a_kill(tmp_path: Path) -> None:
    write_log(tmp_path, EVENTS)
    run(tmp_path, 1, random.Random(SEED), (2.0, 4.0))
    found = list(compare(tmp_path, expected(EVENTS)))
    assert [c for c in found if c.missing or c.extra] == []
    assert {f"q{n}" for n in range(23)} < {c.view for c in found}
    assert all(c.rows for c in found)

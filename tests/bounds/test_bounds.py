"""The first cases of `python -m tests.bounds`. A call may keep the lock longer here than there: the machine of a test is loaded."""

from __future__ import annotations

import pytest

from tests.bounds.__main__ import findings

CASES, SEED = 600, 1
WITHHELD_S = 0.5  # processor time


@pytest.mark.parametrize("dialect", ["ksql", "standard"])
def test_no_call_keeps_the_lock_allocates_without_limit_or_ends_the_process(dialect: str) -> None:
    found = list(findings(dialect, SEED, 0, CASES, withheld_s=WITHHELD_S))
    assert not found, f"python -m tests.bounds --seed {SEED} --dialect {dialect} --cases {CASES}:\n" + "\n".join(
        map(str, found)
    )

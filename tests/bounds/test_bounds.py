"""Cases of `python -m tests.bounds --sizes short`, always the same. A call may keep the lock longer here than there: the machine of a test is loaded."""

from __future__ import annotations

import pytest

from tests.bounds.__main__ import findings

pytestmark = pytest.mark.turns("long")

CASES, SEED = 10_000, 1
WITHHELD_S = 0.5  # processor time


@pytest.mark.turns("cases")
@pytest.mark.parametrize("dialect", ["ksql", "standard"])
def test_no_call_keeps_the_lock_allocates_without_limit_or_ends_the_process(dialect: str) -> None:
    found = list(findings(dialect, SEED, 0, CASES, sizes="short", withheld_s=WITHHELD_S))
    assert not found, (
        f"python -m tests.bounds --seed {SEED} --dialect {dialect} --cases {CASES} --sizes short:\n"
        + "\n".join(map(str, found))
    )

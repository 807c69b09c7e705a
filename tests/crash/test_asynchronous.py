"""A few rounds of `python -m tests.crash.asynchronous`."""

from __future__ import annotations

import pytest

from tests.crash.asynchronous import live


@pytest.mark.turns("load")
def test_each_row_is_there_once_whatever_is_killed() -> None:
    live(rounds=4, seed=5)

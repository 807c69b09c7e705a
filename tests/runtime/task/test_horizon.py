"""How far a task may go while tables are brought together: asked by threads that do not hold it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from runtime.task.task import _beyond


class Rows:
    """A batch of one row at 5 ms."""

    rowtime = np.array([5])

    def __len__(self) -> int:
        return 1


class Moving:
    """What is staged, while the thread that holds the task takes its last row after the first look."""

    batch = Rows()

    def __init__(self) -> None:
        self.looks = 0

    @property
    def cursor(self) -> int:
        self.looks += 1
        return self.looks - 1


@pytest.mark.parametrize(("ms", "beyond"), [(4, True), (5, False), (None, False)])
def test_a_row_that_is_taken_while_another_thread_looks(ms: int | None, beyond: bool) -> None:
    """It looked again, past the end, and that thread of the instance died (two hundred questions under load)."""
    source = cast(Any, SimpleNamespace(staged=Moving()))
    assert _beyond(source, ms) is beyond

"""What is asked of a task by threads that do not hold it, while another one runs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.channels import beyond
from flowql.runtime.task.input_buffer import LogInput


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


@pytest.mark.parametrize(("ms", "expected"), [(4, True), (5, False), (None, False)])
def test_a_row_that_is_taken_while_another_thread_looks(ms: int | None, expected: bool) -> None:
    """It looked again, past the end, and that thread of the instance died (two hundred interactive queries under load)."""
    source = LogInput("scan", TopicPartition("A", 0), 0, decoded=cast(Any, Moving()))
    assert beyond(source, ms) is expected


def test_where_no_row_is_left_of_a_batch_none_is_beyond_a_time() -> None:
    """Its last records were bad, and are consumed with the next run."""
    decoded = Moving()
    decoded.looks = 1
    source = LogInput("scan", TopicPartition("A", 0), 0, decoded=cast(Any, decoded))
    assert source.next_ms is None
    assert not beyond(source, 4)


class Fed(deque[int]):
    """Something is added as soon as somebody begins to iterate."""

    def __iter__(self) -> Iterator[int]:
        found = super().__iter__()
        self.append(9)
        return found


def test_a_channel_that_is_fed_while_another_thread_looks() -> None:
    """An iterator over what waits was begun and used in two steps: a batch that came in between was the end of the thread."""
    channel = LogInput("scan", TopicPartition("A", 0), 0, channel=b"0", needed_probes=Fed([3]))
    channel.siblings = [channel]
    assert channel.waited_for
    assert not channel.idle
    channel.needed_probes.clear()
    assert not channel.waited_for

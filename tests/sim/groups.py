"""Committed positions of a consumer group, as its coordinator keeps them, and what must never happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.runtime.log.base import Position, TopicPartition


class Violation(BaseException):
    """What must never happen has happened. Not an Exception: no code of the engine may handle it."""


class Group:
    """What brokers keep of a consumer group without members."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self.pending: dict[Any, dict[TopicPartition, Position]] = {}  # of transactions that are not finished
        self.on_moved: Callable[[dict[TopicPartition, Position]], None] = lambda positions: None

    def move(self, positions: dict[TopicPartition, Position]) -> None:
        self.positions.update(positions)
        self.on_moved(positions)

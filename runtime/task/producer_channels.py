"""The channels that one task fills, counted as they change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Filled(Protocol):
    """A channel (`ExchangeInput`)."""

    topic: str
    rows: int
    rows_max: int
    producer: ProducerChannels

    @property
    def full(self) -> bool: ...

    @property
    def starving(self) -> bool: ...


@dataclass(slots=True)
class ProducerChannels:
    """All channels out of one task. rows: in all of them. rows_max: with fewer rows no channel is full.

    The epoch lock guards writes. Any thread reads.
    """

    channels: Sequence[Filled] = ()
    rows: int = 0
    rows_max: int = 1

    @staticmethod
    def joined(channels: Sequence[Filled]) -> ProducerChannels:
        """Counts these channels together from now on."""
        rows, rows_max = sum(c.rows for c in channels), min((c.rows_max for c in channels), default=1)
        joined = ProducerChannels(channels, rows, rows_max)
        for channel in channels:
            channel.producer = joined
        return joined

    @property
    def full(self) -> bool:
        """A channel is full, and none starves."""
        if self.rows < self.rows_max:  # most tasks fill many channels with few rows
            return False
        return any(c.full for c in self.channels) and not any(c.starving for c in self.channels)

"""How calls of an asynchronous function are made: how many at once, for how long, how often, and in which order their rows go on."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

Order = Literal["key", "input", "none"]
ORDERS: tuple[Order, ...] = get_args(Order)
IN_FLIGHT, IN_FLIGHT_MAX = 100, 100_000
JITTER = 0.1  # of a delay, in both directions: what failed together is not tried again together


@dataclass(frozen=True, slots=True)
class Retry:
    """When a call that failed is made again. attempts: calls of a row, the first included. first_s, longest_s: of the delays between them, each
    `factor` times the one before.
    """

    attempts: int
    first_s: float
    factor: float
    longest_s: float

    def delay_ms(self, failed: int, row: int) -> int | None:
        """How long to wait after so many failed calls of a row; None: no more. Equal for equal arguments."""
        if failed >= self.attempts:
            return None
        delay = min(self.longest_s, self.first_s * self.factor ** min(failed - 1, 1_000))
        share = zlib.crc32(f"{row} {failed}".encode()) / 2**32
        return round(1_000 * delay * (1 - JITTER + 2 * JITTER * share))


ONCE = Retry(1, 0.0, 1.0, 0.0)


class RetryAfter(Exception):
    """Raise it in an asynchronous function to repeat the call after a delay, without counting an attempt.

    delay: a timedelta, or seconds.

    >>> RetryAfter(timedelta(minutes=5)).delay_ms
    300000
    """

    def __init__(self, delay: timedelta | float) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= seconds < 10**9:
            raise ValueError(f"{delay!r} is not a delay")
        super().__init__(f"again after {seconds:g} s")
        self.delay_ms = round(seconds * 1_000)


@dataclass(frozen=True, slots=True)
class AsyncOptions:
    """max_in_flight: calls at once, of one task. timeout_s: of one call. order: in which rows go on (see `udf`)."""

    max_in_flight: int
    timeout_s: float
    retry: Retry
    order: Order


def strictest(orders: list[Order]) -> Order:
    """The order that fulfils all of these: `input`, then `key`, then `none`."""
    return next(o for o in ("input", "key", "none") if o in orders)

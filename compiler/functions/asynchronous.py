"""Asynchronous functions: the options of their calls, and how calls are made."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from flowql.compiler.functions.user_types import DefinitionError

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


def exponential(first: float = 0.5, *, factor: float = 2.0, longest: float = 60.0, attempts: int = 8) -> Retry:
    """Retries an asynchronous function with growing delays.

    first: seconds before the second call. Each later delay is `factor` times as long, at most `longest` seconds,
    and varies by a tenth. attempts: calls per row; after the last the record is a dead letter. Raises
    DefinitionError.

    >>> exponential(0.1, attempts=3).attempts
    3
    """
    if not 0 < first <= longest:
        raise DefinitionError(
            f"first={first!r} is not a delay of up to longest={longest!r} seconds", "exponential(0.5)"
        )
    if factor < 1:
        raise DefinitionError(f"factor={factor!r}: delays would shrink", "exponential(factor=2)")
    return Retry(_attempts(attempts), float(first), float(factor), float(longest))


def fixed(delay: float, *, attempts: int = 8) -> Retry:
    """Retries an asynchronous function after equal delays, in seconds. attempts: as for `exponential`. Raises
    DefinitionError.
    """
    if delay <= 0:
        raise DefinitionError(f"delay={delay!r} is not a number of seconds", "fixed(5)")
    return Retry(_attempts(attempts), float(delay), 1.0, float(delay))


def _attempts(attempts: int) -> int:
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise DefinitionError(f"attempts={attempts!r} is not a number of calls", "attempts=8")
    return attempts


def checked_options(max_in_flight: int, timeout_s: float, retry: Retry | None, order: str) -> AsyncOptions:
    """Raises DefinitionError."""
    if isinstance(max_in_flight, bool) or not isinstance(max_in_flight, int) or not 0 < max_in_flight <= IN_FLIGHT_MAX:
        title = f"max_in_flight={max_in_flight!r} is not a number of calls from 1 to {IN_FLIGHT_MAX:,}"
        raise DefinitionError(title, f"max_in_flight={IN_FLIGHT}")
    if retry is not None and not isinstance(retry, Retry):
        raise DefinitionError(f"retry={retry!r} is not a retry policy", "retry=flowql.exponential() or flowql.fixed(5)")
    found = next((o for o in ORDERS if o == order), None)
    if found is None:
        raise DefinitionError(f"order={order!r} is not known", 'order="key", order="input" or order="none"')
    return AsyncOptions(max_in_flight, timeout_s, retry or ONCE, found)

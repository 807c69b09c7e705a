"""The options of an asynchronous function for its calls."""

from __future__ import annotations

from flowql.compiler.functions.async_options import (
    IN_FLIGHT,
    IN_FLIGHT_MAX,
    ONCE,
    ORDERS,
    AsyncOptions,
    Retry,
)
from flowql.compiler.functions.user_types import DefinitionError


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

"""The risk of a payment, as a scoring service tells it.

A service answers after tens of milliseconds, is away at times, and sometimes asks to be called again later. The stand-in here only takes its time; a call
of a real service, with an asynchronous HTTP client, takes its place in `_ask`.
"""

from __future__ import annotations

import asyncio
import zlib
from datetime import timedelta

from flowql import RetryAfter, exponential, udf

LATENCY_S = 0.05
BUSY = timedelta(seconds=2)
FAR = frozenset({"KP", "SY"})


class Busy(Exception):
    """The service has too much to do."""


async def _ask(card: str, amount: float, country: str) -> float:
    """Between 0 and 1. Stands in for the service."""
    await asyncio.sleep(LATENCY_S)
    seen = zlib.crc32(f"{card} {amount}".encode())
    return min(1.0, amount / 5_000 + (0.5 if country in FAR else 0.0) + seen % 100 / 1_000)


@udf(asynchronous=True, max_in_flight=500, timeout=5, retry=exponential(0.2, longest=30, attempts=6))
async def risk(card: str, amount: float, country: str) -> float:
    """The risk of a payment. Tried up to six times; again after two seconds while the service is busy."""
    try:
        return round(await _ask(card, amount, country), 3)
    except Busy:
        raise RetryAfter(BUSY) from None

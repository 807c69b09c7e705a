"""Calls of asynchronous functions in a plan (KIP-311). How they are made is told by the functions themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.plan.types import SqlType


@dataclass(frozen=True, slots=True)
class AsyncCall:
    """A column, and the function whose value it is. function: its name in plans. args: columns of the input."""

    name: str
    function: str
    args: tuple[str, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class AsyncMap:
    """Adds a column for each call. Rows wait here until all their calls have ended, and later rows may be called for meanwhile.

    The columns of the input stay; those of the calls come behind them. order: `key`, rows of one key go on in their order; `input`, all rows of a task
    do; `none`, rows go on as soon as they can. Where operators with state are behind it, the order is `input`: what they make of rows depends
    on it.
    """

    calls: tuple[AsyncCall, ...]
    order: Literal["key", "input", "none"]

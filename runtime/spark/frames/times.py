"""Which row times are used, and why others are not, in Spark's SQL: as `EventTimes.why_not` says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowql.compiler.functions.spark_text import text
from flowql.compiler.plan.event_times import EventTimes
from flowql.runtime.operators.decode import BAD_TIME


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row cannot be used, in Spark's SQL: a predicate, a message and a code of dead letters."""

    condition: str
    message: str
    code: str


def without(faults: Iterable[Fault]) -> str:
    """Spark SQL of the rows that have none of these faults; "" for all rows.

    Spark asks the statistics of Parquet's pages about the parts of an AND, which costs a tenth of a short job and saves nothing where hardly
    a row has a fault. This is one condition, about which it asks nothing.
    """
    good = " AND ".join(f"NOT ({f.condition})" for f in faults)
    return f"coalesce({good}, FALSE)" if good else ""


def outside(times: EventTimes, rowtime: str, lead: str, *, of_column: bool = True) -> list[Fault]:
    """The error about unusable times. rowtime: Spark SQL of a number of ms; lead: how messages begin."""
    number, code = f"CAST({rowtime} AS STRING)", text(BAD_TIME)
    some = times.why_not(times.latest_ms, 0, of_column=of_column).removeprefix(str(times.latest_ms))
    beyond = f"({rowtime} < {times.first_ms(of_column=of_column)} OR {rowtime} >= {times.latest_ms})"
    found = [Fault(beyond, f"concat({text(lead)}, {number}, {text(some)})", code)]
    if times.ahead_ms is not None:
        ahead = f"({rowtime} > unix_millis(current_timestamp()) + {times.ahead_ms})"
        told = f" is ahead of the clock (MAX_AHEAD is {times.ahead_ms // 1000} s)"
        found.append(Fault(ahead, f"concat({text(lead)}, {number}, {text(told)})", code))
    return found

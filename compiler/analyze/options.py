"""Options of a query and properties of a session, as `flowql.yaml` and statements give them. Light: commands that compile nothing load it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flowql.compiler.plan.priorities import OnChange, Priority

DEFAULT_KEY = "ksql.persistence.default.format.key"
DEFAULT_VALUE = "ksql.persistence.default.format.value"
WRAP_SINGLE = "ksql.persistence.wrap.single.values"

_UNITS = {
    "MS": 1, "MILLISECOND": 1, "SECOND": 1000, "S": 1000, "SEC": 1000, "MINUTE": 60_000, "MIN": 60_000, "HOUR": 3_600_000,
    "DAY": 86_400_000, "WEEK": 7 * 86_400_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How a query is scheduled and named, and what a new text of it means. None means not given."""

    priority: Priority | None = None
    weight: int | None = None
    latency_target_ms: int | None = None
    query_id: str | None = None
    on_change: OnChange | None = None


NO_OPTIONS = QueryOptions()


def duration_ms(text: object) -> int | None:
    """Milliseconds of `500`, `'500'`, `'500 ms'`, `'2 minutes'`; None when it is none of these."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = re.fullmatch(r"\s*(\d+)\s*(?:([A-Za-z]+)\s*)?", str(text))
    if match is None:
        return None
    unit = (match[2] or "").upper()
    factor = 1 if not unit else _UNITS.get(unit) or _UNITS.get(unit.removesuffix("S"))
    return None if factor is None else int(match[1]) * factor

"""`status` of a Spark target: its queries as public JSON, live and from the folders alone. No pyspark."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.errors import TopicMissing
from flowql.runtime.spark.engine.checkpoints import lag
from flowql.runtime.spark.engine.deployed import Record
from flowql.runtime.spark.engine.order import topics_followed
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.engine.streams import RunningQuery
from flowql.runtime.spark.function_counts import function_figures, functions_in

RATE_MS = 10_000
# How states of a query that has its turn later, or is through, look from outside: nothing is wrong with it.
_SHOWN = {"waiting": "running", "done": "running"}


class Rates:
    """Records a second of each query over the last RATE_MS. Fed with each status; one thread at a time."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[int, int]]] = {}

    def add(self, query: str, records: int, now_ms: int) -> None:
        """`records`: all so far."""
        seen = self._seen.setdefault(query, deque())
        if seen and records < seen[-1][1]:
            seen.clear()  # it began anew
        seen.append((now_ms, records))
        while len(seen) > 2 and seen[0][0] < now_ms - RATE_MS:
            seen.popleft()

    def of(self, query: str) -> float:
        seen = self._seen.get(query)
        if not seen or seen[-1][0] == seen[0][0]:
            return 0.0
        return round((seen[-1][1] - seen[0][1]) * 1000 / (seen[-1][0] - seen[0][0]), 1)


def query_status(site: Site, running: RunningQuery, rates: Rates) -> dict[str, Any]:
    """One entry of `status` of a live instance."""
    found = with_state(stopped_status(site, running.plan, running.record), running)
    found["rate"] = found["rate_in"] = rates.of(running.plan.id)
    return found


def with_state(entry: dict[str, Any], running: RunningQuery, trouble: str = "") -> dict[str, Any]:
    """An entry of now or of before with what the supervisor knows. trouble: why nothing goes on."""
    state = "paused" if running.paused else _SHOWN.get(running.state, running.state)
    waits = {"for": "upstream", "whom": running.waits_for[:1]} if running.waits_for else None
    return {
        **entry,
        "state": state,
        "errors": running.errors,
        "last_error": trouble or running.last_error or None,
        "waits": waits,
    }


def functions_status(site: Site, plan: Plan, records: Mapping[str, Record | None]) -> list[dict[str, Any]]:
    """The costs of calls of user-defined functions, by query, since their checkpoints began."""
    if not any(map(functions_in, plan.queries)):
        return []
    found = (site.epochs_of_record(query, record) for query, record in records.items())
    return function_figures(plan, [each.counters for each in found if each is not None])


def stopped_status(site: Site, query: QueryPlan, record: Record | None) -> dict[str, Any]:
    """One entry of `status` when nothing runs."""
    committed = site.epochs_of_record(query.id, record)
    counters: Mapping[str, int] = committed.counters if committed is not None else {}
    return {
        "id": query.id,
        "state": "stopped",
        "priority": query.priority,
        "weight": query.weight,
        "engine": "spark",
        "lag": _lag(site, query, record),
        "records_in": counters.get("records_in", 0),
        "records_out": counters.get("records_appended", 0),
        "dead_letters": counters.get("dead_letters", 0),
        "late_records": counters.get("late", 0),
        "ties": counters.get("ties", 0),
        "errors": 0,
        "last_error": None,
        "batch": committed.next_epoch - 1 if committed is not None else None,
        "rate": 0.0,
        "rate_in": 0.0,
        "latency_target_ms": query.latency_target_ms,
        # Fields that the runtime fills, and Spark does not know.
        **dict.fromkeys(("rate_out", "latency_ms", "cpu", "cpu_s", "share", "entitled", "state_bytes", "waits")),
        "form": record.form if record is not None else None,
        "how": record.how if record is not None else None,
    }


def _lag(site: Site, query: QueryPlan, record: Record | None) -> int:
    try:
        first, after = site.bounds(topics_followed(query, record), record)
    except TopicMissing:  # deleted: the query's own error tells
        return 0
    return lag(site.positions(query, record), first, after)

"""The columns of `top`: what each shows, sorts by, and which give way when the terminal is narrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.cli.monitoring.amounts import count, duration, percent, size

Query = Mapping[str, Any]
NAME_MIN = 20
WORST_FIRST = {"error": 0, "failed": 1, "blocked": 2, "hung": 3, "restoring": 4, "paused": 5}


@dataclass(frozen=True, slots=True)
class Column:
    """key: what it is called in --sort. rank: those of high rank go first when there is no room. width: at least. rare: shown only
    where it says something.
    """

    key: str
    heading: str
    rank: int
    width: int
    text: Callable[[Query], str]
    value: Callable[[Query], Any]
    left: bool = False
    rising: bool = False  # sorted from the least on: names
    rare: bool = False


def _shares(q: Query) -> str:
    return f"{percent(q.get('share'))}/{percent(q.get('entitled'))}"


def _percentile(name: str) -> Callable[[Query], float | None]:
    return lambda q: (q.get("latency_ms") or {}).get(name)


def _doing(q: Query) -> str:
    """Whether a query is at work, or the reason and the queries that it waits for."""
    if q["state"] == "stopped":
        return "stopped"
    building = q.get("building")
    if building and q["state"] == "running":
        whole = building["records_in"] + building["lag"]
        return f"builds {building['generation']}: {percent(building['records_in'] / whole if whole else 1.0)}"
    wait = q.get("waits")
    if wait is None:
        return "at work" if q["state"] == "running" else str(q["state"])
    said = q["state"] if q["state"] != "running" else f"waits: {wait['for']}"
    return f"{said} ({', '.join(wait['whom'])})" if wait["whom"] else str(said)


def _number(key: str) -> Callable[[Query], Any]:
    return lambda q: q.get(key)


def _waiting(q: Query) -> Any:
    """Rows that wait for calls of asynchronous functions or for a time."""
    found = q.get("waiting")
    return found["calls"] + found["windows"] if found else None


_p50, _p99 = _percentile("p50"), _percentile("p99")
COLUMNS: Sequence[Column] = (
    Column("query", "QUERY", 0, 12, lambda q: str(q["id"]), lambda q: str(q["id"]), left=True, rising=True),
    Column("priority", "PRIORITY", 5, 8, lambda q: str(q["priority"]), _number("weight"), left=True),
    Column("weight", "WEIGHT", 12, 6, lambda q: str(q["weight"]), _number("weight")),
    Column("share", "GOT/DUE", 1, 9, _shares, _number("share")),
    Column("cpu", "CPU", 9, 5, lambda q: percent(q.get("cpu")), _number("cpu")),
    Column("in", "IN/S", 1, 6, lambda q: count(q.get("rate_in")), _number("rate_in")),
    Column("out", "OUT/S", 10, 6, lambda q: count(q.get("rate_out")), _number("rate_out")),
    Column("lag", "LAG", 2, 6, lambda q: count(q["lag"]), _number("lag")),
    Column("p50", "P50", 11, 6, lambda q: duration(_p50(q)), _p50),
    Column("p99", "P99", 3, 6, lambda q: duration(_p99(q)), _p99),
    Column("state", "STATE", 6, 6, lambda q: size(q.get("state_bytes")), _number("state_bytes")),
    Column("total", "IN", 13, 6, lambda q: count(q["records_in"]), _number("records_in")),
    Column("late", "LATE", 8, 4, lambda q: count(q.get("late_records")), _number("late_records")),
    Column("dead", "DEAD", 8, 4, lambda q: count(q["dead_letters"]), _number("dead_letters")),
    Column("skipped", "SKIP", 8, 4, lambda q: count(q.get("skipped_records")), _number("skipped_records"), rare=True),
    Column("waiting", "WAIT", 8, 4, lambda q: count(_waiting(q)), _waiting, rare=True),
    Column("errors", "ERR", 7, 3, lambda q: count(q["errors"]), _number("errors")),
    Column("doing", "DOING", 4, 16, _doing, lambda q: -WORST_FIRST.get(q["state"], 9), left=True),
)
BY_KEY = {c.key: c for c in COLUMNS}


def fitting(queries: Sequence[Query], width: int) -> list[Column]:
    """The columns there is room for, each as wide as what it holds; the last of them may be cut off."""
    chosen: list[Column] = []
    used = 0
    telling = [c for c in COLUMNS if not c.rare or any(c.value(q) for q in queries)]
    for column in sorted(telling, key=lambda c: c.rank):
        need = least(column, queries)
        if used + need + len(chosen) <= width:
            chosen.append(column)
            used += need
    return [c for c in COLUMNS if c in chosen]


def least(column: Column, queries: Sequence[Query]) -> int:
    """How wide it must be: a number is never cut off, a name only beyond NAME_MIN."""
    need = wanted(column, queries)
    return column.width if column.key == "doing" else min(need, NAME_MIN) if column.key == "query" else need


def wanted(column: Column, queries: Sequence[Query]) -> int:
    """How wide all of it is."""
    return max([column.width, len(column.heading), *(len(column.text(q)) for q in queries)])


def ordered(queries: Sequence[Query], key: str, *, reverse: bool = False) -> list[Query]:
    """By a column: the largest first, names from A on; what has no value comes last either way."""
    column = BY_KEY[key]
    named = sorted(queries, key=lambda q: str(q["id"]))
    known = [q for q in named if column.value(q) is not None]
    unknown = [q for q in named if column.value(q) is None]
    return sorted(known, key=column.value, reverse=reverse == column.rising) + unknown


def matching(queries: Sequence[Query], text: str) -> list[Query]:
    """The queries whose id, class or state contains the text, ignoring case."""
    wanted = text.casefold()
    return [q for q in queries if any(wanted in str(q[k]).casefold() for k in ("id", "priority", "state"))]

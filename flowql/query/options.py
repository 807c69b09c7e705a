"""The options of an interactive query. Loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

QueryEngine = Literal["duckdb"]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """engine: whose SQL the query is in, if not the dialect's. at_least: the tick that its answer has to show (`flowql.query.at_least`). allow_standby:
    standby copies answer for partitions whose owner does not.
    """

    engine: QueryEngine | None = None
    at_least: str | None = None
    allow_standby: bool = False


QUERY_DEFAULTS = QueryOptions()

"""Interactive queries in the gateway: answered from the log, at no cost to the instance."""

from __future__ import annotations

from dataclasses import dataclass

from flowql.compiler.plan.topology import Plan
from flowql.pg.reading import Reading
from flowql.query.answer import Answer, Begun
from flowql.query.database import QueryDatabase
from flowql.query.options import QUERY_DEFAULTS, QueryEngine, QueryOptions
from flowql.server.readers import Visible


@dataclass(frozen=True, slots=True)
class LogQueries:
    """Answers the queries of one request. plan: the serving one. Every call may raise NeedsInstance."""

    reading: Reading
    plan: Plan

    @property
    def database(self) -> QueryDatabase:
        return self.reading.database

    def query(
        self,
        sql: str,
        begun: Begun = lambda _: None,
        client: str = "",
        options: QueryOptions = QUERY_DEFAULTS,
        visible: Visible = None,
    ) -> Answer:
        return self.reading.from_log(sql, begun, client, options, visible)

    def look_up(self, sql: str, engine: QueryEngine | None = None, visible: Visible = None) -> Answer | None:
        return self.reading.look_up(sql, self.plan, visible, engine)

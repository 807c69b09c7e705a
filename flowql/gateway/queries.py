"""Interactive queries in the gateway: answered from the log, at no cost to the instance."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowql.compiler.plan.topology import Plan
from flowql.pg.reading import Reading
from flowql.query.answer import Answer, Begun
from flowql.query.database import QueryDatabase
from flowql.query.options import QUERY_DEFAULTS, QueryEngine, QueryOptions
from flowql.server.readers import Visible


@dataclass(slots=True)
class LogQueries:
    """Answers the query of one request. plan: the serving one. asked: the query, if it may be a point look-up."""

    reading: Reading
    plan: Plan
    asked: tuple[str, QueryEngine | None, Visible] | None = field(default=None, init=False)

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
        """Raises NeedsInstance."""
        return self.reading.from_log(sql, begun, client, options, visible)

    def look_up(self, sql: str, engine: QueryEngine | None = None, visible: Visible = None) -> Answer | None:
        self.asked = sql, engine, visible
        return self.reading.look_up(sql, self.plan, visible, engine)

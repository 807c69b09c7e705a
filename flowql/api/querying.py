"""Answers an interactive query from the running instance of a directory, or without one from the directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.answer import Answer
from flowql.query.errors import BEHIND, QueryError
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.server.address import LOST
from flowql.server.running import connect
from flowql.server.undeployed import telling_undeployed

if TYPE_CHECKING:
    from flowql.runtime.functions.interactive import InteractiveFunction


@contextmanager
def answer_of(settings: Settings, sql: str, options: QueryOptions = QUERY_DEFAULTS) -> Iterator[Answer]:
    """The answer of the live instance, or of the directory. An instance that has ended is asked as a stopped one."""
    with ExitStack() as stack:
        with telling_undeployed(settings.project_dir):
            found = _live(settings, sql, options, stack)
            if found is None and options.at_least:
                title = "no instance runs here that could show the tick"
                raise QueryError(title, code=BEHIND, help="flowql run  or  flowql deploy  first, or ask without a tick")
            found = found or _at_rest(settings, sql, options, stack)
        yield found


def _live(settings: Settings, sql: str, options: QueryOptions, stack: ExitStack) -> Answer | None:
    client = connect(settings.data_dir)
    if client is None:
        return None
    stack.callback(client.close)
    try:
        return stack.enter_context(client.answer(sql, options))
    except CommandError as error:
        if error.code != LOST or connect(settings.data_dir) is not None:
            raise
        return None


def _at_rest(settings: Settings, sql: str, options: QueryOptions, stack: ExitStack) -> Answer:
    from flowql.query.database import QueryDatabase
    from flowql.query.limits import QueryLimits
    from flowql.query.session import answer  # the engine's reading side and DuckDB: 0.4 s to import
    from flowql.server.choice import at_rest

    take = stack.enter_context(at_rest(settings).commits())
    limits = QueryLimits.of(settings.budget, settings.interactive_queries, settings.data_dir)
    database = stack.enter_context(closing(QueryDatabase(limits)))

    def functions() -> Mapping[str, InteractiveFunction]:
        from flowql.deploy.functions import interactive_functions  # part of the compiler: 0.1 s

        return interactive_functions(settings.project_dir)

    return stack.enter_context(closing(answer(sql, take, database=database, functions=functions, options=options)))

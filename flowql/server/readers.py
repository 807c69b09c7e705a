"""The threads and feeds of those that read: interactive queries and subscriptions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from flowql.compiler.plan.deployed import Deployed as Record
from flowql.compiler.plan.topology import Plan
from flowql.config.api import SUBSCRIPTIONS
from flowql.deploy.functions import functions_to_compile
from flowql.deploy.settings import Settings
from flowql.query.answer import Answer, Begun
from flowql.query.options import QUERY_DEFAULTS, QueryEngine, QueryOptions
from flowql.query.resuming import about
from flowql.server.access import check_reads, visible_plan
from flowql.server.change_stream import Form, Frames
from flowql.server.feeds import Asked, Feeds
from flowql.server.following import Deployed, Following, compile_with
from flowql.server.subscriber import Subscriber

if TYPE_CHECKING:
    from flowql.compiler.driver import PushQuery
    from flowql.query.database import QueryDatabase
    from flowql.query.push import Start
    from flowql.query.whole import WholeEnds

FRAMES = Frames()
Visible = frozenset[str] | None  # folded names of relations; None: all
T = TypeVar("T")


class Queries(Protocol):
    """Answers interactive queries. Blocking calls, from any thread."""

    @property
    def database(self) -> QueryDatabase: ...

    @property
    def plan(self) -> Plan:
        """The serving plan."""
        ...

    def query(
        self,
        sql: str,
        begun: Begun = lambda _: None,
        client: str = "",
        options: QueryOptions = QUERY_DEFAULTS,
        visible: Visible = None,
    ) -> Answer:
        """Close it, or take all of it. begun, client: see `flowql.query.session.answer`. visible: what the query may read."""
        ...

    def look_up(self, sql: str, engine: QueryEngine | None = None, visible: Visible = None) -> Answer | None:
        """As `query`, for point look-ups that wait for nothing; None for all others. Quick enough for the loop of a server."""
        ...


class Readers:
    """Threads for queries, and the feeds of subscriptions. It is the instance of its subscriptions (`flowql.server.following.Served`)."""

    def __init__(
        self, settings: Settings, record: Callable[[], tuple[Record, Mapping[str, int]]], whole_ends: WholeEnds
    ) -> None:
        """record: gives the recorded deployment, and the partitions of topics. whole_ends: see `flowql.server.engine.Engine`."""
        self._settings, self._record, self.whole_ends = settings, record, whole_ends
        self.subscriptions_max = settings.api.subscriptions if settings.api is not None else SUBSCRIPTIONS
        self._threads = ThreadPoolExecutor(settings.interactive_queries.at_once, "queries")
        self._lock = threading.Lock()  # guards the subscribers
        self._subscribers: set[Subscriber] = set()
        self._feeds = Feeds(lambda: self.subscriptions_max)
        self._stopping = threading.Event()

    async def run(self, call: Callable[[], T]) -> T:
        """The result of what answers an interactive query."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def subscriber(
        self,
        what: str,
        start: Start,
        limit: int | None,
        form: Form = FRAMES,
        token: str | None = None,
        visible: Visible = None,
    ) -> Subscriber:
        """A subscription that has not begun; close it. token: where to continue. visible: what it may read."""
        ask = partial(self._asked, what, start, token, visible)
        made = Subscriber(self._feeds, ask, form, limit, self._forget)
        with self._lock:
            self._subscribers.add(made)
        return made

    @property
    def subscriptions(self) -> int:
        """How many have not ended."""
        with self._lock:
            return len(self._subscribers)

    def stop(self) -> None:
        """Has subscriptions end when everything was told; the server waits for them."""
        self._stopping.set()
        self._feeds.stop()

    def close(self) -> None:
        """Ends what has not ended."""
        self.stop()
        with self._lock:
            left = list(self._subscribers)
        for subscriber in left:
            subscriber.close()
        self._feeds.close()
        self._threads.shutdown()

    def record(self) -> tuple[Record, Mapping[str, int]] | None:
        return self._record() if self.is_running() else None

    def is_running(self) -> bool:
        return not self._stopping.is_set()

    def _asked(self, what: str, start: Start, token: str | None, visible: Visible) -> Asked:
        """Compiles a subscription."""
        settings = self._settings
        deployed, topics = self._record()

        def anew(there: Deployed) -> PushQuery:
            functions = functions_to_compile(settings.project_dir)
            seen = replace(there, plan=visible_plan(there.plan, visible))
            query = compile_with(what, seen, settings.application_id, settings.interactive_queries.dialect, functions)
            check_reads((s.name for s in query.reads), visible)
            return query

        there = Deployed(deployed.serving, topics, live=True)
        query = anew(there)
        begin = partial(Following, query, settings, there, start, anew, None, served=self)
        return Asked(what, visible, start, token, query, about(query, there.plan), begin)

    def _forget(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers.discard(subscriber)

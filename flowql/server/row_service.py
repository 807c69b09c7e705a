"""Writes rows for programs that have neither the log nor the directory of the instance, and reads its records and lines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.plan.deployed import About
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import log_at
from flowql.deploy.request import DeployRequest
from flowql.deploy.settings import Settings, writer_here
from flowql.errors import CommandError
from flowql.query.answer import Done
from flowql.query.changing import carry_out
from flowql.query.dead_letters import WITH_VALUES, letters_in, with_records
from flowql.query.local_tables import LocalTables, folder_of
from flowql.query.options import QueryOptions
from flowql.runtime.clock import SystemClock
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.repairs import Repair, Repairs
from flowql.runtime.log.repairs import write as write_repairs
from flowql.server.access import Caller, visible_plan
from flowql.server.logs import LogReader, Wanted, parsed
from flowql.server.replays import Replays
from flowql.server.service import Service
from flowql.topics.json_rows import json_table
from flowql.topics.producing import Once, TopicWriter, Written, source_named
from flowql.topics.records import records_of

RETRY_MAX = 100
STATEMENT_THREADS = 32  # for statements, of which those that wait for one table are committed together
THREADS = 4  # for everything else
HELD = "FQ5803"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statements:
    """statements: INSERT, UPDATE and DELETE. variables: values of `${name}` in them. retry: how often one is repeated whose table others change
    after its query has read it.
    """

    statements: str
    variables: dict[str, str] = field(default_factory=dict)
    retry: int = 0


class RowService:
    """Rows written, and changed by statements. Blocking calls come from `run`, which has threads of its own."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service, self._settings = service, settings
        self._threads = ThreadPoolExecutor(THREADS, "rows")
        self._writer = TopicWriter(self._opened, settings.writer("api"), settings.application_id)
        self._statement_threads = ThreadPoolExecutor(STATEMENT_THREADS, "statements")
        folder = folder_of(settings.data_dir, "instance")
        self._tables = LocalTables(
            self._opened, settings.application_id, writer_here("api"), folder, settings.memory_bytes
        )
        service.more_status.append(self._tables.status)
        self.replays = Replays()

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a blocking call."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def run_statements(self, call: Callable[[], T]) -> T:
        """The result of `execute`, `returning` or `carry_out`."""
        return await asyncio.get_running_loop().run_in_executor(self._statement_threads, call)

    def source(self, name: str) -> Plan:
        """A stream or table that is deployed, whatever the case of its name; with nothing else. CommandError if there is none."""
        return Plan(sources=(source_named(name, self._service.deployed.plan),))

    def produce(self, name: str, rows: pa.Table, timestamp: str | None, once: Once | None = None) -> Written:
        """Calls `TopicWriter.produce` with the deployed plan."""
        return self._writer.produce(name, self._service.deployed.plan, rows, timestamp, self._settings.partitions, once)

    def produce_json(
        self,
        name: str,
        rows: Sequence[Mapping[str, Any]],
        timestamp: str | None,
        once: Once | None = None,
        *,
        declared_only: bool,
    ) -> Written:
        """As `produce`, for rows of parsed JSON. declared_only: see `json_table`."""
        source = source_named(name, self._service.deployed.plan)
        return self.produce(name, json_table(rows, source, declared_only=declared_only), timestamp, once)

    def dead_letters(self, limit: int, skip: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Open dead letters as the public JSON, the last ones but for `skip`, and how many there are."""
        app = self._settings.application_id
        with (
            closing(self._opened()) as log,
            closing(self._service.query(WITH_VALUES, options=QueryOptions("duckdb"))) as answer,
        ):
            found = letters_in(answer.table(), self._service.plan, Repairs(log, app))
            end = max(0, len(found) - skip)
            shown = with_records(found[max(0, end - limit) : end], log, app)
        return [letter.to_data() for letter in shown], len(found)

    def replay(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        """Repairs these records and rebuilds the queries that they name. The document of the deployment.

        Repairs are on the log before the deployment. Where that is refused they are taken back.
        """
        app, now_ms = self._settings.application_id, SystemClock().wall_ms()
        queries = tuple(sorted({q for w in wanted for q in w.queries}))
        repairs: dict[tuple[TopicPartition, int], Repair | None] = {
            (w.tp, w.offset): w.repair for w in wanted if w.is_repaired
        }
        deployed = self._service.deployed
        if deployed.held:
            title = f"{', '.join(deployed.held)}: built and held back (--shadow); a replay would let it serve"
            raise CommandError(title, code=HELD, help="flowql promote  or  flowql abandon  first")
        request = DeployRequest(
            refresh=queries, about=About(f"replay of {len(repairs):,} dead letter{'s' * (len(repairs) != 1)}")
        )
        with closing(self._opened()) as log:
            known = Repairs(log, app)
            before = {place: known.get(*place) for place in repairs}
            write_repairs(log, app, repairs, now_ms)
            try:
                return self._service.deploy(deployed.plan, request)
            except CommandError:  # after another failure it may have been done: the same request does the rest
                write_repairs(log, app, before, now_ms)
                raise

    def records(self, topic: str, position: str | None, limit: int, *, beginning: bool) -> tuple[list[bytes], str]:
        """As `flowql.topics.records.records_of`, of the log of the instance."""
        with closing(self._opened()) as log:
            return records_of(log, self._service.deployed.plan, topic, position, limit, beginning=beginning)

    def log_lines(self, wanted: Wanted, lines: int, after: str | None) -> tuple[list[str], str]:
        """Lines of the instance's log: the last ones, or those after a position; and the position behind them. ValueError for a malformed one."""
        reader = LogReader(self._settings.data_dir)
        if after is not None:
            reader.go_to(after)
        found = reader.older() if after is None else reader.newer()
        return list(deque((line for line in found if wanted(parsed(line))), maxlen=lines)), reader.position

    def begin(self, asked: Statements, caller: Caller, *, one_returns: bool = False) -> Future[Done] | None:
        """As `LocalTables.begin`. Quick enough for the loop of the server."""
        if asked.retry or caller.visible("write") is not None:
            return None
        dialect = self._settings.interactive_queries.dialect
        return self._tables.begin(asked.statements, self._service.plan, dialect, one_returns=one_returns)

    def carry_out(self, asked: Statements, caller: Caller, *, one_returns: bool = False) -> list[Done]:
        """INSERT, UPDATE and DELETE. As `flowql.query.changing.carry_out`."""
        from flowql.compiler.dialect.request_size import check_request  # loads the parser: 0.5 s

        dialect = self._settings.interactive_queries.dialect
        check_request(SourceText("", asked.statements), standard=dialect == "standard")
        return carry_out(
            asked.statements,
            visible_plan(self._service.plan, caller.visible("write")).sources,
            self._tables.writers(),
            partial(self._ask, caller.visible("read")),
            self._settings.writer("api-exec"),
            dialect=dialect,
            variables=asked.variables,
            one_returns=one_returns,
            retry=asked.retry,
            bound=self._tables.bound,
        )

    def close(self) -> None:
        """Ends what has not ended."""
        self._threads.shutdown()
        self._statement_threads.shutdown()
        self._tables.close()
        self._writer.close()

    def _ask(self, visible: frozenset[str] | None, sql: str) -> pa.Table:
        with closing(self._service.query(sql, visible=visible)) as answer:
            return answer.table()

    def _opened(self) -> Log:
        s = self._settings
        return log_at(s.log_dir, s.kafka, s.application_id)

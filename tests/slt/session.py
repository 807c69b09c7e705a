"""One case: a session of the standard dialect, and an instance that runs every view as a deployed query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session, compile_project
from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, Plan, stores_of
from flowql.compiler.plan.types import arrow_type
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.decision import decide
from flowql.deploy.request import DeployRequest
from flowql.query.answer import Done
from flowql.query.changing import execute_change, write_rows
from flowql.query.committed import Commit
from flowql.query.database import QueryDatabase
from flowql.query.limits import QueryLimits
from flowql.query.session import evaluate
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.clock import SystemClock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Producer, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.topology.table_writer import POLICY, TableWriters

APPLICATION = "flowql"
DATABASE = QueryDatabase(QueryLimits(settings=InteractiveQuerySettings(dialect="standard")), isolating=False)
FEED = "slt"  # the producer of rows
ROUNDS_MAX = 1_000  # for timers that are due
NOW = "$__NOW__"  # in statements: the wall clock in nanoseconds
_INTERACTIVE = re.compile(
    r"\s*\(*\s*(select|values|with\b(?!.*\b(insert\s+into|update|delete\s+from)\b)|describe|show|explain)\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How queries are run. vector: force vector kernels, or, if False, forbid them. partitions: of each topic of a table."""

    vector: bool | None = None
    partitions: int = 1


class QueryFailed(Exception):
    """A deployed query stopped."""


class SqlSession:
    """Everything is in memory and stepped in this thread; time stands still except for `sleep`."""

    def __init__(self, shape: Shape) -> None:
        self._session = Session(dialect="standard")
        self._shape = shape
        self._log = MemoryLog()
        self._tables = TableWriters(self._log, APPLICATION)
        self._physical = MemoryPhysical()
        self._clock = VirtualClock(SystemClock().wall_ms())
        self._deployed = False
        self._open()

    def _open(self) -> None:
        config = InstanceConfig(threads=1, vector=self._shape.vector)
        self._instance = Instance(self._log, self._physical, self._clock, config)
        self._driver = Driver(self._instance)

    def close(self) -> None:
        self._instance.close()

    def producer(self) -> Producer:
        """Writes records as other applications do."""
        return self._log.producer("other")

    def restart(self) -> None:
        """Start again from what is committed: what is processed since the last commit is lost."""
        self._instance.close()
        self._open()
        if self._deployed:
            self._instance.resume()

    def execute(self, sql: str, *, rounds: int | None = None) -> None:
        """One statement of definition or change, applied as a whole, and caught up with. Raises what the product raises.

        rounds: restart after so many rounds of processing.
        """
        if _INTERACTIVE.match(sql):
            self.ask(sql)
            return
        self.carry_out(sql)
        if rounds is not None:
            for _ in range(rounds):
                self._driver.round()
            self.restart()
        self.settle()

    def carry_out(self, sql: str) -> None:
        """Statements of definition or change; views do not follow yet."""
        own = {s.topic for s in self._session.plan.sources if s.is_own_table}
        results = self._session.execute(SourceText("case.sql", self._at_now(sql)))
        if any(r.action not in ("insert", "change", "set", "nothing") for r in results):
            self._deploy(self._session.plan)
            for topic in own - {s.topic for s in self._session.plan.sources}:
                self._log.delete_topic(topic)
        for result in results:
            if result.change is not None:
                self._change(result.change)
        if rows := [row for r in results for row in r.rows]:
            self._write(rows)

    def returning(self, sql: str) -> pa.Table:
        """The rows that one statement with RETURNING gives back."""
        (result,) = self._session.execute(SourceText("case.sql", sql))
        assert result.change is not None
        returned = self._change(result.change).returned
        self.settle()
        assert returned is not None
        return returned

    def define(self, statements: Sequence[str]) -> list[Exception | None]:
        """Definitions, deployed together; of each why it was refused."""
        found: list[Exception | None] = []
        for sql in statements:
            try:
                self._session.execute(SourceText("case.sql", sql))
            except Exception as error:
                found.append(error)
            else:
                found.append(None)
        self._deploy(self._session.plan)
        self.settle()
        return found

    def redefine(self, project: str, *, rounds: int | None = None) -> None:
        """All definitions, deployed as files of a project are: what is no longer there goes, what differs is built anew.

        rounds: restart after so many rounds of processing. Raises CompileError with all mistakes.
        """
        text = SourceText("project.sql", project)
        partitions = {name: info.partitions for name, info in self._log.topics().items()}
        deployed = self._instance.deployed
        found = compile_project([text], dialect="standard", previous=deployed.plan, topic_partitions=partitions)
        if not found.ok:
            raise CompileError(*(d for d in found.diagnostics if d.severity == "error"))
        wanted = replace(found.plan, inserts=(), changes=())
        self._instance.deploy(decide(deployed, wanted, DeployRequest(prune=True), partitions=partitions).plan)
        self._session = Session(dialect="standard")
        self._session.execute(text)
        for _ in range(rounds or 0):
            self._driver.round()
        if rounds is not None:
            self.restart()
        self.settle()

    @property
    def plan(self) -> Plan:
        """Everything that was defined."""
        return self._session.plan

    def contents(self, views: Sequence[str]) -> dict[str, pa.Table]:
        """The rows that the results of queries hold, once these have caught up."""
        self.settle()
        self._assert_views_run()
        plan = self._instance.plan
        stores = {plain(s.name, query.generation): s.name for query, s in stores_of(plan)}
        with self._instance.snapshot() as snapshot:
            return {v: self._contents(v, [r for _, r in snapshot.scan(stores[v])]) for v in views}

    @property
    def log(self) -> MemoryLog:
        return self._log

    def is_table(self, view: str) -> bool:
        source = self._session.plan.source(view)
        return source is not None and source.kind == "table"

    def counts(self) -> dict[str, tuple[int, int]]:
        """The dead letters and late records of each view's query."""
        found = ((q.plan.sink, self._instance.metrics.query(q.plan.id)) for q in self._instance.queries.values())
        return {sink: (m.dead_letters, m.late_records) for sink, m in found}

    def _contents(self, view: str, rows: Sequence[Sequence[Any]]) -> pa.Table:
        source = self._session.plan.source(view)
        assert source is not None
        fields = [f for f in source.schema if f.role != "key"]
        arrays = [pa.array([r[i] for r in rows], arrow_type(f.type)) for i, f in enumerate(fields)]
        return pa.Table.from_arrays(arrays, names=[f.name for f in fields])

    def kept(self, view: str) -> int:
        """Entries of the stores of its operators, without its own rows."""
        (query,) = (q for q in self._instance.plan.queries if q.sink == view)
        stores = [s.name for sub in query.subtopologies for op in sub.operators for s in op.stores if s.name != view]
        with self._instance.snapshot() as snapshot:
            return sum(1 for s in stores if not s.endswith("-consolidate-1") for _ in snapshot.scan(s))

    def written(self, view: str) -> int:
        """Records that have been written to its topic."""
        (topic,) = (s.topic for s in self._session.plan.sources if s.name == view)
        return sum(self._log.end_offset(TopicPartition(topic, p)) for p in range(self._log.topics()[topic].partitions))

    def late(self, view: str) -> int:
        """Records that its query left out as late since the instance began."""
        (query,) = (q for q in self._instance.plan.queries if q.sink == view)
        return self._instance.metrics.query(query.id).late_records

    def dead_letters(self) -> int:
        """How many records were dead letters since the queries were deployed."""
        return sum(self._instance.metrics.query(q).dead_letters for q in self._instance.queries)

    def ask(self, sql: str) -> pa.Table:
        """The answer to an interactive query, once every view has caught up."""
        self.settle()
        self._assert_views_run()
        return evaluate(self._at_now(sql), self.commit, DATABASE)

    def _at_now(self, sql: str) -> str:
        return sql.replace(NOW, str(self._clock.wall_ms() * 1_000_000))

    def settle(self) -> None:
        """Let every view catch up with everything written so far."""
        if not self._deployed:
            return
        for _ in range(ROUNDS_MAX):
            if not any(t.is_due for q in self._instance.queries.values() for t in q.built.tasks):
                break
            self._driver.round()
        self._driver.run_until_caught_up()
        for query in self._instance.queries:
            found = self._instance.metrics.query(query)
            if self._instance.fatal is not None or found.errors:
                raise QueryFailed(str(self._instance.fatal or found.last_error))

    def sleep(self, ms: int) -> None:
        self._clock.advance(ms)
        self.settle()

    def _deploy(self, plan: Plan) -> None:
        """The plan without its statements that write rows, which are run one at a time."""
        known = self._log.topics()
        for source in plan.sources:
            if source.query is None and source.topic not in known:
                policy = POLICY if source.is_own_table else {}
                self._log.create_topic(source.topic, source.partitions or self._shape.partitions, policy)
        self._instance.deploy(replace(plan, inserts=(), changes=()))
        self._deployed = True

    def _change(self, change: TableChange) -> Done:
        source = self._session.plan.source(change.target)
        assert source is not None
        return execute_change(self._tables, source, change, self._clock.wall_ms(), self._answer)

    def _answer(self, sql: str) -> pa.Table:
        return evaluate(sql, self.commit, DATABASE)

    def _write(self, rows: Sequence[InsertValues]) -> None:
        write_rows(self._log, self._session.plan.sources, rows, FEED, self._clock.wall_ms())

    def _assert_views_run(self) -> None:
        """No view is a text that an interactive query recomputes: each is the result of a running query that has read all of its input."""
        made = [s for s in self._session.plan.sources if s.query is not None]
        written = {q.plan.sink for q in self._instance.queries.values()}  # ids of later generations have a number
        for source in made:
            assert source.name in written, f"no query runs that makes {source.name}"
        if made:
            assert caught_up(self._instance, source_ends(self._instance)), "a view has not caught up"

    def commit(self, _relations: Sequence[str]) -> Commit:
        """The commit that interactive queries read now."""
        return Commit(
            self._instance.plan if self._deployed else Plan(), self._instance.snapshot(), self._log, APPLICATION
        )

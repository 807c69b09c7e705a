"""Push queries: `SELECT ... EMIT CHANGES` over the streams and tables of an instance.

A push query runs in one thread of the process that starts it, on the engine, like a continuous query. It reads the topics of the log and keeps
its results and its state in memory. The instance whose results it reads does not know of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, PushQuery, compile_push
from flowql.compiler.functions.user import Entry
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.query.change import Change
from flowql.query.committed import dead_letter_source
from flowql.query.errors import BUSY, QueryError
from flowql.query.relations import spans_of
from flowql.query.tail import Tail
from flowql.query.whole import Whole, WholeEnds, awaited, to_the_end
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, committed_of
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.overlay import OverlayLog
from flowql.runtime.state.memory import MemoryPhysical

Start = Literal["earliest", "latest"]
MEMORY_BYTES = 128 << 20
GROUP_MAX = 100_000  # changes that are kept until the rest of their transactions is processed
FIRST_S = 12.0  # for which the first tick is waited for


class Replaced(RuntimeFailure):
    """A source of a push query was rebuilt: all records of its topic come again. No change of the new records has been delivered.

    may_be_retention: retention may have deleted all records that were read, which looks the same; see `Subscription.go_on`.
    """

    def __init__(self, topic: str, text: str, *, may_be_retention: bool = False) -> None:
        super().__init__(text)
        self.topic, self.may_be_retention = topic, may_be_retention


def compile_push_query(
    text: str,
    plan: Plan,
    application_id: str,
    topic_partitions: Mapping[str, int],
    dialect: DialectName = "ksql",
    functions: Mapping[str, Entry] = MappingProxyType({}),
) -> PushQuery:
    """A push query over the streams and tables of a deployed plan. Raises CompileError, its places in `text`. functions: of the project."""
    sources = (*plan.sources, dead_letter_source(application_id))
    text_ = SourceText("", text)
    return compile_push(text_, sources, dialect=dialect, topic_partitions=topic_partitions, functions=functions)


class Subscription:
    """A running push query. Used by one thread; `close` ends it, and closes the log, which it owns.

    It reads on from one end of whole transactions to the next (`Whole`), and delivers the changes between two of these ends together. Existing
    rows are delivered as they are computed.

    start: where to begin in streams. Tables are always read from their beginning, as each change needs the row before it;
    with `latest` the rows that a table has at the start are not delivered, and its changes since then are.
    """

    def __init__(
        self,
        query: PushQuery,
        log: Log,
        start: Start,
        offsets: Mapping[TopicPartition, int] | None = None,
        whole_ends: WholeEnds = to_the_end,
        wait: Callable[[float], object] = time.sleep,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """offsets: where to begin in streams instead; see `flowql.query.resuming`. wait, stopped: as of `awaited`, while
        no tick is finished. Raises QueryError if none is.
        """
        self.query = query
        self._topics = sorted({s.topic for s in query.reads})
        self._base, self._whole = log, Whole(log, whole_ends)
        try:
            self._ends = self._first_ends(wait, stopped)
            starts = {tp: n for tp, n in self._ends.items() if _is_stream(tp, query.reads)} if start == "latest" else {}
            starts = starts if offsets is None else dict(offsets)
            self._read_from = log.admin().begin_offsets(sorted(self._ends)) | starts
            self._log = OverlayLog(log, starts)
            self._log.until = {tp: max(end, starts.get(tp, 0)) for tp, end in self._ends.items()}
            config = InstanceConfig("push", threads=1, memory_bytes=MEMORY_BYTES, coalesce=False)
            self._instance = Instance(self._log, MemoryPhysical(), SystemClock(), config)
        except BaseException:
            log.close()
            raise
        try:
            self._driver = Driver(self._instance)
            read = [
                replace(s, rules=None) for s in query.plan.sources
            ]  # or a local table would be a new one, over rows of another
            self._instance.deploy(replace(query.plan, sources=tuple(read)))
            self._tail = Tail(query.result, self._log)
        except BaseException:
            self._instance.close()
            raise
        self._old_news = start == "latest" and all(s.kind == "table" for s in query.reads)
        self._seen_ends = {tp: end for tp, end in self.ends().items() if _is_stream(tp, query.reads)}
        self.admin = log.admin()
        self._begins = self.admin.begin_offsets(list(self._seen_ends))
        self._looked = self._seen_ends, self._begins  # ends and beginnings of streams when they were last looked at
        # Until all of their transactions are processed, and known not to be of a rebuilt stream.
        self._untold = list[Change]()
        self._read_to: Mapping[TopicPartition, int] | None = self._read_from
        self._is_first, self._is_resumed = True, offsets is not None  # first: existing rows are processed
        self.is_whole = False  # everything up to `until` of the log is processed and returned
        self.is_part = False  # more changes of the last rows' transactions follow
        self._counts = self.admin.partition_counts(self._topics)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows: the requested ones; for a windowed table also the bounds of the window after its key."""
        bounds = [f.name for f in self._tail.schema if f.role == "window"]
        if not bounds:
            return self.query.columns
        return tuple(n for n in self._tail.schema.names if n in bounds or n in self.query.columns)

    def close(self) -> None:
        self._instance.close()

    def poll(self) -> list[Change]:
        """Processes some records and returns the changes of whole transactions once these are processed. Raises RuntimeFailure if the query fails."""
        self._check_partitions()
        if self.is_whole:
            self._move_on()
        self._driver.round()
        self._check_partitions()  # before its changes are returned
        self._check()
        self._untold += self._changes()
        self.is_whole = caught_up(self._instance, self._log.until)
        tells = self.is_whole or (self._is_first and not self._is_resumed)
        if not tells and len(self._untold) < GROUP_MAX:
            return []
        if self._untold:
            self._check_replaced()
        found, self._untold = self._untold, []
        if self.is_whole:
            self._read_to = self._log.until
        elif found:
            self._read_to = self._processed_to()
        self.is_part = not (self.is_whole or (self._is_first and not self._is_resumed))
        self._is_first &= not self.is_whole
        if not self._old_news:
            return found
        self._old_news = self._is_first
        return []

    def read_to(self) -> Mapping[TopicPartition, int] | None:
        """The offsets after the records whose changes have been returned. None between the rows of one record."""
        return self._read_to

    def _processed_to(self) -> dict[TopicPartition, int] | None:
        """The offsets after the records whose changes are committed."""
        found, committed = dict(self._read_from), committed_of(self._instance)
        for task in [t for q in self._instance.queries.values() for t in q.built.tasks]:
            if committed is None:
                metadata: Mapping[str, Any] = {"positions": {i.name: i.position for i in task.logs.values()}}
            else:
                metadata = committed.get(str(task.id), {})
            if metadata.get("within"):
                return None
            for i in task.logs.values():
                found[i.tp] = max(found.get(i.tp, 0), i.position_in(metadata.get("positions", {}), 0))
        return found

    def _first_ends(self, wait: Callable[[float], object], stopped: Callable[[], bool]) -> dict[TopicPartition, int]:
        spans = awaited(lambda: self._whole.spans(*self._topics), FIRST_S, wait, stopped)
        if spans is None:
            title = f"the writers of {listing(self._topics)} have finished no tick together yet; repeat the statement"
            raise QueryError(title, code=BUSY)
        return {tp: end for tp, (_, end) in spans.items()}

    def _move_on(self) -> None:
        if (spans := self._whole.spans(*self._topics)) is not None:
            before = self._log.until
            self._log.until = {tp: max(end, before.get(tp, 0)) for tp, (_, end) in spans.items()}
            self.is_whole = self._log.until == before

    def go_on(self) -> None:
        """After Replaced, if retention deleted the records and no rebuild replaced them: rows that came since are emitted."""
        self._seen_ends, self._begins = self._looked

    @property
    def ready(self) -> bool:
        """Whether later rows are changes that the subscription asks for."""
        return not self._old_news

    def ends(self) -> dict[TopicPartition, int]:
        """Where the topics end now."""
        return {tp: end for tp, (_, end) in spans_of(self._base, *self._topics).items()}

    def idle(self) -> bool:
        """Whether all records of whole transactions that the topics have now are processed."""
        spans = self._whole.spans(*self._topics)
        until = self._log.until
        return self.is_whole and (spans is None or all(end <= until.get(tp, 0) for tp, (_, end) in spans.items()))

    def _check_partitions(self) -> None:
        """Replaced if a topic has another number of partitions now: its records lie elsewhere, and come once more."""
        now = self.admin.partition_counts(self._topics)
        for topic, count in self._counts.items():
            if now.get(topic, count) != count:
                raise Replaced(topic, f"topic {topic} has {now[topic]} partitions now, not {count}: repeat the query")

    def _check_replaced(self) -> None:
        """Replaced if a stream was rebuilt: its new records would be added to what was computed of the old ones.

        Looked at behind the changes that are about to be told: new records and the end of old ones are of one commit.
        """
        tps = list(self._seen_ends)
        ends = self.admin.end_offsets(tps)  # before the beginnings, or those of new records might be taken for old ones
        begins = self.admin.begin_offsets(tps)
        self._looked = ends, begins
        for tp, begin in begins.items():
            if begin > self._begins.get(tp, 0) and begin >= self._seen_ends[tp]:
                text = f"the records of {tp.topic} were replaced meanwhile, because it was rebuilt: repeat the query"
                raise Replaced(tp.topic, text, may_be_retention=True)
        self._seen_ends = ends

    def _check(self) -> None:
        if self._instance.fatal is not None:
            raise RuntimeFailure(f"the query stopped: {self._instance.fatal}") from self._instance.fatal
        for name in self._instance.queries:
            errors = self._instance.metrics.query(name)
            if errors.errors:
                self._check_replaced()  # what was to be read next may be gone for that
                raise RuntimeFailure(errors.last_error or "the query failed")

    def _changes(self) -> Iterator[Change]:
        """The new rows, which are then forgotten; without hidden columns."""
        shown, keys = set(self.columns), self.query.keys
        for reader, changes in self._tail.poll():
            self._log.drop_before(reader.tp, reader.position)
            for c in changes:
                yield replace(c, row={m: v for n, v in c.row.items() if (m := keys.get(n, n)) in shown})


def _is_stream(tp: TopicPartition, reads: tuple[SourceDef, ...]) -> bool:
    return all(s.kind == "stream" for s in reads if s.topic == tp.topic)

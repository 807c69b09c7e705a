"""Answers to statements, computed in this process from the log of the instance, or by the instance where its state is needed.

A relation of standard SQL is read from its topic, which costs the instance nothing: the embedded log is files, and a broker serves any reader. A store of
ksqlDB's dialect is read from a copy of the state. The instance answers statements over several stores, and over views that it aligns, by HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, Plan, SourceDef
from flowql.config.storage import log_at
from flowql.deploy.functions import interactive_functions
from flowql.deploy.settings import Settings, writer_here
from flowql.errors import CommandError
from flowql.pg.commit_point import about_to_write
from flowql.pg.empty import EmptyCommit, NoState, store_views_of
from flowql.pg.errors import unsupported
from flowql.pg.kept import PinnedTopics, pinned_relation
from flowql.pg.pins import Files, Holder, Pin
from flowql.pg.subscribe_statement import Subscribe
from flowql.pg.subscribing import Changes, Looked
from flowql.pg.writes import Pinned, Write, Writes, carried_out, check, rehearsed
from flowql.query.answer import Answer, Begun, Done
from flowql.query.catching_up import NEAR_RECORDS, CatchingUp
from flowql.query.changing import carry_out_bound
from flowql.query.committed import SETTLE_S, Commit, dead_letter_source, makers, queries_behind
from flowql.query.database import QueryDatabase
from flowql.query.errors import BUSY, NOTHING, UNKNOWN, QueryError
from flowql.query.kept import kept_if_table
from flowql.query.letters import LettersRelation
from flowql.query.limits import QueryLimits
from flowql.query.local_tables import LocalTables, folder_of
from flowql.query.looking_up import looked_up_now
from flowql.query.of_plan import OfPlan
from flowql.query.options import QUERY_DEFAULTS, QueryEngine, QueryOptions
from flowql.query.point_lookups import Shape
from flowql.query.relations import Relation, TopicRelation, is_passed, within
from flowql.query.room import Room
from flowql.query.session import answer
from flowql.query.shared_answers import SharedKey
from flowql.query.state_nearby import StateNearby
from flowql.query.whole import STEP_S, SharedEnds, Whole
from flowql.runtime.app.plan_topic import RecordedPlan, read_deployed, topic_name
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.repairs import RepairedLog
from flowql.runtime.log.repairs import topic_name as repairs_topic
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.runtime.task.dead_letters import TABLE as LETTERS
from flowql.runtime.ticks.graph import following_ticks
from flowql.server.access import visible_plan
from flowql.server.address import LOST, read_address
from flowql.server.client import Client

Visible = frozenset[str] | None  # folded names of relations; None: all
UNFINISHED = "views have not finished a tick yet"
TOO_FAST = "commits come faster than a snapshot can be taken"
LIMITED_MAX = 64  # plans of which some relations are seen


class NeedsInstance(Exception):
    """The statement reads state, which the instance alone has."""


@dataclass(frozen=True, slots=True)
class _OfLog(Commit):
    """A commit of which topics alone are read. topics: what is kept of them. pin: as of which they are read; None: as they are. visible: folded
    names of the relations that there are; None: all.
    """

    topics: PinnedTopics | None = None
    pin: Pin | None = None
    visible: frozenset[str] | None = None

    def at_rest(self) -> bool:
        return self.pin is not None or super(_OfLog, self).at_rest()

    def relations(self) -> dict[str, Callable[[], Relation]]:
        return {
            name: partial(self._made, make)
            for name, make in super(_OfLog, self).relations().items()
            if self.visible is None or name.casefold() in self.visible
        }

    def _made(self, make: Callable[[], Relation]) -> Relation:
        found = make()
        if self.topics is None:
            return found
        if self.pin is not None and isinstance(found, LettersRelation):
            return LettersRelation(pinned_relation(found.letters, self.topics, self.pin), found.name)
        if not isinstance(found, TopicRelation):
            return found
        return kept_if_table(found, self.topics) if self.pin is None else pinned_relation(found, self.topics, self.pin)


class Reading:
    """Any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_standard = settings.interactive_queries.dialect == "standard"
        self._log = log_at(settings.log_dir, settings.kafka, settings.application_id)
        self._repaired = RepairedLog(self._log, settings.application_id)
        limits = QueryLimits.of(settings.budget, settings.interactive_queries, settings.data_dir)
        self.database = QueryDatabase(limits, beside_continuous=False)
        self._kept = self.database.kept = PinnedTopics(limits.memory_bytes // 2, self.database.share)
        self._catching_up = CatchingUp(self._kept, self.database)
        self.nearby = StateNearby(
            self._log,
            settings.application_id,
            lambda: self._client().copied_state(),
            settings.budget.followed_state_bytes,
        )
        self._repaired_to = 0  # the end of the topic of repairs when they were read
        self._plan: tuple[int, Plan] | None = None  # and the end of its topic when it was read
        self._moving: frozenset[str] = frozenset()  # topics whose records the steps of a swap replace (Kafka)
        self._instance: Client | None = None
        self._limited = dict[
            frozenset[str], tuple[Plan, Plan]
        ]()  # by names that are visible: a plan, and what they see of it
        self._lock = threading.Lock()  # guards the plan and the client
        self._changing = LocalTables(
            lambda: log_at(settings.log_dir, settings.kafka, settings.application_id),
            settings.application_id,
            writer_here("pg"),
            folder_of(settings.data_dir, "pg"),
            settings.memory_bytes,
        )
        shared = settings.kafka is not None and settings.kafka.shared
        self._reads_log = settings.engine == "runtime" and not shared
        self.ends = SharedEnds(
            self.whole_ends,
            partial(self._log.last_sequence, settings.application_id) if settings.kafka is None else None,
        )
        self._pins = settings.engine == "runtime" and (self.is_standard or not shared)  # for transactions

    def close(self) -> None:
        self._catching_up.close()
        self.nearby.close()
        self.database.close()
        self._changing.close()
        self._log.close()

    def plan(self, visible: Visible = None) -> Plan:
        """The serving plan with these relations. Raises QueryError if nothing was deployed."""
        found = self._whole_plan()
        if visible is None:
            return found
        known = self._limited.get(visible)
        if known is None or known[0] is not found:
            if len(self._limited) >= LIMITED_MAX:
                self._limited.clear()
            self._limited[visible] = known = found, visible_plan(found, visible)
        return known[1]

    @property
    def is_local(self) -> bool:
        """Whether the log is files of this machine, from which this process alone may answer. A broker has to be waited for."""
        return self._reads_log and self._log.drops_with_commits

    def plan_if_known(self) -> Plan | None:
        """The serving plan; None if it would have to be read, or waited for. A broker has to be waited for."""
        app = self.settings.application_id
        if not self._log.drops_with_commits or not self._lock.acquire(blocking=False):
            return None
        try:
            tp, repairs = TopicPartition(topic_name(app), 0), TopicPartition(repairs_topic(app), 0)
            ends = self._log.admin().end_offsets([tp, repairs])
            same = self._repaired_to == ends.get(repairs, 0)
            return self._plan[1] if same and self._plan is not None and self._plan[0] == ends.get(tp, 0) else None
        finally:
            self._lock.release()

    def record(self) -> tuple[Deployed, Mapping[str, int]]:
        """The recorded deployment, and the partitions of topics."""
        if self.settings.engine == "spark":
            return self._client().deployed()
        recorded = RecordedPlan(self._log, self.settings.application_id)
        return recorded.read(), recorded.partitions()

    def _whole_plan(self) -> Plan:
        app = self.settings.application_id
        tp, repairs = TopicPartition(topic_name(app), 0), TopicPartition(repairs_topic(app), 0)
        with self._lock:
            ends = self._log.admin().end_offsets([tp, repairs])
            end = ends.get(tp, 0)
            if self._repaired_to != ends.get(repairs, 0):
                self._repaired.repairs.read_on()
                self._repaired_to = ends.get(repairs, 0)
            if self._plan is None or self._plan[0] != end:
                deployed = read_deployed(self._log, app)
                if deployed is None:
                    raise QueryError("nothing has been deployed here yet", code=NOTHING, help="flowql deploy")
                self._plan = end, deployed.serving
                moves = deployed.swap.moves if deployed.swap is not None else None
                self._moving = frozenset(m.topic for m in moves or ())
            return self._plan[1]

    def ask(
        self, sql: str, begun: Begun = lambda _: None, holder: Holder | None = None, visible: Visible = None
    ) -> Answer:
        """The answer. begun: gets what breaks it off. holder: of the transaction that asks, whose queries all read the same. visible: folded names
        of the relations that it may read; None: all. Raises CommandError, CompileError, RuntimeFailure, PgError.
        """
        if self._reads_log or visible is not None or holder is not None:
            try:
                equal = (self, visible) if holder is None else None
                return self._answer(sql, partial(self._take, holder=holder, visible=visible), begun, equal)
            except NeedsInstance:
                pass
        return self._of_instance(sql)

    def from_log(
        self,
        sql: str,
        begun: Begun = lambda _: None,
        client: str = "",
        options: QueryOptions = QUERY_DEFAULTS,
        visible: Visible = None,
    ) -> Answer:
        """The answer as the instance gives it. Arguments as of `Service.query`. Raises NeedsInstance if the log does not suffice, and QueryError."""
        of_state: Commit | None = None

        def take(relations: Sequence[str]) -> Commit:
            nonlocal of_state
            if visible is not None and (not relations or any(name.casefold() not in visible for name in relations)):
                raise NeedsInstance  # it tells what exists
            taken = self._take(relations, visible=visible, near=not self._may_look_up(sql, options.engine))
            of_state = taken if isinstance(taken.snapshot, StateSnapshot) else None
            return taken

        def as_of() -> int | None:
            return None if of_state is None else of_state.snapshot.sequence

        if not self.is_local or options.at_least is not None or options.allow_standby:
            raise NeedsInstance
        functions = partial(interactive_functions, self.settings.project_dir)
        equal = self._reader(visible)
        return answer(
            sql,
            take,
            begun,
            database=self.database,
            functions=functions,
            client=client,
            options=options,
            equal=equal,
            as_of=as_of,
        )

    def _reader(self, visible: Visible) -> Hashable:
        """Equal for those who see the same relations of the same deployment."""
        return self, visible, None if self._plan is None else self._plan[0]

    def look_up(
        self, sql: str, plan: Plan, visible: Visible = None, engine: QueryEngine | None = None
    ) -> Answer | None:
        """As `ask` outside of a transaction, for point look-ups that wait for nothing, and for queries over the state that were answered since the last
        commit; None for all other statements. Quick enough for the loop of the process. plan: the serving one.
        """
        if not self.is_local:
            return None
        language = engine or self.settings.interactive_queries.dialect
        found = looked_up_now(sql, language, partial(self._newest, plan, visible), self.database)
        if found is not None:
            return found
        key = SharedKey(sql, language, self._reader(visible))
        return self.database.shared.kept(key, self._log.last_sequence(self.settings.application_id))

    def _newest(self, plan: Plan, visible: Visible, relation: str) -> Commit | None:
        name, app = relation.casefold(), self.settings.application_id
        if visible is not None and name not in visible:
            return None
        if name not in _in_topics(plan):
            return self._in_state(plan, relation, StateNearby.snapshot_now)
        topics = self._topics_made(plan, [relation])
        if (ends := self.ends.known(*topics) if topics else {}) is None or not _has_all(ends, topics):
            return None
        state = NoState(self._log.last_sequence(app))
        return _OfLog(plan, state, self._repaired, app, topics=self._kept, ends=ends)  # type: ignore[arg-type]

    def _in_state(
        self, plan: Plan, relation: str, take: Callable[[StateNearby], StateSnapshot | None]
    ) -> Commit | None:
        """The newest commit, for a query over one store of ksqlDB's dialect. Returns None if the instance has to answer it."""
        found = take(self.nearby) if self.is_local and relation.casefold() in _stores(plan) else None
        if found is not None and self.plan() is not plan:  # it may have other stores
            found.close()
            return None
        return None if found is None else Commit(plan, found, self._repaired, self.settings.application_id)

    def _may_look_up(self, sql: str, engine: QueryEngine | None) -> bool:
        """Whether a query is a point look-up, or it is not known yet."""
        shape = Shape.of(sql)
        known = self.database.lookups.get(engine or self.settings.interactive_queries.dialect, shape) if shape else None
        return shape is not None and (known is None or known.lookup is not None)

    def _topics_made(self, plan: Plan, relations: Iterable[str]) -> tuple[str, ...]:
        """The topics of these relations that queries of standard SQL write."""
        names = {name.casefold() for name in relations} & makers(plan).keys() if self.is_standard else set[str]()
        return tuple(sorted({s.topic for s in plan.sources if s.name.casefold() in names}))

    def _whole(self, topics: Collection[str]) -> Mapping[TopicPartition, int]:
        """The ends of results as of a tick. Raises NeedsInstance if they have none now: the instance tells why."""
        ends = self.ends(*topics) if topics else {}
        if ends is None or not _has_all(ends, topics):
            raise NeedsInstance
        return ends

    def pin(self) -> Pin:
        """Pins the newest tick for a transaction. Raises CommandError, PgError."""
        has_views = self.is_standard and makers(self.plan())
        return self._kept.pin(partial(self._pinned, self.ends if has_views else dict))

    def unpin(self, pin: Pin) -> None:
        pin.release()

    def _pinned(
        self, whole: Callable[[], Mapping[TopicPartition, int] | None], topics: Collection[str] | None = None
    ) -> Pin:
        """whole: gives ends of results that fit together; other topics are read to their ends. topics: those that it is about; None: all. Between two
        commits. Raises QueryError.
        """
        app, limit = self.settings.application_id, time.monotonic() + SETTLE_S
        while True:
            bounds = whole()  # never beyond the ends
            sequence, plan, admin = self._log.last_sequence(app), self.plan(), self._log.admin()
            counts = admin.partition_counts(_topics(plan, app) if topics is None else topics)
            tps = [TopicPartition(t, p) for t in sorted(counts) for p in range(counts[t])]
            files = {tp: admin.files_of(tp) for tp in tps}
            begins, ends = admin.begin_offsets(tps), admin.end_offsets(tps)
            known = {tp: end for tp, end in (bounds or {}).items() if tp in begins}
            is_gone = any(is_passed(self._log, tp, begins[tp], end) for tp, end in known.items())
            if bounds is not None and self._log.last_sequence(app) == sequence and not is_gone:
                break
            if time.monotonic() > limit:  # never a mixture of two commits, or a part of a tick
                raise QueryError(f"{UNFINISHED if bounds is None else TOO_FAST}; repeat the query", code=BUSY)
            if bounds is None:
                time.sleep(STEP_S)
        spans, seen = dict[str, dict[TopicPartition, tuple[int, int]]](), dict[str, dict[TopicPartition, Files]]()
        for tp in tps:
            if tp in begins and tp in ends:
                spans.setdefault(tp.topic, {})[tp] = within((begins[tp], ends[tp]), known.get(tp))
                seen.setdefault(tp.topic, {})[tp] = files[tp]
        return Pin(plan, sequence, spans, seen, Room(self.database.memory))

    def describe(self, sql: str, visible: Visible = None) -> pa.Schema:
        """The columns that the statement has in an answer: that over relations without rows. visible: see `ask`."""
        with closing(self._answer(sql, partial(self._empty, visible=visible), lambda _: None)) as found:
            return found.schema

    def execute(
        self, sql: str, begun: Begun = lambda _: None, visible: Visible = None, written: Visible = None
    ) -> list[Done]:
        """Carries out INSERT, UPDATE and DELETE, each as one transaction. begun: gets what breaks its query off. visible, written: what it may read
        and write. Raises CommandError, CompileError, RuntimeFailure, PgError.
        """
        settings = self.settings

        def ask(query: str) -> pa.Table:
            with closing(self.ask(query, begun, visible=visible)) as found:
                table = found.table()
            about_to_write()
            return table

        sources = self.plan(written).sources
        known = {s.name: s for s in sources}
        changes = self._changing.bound.compiled(sql, known, settings.interactive_queries.dialect, {})
        if not any(isinstance(c, TableChange) and c.select for c in changes):
            about_to_write()
        return carry_out_bound(changes, sources, self._changing.writers(), ask, settings.writer("pg"))

    def begin(self, sql: str, plan: Plan, after: Callable[[], None]) -> Future[Done] | None:
        """As `LocalTables.begin`. Quick enough for the loop of the process."""
        return self._changing.begin(sql, plan, self.settings.interactive_queries.dialect, after=after)

    def compiled(self, sql: str, written: Visible) -> Sequence[TableChange | InsertValues]:
        """The statements that change rows. written: what they may write. Raises CompileError."""
        known = {s.name: s for s in self.plan(written).sources}
        return self._changing.bound.compiled(sql, known, self.settings.interactive_queries.dialect, {})

    def rehearsed(
        self, change: TableChange, writes: Writes, begun: Begun, holder: Holder | None, visible: Visible
    ) -> tuple[Write, int, pa.Table | None]:
        """A statement of a transaction that changes a table: see `flowql.pg.writes`. begun, holder, visible: see `ask`."""
        source = self.plan().source(change.target)
        assert source is not None, "it was compiled over it"

        def ask(sql: str) -> pa.Table:
            with closing(self.ask(sql, begun, holder, visible)) as found:
                return found.table()

        return rehearsed(change, source, writes, self._changing.writers(), ask)

    def check_write(self, change: TableChange, writes: Writes) -> None:
        """Raises PgError for a COPY that a transaction cannot have."""
        check(change, writes, self._changing.writers())

    def carry_out(self, writes: Sequence[Write], pinned: Mapping[str, Pinned] | None) -> None:
        """Carries out the writes of a transaction, as one commit. Raises PgError, CommandError, RuntimeFailure."""
        carried_out(writes, self.plan().sources, self._changing.writers(), self.settings.writer("pg"), pinned)

    def subscribe(self, subscribe: Subscribe, visible: Visible = None) -> Changes:
        """The changes of a subscription; begin and close them. visible: see `ask`. Raises QueryError, PgError."""
        sources = self.plan(visible).sources
        source = next((s for s in sources if s.name == subscribe.name), None)
        source = source or next((s for s in sources if s.name.casefold() == subscribe.name.casefold()), None)
        if source is None or source.is_hidden:
            hint = did_you_mean(subscribe.name, [s.name for s in sources])
            raise QueryError(f"there is no table, stream or view {subscribe.name}", code=UNKNOWN, help=hint)
        look = partial(self._looked, source.name, Whole(self._log, self.ends), with_files=subscribe.progress)
        relation = TopicRelation(source.name, source, self._repaired, {})
        return Changes(subscribe, relation, self.plan(), look, Room(self.database.memory))

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        """See `Client.whole_ends`; {} for topics that no query of standard SQL writes."""
        is_view = self.is_standard and (not topics or not self.plan().writers.keys().isdisjoint(topics))
        return self._client().whole_ends(*topics) if is_view else {}

    def _looked(self, name: str, whole: Whole, *, with_files: bool) -> Looked | None:
        """A relation between two commits, up to the end of a tick: its topic and the number of the commit are read one after the other. None if commits
        come too fast, no tick is finished since the start, or no instance runs.
        """
        app, limit = self.settings.application_id, time.monotonic() + SETTLE_S
        while True:
            tick, plan = self._log.last_sequence(app), self.plan()
            source = next((s for s in plan.sources if s.name == name), None)
            if source is None:
                raise QueryError(f"{name} is no longer deployed", code=UNKNOWN)
            files = self._files(source.topic) if with_files else {}
            if (spans := whole.spans(source.topic)) is None:
                return None
            relation = TopicRelation(name, source, self._repaired, spans)
            if self._log.last_sequence(app) == tick:
                return Looked(tick, relation, plan, files)
            if time.monotonic() > limit:
                return None

    def _files(self, topic: str) -> dict[TopicPartition, Files]:
        admin = self._log.admin()
        count = admin.partition_counts([topic]).get(topic, 0)
        return {tp: admin.files_of(tp) for tp in (TopicPartition(topic, p) for p in range(count))}

    def _answer(
        self, sql: str, take: Callable[[Sequence[str]], Commit], begun: Begun, equal: Hashable = None
    ) -> Answer:
        functions = partial(interactive_functions, self.settings.project_dir)
        return answer(sql, take, begun, database=self.database, functions=functions, equal=equal)

    def _take(
        self, relations: Sequence[str], holder: Holder | None = None, visible: Visible = None, *, near: bool = False
    ) -> Commit:
        """Raises NeedsInstance. near: the instance is to answer if many records have to be read first.

        The plan is read before the ends of topics, and both again if another plan serves afterwards: its rows have other columns.
        """
        while True:
            found = self._taken(relations, holder, visible, near=near)
            if (isinstance(found, _OfLog) and found.pin is not None) or self.plan() is found.plan:
                return found
            found.snapshot.close()

    def _taken(self, relations: Sequence[str], holder: Holder | None, visible: Visible, *, near: bool) -> Commit:
        """See `_take`."""
        if not relations and not self.is_standard:
            if visible is not None:
                raise unsupported("a user that is limited to some results cannot list all", "ask pg_catalog.pg_class")
            raise NeedsInstance  # SHOW TABLES
        pin = None if holder is None else holder.pin
        plan, app = self.plan() if pin is None else pin.plan, self.settings.application_id
        if visible is not None and any(name.casefold() not in visible for name in relations):
            # As for a name that does not exist.
            names = visible & _in_topics(plan)
            return _OfLog(plan, NoState(0), self._repaired, app, topics=self._kept, visible=names)  # type: ignore[arg-type]
        if not (self._reads_log if holder is None else self._pins):
            raise NeedsInstance
        known = _in_topics(plan)
        if any(name.casefold() not in known for name in relations):
            store = _stores(plan).get(relations[0].casefold()) if len(relations) == 1 and holder is None else None
            if store is None or (near and self.nearby.has_more(store, NEAR_RECORDS)):
                raise NeedsInstance  # it answers, or lists the names that exist
            if (commit := self._in_state(plan, relations[0], StateNearby.snapshot)) is None:
                raise NeedsInstance
            return commit
        if relations and holder is not None:
            pin = holder.pinned(self.pin, self.unpin)
            return _OfLog(pin.plan, NoState(pin.sequence), self._repaired, app, topics=self._kept, pin=pin)  # type: ignore[arg-type]
        if len(queries_behind(plan, relations)) > 1 or not self._moving.isdisjoint(_topics(plan, app, relations)):
            raise NeedsInstance
        made = self._topics_made(plan, relations)
        ends = self._whole(made)
        if near and not all(self._is_near(plan, name, ends) for name in relations):
            raise NeedsInstance
        if len(relations) > 1 and self._log.drops_with_commits:  # a commit may write to several of them
            topics = _topics(plan, app, relations)
            pin = self._kept.pin(partial(self._pinned, partial(self._whole, made), topics), is_counted=False)
            state = NoState(pin.sequence, pin)
            return _OfLog(pin.plan, state, self._repaired, app, topics=self._kept, pin=pin)  # type: ignore[arg-type]
        sequence = self._log.last_sequence(app) if relations or self._log.drops_with_commits else 0
        return _OfLog(plan, NoState(sequence), self._repaired, app, topics=self._kept, ends=ends)  # type: ignore[arg-type]

    def _is_near(self, plan: Plan, relation: str, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether the rows of a relation are kept but for a few records. The instance has those of views in its state; others it would read as well."""
        source = _views(plan).get(relation.casefold())
        return source is None or self._catching_up.is_near(TopicRelation.newest(source, self._repaired, ends))

    def _empty(self, relations: Sequence[str], visible: Visible = None) -> Commit:
        del relations
        app = self.settings.application_id
        return EmptyCommit(self.plan(), NoState(0), self._repaired, app, visible=visible)  # type: ignore[arg-type]

    def _of_instance(self, sql: str) -> Answer:
        with ExitStack() as stack:
            found = stack.enter_context(self._client().answer(sql, seen=self.nearby.seen))
            self.ends.answered()
            return Answer(found.schema, _passed(found, stack.pop_all()))

    def _client(self) -> Client:
        """The client of the running instance. Raises CommandError where none runs."""
        address = read_address(self.settings.data_dir)
        if address is None:
            raise CommandError("the instance does not answer: it is starting or ending", code=LOST, help="ask again")
        with self._lock:
            if self._instance is None or self._instance.address != address:
                self._instance = Client(address)
            return self._instance


def _passed(found: Answer, kept: ExitStack) -> Generator[pa.RecordBatch]:
    with kept:
        yield from found.batches


def _has_all(ends: Mapping[TopicPartition, int], topics: Collection[str]) -> bool:
    return {tp.topic for tp in ends} >= set(topics)


def _topics(plan: Plan, application_id: str, relations: Collection[str] | None = None) -> set[str]:
    """The topics of these relations, or of all."""
    known = [*plan.sources, dead_letter_source(application_id)]
    names = None if relations is None else {name.casefold() for name in relations}
    return {s.topic for s in known if names is None or s.name.casefold() in names}


def _topic_names(plan: Plan) -> frozenset[str]:
    stores = {name for name, _ in store_views_of(plan)}
    found = {s.name.casefold() for s in plan.sources if s.relation or s.name not in stores}
    return frozenset(found | ({LETTERS.casefold()} if LETTERS not in stores else set()))


def _of_views(plan: Plan) -> dict[str, SourceDef]:
    made = {s.name.casefold(): s for s in plan.sources if s.kind == "table" and s.query is not None}
    return {name: made[name] for name in made.keys() & _topic_names(plan)}


def _of_stores(plan: Plan) -> dict[str, str]:
    following, made = following_ticks(plan), makers(plan)
    views = ((name.casefold(), view.spec.name) for name, view in store_views_of(plan))
    return {name: store for name, store in views if name not in _topic_names(plan) and made[name].id not in following}


_stores = OfPlan(_of_stores)  # stores whose rows are as of any commit, by folded names
_views = OfPlan(_of_views)  # those that are read from topics alone, by folded names
_in_topics = OfPlan(_topic_names)  # the folded names of relations that are read from topics alone

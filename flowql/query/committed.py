"""One commit and what can be read of it: its plan, its state, its topics up to where it ended. `status` of a stopped instance loads this, and no DuckDB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from flowql.compiler.plan.generations import plain, runtime_name
from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef, stores_of
from flowql.config.storage import log_at
from flowql.query.errors import APART, NOTHING, SEQUENCE, TICK, QueryError
from flowql.query.of_plan import OfPlan
from flowql.query.room import Room
from flowql.runtime.app.plan_topic import read_plan
from flowql.runtime.app.standby import CopyPosition
from flowql.runtime.errors import LogCorrupt, StateDamaged, StateError
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.log.repairs import RepairedLog
from flowql.runtime.state.changelog import read_tasks
from flowql.runtime.state.combined import CombinedSnapshot
from flowql.runtime.state.layout import MARKER, RUN, TaskRecord, decode_number
from flowql.runtime.state.reader import open_readonly
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.runtime.state.store import Snapshot
from flowql.runtime.task import dead_letters

if TYPE_CHECKING:
    from flowql.query.relations import Relation
    from flowql.query.statement import Condition

_OPEN_TRIES = 5
SETTLE_S = 5.0  # how long to look for a moment at which log and state are at the same commit
SETTLE_STEP_S = 0.002
REMADE = "flowql deploy   # the next start restores it, or rebuilds it from the inputs"
Take = Callable[
    [Sequence[str]], "Commit"
]  # gives a commit for a query over these relations; the caller closes its snapshot


@dataclass(frozen=True, slots=True)
class Wanted:
    """A relation of stores of which an instance is asked for its partitions: those of rows that meet the conditions, at least.

    definition: of its query; an instance with another definition has other rows. enough: the number of rows of each partition that
    suffices, in any choice; None: all. tick: only rows as of this tick; 0: those of the last commit. copies: those of standby copies too.
    """

    relation: str
    definition: str
    conditions: tuple[Condition, ...] = ()
    columns: frozenset[str] | None = None
    enough: int | None = None
    tick: int = 0
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one task, as of a commit of the instance that owned it. version: grows with each commit of the task. copy: the position of the
    standby copy that they are of.
    """

    relation: str
    task: str
    version: int
    rows: pa.Table
    copy: CopyPosition | None = None


# The wanted rows of all other instances of an application, and sentences about those that did not answer. Hurried, each has a second to begin.
Others = Callable[[Sequence[Wanted], Room, bool], tuple[list[Part], list[str]]]
# A snapshot of the standby copies of this instance, and their positions by task and store.
Copies = Callable[[], tuple[StateSnapshot, Mapping[tuple[str, str], CopyPosition]]]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as interactive queries see it. `snapshot.sequence` is its number.

    apart: why the relations are not at the same offsets of the input they share; empty if they are, or if this was not checked.
    writer: transactional id of the instance that made the commit, if it is a member of a group; others: reads rows of the other members. copies: takes this member's standby copies.
    restoring: tasks of a single instance whose rows are not all restored. is_whole: views show the same records of all their inputs
    (`flowql.runtime.ticks`). tick: of a member, the tick that `snapshot` is of; 0 if it is that of the last commit.
    cut: ends of the sources as of the tick that it shows; {}: it is between two ticks; None: its queries follow no ticks. told: that tick as text,
    for an answer that was asked for one. ends: of results, as of the tick that it shows: topics are read no further. A topic without one is read to its end.
    """

    plan: Plan
    snapshot: Snapshot
    log: Log
    application_id: str
    apart: str = ""
    writer: str = ""
    others: Others | None = None
    restoring: frozenset[str] = frozenset()
    is_whole: bool = False
    tick: int = 0
    cut: Mapping[TopicPartition, int] | None = None
    told: str = ""
    copies: Copies | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Metadata of answers: the sequence of the commit, why views are apart, and the tick."""
        said = {SEQUENCE: str(self.snapshot.sequence), APART: self.apart, TICK: self.told}
        return {key: text.encode() for key, text in said.items() if text}

    def at_rest(self) -> bool:
        """The log holds this commit and no later one, so that topics and state can be read together."""
        return self.log.last_sequence(self.writer or self.application_id) == self.snapshot.sequence

    def as_newest(self, why: str = "") -> Commit:
        """The last commit, where this one is of a tick of several members. why: what an answer says of it. Its snapshot is closed with this one's."""
        snapshot = self.snapshot
        if not self.tick or not isinstance(snapshot, CombinedSnapshot):
            return self
        return replace(self, snapshot=snapshot.newest, apart=why, is_whole=False, tick=0, ends={})

    def not_kept(self, name: str) -> str:
        """The remedy for a store of the plan whose rows cannot be read here; empty for another name."""
        return ""

    def relations(self) -> dict[str, Callable[[], Relation]]:
        """Name -> how to make the relation: tables and internal stores, streams and source tables, DEAD_LETTERS, STORES."""
        from flowql.query.readable import relations_of  # with DuckDB and the decoders, which only a query needs

        letters = dead_letter_source(self.application_id)
        return relations_of(self.plan, self.snapshot, self.log, letters, self.ends)


@dataclass(frozen=True, slots=True)
class LimitedCommit(Commit):
    """A commit of which only some relations exist. visible: their folded names."""

    visible: frozenset[str] = frozenset()

    def not_kept(self, name: str) -> str:
        return ""

    def relations(self) -> dict[str, Callable[[], Relation]]:
        return {n: make for n, make in Commit.relations(self).items() if n.casefold() in self.visible}


def limited_to(visible: frozenset[str] | None, take: Take) -> Take:
    """Gives commits of these relations alone. None: of all."""
    if visible is None:
        return take

    def taken(relations: Sequence[str]) -> Commit:
        commit = take(relations)
        return LimitedCommit(**{f.name: getattr(commit, f.name) for f in fields(Commit)}, visible=visible)

    return taken


def _makers(plan: Plan) -> dict[str, QueryPlan]:
    made = {s.name.casefold(): q for s in plan.sources for q in [plan.by_id.get(s.query or "")] if q is not None}
    return made | {plain(store.name, query.generation).casefold(): query for query, store in stores_of(plan)}


makers = OfPlan(_makers)  # of relations, by their folded names


def queries_behind(plan: Plan, relations: Iterable[str]) -> set[str]:
    """The queries that make these relations (names as people write them), by the names under which they run."""
    made = makers(plan)
    return {runtime_name(made[name.casefold()]) for name in relations if name.casefold() in made}


def dead_letter_source(application_id: str) -> SourceDef:
    """The dead letters as a stream: one per record and query, as they are met."""
    return SourceDef(
        dead_letters.TABLE,
        "stream",
        dead_letters.topic_name(application_id),
        dead_letters.SCHEMA,
        Format("NONE"),
        Format("JSON"),
    )


class StateUnreadable(QueryError):
    """The state of an instance that does not run is missing, damaged or older than the log's redo. The log is whole."""


@contextmanager
def stopped_commits(data_dir: Path, application_id: str, kafka: KafkaSettings | None = None) -> Iterator[Take]:
    """Gives the last commit of an instance that is not running, from its directory alone. Close its snapshot.

    After a graceful stop all relations are at one place in it; after a crash each is as far as it was. Of one of many instances it
    has the partitions that no other instance has taken over since. Raises StateUnreadable.
    """
    if not (data_dir / ("log" if kafka is None else "state")).is_dir():
        raise QueryError(f"nothing has run in {data_dir} yet", code=NOTHING, help="flowql deploy")
    log = log_at(data_dir / "log", kafka, application_id)
    repaired = RepairedLog(log, application_id)
    shared = kafka is not None and kafka.shared

    def take(_relations: Sequence[str]) -> Commit:
        plan = read_plan(log, application_id)
        if plan is None:
            raise QueryError(f"nothing has been deployed to {data_dir} yet", code=NOTHING, help="flowql deploy")
        return Commit(
            plan, _open_state(data_dir / "state", log, application_id, shared=shared), repaired, application_id
        )

    try:
        yield take
    finally:
        log.close()


def _open_state(path: Path, log: Log, application_id: str, *, shared: bool) -> Snapshot:
    """Flushed state and the redo after it; an instance that starts meanwhile may move the line between the two."""

    def owned(here: Mapping[str, TaskRecord]) -> frozenset[str] | None:
        if not shared:
            return None
        newest = read_tasks(log, application_id)
        return frozenset(t for t, record in here.items() if t in newest and newest[t].record == record)

    for attempt in range(_OPEN_TRIES):
        try:
            flushed, run = _flushed(path)
            if isinstance(log, EmbeddedLog) and (why := log.why_foreign(application_id, flushed, run)):
                raise StateError(why)
            redo = log.redo_after(application_id, flushed) if log.supports_redo else iter(())
            return open_readonly(path, redo, owned)
        except (StateError, LogCorrupt) as error:
            if attempt == _OPEN_TRIES - 1:
                remade = isinstance(error, LogCorrupt | StateDamaged)
                raise StateUnreadable(
                    f"the state in {path} cannot be read: {error}",
                    code=error.code,
                    help=REMADE if remade else "flowql doctor",
                ) from error
            time.sleep(0.1)
    raise AssertionError("unreachable")


def _flushed(path: Path) -> tuple[int, int]:
    """The commit up to which state is in the directory, and the start of an instance that has last opened it."""
    if not (path / "CURRENT").exists():
        return 0, 0
    physical = open_rocks(path, read_only=True)
    try:
        return decode_number(physical.get(MARKER), 0), decode_number(physical.get(RUN), 0)
    finally:
        physical.close()

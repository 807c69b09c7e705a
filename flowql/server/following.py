"""Rows as they come: a push query, followed until it is stopped, a limit or the end of the instance."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.deployed import Deployed as Record
from flowql.compiler.plan.deployed import is_serving
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.config.project import Project
from flowql.config.storage import log_at
from flowql.deploy.settings import Settings
from flowql.errors import CommandError, CompileError
from flowql.query.change import Change, Rebuilt
from flowql.query.errors import BUSY, NOTHING, UNKNOWN, QueryError
from flowql.query.resuming import Place, about, can_resume, can_share, why_not
from flowql.runtime.app.beat_file import ENDED, read
from flowql.runtime.app.plan_topic import RecordedPlan
from flowql.runtime.log.base import Log, TopicPartition
from flowql.server.choice import at_rest
from flowql.server.running import connect, process_of
from flowql.server.undeployed import telling_undeployed

if TYPE_CHECKING:
    from flowql.compiler.driver import DialectName, PushQuery
    from flowql.compiler.functions.user import Entry
    from flowql.query.push import Replaced, Start, Subscription
    from flowql.server.client import Client

SILENT = "FQ5106"
_SELECT = re.compile(
    r"(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*(?:select|with)\b", re.IGNORECASE | re.DOTALL
)  # behind comments and brackets
_WAIT_S, _WAIT_S_MAX = 0.05, 0.2  # between two looks; the longer, the longer nothing has come
_BUSY_S = 0.002  # the same while records are processed
_SWAP_S = 60.0  # a swap on Kafka takes some seconds, more if an instance dies in it
_RETENTION_S = 2.0  # no swap is recorded for so long after records are gone: retention has deleted them
_ALIVE_S = 1.0  # how often to look whether the instance is still there


@dataclass(frozen=True, slots=True)
class Deployed:
    """The plan deployed to a target. live: an instance runs it."""

    plan: Plan
    topics: Mapping[str, int]
    live: bool


# The recorded deployment, and the partitions of topics. None if no instance runs.
Recorded = Callable[[], tuple[Record, Mapping[str, int]] | None]


class Served(Protocol):
    """The instance that computes what a subscription reads."""

    def record(self) -> tuple[Record, Mapping[str, int]] | None:
        """See `Recorded`."""
        ...

    def is_running(self) -> bool: ...

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        """See `flowql.server.engine.Engine`. None also if it does not answer."""
        ...


@dataclass(slots=True)
class InDirectory:
    """The instance of a directory, in whichever process it runs."""

    settings: Settings
    _client: Client | None = None

    def record(self) -> tuple[Record, Mapping[str, int]] | None:
        client = connect(self.settings.data_dir)
        if client is None:
            return None
        with closing(client):
            return client.deployed()

    def is_running(self) -> bool:
        return process_of(self.settings.data_dir) is not None

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        if not self.is_running():
            seen = read(self.settings.data_dir)
            return {} if seen is None or seen.state == ENDED else None  # where it was killed, a tick may have begun
        try:
            self._client = self._client or connect(self.settings.data_dir)
            return None if self._client is None else self._client.whole_ends(*topics)
        except CommandError:  # it does not answer now
            self.close()
            return None

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def deployed(settings: Settings) -> Deployed:
    """Reads the live instance, or else its directory; QueryError when nothing ever ran there."""
    if (found := InDirectory(settings).record()) is not None:
        return Deployed(found[0].serving, found[1], live=True)
    record, topics = at_rest(settings).deployed()
    if not record.serving.sources:
        raise QueryError(f"nothing has been deployed to {settings.data_dir} yet", code=NOTHING, help="flowql deploy")
    return Deployed(record.serving, topics, live=False)


def statement_of(text: str, plan: Plan) -> str:
    """A SELECT as it is; the name of a stream or table as one of all its columns. QueryError for an unknown name."""
    if _SELECT.match(text):
        return text
    from flowql.query.committed import dead_letter_source

    known = {s.name: s for s in (*plan.sources, dead_letter_source(""))}
    name = text.strip().strip('`"')
    found = name if name in known else next((n for n in known if n.casefold() == name.casefold()), None)
    if found is None:
        hint = did_you_mean(name, known) or f"there are {listing(known)}"
        raise QueryError(f"there is no stream or table {name}", code=UNKNOWN, help=hint)
    return f"SELECT * FROM `{found}` EMIT CHANGES"


def compile_text(text: str, found: Deployed, settings: Settings, project: Project) -> PushQuery:
    """The push query a text asks for, with the functions of the project as they are now. Raises CompileError or QueryError."""
    from flowql.config.compile import functions_of

    functions, mistakes = functions_of(project)
    try:
        with telling_undeployed(settings.project_dir):
            return compile_with(text, found, settings.application_id, project.dialect, functions)
    except CompileError as error:
        if not mistakes:
            raise
        raise CompileError(*mistakes, *error.diagnostics) from None


def compile_with(
    text: str, found: Deployed, application_id: str, dialect: DialectName, functions: Mapping[str, Entry]
) -> PushQuery:
    """Compiles as `compile_text`, with these functions of the project."""
    from flowql.query.push import compile_push_query  # the compiler: 0.5 s

    statement = statement_of(text, found.plan)
    return compile_push_query(statement, found.plan, application_id, found.topics, dialect, functions)


Mark = tuple[
    str, tuple[tuple[TopicPartition, int], ...]
]  # what a statement is about, and the offsets up to which its topics were read


@dataclass(frozen=True, slots=True)
class Point:
    """A point between the changes of a subscription. result, columns: of the rows after it. token: where a later subscription continues; None behind
    changes that are left out. mark: the same for all subscriptions of the statement; None where they differ. reset: why all rows follow again,
    instead of those after a token; empty if they do not. is_part: it is within a transaction.
    """

    result: SourceDef
    columns: Sequence[str]
    token: str | None
    mark: Mark | None = None
    reset: str = ""
    is_part: bool = False


@dataclass(slots=True)
class Following:
    """A subscription on its way. query: what it answers. found: what was deployed when it began. stopped: asked to end.
    served: the instance; by default that of the directory. token: where to continue, if it can; else it begins at the beginning. wait: waits
    so many seconds for changes, or less.

    Iterate it for lists of changes, also empty ones, and for a boundary where what it reads has been rebuilt. `close` it.
    """

    query: PushQuery
    settings: Settings
    found: Deployed
    start: Start
    anew: Callable[[Deployed], PushQuery]  # the same push query over the plan that is deployed then
    limit: int | None = None
    stopped: Callable[[], bool] = field(default=lambda: False)
    served: Served | None = None
    token: str | None = None
    wait: Callable[[float], object] = time.sleep
    reset: str = ""  # why it has begun again instead of continuing at the token
    rows: int = 0
    why: str = ""  # it ended by itself
    subscription: Subscription = field(init=False)
    _served: Served = field(init=False)
    _about: tuple[PushQuery, str] | None = None
    _recorded: RecordedPlan | None = None  # in the log of the subscription; None: the engine records no plan there

    def __post_init__(self) -> None:
        self._served = self.served or InDirectory(self.settings)
        try:
            self.subscription = self._listen(self.start, self.token)
        except BaseException:
            self._close_served()
            raise

    def _listen(self, start: Start, token: str | None = None) -> Subscription:
        """Starts the push query over what serves in the log. token: where to continue, or else `reset` says why not.

        An instance knows a new plan before the commit that replaces the records, or, as a member of a group, some time after it. So the plan
        comes from the log as well, before the topics, and both are read again if another plan is on record afterwards.
        """
        limit = time.monotonic() + _SWAP_S
        while True:
            log = log_at(self.settings.log_dir, self.settings.kafka, self.settings.application_id)
            recorded = RecordedPlan(log, self.settings.application_id) if self.settings.engine == "runtime" else None
            try:
                while recorded is not None and self._is_moving(recorded.read()) and not self.stopped():
                    self._check_time(limit)
                    self.wait(_WAIT_S)
                self._keep_to(recorded)
                place = None if token is None else Place.of(token)
                self.reset = "" if token is None else why_not(place, self.query, self.found.plan, log.admin())
            except BaseException:
                log.close()
                raise
            continues = token is not None and not self.reset
            found = self._subscription(log, "earliest" if self.reset else start, place if continues else None)
            try:
                is_same = recorded is None or (recorded.is_newest and not self._is_moving(recorded.read()))
                if (is_same and not (continues and self._why_not(place, found))) or self.stopped():
                    self._recorded = recorded
                    return found
            except BaseException:
                found.close()
                raise
            found.close()
            self._check_time(limit)
            self.wait(_WAIT_S)

    def _check_time(self, limit: float) -> None:
        """Raises QueryError after the limit, by the monotonic clock."""
        if time.monotonic() > limit:
            topics = listing(sorted({s.topic for s in self.query.reads}))
            raise QueryError(f"the records of {topics} are being replaced; repeat the statement", code=BUSY)

    def _keep_to(self, recorded: RecordedPlan | None) -> None:
        """The statement is about the plan on record from here on."""
        if recorded is not None and (serving := recorded.read().serving) != self.found.plan:
            self.found = replace(self.found, plan=serving, topics=recorded.partitions())
            self.query = self.anew(self.found)

    def _is_moving(self, record: Record) -> bool:
        """Whether steps of a swap replace records that it reads (Kafka)."""
        moves = record.swap.moves if record.swap is not None else None
        return not {m.topic for m in moves or ()}.isdisjoint(s.topic for s in self.query.reads)

    def _subscription(self, log: Log, start: Start, place: Place | None) -> Subscription:
        from flowql.query.push import Subscription  # the engine
        from flowql.query.whole import to_the_end
        from flowql.runtime.log.repairs import RepairedLog

        is_written = not self.found.plan.writers.keys().isdisjoint(s.topic for s in self.query.reads)
        whole_ends = self._served.whole_ends if self.live and is_written else to_the_end
        repaired = RepairedLog(log, self.settings.application_id)
        offsets = None if place is None else place.offsets
        return Subscription(self.query, repaired, start, offsets, whole_ends, self.wait, self.stopped)

    def about(self) -> str:
        """Tells its statement and generations from others."""
        if self._about is None or self._about[0] is not self.query:
            self._about = self.query, about(self.query, self.found.plan)
        return self._about[1]

    def point(self) -> Point:
        """The point after the changes given so far."""
        offsets, of = self.subscription.read_to(), self.about()
        token = Place(of, offsets if can_resume(self.query) else None).token()
        is_shared = offsets is not None and can_share(self.query)
        mark = (of, tuple(sorted(offsets.items()))) if is_shared and offsets is not None else None
        return Point(self.query.result, list(self.columns), token, mark, is_part=self.subscription.is_part)

    def why_not(self, place: Place | None) -> str:
        """Why a subscription cannot continue at a place; empty if it can."""
        return self._why_not(place, self.subscription)

    def _why_not(self, place: Place | None, subscription: Subscription) -> str:
        return why_not(place, self.query, self.found.plan, subscription.admin)

    @property
    def columns(self) -> Sequence[str]:
        return self.subscription.columns

    @property
    def result(self) -> SourceDef:
        return self.query.result

    @property
    def is_ready(self) -> bool:
        """Whether later rows are changes that the subscription asks for."""
        return self.subscription.ready

    @property
    def live(self) -> bool:
        """Whether an instance ran when it began."""
        return self.found.live

    def close(self) -> None:
        self.subscription.close()
        self._close_served()

    def _close_served(self) -> None:
        if isinstance(self._served, InDirectory):
            self._served.close()

    def __iter__(self) -> Iterator[list[Change] | Rebuilt]:
        from flowql.query.push import Replaced

        checked = came = time.monotonic()
        ending = not self.live
        while not self.stopped() and (self.limit is None or self.rows < self.limit):
            try:
                changes = self.subscription.poll()
            except Replaced as replaced:
                boundary = self._begun_again(replaced)
                if boundary is not None:
                    yield boundary
                continue
            if self.limit is not None:
                changes = changes[: self.limit - self.rows]
            self.rows += len(changes)
            yield changes
            if changes:
                came = time.monotonic()
                continue
            if not self.subscription.is_whole:
                self.wait(_BUSY_S)
                continue
            if ending and self.subscription.idle():
                self.why = "the instance has stopped" if self.live else "no instance is running"
                return
            if time.monotonic() - checked > _ALIVE_S:
                checked, ending = time.monotonic(), not self._served.is_running()
            quiet_s = time.monotonic() - came
            self.wait(min(_WAIT_S_MAX, max(_WAIT_S, quiet_s / 20)))

    def _begun_again(self, replaced: Replaced) -> Rebuilt | None:
        """The push query over what serves now, from the beginning.

        None if it was asked to stop, or if retention has deleted what it had read, after which it continues. Replaced if the
        cause cannot be determined.
        """
        now, before = rebuilt(self._record, self.found.plan, replaced.topic, self.stopped), self.found.plan
        if self.stopped():
            return None
        if now is not None and _writers(now.plan, replaced.topic) == _writers(before, replaced.topic):
            if (
                not replaced.may_be_retention or self.settings.engine == "spark"
            ):  # its jobs replace results when they serve
                raise replaced
            self.subscription.go_on()
            return None
        if now is None:
            raise replaced
        self.found, self.query = now, self.anew(now)
        following = self._listen("earliest")
        self.subscription.close()
        self.subscription = following
        read = {s.topic for s in self.query.reads}
        new = {q.sink: q.generation for q in self.found.plan.queries if q.topic in read and not is_serving(before, q)}
        return Rebuilt(new, self.query.result, following.columns)

    def _record(self) -> tuple[Record, Mapping[str, int]] | None:
        """As `Served.record`. An instance may know of a swap later than the log."""
        if self._recorded is None:
            return self._served.record()
        return (self._recorded.read(), self._recorded.partitions()) if self._served.is_running() else None


def follow(
    anew: Callable[[Deployed], PushQuery],
    settings: Settings,
    there: Deployed,
    start: Start,
    limit: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
    served: Served | None = None,
    token: str | None = None,
) -> Following:
    """Begin a subscription; see `Following`. limit: of changes, beside that of the query. QueryError if nothing would ever come."""
    query = anew(there)
    refuse_silence(there, start)
    limits = [n for n in (limit, query.limit) if n is not None]
    return Following(query, settings, there, start, anew, min(limits, default=None), stopped, served, token)


def rebuilt(recorded: Recorded, before: Plan, topic: str, stopped: Callable[[], bool]) -> Deployed | None:
    """The plan that serves after the swap that has replaced the records of a topic; the writers are the same if no rebuild of the topic has
    been seen for `_RETENTION_S`. None if it takes too long, no instance runs, or it was asked to stop.

    On Kafka new records are there some seconds before they serve.
    """
    was = _writers(before, topic)
    limit = (busy := time.monotonic()) + _SWAP_S
    while (now := time.monotonic()) < limit and not stopped() and (seen := recorded()) is not None:
        record, topics = seen
        is_built = any(q.topic == topic and q.id not in record.held for q in record.building)
        quiet = record.swap is None and not is_built
        busy = busy if quiet else now
        other = _writers(record.serving, topic) != was
        if (other and record.swap is None) or (quiet and now - busy >= (_RETENTION_S if was else 0)):
            return Deployed(record.serving, topics, live=True)
        time.sleep(_WAIT_S)
    return None


def _writers(plan: Plan, topic: str) -> set[tuple[str, int]]:
    return {(q.id, q.generation) for q in plan.queries if q.topic == topic}


def refuse_silence(found: Deployed, start: Start) -> None:
    """QueryError if no instance runs and only new records are asked for: none would ever come."""
    if not found.live and start == "latest":
        title = "no instance is running, so nothing new will come"
        raise QueryError(title, code=SILENT, help="flowql deploy   # or read existing records:  --from earliest")

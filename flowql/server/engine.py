"""The engine of a target as servers and commands see it, running or at rest. `choice` selects it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flowql.compiler.plan.deployed import AS_BEFORE, DEPLOY, About, Deployed, Entry, Hold
from flowql.compiler.plan.diff import QueryChange
from flowql.compiler.plan.topology import Plan
from flowql.deploy.extents import Extent

if TYPE_CHECKING:  # they load DuckDB and the engine, which most commands do not need
    from flowql.query.committed import Commit, Take
    from flowql.query.database import QueryDatabase
    from flowql.runtime.app.beat_file import BeatFile
    from flowql.runtime.app.member_topic import MemberAddress
    from flowql.runtime.log.appending import Redelivery
    from flowql.runtime.log.base import TopicPartition

# continuous: until stopped. caught up: until what there is now is processed. bounded: all of it once, as a batch.
Mode = Literal["continuous", "caught up", "bounded"]


class Engine(Protocol):
    """A live engine. Calls block and come from any thread but the engine's own."""

    @property
    def plan(self) -> Plan:
        """The serving plan, which interactive queries read."""
        ...

    @property
    def deployed(self) -> Deployed:
        """The recorded deployment: the serving plan, and the requested one."""
        ...

    @property
    def fatal(self) -> BaseException | None:
        """Why nothing is processed any more."""
        ...

    @property
    def commits(self) -> int:
        """How many there were since it was opened."""
        ...

    @property
    def blocked(self) -> str | None:
        """Why commits do not get through just now."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other instances have partitions of the same application."""
        ...

    def join(self, member: MemberAddress) -> None:
        """Tell those others where this one answers for its partitions, until it stops."""
        ...

    def start(self, beats: BeatFile | None = None) -> None:
        """Go on with what was deployed when it last ran. beats: where it notes what it begins."""
        ...

    def deploy(
        self,
        plan: Plan,
        *,
        rebuild: bool = False,
        refresh: Collection[str] = (),
        forward: Collection[str] = (),
        seen: Deployed | None = None,
        about: About = DEPLOY,
        swap: Hold = AS_BEFORE,
        backfills: Collection[str] = (),
        dry_run: bool = False,
    ) -> Sequence[QueryChange]:
        """Deploy `plan`. rebuild: discard state that no longer fits, and recompute its queries.

        refresh: ids of queries to rebuild although nothing changed. forward: of queries of which nothing is to be rebuilt. seen: the
        record that this was decided on; raises Superseded if it is not the newest any more. about: for the history. swap: what of it
        waits until it is promoted. backfills: folders with computed histories of refreshed queries. Raises HandoverUnfit.
        dry_run: change nothing, and raise what would be refused.
        """
        ...

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        """The ends of results as of one tick, so that views fit together; None if that will be known in a moment. Results that are far behind are left
        out. topics: only of these, as of the newest tick that they have in common; see `Ticks.whole_ends`.
        """
        ...

    def carry_out(self, plan: Plan) -> Mapping[str, int]:
        """The statements of a deployed plan that change rows, those that were not yet: rows changed, by table.

        Raises StatementFailed, TableBusy, LogError; a repetition goes on where it stopped.
        """
        ...

    def deployments(self) -> list[Entry]:
        """The last deployments, the newest last. CommandError where there is no history."""
        ...

    def diff(self, name: str, database: QueryDatabase) -> dict[str, Any]:
        """The public JSON of what differs between the serving and the built generation of a result. CommandError.

        database: where they are compared.
        """
        ...

    def catch_up(self) -> Callable[[], bool]:
        """Begin; what it gives tells whether everything there was at this call is processed and committed."""
        ...

    def topics(self) -> Mapping[str, int]:
        """Partitions of the topics there are."""
        ...

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        """How much there is in topics; nothing where the engine does not build a second generation beside the first. whole: see `extents_of`."""
        ...

    def free_bytes(self) -> int | None:
        """The free disk space for a second generation, in bytes; None if the results are elsewhere."""
        ...

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        """The public JSON of `status`. detail: what the endpoint for Prometheus tells beside it, where the engine knows."""
        ...

    def take(self, relations: Sequence[str]) -> Commit:
        """A commit for an interactive query over these relations; the caller closes its snapshot."""
        ...

    def newest(self, relation: str) -> Commit | None:
        """The commit to look up a relation in, without waiting for anything; None where rows may have to be fetched, or are on other instances."""
        ...

    def take_at(self, relations: Sequence[str], tick: int) -> Commit | None:
        """A member's rows of these relations as of a tick; None if it has not kept the tick."""
        ...

    def take_copied(self, relations: Sequence[str]) -> Commit:
        """As `take`, with a `StateCopy` as snapshot where one can be made."""
        ...

    def copied(self) -> Path | None:
        """A new copy of the state for another process, which deletes it; see `flowql.runtime.state.followed`. Returns None where the state cannot be followed."""
        ...

    @property
    def applied(self) -> int:
        """The number of the commit that interactive queries see, or a later one's."""
        ...

    def release_hung(self, ids: Sequence[str]) -> None:
        """Have queries tried again whose functions hung on some instance; of others nothing changes. RuntimeFailure."""
        ...

    def append(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        """Give records to queries once more; see `flowql.runtime.app.delivering`. RuntimeFailure, CommandError."""
        ...

    def pin(self) -> int:
        """Hold committed state and log still for a backup (`flowql.deploy.pins`); the commit of the state. CommandError if it cannot."""
        ...

    def stop(self) -> None:
        """Commit, end all threads and processes, release the directory."""
        ...


class AtRest(Protocol):
    """The directory of an engine that does not run."""

    def deployed(self) -> tuple[Deployed, Mapping[str, int]]:
        """The recorded deployment, and the number of partitions of each existing topic."""
        ...

    def refuse(self, plan: Plan, mode: Mode) -> None:
        """Raises what deploying `plan` without `rebuild` would raise for what is kept of its queries, as far as that is known before the engine starts."""
        ...

    def extents(self, topics: Collection[str], whole: Collection[str] = ()) -> Mapping[str, Extent]:
        """The extents of topics, as a live engine reports them. whole: see `extents_of`."""
        ...

    def free_bytes(self) -> int | None: ...

    def deployments(self) -> list[Entry]: ...

    def status(self) -> dict[str, Any]: ...

    def commits(self) -> AbstractContextManager[Take]:
        """Gives the last commit. Close its snapshot before the block ends."""
        ...

"""Restorations that begin with a checkpoint of the remote store instead of an empty task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.clock import Clock
from flowql.runtime.events import INFO, say
from flowql.runtime.log.base import Admin, Log, TopicPartition
from flowql.runtime.state.changelog import WrittenTasks, changelog_topic
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.positions import doubts
from flowql.runtime.state.remote.warm_start import FoundCheckpoint, WarmStarts


class CheckpointStarts:
    """Owned by the restoration thread, but for `look`. on_adopted: told of prefixes that have blocks elsewhere."""

    def __init__(
        self,
        warm: WarmStarts,
        log: Log,
        admin: Admin,
        state: StateManager,
        application_id: str,
        clock: Clock,
        on_adopted: Callable[[set[bytes]], None],
    ) -> None:
        self._warm, self._log, self._admin, self._state = warm, log, admin, state
        self._app, self._clock, self._on_adopted = application_id, clock, on_adopted
        self._written: WrittenTasks | None = None

    def look(self, task: str, record: TaskRecord, specs: Sequence[StoreSpec]) -> Future[FoundCheckpoint | None] | None:
        """Asks for a checkpoint of a task that is to be restored; None if the rows here have positions to go on from. Any thread."""
        here = self._state.positions_of([s.name for s in specs], record.partition)
        return None if len(here) == len(specs) else self._warm.look(task, record, specs)

    def adopt(self, task: str, found: FoundCheckpoint | None, specs: Sequence[StoreSpec], partition: int) -> None:
        """Makes the usable stores of a checkpoint the state here. LogUnavailable, StateError."""
        if found is None:
            return
        here = self._state.positions_of([s.name for s in specs], partition)
        wanted = {s.name: s for s in specs if (s.name, partition) not in here and s.name in found.stores}
        tps = {TopicPartition(changelog_topic(self._app, name), partition): name for name in wanted}
        positions = {tp: found.stores[name].position for tp, name in tps.items()}
        if self._written is None:
            self._written = WrittenTasks(self._log, self._app)
        self._written.read_on()
        now_ms = max(self._clock.wall_ms(), *self._written.committed_ms.values(), 0)
        doubted = doubts(self._admin, positions, sequences=self._written.sequences, now_ms=now_ms)
        for tp, doubt in doubted.items():
            say(INFO, "state.remote", f"the checkpoint of {tp} is not used: {doubt.reason}", task=task)
        names = [tps[tp] for tp in sorted(positions.keys() - doubted.keys())]
        for name in names:
            self._on_adopted({self._state.restored.adopt(wanted[name], partition, found.stores[name])})
        if names:
            say(INFO, "state.remote", f"{task} begins with {found.name}", task=task)

"""All stores and the metadata of one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.runtime.errors import StateError
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.locks import NamedLock
from flowql.runtime.state.task_store import TaskStore
from flowql.runtime.state.values import decode_metadata, encode_metadata

_EMPTY = encode_metadata({})
WITHDRAWN = -1  # seen by a task that has to start over although nothing was aborted


class BatchRevoked(StateError, code="FQ4011", retriable=True):
    """The epoch was aborted while this batch ran (or before it began, without `begin_again` since)."""


class AbortCount:
    """How many epochs were aborted: state that was read before an abort is not published after it. Written under the epoch lock."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class ManagedTask:
    """Implements `flowql.runtime.state.store.TaskState`.

    After an abort the task is made anew, or its owner calls `begin_again` and starts over from `metadata`; until then `publish`
    raises BatchRevoked, so that no batch computed on aborted state or positions gets in, whatever is discarded meanwhile.
    """

    def __init__(
        self,
        task_id: str,
        partition: int,
        stores: Sequence[TaskStore],
        committed: TaskRecord | None,
        epoch_lock: NamedLock,
        generation: AbortCount,
        on_published: Callable[[ManagedTask, int], None],
    ) -> None:
        self.id, self.partition = task_id, partition
        self.closing: list[Callable[[], None]] = []
        self.counts = True  # its rows take of the room for uncommitted ones; else their writer bounds them
        self.stores = {s.spec.name: s for s in stores}
        self._epoch_lock, self._generation, self._on_published = epoch_lock, generation, on_published
        self._seen = generation.number
        # Encoded, so that every reader gets its own copy and cannot change a published one.
        self._active: bytes | None = None
        self._frozen: bytes | None = None
        self._committed = _EMPTY if committed is None else committed.metadata

    def store(self, name: str) -> TaskStore:
        return self.stores[name]

    @property
    def metadata(self) -> dict[str, Any]:
        active = self._active  # top down, as in `TaskStore`
        frozen = self._frozen
        return decode_metadata(active or frozen or self._committed)

    @property
    def revoked(self) -> bool:
        """An abort happened since it was made, or began again: what this batch does, also an error it raises, means nothing."""
        return self._seen != self._generation.number

    def publish(self, metadata: dict[str, Any]) -> None:
        self._epoch_lock.assert_held()
        if self.revoked:
            raise BatchRevoked(f"the epoch in which task {self.id} ran was aborted")
        encoded = encode_metadata(metadata)
        self._on_published(self, sum(store.publish() for store in self.stores.values()))
        self._active = encoded

    def discard(self) -> None:
        for store in self.stores.values():
            store.discard()

    def begin_again(self) -> None:
        """Its owner knows of the abort, and goes on from `metadata` with nothing of what it had."""
        with self._epoch_lock.join():
            self.discard()
            self._seen = self._generation.number

    def close(self) -> None:
        """Calls all `closing` callbacks. The caller holds no lock."""
        while self.closing:
            self.closing.pop()()

    def freeze(self) -> bytes:
        """Active metadata becomes frozen. The epoch lock is held."""
        assert self._active is not None
        assert self._frozen is None, "one frozen epoch at a time"
        self._frozen, self._active = self._active, None
        return self._frozen

    def mark_applied(self) -> None:
        if self._frozen is not None:
            self._committed = self._frozen
            self._frozen = None
        for store in self.stores.values():
            store.mark_applied()

    def revoke(self) -> None:
        """Nothing more of it is published; what is goes at the next cut, by `withdraw`. The epoch lock is held."""
        self._seen = WITHDRAWN

    def withdraw(self) -> None:
        """Back to the last commit, this task alone; a batch under way will be refused. The epoch lock is held."""
        self.revert()
        self._seen = WITHDRAWN

    def revert(self) -> None:
        self._active = self._frozen = None
        for store in self.stores.values():
            store.revert()

    def reload(self) -> None:
        """The task was restored while it was open. The epoch lock is held."""
        assert not self.is_dirty, "a task does not run while it is restored"
        for store in self.stores.values():
            store.reload()

    @property
    def is_dirty(self) -> bool:
        return self._active is not None or self._frozen is not None

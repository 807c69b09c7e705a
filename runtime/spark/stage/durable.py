"""A task whose state outlives its batches in somebody's storage: opened, run, cut and written within one batch. No Spark here.

What this process wrote last is kept in memory as well. It is right only for the version it wrote: a batch that was given up, or
one that ran in another process since, left another version in the storage.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from flowql.runtime.errors import StateError
from flowql.runtime.spark.stage.envelope import Row
from flowql.runtime.spark.stage.pages import Changes, PagedRows, PageSource
from flowql.runtime.spark.stage.program import StageProgram
from flowql.runtime.spark.stage.state import GroupState

FORMAT = 1
HOT_BYTES_MAX = 64 << 20  # of pages per process
HOT_TASKS_MAX = 64

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str, bytes, bytes]).decode


class Head(NamedTuple):
    """The stored head of a task, beside its pages. version: a digest of how it came to be; metadata: the runtime's."""

    format: int
    task: str
    version: bytes
    metadata: bytes


class Storage(PageSource, Protocol):
    """Where one task's state is, as of the last batch that counts."""

    def head(self) -> bytes | None: ...

    def directory(self) -> bytes | None: ...

    def write(self, head: bytes, changes: Changes) -> None: ...


def decode_head(data: bytes) -> Head:
    """StateError for what another FlowQL wrote."""
    try:
        head = Head(*_decode(data))
    except msgspec.DecodeError as error:
        raise StateError(f"a task in the checkpoint cannot be read: {error}") from error
    if head.format != FORMAT:
        raise StateError(f"a task in the checkpoint has format {head.format}; this FlowQL reads {FORMAT}")
    return head


def run_durable(program: StageProgram, storage: Storage, rows: Sequence[Row]) -> Iterator[Row]:
    """One batch of a task: its rows, then its state is written. To be taken to the end."""
    before = storage.head()
    state = _open(program, storage, before)
    yield from program.run(state, rows)
    changes, metadata = state.cut()
    version = _version(b"" if before is None else decode_head(before).version, metadata, changes)
    storage.write(_encode(Head(FORMAT, str(program.id), version, metadata)), changes)
    _hot.put(program, version, state)


def stored_state(program: StageProgram, storage: Storage) -> GroupState:
    """The state as it is stored."""
    head = storage.head()
    pages = PagedRows(storage, storage.directory() if head is not None else None)
    metadata = None if head is None else decode_head(head).metadata
    return GroupState(str(program.id), program.id.partition, program.stores, pages, metadata)


def _version(before: bytes, metadata: bytes, changes: Changes) -> bytes:
    """A digest of everything the state came from: equal versions are equal states, whoever made them."""
    digest = hashlib.blake2b(before, digest_size=16)
    parts = [metadata, changes.directory or b"", *changes.written.values()]
    numbers = [len(changes.removed), *changes.removed, *changes.written, *map(len, parts)]
    for part in (repr(numbers).encode(), *parts):
        digest.update(part)
    return digest.digest()


def _open(program: StageProgram, storage: Storage, head: bytes | None) -> GroupState:
    state = None if head is None else _hot.take(program, decode_head(head).version)
    if state is None:
        return stored_state(program, storage)
    state.rows.source = storage
    return state


class _Hot:
    """States this process wrote last, by the program that runs them (which is one per process and task of a query)."""

    def __init__(self) -> None:
        self._states: OrderedDict[int, tuple[bytes, GroupState]] = OrderedDict()

    def take(self, program: StageProgram, version: bytes) -> GroupState | None:
        """The state, no longer kept here: a batch that fails half way must not leave it behind."""
        found = self._states.pop(id(program), None)
        return None if found is None or found[0] != version else found[1]

    def put(self, program: StageProgram, version: bytes, state: GroupState) -> None:
        self._states[id(program)] = (version, state)
        total = sum(s.rows.loaded_bytes for _, s in self._states.values())
        while self._states and (total > HOT_BYTES_MAX or len(self._states) > HOT_TASKS_MAX):
            _, (_, oldest) = self._states.popitem(last=False)
            total -= oldest.rows.loaded_bytes


_hot = _Hot()

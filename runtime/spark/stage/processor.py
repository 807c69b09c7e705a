"""The tasks of one level in a streaming query: a stateful processor whose keys are tasks and whose state is pages."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from flowql.runtime.errors import StateError
from flowql.runtime.spark.shapes import ENVELOPE, Row
from flowql.runtime.spark.stage.pages import Changes, PagedRows, PageSource
from flowql.runtime.spark.stage.program import GroupState, StageProgram, layout_from, program_from

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState

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
    """The state outlives its batches in a storage; what this process wrote last is in memory as well, and right only for the version it wrote.

    One batch of a task: its rows, then its state is written. To be taken to the end.
    """
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


HEAD, DIRECTORY, PAGES = "head", "directory", "pages"  # state variables

_make = SparkRow(*ENVELOPE.names)


class TaskProcessor(StatefulProcessor):
    """One group = one task; rows of other levels pass. Holds plain data, for it is pickled with the query."""

    def __init__(self, layout: str, level: int) -> None:
        self._layout, self._level = layout, level

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._storage = _SparkStorage(
            handle.getValueState(HEAD, "data binary"),
            handle.getValueState(DIRECTORY, "data binary"),
            handle.getMapState(PAGES, "page bigint", "data binary"),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[SparkRow]:
        here = set(layout_from(self._layout).groups(self._level))
        mine: list[Row] = []
        for r in rows:
            row = Row(r.target, r.kind, r.topic, r.partition, r.source, r.seq, bytes(r.ipc), r.next_offset)
            if (row.target, row.partition) in here:
                mine.append(row)
            else:
                yield _make(*row)
        if mine:
            task = mine[0].target, mine[0].partition
            assert all((r.target, r.partition) == task for r in mine), f"two tasks share the group {key}"
            for row in run_durable(program_from(self._layout, *task), self._storage, mine):
                yield _make(*row)


class _SparkStorage:
    """Implements `Storage` over the state variables of the group that is being processed."""

    def __init__(self, head: ValueState, directory: ValueState, pages: MapState) -> None:
        self._head, self._directory, self._pages = head, directory, pages

    def head(self) -> bytes | None:
        return _value(self._head.get())

    def directory(self) -> bytes | None:
        return _value(self._directory.get())

    def read(self, page: int) -> bytes:
        found = _value(self._pages.getValue((page,)))
        assert found is not None, f"page {page} is in the directory but not in the state store"
        return found

    def write(self, head: bytes, changes: Changes) -> None:
        for page in changes.removed:
            self._pages.removeKey((page,))
        for page, data in changes.written.items():
            self._pages.updateValue((page,), (data,))
        if changes.directory is not None:
            self._directory.update((changes.directory,))
        self._head.update((head,))


def _value(found: Any) -> bytes | None:
    return None if found is None else bytes(found[0])

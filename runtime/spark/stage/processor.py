"""The tasks of one level in a streaming query: a stateful processor whose keys are tasks and whose state is pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from flowql.runtime.spark.stage.durable import run_durable
from flowql.runtime.spark.stage.envelope import ENVELOPE, Row
from flowql.runtime.spark.stage.pages import Changes
from flowql.runtime.spark.stage.worker import layout_from, program_from

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState

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

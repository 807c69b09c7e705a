"""The stages of a query without Spark: the same functions that its workers call, chained by hand."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa

from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.spark.shapes import Row, from_ipc, read_rows
from flowql.runtime.spark.stage.layout import Layout
from flowql.runtime.spark.stage.pages import Changes
from flowql.runtime.spark.stage.processor import run_durable
from flowql.runtime.spark.stage.program import GroupedStage, StageProgram, begun, grouped


class DictStorage:
    """Implements `Storage`; counts what is read and written."""

    def __init__(self) -> None:
        self.values: dict[str, bytes | None] = {"head": None, "directory": None}
        self.pages: dict[int, bytes] = {}
        self.reads = self.writes = 0

    def head(self) -> bytes | None:
        return self.values["head"]

    def directory(self) -> bytes | None:
        return self.values["directory"]

    def read(self, page: int) -> bytes:
        self.reads += 1
        return self.pages[page]

    def write(self, head: bytes, changes: Changes) -> None:
        for page in changes.removed:
            self.pages.pop(page, None)
        self.pages.update(changes.written)
        self.writes += len(changes.written)
        self.values["head"] = head
        if changes.directory is not None:
            self.values["directory"] = changes.directory


class LocalStages:
    """Micro-batches of one query with state between them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.storages: dict[tuple[int, int], DictStorage] = {}
        self._programs: dict[tuple[int, int], StageProgram] = {}

    def batch(self, packed: Sequence[dict[str, Any]]) -> list[Row]:
        rows = [r for b in self.begun(packed) for r in read_rows(b)]
        for level in self.layout.grouped_levels():
            rows = self._level(level, rows)
        return rows

    def bounded(self, packed: Sequence[dict[str, Any]]) -> list[Row]:
        return self.grouped(self.begun(packed))

    def begun(self, packed: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
        """What is read: free sub-topologies run with it."""
        raws = []
        for r in packed:
            records = from_ipc(r["ipc"])
            raws.append(RawBatch(TopicPartition(r["topic"], r["partition"]), records, r["next_offset"], records.nbytes))
        return list(begun(self.layout.dumps(), raws))

    def grouped(self, batches: list[pa.RecordBatch]) -> list[Row]:
        """A bounded run over what was begun."""
        for level in self.layout.grouped_levels():
            batches = list(GroupedStage(self.layout.dumps(), level)(batches))
        return [r for b in batches for r in read_rows(b)]

    def restart(self) -> None:
        """What this process knows is gone, but for what is stored."""
        self._programs.clear()

    def abandon(self, packed: Sequence[dict[str, Any]]) -> None:
        """A batch that is processed to the end and does not count."""
        before = deepcopy(self.storages)
        self.batch(packed)
        self.storages = before

    def _level(self, level: int, rows: list[Row]) -> list[Row]:
        here = {sub for sub, _ in self.layout.groups(level)}
        out = [r for r in rows if r.target not in here]
        for task, mine in grouped(r for r in rows if r.target in here):
            program = self._programs.get(task)
            if program is None:
                program = self._programs[task] = StageProgram(self.layout, *task)
            out += run_durable(program, self.storages.setdefault(task, DictStorage()), mine)
        return out

"""Finds the checkpoint that a restoration begins with: the newest one in the remote store that can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.events import INFO, WARNING, say
from flowql.runtime.remote.objects import ObjectMissing, Objects
from flowql.runtime.state.layout import TaskRecord, entry_from_record, segment_length, store_key_codec, task_from_record
from flowql.runtime.state.positions import ChangelogPosition, position_from_record
from flowql.runtime.state.remote.manifest import (
    Manifest,
    Rows,
    RunObject,
    StoreSection,
    newest_manifests,
    read_manifest,
    rows_of,
    task_folder,
)
from flowql.runtime.state.runs.objects import RunPlace, Tail, read_tail

TRIED_MAX = 3  # manifests, from the newest on


@dataclass(frozen=True, slots=True)
class FoundStore:
    """One partition of a store in a checkpoint. runs: newest first, each with its name and the rows that make it one here."""

    section: StoreSection
    position: ChangelogPosition
    rows: Rows
    runs: Sequence[tuple[bytes, Tail, RunPlace]]


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """stores: by name, those that have a position."""

    name: str
    manifest: Manifest
    stores: Mapping[str, FoundStore]


class WarmStarts:
    """Looks for checkpoints, beside each other. Any thread."""

    def __init__(self, objects: Objects, application_id: str) -> None:
        self._objects, self._app = objects, application_id
        self.unreadable: set[str] = set()  # objects of which blocks were missing or damaged

    def look(self, task: str, record: TaskRecord, specs: Sequence[StoreSpec]) -> Future[FoundCheckpoint | None]:
        """record: of the task as the log has it; specs: of its stores. The future does not fail: a store that is away has nothing."""
        return self._objects.submit(self._find, task, record, {s.name: s for s in specs})

    def _find(self, task: str, record: TaskRecord, specs: Mapping[str, StoreSpec]) -> FoundCheckpoint | None:
        try:
            names = newest_manifests(self._objects, task_folder(self._app, task))[:TRIED_MAX]
        except Exception as error:  # whatever it is: the changelogs have everything
            say(WARNING, "state.remote", f"{task} is restored without its checkpoint: {error}", task=task)
            return None
        for name in names:
            try:
                found = self._read(name, record, specs)
            except Exception as error:  # as above
                say(WARNING, "state.remote", f"a checkpoint of {task} is not used: {error}", task=task)
                continue
            if found is not None:
                return found
        return None

    def _read(self, name: str, record: TaskRecord, specs: Mapping[str, StoreSpec]) -> FoundCheckpoint | None:
        """None if it is of another definition of the query. RemoteError, ObjectDamaged, ManifestUnreadable."""
        manifest = read_manifest(self._objects, name)
        if (bad := next((o for o in manifest.objects() if o in self.unreadable), None)) is not None:
            raise ObjectMissing(f"{name} needs {bad}, of which blocks could not be read")
        there = task_from_record(manifest.record)
        if there.partition != record.partition or there.read().get("query") != record.read().get("query"):
            return None
        stores: dict[str, FoundStore] = {}
        for section in manifest.stores:
            spec = specs.get(section.store)
            if spec is None or section.position is None:
                continue
            entry = entry_from_record(section.entry)
            same = (entry.spec.kind, entry.codec.types) == (spec.kind, store_key_codec(spec).types)
            if not same or entry.segment_ms != segment_length(spec):
                continue
            runs = [self._run(run) for run in section.runs]
            position = position_from_record(section.position)
            stores[section.store] = FoundStore(section, position, rows_of(self._objects, section), runs)
        say(
            INFO,
            "state.remote",
            f"{record.partition}: {name} has {manifest.stored_bytes() / 1e6:.1f} MB",
            task=manifest.task,
        )
        return FoundCheckpoint(name, manifest, stores)

    def _run(self, run: RunObject) -> tuple[bytes, Tail, RunPlace]:
        tail = read_tail(self._objects.url, run.name, run.size, run.tail_bytes)
        return run.run, tail, RunPlace(self._objects.url, run.name, tail.sizes, tail.checksums)

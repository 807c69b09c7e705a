"""Lists the checkpoints of an application's tasks, and checks whether they are whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.remote.objects import ObjectInfo, Objects
from flowql.runtime.state.remote.manifest import (
    Manifest,
    StoreSection,
    application_folder,
    kind_of,
    newest_manifests,
    read_manifest,
    rows_of,
    task_of,
)
from flowql.runtime.state.runs.objects import RemoteBlocks, RunPlace, read_tail

READ_BLOCKS = 1_024  # about 8 MB


@dataclass(frozen=True, slots=True)
class StoredTask:
    """task: its name. folder: where its objects are. modified_ms: of the newest one, by the store's clock.

    newest: None if no manifest can be read; problem: why.
    """

    task: str
    folder: str
    objects: int
    size: int
    modified_ms: int
    newest: Manifest | None
    problem: str = ""


def stored_tasks(objects: Objects, application_id: str) -> list[StoredTask]:
    """By name. RemoteError."""
    found: dict[str, list[ObjectInfo]] = {}
    for each in objects.list(application_folder(application_id)):
        if kind_of(each.name) == "terms":  # the first thing of a task, before there is anything to tell
            continue
        found.setdefault(each.name.rpartition("/")[0].rpartition("/")[0], []).append(each)
    return [_stored(objects, folder, of) for folder, of in sorted(found.items())]


def _stored(objects: Objects, folder: str, of: Sequence[ObjectInfo]) -> StoredTask:
    newest, problem = None, "no manifest"
    for name in newest_manifests(objects, folder)[:1]:
        try:
            newest, problem = read_manifest(objects, name), ""
        except RuntimeFailure as error:
            problem = str(error)
    size, modified_ms = sum(o.size for o in of), max(o.modified_ms for o in of)
    return StoredTask(unquote(task_of(folder)), folder, len(of), size, modified_ms, newest, problem)


def problems(objects: Objects, manifest: Manifest) -> Iterator[str]:
    """A sentence for each object of a checkpoint that is not as it was written. Reads every byte."""
    for section in manifest.stores:
        try:
            rows_of(objects, section)
        except RuntimeFailure as error:
            yield str(error)
        yield from _of_runs(objects, section)


def _of_runs(objects: Objects, section: StoreSection) -> Iterator[str]:
    for run in section.runs:
        try:
            tail = read_tail(objects.url, run.name, run.size, run.tail_bytes)
            blocks = RemoteBlocks(RunPlace(objects.url, run.name, tail.sizes, tail.checksums))
            for begin in range(0, len(blocks), READ_BLOCKS):
                blocks.submit(range(begin, min(len(blocks), begin + READ_BLOCKS))).result()
        except RuntimeFailure as error:
            yield str(error)

"""Lists the checkpoints of an application's tasks, and checks whether they are whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.remote.objects import Objects
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
    """task: its name. folder: where its objects are. newest: None if no manifest can be read; problem: why."""

    task: str
    folder: str
    objects: int
    size: int
    newest: Manifest | None
    problem: str = ""


def stored_tasks(objects: Objects, application_id: str) -> list[StoredTask]:
    """By name. RemoteError."""
    sizes: dict[str, list[int]] = {}
    for found in objects.list(application_folder(application_id)):
        if kind_of(found.name) == "terms":  # the first thing of a task, before there is anything to tell
            continue
        sizes.setdefault(found.name.rpartition("/")[0].rpartition("/")[0], []).append(found.size)
    return [_stored(objects, folder, of) for folder, of in sorted(sizes.items())]


def _stored(objects: Objects, folder: str, sizes: Sequence[int]) -> StoredTask:
    task, problem = unquote(task_of(folder)), "no manifest"
    for name in newest_manifests(objects, folder)[:1]:
        try:
            return StoredTask(task, folder, len(sizes), sum(sizes), read_manifest(objects, name))
        except RuntimeFailure as error:
            problem = str(error)
    return StoredTask(task, folder, len(sizes), sum(sizes), None, problem)


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

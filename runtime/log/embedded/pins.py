"""Pinned logs: a directory of hard links to the files of a log as of one commit, with a commit log of its own that names them.

Retention, compaction, trimmed redo and deleted topics remove names of files; a pinned log keeps its own. The links share their
bytes with the live log, which goes on writing behind the committed lengths. So a pinned log is to be read, up to the lengths of
`pinned_files`, and never to be appended to; deleting it frees what the live log has removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from flowql.runtime.errors import LogCorrupt
from flowql.runtime.log.embedded.journal import Journal, find_generations, journal_path
from flowql.runtime.log.embedded.ledger import Ledger
from flowql.runtime.log.embedded.named import Named, held_still, named_files
from flowql.runtime.log.embedded.state import LogState
from flowql.runtime.log.files import Files, size_of


def pin(files: Files, ledger: Ledger, into: str) -> None:
    """Pin the newest commit in the new directory `into`, on the file system of the log.

    The append lock is held while links are made, about 10 us per file; no data is copied.
    """
    with ledger.appending():
        with ledger.lock:
            image = ledger.state.snapshot()
            named = list(named_files(ledger.state, ledger.directory))
            folders = topic_folders(ledger.state)
        files.makedirs(f"{into}/topics")
        for folder in folders:
            files.makedirs(f"{into}/{_relative(folder, ledger.directory)}")
        for each in named:
            _link(files, each, f"{into}/{_relative(each.path, ledger.directory)}")
    with ledger.errors():
        Journal.create(files, into, 0, image).close()


def pinned_files(files: Files, directory: str) -> list[Named]:
    """All files of a pinned log with their committed lengths. LogCorrupt if one is shorter."""
    with held_still(files, directory) as state:
        assert state is not None, "a pinned log has a commit log"
        (generation,) = find_generations(files, directory)
        journal = journal_path(directory, generation)
        return [Named(journal, size_of(files, journal)), *_sized(files, named_files(state, directory))]


def pinned_folders(files: Files, directory: str) -> list[str]:
    """Directories that the log needs, also where they are empty."""
    with held_still(files, directory) as state:
        assert state is not None, "a pinned log has a commit log"
        return [f"{directory}/topics", *topic_folders(state)]


def topic_folders(state: LogState) -> list[str]:
    return [topic.partitions[0].directory for topic in state.topics.values()]


def _link(files: Files, named: Named, target: str) -> None:
    try:
        files.link(named.path, target)
    except FileNotFoundError as error:
        if named.required:
            msg = f"{named.path} is missing, but {named.length} bytes of it are committed"
            raise LogCorrupt(msg) from error


def _sized(files: Files, named: Iterator[Named]) -> Iterator[Named]:
    for each in named:
        size = -1
        with suppress(FileNotFoundError):
            size = size_of(files, each.path)
        if each.required and size < each.length:
            raise LogCorrupt(f"{each.path} has {size} bytes, but {each.length} are committed")
        if size >= 0:
            yield Named(each.path, min(size, each.length), each.required)


def _relative(path: str, directory: str) -> str:
    return os.path.relpath(path, directory)

"""The commit log and what it says, kept in step: reading other processes' records, writing our own, recovery.

A record is written under the append lock (one flock for all processes) and applied in memory once it is durable. State
and position in the commit log change together under `lock`, so readers see a record wholly or not at all.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence

from flowql.runtime.errors import LogCorrupt, LogError, LogFull, LogIOError, remedy_when_full
from flowql.runtime.log.embedded.journal import Journal, check_none_lost, journal_path
from flowql.runtime.log.embedded.records import Record
from flowql.runtime.log.embedded.segment import SegmentFiles, is_full
from flowql.runtime.log.embedded.state import LogState, Partition, Topic
from flowql.runtime.log.embedded.writer import redo_path
from flowql.runtime.log.files import Files

# The commit log is replaced by a snapshot when it has grown by this much, or by a multiple of its snapshot if that is
# more: opening reads at most so many bytes (some thousand records), and snapshots cost a bounded share of all writes.
ROLL_BYTES = 1 << 20
_ROLL_SNAPSHOTS = 4
OWNERS = "owners"  # the folder of the locks of topics
COMPACTION_LOCK = "compaction.lock"  # of the process that compacts
REDO = "redo"


class Ledger:
    """Opens or makes the log in a directory. Safe for many threads and many processes.

    Locks, in the order they are taken: the flocks of topics (`owning`, by name), `_append` (this process's writers of the commit
    log), the flock on `append.lock` (those of all processes), `lock` (state and journal position). Readers take `lock` only,
    and no writer does I/O that may take long while holding it. Under `append.lock` only the commit log is written.
    """

    def __init__(self, files: Files, directory: str, *, damaged: bool = False) -> None:
        """damaged: open it also where committed bytes of segments are missing."""
        self.directory = directory
        self.lock = threading.RLock()
        self.state = LogState(self.topics_directory)
        self.segments = SegmentFiles(files)
        self._files = files
        self._append = threading.Lock()
        self._superseded: list[str] = []  # segments to be removed once `append.lock` is free; under `_append`
        self._committing = False  # a frame is in the commit log that is not applied yet
        self._foreign_frames = False  # read but perhaps not durable
        self._tidied = False
        self._owned_generation = -1  # of the commit log; its name is durable and older ones are gone
        self._failure: str | None = None
        self._open_or_create(damaged=damaged)

    @property
    def topics_directory(self) -> str:
        return f"{self.directory}/topics"

    def refresh(self) -> object:
        """See what other processes have committed; how far the commit log is read. One cheap system call if there is nothing new."""
        with self.lock:
            self.check_usable()
            with self.errors():
                if not self._committing and self._journal.has_new():
                    self._read_journal(locked=False)
            return self._journal.generation, self._journal.end

    @contextlib.contextmanager
    def owning(self, names: Iterable[str]) -> Iterator[None]:
        """Makes this process the only owner of the named objects: topic directories, `REDO`. Enter it before `appending`, never within.

        No other process appends to these topics, removes segments of them or deletes them, so they may be written while other
        processes commit to other topics.
        """
        with contextlib.ExitStack() as held, self.errors():
            self.check_usable()
            for name in sorted(set(names)):
                lock = self._files.lock(self._lock_path(name), wait=True)
                assert lock is not None
                held.callback(lock.release)
            self._check_in_place()
            if self._journal.is_in_doubt:  # what it names may lie where these would be written to
                with self.appending():
                    pass
            yield

    def _lock_path(self, name: str) -> str:
        return f"{self.directory}/{OWNERS}/{name}.lock"

    def forget_owner(self, name: str) -> None:
        """Removes the lock of a deleted topic. Processes that wait for it then find that the topic is gone."""
        self._files.unlink(self._lock_path(name))

    @contextlib.contextmanager
    def appending(self) -> Iterator[None]:
        """Sole writer of the commit log, of all processes, with everything applied that others have committed."""
        superseded: list[str] = []
        with self.errors():
            try:
                with self._append:
                    self._superseded = superseded
                    with self._append_lock():
                        yield
            finally:  # others need not wait for it: a system takes long to remove large files
                for path in superseded:
                    self.segments.remove(path)

    @contextlib.contextmanager
    def _append_lock(self) -> Iterator[None]:
        self.check_usable()
        lock = self._files.lock(f"{self.directory}/append.lock", wait=True)
        assert lock is not None
        try:
            self._check_in_place()
            self._catch_up()
            before = self._journal.end
            yield
            if self._journal.end != before:
                # It is committed, whatever becomes of the mark: without one, damage at the end counts as a crash.
                with contextlib.suppress(OSError):
                    lock.write(self._journal.mark)
            self._roll_if_long()
        finally:
            lock.release()

    def write(self, record: Record) -> None:
        """Commit a record and apply it. Caller is in `appending`. After an OSError it is not in the commit log; after InDoubt it may
        be, which comes to light before anything else is written. Until then readers do without.
        """
        with self.lock:
            self._committing = True
        try:
            written = self._journal.append(record)
            with self.lock:
                self._journal.advance(written)
                self.state.apply(record)
        finally:
            self._committing = self._journal.is_in_doubt

    @contextlib.contextmanager
    def removing(self, partitions: Sequence[Partition]) -> Iterator[None]:
        """Within, a record makes segments of the partitions superfluous: their files go after it, never before.

        Caller is in `appending`, at whose end they are removed.
        """
        before = {s.path for p in partitions for s in p.segments}
        yield
        self._superseded += sorted(before - {s.path for p in partitions for s in p.segments})

    def close(self) -> None:
        with self._append, self.lock:
            self._failure = "it was closed"
            self.segments.close()
            self._journal.close()

    def check_usable(self) -> None:
        if self._failure is not None:
            raise LogError(f"the log in {self.directory} cannot be used: {self._failure}")

    def _check_in_place(self) -> None:
        """LogError if the directory was replaced since it was opened: its commit log here is that of the former one.

        Caller holds a lock there, for which a restore waits.
        """
        if self._files.identity(self.directory) != self._identity:
            self._failure = "the directory was replaced, by a restore for example, and what is written now would damage the new log: open it again"
            self.check_usable()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """OSErrors as errors of the log."""
        try:
            yield
        except OSError as e:
            if is_full(e):
                said = f"no space left for the log in {self.directory}: {e}"
                raise LogFull(f"{said}; {remedy_when_full(str(e))}") from e
            raise LogIOError(f"the log in {self.directory} cannot be read or written: {e}") from e

    def _open_or_create(self, *, damaged: bool) -> None:
        with self.errors():
            self._files.makedirs(self.directory)
            self._files.makedirs(self.topics_directory)
            self._files.makedirs(f"{self.directory}/{OWNERS}")
            self._identity = self._files.identity(self.directory)
            journal = Journal.open(self._files, self.directory)
            if journal is None:
                lock = self._files.lock(f"{self.directory}/append.lock", wait=True)
                assert lock is not None
                try:
                    journal = Journal.open(self._files, self.directory) or self._create_journal()
                finally:
                    lock.release()
            self._journal = journal
            self._read_journal(locked=False)
            self._check_mark()
            if self._journal.has_new():  # the remainder of a crash, or a writer at work
                with self.appending():
                    pass
            try:
                self._check_lengths()
            except LogCorrupt:
                if not damaged:
                    with self.appending():  # a topic may have been deleted meanwhile: look again without a writer
                        self._check_lengths()

    def _check_mark(self) -> None:
        """LogCorrupt if the commit log ends before what was committed, or lacks its snapshot."""
        path = f"{self.directory}/append.lock"
        if self._journal.snapshot_end and not self._files.exists(path):
            return
        if not self._journal.snapshot_end:
            raise LogCorrupt(f"{journal_path(self.directory, self._journal.generation)}: the first record is damaged")
        file = self._files.open(path)
        try:
            mark = file.pread(0, 200)
        finally:
            file.close()
        with self.lock:  # others may have written since it was read here
            self._read_journal(locked=False)
        self._journal.check_mark(mark)

    def _check_lengths(self) -> None:
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                if partition.segments and not partition.is_cut_off(partition.segments[-1]):
                    self.segments.check_length(partition.segments[-1])

    def _create_journal(self) -> Journal:
        check_none_lost(self._files, self.directory)
        self._files.fsync_dir(os.path.dirname(self.directory))
        self._files.fsync_dir(self.directory)
        return Journal.create(self._files, self.directory, 0, self.state.snapshot())

    def _read_journal(self, *, locked: bool) -> None:
        """Apply what is new in the commit log. Caller holds `lock`, except at opening."""
        while True:
            records = self._journal.read(locked=locked)
            for record in records:
                self.state.apply(record)
                self._foreign_frames = True
            if self._journal.is_current():
                return
            newer = Journal.open(self._files, self.directory)
            if newer is None:
                raise LogCorrupt(f"{self.directory} has lost its commit log")
            self._journal.close()
            self._journal = newer

    def _catch_up(self) -> None:
        self._journal.resolve()
        with self.lock:
            self._committing = False
            self._read_journal(locked=True)
        self._journal.cut_tail()
        if self._foreign_frames:
            # Their writer may have died before its fsync. A frame of ours must not be durable before them.
            self._journal.fsync()
            self._foreign_frames = False
        if self._journal.generation != self._owned_generation:
            self._files.fsync_dir(self.directory)  # or before it made the name of this generation durable
            self._journal.remove_older()
            self._owned_generation = self._journal.generation
        if not self._tidied:
            with self._unless_taken(COMPACTION_LOCK) as free:  # what a compaction writes no record names before its end
                if free:
                    self._tidy()
                    self._tidied = True

    def _roll_if_long(self) -> None:
        """Start a new generation of the commit log when this one takes long to read. Without space it grows on."""
        journal = self._journal
        if journal.end - journal.snapshot_end <= max(ROLL_BYTES, _ROLL_SNAPSHOTS * journal.snapshot_end):
            return
        try:
            with self.lock:
                for topic in self.state.topics.values():
                    for partition in topic.partitions:
                        for segment in partition.segments:
                            self.segments.write_index(segment)
            newer = Journal.create(self._files, self.directory, journal.generation + 1, self.state.snapshot())
        except OSError as e:
            if not is_full(e):
                raise
            return
        with self.lock:
            self._journal = newer
            self._owned_generation = newer.generation
        journal.close()
        newer.remove_older()

    def _tidy(self) -> None:
        """Remove files that crashes or other processes left and no record names, unless another process is writing them."""
        with self._owning_if_free(REDO) as free:
            keep = {os.path.basename(redo_path(self.directory, n)) for n in self.state.redo_files()}
            for name in self._files.listdir(self.directory):
                if free and name.startswith("redo-") and name not in keep:
                    self._files.unlink(f"{self.directory}/{name}")
        known = {os.path.basename(t.partitions[0].directory): t for t in self.state.topics.values()}
        for name in self._files.listdir(self.topics_directory):
            with self._owning_if_free(name) as free:
                if free:
                    self._tidy_topic(f"{self.topics_directory}/{name}", known.get(name))
            if free and name not in known:
                self.forget_owner(name)

    def _tidy_topic(self, directory: str, topic: Topic | None) -> None:
        segments = [s.path for p in topic.partitions for s in p.segments] if topic is not None else []
        keep = {os.path.basename(path).rpartition(".")[0] for path in segments}
        for file in self._files.listdir(directory):
            if file.rpartition(".")[0] not in keep:
                self._files.unlink(f"{directory}/{file}")
        if topic is None:
            self._files.rmdir(directory)

    @contextlib.contextmanager
    def _owning_if_free(self, name: str) -> Iterator[bool]:
        """Owns the named object within the block if it has no owner; yields whether it does. It never waits, so it may be entered within `appending`."""
        with self._unless_taken(f"{OWNERS}/{name}.lock") as free:
            yield free

    @contextlib.contextmanager
    def _unless_taken(self, name: str) -> Iterator[bool]:
        lock = self._files.lock(f"{self.directory}/{name}", wait=False)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.release()


@contextlib.contextmanager
def writers_shut_out(files: Files, directory: str) -> Iterator[None]:
    """Within, no process writes to the log in a directory, so that it can be replaced. Waits for commits under way; takes the locks in their order."""
    with contextlib.ExitStack() as held:
        while True:
            names = files.listdir(f"{directory}/topics")
            for path in [
                *(f"{directory}/{OWNERS}/{n}.lock" for n in sorted({*names, REDO})),
                f"{directory}/append.lock",
            ]:
                lock = files.lock(path, wait=True)
                assert lock is not None
                held.callback(lock.release)
            if files.listdir(f"{directory}/topics") == names:
                break
            held.pop_all().close()  # a topic was made meanwhile
        yield

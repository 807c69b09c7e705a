"""The step of the thread `remote` on the embedded log: backups of log and state into an object store, all the time.

Each round holds the log still by hard links, uploads what is new of it, and writes a manifest. State is copied again when the log no longer has all
redo after the copy before. An error of the store changes nothing for the instance: the next round uploads what this one did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from flowql.runtime.backup.collecting import Collector
from flowql.runtime.backup.continuing import Known, Note, read_note, write_note
from flowql.runtime.backup.manifest import FileEntry, Manifest, ManifestDamaged, ManifestUnreadable, encode_manifest
from flowql.runtime.backup.pieces import PieceUploads
from flowql.runtime.backup.pinned import UPLOAD, Held, held, pin, pinned_log, unpin
from flowql.runtime.backup.place import Place
from flowql.runtime.clock import Clock, iso_time
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.events import ERROR, WARNING, say
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.remote.objects import Objects, RemoteError
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.remote.pace import Outage, Pace, Walk, awaited

INTERVAL_MS = 10_000  # between the beginnings of two rounds
COLLECT_MS = 600_000
OTHER_HISTORY = "FQ5707"
UNANSWERED_MAX = 8  # puts of manifests whose fate is unknown; one that was given up arrives within seconds or never
LAST_S = 10  # for the last round of an instance that stops


class OtherHistory(RuntimeFailure):
    """The store has backups that this directory does not go on from, or another process goes on from there. Uploads end."""

    code = OTHER_HISTORY


class InstanceUploads:
    """A step. deployed_ms: when the plan was deployed. queries: names of those that run."""

    def __init__(
        self,
        open_objects: Callable[[], Objects],
        data_dir: Path,
        log: EmbeddedLog,
        state: StateManager,
        application_id: str,
        clock: Clock,
        deployed_ms: Callable[[], int | None],
        queries: Callable[[], Iterable[str]],
    ) -> None:
        self._open, self._data_dir, self._log, self._state = open_objects, data_dir, log, state
        self._app, self._clock, self._deployed_ms, self._queries = application_id, clock, deployed_ms, queries
        self._place: Place | None = None
        self._uploads: PieceUploads | None = None
        self._collector: Collector | None = None
        self._round: Iterator[int] | None = None
        self._walk: Walk[None] | None = None  # the round, on threads of the store
        self._step: Future[tuple[int | None, int]] | None = None  # of the round
        self._pace, self.outage = Pace(clock), Outage("backups of the instance")
        self._number = 0  # of the last manifest of this term
        self._state_files: Sequence[FileEntry] = ()
        self._state_commit = -1  # of the copied state; -1: none
        self._unlogged = -1  # as of the copied state: see `Manifest`
        self._seen: object = None  # how far the log had come at the last manifest
        self._note = Note()
        self._collect_ms = 0
        self._given_up = ""  # why
        self._newest: Manifest | None = None
        self._newest_ms = 0  # wall clock of the newest manifest
        self.manifests = 0  # since the start
        self._waiting = self._next_ms = self._copied_commit = 0

    # -- the step

    def run_once(self, now_ms: int) -> int:
        if self._given_up:
            return INTERVAL_MS
        if self._walk is None and (wait_ms := max(self._next_ms, self.outage.until_ms) - now_ms) > 0:
            return wait_ms
        try:
            if self._walk is None:
                self._place = self._place or Place(self._open(), self._app)
                self._round = self._backup_round(now_ms)
                self._walk = self._elsewhere(self._place.objects, self._round)
            wait = self._pace.advance(self._walk, now_ms)
        except OtherHistory as error:
            self._given_up, self._walk, self._step = str(error), None, None
            say(ERROR, "state.remote", str(error), code=error.code)
            return INTERVAL_MS
        except (RuntimeFailure, OSError) as error:
            self._walk, self._step, self._next_ms = None, None, 0
            return self.outage.goes_on(error, now_ms)
        if wait is None:
            self._walk = None
            return 0
        return wait

    def _elsewhere(self, objects: Objects, walk: Iterator[int]) -> Walk[None]:
        """Steps call the store and wait for it, so they run on its threads; one may take a minute."""
        while True:
            self._step = objects.submit(self._advance, walk)
            moved, spent_ns = yield from awaited(self._step)
            self._step = None
            self._pace.spent_ns += spent_ns
            if moved is None:
                return
            self._pace.moved += moved
            yield

    def _advance(self, walk: Iterator[int]) -> tuple[int | None, int]:
        """Bytes that were moved, None at the end; and the processor time that it took, in ns."""
        begin_ns = self._clock.cpu_ns()
        moved = next(walk, None)
        return moved, self._clock.cpu_ns() - begin_ns

    def finish(self) -> None:
        """Uploads the last commits of an instance that stops, for at most `LAST_S`. After the thread of this step has ended."""
        if self._given_up or self.outage.reason:
            return
        until_ms = self._clock.timer_ms() + LAST_S * 1000
        try:
            self._place = self._place or Place(self._open(), self._app)
            if self._step is not None:  # of a round that may be older than the last commit
                self._step.result(LAST_S)
                self._step = None
            for walk in (self._round or iter(()), self._backup_round(self._clock.timer_ms())):
                more: int | None = 0
                while more is not None and (left_ms := until_ms - self._clock.timer_ms()) > 0:
                    more, _ = self._place.objects.submit(self._advance, walk).result(left_ms / 1000)
        except (RuntimeFailure, OSError, TimeoutError) as error:
            say(WARNING, "state.remote", f"the last commits are not uploaded: {error or 'no time is left'}")
        self._walk = self._round = None

    def close(self) -> None:
        """After the thread of this step has ended."""
        if self._step is not None:
            self._step.cancel()
        unpin(self._data_dir, UPLOAD)

    # -- a round

    def _backup_round(self, now_ms: int) -> Iterator[int]:
        self._next_ms = now_ms + INTERVAL_MS
        at_ms, seen = self._clock.wall_ms(), self._log.refresh()
        if self._uploads is None:
            yield from self._begin()
        yield from self._check_term()
        if seen != self._seen and self._log.topics():
            yield from self._backup(at_ms)
            self._seen = seen
        if now_ms >= self._collect_ms:
            self._collect_ms = now_ms + COLLECT_MS
            assert self._collector is not None
            for _ in self._collector.collect(now_ms):
                yield 0
        self.outage.ends()

    def _begin(self) -> Iterator[int]:
        """Learns what the store has, and takes a term. OtherHistory."""
        assert self._place is not None
        place = self._place
        manifests = place.manifests()
        yield 0
        own = read_note(self._data_dir)
        newest = next((m for m in manifests if m.by == "instance"), None)
        if newest is not None and Known.of(newest.object, place.objects.get(newest.object)) not in (
            *own.bases,
            *own.over,
        ):
            raise OtherHistory(
                f"{place.url} has backups of {self._app} that this directory does not go on from, up to {newest.object}: nothing is uploaded; "
                f"stop the instance, then  flowql restore --from {place.url} --replace, or name another URL in `state: {{remote: ...}}`"
            )
        yield 0
        uploads = PieceUploads(place.objects, place.folder, 0)
        self._note = own
        base = next((m for m in manifests if m.object in {known.object for known in own.bases}), None)
        with suppress(ManifestDamaged, ManifestUnreadable):  # then everything is uploaded again
            if base is not None:
                manifest, known = place.read(base)
                if known in own.bases:
                    uploads.learn(manifest, same=self._same)
                    self._newest, self._state_commit = manifest, manifest.state_commit
                    self._unlogged = manifest.unlogged
                    self._newest_ms = int(datetime.fromisoformat(manifest.taken_at).timestamp() * 1000)
                    self._state_files = [f for f in manifest.files if f.path.startswith("state/")]
        yield 0
        self._uploads, self._collector = uploads, Collector(place)

    def _same(self, path: str) -> str | None:
        local = self._data_dir / path
        return str(local) if path.startswith("log/") and path.endswith((".arrows", ".bin")) and local.exists() else None

    def _check_term(self) -> Iterator[int]:
        """Takes a term at the beginning, and the next one after a command has written a backup there. OtherHistory."""
        assert self._place is not None
        assert self._uploads is not None
        later = self._place.later(self._uploads.term) if self._uploads.term else ["command"]
        yield 0
        if "instance" in later:
            raise OtherHistory(
                f"another instance of {self._app} has taken over the uploads to {self._place.url}. This one uploads nothing more: stop one of them"
            )
        if later:
            self._uploads.term, self._number = self._place.take_term("instance"), 0
            yield 0

    def _backup(self, at_ms: int) -> Iterator[int]:
        assert self._uploads is not None
        try:
            files = self._hold()
            sources = [*files.log, *files.state]
            self._waiting = self._uploads.waiting(sources)
            yield 0
            for source in sources:
                for moved in self._uploads.upload(source):
                    self._waiting = max(0, self._waiting - moved)
                    yield moved
            entries = [self._uploads.entry(s) for s in files.log]
            if files.state:
                self._state_files = [self._uploads.entry(s) for s in files.state]
        finally:
            unpin(self._data_dir, UPLOAD)
        self._waiting = 0
        yield from self._write(self._manifest(files, entries, at_ms))
        self._newest_ms = at_ms
        self._uploads.keep_only([s.path for s in files.log] + [f.path for f in self._state_files])

    def _hold(self) -> Held:
        """The log, and the state if the log has not all redo after the last copy of it, or rows were written since that are in no redo."""
        unpin(self._data_dir, UPLOAD)
        self._log.pin(pinned_log(self._data_dir, UPLOAD))
        found = held(self._data_dir, self._app, UPLOAD)
        is_logged = self._state.unlogged() == self._unlogged
        if is_logged and self._state_commit >= 0 and found.redo_lost <= self._state_commit <= found.commit:
            return found
        unpin(self._data_dir, UPLOAD)
        self._state_commit = -1  # until all of the copy is there
        unlogged = self._state.unlogged()  # before the copy: what comes in between makes another one
        commit = pin(self._data_dir, self._log, self._state, UPLOAD)
        found = held(self._data_dir, self._app, UPLOAD)
        assert found.redo_lost <= commit <= found.commit, "the log keeps the redo of what is not applied"
        self._copied_commit, self._unlogged = commit, unlogged
        return found

    def _manifest(self, files: Held, log: Sequence[FileEntry], at_ms: int) -> Manifest:
        if files.state:
            self._state_commit = self._copied_commit
        deployed = self._deployed_ms()
        return Manifest(
            flowql=metadata.version("flowql"),
            application_id=self._app,
            commit=files.commit,
            state_commit=self._state_commit,
            deployed_at=None if deployed is None else iso_time(deployed),
            taken_at=iso_time(at_ms),
            by="instance",
            folders=files.folders,
            files=[*log, *self._state_files],
            unlogged=self._unlogged,
        )

    def _write(self, manifest: Manifest) -> Iterator[int]:
        assert self._place is not None
        assert self._uploads is not None
        self._number += 1  # also if this one is lost on its way: a number is never used again
        name, data = self._place.name(self._uploads.term, self._number, "instance"), encode_manifest(manifest)
        known = Known.of(name.object, data)
        bases = self._note.bases
        if len(bases) > UNANSWERED_MAX:
            there = {manifest.object for manifest in self._place.manifests()}
            yield 0
            older, bases = bases[:-UNANSWERED_MAX], bases[-UNANSWERED_MAX:]
            bases = [*[known for known in older if known.object in there][-1:], *bases]
        self._note = Note([*bases, known], self._note.over)
        write_note(self._data_dir, self._note)
        if not self._place.put(name, data):
            raise RemoteError(f"{self._place.url}: {name.object} is there already")
        self._note, self._newest = Note([known]), manifest
        self.manifests += 1
        write_note(self._data_dir, self._note)
        yield 0

    # -- what is shown

    def status(self) -> dict[str, Any]:
        """How far the newest backup is behind, with the fields of `RemoteCheckpoints.status`. Any thread.

        All queries are equally far behind, as a backup is of all of them; bytes are those of all together.
        """
        newest, uploads = self._newest, self._uploads
        commits = self._log.last_sequence(self._app) - (newest.commit if newest is not None else 0)
        age_ms = max(0, self._clock.wall_ms() - self._newest_ms)
        behind = {"behind_commits": commits, "behind_ms": None if newest is None else age_ms if commits else 0}
        return {
            "url": self._place.url if self._place is not None else None,
            "away": self._given_up or self.outage.reason or None,
            "commit": newest.commit if newest is not None else None,
            "taken_at": newest.taken_at if newest is not None else None,
            "queries": {query: behind for query in self._queries()},
            "waiting_bytes": self._waiting,
            "stored_bytes": newest.size if newest is not None else 0,
            "uploaded_bytes": uploads.bytes if uploads is not None else 0,
            "requests": uploads.requests if uploads is not None else 0,
            "manifests": self.manifests,
            "to_copy_bytes": 0,
        }

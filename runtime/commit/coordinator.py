"""The commit step: cuts the epoch, writes it to the log in one transaction, and makes the state committed.

1. Cut, under the epoch lock: collected records, frozen state writes and positions belong together; later results go into
   the next epoch at once. The current micro-batch of a task is not part of this cut (rule R1).
2. Send records, positions and redo to the producer, and commit. From then on the epoch is committed.
3. Apply the frozen writes to the physical store and publish a snapshot of the new state. If the store cannot write (a full disk)
   this is repeated until it can: the log has the commit. After an I/O error the store is opened again (`_mend_state`). Redo brings it to the
   last commit; without redo all tasks start over.

While no space is left the frozen epoch is kept and sent again. After an unknown outcome a new producer with the same id fences the old one, and the
last sequence in the log is read: if it is that of this epoch the epoch is committed, else the same epoch is sent again (rule R3). If the log rejects records of one query (a record too large, a topic that is missing or not writable), a position of one in a
topic that is not readable, or if state has no durable form, all results of that query since the last commit are taken out of the epoch and the rest is
sent again (rule R1). A position in a topic that is gone is left out, because tasks' own records hold the exact positions. `Fenced` ends the instance.
Only this step's thread uses the producer.

A member of a group must not commit results of lost partitions: `lose` stops all commits at once, and `start_over` drops the epoch and makes a new
producer. A fenced member does the same: the others have given it up, or its transaction took longer than the brokers allow. A new producer has escaped
the fence of the one before it, so `confirm` asks whether this member still owns what it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress as suppress_errors
from typing import Any

from flowql.runtime.clock import Clock
from flowql.runtime.commit.alignment import Alignment
from flowql.runtime.commit.changelog import Changelog
from flowql.runtime.commit.epoch import CommitRequest, Epoch, LatencySample
from flowql.runtime.commit.positions import PositionRenewal, ReaderPosition, offset_metadata
from flowql.runtime.commit.refusals import denied_read, measure_ahead, measure_size
from flowql.runtime.commit.reopening import StateReopening
from flowql.runtime.commit.replacement import PartitionChange, Replacement, replace_records, reshape_topic
from flowql.runtime.config import COMMIT_INTERVAL_MS_MIN
from flowql.runtime.errors import (
    EndMoved,
    Fenced,
    LogCorrupt,
    LogDenied,
    LogError,
    LogFull,
    RecordRefused,
    RuntimeFailure,
    StaleMember,
    StateError,
    TopicMissing,
)
from flowql.runtime.events import DEBUG, ERROR, INFO, say
from flowql.runtime.log.base import (
    Log,
    Position,
    Producer,
    TopicPartition,
    largest_record,
    latest_record,
)
from flowql.runtime.log.clients import naming
from flowql.runtime.metrics import Metrics
from flowql.runtime.output.collector import RecordCollector, suppress, without
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.frozen import UnwritableState
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.positions import ChangelogPosition, StorePartition
from flowql.runtime.state.runs.objects import BlocksAway

RETRY_MS = 200
LOOK_MS = 1  # between two looks whether a commit may be cut
LOSSES_MAX, LOSSES_MS = 10, 60_000  # slow brokers alone do not cause more losses in this time
REDO_FLUSH_BYTES = 16 << 20  # a start replays at most about this much, which takes well below a second


class CommitStep:
    """Commits every `interval_ms` when something was published, and at once on request."""

    def __init__(
        self,
        log: Log,
        application_id: str,
        state: StateManager,
        collector: RecordCollector,
        clock: Clock,
        metrics: Metrics,
        *,
        positions: Callable[[], dict[TopicPartition, ReaderPosition]],
        ahead_of_cut: Callable[[], None],
        before_cut: Callable[[], Mapping[str, Exception]],
        interval_ms: Callable[[], int],
        on_commit: Callable[[], None],
        on_refused: Callable[[frozenset[str], Exception], dict[TopicPartition, int]],
        readers: Callable[[str], frozenset[str]],
        alignment: Alignment,
        changelog: Changelog | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """ahead_of_cut: prepares `before_cut` while tasks can publish. before_cut: adds to the epoch, under the epoch lock; returns the
        queries of which something could not be added, and why. on_refused: the log refuses what these queries have made; their tasks
        are as of the last commit again and must do nothing more; returns their positions. The epoch lock is held. readers: those that read
        a topic. transactional_id: of a member of the group `application_id`; None for the only instance, which is alone in it.
        """
        self._log, self._id, self._state = log, application_id, state
        self._collector, self._clock, self._metrics = collector, clock, metrics
        self._changelog, self._alignment = changelog, alignment
        self._positions, self._interval_ms = positions, interval_ms
        self._ahead_of_cut, self._before_cut = ahead_of_cut, before_cut
        self._on_commit, self._on_refused, self._readers = on_commit, on_refused, readers
        self._member, self._writer = transactional_id is not None, transactional_id or application_id
        self._producer: Producer = log.producer(self._writer)
        self._sequence = log.last_sequence(self._writer)
        self._pending: Epoch | None = None
        self._busy = False  # from before a cut until its commit is applied
        self._requests: deque[CommitRequest] = deque()
        self._renewal = PositionRenewal(needed=not log.supports_redo)
        self._next_ms = self._cut_ms = 0  # when the next cut is due, and when the last one was
        self.cpu_ns = self._began_ns = 0  # processor time of the last commit, and of its thread before it
        self._losses: list[int] = []  # when this member was fenced
        self._redo_bytes = 0  # sent since the last flush
        self.is_followed = False  # another process reads the redo (`flowql.runtime.state.followed`)
        self._flushed = 0  # the last commit that was durable in the state at the last flush
        self._lost: RuntimeFailure | None = None  # why nothing more may be committed of the pending epoch
        self._unknown = self._found_out = (
            False  # whether the last transaction was committed; what became of it before that
        )
        self._restart: tuple[Future[None], Callable[[], None]] | None = (
            None  # what is to be done before commits continue
        )
        self.confirm: Callable[[], None] = lambda: None  # of a member (`PlacementStep.confirm`)
        self.on_lost: Callable[[], None] = lambda: None  # the instance has to start over
        self.dirty = False  # set by publish under the epoch lock, cleared by the cut
        self.replacements: list[Replacement] = []  # of this epoch; under the epoch lock
        self.reshapes: list[PartitionChange] = []  # as well
        self._sizes: dict[str, int] = {}  # partitions of topics that were reshaped
        self.latency_samples: list[LatencySample] = []  # what this epoch will have answered; under the epoch lock
        self._applying: tuple[Epoch, int] | None = None  # committed, and not yet in the state: see `_apply`
        self._reopening = StateReopening(state, log, application_id)
        self._starts_over = self._member or (changelog is not None and not log.supports_redo)
        self.state_trouble = ""  # why the state cannot be made durable; the log keeps its redo meanwhile
        self._flush_at_ms = 0  # the next attempt, while there is trouble
        self.broken: RuntimeFailure | None = None  # why nothing more may be cut; under the epoch lock
        self.blocked: str = ""  # why commits do not get through, for status
        self.wake: Callable[[], None] = lambda: None  # set when threads run: ends the commit thread's wait

    def request(
        self,
        prepare: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        *,
        withdrawable: bool = False,
    ) -> Future[int]:
        """A commit as soon as possible; the future gives its sequence. Any thread."""
        done: Future[int] = Future()
        self._requests.append(CommitRequest(prepare, after, done, withdrawable))
        self.wake()
        return done

    def hurry(self) -> None:
        """Commits published rows as soon as the shortest interval allows. The epoch lock is held."""
        self._next_ms = min(self._next_ms, self._cut_ms + COMMIT_INTERVAL_MS_MIN)
        self.wake()

    def withdraw(self, done: Future[Any]) -> bool:
        """Takes a request back before anything of it has happened. False once its cut has begun. Any thread."""
        return any(r.done is done and r.withdrawable for r in tuple(self._requests)) and done.cancel()

    def lose(self, reason: str) -> None:
        """Prevents the commit of pending epochs and fails pending commit requests. Any thread."""
        self._lost = StaleMember(reason)
        self.wake()

    def start_over(self, prepare: Callable[[], None] = lambda: None) -> Future[None]:
        """Drops the uncommitted epochs, after `lose` and once no task runs any more; then commits continue. Any thread.

        prepare: runs in the commit thread before commits continue, and again after an error.
        """
        assert self._lost is not None, "nothing is lost"
        done: Future[None] = Future()
        self._restart = done, prepare
        self.wake()
        return done

    def look_at_state(self, error: Exception) -> None:
        """Checks the state after the error of another thread, which may have failed to write to it. Any thread."""
        if isinstance(error, StateError) and not isinstance(error, BlocksAway):  # a store that is away is no I/O error
            self._reopening.failed(error)
            self.wake()

    @property
    def next_sequence(self) -> int:
        """That of the next cut's commit. The epoch lock is held, in a `prepare`; of the only instance."""
        return self._sequence + 1

    @property
    def held_up(self) -> str:
        """Why no commit gets through just now, or nothing."""
        return self.blocked or (self.state_trouble if self._applying is not None else "")

    @property
    def is_busy(self) -> bool:
        """A commit is under way. Any thread."""
        return self._busy

    @property
    def idle(self) -> bool:
        """Nothing published waits for a commit."""
        return not (self.dirty or self._busy or self._requests)

    @property
    def interval_ms(self) -> int:
        """Between two commits. Any thread."""
        return self._interval_ms()

    def run_once(self, now_ms: int) -> int:
        if self._applying is not None:  # before anything else: the log has it
            if not self._apply():
                return RETRY_MS
            self._pending, self._busy = None, False
            return 0
        if (self.state_trouble or self._reopening.failures) and self._lost is None and now_ms >= self._flush_at_ms:
            self._flush_at_ms = now_ms + RETRY_MS
            self._try_flush()
        if self._lost is not None:
            self._drop(self._lost)
            return 0 if self._lost is None else RETRY_MS
        if self._pending is None:
            is_due = self._renewal.is_due(now_ms, self._cut_ms, self._sequence)
            if is_due or (not self.dirty and self._alignment.wants_cut()):
                self.dirty = True  # never cleared here: a task may have published meanwhile
            due = self._requests or self.broken or (self.dirty and now_ms >= self._next_ms)
            if not due:
                return max(1, min(self._next_ms - now_ms, self._interval_ms())) if self.dirty else self._interval_ms()
            if self.broken is None and not self._alignment.is_ready(now_ms):
                return LOOK_MS
            self._cut_ms, self._next_ms, self._began_ns = now_ms, now_ms + self._interval_ms(), self._clock.cpu_ns()
            self._busy = True  # before the cut clears `dirty`: `idle` must not be true between the two
            self._pending = self._cut()
            for query, error in self._pending.failed.items():
                self._withdraw(self._pending, frozenset({query}), error)
        if self._commit(self._pending):
            self._pending, self._busy = None, False
            self.cpu_ns = self._clock.cpu_ns() - self._began_ns
            return 0
        return RETRY_MS

    def _drop(self, reason: RuntimeFailure) -> None:
        """Drops the pending epoch, after resolving whether the last transaction committed."""
        if not self._found_out:
            try:
                with suppress_errors(StaleMember):  # nothing is committed with it before the loss is acknowledged
                    self._renew_producer()
                last = self._log.last_sequence(self._writer)
            except LogError as error:  # brokers are away: again in a moment
                if isinstance(error, Fenced) and not self._member:
                    self._lose_all(error)
                self.blocked = str(error)
                return
            if self._pending is not None and last == self._sequence + 1:
                if not self._committed(self._pending, last):
                    return
                self._pending = None
            self._sequence, self._found_out = last, True
        self._refuse(reason)
        self._pending = None
        if self._restart is None:
            return
        if self._reopening.is_behind and (why := self._reopening.reopen(self._clock.timer_ms())):
            self.blocked = why
            return
        with self._state.epoch_lock:
            self._collector.discard()
            self._state.abandon()
            self.dirty, self.latency_samples, self.replacements, self.reshapes = False, [], [], []
        restart, prepare = self._restart
        try:
            prepare()
        except LogCorrupt:
            raise
        except (LogError, StateError) as error:  # the state is opened once more
            self._reopening.is_behind, self.blocked = not isinstance(error, LogError), str(error)
            return
        self._restart = self._lost = None
        self._found_out = self._busy = False
        self._free()
        restart.set_result(None)

    def _renew_producer(self) -> None:
        with suppress_errors(RuntimeFailure):  # it may hold memory and connections
            self._producer.close()
        self._producer = self._log.producer(self._writer)
        self.confirm()  # the one before may have been fenced, and this one is not
        self._unknown = False

    def close(self) -> None:
        self._producer.close()

    def _cut(self) -> Epoch:
        waiting: list[CommitRequest] = []
        self._ahead_of_cut()
        with self._state.epoch_lock:
            if self.broken is not None:
                raise self.broken
            start = self._clock.cost_ns()
            while self._requests:
                request = self._requests.popleft()
                if not request.done.set_running_or_notify_cancel():  # `withdraw`
                    continue
                try:
                    request.prepare()
                    waiting.append(request)
                except Exception as error:  # the requester's mistake, not the epoch's
                    request.done.set_exception(error)
            failed, finished = self._before_cut(), self._alignment.at_cut()
            self.dirty = False
            latency_samples, self.latency_samples = self.latency_samples, []
            replacements, self.replacements = self.replacements, []
            reshapes, self.reshapes = self.reshapes, []
            records, state = self._collector.cut(), self._state.cut(self._clock.wall_ms())
            found = self._valid(self._positions(), reshapes)
            positions, readers = {tp: r.offset for tp, r in found.items()}, {tp: r.readers for tp, r in found.items()}
            kept = records, state, positions, readers, start, waiting, latency_samples, replacements, reshapes
            return Epoch(*kept, dict(failed), finished)

    def _valid(
        self, positions: Mapping[TopicPartition, ReaderPosition], reshapes: Iterable[PartitionChange]
    ) -> dict[TopicPartition, ReaderPosition]:
        """Without those in partitions that are gone, or that begin with this commit: tasks that read them are still known."""
        self._sizes |= {r.topic: r.partitions for r in reshapes}
        fresh = {r.topic for r in reshapes}
        return {
            tp: reading
            for tp, reading in positions.items()
            if tp.topic not in fresh and tp.partition < self._sizes.get(tp.topic, tp.partition + 1)
        }

    def _commit(self, epoch: Epoch) -> bool:
        """True when the epoch is committed and applied; False to try again later."""
        try:
            sequence = self._resolve()
            if sequence is None:
                epoch.state.check()
                redo = epoch.state.redo() if self._log.supports_redo and not self._member else b""
                self._redo_bytes += len(redo)  # also if the outcome is unknown
                sequence = self._transaction(epoch, redo)
        except Fenced as error:
            self._lose_all(error)
            return False
        except (LogCorrupt, EndMoved):  # the log has to be opened again; a swap has to be decided anew
            raise
        except Exception as error:
            queries = self._refused(epoch, error)
            if queries:
                self._withdraw(epoch, queries, error)
            else:
                self._block(epoch, error)
            return False
        return self._committed(epoch, sequence)

    def _committed(self, epoch: Epoch, sequence: int) -> bool:
        """Applies a committed epoch to the state and completes its commit requests. False to try again later."""
        self._sequence = sequence
        # The state of a member may have been that of another instance.
        applied = max(sequence, self._state.applied_sequence + 1) if self._member else sequence
        self._applying = epoch, applied
        return self._apply()

    def _apply(self) -> bool:
        """The state takes what the log has committed. Until it does, on a full disk say, nothing else can be committed."""
        assert self._applying is not None
        epoch, applied = self._applying
        if not self._mend_state():
            return False
        try:
            self._state.apply(epoch.state, applied, self._changelog_positions(epoch))
        except Exception as error:  # whatever the physical store says
            self._reopening.failed(error)
            self._say_blocked(str(error))
            return False
        self._applying = None
        self._reopening.works()
        self._free()
        self._after(epoch)
        return True

    def _changelog_positions(self, epoch: Epoch) -> dict[StorePartition, ChangelogPosition]:
        return {} if self._changelog is None else self._changelog.reached(epoch.state, self._sequence, epoch.ends)

    def _mend_state(self) -> bool:
        """Open a physical store anew that takes no more writes, once its disk does. False if that has to come first."""
        now_ms = self._clock.timer_ms()
        if not self._reopening.is_due(now_ms):
            return True
        self._alignment.let_go()
        if self._starts_over:  # its tasks are made anew, with what changelogs have
            self._reopening.is_behind, self._applying, self._reopening.failures = True, None, 0
            self.lose("the state takes no more writes after an I/O error, and is opened again")
            self.on_lost()
            return False
        if why := self._reopening.reopen(now_ms):
            self._say_blocked(why)
        return not why

    def _refused(self, epoch: Epoch, error: Exception) -> frozenset[str]:
        """The queries that made what the log will not take; none if it is not about what a query has made."""
        if isinstance(error, UnwritableState):
            return frozenset({_query_of(error.task_id)} - {""})
        if not isinstance(error, RecordRefused | TopicMissing | LogDenied) or error.partition is None:
            return frozenset()
        tp = TopicPartition(*error.partition)
        made = epoch.records.get(tp, [])
        if isinstance(error, RecordRefused) and made:
            # Several may write there: it is the largest, or latest, that does not fit.
            measure_ahead(
                error, self._log, tp.topic, max(latest_record(o.records) for o in made), self._clock.wall_ms()
            )
            measure = largest_record if error.time_max_ms is None else latest_record
            queries = {max((measure(o.records), o.query) for o in made)[1]}
        else:
            queries = {o.query for o in made}
        for task, store in epoch.state.changed():
            if changelog_topic(self._id, store) == tp.topic:
                queries.add(_query_of(task))
        if topic := denied_read(error, epoch.positions, epoch.records):
            queries |= self._readers(topic)
        if isinstance(error, RecordRefused):
            columns = ((changelog_topic(self._id, s), p, k, v) for s, p, k, v in epoch.state.changelog_columns())
            measure_size(error, self._log, tp, [largest_record(o.records) for o in made], columns)
        return frozenset(queries - {""})

    def _withdraw(self, epoch: Epoch, queries: frozenset[str], error: Exception) -> None:
        """The epoch is tried again without these queries."""
        with self._state.epoch_lock:
            tasks = [t for t in self._state.open_tasks() if _query_of(t) in queries]
            epoch.state = self._state.withdraw(epoch.state, tasks)
            positions = self._on_refused(queries, error)
            self._collector.withdraw(queries)
            self.latency_samples = [s for s in self.latency_samples if s[0] not in queries]
        epoch.positions |= {tp: min(o, epoch.positions.get(tp, o)) for tp, o in positions.items()}
        if topic := denied_read(error, epoch.positions, epoch.records):
            epoch.positions = {tp: o for tp, o in epoch.positions.items() if tp.topic != topic}
        epoch.records = without(epoch.records, queries)
        epoch.latency_samples = [s for s in epoch.latency_samples if s[0] not in queries]
        self._unknown = True  # its producer is of no more use

    def _block(self, epoch: Epoch, error: Exception) -> None:
        """The commit did not get through; the same epoch is tried again."""
        self._say_blocked(str(error) if isinstance(error, RuntimeFailure) else f"{type(error).__name__}: {error}")
        if isinstance(error, TopicMissing):
            with suppress_errors(LogError):  # brokers may be away as well
                topics = self._log.admin().topics()
                epoch.positions = {tp: o for tp, o in epoch.positions.items() if tp.topic in topics}
        if not isinstance(error, LogFull):  # then nothing of the transaction is left and the producer is as good as new
            self._unknown = True

    def _say_blocked(self, why: str) -> None:
        before, self.blocked = self.blocked, why
        if why != before:
            say(ERROR, "commit.blocked", why, retry_ms=RETRY_MS)

    def _lose_all(self, error: Exception) -> None:
        """A member starts over. Raises Fenced in an instance that is alone."""
        if not self._member:
            raise Fenced("another instance of this application has taken over") from error
        now = self._clock.timer_ms()
        self._losses = [at for at in self._losses if now - at < LOSSES_MS] + [now]
        if len(self._losses) > LOSSES_MAX:
            raise Fenced(
                f"fenced {LOSSES_MAX} times: another instance runs on a copy of this data directory"
            ) from error
        self.blocked = str(error)
        self.lose(self.blocked)
        self.on_lost()

    def _free(self) -> None:
        if self.blocked:
            say(INFO, "commit.unblocked")
        self.blocked = ""

    def _resolve(self) -> int | None:
        """The sequence of the frozen epoch if the log turns out to have it, after a commit of unknown outcome."""
        if not self._unknown:
            return None
        self._renew_producer()
        last = self._log.last_sequence(self._writer)
        return last if last == self._sequence + 1 else None

    def _transaction(self, epoch: Epoch, redo: bytes) -> int:
        producer = self._producer
        if self._lost is not None:
            raise self._lost
        epoch.ends = {}
        producer.begin()
        for reshape in epoch.reshapes:
            reshape_topic(producer, reshape)
        for replacement in epoch.replacements:
            replace_records(producer, replacement)
        for tp in sorted(epoch.records):
            batches = [o.records for o in epoch.records[tp]]
            if tp.topic in self._collector.upsert_topics and len(batches) > 1:
                batches = [suppress(batches)]
            with naming(tp):
                for batch in batches:
                    producer.send(tp, batch)
        if self._changelog is not None:
            for tp, batch in self._changelog.records(epoch.state, self._sequence + 1, self._clock.wall_ms()):
                with naming(tp):
                    producer.send(tp, batch)
        positions = {
            tp: Position(o, offset_metadata(self._writer, self._sequence + 1, epoch.readers.get(tp, "")))
            for tp, o in epoch.positions.items()
        }
        if positions:
            producer.send_positions(self._id, positions)
        if redo:
            producer.attach_redo(redo)
        try:
            return producer.commit()
        finally:  # the outcome may turn out later
            epoch.ends = producer.ends

    def _after(self, epoch: Epoch) -> None:
        self._metrics.commits += 1
        self._measure(epoch)
        self._alignment.committed(epoch.finished)
        for request in epoch.waiting:
            try:
                request.after()
                request.done.set_result(self._sequence)
            except Exception as error:  # the requester's mistake: the commit stands
                request.done.set_exception(error)
        if self._redo_bytes > REDO_FLUSH_BYTES or self._state.wants_flush:
            self._try_flush()
        self._busy = False
        self._on_commit()

    def _measure(self, epoch: Epoch) -> None:
        took_ms, now_ms = (self._clock.cost_ns() - epoch.cut_ns) / 1e6, self._clock.timer_ms()
        self._metrics.cut_to_commit_ms = took_ms
        self._metrics.commit_latency.add(round(took_ms), 1)
        say(DEBUG, "commit", sequence=self._sequence, took_ms=round(took_ms, 1))
        for query, since_ms, records in epoch.latency_samples:
            self._metrics.query(query).latency.add(now_ms - since_ms, records)

    def _try_flush(self) -> None:
        """As `flush`; what goes wrong is said in `state_trouble`, and it is tried again."""
        if not self._mend_state():
            return
        try:
            self.flush()
        except Exception as error:  # whatever the physical store says; the redo stays
            self._reopening.failed(error)
            before, self.state_trouble = self.state_trouble, str(error)
            if self.state_trouble != before:
                say(ERROR, "state.trouble", self.state_trouble, retry_ms=RETRY_MS)
        else:
            self.state_trouble = ""
            self._reopening.works()

    def flush(self) -> None:
        """Make the physical state durable, so that the log may forget its redo: at the next flush, while another process may not have read all of it."""
        before, self._flushed = self._flushed, self._state.flush()
        self._redo_bytes = 0
        if self._log.supports_redo:
            with suppress_errors(LogFull):  # the redo stays until the next flush
                self._log.trim_redo(self._id, before if self.is_followed else self._flushed)

    def fail(self, error: BaseException) -> None:
        """Fails pending commit requests, as the thread of the step has ended and there will be no commit."""
        self._refuse(RuntimeFailure(f"there are no more commits: {error}"))

    def _refuse(self, reason: RuntimeFailure) -> None:
        waiting = [r.done for r in self._pending.waiting] if self._pending is not None else []
        while self._requests:
            waiting.append(self._requests.popleft().done)
        for future in waiting:
            if not future.done():
                future.set_exception(reason)


def _query_of(task_id: str) -> str:
    return task_id.rpartition("/")[0]

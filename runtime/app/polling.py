"""The polling step: fetched batches to input buffers, catch-up readers, failed queries. Never waits for state, functions or queries.

A partition has one *head*: the read position of the main consumer, shared by all attached inputs, so that a topic is fetched once
for all queries. An input that is behind (a new query on an old topic) or would hold the others up (its buffer is full while
they starve) reads through a *catch-up reader*: chunks from its own position by the restore consumer, until it has caught up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from flowql.runtime.app.hanging import HangingTransactions
from flowql.runtime.app.query_state import FAILED, QueryStates
from flowql.runtime.app.troubles import ChangedTopics, StallDetector, Troubles
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.client.events import ClientFailed
from flowql.runtime.errors import (
    DeletionsMissed,
    KeysMisplaced,
    LogDenied,
    LogError,
    LogUnavailable,
    OffsetAboveEnd,
    TopicMissing,
)
from flowql.runtime.events import WARNING, say
from flowql.runtime.functions.failures import reason_of
from flowql.runtime.log.base import Admin, RawBatch, TopicPartition
from flowql.runtime.metrics import Metrics
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.state.task_state import BatchRevoked
from flowql.runtime.task.arrivals import Arrivals
from flowql.runtime.task.input_buffer import LogInput

LINE_MS = 250  # that nothing is handed out for the sake of a line: a broker that is away must not stop all queries
ANSWER_MS = 5  # between two looks for an answer that wakes no thread
ROWS_HIGH = 100_000  # an input asks for no more above this many buffered rows
HEAD_GAP = 100_000  # inputs at most this far behind the front ones wait for nothing: the head starts at the lowest
END_REFRESH_MS = 20
# Where nothing has come for a while: an instance at rest asks its brokers every five seconds, and again before it hands out what arrives.
QUIET_AFTER_MS, QUIET_MS, QUIET_WAIT_MS = 1_000, 5_000, 200
END_UNKNOWN = 1 << 62


class PollingStep:
    """Owned by the polling thread, but for `command`. `inputs`: every log input of every task, by partition."""

    def __init__(
        self,
        main: ConsumerFacade,
        restore: ConsumerFacade,
        admin: Admin,
        manager: TaskManager,
        metrics: Metrics,
        input_bytes_max: int,
        query_states: QueryStates,
        on_unreadable: Callable[[TopicPartition, LogError], None],
        on_misplaced: Callable[[str, KeysMisplaced], None],
    ) -> None:
        """Called in this thread: on_unreadable: a partition is deleted, damaged, denied, may lack deletions, or a position is below its start or above its end.
        on_misplaced: a query reads keys that its tasks cannot bring together.
        """
        self._main, self._restore, self._admin = main, restore, admin
        self._manager, self._metrics, self._query_states = manager, metrics, query_states
        self._input_bytes_max = input_bytes_max
        self._commands: deque[Callable[[], None]] = deque()
        self._inputs: dict[TopicPartition, list[LogInput]] = {}
        self._heads: dict[TopicPartition, int] = {}
        self._arrivals: dict[TopicPartition, Arrivals] = {}
        self._ends: dict[TopicPartition, int] = {}  # see `_see_end`
        self._now_ms = 0
        self._ends_at_ms = -END_REFRESH_MS
        self._quiet_at_ms = 0
        self._asked: tuple[list[TopicPartition], Future[dict[TopicPartition, int]]] | None = None
        self._bytes_per_input = input_bytes_max
        self._unread: dict[str, list[LogInput]] = {}  # of failed queries, until they are tried again
        self.troubles = Troubles()
        self._stalls, self._above = StallDetector(), StallDetector()
        self.changed_topics = ChangedTopics(admin)
        # Set by the instance: where the restoration reads, and topics that other steps read.
        self.places_of_others: Callable[[], Mapping[TopicPartition, int]] = dict
        self.transactions = HangingTransactions(admin, lambda: {**self._heads, **self.places_of_others()})
        self.look_at_commits: Callable[[int], None] = lambda now_ms: None  # set with `TornCommits`
        self._on_unreadable, self._on_misplaced = on_unreadable, on_misplaced
        self.wake: Callable[[], None] = lambda: None  # set when threads run: ends the polling thread's wait
        self._line: tuple[Future[dict[TopicPartition, int]], Callable[[Mapping[TopicPartition, int]], None]] | None = (
            None
        )
        self._line_ms = 0  # when it was asked for

    def command(self, action: Callable[[], None]) -> None:
        """Let the polling thread do something between two steps. Any thread."""
        self._commands.append(action)
        self.wake()

    def run_once(self, now_ms: int) -> int:
        progress = bool(self._commands)
        self._now_ms = now_ms
        while self._commands:
            self._commands.popleft()()
        self._refresh_ends(now_ms)
        self._look_at_topics(now_ms)
        self._look_at_transactions(now_ms)
        self.look_at_commits(now_ms)
        if not self._line_is_asked():
            arrived = self._distribute() | self._serve_catch_up_readers(now_ms)
            self._quiet_at_ms = now_ms + QUIET_AFTER_MS if arrived else self._quiet_at_ms
            progress |= arrived
        self._main_events()
        progress |= self._handle_failures()
        if progress:
            self._manager.signal()
            return 0
        if self._line is not None:
            return 1
        if self._asked is not None:
            return ANSWER_MS
        return QUIET_WAIT_MS if self._is_quiet else END_REFRESH_MS  # what arrives wakes this thread before

    def ask_line(
        self,
        partitions: Callable[[], Sequence[TopicPartition]],
        take: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        """Ends of partitions that no input has passed: nothing is handed out between the question and `take`, in this thread. Any thread.

        If brokers do not answer within `LINE_MS`, `take` is not called, and records go on.
        """

        def ask() -> None:
            self._line, self._line_ms = (self._admin.ask_end_offsets(partitions()), take), self._now_ms

        self.command(ask)

    def _line_is_asked(self) -> bool:
        """Whether the answer is not here yet."""
        if self._line is None:
            return False
        answer, take = self._line
        if not answer.done() and self._now_ms - self._line_ms < LINE_MS:
            return True
        self._line = None
        if not answer.done():
            return False
        with suppress(LogError):  # the next refresh of all ends meets it again
            take(answer.result())
        return False

    # -- membership of inputs (commands)

    def add_inputs(self, inputs: list[LogInput]) -> None:
        for i in inputs:
            self._inputs.setdefault(i.tp, []).append(i)
            i.arrivals, i.since_ms = self._arrivals.setdefault(i.tp, Arrivals()), self._now_ms
        tps = list(dict.fromkeys(i.tp for i in inputs))
        for i in (i for tp in tps for i in self._inputs[tp]):
            i.end_offset = END_UNKNOWN  # before their tasks may run: none looks idle that is not
            self._ends.pop(i.tp, None)
        self._ask_ends(tps)
        self._assign()

    def remove_inputs(self, inputs: list[LogInput]) -> None:
        gone = {id(i) for i in inputs}
        for tp in list(self._inputs):
            self._inputs[tp] = [i for i in self._inputs[tp] if id(i) not in gone]
            if not self._inputs[tp]:
                del self._inputs[tp], self._arrivals[tp]
        self._unread = {
            q: left for q, unread in self._unread.items() if (left := [i for i in unread if id(i) not in gone])
        }
        self._assign()

    def set_back(self, query: str, said: str, inputs: Sequence[LogInput]) -> None:
        """A query may not read (all of) `inputs` now: it goes on where it is when it is tried again, later and later."""
        known = {id(i) for of_tp in self._inputs.values() for i in of_tp}
        unread = [i for i in inputs if id(i) in known]
        self.remove_inputs(unread)
        for i in unread:
            i.attached, i.chunk = False, None
        self._unread[query] = self._unread.get(query, []) + unread
        self._query_states.fail(query, said)

    def _assign(self) -> None:
        """Choose heads for partitions that have none and tell the main consumer if the set changed."""
        count = sum(len(i) for i in self._inputs.values())
        self._bytes_per_input = max(1 << 20, self._input_bytes_max // max(1, count))
        before = set(self._heads)
        for tp, inputs in self._inputs.items():
            attached = [i.next_fetch for i in inputs if i.attached]
            if not attached:
                self._choose_head(tp, inputs)
            elif self._heads[tp] < min(attached):  # the inputs that needed earlier records are gone
                self._move_head(tp, min(attached))
        self._heads = {tp: self._heads[tp] for tp in self._inputs}
        if set(self._heads) != before:
            self._main.assign(self._heads)

    def _choose_head(self, tp: TopicPartition, inputs: list[LogInput]) -> None:
        """The head starts at the lowest position of the inputs that are near the front; the rest get catch-up readers."""
        front = max(i.next_fetch for i in inputs)
        near = [i for i in inputs if i.next_fetch >= front - HEAD_GAP]
        for i in near:
            i.attached = True
        self._move_head(tp, min(i.next_fetch for i in near))

    def _move_head(self, tp: TopicPartition, head: int) -> None:
        if tp in self._heads and self._heads[tp] != head:
            self._main.seek(tp, head)
        self._heads[tp] = head

    # -- the shared head

    def _distribute(self) -> bool:
        batches = self._main.poll(self._wants)
        if batches and self._is_quiet:  # the known ends are old: what came to other inputs must not be overtaken
            self._ask_ends(list(self._inputs))
        for batch in batches:
            self._hand_out(batch)
        return bool(batches)

    def _wants(self, tp: TopicPartition) -> bool:
        """All attached inputs have room; one that is full while another starves goes on through a catch-up reader."""
        attached = [i for i in self._inputs.get(tp, []) if i.attached]
        full = [i for i in attached if self._full(i)]
        if not full:
            return bool(attached)
        if any(not i.queue for i in attached):
            for i in full:
                i.attached = False
            return True
        return False

    def _full(self, i: LogInput) -> bool:
        return i.rows >= ROWS_HIGH or i.size_bytes >= self._bytes_per_input

    def _hand_out(self, batch: RawBatch) -> None:
        if batch.tp not in self._heads or batch.next_offset <= self._heads[batch.tp]:
            return  # left over from before a seek
        self._metrics.add_fetched(batch.tp.topic, batch.records.num_rows)
        self.troubles.over(batch.tp)
        self._heads[batch.tp] = batch.next_offset
        self._arrivals[batch.tp].reach(batch.next_offset, self._now_ms)
        if any([i.deletions is not None and i.deletions.look(i.next_fetch, batch) for i in self._inputs[batch.tp]]):
            self._on_unreadable(batch.tp, DeletionsMissed(f"{batch.tp}: records are missing"))
        for i in self._inputs.get(batch.tp, ()):
            if i.attached:
                i.add(batch)

    # -- catch-up readers

    def _serve_catch_up_readers(self, now_ms: int) -> bool:
        progress = False
        for tp, inputs in list(self._inputs.items()):
            for i in list(inputs):
                if i.attached or tp not in self._inputs:  # an unreadable one takes others with it
                    continue
                if i.chunk is not None and i.chunk.done():
                    progress |= self._take_chunk(i)
                    if all(other is not i for other in self._inputs.get(tp, ())):  # it was unreadable
                        continue
                if i.chunk is None and not self._join_head(tp, i) and not self._full(i):
                    i.chunk = self._restore.read_chunk(tp, i.next_fetch, now_ms)
        return progress

    def _take_chunk(self, i: LogInput) -> bool:
        chunk, i.chunk = i.chunk, None
        assert chunk is not None
        error = chunk.exception()
        if error is not None:
            self._failed(error, i.tp)
            return False
        batches = chunk.result()
        assert isinstance(batches, list)
        self.troubles.over(i.tp)
        for batch in batches:
            if i.deletions is not None and i.deletions.look(i.next_fetch, batch):
                self._on_unreadable(i.tp, DeletionsMissed(f"{i.tp}: records are missing"))
                if all(other is not i for other in self._inputs.get(i.tp, ())):
                    return True
            i.add(batch)
        return bool(batches)

    def _join_head(self, tp: TopicPartition, i: LogInput) -> bool:
        if not any(other.attached for other in self._inputs[tp]):
            self._choose_head(tp, self._inputs[tp])
        elif i.next_fetch >= self._heads[tp]:
            i.attached = True
        return i.attached

    # -- the rest

    def _refresh_ends(self, now_ms: int) -> None:
        interval = QUIET_MS if self._is_quiet else END_REFRESH_MS
        if self._asked is None and now_ms - self._ends_at_ms < interval and now_ms >= self._ends_at_ms:
            return
        if self._asked is None:
            self._ends_at_ms = now_ms
            tps = list(self._inputs)  # at once: each look at the log gives way to busy threads
            self._asked = tps, self._admin.ask_end_offsets(tps)
        tps, answer = self._asked
        if answer.done():
            self._asked = None
            self._take_ends(tps, answer.result)

    @property
    def _is_quiet(self) -> bool:
        """Nothing has arrived for a while, and as far as is known nothing is there that has not."""
        if self._now_ms < self._quiet_at_ms:
            return False
        return all(not i.queue and i.next_fetch >= i.end_offset for of_tp in self._inputs.values() for i in of_tp)

    def refresh_ends(self) -> None:
        """Requests the current ends of all partitions, which tell idle inputs from those that will get rows."""
        self._ask_ends(list(self._inputs))

    def _ask_ends(self, tps: Sequence[TopicPartition]) -> None:
        self._asked = None  # it may be older
        self._take_ends(tps, partial(self._admin.end_offsets, tps))

    def _take_ends(self, tps: Sequence[TopicPartition], learn: Callable[[], dict[TopicPartition, int]]) -> None:
        try:
            ends = learn()
        except LogDenied as error:  # the others are asked for without what is denied
            self._failed(error, error.partition)
            return
        except LogError as error:
            if not error.retriable:
                raise
            self._note(error)  # brokers are away: what was known counts until they are back
            self._above = StallDetector()
            return
        self.troubles.over(None)
        for tp in tps:
            end = ends.get(tp)
            if end is not None and end == self._ends.get(tp) == self._heads.get(tp):
                continue
            if end is None:
                self._on_unreadable(tp, TopicMissing(f"there is no topic partition {tp}"))
                continue
            if inputs := self._inputs.get(tp):
                self._arrivals[tp].reach(end, self._now_ms)
                for i in inputs:
                    i.end_offset = end
                    if i.deletions is not None:
                        i.deletions.reach(i.position, end)
            self._begin_anew_if_stalled(tp, end)
            self._stop_if_above(tp, end)
            self._see_end(tp, end)

    def _see_end(self, tp: TopicPartition, end: int) -> None:
        """Notes the end of a partition with which nothing is to be done until it or the head moves: all of it is fetched."""
        if end == self._heads.get(tp) and not any(i.deletions is not None for i in self._inputs.get(tp, ())):
            self._ends[tp] = end
        else:
            self._ends.pop(tp, None)

    def _stop_if_above(self, tp: TopicPartition, end: int) -> None:
        """Readers of a partition that has long had fewer records than they have read stop: the records that come there later would be skipped.

        For a moment it is so after a record has arrived behind the end that was asked for, and at brokers that have just changed leaders.
        """
        head = self._heads.get(tp, end)
        if self._above.is_long(tp, head if head > end else None, self._now_ms):
            title = f"{tp}: offset {head} is above the log's end {end}"
            self._on_unreadable(
                tp, OffsetAboveEnd(f"{title}: the topic was deleted and created again, or has lost records")
            )

    def _look_at_topics(self, now_ms: int) -> None:
        """Readers are told of a topic whose name another one has now, however many records that has, and of partitions that were added."""
        try:
            changed = self.changed_topics.look(now_ms, self._inputs)
        except LogError as error:  # brokers are away
            self._note(error)
            return
        for tp, changes in changed:
            self._on_unreadable(tp, changes)

    def _look_at_transactions(self, now_ms: int) -> None:
        try:
            for error in self.transactions.look(now_ms):
                say(WARNING, "log.transaction", str(error))
        except LogError as error:  # brokers are away, or one of the topics is gone or denied, which its reader is told
            self._note(error)

    def _begin_anew_if_stalled(self, tp: TopicPartition, end: int) -> None:
        """Restarts the fetch of a stalled partition at its fetch position: its inputs are empty, and nothing arrives before the log's end."""
        head, waits = self._heads.get(tp, end), False
        if head < end:
            attached = [i for i in self._inputs.get(tp, ()) if i.attached]
            waits = bool(attached) and not any(i.queue for i in attached)
        if self._stalls.is_long(tp, head if waits else None, self._now_ms):
            self._main.seek(tp, head)
            error = LogUnavailable(
                f"{tp}: nothing arrives from offset {head} on, though the log ends at {end}; it is read again"
            )
            error.partition = tp
            self._note(error)

    def _main_events(self) -> None:
        for event in (*self._main.events(), *self._restore.events()):
            if isinstance(event, ClientFailed):
                self._failed(event.error, event.error.partition if isinstance(event.error, LogError) else None)

    def _failed(self, error: BaseException, tp: tuple[str, int] | None) -> None:
        """Stops readers of partitions that stay unreadable. Other errors are retried."""
        if isinstance(error, LogError):
            error.partition = error.partition or tp
        self._note(error if isinstance(error, Exception) else RuntimeError(str(error)))
        if isinstance(error, LogError) and not error.retriable and tp is not None:
            self._on_unreadable(TopicPartition(*tp), error)

    def _note(self, error: Exception) -> None:
        """It is tried again, and again: what repeats itself is said once, and counted in status."""
        if self.troubles.note(error, self._now_ms):
            say(WARNING, "log.trouble", f"{type(error).__name__}: {error}")

    def _handle_failures(self) -> bool:
        """A failing query is held and restarted alone, later and later; the others go on."""
        for failure in self._manager.drain_failures():
            if isinstance(failure.error, BatchRevoked):  # the query was sent back to the last commit meanwhile
                continue
            if isinstance(failure.error, KeysMisplaced):
                self._on_misplaced(failure.task_id.query, failure.error)
                continue
            self._query_states.fail(failure.task_id.query, reason_of(failure.error), task=failure.task_id)
        due = self._query_states.due(FAILED)
        for query in due:
            if query in self._unread:
                self.add_inputs(self._unread.pop(query))
            self._query_states.resume(query, FAILED)  # unless it was denied again just now
        return bool(due)

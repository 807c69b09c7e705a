"""A task: the program of one sub-topology over one partition, run by whichever thread holds it.

The unit of work is a *run*. Its outputs, state writes, stream times and positions are private until `publish` moves them into
the current epoch together, under the epoch lock; a run that raises leaves no trace and its input stays buffered (rule R1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from flowql.compiler.functions.registry import RunTooLong
from flowql.runtime.batch import Batch
from flowql.runtime.clock import Clock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.functions.runs import run_of
from flowql.runtime.log.base import even_share
from flowql.runtime.operators.base import HELD, MicroBatchContext
from flowql.runtime.state.store import TaskState
from flowql.runtime.state.task_state import BatchRevoked
from flowql.runtime.task import dead_letters
from flowql.runtime.task.channels import ConsumerChannels, ExchangeInput, Known, beyond, has_rows, nothing_waits
from flowql.runtime.task.dead_letters import LocatedDeadLetter, each_once
from flowql.runtime.task.deletions import known_times
from flowql.runtime.task.delivery import Delivery, DeliveryResult
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.input_slice import (
    InputSlice,
    Taken,
    by_operator,
    locate,
    locate_retired,
    origins_of,
    records_between,
    records_of,
)
from flowql.runtime.task.isolate import VALUE_ERRORS, RowLimit, failing, letter_of, withdrawals
from flowql.runtime.task.key_places import PARTITIONERS
from flowql.runtime.task.lost import LOST, with_micro_batch
from flowql.runtime.task.merge import merge_order, side_of
from flowql.runtime.task.peeked import NOTHING, ends_in_a_pair, ends_peeked
from flowql.runtime.task.producer_channels import ProducerChannels
from flowql.runtime.task.program import Output, Program
from flowql.runtime.task.publisher import MicroBatchResult, Publisher
from flowql.runtime.task.read_up_to import ReadUpTo
from flowql.runtime.task.sizing import MicroBatchSizer
from flowql.runtime.task.status import TaskStatus

# A run takes longer than its processor time for other work on the machine; far longer, for what it waits for.
WAIT_FACTOR = 10
RETIRED_MAX = 10_000  # rows that have waited and go on in one run
WATERMARKS = "watermarks"  # in the metadata of a task: `MicroBatchContext.watermarks`
TIMERS = "timers"  # `MicroBatchContext.timers`
STARTED = "started"  # in the metadata of a task whose program has given its results of no rows


Check = Callable[["Task", Sequence[Output]], None]  # raises one of VALUE_ERRORS for what could not be committed
Attempt = Callable[[int, Exception | None], int | None]
Begins = Callable[[Sequence["Task"]], None]


def not_noted(tasks: Sequence[Task]) -> None:
    """A micro-batch of the tasks begins, which is noted nowhere."""


class Task:
    """One task. The thread that holds its lock in the task manager calls `process`; `buffered_rows` and `runnable` are read by any."""

    def __init__(
        self,
        task_id: TaskId,
        program: Program,
        state: TaskState,
        publisher: Publisher,
        clock: Clock,
        config: InstanceConfig,
        sizer: MicroBatchSizer | None = None,
    ) -> None:
        """sizer: of all tasks of the sub-topology, which have the same costs."""
        self.id = task_id
        self.status = TaskStatus.CREATED  # changed by who hands the task over
        self.program = program
        self.state = state
        self.logs: dict[str, LogInput] = {}
        self.exchanges: dict[str, ExchangeInput] = {}
        self.channels = ConsumerChannels()  # those of `exchanges`
        self.downstream = ProducerChannels()
        self.marks: dict[str, Any] = {}  # what its metadata says in every commit beside positions and times
        self.read_up_to = ReadUpTo()
        self.tick_ms: int | None = (
            None  # the wall clock of its tick, beyond which no timer is due (`flowql.runtime.ticks`)
        )
        self.is_delivering = False
        self._wake: Callable[[], object] = nothing_waits
        self.deliveries: deque[Delivery] = deque()  # added by any thread, taken by the one that holds the task
        self._publisher, self._clock, self._config = publisher, clock, config
        self.sizer = sizer or MicroBatchSizer()
        self.check: Check | None = None  # of results that commits have refused: before they are published
        self._limit, self._retire_limit, self._tried = RowLimit(), RowLimit(), 0  # rows of the last attempt
        self._ticked_at_ms = 0  # by the wall clock; when that has been set back, timers are looked at anew
        self._tried_ends: dict[str, int] = {}  # where they end in each input
        self._publishing = False  # its input is consumed, its output is not in the exchange yet
        self._has_started = False
        self._is_table = {i.operator: i.is_table for i in program.inputs}

    @property
    def buffered_rows(self) -> int:
        return sum([i.rows for i in tuple(self.logs.values())], self.channels.rows)

    @property
    def rows_ahead(self) -> int:
        """Rows that it has made and readers in the same process have not taken."""
        return self.downstream.rows

    @property
    def buffered_bytes(self) -> int:
        return sum(i.size_bytes for i in self.logs.values())

    @property
    def runnable(self) -> bool:
        """Some input has rows, every input without rows is idle, none has to wait, and the exchanges it feeds have room."""
        return self.runnable_with(Known())

    def runnable_with(self, known: Known) -> bool:
        """As `runnable`. known: the tasks that are asked already whether they are idle (`idle_with`)."""
        if self.is_due and not any(i.stopped for i in self.logs.values()):
            return self._has_room
        return self._takes_input(known)

    def _takes_input(self, known: Known) -> bool:
        if self.program.room == 0:
            return False
        if any(i.stopped for i in self.logs.values()):
            return False
        ms, logs, channels = self.read_up_to.ms, tuple(self.logs.values()), self.channels
        waiting = channels.waiting > 0 and (ms is None or has_rows(channels.channels, ms))
        # Rows are looked for first: whether inputs are idle is asked of all tasks upstream, and most tasks have nothing to do.
        if not (waiting or has_rows(logs, ms) or self.deliveries or self.must_start):
            return False
        return all(i.has_rows or i.idle_with(known) for i in logs) and channels.rows_or_idle(known) and self._has_room

    @property
    def sleeps(self) -> bool:
        """It cannot run before one of its inputs gets rows: it has none, and neither timers nor calls that end will give it any."""
        return not (
            self.channels.waiting
            or self.deliveries
            or self.program.due_ms is not None
            or any(i.queue for i in self.logs.values())
            or self.status is TaskStatus.RESTORING
            or self.must_start
            or self.holds_rows
        )

    def on_rows(self, wake: Callable[[], object]) -> None:
        """Calls this whenever rows were added to an input. Any thread may add them."""
        self._wake = self.channels.wake = wake
        for i in self.logs.values():
            i.wake = wake

    def deliver(self, delivery: Delivery) -> None:
        """To be taken by the thread that holds the task. Any thread."""
        self.deliveries.append(delivery)
        self._wake()

    @property
    def _has_room(self) -> bool:
        return not self.downstream.full and self._publisher.has_room(self)

    @property
    def is_due(self) -> bool:
        """A timer of its program is due. While its query is to stop at a read-up-to time, only for rows that were taken before."""
        due_ms = self.program.due_ms
        if due_ms is None or self.status is TaskStatus.RESTORING:
            return False
        if self.read_up_to.ms is not None and not self.holds_rows:
            return False
        return not self._ticked_at_ms <= self._wall_ms() < due_ms

    def _wall_ms(self) -> int:
        """That of the tick, wherever the task runs: clocks of members differ."""
        return self._clock.wall_ms() if (tick_ms := self.tick_ms) is None else tick_ms

    @property
    def holds_rows(self) -> bool:
        """Whether rows wait in its operators, or may do so. Any thread may ask."""
        waiting = self.program.waiting
        return bool(waiting) and any(not f.is_known or f.rows for f in waiting)

    @property
    def inputs(self) -> dict[str, LogInput | ExchangeInput]:
        return {**self.logs, **self.exchanges}

    @property
    def idle(self) -> bool:
        """Nothing is buffered and nothing more is known to exist. A task that is restored does not know yet.

        With a read-up-to time: nothing up to it. In a tick: no timer is due before its end. A task that publishes is not idle. Any thread.
        """
        return self.idle_with(Known())

    def idle_with(self, known: Known) -> bool:
        """As `idle`. known: the tasks that are asked already. Each is asked once: there are as many ways to one as partitions per stage."""
        found = known.get(self.id)
        if found is None:
            # Publishing begins before the input is consumed, and ends when the output is where the next task finds it.
            found = known[self.id] = self._is_idle(known) and not self._publishing
        return found

    def _is_idle(self, known: Known) -> bool:
        if self.status is TaskStatus.RESTORING:
            return False
        ms = self.read_up_to.ms
        for i in tuple(self.logs.values()):
            if not (i.idle_with(known) or beyond(i, ms)):
                return False
        if not self.channels.idle_with(known, ms):
            return False
        return not (self.must_start or self.holds_rows or (self.tick_ms is not None and self.is_due))

    @property
    def must_start(self) -> bool:
        """Its program has results of no rows, and has not given them. Any thread may ask; that it has started never changes."""
        if self._has_started or not self.program.starts or self.status is TaskStatus.RESTORING:
            return False
        self._has_started = STARTED in self.state.metadata
        return not self._has_started

    def become(self, status: TaskStatus) -> None:
        """Only to where its status may go."""
        self.status = self.status.to(status)

    def process(self, budget_ns: int, begins: Begins = not_noted) -> int:
        """Runs until the budget is spent or input is exhausted; at least one run. Returns rows processed.

        begins: called before each micro-batch.
        """
        start, rows, ticked = self._clock.cost_ns(), 0, False
        while self.runnable:
            if rows and self._clock.cost_ns() - start >= budget_ns:
                break
            begins((self,))
            measured = self.measure()
            if self.must_start:
                rows += self._start()
                continue
            if self.is_due and not (
                ticked and self._takes_input(Known())
            ):  # in turns: calls that end must not keep others from being begun
                rows, ticked = rows + self._tick(), True
                continue
            ticked = False
            if self.deliveries:
                rows += self._deliver(self.deliveries.popleft())
                continue
            done = self._run(self.rows_max(budget_ns))
            if done is None:
                break
            measured(done)
            rows += done
        return rows

    def measure(self) -> Callable[..., None]:
        """A micro-batch begins. Returns what to call with the number of its rows, and of its tasks, when it has ended."""
        cpu, wall = self._clock.cpu_ns(), self._clock.cost_ns()

        def ended(rows: int, tasks: int = 1) -> None:
            # A function that sleeps costs no processor time, and would be given ever more rows to sleep over.
            waited = (self._clock.cost_ns() - wall) // WAIT_FACTOR
            self.sizer.learn(rows, max(self._clock.cpu_ns() - cpu, waited), tasks)

        return ended

    def rows_max(self, budget_ns: int) -> int:
        """The rows of the next micro-batch, at most."""
        rows, room = self._config.rows_per_run or self.sizer.rows(budget_ns), self.program.room
        return rows if room is None else min(rows, room)

    @property
    def joins(self) -> bool:
        """Whether its next micro-batch may be processed together with those of other tasks (`flowql.runtime.task.cohort`).

        It runs alone while it has much to do or other things, and while records that failed are looked for.
        """
        return (
            self.program.joins
            and self.status is not TaskStatus.RESTORING
            and self.check is None
            and self.read_up_to.ms is None
            and self._limit.is_open
            and self.buffered_rows < (self._config.rows_per_run or self.sizer.chosen)
            and not (self.deliveries or self.is_due or self.must_start)
        )

    def _run(self, rows_max: int) -> int | None:
        """One run; None when the inputs have nothing to give yet. What fails for its values is isolated (`flowql.runtime.task.isolate`)."""
        fused = self.program.fused and self.read_up_to.ms is None and not any(i.decoded for i in self.logs.values())
        attempt = self._run_raw if fused else self._run_decoded
        self._tried = 0  # known when its rows are
        try:
            with run_of(lambda: self._tried):
                done = attempt(self._limit.of(rows_max), None)
        except RunTooLong as error:
            self.state.discard()
            self._check_revoked(error)
            self._limit.one_by_one()
            return self._run(rows_max)
        except VALUE_ERRORS as error:
            self.state.discard()
            self._check_revoked(error)
            return self._run(rows_max) if self._limit.failed(self._tried) else self._leave_out(attempt, error)
        except BaseException:
            self.state.discard()
            raise
        self._limit.succeeded(rows_max)
        return done

    def _check_revoked(self, error: Exception) -> None:
        """Raises BatchRevoked if state was dropped during the micro-batch, which may have caused the error."""
        if self.state.revoked:
            raise BatchRevoked(f"task {self.id} was sent back to the last commit while it ran") from error

    def _leave_out(self, attempt: Attempt, error: Exception) -> int | None:
        """The next record becomes a dead letter, and all that is published of it."""
        try:
            return attempt(1, error)
        except BaseException:
            self.state.discard()
            raise

    def _start(self) -> int:
        """The first micro-batch of a task, without input: the results of aggregates over no rows."""
        metadata = self.state.metadata
        try:
            run = self._context(metadata)
            outputs = self.program.start(run)
            dead = each_once([LocatedDeadLetter(d, None) for d in run.dead_letters])  # rows of VALUES may fail
            with self._publication():
                self.state.publish({**self._after(metadata, run, dead), STARTED: True})
                self._publisher.publish(self, MicroBatchResult(outputs, dead, 0, run.late, by_row=run.by_row))
        except BaseException:
            self.state.discard()
            raise
        return 1

    def _tick(self) -> int:
        """A run without input rows, for timers that are due and rows that have waited. Of rows that fail together fewer go on at a time, down
        to one, which becomes a dead letter.
        """
        metadata = self.state.metadata
        run = self._context(metadata)
        run.retire_max, self._ticked_at_ms = self._retire_limit.of(RETIRED_MAX), run.wall_ms
        try:
            return self._ticked(metadata, run)
        except VALUE_ERRORS as error:
            self.state.discard()
            self._check_revoked(error)
            if not run.retired:
                raise
            if self._retire_limit.failed(len(run.retired)):
                return self._tick()
            refusing = self._context(metadata)
            refusing.retire_max, refusing.refused = 1, letter_of(error)
            return self._ticked(metadata, refusing)
        except BaseException:
            self.state.discard()
            raise

    def _ticked(self, metadata: Mapping[str, Any], run: MicroBatchContext) -> int:
        outputs = self.program.tick(run)
        if self.check is not None:
            self.check(self, outputs)
        if not outputs and not run.wants_commit and not run.dead_letters and run.timers == metadata.get(TIMERS, {}):
            self.state.discard()
            return 1
        dead = each_once([locate_retired(d, run.retired) for d in run.dead_letters])
        with self._publication():
            self.state.publish(self._after(metadata, run, dead))
            self._publisher.publish(self, MicroBatchResult(outputs, dead, 0, run.late, run.wants_commit, run.by_row))
        self._retire_limit.succeeded(RETIRED_MAX)
        return max(1, len(run.retired))

    def _deliver(self, delivery: Delivery) -> int:
        """A micro-batch of rows that do not come from an input. If one fails, none is delivered."""
        self.is_delivering = True  # first: from here on the request cannot be taken back
        try:
            return self._delivered(delivery) if delivery.done.set_running_or_notify_cancel() else 1
        finally:
            self.is_delivering = False

    def _delivered(self, delivery: Delivery) -> int:
        metadata, rows = self.state.metadata, len(delivery.batch)
        try:
            outputs, run = self._execute({delivery.operator: delivery.batch}, self._context(metadata))
            if run.dead_letters:
                raise RuntimeFailure(f"{self.id.query}: {run.dead_letters[0].message}")
            with self._publication():
                self.state.publish(self._after(metadata, run, ()))
                delivery.mark()
                self._publisher.publish(self, MicroBatchResult(outputs, [], 0, run.late, run.wants_commit, run.by_row))
        except Exception as error:
            self.state.discard()
            delivery.done.set_exception(error)
            return rows
        known = [ms for name, ms in metadata.get("stream_times", {}).items() if not name.endswith("#due")]
        older = int((delivery.batch.rowtime < max(known)).sum()) if known else 0
        delivery.done.set_result(DeliveryResult(rows, sum(run.late.values()), older))
        return rows

    def _context(self, metadata: Mapping[str, Any], taken: Sequence[InputSlice] = ()) -> MicroBatchContext:
        origins = origins_of(taken)
        return MicroBatchContext(
            origins=origins,
            records=records_of(taken, origins),
            wake=self._publisher.wake,
            state=self.state,
            stream_times=dict(metadata.get("stream_times", {})),
            watermarks=dict(metadata.get(WATERMARKS, {})),
            timers=dict(metadata.get(TIMERS, {})),
            held=dict(metadata.get(HELD, {})),
            partition=self.id.partition,
            wall_ms=self._wall_ms(),
            coalesce=False,
            vector=self._config.vector,
            ticks=self._config.ticks,
        )

    def _run_raw(self, rows_max: int, bad: Exception | None) -> int | None:
        (source,) = self.logs.values()
        head, start = source.head(), source.skipped
        if head is None:
            return None
        rows = even_share(source.raw_rows(head, start), rows_max)
        if not rows:
            return None
        self._tried = rows
        part = head if rows == head.records.num_rows else records_between(head, start, rows)
        metadata = self.state.metadata
        run = self._context(metadata)
        if bad is None:
            outputs = self.program.execute_raw(part, run)
            if self.check is not None:
                self.check(self, outputs)
        else:
            outputs = []
            run.fail_row(0, *letter_of(bad))
        dead = each_once([LocatedDeadLetter(d, part, d.seq) for d in run.dead_letters])
        with self._publication():
            source.consume_raw(rows)
            self.state.publish(self._after(metadata, run, dead))
            self._publisher.publish(self, MicroBatchResult(outputs, dead, rows, run.late, by_row=run.by_row))
        return rows

    def _run_decoded(self, rows_max: int, bad: Exception | None) -> int | None:
        taken = self.take(rows_max, Known())
        self._tried = taken.rows
        if not taken.slices or (bad is not None and taken.ends != self._tried_ends):
            return None  # of an input that was empty a row has come that is first: it has not failed
        self._tried_ends = taken.ends
        if bad is None:
            outputs, run = self._execute(taken.batches, taken.context())
        else:
            outputs, run = self._execute_without(taken.batches, taken.context, bad)
        self.publish(taken, run, outputs)
        return max(1, self._tried)

    def take(self, rows_max: int, known: Known) -> Taken:
        """The rows of the next micro-batch, which stay buffered. known: tasks that are asked already (`idle_with`)."""
        slices, metadata = self._take(rows_max, known), self.state.metadata
        return Taken(slices, by_operator(slices), metadata, partial(self._context, metadata, slices))

    def publish(self, taken: Taken, run: MicroBatchContext, outputs: list[Output]) -> None:
        """A micro-batch has ended: the epoch gets its results, and its rows leave the inputs."""
        dead = [locate(d, taken.slices, run.origins) for d in run.dead_letters]
        with self._publication():
            for name, end in taken.ends.items():
                dead += self._consume(name, end)
            dead = each_once(dead)
            self.state.publish(self._after(taken.metadata, run, dead))
            own = {n for n, i in self.logs.items() if i.channel is None}
            source_rows = sum(len(t.seq) for t in taken.slices if t.input in own)
            self._publisher.publish(
                self, MicroBatchResult(outputs, dead, source_rows, run.late, run.wants_commit, run.by_row)
            )

    def _execute(self, batches: Mapping[str, Batch], run: MicroBatchContext) -> tuple[list[Output], MicroBatchContext]:
        outputs = self.program.execute(batches, run) if batches else []
        if self.check is not None:
            self.check(self, outputs)
        return outputs, run

    def _execute_without(
        self, batches: Mapping[str, Batch], context: Callable[[], MicroBatchContext], bad: Exception
    ) -> tuple[list[Output], MicroBatchContext]:
        """A record that failed alone. Of a change the values before still leave, unless that fails, too."""
        outputs, run = list[Output](), context()
        if old := withdrawals(batches):
            try:
                outputs, run = self._execute(old, context())
            except VALUE_ERRORS:
                self.state.discard()
        for seq in failing(batches):
            run.fail_row(seq, *letter_of(bad))
        return outputs, run

    def _after(
        self, metadata: Mapping[str, Any], run: MicroBatchContext, dead: Sequence[LocatedDeadLetter]
    ) -> dict[str, Any]:
        """Its metadata after a run, with what is lost with this run and before. The epoch lock is held."""
        letters = dead_letters.records_of(dead)
        lost = with_micro_batch(self.losses, run.late, run.behind, run.stream_times, letters, run.looks)
        marks = {WATERMARKS: run.watermarks, TIMERS: run.timers, HELD: run.held, PARTITIONERS: run.partitioners}
        made = {"stream_times": run.stream_times, **marks, LOST: lost}
        return {**metadata, **self.progress, **{name: value for name, value in made.items() if value}}

    @contextmanager
    def _publication(self) -> Iterator[None]:
        """The epoch lock, while input is consumed and output published: all of it, or nothing of its query is committed any more."""
        with self._publisher.lock():
            self._publishing = True
            try:
                yield
            except BatchRevoked:  # all that the task has done since the last commit is dropped
                raise
            except BaseException as error:
                self._publisher.broke(self, error)
                if not isinstance(error, Exception):
                    raise
                raise BatchRevoked(
                    f"a run of {self.id} could not be published: {type(error).__name__}: {error}"
                ) from error
            finally:
                self._publishing = False

    def take_latency_samples(self) -> list[tuple[int, int]]:
        """(ms since when it was known, how many) of what runs have used up since the last call. The epoch lock is held."""
        return [k for i in self.logs.values() for k in i.take_latency_samples()] + self.channels.take_latency_samples()

    @property
    def losses(self) -> Mapping[str, Any]:
        """Rows that it did not use since its generation began: see `flowql.runtime.task.lost`. Any thread may ask."""
        found: Mapping[str, Any] = self.state.metadata.get(LOST, {})
        return found

    @property
    def positions(self) -> dict[str, int]:
        return {i.name: i.position for i in self.logs.values()}

    @property
    def progress(self) -> dict[str, Any]:
        """Marks and positions, for its metadata. within: rows of a repartition's record that are processed, where it is not all."""
        channels = [i for i in self.logs.values() if i.channel is not None]
        within = {"within": {i.name: i.rows_within for i in channels if i.rows_within}} if channels else {}
        return {**self.marks, "positions": self.positions, **within, **known_times(self.logs.values())}

    def _take(self, rows_max: int, known: Known) -> list[InputSlice]:
        """The rows of the next micro-batch, in merged order."""
        ms = self.read_up_to.ms  # read before `more_to_come`: it only ever grows
        channels = list(self.exchanges)
        more = {n: i.more_to_come for n, i in self.logs.items()}  # before peeking: later arrivals are later input
        more |= {channels[n]: is_more for n, is_more in self.channels.to_merge(known).items()}
        inputs = {n: self.logs[n] if n in self.logs else self.exchanges[n] for n in more}
        every = {n: i.decode_next(partial(self.program.decode, i.operator, self.state)) for n, i in self.logs.items()}
        decoded = {n: s for n, s in every.items() if s is not None}
        passed = [
            InputSlice(n, self.logs[n].operator, s.cursor, NOTHING)
            for n, s in decoded.items()
            if s.cursor == len(s.batch)
        ]
        if passed:  # batches of bad records only: consumed first, as later rows may have earlier times
            return passed
        enough, tables = self.channels.enough(rows_max), self._is_table
        while True:
            peeked = {n: i.peek(rows_max + 1, enough) for n, i in inputs.items()}
            is_open = {n: more[n] or f.more for n, f in peeked.items()}
            sides = [side_of(f.rowtime, tables[inputs[n].operator], ms, open_=is_open[n]) for n, f in peeked.items()]
            order = merge_order(sides, rows_max)
            if enough > rows_max or 2 * sum(map(len, order)) >= rows_max or not ends_peeked(peeked.values(), order):
                break
            enough *= 4
        if ends_in_a_pair(list(peeked.values()), order):
            order = merge_order(sides, rows_max + 1)
        return [
            InputSlice(n, inputs[n].operator, decoded[n].cursor if n in decoded else 0, seq, f, decoded.get(n))
            for (n, f), seq in zip(peeked.items(), order, strict=True)
            if len(seq)
        ]

    def _consume(self, name: str, cursor: int) -> list[LocatedDeadLetter]:
        source = self.logs.get(name)
        if source is None:
            self.exchanges[name].consume(cursor)
            return []
        raw = source.queue[0]
        return [LocatedDeadLetter(d, raw, d.seq) for d in source.consume(cursor)]

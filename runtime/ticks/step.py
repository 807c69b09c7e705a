"""Reads and writes the topic of ticks, in the thread of the placement: lines from the leader, reports to it; and at the leader its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress

from flowql.runtime.clock import Clock
from flowql.runtime.errors import LogError, LogUnavailable, OffsetOutOfRange
from flowql.runtime.log.base import Admin, Log, Producer, Reader, TopicPartition
from flowql.runtime.state.changelog import records_of
from flowql.runtime.task.id import TaskId
from flowql.runtime.ticks.course import Course
from flowql.runtime.ticks.member import MemberTicks
from flowql.runtime.ticks.record import LINES, REPORT, TOPIC, Ends, Lines, Report, tick_topic

INTERVAL_MS = 100  # between two ticks
BUSY_MS, BUSY_FOR_MS = 10, 1_000  # between two looks, and how long after the last record
LOOK_MS = 50  # between two looks else
_READ_ROWS, _READ_BYTES = 10_000, 1 << 24
_LOOK_BACK = 1_000  # records before those that were read, in which the last lines are looked for first

Reads = Mapping[TaskId, frozenset[TopicPartition]]
Answer = Future[dict[TopicPartition, int]]


class TickStep:
    """Owned by the thread of the placement. reads: all tasks of the plan, wherever they run, and what they read; replaced as a whole."""

    def __init__(
        self, log: Log, application_id: str, clock: Clock, ticks: MemberTicks, reads: Callable[[], Reads]
    ) -> None:
        self._log, self._clock, self._ticks, self._reads = log, clock, ticks, reads
        self._admin: Admin = log.admin()
        self._tp = tick_topic(application_id)
        self._reader: Reader | None = None
        self._newest = 0  # number of a tick that was ever read, or that a member has seen
        self._begun_at = 0  # the reader's first offset
        self._reports: list[Report] = []
        self._is_new = True
        self._busy_until_ms = 0
        self._course: Course | None = None
        self._made_of: tuple[Producer, Reads] | None = None  # what the course is of
        self._tick_at_ms = 0
        self._ends: Answer | None = None  # of the sources, for a tick
        self._written: dict[str, tuple[Answer, tuple[TopicPartition, ...]]] = {}  # of stages that have finished a tick

    def run_once(self, now_ms: int, writer: Producer | None) -> int | None:
        """writer: of the leader; None at another member. When to be called again; None: at any time. Fenced, LogError."""
        if not self._ticks.stages:
            self._course = self._made_of = None
            return None
        self._open()
        self._read()
        if writer is not None:
            self._lead(writer, now_ms)
        else:
            self._course = self._made_of = self._ends = None
            self._written = {}
        self._reports.clear()
        self._tell(now_ms)
        waits = self._ends is not None or bool(self._written)
        return BUSY_MS if waits or now_ms < self._busy_until_ms else LOOK_MS

    def _open(self) -> None:
        if self._reader is None:
            self._admin.create_topic(self._tp.topic, 1, TOPIC)
            self._begun_at = self._admin.written_offset(self._tp)
            self._reader, self._is_new = self._log.reader(self._tp, self._begun_at), True

    def _read(self, *, to_end: bool = False) -> None:
        assert self._reader is not None
        end = self._admin.written_offset(self._tp) if to_end else 0
        read = self._reader.read if to_end else self._reader.take
        try:
            while (batch := read(_READ_ROWS, _READ_BYTES)) is not None:
                keys, values = (batch.records.column(name).to_pylist() for name in ("key", "value"))
                for key, value in zip(keys, values, strict=True):
                    self._take(key, value or b"")
        except OffsetOutOfRange:  # this member was away for longer than records are kept
            self._reader.close()
            self._reader = None
            raise
        if self._reader.position < end:
            raise LogUnavailable(f"{self._tp}: offset {end - 1} is not visible yet")

    def _take(self, key: bytes, value: bytes) -> None:
        """Ignores records that it cannot read: they are of another version."""
        self._busy_until_ms = self._clock.timer_ms() + BUSY_FOR_MS
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            if key == LINES:
                lines = Lines.decode(value)
                self._newest = max(self._newest, lines.newest)
                self._ticks.learn(lines)
            elif key == REPORT:
                self._reports.append(Report.decode(value))

    def _newest_before(self, end: int) -> int:
        """The number in the last lines before an offset; 0 if the topic has none."""
        begin, start, span, newest = self._admin.begin_offset(self._tp), end, _LOOK_BACK, 0
        while not newest and start > begin:
            start, span = max(begin, end - span), span * 8
            with closing(self._log.reader(self._tp, start)) as reader:
                while reader.position < end and (batch := reader.read(_READ_ROWS, _READ_BYTES)) is not None:
                    keys, values = (batch.records.column(name).to_pylist() for name in ("key", "value"))
                    for value in (v for k, v in zip(keys, values, strict=True) if k == LINES):
                        with suppress(ValueError, TypeError, LookupError, AttributeError):
                            newest = max(newest, Lines.decode(value or b"").newest)
        return newest

    def _tell(self, now_ms: int) -> None:
        report = Report(is_new=True) if self._is_new else self._ticks.report()
        if report is None:
            return
        try:
            self._log.append(self._tp, records_of([REPORT], [report.encode()], self._clock.wall_ms()))
        except LogError:
            self._ticks.unsaid(report)
            raise
        self._is_new, self._busy_until_ms = False, now_ms + BUSY_FOR_MS

    # -- the leader

    def _lead(self, writer: Producer, now_ms: int) -> None:
        reads = self._reads()
        if self._made_of is None or self._made_of[0] is not writer or self._made_of[1] is not reads:
            self._read(to_end=True)  # all that the last leader has written
            self._newest = self._newest or self._newest_before(self._begun_at)
            by_sub: dict[tuple[str, int], dict[str, frozenset[TopicPartition]]] = {}
            for task, tps in reads.items():
                by_sub.setdefault((task.query, task.subtopology), {})[str(task)] = tps
            # Members ignore numbers below those that they have seen. The topic may keep none of these: there is at most one tick in 100 ms.
            self._newest = max(self._newest, self._clock.wall_ms())
            stages = self._ticks.stages
            counts = self._admin.partition_counts(sorted({topic for stage in stages for topic in stage.writes}))
            self._course = Course(stages, by_sub, self._newest, counts, self._clock.timer_ms)
            self._made_of, self._ends, self._written, self._reports = (writer, reads), None, {}, []
        course = self._course
        assert course is not None, "made above"
        for report in self._reports:
            course.wants_tick |= report.has_more
            course.take(report.done)
        if (seen := max((r.newest for r in self._reports), default=0)) > course.newest:
            self._newest, self._made_of = seen, None  # the next call begins above it
            return
        self._learn_written(course)
        self._draw(course, now_ms)
        news = course.news(everything=any(r.is_new for r in self._reports))
        if news is not None:
            writer.begin()
            writer.send(self._tp, records_of([LINES], [news.encode()], self._clock.wall_ms()))
            writer.commit()

    def _learn_written(self, course: Course) -> None:
        for name, tps in course.to_ask().items():
            if name not in self._written:
                self._written[name] = self._admin.ask_written_offsets(tps), tps
        for name, (answer, tps) in list(self._written.items()):
            if answer.done():
                del self._written[name]
                ends: Ends = answer.result()
                if all(tp in ends for tp in tps):
                    course.learn(name, ends)

    def _draw(self, course: Course, now_ms: int) -> None:
        if self._ends is None and course.wants_tick and now_ms >= self._tick_at_ms:
            self._tick_at_ms = now_ms + INTERVAL_MS
            self._ends = self._admin.ask_end_offsets(course.sources)
        if self._ends is not None and self._ends.done():
            answer, self._ends = self._ends, None
            course.draw(answer.result(), max(self._clock.wall_ms(), course.wall_ms))

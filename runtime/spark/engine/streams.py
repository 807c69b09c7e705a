"""One query of an instance: what is being done for it now, how it failed, when it is tried again. No pyspark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.errors import KeysMisplaced
from flowql.runtime.events import ERROR, say
from flowql.runtime.spark.engine.causes import cause_of, runtime_failure
from flowql.runtime.spark.engine.deployed import Record
from flowql.runtime.spark.log_offsets import Offsets

BACKOFF_MS_MIN, BACKOFF_MS_MAX = 500, 30_000
STARTING_MS_MAX = 10_000  # so long Spark waits for a Python process
# waiting: its turn has not come. done: what there was is processed. failed: waits for its restart. error: given up.
State = Literal["waiting", "running", "done", "failed", "error"]


class Stream(Protocol):
    """The used part of `pyspark.sql.streaming.StreamingQuery`."""

    @property
    def isActive(self) -> bool: ...

    @property
    def status(self) -> dict[str, Any]: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


@dataclass(slots=True)
class RunningQuery:
    """A deployed query. Changed by the supervising thread alone; others read.

    errors: failures since the instance was opened. consecutive: without a batch in between; epoch: the log's when it last failed.
    begun_ms: when its stream was started, while its first trigger lasts. waits_for: queries that are to read first, in their order, None
    before it is known; ends: of what the first of them reads; look_at_ms: when it is looked at again (`upstream`).
    """

    plan: QueryPlan
    record: Record | None = None
    state: State = "waiting"
    stream: Stream | None = None
    errors: int = 0
    consecutive: int = 0
    epoch: int = -1
    resume_at_ms: int = 0
    paused: bool = False
    last_error: str = ""
    begun_ms: int | None = None
    waits_for: list[str] | None = None
    ends: Offsets | None = None
    look_at_ms: int = 0

    @property
    def is_idle(self) -> bool:
        """Its stream has found nothing more to read."""
        if self.stream is None:
            return False
        status = self.stream.status
        return str(status["message"]).startswith("Waiting") and not status["isDataAvailable"]

    @property
    def finished(self) -> bool:
        """There is nothing more to do for it in a run that ends."""
        return self.paused or self.state in ("done", "error")

    def due(self, now_ms: int) -> bool:
        """It may be started."""
        if self.paused:
            return False
        return self.state == "waiting" or (self.state == "failed" and now_ms >= self.resume_at_ms)

    def started(self, stream: Stream | None, now_ms: int) -> None:
        self.stream, self.state, self.begun_ms = stream, "running", now_ms

    def is_starting(self, now_ms: int) -> bool:
        """Its Python processes may not answer yet: it has neither read input nor found it empty."""
        if self.stream is None or self.begun_ms is None:
            return False
        if now_ms - self.begun_ms >= STARTING_MS_MAX or str(self.stream.status["message"]).startswith("Waiting"):
            self.begun_ms = None
        return self.begun_ms is not None

    def ended(self) -> None:
        """It has done what there was."""
        self.stream, self.state, self.consecutive = None, "done", 0

    def again(self) -> None:
        """Its turn comes once more."""
        if self.state != "error":
            self.stream, self.state, self.waits_for, self.ends = None, "waiting", None, None

    def failed(self, error: BaseException, now_ms: int, epoch: int, *, tries_max: int | None) -> None:
        """Try again later, each time twice as long, or give it up. epoch: how far its results are in the log."""
        self.consecutive = 1 if epoch > self.epoch else self.consecutive + 1
        self.epoch = max(epoch, self.epoch)
        self.errors += 1
        self.last_error = cause_of(error)
        self.stream = None
        given_up = tries_max is not None and self.consecutive >= tries_max
        self.state = "error" if given_up or isinstance(runtime_failure(error), KeysMisplaced) else "failed"
        self.resume_at_ms = now_ms + min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(self.consecutive - 1, 10))
        say(ERROR, "query.failed", self.last_error, query=self.plan.id, failures=self.consecutive)

    def given_up(self, error: BaseException) -> None:
        """It cannot be started as it is."""
        self.errors += 1
        self.last_error, self.state = cause_of(error), "error"

    def halt(self) -> None:
        """Stop what runs; it can go on later."""
        if self.stream is not None:
            self.stream.stop()
        self.stream = None

"""Threads: the only place that starts any. Each merely repeats the `run_once` of one step."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_stack
from typing import Protocol

from flowql.runtime.app.allocator import keep_memory
from flowql.runtime.app.beat_file import Slot
from flowql.runtime.app.watchdog import Watchdog
from flowql.runtime.clock import Clock

WAIT_MS_MAX = 200
RARE_WAIT_MS_MAX = 1_000  # of threads that no other thread gives work
STOP_S = 30.0
FRAMES_MAX = 6  # innermost calls of a thread that are shown
# How soon a busy thread gives way to one that waits for the interpreter lock. Python's default is best for a query alone: an aggregate of
# 500,000 keys at saturation does 39,400 records/s with it, 34,400 with 0.5 ms and 32,200 with 0.1 ms, and the latency of one at 5,000 or
# 20,000 records/s is no higher. Beside others a commit or a critical query would wait too often and too long with more than 0.1 ms.
SWITCH_ALONE_S, SWITCH_SHARED_S = 0.005, 0.0001
_NAME_PREFIX, _NAME_BYTES_MAX = "fq-", 15  # Linux keeps 15 bytes of a thread's name
_PR_SET_NAME = 15  # prctl(2)
NO_SLOTS: Mapping[str, Slot] = {}
GC_THRESHOLD = 50_000  # rows in flight are young garbage that reference counts free; collect cycles less often


class Step(Protocol):
    """One loop. Returns ms until it wants to run again (0: made progress); never blocks."""

    def run_once(self, now_ms: int) -> int:
        """now_ms: the timer of the clock port, which never jumps."""
        ...


@dataclass(frozen=True, slots=True)
class NamedStep:
    """A step, its thread's name and how to wait between two rounds. wait_ms_max: the longest wait, whatever the step asks for."""

    name: str
    step: Step
    wait: Callable[[float], object]
    wake: Callable[[], None]
    wait_ms_max: int = WAIT_MS_MAX


def named(name: str, step: Step, *, wait_ms_max: int = WAIT_MS_MAX) -> NamedStep:
    """A step that waits on its own event."""
    event = threading.Event()

    def wait(seconds: float) -> None:
        event.wait(seconds)
        event.clear()

    return NamedStep(name, step, wait, event.set, wait_ms_max)


def share_interpreter(queries: int) -> None:
    """Tune how the interpreter lock is shared to the number of queries that run."""
    sys.setswitchinterval(SWITCH_SHARED_S if queries > 1 else SWITCH_ALONE_S)


def collect_less() -> None:
    """Collect cycles less often, and without what is loaded by now, until `collect_all`."""
    gc.collect()
    gc.freeze()  # what the program loaded lives for ever: no use in visiting it at every collection
    gc.set_threshold(GC_THRESHOLD)


def collect_all() -> None:
    """Collects again the objects that `collect_less` left out: native modules complain at exit of objects that were never freed."""
    gc.unfreeze()


def name_thread(name: str) -> None:
    """Names the calling thread for `top -H` and `ps -L`: `fq-polling`. Python does so itself from 3.14 on, without the prefix. Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"{_NAME_PREFIX}{name}".encode()[:_NAME_BYTES_MAX], 0, 0, 0)


class ThreadGroup:
    """The threads of an instance. A step that raises stops its thread and is reported through `on_death`.

    watchdog: learns of each round. slots: by step, where its rounds are noted for other processes.
    """

    def __init__(
        self,
        steps: list[NamedStep],
        clock: Clock,
        on_death: Callable[[str, BaseException], None],
        watchdog: Watchdog | None = None,
        slots: Mapping[str, Slot] = NO_SLOTS,
    ) -> None:
        self._slots = slots
        self._steps, self._clock, self._on_death = steps, clock, on_death
        self._rounds = watchdog.rounds if watchdog is not None else {}
        if watchdog is not None:
            watchdog.where = self.where
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(s,), name=s.name, daemon=True) for s in steps]

    def start(self) -> None:
        """Start all threads, and tune the interpreter they share."""
        collect_less()
        keep_memory()
        for t in self._threads:
            t.start()

    def stop(self, timeout_s: float = STOP_S) -> list[str]:
        """Ask all threads to end; names of those that did not in time (a function that hangs). Never longer than `timeout_s`."""
        self._stopping.set()
        for s in self._steps:
            s.wake()
        limit_ns = self._clock.cost_ns() + int(timeout_s * 1e9)
        for t in self._threads:
            if t.is_alive() and t is not threading.current_thread():
                t.join(max(0.0, (limit_ns - self._clock.cost_ns()) / 1e9))
        collect_all()
        return [t.name for t in self._threads if t.is_alive()]

    def where(self, name: str) -> str:
        """The code that a thread is in just now, the innermost call last."""
        frame = next((sys._current_frames().get(t.ident) for t in self._threads if t.name == name and t.ident), None)
        calls = extract_stack(frame, FRAMES_MAX) if frame is not None else []
        return " > ".join(f"{Path(c.filename).name}:{c.lineno} {c.name}" for c in calls)

    def _loop(self, named_step: NamedStep) -> None:
        name_thread(named_step.name)
        try:
            while not self._stopping.is_set():
                wait_ms = self._round(named_step, self._clock.timer_ms(), self._slots.get(named_step.name))
                if wait_ms > 0:
                    named_step.wait(min(wait_ms, named_step.wait_ms_max) / 1000)
        except BaseException as error:  # whatever it is: the instance must learn that a thread is gone
            self._on_death(named_step.name, error)

    def _round(self, named_step: NamedStep, now_ms: int, slot: Slot | None) -> int:
        self._rounds[named_step.name] = now_ms
        if slot is not None:
            slot.begin_round(threading.get_ident(), threading.get_native_id())
        try:
            return named_step.step.run_once(now_ms)
        finally:
            if slot is not None:
                slot.end_round()
            self._rounds.pop(named_step.name, None)

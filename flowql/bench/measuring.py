"""The measurements of one benchmark run: its figures, and the process tree that they are taken of."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import psutil


@dataclass(frozen=True, slots=True)
class Figure:
    """One query's measurement. events: records read. cpu_s and rss_mb (peak) are of the whole process tree."""

    query: str
    engine: str
    log: str
    events: int
    seconds: float
    events_per_s: int
    cpu_s: float
    rss_mb: int


def touched_memory(gigabytes: float) -> object:
    """Allocates and touches memory; when the caller drops it, the machine has free pages for the measurement.

    The host of a virtual machine may supply a page only when it is first used, which took 2.7 s per GB on one machine, longer than queries
    that fill it; and unused pages go back to the host after 2 s.
    """
    return np.ones(int(gigabytes * (1 << 27)))


class BenchFailed(Exception):
    """The result is wrong, or the run failed; the text has the reason."""


class Stopwatch:
    """Time, processor time and peak memory of this process and its children, from the start of the clock on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = self._cpu = 0.0
        self._peak = 0

    def start(self) -> None:
        self._cpu, self._start = self._cpu_s(), time.perf_counter()

    @property
    def runs(self) -> bool:
        return self._start > 0

    def sample(self) -> None:
        """Note how much memory is in use."""
        self._peak = max(self._peak, sum(map(_memory, self._tree())))

    def stop(self, query: str, engine: str, events: int, log: str = "embedded") -> Figure:
        seconds = time.perf_counter() - self._start
        self.sample()
        cpu_s = self._cpu_s() - self._cpu
        return Figure(
            query,
            engine,
            log,
            events,
            round(seconds, 3),
            int(events / seconds),
            round(cpu_s, 2),
            self._peak >> 20,
        )

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_s(self) -> float:
        """The processor seconds of processes that live now: workers are kept from one job to the next."""
        return sum(_cpu(p) for p in self._tree())


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:  # a worker that has just ended
        return 0


def _cpu(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:
        return 0.0

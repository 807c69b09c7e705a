"""A process and all that it starts: processor time and memory, as the operating system tells them, and its end."""

from __future__ import annotations

import contextlib
import subprocess

import psutil

STOP_S = 8.0


class ProcessTree:
    """Keeps the processor time of processes that have ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._root = psutil.Process(process.pid)
        self._cpu_s: dict[int, float] = {}
        self.peak_bytes = 0

    def cpu_s(self) -> float:
        """User and system time so far; also takes note of the memory in use."""
        memory = 0
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                self._cpu_s[process.pid] = max(self._cpu_s.get(process.pid, 0.0), times.user + times.system)
                memory += process.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, memory)
        return sum(self._cpu_s.values())

    def stop(self) -> None:
        """Ask the process to end, then end it and its children, each by its number."""
        members = self._members()
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        for process in members:
            with contextlib.suppress(psutil.Error):
                process.kill()  # checks that the number still is that of the same process
        self._process.wait(STOP_S)

    def _members(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self._root, *self._root.children(recursive=True)]
        return []

"""The part of `status` that describes the process of an instance, for each engine."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

import psutil


def process_metrics() -> dict[str, Any]:
    """How long the process runs, its processor time and memory."""
    process = _process(os.getpid())
    with process.oneshot():
        cpu = process.cpu_times()
        return {
            "uptime_s": round(time.time() - process.create_time(), 1),
            "cpu_s": round(cpu.user + cpu.system, 2),
            "memory_bytes": process.memory_info().rss,
        }


@cache
def _process(pid: int) -> psutil.Process:
    """Made once: to make one reads its file in /proc twice, and that of the machine's start."""
    return psutil.Process(pid)

"""`python -m tests.faults.child`, with the library loaded: a process that is ready to live, again and again, each time as a fork of it.

A line on stdin asks for a life: folder, what, kind, at, times, jumps of the clock. Starting Python and its modules takes longer than a life does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.faults import workload
from tests.faults.shim import Shim

LIFE_S_MAX = 200


def main() -> None:
    shim = Shim()
    workload.plan()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(_forked(shim, *json.loads(line))), flush=True)


def _forked(shim: Shim, folder: str, what: str, kind: str, at: int, times: int, jumps_s: list[int]) -> dict[str, Any]:
    """What a life told, or how it ended."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        signal.alarm(LIFE_S_MAX)
        try:
            told = workload.faulty_life(Path(folder), shim, what, kind, at, times, jumps_s)
        except BaseException:
            told = {"wrong": [f"a bug: {traceback.format_exc()}"], "met": shim.met, "seen": shim.seen}
        with os.fdopen(writing, "w") as answer:
            json.dump(told, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    _, status = os.waitpid(process, 0)
    if told:
        return dict(json.loads(told))
    return {"killed": os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)}


if __name__ == "__main__":
    main()

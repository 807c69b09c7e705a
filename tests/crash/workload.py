"""The program that is killed: `python -m tests.crash.workload DIR THREADS`, the project on disk until told that input has ended.

Lines on stdout: `ready`, then `done` after everything up to the file DIR/ended was processed and committed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from flowql.deploy.engine import open_instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from tests.crash.project import compiled


def main(folder: Path, threads: int) -> None:
    started = time.perf_counter()
    instance = open_instance(folder / "log", folder / "state", InstanceConfig(threads=threads))
    before = instance.log.last_sequence("flowql")
    instance.start()
    instance.resume()
    instance.deploy(compiled())
    print("ready", flush=True)
    while instance.metrics.commits == 0 and not (folder / "ended").exists():
        _check(instance.fatal)
        time.sleep(0.002)
    print(f"commit {before} {time.perf_counter() - started:.3f}", flush=True)
    while not (folder / "ended").exists() or not caught_up(instance, source_ends(instance)):
        _check(instance.fatal)
        time.sleep(0.005)
    stuck = instance.stop()
    assert not stuck, stuck
    print("done", flush=True)


def _check(fatal: BaseException | None) -> None:
    if fatal is not None:
        raise fatal


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""The driver that is killed: `python -m tests.crash.cluster_kafka_workload FOLDER`, streams of a project until FOLDER/ended exists and all orders are read.

If FOLDER/staged exists, results of every micro-batch wait for their commit at the address of the target, from where tasks write them into Delta.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.spark.engine import work
from flowql.server.engine import Engine, Mode
from flowql.server.on_spark import open_spark


def main(folder: Path) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if (folder / "staged").exists():
        work.GATHERED_ROWS_MAX_APART = 0
    project = load_project(folder, target="s3")
    modes: tuple[Mode, ...] = (
        "continuous",
        "caught up",
    )  # at the end micro-batches that are in Kafka are in Delta, too
    for mode in modes:
        engine = open_spark(settings_of(project), mode)
        engine.start()
        engine.deploy(compile_sources(project).plan)
        print(mode, flush=True)
        done = engine.catch_up() if mode == "caught up" else partial(_ends, engine, folder)
        while not _is(done):
            if engine.fatal is not None:
                raise engine.fatal
            time.sleep(0.2)
        engine.stop()
    print("done", flush=True)


def _ends(engine: Engine, folder: Path) -> bool:
    """There are no more orders, and all are read."""
    return (folder / "ended").exists() and engine.catch_up()()


def _is(done: Callable[[], bool]) -> bool:
    try:
        return done()
    except LogUnavailable:
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The Spark driver that is killed: `python -m tests.crash.lake_workload DIR`, streams from files into Delta until DIR/ended exists and all is done."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.spark.engine.instance import Mode, SparkInstance
from tests.crash.lake import SQL, settings_in

MODES: tuple[Mode, ...] = ("continuous", "caught up")


def main(folder: Path) -> None:
    plan = compile_project([SourceText("lake.sql", SQL)]).plan
    for mode in MODES:
        instance = SparkInstance(folder / "log", folder / "state", settings_in(folder), "lake", mode=mode)
        instance.start()
        instance.deploy(plan)
        if mode == "caught up":  # to the end of all files, and of what is behind the log
            instance.run_until_caught_up()
        while mode == "continuous" and not (folder / "ended").exists():
            if instance.fatal is not None:
                raise instance.fatal
            time.sleep(0.05)
        instance.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

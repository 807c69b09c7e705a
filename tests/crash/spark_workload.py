"""The Spark driver that is killed: `python -m tests.crash.spark_workload DIR QUERIES exact|native BOOTSTRAP`, streams until DIR/ended exists and all is done.

Says `ready` on stdout when streams run, `done` at the end.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from flowql.deploy.selection import select
from flowql.runtime.spark.engine.instance import SparkInstance
from flowql.runtime.spark.settings import SparkSettings
from tests.crash.project import compiled
from tests.crash.spark import APP, address_of

SETTINGS = SparkSettings(master="local[2]", shuffle_partitions=2)


def main(folder: Path, queries: list[str], streams: Literal["exact", "native"], bootstrap: str) -> None:
    address = address_of(folder, bootstrap)
    instance = SparkInstance(address, folder / "state", replace(SETTINGS, streams=streams), APP)
    instance.start()
    instance.deploy(select(compiled(), queries))
    print("ready", flush=True)
    while not (folder / "ended").exists() or not instance.catch_up()():
        if instance.fatal is not None:
            raise instance.fatal
        time.sleep(0.05)
    instance.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        sys.argv[2].split(",") if sys.argv[2] else [],
        "native" if sys.argv[3] == "native" else "exact",
        sys.argv[4],
    )

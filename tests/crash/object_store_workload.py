"""The driver that is killed: `python -m tests.crash.object_store_workload FOLDER`, streams until FOLDER/ended exists and all files are read."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from flowql.runtime.spark.job import add_modules
from flowql.spark import start
from tests.s3 import BUCKET


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"

    builder = SparkSession.builder
    for key, value in json.loads((folder / "conf.json").read_text()).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    add_modules(session, folder / "flowql_of_test.zip")
    for trigger in ({}, {"availableNow": True}):
        started = start(folder, session, target="s3", checkpoint=f"s3a://{BUCKET}/checkpoints", trigger=trigger)
        while not trigger and not (folder / "ended").exists():
            time.sleep(0.2)
            for query in started.values():
                if (failure := query.exception()) is not None:
                    raise failure
        for query in started.values():
            if not trigger:
                query.stop()
            query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

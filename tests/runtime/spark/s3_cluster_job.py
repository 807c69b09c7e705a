"""A job of a user over an object store: `python -m tests.runtime.spark.s3_cluster_job CONF PROJECT` says as JSON what Nexmark's and the quickstart's queries give.

CONF: Spark's properties, as JSON. PROJECT: of `test_s3a.py`; its stream is run as well, in two parts, with checkpoints there. The first job has a
local master and writes what others read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flowql.spark import ship
from tests.runtime.spark.connect_job import results, write_inputs
from tests.runtime.spark.s3_job import CHECKPOINTS, stream

INPUTS = {form: f"s3a://lake/inputs/{form}" for form in ("parquet", "delta")}


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    project, is_local = Path(sys.argv[2]), session.sparkContext.master.startswith("local")
    if is_local:
        for form, lake in INPUTS.items():
            write_inputs(session, lake, form)
        session.read.parquet(f"{project}/files/portion*").write.parquet("s3a://lake/portions")
    else:
        ship(session)
    target = "streams" if is_local else "again"
    read = [stream(session, project, target, f"{CHECKPOINTS}-{target}") for _ in range(2)]
    found = {form: results(session, lake, form) for form, lake in INPUTS.items()}
    print(json.dumps({"frames": found["parquet"], "of tables": found["delta"], "read": read}))
    session.stop()


if __name__ == "__main__":
    main()

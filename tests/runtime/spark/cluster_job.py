"""A job of a user on a cluster: `python -m tests.runtime.spark.cluster_job CONF LAKE` says as JSON what Nexmark's and the quickstart's queries give.

CONF: Spark's properties, as JSON. LAKE: Parquet files that `connect_job.write_inputs` has written. FlowQL is brought to the workers by `flowql.spark.ship`.
The last of it is a query of the exact way over topics of WIDTH partitions.
"""

from __future__ import annotations

import json
import sys

from flowql.spark import ship
from tests.runtime.spark.connect_job import exact, reference, results
from tests.runtime.spark.stage_world import comparable

WIDTH, KEYS = 4, 16  # keys in every partition
DESCRIBED = "exact"


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    ship(session)
    ship(session)  # as cells of a notebook that are run again do
    made = reference(WIDTH, KEYS)
    assert len({row["partition"] for row in made.packed()}) == WIDTH
    session.sparkContext.setJobDescription(DESCRIBED)
    same = exact(session, made) == comparable("table", made.sink())
    session.sparkContext.setJobDescription(None)
    print(json.dumps({"frames": results(session, sys.argv[2]), "exact is the runtime's": same}))
    session.stop()


if __name__ == "__main__":
    main()

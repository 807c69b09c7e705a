"""Copies Parquet files into Delta tables: `python -m tests.runtime.spark.copy_job CONF COPIES`, the order of rows kept.

CONF: Spark's properties, as JSON. COPIES: where to, by where from, as JSON.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for source, into in json.loads(sys.argv[2]).items():
        session.read.parquet(source).coalesce(1).write.format("delta").save(into)
    session.stop()


if __name__ == "__main__":
    main()

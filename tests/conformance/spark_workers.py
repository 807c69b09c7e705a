"""The daemon of Spark's Python workers, with the functions that only the corpus needs (`spark.python.daemon.module`)."""

from __future__ import annotations

from tests.conformance.functions import NAMES, registered

if __name__ == "__main__":
    from pyspark.daemon import manager

    with registered(NAMES):
        manager()

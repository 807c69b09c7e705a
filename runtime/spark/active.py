"""The active session of a thread: which one Spark asks where a call names none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes a session this thread's active one, and afterwards the one that was active before, whatever happened inside.

    Two calls need it. Spark looks up data sources in the active session when one is registered and when a stream starts to write to one:
    a session beside it is not asked. And `createDataFrame` makes its session the active one and leaves it so.
    """
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    before, known = sessions.getActiveSession(), SparkSession._activeSession
    sessions.setActiveSession(spark._jsparkSession)
    SparkSession._activeSession = spark  # PySpark's own copy
    try:
        yield
    finally:
        SparkSession._activeSession = known
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()

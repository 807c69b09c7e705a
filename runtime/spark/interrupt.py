"""Work on the session of a caller that Ctrl-C ends: its jobs end with it, and the session answers again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Jobs that are started inside end when this thread is interrupted; all others of the session go on.

    PySpark leaves the interrupted call unanswered on its thread's connection to Java: the job would go on, and the next call would wait for it
    and be given its answer. So the connection is replaced, and the jobs are cancelled over the new one. In Java that is another thread: what
    the caller has set for this one (`setLocalProperty`) is gone.
    """
    tag = f"flowql-{os.urandom(8).hex()}"
    if _is_client(spark):
        with _tagged(tag, spark.addTag, spark.interruptTag, spark.removeTag):
            yield
        return
    context, active = spark.sparkContext, _active(spark)
    # Tags of a session are known in their thread alone, those of its context in all.
    with _tagged(tag, context.addJobTag, context.cancelJobsWithTag, context.removeJobTag):
        try:
            yield
        except KeyboardInterrupt:
            _replace_connection(spark)
            if active is not None:
                _sessions(spark).setActiveSession(active)
            raise


@contextmanager
def _tagged(
    tag: str, add: Callable[[str], object], cancel: Callable[[str], object], remove: Callable[[str], object]
) -> Iterator[None]:
    add(tag)
    try:
        yield
    except KeyboardInterrupt:
        cancel(tag)
        raise
    finally:
        remove(tag)


def _is_client(spark: SparkSession) -> bool:
    """Of Spark Connect, which has no Java here and gives each call a stream of its own."""
    return not hasattr(spark, "_jsparkSession")


def _sessions(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.classic.SparkSession


def _active(spark: SparkSession) -> Any:
    """The session in Java that is active in this thread, or None."""
    found = _sessions(spark).getActiveSession()
    return found.get() if found.isDefined() else None


def _replace_connection(spark: SparkSession) -> None:
    """The next call of this thread makes another one. Where threads share connections (PYSPARK_PIN_THREAD=false) none is used twice anyway."""
    client = spark.sparkContext._gateway._gateway_client
    connection = client.get_thread_connection() if hasattr(client, "get_thread_connection") else None
    if connection is not None:
        connection.close()

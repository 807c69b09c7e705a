"""Tests that need Spark are left out, with the reason, where the extra or Java is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from flowql.runtime.spark.errors import JavaMissing, SparkMissing
from flowql.runtime.spark.session import require_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LATE = "Python worker failed to connect back"
STARTS = 3


def skip_without_spark() -> None:
    try:
        require_spark()
    except (SparkMissing, JavaMissing) as e:
        pytest.skip(e.title)


def run_to_its_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query with `availableNow` that has ended. Started again, as the engine does, where a Python process of it took longer to start
    than the 10 s that Spark waits: on a machine with much else to do.
    """
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(STARTS)):
        query = start()
        try:
            assert query.awaitTermination(120)
            return query
        except StreamingQueryException as error:
            if not left or LATE not in str(error):
                raise
    raise AssertionError("unreachable")

"""Errors of the log that were raised inside Spark, found again in the exception that Spark made of them. No pyspark.

A data source runs in Spark's Python workers; what it raises comes back as text inside an exception of Spark or py4j.
"""

from __future__ import annotations

import re

from flowql.runtime import errors
from flowql.runtime.errors import RuntimeFailure

# The last line of a Python traceback: module, class, message. The message ends with its line.
_RAISED = re.compile(r"\bruntime\.errors\.(\w+): ([^\n]*)")


def runtime_failure(error: BaseException) -> RuntimeFailure | None:
    """The runtime's error behind an exception of Spark, of its own class; None if it was another."""
    for found in _RAISED.finditer(str(error)):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, RuntimeFailure):
            return kind(found[2].strip())
    return None

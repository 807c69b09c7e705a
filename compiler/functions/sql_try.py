"""TRY of standard SQL: NULL in the place of a value that fails, without a dead letter. TRY_CAST is TRY of a CAST.

`null_if_failed` is NULL with a dead letter: no query can name it. The key of a row is wrapped in it where a join shows the row without a match,
since a condition that fails is not true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.registry import FAILURES, define, standard, takes
from flowql.compiler.functions.signatures import Resolution, T

NULL_IF_FAILED = "null_if_failed"


def _tried(operand: Callable[[], Any]) -> Any:
    try:
        return operand()
    except FAILURES:
        raise
    except Exception:  # whatever a reference raises is a value that fails
        return None


standard("TRY", takes(T, gives=T), by=_tried, null_propagating=False, lazy=True)

define(
    NULL_IF_FAILED,
    lambda types: Resolution(types, types[0]),
    lambda _r: _tried,
    null_propagating=False,
    lazy=True,
    duckdb=lambda args, _r: args[0],  # a row for which it fails is declined by what it calls
)

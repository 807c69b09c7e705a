"""TRY of standard SQL: NULL in the place of a value that fails, without a dead letter. TRY_CAST is TRY of a CAST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.define import takes
from flowql.compiler.functions.registry import FAILURES
from flowql.compiler.functions.signatures import T
from flowql.compiler.functions.sql_define import standard


def _tried(operand: Callable[[], Any]) -> Any:
    try:
        return operand()
    except FAILURES:
        raise
    except Exception:  # whatever a reference raises is a value that fails
        return None


standard(
    "TRY",
    takes(T, gives=T),
    by=_tried,
    null_propagating=False,
    lazy=True,
    summary="The value, or NULL where it fails: a division by zero, a text that is no number. Also `TRY_CAST(x AS type)`.",
    example="sql_try(sql_to_boolean('maybe')) -> NULL",
)

"""Times before the year 1 and after the year 9999, which tables may hold and Python's `datetime` may not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flowql.query.errors import INVALID, QueryError


def values_or_texts(column: pa.Array) -> list[Any]:
    """The values of a column in Python; all as texts (ISO 8601, UTC, the year 0 is 1 BC) where one is such a time.

    Raises QueryError for one inside of an array, a map or a struct.
    """
    try:
        return list(column.to_pylist())
    except OverflowError as error:
        if pa.types.is_date(column.type):
            return list(column.cast(pa.string()).to_pylist())
        if not pa.types.is_timestamp(column.type):
            raise far_time() from error
        moments = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.string())
        return [None if text is None else _iso(text) for text in moments.to_pylist()]


def far_time() -> QueryError:
    """The message about a time that has no `datetime`."""
    title = "the answer has a time before the year 1 or after the year 9999, which Python's datetime does not hold"
    return QueryError(title, code=INVALID, help="CAST it to TEXT in the query, or take the answer as Arrow")


def _iso(text: str) -> str:
    """From Arrow's text; with milliseconds, or microseconds where they differ."""
    moment = text.removesuffix("Z").replace(" ", "T")
    return f"{moment.removesuffix('000')}Z"

"""Seconds since 1970 in standard SQL, as Flink and Spark have them; ksqlDB's functions of the same names count milliseconds."""

from __future__ import annotations

from flowql.compiler.functions.dates import Clock
from flowql.compiler.functions.java_time import format_timestamp, parse_timestamp
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import BIGINT, STRING, TIMESTAMP

PATTERN = "yyyy-MM-dd HH:mm:ss"


def _seconds(*moment: int | str) -> int:
    """The seconds of now; of a timestamp, in ms, its whole seconds; of a string by the usual pattern or the given one."""
    match moment:
        case ():
            return Clock.now_ms() // 1000
        case (int() as ms,):
            return ms // 1000
        case (str() as text,):
            return parse_timestamp(text, PATTERN, strict=True) // 1000
        case (str() as text, str() as pattern):
            return parse_timestamp(text, pattern, strict=True) // 1000
    raise AssertionError(moment)


standard(
    "FROM_UNIXTIME",
    takes(BIGINT, gives=STRING),
    takes(BIGINT, STRING, gives=STRING),
    by=lambda seconds, pattern=PATTERN: format_timestamp(seconds * 1000, pattern),
)
standard(
    "UNIX_TIMESTAMP",
    takes(gives=BIGINT),
    takes(TIMESTAMP, gives=BIGINT),
    takes(STRING, gives=BIGINT),
    takes(STRING, STRING, gives=BIGINT),
    by=_seconds,
    deterministic=False,
)

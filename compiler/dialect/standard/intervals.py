"""Intervals as written, in months, days and microseconds."""

from __future__ import annotations

from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.standard.tree import Interval
from flowql.compiler.functions.interval_texts import Duration, read_interval

_MONTHS_MAX, _MICROS_MAX = 2**31 - 1, 2**63 - 1
_DAY_MS = 86_400_000


def interval_parts(node: Interval) -> Duration:
    """Raises CompileError for a text that is not an interval, or is out of range."""
    found = read_interval(node.text, node.units)
    if found is None:
        fail("FQ1009", f"'{node.text}' is not an interval", node.span, help="write  INTERVAL '5' MINUTE")
    if max(abs(found.months), abs(found.days)) > _MONTHS_MAX or abs(found.micros) > _MICROS_MAX:
        fail("FQ1004", f"'{node.text}' is out of the range of intervals", node.span)
    return found


def duration_ms(node: Interval) -> int:
    """The milliseconds of an interval that has one length: months have several. Raises CompileError for others."""
    found = interval_parts(node)
    if found.months:
        unsupported("a duration of months or years", node.span, "write it in days")
    if found.micros % 1000:
        unsupported("a duration with a part of a millisecond", node.span)
    return found.days * _DAY_MS + found.micros // 1000

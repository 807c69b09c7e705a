"""Literals, and texts compared with times.

`ROWTIME >= '2024-05-01T12:00'` compares a BIGINT with a text: as in ksqlDB the text is read as a point in time when it
stands beside ROWTIME, WINDOWSTART or WINDOWEND. Parts left out are zero; without a zone it is UTC.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Lit
from flowql.compiler.functions.numeric import MAX_PRECISION
from flowql.compiler.plan.expr import Expr, Literal
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, SqlType, decimal

_TYPES: dict[str, SqlType] = {
    "int": INT,
    "bigint": BIGINT,
    "double": DOUBLE,
    "string": STRING,
    "bool": BOOLEAN,
    "null": NULL,
    "interval": BIGINT,
}
_INTS, _BIGINTS = range(-(2**31), 2**31), range(-(2**63), 2**63)
_POINT = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:T(?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,3}))?)?)?)?)?)?)?(Z|[+-]\d{2}:?\d{2})?"
)


def bind_literal(node: Lit) -> Literal:
    """Raises CompileError for a number that is out of range."""
    if node.kind == "number":
        return _number(str(node.value), node.span)
    if node.kind == "decimal":
        value = node.value if isinstance(node.value, Decimal) else Decimal(str(node.value))
        return Literal(_decimal_type(value), value, node.span)
    return Literal(_TYPES[node.kind], node.value, node.span)


def _number(text: str, span: Span) -> Literal:
    """A number of standard SQL: 1 is INT (BIGINT beyond 32 bits, NUMERIC beyond 64), 1.5 is NUMERIC, 1e3 is DOUBLE."""
    if "e" in text.lower():
        double = float(text)
        if math.isinf(double):
            title = f"{text} is out of the range of DOUBLE PRECISION"
            raise mistake("FQ1004", title, span, "larger than 1.797e308")
        return Literal(DOUBLE, double, span)
    value = Decimal(text)
    if "." in text:
        value = value or value.copy_abs()  # a NUMERIC has no negative zero, also where it becomes a DOUBLE
        return Literal(_decimal_type(value), value, span)
    if value.adjusted() >= MAX_PRECISION:
        title, help = f"{text} is out of the range of NUMERIC", "a number with an exponent is approximate:  1e40"
        raise mistake("FQ1004", title, span, f"more than {MAX_PRECISION} digits", help=help)
    whole = int(value)
    if whole not in _BIGINTS:
        return Literal(_decimal_type(value), value, span)
    return Literal(INT if whole in _INTS else BIGINT, whole, span)


def _decimal_type(value: Decimal) -> SqlType:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return decimal(min(38, max(len(digits) + max(0, int(exponent)), scale, 1)), min(38, scale))


def time_literal(e: Expr) -> Literal:
    """A text literal as milliseconds since the epoch."""
    assert isinstance(e, Literal)
    match = _POINT.fullmatch(str(e.value).strip())
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (
            int(g) if g else d for g, d in zip(match.groups()[:6], (0, 1, 1, 0, 0, 0), strict=True)
        )
        millis = int((match[7] or "0").ljust(3, "0"))
        point = datetime(year, month, day, hour, minute, second, millis * 1000, _zone(match[8]))
    except ValueError:
        title = f"failed to parse timestamp '{e.value!s}'"
        raise mistake("FQ2005", title, e.span, "not a point in time", help="write 'yyyy-MM-ddTHH:mm:ss'") from None
    return Literal(BIGINT, int((point - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)), e.span)


def _zone(text: str | None) -> timezone:
    if text in (None, "Z"):
        return UTC
    assert text is not None
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))

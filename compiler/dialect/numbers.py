"""Number and duration literals: which digits make which kind of literal."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from flowql.compiler.dialect.ast import Lit
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.words import INTERVAL_UNITS, UNIT_MS, singular

_NUMBER = re.compile(r"-?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1


def at_number(cur: Cursor) -> bool:
    """Whether a number stands here; `.5` comes as two tokens."""
    return cur.tok.kind == "number" or (cur.tok.op == "." and _joined(cur.tok, cur.after))


def parse_number(cur: Cursor, start: Tok, *, negative: bool = False) -> Lit:
    """A number: 1 int (bigint beyond 32 bits), 1.5 decimal, 1e3 double. `start` is where its span begins."""
    text = cur.next().text
    if text == ".":
        text += cur.next().text
    if negative:
        text = "-" + text
    span = cur.span_since(start)
    if not _NUMBER.fullmatch(text):
        cur.fail(
            "FQ1004", f"`{text}` is not a number", at=span, help="write  1, 1.5 or 1e3; quote a name like this one"
        )
    if "e" in text.lower():
        double = float(text)
        if math.isinf(double):
            cur.fail("FQ1004", f"{text} is out of the range of DOUBLE", at=span, label="larger than 1.797e308")
        return Lit("double", double, span)
    if "." in text:
        return Lit("decimal", Decimal(text), span)
    value = int(text)
    if -_INT_MAX - 1 <= value <= _INT_MAX:
        return Lit("int", value, span)
    if not -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
        cur.fail(
            "FQ1004",
            f"{text} is out of the range of BIGINT",
            at=span,
            label="needs more than 64 bits",
            help=f"for an exact large number write a decimal: {text}.0",
        )
    return Lit("bigint", value, span)


def parse_duration(cur: Cursor, what: str) -> int:
    """`10 SECONDS` in ms. Only units of fixed length; the number must be positive unless it is a grace."""
    tok = cur.tok
    if tok.kind != "number" or not tok.text.isdigit():
        cur.expected(f"{what}: a whole number and a unit", help="for example  10 SECONDS")
    count = int(cur.next().text)
    unit = cur.tok
    if unit.kind != "word" or singular(unit.text) not in UNIT_MS:
        cur.expected(
            f"a unit of time for {what}",
            help="use MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS",
            words=[f"{u}S" for u in UNIT_MS],
        )
    cur.next()
    return count * UNIT_MS[singular(unit.text)]


def parse_interval(cur: Cursor) -> Lit:
    """`INTERVAL '5' MINUTE` or `INTERVAL 5 MINUTES`, after a look that it is one."""
    start = cur.next()
    amount = cur.next()
    text = amount.text.strip()
    if not text.isdigit():
        cur.fail(
            "FQ1009", "an interval needs a whole number", at=cur.span_of(amount), help="write  INTERVAL '5' MINUTE"
        )
    unit = cur.tok
    if unit.kind != "word" or singular(unit.text) not in INTERVAL_UNITS:
        cur.expected("a unit of time", help="use MILLISECOND, SECOND, MINUTE, HOUR, DAY or WEEK", words=INTERVAL_UNITS)
    cur.next()
    return Lit("interval", int(text) * INTERVAL_UNITS[singular(unit.text)], cur.span_since(start))


def _joined(dot: Tok, digits: Tok) -> bool:
    return digits.kind == "number" and dot.end == digits.start and "." not in digits.text

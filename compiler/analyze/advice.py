"""Advice for operands that do not fit: the probable meaning, how to write it, and the edit that does so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.edits import Edit, exchanged, written
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Ast, Func, Lit
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.functions.casts import parse_decimal
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.expr import Expr, Literal
from flowql.compiler.plan.types import BOOLEAN, Kind, SqlType

# Functions of other systems -> what means the same here.
OF_OTHER_SYSTEMS = {
    "NVL": "COALESCE", "ISNULL": "COALESCE", "IIF": "IF", "IFF": "IF", "GETDATE": "NOW", "SYSDATE": "NOW", "CURDATE": "CURRENT_DATE", "CHARINDEX": "STRPOS",
    "LOCATE": "STRPOS", "STDEV": "STDDEV", "VAR": "VARIANCE",
    **{name: name.replace("JSON", "JSONB", 1) for name in ("JSON_BUILD_OBJECT", "JSON_BUILD_ARRAY", "JSON_EXTRACT_PATH", "JSON_EXTRACT_PATH_TEXT", "JSON_TYPEOF", "JSON_STRIP_NULLS")},
    "GROUP_CONCAT": "STRING_AGG", "SUBSTRB": "SUBSTR", "STARTSWITH": "STARTS_WITH",
}  # fmt: skip
_NO_SCALE = (
    "write  MIN_SCALE(x)  for the digits that a value needs: a NUMERIC has the digits of its type, not of its value"
)
# Functions of other systems that have no counterpart of the same form -> what to write.
ADVICE = {
    "PROCTIME": "write  FOR SYSTEM_TIME AS OF PROCTIME()  in a join; the time of a stream's record is  ROWTIME",
    "MZ_NOW": "write  NOW()  in WHERE, as in  ts > NOW() - INTERVAL '1 day';  compute other values where the view is asked",
    "CURRENT_WATERMARK": "write  EMIT ON WINDOW CLOSE  to show closed windows only",
    "MEDIAN": "write  PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)",
    "CONVERT": "write  CAST(x AS type)",
    **dict.fromkeys(("COUNT_IF", "COUNTIF"), "write  COUNT(*) FILTER (WHERE condition)"),
    **dict.fromkeys(("SUM_IF", "SUMIF"), "write  SUM(x) FILTER (WHERE condition)"),
    "TO_NUMERIC": "write  TO_NUMBER(text, '999.99')  or  CAST(text AS NUMERIC)",
    "TO_TIMESTAMP_LTZ": "write  TO_TIMESTAMP(x / 1000.0)  of milliseconds",
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), "write  TIMESTAMPDIFF(DAY, from_time, to_time)"),
    **dict.fromkeys(
        ("TUMBLE", "HOP", "TUMBLE_START", "TUMBLE_END", "HOP_START", "HOP_END"),
        "write  FROM TUMBLE(t, time, INTERVAL '1' MINUTE) GROUP BY window_start, window_end",
    ),
    **dict.fromkeys(
        ("SESSION", "SESSION_START", "SESSION_END"),
        "write  FROM TABLE(SESSION(TABLE t PARTITION BY key, DESCRIPTOR(time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, key",
    ),
    "STRFTIME": "write  TO_CHAR(time, 'YYYY-MM-DD')",
    "LAST_DAY": "write  CAST(DATE_TRUNC('month', time) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
    **dict.fromkeys(("JSON_VALUE", "JSON_QUERY"), "write  CAST(text AS JSONB) #>> '{a,b}'"),
    **dict.fromkeys(("SCALE", "TRIM_SCALE"), _NO_SCALE),
    **dict.fromkeys(("TYPEOF",), "write  PG_TYPEOF(x);  `flowql query \"DESCRIBE view\"` lists the columns of a view with their types"),
    "REGEXP_MATCHES": "write  REGEXP_MATCH(text, pattern)  for the groups of the first match",
}  # fmt: skip
Advice = tuple[str, Edit | None]
_MOMENTS = (Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
_TEMPORAL = (Kind.DATE, *_MOMENTS)
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?")
_MILLISECONDS = 10**11  # numbers beyond it count these, not seconds


def for_operands(
    node: Func,
    types: Sequence[SqlType],
    problem: FunctionTypeError,
    resolve: Callable[[tuple[SqlType, ...]], Resolution],
) -> Advice:
    """For operands or arguments of these types, which a function does not take."""
    a, *others = types
    if node.name in ("add", "sub") and others:
        if any(t.kind in _MOMENTS for t in types) and (of_unit := _interval(node, types)) is not None:
            return of_unit
        if node.name == "add" and Kind.STRING in (a.kind, others[0].kind):
            return problem.hint, exchanged(node.span, "+", "||")
    elif len(others) == 1 and a != others[0]:
        try:
            resolve((others[0], a))
        except FunctionTypeError:
            return problem.hint, None
        first, second = ((written(x.span) if x.span != NOWHERE else "") or text_of(x) for x in node.args)
        turned = f"{node.name}({second}, {first})"
        return f"exchange the arguments:  {turned}", _edit(node, turned)
    return problem.hint, None


def _interval(node: Func, types: Sequence[SqlType]) -> Advice | None:
    """For a number beside a time, whose unit nothing says, and for the text of an interval."""
    at = next((n for n, t in enumerate(types) if t.is_numeric or t.kind is Kind.STRING), None)
    if at is None:
        return None
    value = node.args[at]
    if types[at].kind is Kind.STRING:
        text = f"INTERVAL {text_of(value)}"
        return (f"write  {text}", _edit(value, text)) if isinstance(value, Lit) else None
    if not isinstance(value, Lit):
        return "a number has no unit: multiply an interval,  x * INTERVAL '1' SECOND", None
    text = f"INTERVAL '{value.value}' SECOND"
    return f"a number has no unit: write  {text}  or  INTERVAL '{value.value}' DAY", _edit(value, text)


def closer_than_json(node: Func, sign: str, found: Diagnostic) -> Diagnostic | None:
    """For `details->>'size' + 1`, which adds a number to the name of the field. sign: the operator. found: the mistake of the sum."""
    of, part = node.args
    field = part.args[0] if isinstance(part, Func) and part.args and part.span == found.span else None
    if not isinstance(field, Lit) or not isinstance(field.value, str) or field.span.line != node.span.line:
        return None
    span = replace(node.span, length=field.span.column + field.span.length - node.span.column)
    text = f"({written(span)})::NUMERIC"
    why = f"operators of numbers bind closer than {sign}, here to {text_of(field)}"
    return replace(found, why=why, help=f"write  {text}  for the number in {text_of(of)}", edit=Edit(span, text))


def for_compared(node: Func, left: Expr, right: Expr, *, standard: bool) -> Advice:
    """For two values that no comparison takes."""
    for value, e, other in ((node.args[0], left, right), (node.args[1], right, left)):
        text = written(value.span) if value.span != NOWHERE else ""
        if _DATE.fullmatch(text) and other.type.kind in _TEMPORAL:
            return f"write the date in quotes:  '{text}'", _edit(value, f"'{text}'")
        if not isinstance(e, Literal):
            continue
        if isinstance(e.value, str) and other.type.is_numeric and _is_number(e.value):
            return f"write the number without quotes: {e.value}", None
        if not e.type.is_numeric or not text:
            continue
        if other.type == BOOLEAN and e.value in (0, 1):
            return "a BOOLEAN is TRUE or FALSE, not a number", _edit(value, "TRUE" if e.value else "FALSE")
        if standard and other.type.kind in _MOMENTS and isinstance(e.value, int):
            moment = f"TO_TIMESTAMP({text}{' / 1000.0' if e.value > _MILLISECONDS else ''})"
            return f"write  {moment}", _edit(value, moment)
        if other.type.kind is Kind.STRING:
            return "you might need an explicit CAST", _edit(value, f"'{text}'")
    return "you might need an explicit CAST", None


def _is_number(text: str) -> bool:
    try:
        parse_decimal(text)
    except ValueError:
        return False
    return True


def _edit(node: Ast, text: str) -> Edit | None:
    return Edit(node.span, text) if node.span != NOWHERE else None

"""Values that expressions of standard SQL may have inside a statement, and a view cannot keep: intervals as values, and the present moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flowql.compiler.diagnostics.diagnostic import Diagnostic, UnsupportedError
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.plan.expr import Call, Expr, walk
from flowql.compiler.plan.logical import Node, walk_nodes
from flowql.compiler.plan.types import Kind, SqlType

_MOMENTS = {
    "sql_now": "the present moment (NOW)",
    "sql_localtimestamp": "the present moment (LOCALTIMESTAMP)",
    "sql_current_date": "the present day (CURRENT_DATE)",
    "sql_unix_timestamp": "the present moment (UNIX_TIMESTAMP)",
    "UNIX_DATE": "the present day (UNIX_DATE)",
}
_OF_ARGUMENTS = frozenset({"sql_unix_timestamp", "UNIX_DATE"})  # without arguments only they are moments
# Takers of intervals: operators, and functions that choose one of their arguments.
_OF_INTERVALS = frozenset(
    {
        *(f"sql_{op}" for op in ("add", "sub", "mul", "div", "neg")),
        *("sql_interval_micros", "sql_extract", "sql_date_part", "sql_to_text", "case", "cast", "COALESCE"),
        *("is_null", "is_not_null", "sql_series", "sql_date_bin", "sql_date_add", "sql_date_subtract", "sql_isfinite"),
        *("sql_interval_months", "sql_interval_days", "sql_interval_rest", "sql_interval_average"),
        *("sql_to_jsonb", "sql_jsonb_build_object", "sql_jsonb_build_array"),
        *("sql_interval_kept", "sql_justify_hours", "sql_justify_days", "sql_justify_interval"),
        "sql_timezone",
    }
)
_IN_TIME = (
    "in WHERE of a view over tables compare a time with it:  ts > NOW() - INTERVAL '1 hour';"
    "  or compare with the clock where the view is read. The time of a row of a stream is  ROWTIME"
)
_TO_TEXT = "as text:  CAST(x AS VARCHAR);  as a number of seconds:  EXTRACT(EPOCH FROM x)"


def refuse_unkept(node: Node, values: Sequence[Expr]) -> None:
    """Raise UnsupportedError where a query would keep an interval, or would have to change with the clock. values: of all its operators."""
    calls = [e for e in walk(*values) if isinstance(e, Call)]
    found = [*_intervals(values, calls), *_moments(calls)]
    if not found and any(_has_interval(f.type) for n in walk_nodes(node) for f in n.schema.fields):
        found.append(_diagnostic("a column of type INTERVAL", NOWHERE, "", _TO_TEXT))
    _refuse(found)


def refuse_intervals(values: Iterable[Expr]) -> None:
    """Raise UnsupportedError where a value to be written is an interval, or a function has no meaning for one."""
    values = list(values)
    _refuse(_intervals(values, [e for e in walk(*values) if isinstance(e, Call)]))


def _refuse(found: Iterable[Diagnostic]) -> None:
    different = {(d.title, d.span): d for d in found}  # one expression may stand in several nodes
    if different:
        raise UnsupportedError(*different.values())


def _moments(calls: Iterable[Call]) -> Iterator[Diagnostic]:
    for part in calls:
        if part.name in _MOMENTS and not (part.args and part.name in _OF_ARGUMENTS):
            title = f"{_MOMENTS[part.name]} in this form, by which rows would come and go with the clock,"
            yield _diagnostic(title, part.span, "changes without input", _IN_TIME)


def _intervals(values: Iterable[Expr], calls: Iterable[Call]) -> Iterator[Diagnostic]:
    """calls: all calls in the values, at any depth."""
    for part in calls:
        if part.name not in _OF_INTERVALS and any(_has_interval(a.type) for a in part.args):
            yield _diagnostic(f"an INTERVAL as an argument of {part.name.upper()}", part.span, "an interval", _TO_TEXT)
    for e in values:
        if _has_interval(e.type):
            yield _diagnostic("a column of type INTERVAL", getattr(e, "span", NOWHERE), "an interval", _TO_TEXT)


def _has_interval(t: SqlType) -> bool:
    return t.kind is Kind.INTERVAL or any(map(_has_interval, t.args)) or any(_has_interval(f) for _, f in t.fields)


def _diagnostic(title: str, span: Span, label: str, help: str) -> Diagnostic:
    return Diagnostic("FQ1901", f"{title} is not supported yet", span, label=label, help=help, unsupported=True)

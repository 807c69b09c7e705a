"""Expressions that fail for every row: found when they are compiled, not by the dead letters of all rows.

What is constant is evaluated once, by its reference: `1 / 0`, `DATE '2024-13-01'`, `CAST('x' AS INT)`. Constant arguments that no row can be
computed with are checked beside columns: `REGEXP_LIKE(name, '(')`. Only what each row evaluates counts: not the branches of a CASE, nor the
second operand of AND and OR, nor the body of a lambda, which an empty array never calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.functions import regex, sql_from_char, sql_number_patterns, sql_regex, sql_to_char
from flowql.compiler.functions.dates import INTERVAL_FUNCTIONS, unit_ms
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.inline import CONSTRUCTORS
from flowql.compiler.functions.java_time import parts_of
from flowql.compiler.functions.json_functions import path_of
from flowql.compiler.functions.numeric import NumericOverflow
from flowql.compiler.functions.patterns.like import like_pattern
from flowql.compiler.functions.patterns.tree import PatternError
from flowql.compiler.functions.registry import FAILURES, all_functions, lookup
from flowql.compiler.functions.sql_calendar import finer
from flowql.compiler.functions.sql_intervals import whole_ms
from flowql.compiler.functions.sql_text_casts import has_finer_part
from flowql.compiler.functions.sql_times import truncation
from flowql.compiler.functions.sql_zones import zone_given, zone_named
from flowql.compiler.functions.temporal import zone_of
from flowql.compiler.plan.expr import Call, Expr, Literal, walk
from flowql.compiler.plan.logical import Explode, NamedExpr, Node, Project
from flowql.compiler.plan.types import Kind
from flowql.compiler.plan.visit import map_nodes

# --- Arguments that, given as constants, make a call fail for every row, whatever its other arguments are ---
#
# `REGEXP_LIKE(name, '(')` has a pattern that no row can be matched with. Each entry is a check that raises where the reference would raise.

Check = Callable[[Any], object]


def _divisor(v: Any) -> None:
    """A division of doubles by zero has a result."""
    if not isinstance(v, float) and not v:
        raise ZeroDivisionError("division by zero")


def _sql_divisor(v: Any) -> None:
    if not v:
        raise ZeroDivisionError("division by zero")


def _pattern_or_place(v: Any) -> None:
    if isinstance(v, str):
        sql_regex.taking_program(v)


def _zone_or_interval(v: Any) -> None:
    if isinstance(v, str):
        zone_named(v)


_BY_PATTERN = ("FORMAT_TIMESTAMP", "TIMESTAMPTOSTRING", "PARSE_TIMESTAMP", "STRINGTOTIMESTAMP")
_BY_DATE_PATTERN = ("FORMAT_DATE", "DATETOSTRING", "PARSE_DATE", "STRINGTODATE", "FORMAT_TIME", "PARSE_TIME")
_POSIX = (
    "sql_regexp_match", "sql_regexp_replace", "sql_regexp_split_to_array", "sql_regexp_count", "sql_regexp_instr", "sql_regexp_substr"
)  # fmt: skip
_NONE: Mapping[int, Check] = {}
_CHECKS: dict[str, Mapping[int, Check]] = {
    "div": {1: _divisor},
    "mod": {1: _divisor},
    "sql_div": {1: _sql_divisor},
    "sql_mod": {1: _sql_divisor},
    "sql_date_trunc": {0: truncation},
    "sql_date_trunc_in": {0: truncation, 2: zone_named},
    "sql_timezone": {0: _zone_or_interval},
    "sql_make_timestamptz": {6: zone_given},
    "sql_to_char": {1: sql_to_char.parts_of},
    **{key: {1: sql_from_char.readable} for key in ("sql_to_date_by", "sql_to_timestamp_by")},
    **{key: {1: sql_number_patterns.number_pattern} for key in ("sql_number_to_char", "sql_to_number")},
    **{key: {1: sql_regex.taking_program} for key in _POSIX},
    "sql_regexp_like": {1: sql_regex.asking_program},
    "sql_substring": {1: _pattern_or_place},
    **{key: {1: regex.java_program} for key in ("sql_regexp_extract", "sql_regexp_extract_all")},
    **{key: {1: parts_of} for key in ("sql_from_unixtime", "sql_unix_timestamp")},
    "REGEXP_EXTRACT": {0: regex.java_program},
    "REGEXP_EXTRACT_ALL": {0: regex.java_program},
    "REGEXP_REPLACE": {1: regex.java_program},
    "REGEXP_SPLIT_TO_ARRAY": {1: regex.java_program},
    "REGEXP_LIKE": {1: regex.java_program},
    "EXTRACTJSONFIELD": {1: path_of},
    "CONVERT_TZ": {1: zone_of, 2: zone_of},
    **{key: {1: parts_of, 2: zone_of} for key in _BY_PATTERN},
    **{key: {1: parts_of} for key in _BY_DATE_PATTERN},
    **{key: {0: unit_ms} for key in INTERVAL_FUNCTIONS},
}


def checks_of(name: str, count: int) -> Mapping[int, Check]:
    """Position of an argument -> its check, for a call of `name` with so many arguments."""
    if name == "sql_similar" and count == 2:
        return {1: sql_regex.similar}
    if name in ("like", "not_like", "sql_ilike") and count == 2:  # with ESCAPE the pattern depends on another argument
        return {1: like_pattern}
    return _CHECKS.get(name, _NONE)


_SHOWN_CHARS = 60
_FAILS, _EVERY_ROW = "FQ2026", " fails for every row:"
_MOVES = ("sql_add", "sql_sub")  # of a time, by an interval
_BUILT_IN = frozenset(all_functions())  # functions of users may fail now and not later: they run with the rows


def refuse_failing(exprs: Iterable[Expr], *, elements: bool = True) -> None:
    """Raise CompileError with every one of these expressions that fails for every row.

    elements: also elements of ARRAY, MAP and STRUCT. In ksqlDB's dialect these are NULL where they fail.
    """
    # One expression may stand in several nodes.
    found = {(d.title, d.span): d for e in exprs for d in _failures(e, elements)}
    if found:
        raise CompileError(*found.values())


def refuse_failing_values(columns: Sequence[str], rows: Sequence[Sequence[Expr]]) -> None:
    """Raise CompileError with every value of VALUES that fails: it names the column, and the number of the row."""
    found = list[Diagnostic]()
    for number, row in enumerate(rows, 1):
        for name, e in zip(columns, row, strict=True):
            where = f"column {name} of row {number}" if len(rows) > 1 else f"column {name}"
            found += (_of_value(d, where) for d in _failures(e, True))
    if found:
        raise CompileError(*found)


def _of_value(d: Diagnostic, where: str) -> Diagnostic:
    """A failure of one row, whose title says what the value is and why it fails."""
    if d.code != _FAILS:
        return replace(d, title=f"{where}: {d.title}")
    return replace(d, code="FQ2080", title=f"{where}: {d.title.replace(_EVERY_ROW, ':', 1)}", why="")


def _failures(e: Expr, elements: bool) -> Iterator[Diagnostic]:
    if not isinstance(e, Call) or (e.name in CONSTRUCTORS and not elements):
        return
    if _is_constant(e) and (elements or not _constructs(e)):
        problem = _failure(e)
        if problem is not None:
            yield _innermost(e, problem)
        return
    for arg in _evaluated(e):
        yield from _failures(arg, elements)
    if e.name in _MOVES and e.type.kind is Kind.TIMESTAMP and (problem := _finer_move(e)) is not None:
        yield _diagnostic(e, problem)
    for index, check in checks_of(e.name, len(e.args)).items():
        given = e.args[index] if index < len(e.args) else None
        if isinstance(given, Literal) and given.value is not None:
            try:
                check(given.value)
            except Exception as error:  # whatever the reference raises is the row's failure
                yield _diagnostic(e, error, _span(given))


def _of_pattern(span: Span, problem: PatternError) -> Diagnostic:
    why = "patterns run on an engine of linear time, so that no string holds a query up"
    unsupported = problem.label == "is not supported"
    return Diagnostic(
        problem.constant_code, str(problem), span, problem.label, why, problem.help, unsupported=unsupported
    )


def _finer_move(e: Call) -> Exception | None:
    """Why a time in milliseconds cannot be moved by a constant interval."""
    span = next((a for a in e.args if a.type.kind is Kind.INTERVAL and _is_constant(a)), None)
    if span is None or _failure(span) is not None:
        return None
    (value,) = compile_row([span], [])(())
    try:
        whole_ms(value[2] if value is not None else 0)
    except NumericOverflow as error:
        return error
    return None


def _evaluated(e: Call) -> tuple[Expr, ...]:
    """The arguments that are evaluated for every row, and whose failure is one of the row."""
    if e.name == "sql_try":
        return ()
    function = lookup(e.name)
    lazy = e.name == "case" or (function is not None and function.lazy)
    return e.args[:1] if lazy else e.args


def _constructs(e: Expr) -> bool:
    return isinstance(e, Call) and (e.name in CONSTRUCTORS or any(_constructs(a) for a in e.args))


def _is_constant(e: Expr) -> bool:
    if isinstance(e, Literal):
        return True
    if not isinstance(e, Call):
        return False
    function = lookup(e.name)
    if function is not None and (e.name not in _BUILT_IN or not function.deterministic or function.table):
        return False
    return (function is not None or e.name in ("case", "field")) and all(_is_constant(a) for a in e.args)


def _failure(e: Expr) -> Exception | None:
    """The error of evaluating a constant, or a part of it. A function that is broken fails the query when it runs."""
    problems: list[Exception] = []
    try:
        compile_row([e], [], on_error=lambda _index, error: problems.append(error))(())
    except FAILURES:
        return None
    return problems[0] if problems else None


def _innermost(e: Call, problem: Exception) -> Diagnostic:
    """Points at the smallest part of a failing constant that fails alone."""
    for arg in _evaluated(e):
        inner = _failure(arg) if isinstance(arg, Call) else None
        if inner is not None and isinstance(arg, Call):
            return _innermost(arg, inner)
    return _diagnostic(e, problem)


def _diagnostic(e: Call, problem: Exception, argument: Span = NOWHERE) -> Diagnostic:
    """argument: where the argument stands that makes the call fail."""
    span = _span(e)
    if isinstance(problem, PatternError):
        return _of_pattern(argument if argument != NOWHERE else span, problem)
    text = span.line_text[span.column - 1 :][: span.length].strip()
    shown = text if 0 < len(text) <= _SHOWN_CHARS else f"a constant {e.type}"
    return Diagnostic(
        _FAILS,
        f"{shown}{_EVERY_ROW} {problem}",
        span,
        "has no value",
        "every row would be noted in the dead letters",
        _help(e),
    )


def _span(e: Expr) -> Span:
    own: Span = getattr(e, "span", NOWHERE)
    if own != NOWHERE or not isinstance(e, Call):
        return own
    return next((s for a in e.args if (s := _span(a)) != NOWHERE), NOWHERE)


def _help(e: Call) -> str:
    given = e.args[0] if e.args else None
    if e.name in ("sql_to_timestamp", "sql_to_timestamptz") and isinstance(given, Literal):
        finer_part = isinstance(given.value, str) and has_finer_part(given.value)
        return f"declare the column {finer(e.type)}" if finer_part else ""
    if e.name in _MOVES:
        return f"write  CAST(... AS {finer(e.type)})  of the time that is moved"
    if e.name == "cast" and e.type.kind is Kind.TIMESTAMP:
        return "write  '2024-05-01T12:00:00'"
    if e.name == "cast" and e.type.kind is Kind.DATE:
        return "write  '2024-05-01'"
    return ""


# --- rows that fail ---


def without_failed_rows(node: Node) -> Node:
    """The plan of a query of standard SQL, whose projections and lists drop the rows that they fail for; ksqlDB has NULL as the value.

    before: Project(q := 10 / x, Scan)      after: Project(q := 10 / x, drop_failed, Scan)

    A condition that fails is not true in both dialects, so filters and residuals of joins need no mark.
    """
    return map_nodes(node, _marked, Project, Explode)


def _marked(node: Node) -> Node:
    match node.spec:
        case Project(columns) if any(isinstance(c.expr, Call) for c in columns):
            return replace(node, spec=replace(node.spec, drop_failed=True))
        case Explode(functions) if any(_fails(f) for f in functions):
            return replace(node, spec=replace(node.spec, drop_failed=True))
    return node


def _fails(function: NamedExpr) -> bool:
    """Whether a list may fail: EXPLODE of a column or of constants does not."""
    args = function.expr.args if isinstance(function.expr, Call) else ()
    return any(isinstance(e, Call) and e.name not in ("array", "sql_places") for a in args for e in walk(a))

"""Functions of standard SQL whose types follow rules of their own: their arguments adapt to one another, or a constant decides the result."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeGuard

from flowql.compiler.analyze.advice import for_operands
from flowql.compiler.analyze.json_functions import ARGUMENTS, OF_ARRAYS, adapted, beside_json, json_equal
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import Diagnostic, UnsupportedError
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Ast, CastTo, Func, Lit, TypeRef
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.functions.coercion import convert, unify
from flowql.compiler.functions.dialects import function_name
from flowql.compiler.functions.interval_texts import read_interval
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.sql_calendar import finer
from flowql.compiler.functions.sql_casts import sql_cast
from flowql.compiler.functions.sql_jsonb import holds_json
from flowql.compiler.functions.sql_text_casts import has_finer_part
from flowql.compiler.functions.sql_times import check_part, part_type
from flowql.compiler.plan.expr import Call, Expr, Literal, walk
from flowql.compiler.plan.types import (
    DOUBLE,
    INTERVAL,
    JSONB,
    SPAN,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
    array,
    decimal,
)

_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
Bind = Callable[[Ast], Expr]  # binds a part of the expression in the same scope
_OF_MOMENTS = ("AGE", "DATE_ADD", "DATE_SUBTRACT", "ISFINITE")
_NOT_WRITTEN = (Kind.NULL, Kind.BYTES, Kind.MAP)  # beside a text in `||`
_MOMENTS = (Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
_DATES = (Kind.DATE, Kind.TIMESTAMP, Kind.MICROS)
_TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)
_READ = (*_TIMES, Kind.BYTES, Kind.ARRAY, Kind.INTERVAL)  # what a text in quotes is beside a value of such a type


def called(node: Func, args: Sequence[Expr], name: str = "") -> Call:
    """A call with bound arguments. name: of the function, where it is not the one written. Raises CompileError."""
    function = lookup(function_name(name or node.name, standard=True))
    assert function is not None, node.name
    try:
        found = function.resolve(tuple(a.type for a in args))
        made = tuple(convert(a, t) for a, t in zip(args, found.args, strict=True))
    except FunctionTypeError as problem:
        types = [a.type for a in args]
        given = ", ".join(map(str, types))
        title = f"error processing expression {text_of(node)}: {problem}"
        help, edit = for_operands(node, types, problem, function.resolve)
        raise mistake("FQ2005", title, node.span, f"got ({given})", help=help, edit=edit) from None
    return Call(found.result, function.name, made, node.span)


def _unified(node: Func, args: Sequence[Expr]) -> tuple[Expr, ...]:
    try:
        return unify(args, strict=True)[1]
    except FunctionTypeError as problem:
        given = listing([f"{text_of(n)} ({a.type})" for n, a in zip(node.args, args, strict=True)])
        title = f"{problem}; the values are {given}"
        raise mistake("FQ2005", title, node.span, "of different types", help=problem.hint or "add a CAST") from None


def text_as(e: Expr, to: SqlType) -> Expr:
    """A text that stands beside a value of a type, as standard SQL's cast reads it: in quotes with parts of a millisecond it is in microseconds.
    Other expressions stay as they are.
    """
    if e.type != STRING:
        return e
    span = getattr(e, "span", NOWHERE)
    if to == SPAN or to.kind is Kind.INTERVAL:
        read = Call(INTERVAL, "sql_to_interval", (e,), span)
        return Call(SPAN, "sql_interval_kept", (read,), span) if to == SPAN else read
    if to.form:
        return convert(e, to)
    to = finer(to) if to.kind in _TIMES and in_micros(e) else to
    return Call(to, sql_cast(e.type, to), (e,), span)


def in_micros(e: Expr) -> bool:
    """Whether it is a text in quotes that is a time with parts of a millisecond."""
    return isinstance(e, Literal) and isinstance(e.value, str) and has_finer_part(e.value)


def beside_typed(found: Sequence[Expr]) -> list[Expr]:
    """Values of one type; where there is one among them whose type no number has, a text in quotes is of this type, too."""
    other = next((e.type for e in found if e.type.kind in _READ or e.type.form), None)
    if other is None and any(e.type.kind is Kind.DOUBLE for e in found):
        return [Literal(DOUBLE, float(str(e.value)), e.span) if _is_not_finite(e) else e for e in found]
    return [text_as(e, other) if other is not None and isinstance(e, Literal) else e for e in found]


def _is_not_finite(e: Expr) -> TypeGuard[Literal]:
    """'NaN' and 'Infinity', which no number is written as."""
    return isinstance(e, Literal) and isinstance(e.value, str) and _NOT_FINITE.fullmatch(e.value.strip()) is not None


def beside_numbers(args: Sequence[Expr]) -> Sequence[Expr]:
    """Operands of an arithmetic operator: a text in quotes beside a number is one of its type, as in PostgreSQL."""
    texts = [isinstance(a, Literal) and a.type == STRING and a.value is not None for a in args]
    if len(args) != 2 or texts[0] == texts[1]:
        return args
    number = args[texts[0]]
    if not number.type.is_numeric:
        return args
    try:
        common, read = unify(beside_typed(args), strict=True)
    except FunctionTypeError:
        return args
    return read if common == number.type or number.type.kind is Kind.DECIMAL else args


def _alike(bind: Bind, node: Func) -> Expr:
    """Arguments of one type, which literals adapt to."""
    args = beside_typed([bind(a) for a in node.args])
    unified = _unified(node, args)
    if unified and unified[0].type.kind is Kind.NULL:
        return Literal(STRING, None, node.span)  # of what has no type PostgreSQL makes a text
    return called(node, unified)


def _nullif(bind: Bind, node: Func) -> Expr:
    """A date stays a date, whatever it is compared with."""
    found = _alike(bind, node)
    if holds_json(found.type) and len(node.args) == 2:  # equal values may be written differently
        null = Lit("null", None, node.span)
        return bind(Func("case", (Func("eq", node.args, node.span), null, node.args[0]), node.span))
    first = bind(node.args[0]).type if node.args else found.type
    moments = first.kind in _DATES and found.type.kind in _DATES
    return convert(found, first) if moments else found


def _moments(bind: Bind, node: Func) -> Expr:
    """A date where a timestamp is wanted is its midnight."""
    args = [bind(a) for a in node.args]
    return called(node, [convert(a, TIMESTAMP) if a.type.kind is Kind.DATE else a for a in args])


def _in_zone(bind: Bind, node: Func) -> Expr:
    """A date, or a text in quotes, is a moment of UTC where the clock of a zone is asked for."""
    args = [bind(a) for a in node.args]
    if len(args) > 1:
        args[1] = convert(args[1], TIMESTAMPTZ) if args[1].type.kind is Kind.DATE else text_as(args[1], TIMESTAMPTZ)
    return called(node, args)


def _as_text(bind: Bind, node: Func) -> Expr:
    """TO_CHAR of a time or of a number, whose patterns differ."""
    args = [bind(a) for a in node.args]
    if args and args[0].type.is_numeric:
        return called(node, args, "sql_number_to_char")
    return called(node, [convert(a, TIMESTAMP) if a.type.kind is Kind.DATE else a for a in args])


def _of_seconds(bind: Bind, node: Func) -> Expr:
    """To a microsecond where the number of seconds is: it comes from a TIMESTAMP(6), or is written with parts of a millisecond."""
    args = [bind(a) for a in node.args]
    return called(node, args, "sql_to_timestamp_micros" if len(args) == 1 and _has_micros(args[0]) else "")


def _has_micros(seconds: Expr) -> bool:
    return any(
        e.type.kind is Kind.MICROS
        or (isinstance(e, Literal) and isinstance(e.value, float | Decimal) and e.value * 1000 % 1 != 0)
        for e in walk(seconds)
    )


def _of_spans(bind: Bind, node: Func) -> Expr:
    """A text in quotes is an interval where the first argument is one, and a timestamp beside timestamps."""
    args = [_span(bind, a) if i == 0 and node.name not in _OF_MOMENTS else bind(a) for i, a in enumerate(node.args)]
    args = [convert(a, TIMESTAMP) if a.type.kind is Kind.DATE and node.name != "ISFINITE" else a for a in args]
    zoned = TIMESTAMPTZ if any(a.type.zoned for a in args) else TIMESTAMP
    if node.name in ("DATE_BIN", "AGE"):
        args = [text_as(a, zoned) if isinstance(a, Literal) else a for a in args]
    elif node.name in ("DATE_ADD", "DATE_SUBTRACT"):
        args = [
            text_as(args[0], TIMESTAMPTZ) if isinstance(args[0], Literal) else args[0],
            *(_span(bind, a) for a in node.args[1:]),
        ]
    return called(node, args)


def _span(bind: Bind, node: Ast) -> Expr:
    if not isinstance(node, Lit) or not isinstance(node.value, str):
        return bind(node)
    found = read_interval(node.value)
    if found is None:
        title = f"'{node.value}' is not an interval"
        raise mistake("FQ2005", title, node.span, "not an interval", help="write  INTERVAL '5' MINUTE")
    parts = (found.months, found.days, found.micros)
    return bind(
        Func("sql_interval", tuple(Lit("bigint" if abs(n) >> 31 else "int", n, node.span) for n in parts), node.span)
    )


def _counted_nulls(bind: Bind, node: Func) -> Expr:
    """NUM_NULLS(a, b) and NUM_NONNULLS(a, b): how many of the arguments are NULL, or not."""
    if not node.args:
        raise mistake("FQ2005", f"{node.name} takes one argument or more", node.span, "of nothing")
    test = "is_null" if node.name == "NUM_NULLS" else "is_not_null"
    one, zero = Lit("int", 1, node.span), Lit("int", 0, node.span)
    counts: list[Ast] = [Func("case", (Func(test, (a,), node.span), one, zero), node.span) for a in node.args]
    return bind(functools.reduce(lambda a, b: Func("add", (a, b), node.span), counts))


def _date_part(bind: Bind, node: Func) -> Expr:
    """DATE_PART; of a date it takes the parts of its midnight."""
    args = [bind(a) for a in node.args]
    call = called(node, [convert(a, TIMESTAMP) if a.type.kind is Kind.DATE else a for a in args])
    _check_part(node, call)
    return call


def _check_part(node: Func, call: Call) -> None:
    """A part that is a constant must be one that times of this type have. Raises CompileError."""
    part, source = call.args
    if not isinstance(part, Literal) or part.value is None:
        return
    try:
        check_part(str(part.value), source.type.kind)
    except ValueError as problem:
        raise mistake("FQ2005", str(problem), node.span, f"this is {source.type}") from None


def _extract(bind: Bind, node: Func) -> Expr:
    part, source = (bind(a) for a in node.args)
    call = called(node, (part, source))
    assert isinstance(part, Literal)
    _check_part(node, call)
    return Call(part_type(str(part.value)), call.name, call.args, node.span)


def _rounded(bind: Bind, node: Func) -> Expr:
    """To a constant number of digits: a DECIMAL of so many."""
    args = [bind(a) for a in node.args]
    if len(args) == 2 and args[0].type.kind in (Kind.INT, Kind.BIGINT):
        args[0] = convert(args[0], decimal(19 if args[0].type.kind is Kind.BIGINT else 10, 0))
    call = called(node, args)
    digits = args[1].value if len(args) == 2 and isinstance(args[1], Literal) else None
    t = call.type
    if not isinstance(digits, int) or t.kind is not Kind.DECIMAL or digits >= t.scale:
        return call
    places = max(digits, 0)
    return Call(decimal(max(1, t.precision - t.scale + places), places), "cast", (call,), node.span)


def _concatenated(bind: Bind, node: Func) -> Expr:
    """`a || b`: of texts, or of arrays and their elements."""
    args = [bind(a) for a in node.args]
    if beside_json(args) and not any(a.type == STRING and not isinstance(a, Literal) for a in args):
        return _json(node, args, "JSONB_CONCAT")
    array_type = next((a.type for a in args if a.type.kind is Kind.ARRAY), None)
    if array_type is not None:  # NULL is of the type of the other side: an array
        args = [
            Literal(array_type, None, a.span) if isinstance(a, Literal) and a.type.kind is Kind.NULL else a
            for a in args
        ]
    left, right = (a.type.kind is Kind.ARRAY for a in args)
    if not left and not right:
        return called(node, _written(args))
    args = _beside_arrays(args)
    left, right = (a.type.kind is Kind.ARRAY for a in args)
    return called(node, args, "ARRAY_CAT" if left and right else "ARRAY_APPEND" if left else "ARRAY_PREPEND")


def _written(args: Sequence[Expr]) -> list[Expr]:
    """Values beside a text in `||`, as they are written out."""
    if not any(a.type == STRING for a in args):
        return [*args]
    return [a if a.type.kind in _NOT_WRITTEN else Call(STRING, sql_cast(a.type, STRING) or "cast", (a,)) for a in args]


def _of_arrays(bind: Bind, node: Func) -> Expr:
    args = [bind(a) for a in node.args]
    if beside_json(args) and node.name in OF_ARRAYS:
        return _json(node, args, OF_ARRAYS[node.name])
    return called(node, _beside_arrays(args))


def _json(node: Func, args: Sequence[Expr], name: str) -> Expr:
    return called(node, adapted(node, name, args), name)


def _of_json(bind: Bind, node: Func) -> Expr:
    return _json(node, [bind(a) for a in node.args], node.name)


def _difference(bind: Bind, node: Func) -> Expr:
    """`a - b`: of numbers and times, or JSONB without a key."""
    args = [bind(a) for a in node.args]
    if args and args[0].type == JSONB:
        return _json(node, args, "JSONB_WITHOUT")
    return called(node, beside_numbers(args))


def _beside_arrays(args: Sequence[Expr]) -> list[Expr]:
    """A text in quotes beside an array is one, in braces."""
    t = next((a.type for a in args if a.type.kind is Kind.ARRAY), None)
    if t is None:
        return [*args]
    return [Call(t, "sql_to_array", (a,), a.span) if isinstance(a, Literal) and a.type == STRING else a for a in args]


def _quantified(bind: Bind, node: Func) -> Expr:
    """`x = ANY(array)`; a text in quotes is an array of the type of x, in braces."""
    args = [bind(a) for a in node.args]
    array_, element = args[2], args[1].type
    if isinstance(array_, Literal) and array_.type == STRING and isinstance(array_.value, str):
        args[2] = Call(array(STRING if element.kind is Kind.NULL else element), "sql_to_array", (array_,), array_.span)
    return called(node, list(map(json_equal, args)))


def _joined(bind: Bind, node: Func) -> Expr:
    """CONCAT and CONCAT_WS take values of any type, as they are written out."""
    texts = [_text(bind, a, bind(a)) for a in node.args]
    return called(node, texts)


def _text(bind: Bind, node: Ast, e: Expr) -> Expr:
    if e.type.kind in (Kind.STRING, Kind.NULL):
        return convert(e, STRING)
    if e.type.kind is Kind.BOOLEAN:  # t and f, unlike in a CAST
        letters = Lit("string", "t", node.span), Func("not", (node,), node.span), Lit("string", "f", node.span)
        return bind(Func("case", (node, *letters), node.span))
    return bind(CastTo(node, TypeRef(known=STRING, span=node.span), node.span))


def _row(bind: Bind, node: Func) -> Expr:
    """ROW(a, b): a struct with the fields f1 and f2, as PostgreSQL names them. A bare NULL is a text."""
    named: list[Ast] = []
    for i, a in enumerate(node.args):
        untyped = isinstance(a, Lit) and a.value is None
        named += [Lit("string", f"f{i + 1}", node.span), CastTo(a, TypeRef(known=STRING)) if untyped else a]
    return bind(Func("struct", tuple(named), node.span))


def row_as(node: Func, to: SqlType, made: TypeRef) -> Func:
    """ROW(...) cast to a struct: each value to the field at its place. made: the type as written. Raises CompileError."""
    if len(node.args) != len(to.fields):
        title = f"{text_of(node)} has {len(node.args)} values, {to} has {len(to.fields)} fields"
        raise mistake("FQ2005", title, node.span, "not so many")
    parts: list[Ast] = []
    refs = [ref for _, ref in made.fields] or [TypeRef(known=t, span=node.span) for _, t in to.fields]
    for a, (name, _), ref in zip(node.args, to.fields, refs, strict=True):
        parts += [Lit("string", name, node.span), CastTo(a, ref, node.span)]
    return Func("struct", tuple(parts), node.span)


def _refused(what: str, label: str, help: str) -> Callable[[Bind, Func], Expr]:
    """A rule that raises UnsupportedError. what: is not supported, with {} for the name of the function."""

    def rule(_bind: Bind, node: Func) -> Expr:
        title = f"{what.format(node.name)} is not supported yet"
        raise UnsupportedError(Diagnostic("FQ1901", title, node.span, label=label, help=help, unsupported=True))

    return rule


# Beside other columns it would be rows in PostgreSQL and an array in DuckDB.
_SERIES = _refused("{} as a value", "rows, or an array?", "write  FROM t, generate_series(1, n)")
# Views over tables bind it where it may stand.
_UNNEST = _refused(
    "UNNEST anywhere but in FROM and as an item of the SELECT list",
    "several rows here",
    "write  FROM t, UNNEST(a) AS u(x)",
)


FUNCTIONS: dict[str, Callable[[Bind, Func], Expr]] = {
    **dict.fromkeys(("COALESCE", "IFNULL", "GREATEST", "LEAST"), _alike),
    "NULLIF": _nullif,
    "DATE_TRUNC": _moments,
    **dict.fromkeys(("TIMEZONE", "sql_date_trunc_in"), _in_zone),
    "TO_CHAR": _as_text,
    "TO_TIMESTAMP": _of_seconds,
    **dict.fromkeys(("DATE_BIN", "AGE", "DATE_ADD", "DATE_SUBTRACT", "ISFINITE"), _of_spans),
    **dict.fromkeys(("JUSTIFY_DAYS", "JUSTIFY_HOURS", "JUSTIFY_INTERVAL"), _of_spans),
    **dict.fromkeys(("NUM_NULLS", "NUM_NONNULLS"), _counted_nulls),
    **dict.fromkeys(("ROUND", "TRUNC", "TRUNCATE"), _rounded),
    **dict.fromkeys(("CONCAT", "CONCAT_WS", "FORMAT"), _joined),
    **dict.fromkeys(("ARRAY_HAS_ALL", "ARRAY_IS_IN", "ARRAY_HAS_ANY"), _of_arrays),
    **dict.fromkeys(("GENERATE_SERIES", "SERIES"), _SERIES),
    "UNNEST": _UNNEST,
    **dict.fromkeys(("ANY_ELEMENT", "ALL_ELEMENT"), _quantified),
    **dict.fromkeys(ARGUMENTS, _of_json),
    "sub": _difference,
    "concat": _concatenated,
    "EXTRACT": _extract,
    "DATE_PART": _date_part,
    "row": _row,
}

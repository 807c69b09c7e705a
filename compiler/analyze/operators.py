"""Operators and constructors whose types follow rules of their own, not overloads of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from flowql.compiler.analyze.json_functions import json_equal
from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.standard_functions import FUNCTIONS, beside_typed, called
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.functions.coercion import convert, unify
from flowql.compiler.functions.dialects import function_name
from flowql.compiler.functions.interval_texts import read_interval
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.sql_intervals import total_micros
from flowql.compiler.plan.expr import Call, Expr, Literal
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    INTERVAL,
    JSONB,
    SPAN,
    STRING,
    Kind,
    SqlType,
    array,
    map_of,
    struct,
)

Bind = Callable[[Ast], Expr]  # binds a part of the expression in the same scope


def _unified(bind: Bind, nodes: Sequence[Ast], *, strict: bool = False) -> tuple[SqlType, tuple[Expr, ...]]:
    bound = [bind(a) for a in nodes]
    try:
        return unify(bound, strict=strict)
    except FunctionTypeError as problem:
        culprit = next((n for n, b in zip(nodes, bound, strict=True) if str(b.type) in str(problem)), nodes[-1])
        given = listing([f"{text_of(n)} ({b.type})" for n, b in zip(nodes, bound, strict=True)])
        raise mistake(
            "FQ2005",
            f"{problem}; the values are {given}",
            culprit.span,
            "does not fit",
            help=problem.hint or "you might need to add explicit casts",
        ) from None


def _case(bind: Bind, node: Func) -> Expr:
    pairs = len(node.args) // 2
    return _case_of(bind, node, [bind(a) for a in node.args[0 : pairs * 2 : 2]])


def _results(node: Func) -> list[Ast]:
    """The possible results of a CASE; the last is NULL if it has no ELSE."""
    found = list(node.args[1 : len(node.args) // 2 * 2 : 2])
    found.append(node.args[-1] if len(node.args) % 2 else Lit("null", None, node.span))
    return found


def _standard_case(bind: Bind, node: Func) -> Expr:
    """WHEN may be unknown from the start: `WHEN NULL`, `CASE x WHEN NULL`."""
    pairs = len(node.args) // 2
    whens = [bind(a) for a in node.args[0 : pairs * 2 : 2]]
    results = [a for a in _results(node) if a in node.args]
    known = dict(zip(map(id, results), beside_typed([bind(a) for a in results]), strict=True))
    conditions = [convert(e, BOOLEAN) if e.type.kind is Kind.NULL else e for e in whens]
    return _case_of(lambda a: known[id(a)] if id(a) in known else bind(a), node, conditions, strict=True)


def _case_of(bind: Bind, node: Func, whens: Sequence[Expr], *, strict: bool = False) -> Expr:
    pairs = len(whens)
    for a, e in zip(node.args[0 : pairs * 2 : 2], whens, strict=True):
        if e.type.kind is not Kind.BOOLEAN:
            raise mistake("FQ2007", f"WHEN operand {text_of(a)} is {e.type}, not boolean", a.span, f"this is {e.type}")
    results = _results(node)
    result, thens = _unified(bind, results, strict=strict)
    if result.kind is Kind.NULL:
        raise mistake(
            "FQ2005",
            "invalid CASE expression: all case branches have NULL type",
            node.span,
            "always NULL",
            help="CAST one branch to a type",
        )
    args = [e for pair in zip(whens, thens, strict=False) for e in pair]
    return Call(result, "case", (*args, thens[-1]), node.span)


def _in(bind: Bind, node: Func) -> Expr:
    _, args = _unified(bind, node.args)
    call = Call(BOOLEAN, "in", args, node.span)
    return Call(BOOLEAN, "not", (call,), node.span) if node.name == "not_in" else call


def _standard_in(bind: Bind, node: Func) -> Expr:
    """In three-valued logic; a text beside a timestamp separates date and time by a blank."""
    found = [bind(a) for a in node.args]
    if any(e.type.kind is Kind.INTERVAL for e in found):
        found = [interval_number(_text_interval(e)) for e in found]
    found = beside_typed(found)
    known = dict(zip(map(id, node.args), found, strict=True))
    common, args = _unified(lambda a: known[id(a)], node.args, strict=True)
    if common.kind is Kind.NULL:
        return Literal(BOOLEAN, None, node.span)
    args = tuple(map(equality_value, args))
    call = Call(BOOLEAN, function_name("in", standard=True), args, node.span)
    return Call(BOOLEAN, "not", (call,), node.span) if node.name == "not_in" else call


def interval_number(e: Expr) -> Expr:
    """The value by which intervals are compared; '1 day' and '24 hours' are equal. Other expressions stay as they are."""
    if e.type.kind is not Kind.INTERVAL:
        return e
    return convert(e, BIGINT) if isinstance(e, Literal) else Call(BIGINT, "sql_interval_micros", (e,))


def json_order(e: Expr) -> Expr:
    """The value by which JSONB is ordered. Other expressions stay as they are."""
    return Call(STRING, "sql_jsonb_order", (e,), getattr(e, "span", NOWHERE)) if e.type == JSONB else e


def equality_value(e: Expr) -> Expr:
    """The expression that groups a value and tells it apart from others, where equal values may be written differently. Other expressions stay as they are."""
    return json_equal(interval_number(e))


def kept(e: Expr) -> Expr:
    """An interval as a column has it. Other expressions stay as they are."""
    if e.type.kind is not Kind.INTERVAL:
        return e
    if isinstance(e, Call) and e.name == "sql_interval_taken":
        return e.args[0]
    return (
        Literal(SPAN, None, e.span)
        if isinstance(e, Literal)
        else Call(SPAN, "sql_interval_kept", (e,), getattr(e, "span", NOWHERE))
    )


def taken(e: Expr) -> Expr:
    """A column of intervals as an expression has it. Other expressions stay as they are."""
    return Call(INTERVAL, "sql_interval_taken", (e,), getattr(e, "span", NOWHERE)) if e.type == SPAN else e


def interval_numbers(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two operands of a comparison; a text literal beside an interval is one. Raises CompileError."""
    if Kind.INTERVAL in (left.type.kind, right.type.kind):
        left, right = _text_interval(left), _text_interval(right)
    return interval_number(left), interval_number(right)


def _text_interval(e: Expr) -> Expr:
    if not (isinstance(e, Literal) and isinstance(e.value, str)):
        return e
    found = read_interval(e.value)
    if found is None:
        raise mistake("FQ1009", f"'{e.value}' is not an interval", e.span, help="write  INTERVAL '5' MINUTE")
    return Literal(BIGINT, total_micros((found.months, found.days, found.micros)), e.span)


def _between(bind: Bind, node: Func) -> Expr:
    value, low, high = node.args
    both = Func("and", (Func("ge", (value, low), node.span), Func("le", (value, high), node.span)), node.span)
    return bind(Func("not", (both,), node.span) if node.name == "not_between" else both)


def _not_like(bind: Bind, node: Func) -> Expr:
    return bind(Func("not", (Func("like", node.args, node.span),), node.span))


def _as_value(bind: Bind, node: Func) -> Expr:
    """AS_VALUE marks a copy of a key column as a value; to the plan it is the column itself."""
    if len(node.args) != 1:
        raise mistake("FQ2005", f"AS_VALUE takes one argument, not {len(node.args)}", node.span)
    return bind(node.args[0])


def _field(bind: Bind, node: Func) -> Expr:
    base = bind(node.args[0])
    label = node.args[1]
    name = str(label.value) if isinstance(label, Lit) else text_of(label)
    if base.type == JSONB:  # `j -> name`, where a struct would have a field of that name
        return bind(Func("JSONB_FIELD", (node.args[0], Name((name,), node.span)), node.span))
    if base.type.kind is not Kind.STRUCT:
        title = f"{text_of(node.args[0])} is {base.type}, not a STRUCT: it has no field {name}"
        raise mistake("FQ2005", title, node.span, f"this is {base.type}")
    found = base.type.field(name)
    if found is None:
        names = [n for n, _ in base.type.fields]
        hint = did_you_mean(name, names) or f"fields are {listing(names)}"
        raise mistake("FQ2002", f"{text_of(node.args[0])} has no field {name}", node.span, "unknown field", help=hint)
    return Call(found, "field", (base, Literal(STRING, name)), node.span)


def _subscript(bind: Bind, node: Func) -> Expr:
    return _element(node, *(bind(a) for a in node.args))


def _standard_subscript(bind: Bind, node: Func) -> Expr:
    """A subscript of standard SQL: in arrays it counts as in PostgreSQL, with no element at 0 or below."""
    base, index = (bind(a) for a in node.args)
    if base.type == JSONB:
        return called(node, (base, index), "JSONB_FIELD")
    return called(node, (base, index), "SUBSCRIPT") if base.type.kind is Kind.ARRAY else _element(node, base, index)


def _element(node: Func, base: Expr, index: Expr) -> Expr:
    if base.type.kind is Kind.ARRAY and index.type.kind in (Kind.INT, Kind.BIGINT):
        return Call(base.type.element, "subscript", (base, index), node.span)
    if base.type.kind is Kind.MAP:
        try:
            return Call(base.type.element, "subscript", (base, convert(index, base.type.args[0])), node.span)
        except FunctionTypeError as problem:
            raise mistake("FQ2005", f"{text_of(node)}: {problem}", node.span, f"the key is {index.type}") from None
    title = f"cannot take {text_of(node.args[1])} ({index.type}) of {text_of(node.args[0])}, which is {base.type}"
    raise mistake("FQ2005", title, node.span, "not an array or map with such an index")


def _array(bind: Bind, node: Func, *, strict: bool = False) -> Expr:
    element, args = _unified(bind, node.args, strict=strict)
    if element.kind is Kind.NULL and strict and args:  # of what has no type PostgreSQL makes texts
        element, args = STRING, tuple(Literal(STRING, None, node.span) for _ in args)
    if element.kind is Kind.NULL:
        raise mistake(
            "FQ2005",
            "cannot construct an array with all NULL elements",
            node.span,
            "of which type?",
            help="CAST one element, for example CAST(NULL AS STRING)",
        )
    return Call(array(element), "array", args, node.span)


def _map(bind: Bind, node: Func, *, strict: bool = False) -> Expr:
    key, keys = _unified(bind, node.args[::2], strict=strict)
    value, values = _unified(bind, node.args[1::2], strict=strict)
    if Kind.NULL in (key.kind, value.kind):
        raise mistake(
            "FQ2005",
            "cannot construct a map with all NULL keys or values",
            node.span,
            "of which type?",
            help="CAST one of them",
        )
    args = tuple(e for pair in zip(keys, values, strict=True) for e in pair)
    return Call(map_of(key, value), "map", args, node.span)


def _struct(bind: Bind, node: Func) -> Expr:
    names = [str(a.value) if isinstance(a, Lit) else text_of(a) for a in node.args[::2]]
    values = tuple(bind(a) for a in node.args[1::2])
    if len(set(names)) < len(names):
        raise mistake("FQ2004", f"duplicate field names in {text_of(node)}", node.span, "a name twice")
    empty = next((n for n, v in zip(names, values, strict=True) if v.type.kind is Kind.NULL), None)
    if empty is not None:
        raise mistake(
            "FQ2005",
            f"field {empty} of {text_of(node)} is NULL and has no type",
            node.span,
            "of which type?",
            help="CAST(NULL AS ...)",
        )
    return Call(struct(*zip(names, (v.type for v in values), strict=True)), "struct", values, node.span)


OPERATORS: dict[str, Callable[[Bind, Func], Expr]] = {
    "case": _case,
    "in": _in,
    "not_in": _in,
    "between": _between,
    "not_between": _between,
    "not_like": _not_like,
    "field": _field,
    "subscript": _subscript,
    "array": _array,
    "map": _map,
    "struct": _struct,
    "AS_VALUE": _as_value,
}
STANDARD_OPERATORS: dict[str, Callable[[Bind, Func], Expr]] = {
    **OPERATORS,
    **FUNCTIONS,
    "case": _standard_case,
    "subscript": _standard_subscript,
    "in": _standard_in,
    "not_in": _standard_in,
    "array": partial(_array, strict=True),
    "map": partial(_map, strict=True),
}

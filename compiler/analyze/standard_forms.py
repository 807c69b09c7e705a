"""Forms of standard SQL that mean others: each rule makes one node of the tree into one that the binder knows, and leaves the parts as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, TypeRef
from flowql.compiler.dialect.forms import with_t
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import LEVELS
from flowql.compiler.dialect.standard.intervals import interval_parts
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.standard.types import REALS, SMALL
from flowql.compiler.dialect.standard.words import BY_CODE_POINT, SPECIAL_VALUES
from flowql.compiler.dialect.words import CALENDAR_UNITS, UNIT_FUNCTIONS, singular
from flowql.compiler.functions.numeric import MAX_PRECISION
from flowql.compiler.plan.types import BIGINT, STRING, Kind, SqlType, array

# Functions whose arguments may be given by name, as PostgreSQL names them; one that is left out before one that is given is 0.
_NAMED = {
    "MAKE_INTERVAL": ("years", "months", "weeks", "days", "hours", "mins", "secs"),
    "MAKE_DATE": ("year", "month", "day"),
    "MAKE_TIME": ("hour", "min", "sec"),
    "MAKE_TIMESTAMP": ("year", "month", "mday", "hour", "min", "sec"),
    "MAKE_TIMESTAMPTZ": ("year", "month", "mday", "hour", "min", "sec", "timezone"),
}
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_DECIMAL = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,4})?\s*", re.ASCII | re.IGNORECASE)
_LEFT_DEEP_MAX = 16
_PART = "__part"  # in the lambda of a cast


# --- constants ---


def _decimal_of(node: t.TypedText) -> Decimal:
    """The constant NUMERIC '1.25'. Raises CompileError for a text without digits, or with more than a NUMERIC has."""
    if _DECIMAL.fullmatch(node.text) is None:
        fail("FQ1004", f"'{node.text}' is not a decimal number", node.span, help="write  NUMERIC '1.25'")
    v = Decimal(node.text.strip())
    exponent = v.as_tuple().exponent
    assert isinstance(exponent, int), "it is written in digits"
    if v.adjusted() >= MAX_PRECISION or -exponent > MAX_PRECISION:
        title = f"{node.text.strip()} is out of the range of NUMERIC"
        fail("FQ1004", title, node.span, label=f"more than {MAX_PRECISION} digits")
    return Decimal(f"{v:f}") if v else v.copy_abs()  # there is no negative zero


def _typed(node: t.TypedText) -> Ast:
    if node.type.name == "interval":
        return t.Interval(node.text, span=node.span)
    if node.type.name in ("decimal", "dec", "numeric") and not node.type.parameters:
        return Lit("decimal", _decimal_of(node), node.span)
    text = with_t(node.text) if node.type.name in ("timestamp", "timestamptz") else node.text
    return CastTo(Lit("string", text, node.span), node.type, node.span)


def _interval(node: t.Interval) -> Ast:
    found = interval_parts(node)
    parts = Lit("int", found.months), Lit("int", found.days), Lit("bigint", found.micros)
    return Func("sql_interval", parts, node.span)


def _special_value(node: Func) -> Ast | None:
    """CURRENT_TIMESTAMP and its like, of milliseconds or microseconds."""
    if node.name not in ("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP") or any(
        isinstance(digits, Lit) and digits.value not in (3, 6) for digits in node.args
    ):
        unsupported(node.name, node.span, "the time of a row is  ROWTIME" if "TIME" in node.name else "")
    return replace(node, args=()) if node.args else None


# --- operators ---


def _same(name: str, *, negated: bool = False, flags: str = "") -> Callable[[Func], Ast]:
    """A rule for an operator that is a function. flags: its last argument."""

    def rule(node: Func) -> Ast:
        last = (Lit("string", flags, node.span),) if flags else ()
        made = Func(name, (*node.args, *last), node.span)
        return _not(made) if negated else made

    return rule


def _matched(node: Func) -> Ast | None:
    for escape in node.args[2:]:
        if not isinstance(escape, Lit) or escape.kind != "string":
            fail("FQ1001", "ESCAPE takes a character in single quotes", escape.span, help="write  ESCAPE '!'")
    name = node.name.removeprefix("not_")
    if name == "like":
        return None
    return _same(name.upper(), negated=name != node.name)(node)


def _not(made: Ast) -> Func:
    return Func("not", (made,), made.span)


def _logical(node: Func) -> Ast | None:
    """To the left as written, or, when there are many, as a balanced and so shallow tree."""
    return _joined(node, node.args) if len(node.args) > 2 else None


def _joined(node: Func, operands: Sequence[Ast]) -> Ast:
    if len(operands) == 1:
        return operands[0]
    half = len(operands) - 1 if len(operands) <= _LEFT_DEEP_MAX else len(operands) // 2
    return Func(node.name, (_joined(node, operands[:half]), _joined(node, operands[half:])), node.span)


def _is_test(node: Func) -> Ast:
    prefix, _, test = node.name.rpartition("_")
    if test == "unknown":
        return Func(f"{prefix}_null", node.args, node.span)
    value = Lit("bool", test == "true", node.span)
    return Func("is_distinct" if prefix == "is_not" else "is_not_distinct", (*node.args, value), node.span)


def _between_symmetric(node: Func) -> Ast:
    name = node.name.removesuffix("_symmetric")
    value, low, high = node.args
    orders = Func(name, (value, low, high), node.span), Func(name, (value, high, low), node.span)
    return Func("and" if name == "not_between" else "or", orders, node.span)


def _quantified(node: t.Quantified) -> Ast:
    if isinstance(node.of, t.Query) or node.op not in ("=", "<>", "<", "<=", ">", ">="):
        unsupported(f"{node.op.upper()} {node.quantifier.upper()} (...)", node.span, "list the values:  x IN (1, 2)")
    op = Lit("string", node.op, node.span)
    return Func(f"{node.quantifier.upper()}_ELEMENT", (op, node.operand, node.of), node.span)


def _case_of(node: Func) -> Ast:
    """`CASE x WHEN v` becomes `CASE WHEN x = v`."""
    subject, *parts = node.args
    for i in range(0, len(parts) - 1, 2):
        parts[i] = Func("eq", (subject, parts[i]), parts[i].span)
    return Func("case", tuple(parts), node.span)


def narrowing(made: TypeRef, at: Ast) -> Func | None:
    """The effect of a CAST beyond the kind of its type, as a function without its first argument: it cuts strings, rounds, or checks a range."""
    if made.name in SMALL:
        return Func("sql_in_range", tuple(Lit("int", n) for n in SMALL[made.name]), at.span)
    if made.name in REALS:
        return Func("sql_real", (), at.span)
    if made.name == "char" and made.parameters:
        unsupported("a CAST to CHAR(n), which adds blanks", at.span, "write  VARCHAR(n)")
    if made.name == "varchar" and made.parameters:
        return Func("LEFT", (Lit("int", made.parameters[0], at.span),), at.span)
    return None


def narrowed_parts(node: CastTo, given: SqlType, to: SqlType) -> Ast | None:
    """A CAST to an array, a map or a struct with parts that are cut, rounded or checked, by casts of its parts; None for other casts.

    given: the type of the operand. to: the type without these limits.
    """
    made, whole = node.type, node.operand
    is_text = given.kind is Kind.STRING and to.kind is Kind.ARRAY
    is_nested = given.kind is to.kind and to.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT)
    if not (is_text or is_nested) or not _narrows(made, node):
        return None

    def cast(part: Ast, ref: TypeRef, type_: SqlType) -> CastTo:
        return CastTo(part, ref if _narrows(ref, node) else TypeRef(known=type_, span=node.span), node.span)

    if to.kind is Kind.ARRAY:
        body = cast(Name((_PART,), node.span), made.args[0], to.element)
        parts = CastTo(whole, TypeRef(known=_of_texts(to), span=node.span), node.span) if is_text else whole
        return Func("TRANSFORM", (parts, LambdaFn((_PART,), body, node.span)), node.span)
    if not isinstance(whole, Name):  # it is computed once
        body = replace(node, operand=Name((_PART,), node.span))
        one = Func("TRANSFORM", (Func("array", (whole,), node.span), LambdaFn((_PART,), body, node.span)), node.span)
        return Func("subscript", (one, Lit("int", 1, node.span)), node.span)
    if to.kind is Kind.MAP:
        keys, values = (Func(name, (whole,), node.span) for name in ("MAP_KEYS", "MAP_VALUES"))
        of_keys, of_values = (replace(made, name="array", args=(ref,)) for ref in made.args)
        arrays = cast(keys, of_keys, array(to.args[0])), cast(values, of_values, array(to.args[1]))
        return Func("AS_MAP", arrays, node.span)
    fields = list[Ast]()
    for (_, ref), (name, part) in zip(made.fields, to.fields, strict=True):
        key = Lit("string", name, node.span)
        is_given = given.field(name) is not None
        value = Func("field", (whole, key), node.span) if is_given else Lit("null", None, node.span)
        fields += [key, cast(value, ref, part)]
    there = Func("is_not_null", (whole,), node.span)
    return Func("case", (there, Func("struct", tuple(fields), node.span)), node.span)


def _of_texts(t: SqlType) -> SqlType:
    """The array with texts for its values, in as many dimensions."""
    return array(_of_texts(t.element)) if t.kind is Kind.ARRAY else STRING


def _narrows(made: TypeRef, at: Ast) -> bool:
    """Whether a CAST to this type changes values beyond the kind of the type."""
    parts = (*made.args, *(ref for _, ref in made.fields))
    return narrowing(made, at) is not None or any(_narrows(part, at) for part in parts)


# --- rows ---


def over_rows(node: Func) -> Ast | None:
    """An operator whose first operand is a row, over the values of the row; None for an operator that takes a row as a whole."""
    left, *others = node.args
    assert t.is_row(left)
    if node.name in ("is_null", "is_not_null"):  # true if it is true for each of the values
        tests = [replace(node, args=(i,)) for i in left.args]
        return _joined(Func("and", (), node.span), tests) if len(tests) > 1 else None
    if node.name in ("in", "not_in"):
        equal = _chained("or", [_rows_equal(node, left, item) for item in others], node)
        return _not(equal) if node.name == "not_in" else equal
    if len(others) != 1 or t.sign_of(node.name) not in LEVELS:
        return None
    (right,) = others
    if node.name == "overlaps":
        return _overlaps(node, left, right)
    if node.name in ("eq", "ne"):
        equal = _rows_equal(node, left, right)
        return equal if node.name == "eq" else _not(equal)
    if node.name not in _COMPARED:
        unsupported(f"the operator {t.sign_of(node.name)} of rows", node.span, "compare the columns one by one")
    return _rows_ordered(node, _pairs(node, left, right))


def _chained(name: str, operands: Sequence[Ast], node: Ast) -> Ast:
    made = operands[0]
    for operand in operands[1:]:
        made = Func(name, (made, operand), node.span)
    return made


def _rows_equal(node: Func, left: Func, right: t.Expr) -> Ast:
    """`(a, b) = (c, d)`: unknown where a comparison of values is and no other is false."""
    return _chained("and", [Func("eq", pair, node.span) for pair in _pairs(node, left, right)], node)


def _pairs(node: Func, left: Func, right: t.Expr) -> list[tuple[Ast, Ast]]:
    if not t.is_row(right) or len(left.args) != len(right.args):
        fail("FQ2005", "rows of different length are compared", node.span, label="not so many values")
    return [*zip(left.args, right.args, strict=True)]


def _rows_ordered(node: Func, pairs: Sequence[tuple[Ast, Ast]]) -> Ast:
    """`(a, b) < (c, d)`: the first values that are not equal decide. `a < c OR (a = c AND b < d)`."""
    made: Ast = Func(node.name, pairs[-1], node.span)
    for pair in reversed(pairs[:-1]):
        later = Func("and", (Func("eq", pair, node.span), made), node.span)
        made = Func("or", (Func(node.name[0] + "t", pair, node.span), later), node.span)
    return made


def _overlaps(node: Func, left: Func, right: t.Expr) -> Ast:
    """`(start, end) OVERLAPS (start, length)`."""
    if not t.is_row(right) or len(left.args) != 2 or len(right.args) != 2:
        fail("FQ2005", "OVERLAPS is between two rows of two values", node.span, help="write  (a, b) OVERLAPS (c, d)")
    ends: list[Ast] = []
    for start, end in (left.args, right.args):
        ends += [start, Func("add", (start, end), end.span) if isinstance(end, t.Interval) else end]
    return Func("OVERLAPS", tuple(ends), node.span)


def _overlaps_of_values(node: Func) -> Ast:
    unsupported("the operator OVERLAPS", node.span)


def _collate(node: t.Collate) -> Ast:
    """Texts are compared by their code points, which is what these collations mean."""
    if node.name[-1] not in BY_CODE_POINT:
        help = 'strings are compared by their code points: leave it out, or write  COLLATE "C"'
        unsupported(f"COLLATE {'.'.join(node.name)}", node.span, help)
    return node.operand


def _in_query(node: t.InQuery) -> Ast:
    named = "NOT IN (a sub-query)" if node.negated else "IN (a sub-query)"
    unsupported(named, node.span, "join the other relation instead")


def _refused(named: str, help: str = "") -> Callable[[Any], Ast]:
    def rule(node: t.Node) -> Ast:
        unsupported(named, node.span, help)

    return rule


# --- calls ---


def as_function(node: t.Call) -> Func:
    """The call of a function that is no aggregate over rows. Raises CompileError for clauses that such a function does not have."""
    if len(node.name) > 1:
        unsupported("a schema in front of a function", node.span, f"write  {node.name[-1]}(...)")
    if node.over is not None:
        unsupported("a window function (OVER)", node.span, "group by the columns of PARTITION BY instead")
    for written, named in (
        (node.within_group, "WITHIN GROUP"),
        (node.order_by, "ORDER BY inside an aggregate"),
        (node.nulls, f"{node.nulls.upper()} NULLS"),
    ):
        if written:
            unsupported(named, node.span)
    (name,) = node.name
    upper = name.upper() if name == name.lower() else name
    args = tuple(_lambda(a) if isinstance(a, t.Named) else a for a in node.args)
    if upper in _NAMED:
        args = tuple(_placed(upper, node, _NAMED[upper]))
    elif args and upper in (*UNIT_FUNCTIONS, "TIMESTAMPDIFF"):
        args = (_unit(args[0]), *args[1:])
    return Func(upper, args, node.span, node.distinct, node.filter)


def _lambda(node: t.Named) -> LambdaFn:
    return LambdaFn((node.name,), node.value, node.span)


def _placed(name: str, node: t.Call, places: Sequence[str]) -> Sequence[t.Expr]:
    """The arguments at their places; those with names stand behind those without. Raises CompileError."""
    given: dict[str, t.Expr] = {}
    for i, arg in enumerate(node.args):
        if not isinstance(arg, t.Named):
            if any(isinstance(a, t.Named) for a in node.args[:i]):
                title = "an argument without a name follows one with a name"
                fail("FQ1001", title, arg.span, help="move it to the front")
            if i >= len(places):
                return node.args  # the function says how many it takes
            given[places[i]] = arg
            continue
        listed = ", ".join(places)
        if arg.name not in places:
            fail("FQ1001", f"{name} has no argument {arg.name}", arg.span, help=f"it has {listed}")
        if arg.name in given:
            fail("FQ1001", f"the argument {arg.name} is given twice", arg.span, help="remove one of them")
        given[arg.name] = arg.value
    last = max((places.index(p) for p in given), default=-1)
    missing = [p for p in places[: last + 1] if p not in given]
    if missing and name != "MAKE_INTERVAL":
        fail("FQ1001", f"{name} needs the argument {missing[0]}", node.span, help=f"write  {missing[0]} => value")
    return [given.get(p, Lit("number", "0", node.span)) for p in places[: last + 1]]


def _unit(node: t.Expr) -> t.Expr:
    """The bare unit of `TIMESTAMPADD(DAYS, 3, t)` as a string; other nodes stay as they are."""
    if not isinstance(node, Name) or len(node.parts) > 1 or singular(node.parts[0]) not in CALENDAR_UNITS:
        return node
    return Lit("string", node.parts[0].upper(), node.span)


def _part(name: str) -> Callable[[Func], Ast | None]:
    """A rule for a function of another system that gives a part of a time."""

    def rule(node: Func) -> Ast | None:
        if len(node.args) != 1:
            return None
        part = Func("EXTRACT", (Lit("string", name, node.span), *node.args), node.span)
        return CastTo(Func("FLOOR", (part,), node.span), TypeRef(known=BIGINT, span=node.span), node.span)

    return rule


def _with_three(name: str) -> Callable[[Func], Ast | None]:
    """A rule for a function that is another with three arguments."""
    return lambda node: replace(node, name=name) if len(node.args) == 3 else None


# Functions and operators by their names in the tree. A rule gives None where the function of that name is meant.
REWRITES: dict[str, Callable[[Func], Ast | None]] = {
    "plus": lambda node: node.args[0],
    "~": _same("REGEXP_LIKE"),
    "~*": _same("REGEXP_LIKE", flags="i"),
    "!~": _same("REGEXP_LIKE", negated=True),
    "!~*": _same("REGEXP_LIKE", negated=True, flags="i"),
    "~~": _same("like"),
    "!~~": _same("not_like"),
    "~~*": _same("ILIKE"),
    "!~~*": _same("ILIKE", negated=True),
    **{prefix + name: _matched for prefix in ("", "not_") for name in ("like", "ilike", "similar")},
    "ROW": _same("row"),
    **dict.fromkeys(("and", "or"), _logical),
    **{f"{prefix}_{test}": _is_test for prefix in ("is", "is_not") for test in ("true", "false", "unknown")},
    **dict.fromkeys(("between_symmetric", "not_between_symmetric"), _between_symmetric),
    "case_of": _case_of,
    "overlaps": _overlaps_of_values,
    **dict.fromkeys(SPECIAL_VALUES, _special_value),
    **{name: _part(name) for name in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAYOFYEAR": _part("DOY"),
    "DAYOFMONTH": _part("DAY"),
    "IF": _with_three("case"),
    "DATE_TRUNC": _with_three("sql_date_trunc_in"),  # in a time zone
    "DATE_FORMAT": lambda node: replace(node, name="FORMAT_TIMESTAMP"),
}
FORMS: dict[type, Callable[[Any], Ast]] = {
    t.TypedText: _typed,
    t.Interval: _interval,
    t.Default: _refused("DEFAULT", "leave the column out"),
    t.InQuery: _in_query,
    t.Quantified: _quantified,
    t.Exists: _refused("EXISTS", "join the other relation instead"),
    t.ScalarQuery: _refused("a sub-query as a value", "join the other relation instead"),
    t.Collate: _collate,
    t.ArrayQuery: _refused("ARRAY(a sub-query)", "write  COLLECT_LIST(x) in a query with GROUP BY"),
    t.TableArgument: _refused("a table as an argument"),
}

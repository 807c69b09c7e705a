"""Expressions of the tree as those the analyzer reads. What it does not know is refused by its name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, Star, TypeRef
from flowql.compiler.dialect.forms import with_t
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import LEVELS
from flowql.compiler.dialect.standard.lower_types import lower_cast_type
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.standard.words import BY_CODE_POINT, SPECIAL_VALUES
from flowql.compiler.dialect.words import CALENDAR_UNITS, UNIT_FUNCTIONS, singular
from flowql.compiler.functions import sql_array_parts, sql_jsonb, sql_numbers
from flowql.compiler.functions.interval_texts import read_interval
from flowql.compiler.functions.numeric import MAX_PRECISION
from flowql.compiler.plan.types import BIGINT

_NAMES = {  # of operators in functions' words
    "^": "POWER",
    "^@": "STARTS_WITH",
    "@": "ABS",
    "|/": "SQRT",
    "||/": "CBRT",
    "~~": "like",
    "!~~": "not_like",
    "~~*": "ILIKE",
    "ROW": "row",
    **sql_numbers.OPERATORS,
    **sql_array_parts.OPERATORS,
    **sql_jsonb.OPERATORS,
}
# Functions of other systems that have the name of a part of a time.
_PARTS = {p: p for p in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")} | {
    "DAYOFYEAR": "DOY",
    "DAYOFMONTH": "DAY",
}
# Functions whose arguments may be given by name, as PostgreSQL names them; what is left out in front of one that is given is 0.
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
# Types with the smallest and the largest of their values; columns of them are INT.
SMALL = {"tinyint": (-128, 127), **dict.fromkeys(("smallint", "int2", "smallserial"), (-32_768, 32_767))}
REALS = ("real", "float4")  # their columns are DOUBLE, within the range of a REAL
_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1


def lower_expr(node: t.Expr) -> Ast:
    """One expression."""
    return _RULES[type(node)](node)


def lower_exprs(nodes: Sequence[t.Expr]) -> tuple[Ast, ...]:
    """Several expressions, in order."""
    return tuple(lower_expr(n) for n in nodes)


# --- constants ---


def _literal(node: Lit) -> Ast:
    return _number(node, str(node.value)) if node.kind == "number" else node


def _number(node: t.Expr, text: str) -> Lit:
    """1 int (bigint beyond 32 bits, numeric beyond 64), 1.5 decimal, 1e3 double."""
    if "e" in text.lower():
        double = float(text)
        if math.isinf(double):
            fail("FQ1004", f"{text} is out of the range of DOUBLE PRECISION", node.span, label="larger than 1.797e308")
        return Lit("double", double, node.span)
    if "." in text:
        return Lit("decimal", _signless_zero(Decimal(text)), node.span)
    value = Decimal(text)
    if value.adjusted() >= MAX_PRECISION:
        label = f"more than {MAX_PRECISION} digits"
        help = "a number with an exponent is approximate:  1e40"
        fail("FQ1004", f"{text} is out of the range of NUMERIC", node.span, label=label, help=help)
    if not -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
        return Lit("decimal", value, node.span)
    return Lit("int" if -_INT_MAX - 1 <= value <= _INT_MAX else "bigint", int(value), node.span)


def _signless_zero(v: Decimal) -> Decimal:
    """A NUMERIC has no negative zero: -0.0 is 0.0, also where it becomes a DOUBLE."""
    return v if v else v.copy_abs()


def _decimal_of(node: t.TypedText) -> Decimal:
    """The constant NUMERIC '1.25'. Raises CompileError for what has no digits, or more than a NUMERIC."""
    if _DECIMAL.fullmatch(node.text) is None:
        fail("FQ1004", f"'{node.text}' is not a decimal number", node.span, help="write  NUMERIC '1.25'")
    v = Decimal(node.text.strip())
    exponent = v.as_tuple().exponent
    assert isinstance(exponent, int), "it is written in digits"
    if v.adjusted() >= MAX_PRECISION or -exponent > MAX_PRECISION:
        fail(
            "FQ1004",
            f"{node.text.strip()} is out of the range of NUMERIC",
            node.span,
            label=f"more than {MAX_PRECISION} digits",
        )
    return _signless_zero(Decimal(f"{v:f}"))


def _typed(node: t.TypedText) -> Ast:
    if node.type.name == "interval":
        return _interval(t.Interval(node.text, span=node.span))
    if node.type.name in ("decimal", "dec", "numeric") and not node.type.parameters:
        return Lit("decimal", _decimal_of(node), node.span)
    text = with_t(node.text) if node.type.name in ("timestamp", "timestamptz") else node.text
    return _narrowed(node.type, CastTo(Lit("string", text, node.span), lower_cast_type(node.type), node.span))


def _interval(node: t.Interval) -> Ast:
    found = read_interval(node.text, node.units)
    if found is None:
        fail("FQ1009", f"'{node.text}' is not an interval", node.span, help="write  INTERVAL '5' MINUTE")
    if max(abs(found.months), abs(found.days)) > _INT_MAX or abs(found.micros) > _BIGINT_MAX:
        fail("FQ1004", f"'{node.text}' is out of the range of intervals", node.span)
    parts = Lit("int", found.months), Lit("int", found.days), Lit("bigint", found.micros)
    return Func("sql_interval", parts, node.span)


def lower_duration(node: t.Interval) -> int:
    """The milliseconds of an interval that has one length: no months, which have several."""
    found = read_interval(node.text, node.units)
    if found is not None and found.months:
        unsupported("a duration of months or years", node.span, "write it in days")
    _interval(node)
    assert found is not None
    if found.micros % 1000:
        unsupported("a duration with a part of a millisecond", node.span)
    return found.days * 86_400_000 + found.micros // 1000


def _now(node: Func) -> Ast:
    if any(isinstance(digits, Lit) and digits.value not in (3, 6) for digits in node.args):
        return _no_special(node)
    return Func(node.name, (), node.span)


def _no_special(node: Func) -> Ast:
    unsupported(node.name, node.span, "the time of a row is  ROWTIME" if "TIME" in node.name else "")


def _star(node: Star) -> Ast:
    if node.excluded:
        unsupported("* EXCEPT (...)", node.span, "name the columns")
    if len(node.qualifier) > 1:
        unsupported("a schema in front of a name", node.span, f"write  {node.source}.*")
    return node if node.struct_of is None else replace(node, struct_of=lower_expr(node.struct_of))


# --- operators ---


def _function(node: Func) -> Ast:
    if len(node.args) == 2 and t.is_row(node.args[0]) and t.sign_of(node.name) in LEVELS:
        return _compared_rows(node)
    if node.name in _OPERATORS:
        return _OPERATORS[node.name](node)
    args = lower_exprs(node.args)
    if node.name == "overlaps":
        unsupported("the operator OVERLAPS", node.span)
    return Func(_NAMES.get(node.name, node.name), args, node.span)


def _negative(node: Func) -> Ast:
    (operand,) = node.args
    if isinstance(operand, Lit) and operand.kind == "number":
        return _number(node, f"-{operand.value}")  # so that the least BIGINT can be written
    return Func("neg", (lower_expr(operand),), node.span)


def _regular(node: Func) -> Ast:
    """`~`; with a * whatever the case, with a ! negated. In front of a value it turns its bits."""
    if len(node.args) == 1:
        return Func(sql_numbers.NOT, lower_exprs(node.args), node.span)
    flags = (Lit("string", "i", node.span),) if node.name.endswith("*") else ()
    made = Func("REGEXP_LIKE", (*lower_exprs(node.args), *flags), node.span)
    return _not(made) if node.name.startswith("!") else made


def _not(made: Func) -> Func:
    return Func("not", (made,), made.span)


def _logical(node: Func) -> Ast:
    """To the left as written, or, when there are many, as a balanced and so shallow tree."""
    return _joined(node, lower_exprs(node.args))


def _joined(node: Func, operands: Sequence[Ast]) -> Ast:
    if len(operands) == 1:
        return operands[0]
    half = len(operands) - 1 if len(operands) <= _LEFT_DEEP_MAX else len(operands) // 2
    return Func(node.name, (_joined(node, operands[:half]), _joined(node, operands[half:])), node.span)


def _null_test(node: Func) -> Ast:
    """IS [NOT] NULL of a row is true if it is true for each of its values."""
    (operand,) = node.args
    if t.is_row(operand) and len(operand.args) > 1:
        tests = [_null_test(replace(node, args=(i,))) for i in operand.args]
        return _joined(Func("and", (), node.span), tests)
    return Func(node.name, (lower_expr(operand),), node.span)


def _is_test(node: Func) -> Ast:
    prefix, _, test = node.name.rpartition("_")
    if test == "unknown":
        return Func(f"{prefix}_null", lower_exprs(node.args), node.span)
    value = Lit("bool", test == "true", node.span)
    opposite = "is_distinct" if prefix == "is_not" else "is_not_distinct"
    return Func(opposite, (*lower_exprs(node.args), value), node.span)


def _between_symmetric(node: Func) -> Ast:
    name = node.name.removesuffix("_symmetric")
    value, low, high = lower_exprs(node.args)
    orders = Func(name, (value, low, high), node.span), Func(name, (value, high, low), node.span)
    return Func("and" if name == "not_between" else "or", orders, node.span)


def _like(node: Func) -> Ast:
    args = (*lower_exprs(node.args[:2]), *node.args[2:])
    for escape in args[2:]:
        if not isinstance(escape, Lit) or escape.kind != "string":
            fail("FQ1001", "ESCAPE takes a character in single quotes", escape.span, help="write  ESCAPE '!'")
    if node.name in ("like", "not_like"):
        return Func(node.name, args, node.span)
    made = Func(node.name.removeprefix("not_").upper(), args, node.span)
    return _not(made) if node.name.startswith("not_") else made


def _in_list(node: Func) -> Ast:
    operand, *items = node.args
    if not t.is_row(operand):
        return Func(node.name, lower_exprs(node.args), node.span)
    equal: Ast = _rows_equal(node, operand, items[0])
    for item in items[1:]:
        equal = Func("or", (equal, _rows_equal(node, operand, item)), node.span)
    return Func("not", (equal,), node.span) if node.name == "not_in" else equal


def _in_query(node: t.InQuery) -> Ast:
    named = "NOT IN (a sub-query)" if node.negated else "IN (a sub-query)"
    unsupported(named, node.span, "join the other relation instead")


def _quantified(node: t.Quantified) -> Ast:
    if isinstance(node.of, t.Query) or node.op not in ("=", "<>", "<", "<=", ">", ">="):
        unsupported(f"{node.op.upper()} {node.quantifier.upper()} (...)", node.span, "list the values:  x IN (1, 2)")
    op = Lit("string", node.op, node.span)
    return Func(f"{node.quantifier.upper()}_ELEMENT", (op, *lower_exprs((node.operand, node.of))), node.span)


def _cast(node: t.Cast) -> Ast:
    if node.safe:
        return Func("TRY", (_cast(replace(node, safe=False)),), node.span)
    if node.type.name == "interval" and isinstance(node.operand, Lit) and node.operand.kind == "string":
        return _interval(t.Interval(str(node.operand.value), span=node.span))
    made = CastTo(lower_expr(node.operand), lower_cast_type(node.type), node.span)
    return _narrowed(node.type, made)


def _narrowed(type_: t.TypeName, made: CastTo) -> Ast:
    """The effects of a CAST beyond the kind of its column: cut strings, and smaller ranges."""
    if type_.name in SMALL:
        return Func("sql_in_range", (made, *(Lit("int", n) for n in SMALL[type_.name])), made.span)
    if type_.name in REALS:
        return Func("sql_real", (made,), made.span)
    if type_.name in ("varchar", "char") and type_.parameters:
        if type_.name == "char":
            unsupported("a CAST to CHAR(n), which adds blanks", made.span, "write  VARCHAR(n)")
        return Func("LEFT", (made, Lit("int", type_.parameters[0], made.span)), made.span)
    return made


def _case_of(node: Func) -> Ast:
    """`CASE x WHEN v` becomes `CASE WHEN x = v`."""
    subject, *parts = lower_exprs(node.args)
    for i in range(0, len(parts) - 1, 2):
        parts[i] = Func("eq", (subject, parts[i]), node.args[i + 1].span)
    return Func("case", tuple(parts), node.span)


# --- rows ---


def _rows_equal(node: t.Expr, left: Func, right: t.Expr) -> Ast:
    """`(a, b) = (c, d)`: unknown where a comparison of values is and no other is false."""
    made = [Func("eq", pair, node.span) for pair in _pairs(node, left, right)]
    joined: Ast = made[0]
    for comparison in made[1:]:
        joined = Func("and", (joined, comparison), node.span)
    return joined


def _pairs(node: t.Expr, left: Func, right: t.Expr) -> list[tuple[Ast, ...]]:
    if not t.is_row(right) or len(left.args) != len(right.args):
        fail("FQ2005", "rows of different length are compared", node.span, label="not so many values")
    return [lower_exprs(pair) for pair in zip(left.args, right.args, strict=True)]


def _compared_rows(node: Func) -> Ast:
    left, right = node.args
    assert t.is_row(left)
    if node.name == "overlaps":
        return _overlaps(node, left, right)
    if node.name in ("eq", "ne"):
        equal = _rows_equal(node, left, right)
        return equal if node.name == "eq" else Func("not", (equal,), node.span)
    if node.name not in _COMPARED:
        unsupported(f"the operator {t.sign_of(node.name)} of rows", node.span, "compare the columns one by one")
    return _rows_ordered(node, _pairs(node, left, right))


def _rows_ordered(node: Func, pairs: Sequence[tuple[Ast, ...]]) -> Ast:
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
        first, last = lower_exprs((start, end))
        ends += [first, Func("add", (first, last), end.span) if isinstance(end, t.Interval) else last]
    return Func("OVERLAPS", tuple(ends), node.span)


# --- arguments ---


def _collate(node: t.Collate) -> Ast:
    """Texts are compared by their code points, which is what these collations mean."""
    if node.name[-1] not in BY_CODE_POINT:
        help = 'strings are compared by their code points: leave it out, or write  COLLATE "C"'
        unsupported(f"COLLATE {'.'.join(node.name)}", node.span, help)
    return lower_expr(node.operand)


def _refused(named: str, help: str = "") -> Callable[[Any], Ast]:
    def rule(node: t.Node) -> Ast:
        unsupported(named, node.span, help)

    return rule


# --- calls ---


def _call(node: t.Call) -> Ast:
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
    args = [*node.args]
    made: list[Ast] = []
    if upper in (*UNIT_FUNCTIONS, "TIMESTAMPDIFF") and args and (unit := _unit(args[0])) is not None:
        made.append(unit)
        del args[0]
    condition = lower_expr(node.filter) if node.filter is not None else None
    if upper in _NAMED:
        args = _placed(upper, node, _NAMED[upper])
    lowered = (*made, *lower_exprs(args))
    if condition is None and not node.distinct and (same := _same_as(upper, lowered, node)) is not None:
        return same
    return Func(upper, lowered, node.span, node.distinct, condition)


def _placed(name: str, node: t.Call, places: Sequence[str]) -> list[t.Expr]:
    """The arguments at their places; those with names stand behind those without. Raises CompileError."""
    given: dict[str, t.Expr] = {}
    for i, arg in enumerate(node.args):
        if not isinstance(arg, t.Named):
            if any(isinstance(a, t.Named) for a in node.args[:i]):
                fail(
                    "FQ1001",
                    "an argument without a name follows one with a name",
                    arg.span,
                    help="move it to the front",
                )
            if i >= len(places):
                return [*node.args]  # the function says how many it takes
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


def _same_as(name: str, args: tuple[Ast, ...], node: t.Call) -> Ast | None:
    """A function of another system in terms of PostgreSQL; None for other functions."""
    if name in _PARTS and len(args) == 1:
        part = Func("EXTRACT", (Lit("string", _PARTS[name], node.span), args[0]), node.span)
        return CastTo(Func("FLOOR", (part,), node.span), TypeRef(known=BIGINT, span=node.span), node.span)
    if name == "IF" and len(args) == 3:
        return Func("case", args, node.span)
    if name == "DATE_FORMAT":
        return Func("FORMAT_TIMESTAMP", args, node.span)
    if name == "DATE_TRUNC" and len(args) == 3:  # in a time zone
        return Func("sql_date_trunc_in", args, node.span)
    return None


def _unit(node: t.Expr) -> Lit | None:
    """The bare unit of `TIMESTAMPADD(DAYS, 3, t)`."""
    if not isinstance(node, Name) or len(node.parts) > 1 or singular(node.parts[0]) not in CALENDAR_UNITS:
        return None
    return Lit("string", node.parts[0].upper(), node.span)


_OPERATORS: dict[str, Callable[[Func], Ast]] = {
    "neg": _negative,
    "plus": lambda node: lower_expr(node.args[0]),
    **dict.fromkeys(("~", "~*", "!~", "!~*"), _regular),
    "!~~*": lambda node: _not(Func("ILIKE", lower_exprs(node.args), node.span)),
    **dict.fromkeys(("and", "or"), _logical),
    **dict.fromkeys(("is_null", "is_not_null"), _null_test),
    **{f"{prefix}_{test}": _is_test for prefix in ("is", "is_not") for test in ("true", "false", "unknown")},
    **dict.fromkeys(("between_symmetric", "not_between_symmetric"), _between_symmetric),
    **{prefix + name: _like for prefix in ("", "not_") for name in ("like", "ilike", "similar")},
    **dict.fromkeys(("in", "not_in"), _in_list),
    "case_of": _case_of,
    **dict.fromkeys(SPECIAL_VALUES, _no_special),
    **dict.fromkeys(("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP"), _now),
}
_RULES: dict[type, Callable[[Any], Ast]] = {
    Name: lambda node: node,
    Lit: _literal,
    Func: _function,
    LambdaFn: lambda node: replace(node, body=lower_expr(node.body)),
    t.TypedText: _typed,
    t.Interval: _interval,
    t.Default: _refused("DEFAULT", "leave the column out"),
    Star: _star,
    t.InQuery: _in_query,
    t.Quantified: _quantified,
    t.Exists: _refused("EXISTS", "join the other relation instead"),
    t.ScalarQuery: _refused("a sub-query as a value", "join the other relation instead"),
    t.Cast: _cast,
    t.Collate: _collate,
    t.ArrayQuery: _refused("ARRAY(a sub-query)", "write  COLLECT_LIST(x) in a query with GROUP BY"),
    t.Named: lambda node: LambdaFn((node.name,), lower_expr(node.value), node.span),
    t.TableArgument: _refused("a table as an argument"),
    t.Call: _call,
}

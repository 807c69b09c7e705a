"""Expressions of the tree as those the analyzer reads. What it does not know is refused by its name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, TypeRef
from flowql.compiler.dialect.ast import Star as PlainStar
from flowql.compiler.dialect.forms import with_t
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import read_interval
from flowql.compiler.dialect.standard.lower_types import lower_cast_type
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.standard.words import BY_CODE_POINT
from flowql.compiler.dialect.words import CALENDAR_UNITS, UNIT_FUNCTIONS, singular
from flowql.compiler.functions import sql_array_parts, sql_bits, sql_jsonb
from flowql.compiler.functions.numeric import MAX_PRECISION
from flowql.compiler.plan.types import BIGINT

_BINARY = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "mod",
    "||": "concat",
    "=": "eq",
    "<>": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "^": "POWER",
    "^@": "STARTS_WITH",
    "~": "REGEXP_LIKE",
    "~*": "REGEXP_LIKE",
    "!~": "REGEXP_LIKE",
    "!~*": "REGEXP_LIKE",
    **sql_bits.OPERATORS,
    **sql_array_parts.OPERATORS,
    **sql_jsonb.OPERATORS,
}
_PREFIX = {"~": sql_bits.NOT, "@": "ABS", "|/": "SQRT", "||/": "CBRT"}
_LIKE = {"~~": "like", "!~~": "not_like", "~~*": "ILIKE", "!~~*": "ILIKE"}
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
_COMPARED = ("=", "<>", "<", "<=", ">", ">=")
_NOW = ("CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP")
_DECIMAL = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,4})?\s*", re.ASCII | re.IGNORECASE)
_LEFT_DEEP_MAX = 16
_SMALL = {"smallint": 2**15, "int2": 2**15, "tinyint": 2**7}
_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1


def lower_expr(node: t.Expr) -> Ast:
    """One expression."""
    return _RULES[type(node)](node)


def lower_exprs(nodes: Sequence[t.Expr]) -> tuple[Ast, ...]:
    """Several expressions, in order."""
    return tuple(lower_expr(n) for n in nodes)


# --- constants and names ---


def _column(node: t.ColumnRef) -> Ast:
    return Name(node.parts, node.span)


def _constant(node: t.Constant) -> Ast:
    if node.kind == "null":
        return Lit("null", None, node.span)
    if node.kind == "bool":
        return Lit("bool", node.value == "true", node.span)
    return Lit("string", node.value, node.span) if node.kind == "string" else _number(node, node.value)


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
    return CastTo(Lit("string", text, node.span), lower_cast_type(node.type), node.span)


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


def _special(node: t.SpecialValue) -> Ast:
    if node.name in _NOW and node.precision in (None, 3, 6):
        return Func(node.name, (), node.span)
    unsupported(node.name, node.span, "the time of a row is  ROWTIME" if "TIME" in node.name else "")


def _star(node: t.Star) -> Ast:
    if node.excluded:
        unsupported("* EXCEPT (...)", node.span, "name the columns")
    if node.of is not None:
        return PlainStar(struct_of=lower_expr(node.of), span=node.span)
    if len(node.qualifier) > 1:
        unsupported("a schema in front of a name", node.span, f"write  {node.qualifier[-1]}.*")
    return PlainStar(source=node.qualifier[0] if node.qualifier else None, span=node.span)


# --- operators ---


def _unary(node: t.Unary) -> Ast:
    if node.op == "+":
        return lower_expr(node.operand)
    if node.op != "-":
        return Func(_PREFIX[node.op], (lower_expr(node.operand),), node.span)
    if isinstance(node.operand, t.Constant) and node.operand.kind == "number":
        return _number(node, f"-{node.operand.value}")  # so that the least BIGINT can be written
    return Func("neg", (lower_expr(node.operand),), node.span)


def _binary(node: t.Binary) -> Ast:
    """Chains like a + b + c are as deep as they are long: they are lowered without recursion."""
    if isinstance(node.left, t.Row):
        return _compared_rows(node, node.left)
    chain = [node]
    while isinstance(chain[-1].left, t.Binary):
        chain.append(chain[-1].left)
    made = lower_expr(chain[-1].left)
    for n in reversed(chain):
        name = _BINARY.get(n.op)
        if n.op in _LIKE:
            made = Func(_LIKE[n.op], (made, lower_expr(n.right)), n.span)
            made = Func("not", (made,), n.span) if n.op == "!~~*" else made
            continue
        if name is None:
            unsupported(f"the operator {n.op.upper()}", n.span)
        if name == "REGEXP_LIKE":
            made = _regular(n, made, lower_expr(n.right))
        else:
            made = Func(name, (made, lower_expr(n.right)), n.span)
    return made


def _regular(node: t.Binary, text: Ast, pattern: Ast) -> Ast:
    """`~`; with a * whatever the case, with a ! negated."""
    flags = (Lit("string", "i", node.span),) if node.op.endswith("*") else ()
    made = Func("REGEXP_LIKE", (text, pattern, *flags), node.span)
    return Func("not", (made,), node.span) if node.op.startswith("!") else made


def _logical(node: t.Logical) -> Ast:
    """To the left as written, or, when there are many, as a balanced and so shallow tree."""
    return _joined(node, lower_exprs(node.operands))


def _joined(node: t.Logical, operands: Sequence[Ast]) -> Ast:
    if len(operands) == 1:
        return operands[0]
    half = len(operands) - 1 if len(operands) <= _LEFT_DEEP_MAX else len(operands) // 2
    return Func(node.op, (_joined(node, operands[:half]), _joined(node, operands[half:])), node.span)


def _not(node: t.Not) -> Ast:
    return Func("not", (lower_expr(node.operand),), node.span)


def _is_test(node: t.IsTest) -> Ast:
    if isinstance(node.operand, t.Row) and node.test == "null" and len(node.operand.items) > 1:
        tests = tuple(replace(node, operand=i) for i in node.operand.items)  # all are, or none is
        return _logical(t.Logical("and", tests, span=node.span))
    operand = lower_expr(node.operand)
    if node.test in ("null", "unknown"):
        return Func("is_not_null" if node.negated else "is_null", (operand,), node.span)
    value = Lit("bool", node.test == "true", node.span)
    return Func("is_distinct" if node.negated else "is_not_distinct", (operand, value), node.span)


def _distinct(node: t.Distinct) -> Ast:
    name = "is_not_distinct" if node.negated else "is_distinct"
    return Func(name, (lower_expr(node.left), lower_expr(node.right)), node.span)


def _between(node: t.Between) -> Ast:
    name = "not_between" if node.negated else "between"
    if node.symmetric:
        value, low, high = lower_exprs((node.operand, node.low, node.high))
        orders = Func(name, (value, low, high), node.span), Func(name, (value, high, low), node.span)
        return Func("and" if node.negated else "or", orders, node.span)
    return Func(name, lower_exprs((node.operand, node.low, node.high)), node.span)


def _like(node: t.Like) -> Ast:
    args = [lower_expr(node.operand), lower_expr(node.pattern)]
    if node.escape is not None:
        if not isinstance(node.escape, t.Constant) or node.escape.kind != "string":
            fail("FQ1001", "ESCAPE takes a character in single quotes", node.escape.span, help="write  ESCAPE '!'")
        args.append(lower_expr(node.escape))
    if node.kind != "like":
        made = Func("ILIKE" if node.kind == "ilike" else "SIMILAR", tuple(args), node.span)
        return Func("not", (made,), node.span) if node.negated else made
    return Func("not_like" if node.negated else "like", tuple(args), node.span)


def _in_list(node: t.InList) -> Ast:
    if isinstance(node.operand, t.Row):
        equal: Ast = _rows_equal(node, node.operand, node.items[0])
        for item in node.items[1:]:
            equal = Func("or", (equal, _rows_equal(node, node.operand, item)), node.span)
        return Func("not", (equal,), node.span) if node.negated else equal
    return Func("not_in" if node.negated else "in", lower_exprs((node.operand, *node.items)), node.span)


def _in_query(node: t.InQuery) -> Ast:
    named = "NOT IN (a sub-query)" if node.negated else "IN (a sub-query)"
    unsupported(named, node.span, "join the other relation instead")


def _quantified(node: t.Quantified) -> Ast:
    if isinstance(node.of, t.Query) or node.op not in _COMPARED:
        unsupported(f"{node.op.upper()} {node.quantifier.upper()} (...)", node.span, "list the values:  x IN (1, 2)")
    op = Lit("string", node.op, node.span)
    return Func(f"{node.quantifier.upper()}_ELEMENT", (op, *lower_exprs((node.operand, node.of))), node.span)


def _exists(node: t.Exists) -> Ast:
    unsupported("EXISTS", node.span, "join the other relation instead")


def _scalar_query(node: t.ScalarQuery) -> Ast:
    unsupported("a sub-query as a value", node.span, "join the other relation instead")


def _cast(node: t.Cast) -> Ast:
    if node.safe:
        return Func("TRY", (_cast(replace(node, safe=False)),), node.span)
    if node.type.name == "interval" and isinstance(node.operand, t.Constant) and node.operand.kind == "string":
        return _interval(t.Interval(node.operand.value, span=node.span))
    made = CastTo(lower_expr(node.operand), lower_cast_type(node.type), node.span)
    return _narrowed(node.type, made)


def _narrowed(type_: t.TypeName, made: CastTo) -> Ast:
    """What a CAST to a type does that a column of its kind does not show: cut texts, and smaller ranges."""
    if type_.name in _SMALL:
        most = _SMALL[type_.name]
        return Func("sql_in_range", (made, Lit("int", -most), Lit("int", most - 1)), made.span)
    if type_.name in ("varchar", "char") and type_.parameters:
        if type_.name == "char":
            unsupported("a CAST to CHAR(n), which adds blanks", made.span, "write  VARCHAR(n)")
        return Func("LEFT", (made, Lit("int", type_.parameters[0], made.span)), made.span)
    return made


def _case(node: t.Case) -> Ast:
    """`CASE x WHEN v` becomes `CASE WHEN x = v`."""
    subject = lower_expr(node.subject) if node.subject is not None else None
    parts: list[Ast] = []
    for when, then in node.whens:
        condition = lower_expr(when)
        parts.append(condition if subject is None else Func("eq", (subject, condition), when.span))
        parts.append(lower_expr(then))
    if node.otherwise is not None:
        parts.append(lower_expr(node.otherwise))
    return Func("case", tuple(parts), node.span)


def _extract(node: t.Extract) -> Ast:
    return Func("EXTRACT", (Lit("string", node.part, node.span), lower_expr(node.source)), node.span)


def _at_time_zone(node: t.AtTimeZone) -> Ast:
    return Func("TIMEZONE", lower_exprs((node.zone, node.operand)), node.span)


# --- containers ---


def _array(node: t.ArrayItems) -> Ast:
    return Func("array", lower_exprs(node.items), node.span)


def _row(node: t.Row) -> Ast:
    return Func("row", lower_exprs(node.items), node.span)


def _rows_equal(node: t.Expr, left: t.Row, right: t.Expr) -> Ast:
    """`(a, b) = (c, d)`: unknown where a comparison of values is and no other is false."""
    if not isinstance(right, t.Row) or len(left.items) != len(right.items):
        fail("FQ2005", "rows of different length are compared", node.span, label="not so many values")
    made = [Func("eq", lower_exprs(pair), node.span) for pair in zip(left.items, right.items, strict=True)]
    joined: Ast = made[0]
    for comparison in made[1:]:
        joined = Func("and", (joined, comparison), node.span)
    return joined


def _compared_rows(node: t.Binary, left: t.Row) -> Ast:
    if node.op == "overlaps":
        return _overlaps(node, left)
    if node.op in ("=", "<>"):
        equal = _rows_equal(node, left, node.right)
        return equal if node.op == "=" else Func("not", (equal,), node.span)
    if node.op not in _COMPARED:
        unsupported(f"the operator {node.op} of rows", node.span, "compare the columns one by one")
    return _rows_ordered(node, left)


def _rows_ordered(node: t.Binary, left: t.Row) -> Ast:
    """`(a, b) < (c, d)`: the first values that are not equal decide. `a < c OR (a = c AND b < d)`."""
    if not isinstance(node.right, t.Row) or len(left.items) != len(node.right.items):
        fail("FQ2005", "rows of different length are compared", node.span, label="not so many values")
    pairs = [lower_exprs(pair) for pair in zip(left.items, node.right.items, strict=True)]
    made: Ast = Func(_BINARY[node.op], pairs[-1], node.span)
    for pair in reversed(pairs[:-1]):
        later = Func("and", (Func("eq", pair, node.span), made), node.span)
        made = Func("or", (Func(_BINARY[node.op[0]], pair, node.span), later), node.span)
    return made


def _overlaps(node: t.Binary, left: t.Row) -> Ast:
    """`(start, end) OVERLAPS (start, length)`."""
    if not isinstance(node.right, t.Row) or len(left.items) != 2 or len(node.right.items) != 2:
        fail("FQ2005", "OVERLAPS is between two rows of two values", node.span, help="write  (a, b) OVERLAPS (c, d)")
    ends: list[Ast] = []
    for start, end in (left.items, node.right.items):
        first, last = lower_exprs((start, end))
        ends += [first, Func("add", (first, last), end.span) if isinstance(end, t.Interval) else last]
    return Func("OVERLAPS", tuple(ends), node.span)


def _map(node: t.MapItems) -> Ast:
    return Func("map", tuple(lower_expr(part) for pair in node.items for part in pair), node.span)


def _struct(node: t.StructItems) -> Ast:
    parts = [p for name, value in node.items for p in (Lit("string", name, value.span), lower_expr(value))]
    return Func("struct", tuple(parts), node.span)


def _subscript(node: t.Subscript) -> Ast:
    return Func("subscript", (lower_expr(node.base), lower_expr(node.index)), node.span)


def _slice(node: t.Slice) -> Ast:
    low = lower_expr(node.low) if node.low is not None else Lit("int", 1, node.span)
    high = lower_expr(node.high) if node.high is not None else Lit("int", _INT_MAX, node.span)
    return Func("SLICE", (lower_expr(node.base), low, high), node.span)


def _field(node: t.Field) -> Ast:
    return Func("field", (lower_expr(node.base), Lit("string", node.name, node.span)), node.span)


def _named(node: t.Named) -> Ast:
    return LambdaFn((node.name,), lower_expr(node.value), node.span)


def _lambda(node: t.LambdaExpr) -> Ast:
    return LambdaFn(node.parameters, lower_expr(node.body), node.span)


def _collate(node: t.Collate) -> Ast:
    """Texts are compared by their code points, which is what these collations mean."""
    if node.name[-1] not in BY_CODE_POINT:
        help = 'texts are compared by their code points: leave it out, or write  COLLATE "C"'
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
    return [given.get(p, t.Constant("number", "0", span=node.span)) for p in places[: last + 1]]


def _same_as(name: str, args: tuple[Ast, ...], node: t.Call) -> Ast | None:
    """What a function of another system means in the words of PostgreSQL; None for other functions."""
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
    if not isinstance(node, t.ColumnRef) or len(node.parts) > 1 or singular(node.parts[0]) not in CALENDAR_UNITS:
        return None
    return Lit("string", node.parts[0].upper(), node.span)


_RULES: dict[type, Callable[[Any], Ast]] = {
    t.ColumnRef: _column,
    t.Constant: _constant,
    t.TypedText: _typed,
    t.Interval: _interval,
    t.SpecialValue: _special,
    t.Default: _refused("DEFAULT", "leave the column out"),
    t.Star: _star,
    t.Unary: _unary,
    t.Binary: _binary,
    t.Logical: _logical,
    t.Not: _not,
    t.IsTest: _is_test,
    t.Distinct: _distinct,
    t.Between: _between,
    t.Like: _like,
    t.InList: _in_list,
    t.InQuery: _in_query,
    t.Quantified: _quantified,
    t.Exists: _exists,
    t.ScalarQuery: _scalar_query,
    t.Cast: _cast,
    t.Case: _case,
    t.Extract: _extract,
    t.AtTimeZone: _at_time_zone,
    t.Collate: _collate,
    t.ArrayItems: _array,
    t.ArrayQuery: _refused("ARRAY(a sub-query)", "write  COLLECT_LIST(x) in a query with GROUP BY"),
    t.Row: _row,
    t.MapItems: _map,
    t.StructItems: _struct,
    t.Subscript: _subscript,
    t.Slice: _slice,
    t.Field: _field,
    t.Named: _named,
    t.LambdaExpr: _lambda,
    t.TableArgument: _refused("a table as an argument"),
    t.Call: _call,
}

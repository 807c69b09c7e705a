"""Primaries: constants, names, calls, parentheses, and the forms that begin with a word of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from flowql.compiler.diagnostics.edits import Edit, before, quoted
from flowql.compiler.dialect.ast import CastTo, Func, Lit, Name, Star
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.forms import MAP_HELP, STRUCT_HELP, parse_pairs
from flowql.compiler.dialect.standard.calls import parse_call
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.special_calls import SPECIAL_CALLS
from flowql.compiler.dialect.standard.tree import (
    ArrayQuery,
    Default,
    Exists,
    Expr,
    Interval,
    ScalarQuery,
    TypedText,
)
from flowql.compiler.dialect.standard.types import parse_type
from flowql.compiler.dialect.standard.words import SPECIAL_VALUES, UNITS
from flowql.compiler.dialect.words import singular

_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_LONG_TYPES = ("TIMESTAMP", "TIME", "DOUBLE", "CHARACTER", "CHAR")


def parse_primary(cur: Reader) -> Expr:
    """A primary without what may stand behind it."""
    start = cur.tok
    if start.kind == "string":
        return Lit("string", start.text, cur.step())
    if start.kind == "number":
        return _number(cur, start)
    if cur.tok.op == "(":
        return _parenthesised(cur, start)
    if start.kind == "word":
        form = _form(cur, start)
        if form is not None:
            return form
    if cur.after.op == "(" and cur.at_function():
        return parse_call(cur)
    if not cur.tok.is_name:
        _no_expression(cur, start)
    return _name(cur, start)


def _number(cur: Reader, start: Tok) -> Expr:
    if not _NUMBER.fullmatch(start.text):
        help = "write  1, 1.5 or 1e3; quote a name like this one"
        cur.fail("FQ1004", f"`{start.text}` is not a number", help=help)
    return Lit("number", start.text, cur.step())


def _form(cur: Reader, start: Tok) -> Expr | None:
    """The form that the word `start` begins; None, unmoved, when it is a plain name here."""
    form = _FORMS.get(start.upper)
    if form is not None:
        return form(cur, start)
    called = cur.after.op == "("
    if called and start.upper in _CALLED:
        return _CALLED[start.upper](cur, start)
    if start.upper == "MAP" and cur.after.op == "{":
        return _map(cur, start)
    if start.upper == "MAP" and cur.after.op == "[" and cur.peek(2).op != "]":
        return _map_of_pairs(cur, start)
    if called and start.upper in SPECIAL_CALLS:
        return SPECIAL_CALLS[start.upper](cur, start)
    if start.upper in SPECIAL_VALUES:
        return _special_value(cur, start)
    if start.upper == "INTERVAL" and (cur.after.kind in ("string", "number") or called):
        return _interval(cur, start)
    return _typed_text(cur, start)


def _constant(cur: Reader, start: Tok) -> Expr:
    span = cur.step()
    return Lit("null", None, span) if start.upper == "NULL" else Lit("bool", start.upper == "TRUE", span)


def _default(cur: Reader, start: Tok) -> Expr:
    return Default(span=cur.step())


def _special_value(cur: Reader, start: Tok) -> Expr:
    cur.next()
    args: tuple[Expr, ...] = ()
    if cur.tok.op == "(" and cur.after.kind == "number" and cur.after.text.isdigit() and len(cur.after.text) < 3:
        cur.next()
        args = (Lit("int", int(cur.tok.text), cur.step()),)
        cur.expect_op(")")
    return Func(start.upper, args, cur.span_since(start))


def _typed_text(cur: Reader, start: Tok) -> Expr | None:
    """`DATE '2024-05-01'`, `timestamp with time zone '...'`; None, unmoved, where none stands here."""
    if not cur.tok.is_name or (cur.after.kind != "string" and start.upper not in _LONG_TYPES):
        return None
    before = cur.pos
    made = None
    if cur.after.kind == "string" or (cur.after.op == "(" and cur.peek(2).kind == "number") or _at_type_word(cur):
        made = parse_type(cur)
    text = cur.tok
    if made is None or text.kind != "string":
        cur.pos = before
        return None
    cur.next()
    return TypedText(made, text.text, span=cur.span_since(start))


def _at_type_word(cur: Reader) -> bool:
    if cur.after.upper in ("PRECISION", "VARYING"):
        return True
    zoned = cur.after.upper in ("WITH", "WITHOUT") and cur.peek(2).upper == "TIME"
    return zoned and cur.peek(3).upper == "ZONE"


def _interval(cur: Reader, start: Tok) -> Expr:
    cur.next()
    if cur.accept_op("("):  # the precision of its seconds
        if cur.tok.kind != "number":
            cur.expected("the precision of the seconds")
        cur.next()
        cur.expect_op(")")
    amount = cur.tok
    if amount.kind not in ("string", "number"):
        cur.expected("the string of an interval", help="write  INTERVAL '5' MINUTE")
    cur.next()
    plural = amount.kind == "number"
    units = [_unit(cur)] if _at_unit(cur, plural=plural) else []
    if units and cur.tok.upper == "TO":
        cur.next()
        if not _at_unit(cur, plural=False):
            cur.expected("a unit of time", words=UNITS)
        units.append(_unit(cur))
    if plural and not units:
        cur.expected("a unit of time", help="write  INTERVAL '5' MINUTE", words=UNITS)
    return Interval(amount.text, tuple(units), span=cur.span_since(start))


def _at_unit(cur: Reader, *, plural: bool) -> bool:
    tok = cur.tok
    if tok.kind != "word":
        return False
    return tok.upper in UNITS or ((plural or tok.upper.endswith("S")) and singular(tok.text) in UNITS)


def _unit(cur: Reader) -> str:
    unit = singular(cur.next().text)
    if cur.tok.op == "(" and cur.after.kind == "number" and cur.peek(2).op == ")":
        cur.pos += 3  # the precision of its seconds
    return unit


def _parenthesised(cur: Reader, start: Tok) -> Expr:
    cur.next()
    if cur.at_query():
        query = cur.rules.query(cur)
        cur.expect_op(")", label="this `(` group is not closed here")
        return ScalarQuery(query, span=cur.span_since(start))
    first = cur.rules.expr(cur)
    if cur.tok.op != ",":
        cur.expect_op(")", label="this `(` group is not closed here")
        return first
    cur.next()
    items = (first, *cur.listed(cur.rules.expr))
    cur.expect_op(")", label="a comma or `)` goes here")
    return Func("row", items, cur.span_since(start))


def _name(cur: Reader, start: Tok) -> Expr:
    span, parts = cur.step(), [start.name]
    if cur.tok.op != ".":
        return Name((start.name,), span)
    while cur.tok.op == ".":
        cur.next()
        if cur.accept_op("*"):
            return Star(tuple(parts), span=cur.span_since(start))
        parts.append(cur.expect_label("a column name after the dot"))
    return Name(tuple(parts), cur.span_since(start))


def _no_expression(cur: Reader, start: Tok) -> NoReturn:
    names_something = cur.after.op in (",", ")", ".", "=") or cur.after.upper in ("FROM", "AS")
    if start.kind == "word" and names_something:
        cur.expect_name("an expression")  # complains about the reserved word
    help, edit = "", None
    if cur.tok.op in ("=", "<", ">") and cur.back(1).kind == "op" and cur.back(1).end == start.start:
        sign = {"==": "=", "=<": "<=", "=>": ">=", "!>": "<=", "!<": ">="}.get(cur.back(1).text + start.text, "")
        help, edit = (f"write  {sign}", Edit(cur.span_from(cur.back(1), start), sign)) if sign else ("", None)
    elif cur.tok.op == ",":
        help, edit = "is there an extra comma, or is a value missing?", Edit(cur.span_of(start), "")
    elif cur.tok.op == "[" and cur.after.is_name and cur.peek(2).op == "]":
        name = cur.after.name
        help = f"write a name without quotes, or in double quotes: {quoted(name)}"
        edit = Edit(cur.span_from(start, cur.peek(2)), quoted(name))
    elif cur.tok.op == "*":
        help = "use `*` by itself in a select list, or in COUNT(*)"
    elif start.op == ")":
        help = "is there an extra comma, or is a value missing?"
    elif start.op == "$":
        help = "parameters like $1 have no value here; a variable is written ${name}"
    cur.expected("an expression", help=help, edit=edit)


# --- forms ---


def _case(cur: Reader, start: Tok) -> Expr:
    cur.next()
    parts = [] if cur.tok.upper == "WHEN" else [cur.rules.expr(cur)]
    name = "case_of" if parts else "case"
    if cur.tok.upper != "WHEN":
        cur.expect_word("WHEN", help="write  CASE WHEN condition THEN value ELSE value END")
    while cur.accept_words("WHEN"):
        parts.append(cur.rules.expr(cur))
        cur.expect_word("THEN")
        parts.append(cur.rules.expr(cur))
    if cur.accept_words("ELSE"):
        parts.append(cur.rules.expr(cur))
    if cur.tok.upper != "END":
        edit = before(cur.span_of(cur.tok), "END ") if cur.tok.kind != "end" else None
        cur.expected("`END`", help="a CASE is closed by END", words=("WHEN", "ELSE", "END"), edit=edit)
    cur.next()
    return Func(name, tuple(parts), cur.span_since(start))


def _cast(cur: Reader, start: Tok) -> Expr:
    cur.next()
    cur.expect_op("(")
    operand = cur.rules.expr(cur)
    cur.expect_word("AS", help="write  CAST(value AS type)")
    target = parse_type(cur)
    cur.expect_op(")")
    return CastTo(operand, target, cur.span_since(start), safe=start.upper == "TRY_CAST")


def _exists(cur: Reader, start: Tok) -> Expr:
    cur.next()
    cur.expect_op("(")
    query = cur.rules.query(cur)
    cur.expect_op(")", label="this `(` group is not closed here")
    return Exists(query, span=cur.span_since(start))


def _array(cur: Reader, start: Tok) -> Expr:
    """ARRAY[...], whose elements may be arrays without the word, or ARRAY(query)."""
    cur.next()
    if cur.accept_op("("):
        query = cur.rules.query(cur)
        cur.expect_op(")", label="this `(` group is not closed here")
        return ArrayQuery(query, span=cur.span_since(start))
    return _elements(cur, start)


def _elements(cur: Reader, start: Tok) -> Expr:
    cur.expect_op("[", help="write  ARRAY[1, 2]")
    cur.enter()
    items: list[Expr] = []
    while cur.tok.op != "]":
        if items:
            cur.expect_op(",", label="a comma or `]` goes here")
        items.append(_elements(cur, cur.tok) if cur.tok.op == "[" else cur.rules.expr(cur))
    cur.expect_op("]", label="a comma or `]` goes here")
    cur.leave()
    return Func("array", tuple(items), cur.span_since(start))


def _row(cur: Reader, start: Tok) -> Expr:
    cur.next()
    cur.expect_op("(")
    items: list[Expr] = []
    while cur.tok.op != ")":
        if items:
            cur.expect_op(",", label="a comma or `)` goes here")
        items.append(cur.rules.expr(cur))
    cur.expect_op(")")
    return Func("ROW", tuple(items), cur.span_since(start))


def _map(cur: Reader, start: Tok) -> Expr:
    """`MAP('key' := value)`, or `MAP {'key': value}`."""
    closer, sign = ("}", ":") if cur.after.op == "{" else (")", ":=")
    return parse_pairs(cur, start, cur.rules.expr, cur.rules.expr, MAP_HELP, closer=closer, sign=sign)


def _map_of_pairs(cur: Reader, start: Tok) -> Expr:
    """`MAP['a', 1, 'b', 2]`, as Flink writes it. A map's column is no map of pairs: `map['a']` has one value inside."""
    before = cur.pos
    cur.pos += 2
    items = cur.listed(cur.rules.expr)
    if len(items) == 1:
        cur.pos = before
        return _name(cur, start)
    cur.expect_op("]", label="a comma or `]` goes here")
    if len(items) % 2:
        cur.fail(
            "FQ1001",
            "MAP[...] takes alternating keys and values",
            at=cur.span_since(start),
            help="write  MAP['key', value]",
        )
    return Func("map", items, cur.span_since(start))


def _struct(cur: Reader, start: Tok) -> Expr:
    return parse_pairs(cur, start, _field_name, cur.rules.expr, STRUCT_HELP)


def _field_name(cur: Reader) -> Expr:
    at = cur.tok
    return Lit("string", cur.expect_label("the name of a field"), cur.span_of(at))


def _safe_cast(cur: Reader, start: Tok) -> Expr:
    cur.unsupported("SAFE_CAST", help="write  TRY_CAST(value AS type)", edit=Edit(cur.span_of(start), "TRY_CAST"))


Form = Callable[[Reader, Tok], Expr]
_FORMS: dict[str, Form] = {
    "NULL": _constant,
    "TRUE": _constant,
    "FALSE": _constant,
    "DEFAULT": _default,
    "CASE": _case,
    "CAST": _cast,
    "ARRAY": _array,
}
_CALLED: dict[str, Form] = {
    "TRY_CAST": _cast,
    "SAFE_CAST": _safe_cast,
    "EXISTS": _exists,
    "ROW": _row,
    "MAP": _map,
    "STRUCT": _struct,
}

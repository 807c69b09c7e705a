"""Primaries that begin with a word of their own: literals by name, CASE, CAST, the constructors, typed texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from flowql.compiler.dialect.ast import Ast, CastTo, Func, Lit, TypeRef
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.numbers import parse_interval
from flowql.compiler.dialect.type_refs import parse_type_ref
from flowql.compiler.plan import types as t

_BLANK = re.compile(r"^(\s*\d{4}-\d{1,2}-\d{1,2})\s+(\d.*)$", re.DOTALL)
MAP_HELP, STRUCT_HELP = "write  MAP('key' := value)", "write  STRUCT(name := value)"
Rule = Callable[[Cursor], Ast]
C = TypeVar("C", bound=Cursor)
_TYPED_LITERALS = {"DATE": t.DATE, "TIME": t.TIME, "TIMESTAMP": t.TIMESTAMP}


def parse_form(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    """The form that the word `start` begins; None, unmoved, when it is a plain name here. `expr` reads a whole expression."""
    form = _FORMS.get(start.upper)
    parsed = form(cur, start, expr) if form else None
    if parsed is None and cur.after.kind == "string":
        return _typed_literal(cur, start)
    return parsed


def _constant(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    span = cur.step()
    return Lit("null", None, span) if start.upper == "NULL" else Lit("bool", start.upper == "TRUE", span)


def _case(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    """Both forms; `CASE x WHEN v` becomes `CASE WHEN x = v`."""
    cur.next()
    subject = None if cur.tok.upper == "WHEN" else expr(cur)
    parts: list[Ast] = []
    if cur.tok.upper != "WHEN":
        cur.expect_word("WHEN", help="write  CASE WHEN condition THEN value ELSE value END")
    while cur.accept_words("WHEN"):
        at = cur.tok
        when = expr(cur)
        parts.append(when if subject is None else Func("eq", (subject, when), cur.span_since(at)))
        cur.expect_word("THEN")
        parts.append(expr(cur))
    if cur.accept_words("ELSE"):
        parts.append(expr(cur))
    cur.expect_word("END", help="a CASE is closed by END")
    return Func("case", tuple(parts), cur.span_since(start))


def _cast(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    cur.next()
    cur.expect_op("(")
    operand = expr(cur)
    cur.expect_word("AS", help="write  CAST(value AS type)")
    target = parse_type_ref(cur)
    cur.expect_op(")")
    return CastTo(operand, target, cur.span_since(start))


def _array(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    if cur.after.op != "[":
        return None
    cur.next()
    cur.next()
    items = () if cur.tok.op == "]" else cur.listed(expr)
    cur.expect_op("]", label="a comma or `]` goes here")
    return Func("array", items, cur.span_since(start))


def _map(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    return parse_pairs(cur, start, expr, expr, MAP_HELP) if cur.after.op == "(" else None


def _struct(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    return parse_pairs(cur, start, _field_name, expr, STRUCT_HELP) if cur.after.op == "(" else None


def _field_name(cur: Cursor) -> Ast:
    at = cur.tok
    return Lit("string", cur.expect_name("the name of a field"), cur.span_of(at))


def parse_pairs(
    cur: C,
    start: Tok,
    key: Callable[[C], Ast],
    value: Callable[[C], Ast],
    help: str,
    *,
    closer: str = ")",
    sign: str = ":=",
) -> Ast:
    """`MAP(key := value, ...)` or `STRUCT(name := value, ...)`, from the word `start` on."""
    cur.next()
    cur.next()
    parts: list[Ast] = []
    while cur.tok.op != closer:
        if parts:
            cur.expect_op(",", label=f"a comma or `{closer}` goes here")
        parts.append(key(cur))
        cur.expect_op(sign, help=help)
        parts.append(value(cur))
    cur.expect_op(closer)
    return Func(start.upper.lower(), tuple(parts), cur.span_since(start))


def _interval(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    return parse_interval(cur) if cur.after.kind in ("string", "number") else None


def _distinct(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    cur.unsupported("DISTINCT here", help="COLLECT_SET or COUNT_DISTINCT may do what you need")


def _exists(cur: Cursor, start: Tok, expr: Rule) -> Ast | None:
    cur.unsupported("EXISTS")


def with_t(text: str) -> str:
    """A timestamp as standard SQL writes it, with a blank between date and time, in the form with a T."""
    return _BLANK.sub(r"\1T\2", text)


def _typed_literal(cur: Cursor, start: Tok) -> Ast | None:
    """`DATE '2024-05-01'`: a text cast to the type in front of it; `DECIMAL '1.50'` is a decimal literal."""
    if start.upper in ("DECIMAL", "DEC"):
        cur.next()
        text = cur.next().text
        try:
            return Lit("decimal", Decimal(text), cur.span_since(start))
        except InvalidOperation:
            cur.fail("FQ1004", f"'{text}' is not a decimal number", at=cur.span_since(start))
    if start.upper not in _TYPED_LITERALS:
        return None
    cur.next()
    at = cur.next()
    text = with_t(at.text) if start.upper == "TIMESTAMP" else at.text
    literal = Lit("string", text, cur.span_of(at))
    target = TypeRef(known=_TYPED_LITERALS[start.upper], span=cur.span_of(start))
    return CastTo(literal, target, cur.span_since(start))


_FORMS: dict[str, Callable[[Cursor, Tok, Rule], Ast | None]] = {
    "NULL": _constant,
    "TRUE": _constant,
    "FALSE": _constant,
    "CASE": _case,
    "CAST": _cast,
    "ARRAY": _array,
    "MAP": _map,
    "STRUCT": _struct,
    "INTERVAL": _interval,
    "DISTINCT": _distinct,
    "EXISTS": _exists,
}

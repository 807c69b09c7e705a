"""Calls whose arguments are separated by words: EXTRACT(part FROM x), SUBSTRING(x FROM a FOR b), POSITION(a IN b), TRIM, OVERLAY, NORMALIZE.

All but EXTRACT become the ordinary call that means the same.
"""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.dialect.ast import Func, Lit
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.calls import parse_call
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.tree import Call, Expr
from flowql.compiler.dialect.standard.words import UNITS

NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_SIDES = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def _extract(cur: Reader, start: Tok) -> Expr:
    cur.next()
    cur.expect_op("(")
    part = cur.tok
    if part.kind not in ("word", "string", "quoted"):
        cur.expected("a part of a time", help="write  EXTRACT(YEAR FROM ts)")
    cur.next()
    cur.expect_word("FROM", help=f"write  EXTRACT({part.text.upper()} FROM ts)")
    source = cur.rules.expr(cur)
    cur.expect_op(")")
    span = cur.span_since(start)
    return Func("EXTRACT", (Lit("string", part.text.upper(), span), source), span)


def _substring(cur: Reader, start: Tok) -> Expr:
    if not cur.has_inside("FROM", "FOR", "SIMILAR"):
        return parse_call(cur)
    args = [_opened(cur)]
    if cur.tok.upper == "SIMILAR":
        cur.unsupported("SUBSTRING ... SIMILAR", help="write  REGEXP_EXTRACT(text, pattern)")
    at = cur.tok
    args.append(cur.rules.expr(cur) if cur.accept_words("FROM") else Lit("number", "1", cur.span_of(at)))
    if cur.accept_words("FOR"):
        args.append(cur.rules.expr(cur))
    return _closed(cur, start, "substring", args)


def _position(cur: Reader, start: Tok) -> Expr:
    if not cur.has_inside("IN"):
        return parse_call(cur)
    cur.next()
    cur.expect_op("(")
    part = cur.rules.value(cur)
    cur.expect_word("IN", help="write  POSITION(part IN text)")
    return _closed(cur, start, "strpos", [cur.rules.expr(cur), part])


def _trim(cur: Reader, start: Tok) -> Expr:
    if not cur.has_inside("FROM", *_SIDES):
        return parse_call(cur)
    cur.next()
    cur.expect_op("(")
    side = _SIDES[cur.next().upper] if cur.tok.upper in _SIDES else "btrim"
    characters = None if cur.tok.upper == "FROM" else cur.rules.expr(cur)
    if characters is not None and cur.tok.op == ")":  # TRIM(LEADING text)
        return _closed(cur, start, side, [characters])
    cur.expect_word("FROM", help="write  TRIM(LEADING '0' FROM text)")
    text = cur.rules.expr(cur)
    return _closed(cur, start, side, [text] if characters is None else [text, characters])


def _overlay(cur: Reader, start: Tok) -> Expr:
    if not cur.has_inside("PLACING"):
        return parse_call(cur)
    args = [_opened(cur)]
    cur.expect_word("PLACING", help="write  OVERLAY(text PLACING part FROM 2)")
    args.append(cur.rules.expr(cur))
    cur.expect_word("FROM", help="write  OVERLAY(text PLACING part FROM 2)")
    args.append(cur.rules.expr(cur))
    if cur.accept_words("FOR"):
        args.append(cur.rules.expr(cur))
    return _closed(cur, start, "overlay", args)


def _normalize(cur: Reader, start: Tok) -> Expr:
    """NORMALIZE(text, NFKC): the form is a word."""
    args = [_opened(cur)]
    if cur.accept_op(","):
        form = cur.tok
        if cur.tok.upper in NORMAL_FORMS:
            cur.next()
            args.append(Lit("string", form.upper, cur.span_of(form)))
        else:
            cur.expected("a normal form of Unicode", words=NORMAL_FORMS, help="write  NORMALIZE(text, NFC)")
    return _closed(cur, start, "normalize", args)


def _to_unit(cur: Reader, start: Tok) -> Expr:
    """FLOOR(ts TO HOUR), as Flink writes DATE_TRUNC."""
    if not cur.has_inside("TO"):
        return parse_call(cur)
    if start.upper != "FLOOR":
        cur.unsupported(f"{start.upper}(... TO unit)", help="write  DATE_TRUNC('hour', ts)")
    ts = _opened(cur)
    cur.expect_word("TO")
    unit = cur.tok
    if unit.kind != "word" or unit.upper not in UNITS:
        cur.expected("a unit of time", words=UNITS)
    cur.next()
    return _closed(cur, start, "date_trunc", [Lit("string", unit.text.lower(), cur.span_of(unit)), ts])


def _opened(cur: Reader) -> Expr:
    cur.next()
    cur.expect_op("(")
    return cur.rules.expr(cur)


def _closed(cur: Reader, start: Tok, name: str, args: list[Expr]) -> Expr:
    cur.expect_op(")", label="a comma or `)` goes here")
    return Call((name,), tuple(args), span=cur.span_since(start))


SPECIAL_CALLS: dict[str, Callable[[Reader, Tok], Expr]] = {
    "EXTRACT": _extract,
    "SUBSTRING": _substring,
    "POSITION": _position,
    "TRIM": _trim,
    "OVERLAY": _overlay,
    "NORMALIZE": _normalize,
    "FLOOR": _to_unit,
    "CEIL": _to_unit,
}

"""Expressions by precedence climbing, with PostgreSQL's levels:

OR   AND   NOT   IS   = <> < <= > >=   BETWEEN IN LIKE   || and other operators   + -   * / %   ^   AT TIME ZONE   COLLATE   sign   a[i] x::t
"""

from __future__ import annotations

from typing import Literal

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.dialect.ast import CastTo, Func, Lit, Star
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.primaries import parse_primary
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.tree import OPERATORS, PREFIXES, Collate, Expr, InQuery, Quantified, Query
from flowql.compiler.dialect.standard.types import parse_type

OR, AND, NOT, IS, COMPARISON, RANGE, OTHER, SUM, PRODUCT, POWER, ZONE, COLLATION, SIGN, POSTFIX = range(1, 15)
COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
LEVELS = {
    **dict.fromkeys(COMPARISONS, COMPARISON),
    **dict.fromkeys(("||", "->", "->>", "#>", "#>>", "@>", "<@", "?", "?|", "?&", "&", "|", "#", "<<", ">>"), OTHER),
    **dict.fromkeys(("~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*", "&&", "^@", "overlaps"), OTHER),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "%"), PRODUCT),
    "^": POWER,
}
_BEHIND = ("::", "[", ".", "->")  # operators behind a primary
_SINGLE = (IS, COMPARISON, RANGE)  # `a = b = c` is no expression
_RANGES = ("BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR")
_WORDS = {
    "OR": OR,
    "AND": AND,
    "IS": IS,
    "ISNULL": IS,
    "NOTNULL": IS,
    "AT": ZONE,
    "COLLATE": COLLATION,
    "OVERLAPS": OTHER,
    **dict.fromkeys(_RANGES, RANGE),
}


def parse_expr(cur: Reader, least: int = OR) -> Expr:
    """A whole expression; with `least` one whose operators bind at least so tightly."""
    cur.enter()
    start = cur.tok
    expr = _prefixed(cur)
    most = POSTFIX
    count = 0
    while True:
        op, level = _operator(cur)
        if not least <= level <= most:
            break
        count += 1
        cur.check_chain(count)
        expr = _infix(cur, start, expr, op, level)
        if level in _SINGLE:
            most = level - 1
    cur.leave()
    return expr


def _prefixed(cur: Reader) -> Expr:
    """NOT, a sign, or a primary with what is behind it."""
    start = cur.tok
    if cur.tok.upper == "NOT":
        cur.next()
        return Func("not", (parse_expr(cur, NOT),), cur.span_since(start))
    if cur.tok.op in ("+", "-"):
        op = cur.next().text
        cur.enter()
        operand = _prefixed(cur)
        cur.leave()
        return Func("neg" if op == "-" else "plus", (operand,), cur.span_since(start))
    if cur.tok.op in PREFIXES:
        op = cur.next().text
        return Func(PREFIXES[op], (parse_expr(cur, SUM),), cur.span_since(start))
    return _postfixed(cur, start, parse_primary(cur))


def _operator(cur: Reader) -> tuple[str, int]:
    """The operator here and its level; level 0 for none. Two signs without a blank are one operator: `>>`."""
    tok = cur.tok
    if tok.kind == "op":
        pair = tok.text in "<>" and cur.after.op == tok.text and cur.after.start == tok.end
        op = tok.text * 2 if pair else tok.text
        return op, LEVELS.get(op, 0)
    if tok.kind != "word":
        return "", 0
    if tok.upper == "NOT":
        return "NOT", RANGE if cur.after.upper in _RANGES else 0
    if tok.upper == "AT" and not (cur.after.upper == "TIME" and cur.peek(2).upper == "ZONE"):
        return "", 0
    return tok.upper, _WORDS.get(tok.upper, 0)


def _infix(cur: Reader, start: Tok, left: Expr, op: str, level: int) -> Expr:
    if op in ("OR", "AND"):
        return _logical(cur, start, left, op, level)
    if level == RANGE:
        return _ranged(cur, start, left)
    if level == IS:
        return _is(cur, start, left)
    cur.next()
    if op in ("<<", ">>"):
        cur.next()
    if op == "AT":
        cur.next()
        cur.next()
        return Func("TIMEZONE", (parse_expr(cur, COLLATION), left), cur.span_since(start))
    if op == "COLLATE":
        return Collate(left, cur.expect_dotted("the name of a collation"), span=cur.span_since(start))
    if level == COMPARISON:
        op = COMPARISONS[op]
        if cur.tok.upper in ("ANY", "SOME", "ALL") and cur.after.op == "(":
            return _quantified(cur, start, left, op)
    right = parse_expr(cur, level + 1)
    return Func(OPERATORS.get(op, op.lower()), (left, right), cur.span_since(start))


def _logical(cur: Reader, start: Tok, left: Expr, word: str, level: int) -> Expr:
    operands = [left]
    while cur.accept_words(word):
        operands.append(parse_expr(cur, level + 1))
    return Func(word.lower(), tuple(operands), cur.span_since(start))


def _is(cur: Reader, start: Tok, left: Expr) -> Expr:
    word = cur.next().upper
    if word != "IS":
        return Func("is_null" if word == "ISNULL" else "is_not_null", (left,), cur.span_since(start))
    prefix = "is_not_" if cur.accept_words("NOT") else "is_"
    if cur.accept_words("DISTINCT", "FROM"):
        return Func(f"{prefix}distinct", (left, parse_expr(cur, COMPARISON)), cur.span_since(start))
    for test in ("null", "true", "false", "unknown"):
        if cur.accept_words(test.upper()):
            return Func(prefix + test, (left,), cur.span_since(start))
    if cur.accept_words("JSON"):
        kind = next((k for k in ("VALUE", "SCALAR", "OBJECT", "ARRAY") if cur.accept_words(k)), "VALUE")
        if cur.tok.upper in ("WITH", "WITHOUT") and cur.after.upper == "UNIQUE":
            cur.unsupported("IS JSON ... UNIQUE KEYS")
        is_json = Func("IS_JSON", (left, Lit("string", kind)), cur.span_since(start))
        return Func("not", (is_json,), cur.span_since(start)) if prefix == "is_not_" else is_json
    words = ("NULL", "NOT", "TRUE", "FALSE", "UNKNOWN", "DISTINCT", "JSON")
    cur.expected(
        "NULL, TRUE, FALSE, UNKNOWN, JSON or DISTINCT FROM after IS", help="compare with = for a value", words=words
    )


def _ranged(cur: Reader, start: Tok, left: Expr) -> Expr:
    negated = cur.accept_words("NOT")
    prefix = "not_" if negated else ""
    word = cur.next().upper
    if word == "BETWEEN":
        name = f"{prefix}between"
        if cur.accept_words("SYMMETRIC"):
            name += "_symmetric"
        else:
            cur.accept_words("ASYMMETRIC")
        low = parse_expr(cur, OTHER)
        if cur.tok.upper == "TO" or cur.tok.op == ",":
            edit = Edit(cur.span_of(cur.tok), "AND" if cur.tok.upper == "TO" else " AND")
            cur.expected("`AND`", help="write  x BETWEEN low AND high", edit=edit)
        cur.expect_word("AND", help="write  x BETWEEN low AND high")
        high = parse_expr(cur, OTHER)
        return Func(name, (left, low, high), cur.span_since(start))
    if word == "IN":
        return _in(cur, start, left, negated=negated)
    if word == "SIMILAR":
        cur.expect_word("TO", help="write  x SIMILAR TO 'pattern'")
    elif cur.tok.upper in ("ANY", "SOME", "ALL") and cur.after.op == "(":
        return _quantified(cur, start, left, f"not {word.lower()}" if negated else word.lower())
    _refuse_bare_pattern(cur)
    args = [left, parse_expr(cur, OTHER)]
    if cur.accept_words("ESCAPE"):
        args.append(parse_expr(cur, OTHER))
    return Func(prefix + word.lower(), tuple(args), cur.span_since(start))


def _refuse_bare_pattern(cur: Reader) -> None:
    """`LIKE foo%`: without quotes it would be a remainder."""
    ahead, last = 0, cur.tok
    signs: list[str] = []
    while (tok := cur.peek(ahead)).kind in ("word", "number") or tok.op in ("%", "-", "."):
        if ahead and tok.start != last.end:
            break
        signs.append(tok.op)
        ahead, last = ahead + 1, tok
    if "%" in signs:
        text = f"'{cur.source.text[cur.tok.start : last.end]}'"
        at, why = cur.span_from(cur.tok, last), "% between values is the remainder of a division"
        cur.fail(
            "FQ2086",
            "the pattern lacks quotes",
            at=at,
            label="a pattern",
            help=f"write  {text}",
            why=why,
            edit=Edit(at, text),
        )


def _in(cur: Reader, start: Tok, left: Expr, *, negated: bool) -> Expr:
    if cur.tok.is_name and cur.after.op != ".":
        text = f"{'<> ALL' if negated else '= ANY'} ({cur.tok.text})"
        edit = Edit(cur.span_from(cur.back(1 + negated), cur.tok), text)
        cur.expected("`(`", help=f"write  x {text}  for an array", edit=edit)
    cur.expect_op("(", help="write  x IN (1, 2, 3)")
    if cur.tok.op == ")":
        cur.expected("at least one value in the IN list", label="the list is empty")
    if cur.at_query():
        query = cur.rules.query(cur)
        cur.expect_op(")", label="this `(` group is not closed here")
        return InQuery(left, query, negated, span=cur.span_since(start))
    items = _expressions(cur)
    cur.expect_op(")", label="a comma or `)` goes here")
    return Func("not_in" if negated else "in", (left, *items), cur.span_since(start))


def _quantified(cur: Reader, start: Tok, left: Expr, op: str) -> Expr:
    quantifier: Literal["any", "all"] = "all" if cur.next().upper == "ALL" else "any"
    cur.expect_op("(")
    of: Expr | Query = cur.rules.query(cur) if cur.at_query() else parse_expr(cur)
    cur.expect_op(")", label="this `(` group is not closed here")
    return Quantified(op, left, quantifier, of, span=cur.span_since(start))


def _expressions(cur: Reader) -> tuple[Expr, ...]:
    found = [parse_expr(cur)]
    while cur.accept_op(","):
        if cur.tok.op == ")":
            edit = Edit(cur.span_of(cur.back(1)), "")
            cur.expected("another value after the comma", help="remove the comma before it", edit=edit)
        found.append(parse_expr(cur))
    return tuple(found)


# --- behind a primary ---


def _postfixed(cur: Reader, start: Tok, base: Expr) -> Expr:
    count = 0
    while cur.tok.op in _BEHIND:
        count += 1
        cur.check_chain(count)
        if cur.accept_op("::"):
            base = CastTo(base, parse_type(cur), cur.span_since(start))
        elif cur.tok.op == "[":
            base = _subscript(cur, start, base)
        elif cur.tok.op == ".":
            cur.next()
            if cur.accept_op("*"):
                return Star(struct_of=base, span=cur.span_since(start))
            base = _field(cur, start, base, cur.expect_label("the name of a field"))
        elif cur.tok.op == "->" and cur.after.op == "*":
            cur.next()
            cur.next()
            return Star(struct_of=base, span=cur.span_since(start))
        elif cur.tok.op == "->" and _at_field(cur):
            cur.next()
            base = _field(cur, start, base, cur.next().name)
        else:
            break
    return base


def _field(cur: Reader, start: Tok, base: Expr, name: str) -> Expr:
    span = cur.span_since(start)
    return Func("field", (base, Lit("string", name, span)), span)


def _at_field(cur: Reader) -> bool:
    """Whether `->name` is next: a field of a struct. With another value behind it the arrow is that of JSON."""
    return cur.after.is_name and cur.peek(2).op != "(" and cur.peek(2).kind not in ("string", "number")


def _subscript(cur: Reader, start: Tok, base: Expr) -> Expr:
    cur.expect_op("[")
    low = None if cur.tok.op == ":" else parse_expr(cur)
    if low is not None and cur.accept_op("]"):
        return Func("subscript", (base, low), cur.span_since(start))
    cur.expect_op(":", help="close the subscript: name[1]")
    high = None if cur.tok.op == "]" else parse_expr(cur)
    cur.expect_op("]", help="close the slice: name[1:2]")
    span = cur.span_since(start)
    bounds = (low or Lit("int", 1, span), high or Lit("int", 2**31 - 1, span))
    return Func("SLICE", (base, *bounds), span)

"""Expressions, by precedence climbing, loosest first:

OR   AND   NOT   = <> < <= > >= LIKE IN BETWEEN IS   || + -   * / %   unary -   a[i] s->f   primary
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, Func, LambdaFn, Lit, Name, Star
from flowql.compiler.dialect.cursor import Cursor, Tok
from flowql.compiler.dialect.forms import parse_form
from flowql.compiler.dialect.numbers import at_number, parse_number
from flowql.compiler.dialect.words import CALENDAR_UNITS, UNIT_FUNCTIONS, singular

_LEFT_DEEP_MAX = 16
_COMPARISONS = {"=": "eq", "<>": "ne", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_ADDITIVE = {"+": "add", "-": "sub", "||": "CONCAT"}
_MULTIPLICATIVE = {"*": "mul", "/": "div", "%": "mod"}


def parse_expr(cur: Cursor) -> Ast:
    """A whole expression, up to OR."""
    cur.enter()
    expr = _words(cur, "OR", _and)
    cur.leave()
    return expr


def _and(cur: Cursor) -> Ast:
    return _words(cur, "AND", _not)


def _words(cur: Cursor, word: str, operand: Callable[[Cursor], Ast]) -> Ast:
    start = cur.tok
    first = operand(cur)
    if cur.tok.upper != word:
        return first
    operands = [(first, cur.span_since(start))]  # with their parentheses, which the node's own span leaves out
    while cur.accept_words(word):
        start = cur.tok
        operands.append((operand(cur), cur.span_since(start)))
    return _joined(cur, word.lower(), operands)


def _joined(cur: Cursor, name: str, operands: list[tuple[Ast, Span]]) -> Ast:
    """Operands in their order: to the left as written, or, when there are many, as a balanced and so shallow tree."""
    if len(operands) == 1:
        return operands[0][0]
    half = len(operands) - 1 if len(operands) <= _LEFT_DEEP_MAX else len(operands) // 2
    left, right = _joined(cur, name, operands[:half]), _joined(cur, name, operands[half:])
    return Func(name, (left, right), cur.span_between(operands[0][1], operands[-1][1]))


def _not(cur: Cursor) -> Ast:
    start = cur.tok
    if start.upper != "NOT":
        return _predicated(cur)
    cur.next()
    cur.enter()
    operand = _not(cur)
    cur.leave()
    return Func("not", (operand,), cur.span_since(start))


def _predicated(cur: Cursor) -> Ast:
    """A value with at most one comparison or predicate behind it: `a = b = c` is not an expression."""
    start = cur.tok
    left = parse_value(cur)
    tok = cur.tok
    if tok.kind == "op":
        if tok.text not in _COMPARISONS:
            return left
        cur.next()
        right = parse_value(cur)
        return Func(_COMPARISONS[tok.text], (left, right), cur.span_since(start))
    if tok.kind == "word":
        negated = cur.tok.upper == "NOT" and cur.after.upper in ("BETWEEN", "IN", "LIKE")
        if negated:
            cur.next()
        if cur.tok.upper in ("BETWEEN", "IN", "LIKE"):
            return _ranged(cur, start, left, "not_" if negated else "")
        if cur.tok.upper == "IS":
            return _is(cur, start, left)
    return left


def _ranged(cur: Cursor, start: Tok, left: Ast, prefix: str) -> Ast:
    word = cur.next().upper
    args: list[Ast] = [left]
    if word == "BETWEEN":
        args.append(parse_value(cur))
        cur.expect_word("AND", help="write  x BETWEEN low AND high")
        args.append(parse_value(cur))
    elif word == "LIKE":
        args.append(parse_value(cur))
        if cur.accept_words("ESCAPE"):
            at = cur.tok
            escape = cur.expect_string("the escape character")
            if len(escape) != 1:
                title = f"the escape of LIKE is one character, not {escape!r}"
                cur.fail("FQ1001", title, at=cur.span_of(at), label="not one character", help="write  ESCAPE '!'")
            args.append(Lit("string", escape, cur.span_of(at)))
    else:
        cur.expect_op("(", help="write  x IN (1, 2, 3)")
        if cur.tok.op == ")":
            cur.expected("at least one value in the IN list", label="the list is empty")
        if cur.tok.upper == "SELECT":
            cur.unsupported("a query inside IN", help="join the other source instead")
        args.extend(_list(cur, ")"))
        cur.expect_op(")", label="a comma or `)` goes here")
    return Func(prefix + word.lower(), tuple(args), cur.span_since(start))


def _is(cur: Cursor, start: Tok, left: Ast) -> Ast:
    cur.next()
    negated = cur.accept_words("NOT")
    if cur.accept_words("NULL"):
        return Func("is_not_null" if negated else "is_null", (left,), cur.span_since(start))
    if cur.accept_words("DISTINCT", "FROM"):
        right = parse_value(cur)
        return Func("is_not_distinct" if negated else "is_distinct", (left, right), cur.span_since(start))
    cur.expected("NULL or DISTINCT FROM after IS", help="compare with = for TRUE and FALSE")


def parse_value(cur: Cursor) -> Ast:
    """A value expression: arithmetic and what binds tighter; GROUP BY and PARTITION BY take no more than this."""
    start = cur.tok
    left = _product(cur)
    count = 0
    while cur.tok.op in ("+", "-", "||"):
        count += 1
        cur.check_chain(count)
        sign = cur.next().text
        name = _ADDITIVE[sign]
        right = _product(cur)
        left = Func(name, (left, right), cur.span_since(start))
    return left


def _product(cur: Cursor) -> Ast:
    start = cur.tok
    left = _unary(cur)
    count = 0
    while cur.tok.op in ("*", "/", "%"):
        count += 1
        cur.check_chain(count)
        name = _MULTIPLICATIVE[cur.next().text]
        right = _unary(cur)
        left = Func(name, (left, right), cur.span_since(start))
    return left


def _unary(cur: Cursor) -> Ast:
    start = cur.tok
    if start.op not in ("-", "+"):
        return parse_primary(cur)
    if cur.accept_op("-"):
        if at_number(cur):  # a negative literal, so that the least BIGINT can be written
            return _postfix(cur, start, parse_number(cur, start, negative=True))
        cur.enter()
        operand = _unary(cur)
        cur.leave()
        return Func("neg", (operand,), cur.span_since(start))
    while cur.accept_op("+"):
        pass
    cur.enter()
    operand = _unary(cur)
    cur.leave()
    return operand


def parse_primary(cur: Cursor) -> Ast:
    """A primary with its subscripts and fields. Stops before `->*`, which only a select list understands."""
    start = cur.tok
    return _postfix(cur, start, _primary(cur, start))


def _postfix(cur: Cursor, start: Tok, base: Ast) -> Ast:
    count = 0
    while cur.tok.op in ("[", "->"):
        count += 1
        cur.check_chain(count)
        if cur.accept_op("["):
            index = parse_value(cur)
            cur.expect_op("]", help="close the subscript: name[1]")
            base = Func("subscript", (base, index), cur.span_since(start))
        elif cur.after.op == "*":
            break
        else:
            cur.next()
            at = cur.tok
            name = Lit("string", cur.expect_name("the name of a field"), cur.span_of(at))
            base = Func("field", (base, name), cur.span_since(start))
    return base


def _primary(cur: Cursor, start: Tok) -> Ast:
    if start.kind == "string":
        return Lit("string", start.text, cur.step())
    if at_number(cur):
        return parse_number(cur, start)
    if cur.accept_op("("):
        return _parenthesised(cur, start)
    if start.kind == "word":
        form = parse_form(cur, start, parse_expr)
        if form is not None:
            return form
    if not cur.tok.is_name:
        _no_expression(cur, start)
    if cur.after.op == "(":
        return _call(cur, start)
    return _name(cur, start)


def _no_expression(cur: Cursor, start: Tok) -> NoReturn:
    names_something = cur.after.op in (",", ")", ".", "=") or cur.after.upper in ("FROM", "AS")
    if start.kind == "word" and names_something and not cur.tok.is_name:
        cur.expect_name("an expression")  # complains about the reserved word
    help = ""
    if cur.tok.op == "*":
        help = "use `*` by itself in a select list, or in COUNT(*)"
    elif start.op in (")", ","):
        help = "is there an extra comma, or is a value missing?"
    cur.expected("an expression", help=help)


def _parenthesised(cur: Cursor, start: Tok) -> Ast:
    if cur.tok.upper == "SELECT":
        cur.unsupported("a query inside an expression", help="join the other source instead")
    inner = parse_expr(cur)
    if cur.tok.op == ",":
        cur.expected("`)`", help="a list in parentheses is not a value; use ARRAY[...] or STRUCT(name := ...)")
    cur.expect_op(")", label="this `(` group is not closed here")
    return inner


def _name(cur: Cursor, start: Tok) -> Ast:
    span = cur.step()
    if cur.tok.op != "." or cur.after.op == "*":
        return Name((start.name,), span)
    cur.next()
    return Name((start.name, cur.expect_name("a column name after the dot")), cur.span_since(start))


def _call(cur: Cursor, start: Tok) -> Ast:
    tok = cur.next()
    name = tok.text if tok.kind == "quoted" else tok.upper
    cur.expect_op("(")
    args: list[Ast] = []
    if cur.tok.op == "*" and cur.after.op == ")":
        cur.next()
    elif cur.tok.op != ")":
        if name in UNIT_FUNCTIONS and _at_unit(cur):
            args.append(Lit("string", cur.tok.upper, cur.step()))
            cur.expect_op(",")
        args.extend(_list(cur, ")"))
    cur.expect_op(")", label="a comma or `)` goes here")
    if cur.tok.upper == "OVER" and cur.after.op == "(":
        cur.unsupported("a window function (OVER)")
    return Func(name, tuple(args), cur.span_since(start))


def _at_unit(cur: Cursor) -> bool:
    return cur.tok.kind == "word" and singular(cur.tok.text) in CALENDAR_UNITS and cur.after.op == ","


def _list(cur: Cursor, closer: str) -> list[Ast]:
    """Comma-separated expressions or lambdas, at least one."""
    items = [_argument(cur)]
    while cur.accept_op(","):
        if cur.tok.op == closer:
            cur.expected("another value after the comma", help="remove the comma before it")
        items.append(_argument(cur))
    return items


def _argument(cur: Cursor) -> Ast:
    start = cur.tok
    params = cur.accept_lambda()
    if params is None:
        return parse_expr(cur)
    body = parse_expr(cur)
    return LambdaFn(params, body, cur.span_since(start))


def parse_select_expr(cur: Cursor) -> Ast:
    """An item of a select list: `*`, `source.*`, `struct->*` or an expression."""
    start = cur.tok
    if cur.accept_op("*"):
        return Star(span=cur.span_of(start))
    if cur.tok.is_name and cur.after.op == "." and cur.peek(2).op == "*":
        source = cur.next().name
        cur.next()
        cur.next()
        return Star((source,), span=cur.span_since(start))
    before = cur.pos
    expr = parse_expr(cur)
    if cur.tok.op != "->":
        return expr
    cur.pos = before  # `a + b->*` is no star: only a primary may stand before it
    base = parse_primary(cur)
    cur.expect_op("->")
    cur.expect_op("*")
    return Star(struct_of=base, span=cur.span_since(start))

"""FROM: relations, table functions and sub-queries with their aliases, and joins as trees."""

from __future__ import annotations

from typing import Literal

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.dialect.ast import TypeRef
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.calls import parse_call
from flowql.compiler.dialect.standard.expressions import parse_expr
from flowql.compiler.dialect.standard.reader import Reader
from flowql.compiler.dialect.standard.tree import (
    Alias,
    Call,
    Derived,
    Expr,
    Join,
    Relation,
    Table,
    TableFunction,
)
from flowql.compiler.dialect.standard.types import parse_type
from flowql.compiler.dialect.standard.words import JOIN_DIRECTIONS, JOIN_VARIANTS, RELATION_CLAUSES
from flowql.compiler.dialect.time_windows import parse_within

JoinKind = Literal["inner", "left", "right", "full", "cross", "comma"]
_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full", "CROSS": "cross"}
_CLAUSE_HELP = {
    "CROSS APPLY": "write  CROSS JOIN LATERAL (...)",
    "OUTER APPLY": "write  LEFT JOIN LATERAL (...) ON TRUE",
    "LATERAL VIEW": "write  CROSS JOIN UNNEST(column)",
    "TABLESAMPLE": "take a part of the rows by their key:  WHERE id % 10 = 0",
    "PIVOT": "write an aggregate for each value:  SUM(x) FILTER (WHERE c = 'a') AS a",
    "UNPIVOT": "write  CROSS JOIN LATERAL (VALUES ('a', t.a), ('b', t.b)) AS u (name, value)",
}


def parse_relations(cur: Reader) -> Relation:
    """The list of FROM; commas join less tightly than JOIN."""
    start = cur.tok
    left = parse_joined(cur)
    count = 0
    while cur.tok.op == ",":
        count += 1
        cur.check_chain(count)
        at = cur.span_of(cur.next())
        left = Join("comma", left, parse_joined(cur), at=at, span=cur.span_since(start))
    return left


def parse_joined(cur: Reader) -> Relation:
    """A relation with the joins behind it."""
    start = cur.tok
    left = parse_relation(cur)
    count = 0
    while words := _join_words(cur):
        count += 1
        cur.check_chain(count)
        left = parse_join(cur, start, left, words)
    if cur.tok.is_name and cur.after.upper == "JOIN":
        cur.fail(
            "FQ1001",
            f"{cur.tok.shown()} is not a kind of join",
            label="before JOIN",
            help="the kinds are INNER, LEFT, RIGHT, FULL and CROSS",
        )
    return left


# The words of a join in their order; NATURAL may stand before the first ones.
_OF_NATURAL = ((), ("INNER",), *((d, *o) for d in ("LEFT", "RIGHT", "FULL") for o in ((), ("OUTER",))))
_PLAIN = (*_OF_NATURAL, ("CROSS",))


def _join_words(cur: Reader) -> int:
    """How many words up to JOIN name a join here; 0 for none."""
    count, word = 0, cur.tok.upper
    while word in (*JOIN_VARIANTS, *JOIN_DIRECTIONS, "LATERAL"):
        count += 1
        word = cur.peek(count).upper
    if word == "JOIN":
        return count + 1
    if count and cur.tok.upper in ("LEFT", "RIGHT", "FULL", "INNER", "NATURAL"):
        cur.pos += count
        cur.expected("JOIN", words=("JOIN",))
    return 0


def parse_join(cur: Reader, start: Tok, left: Relation, words: int) -> Join:
    """The join of `left` whose words are next, with its right side and condition."""
    at = cur.tok
    kind: JoinKind = "inner"
    natural = False
    variant: list[str] = []
    plain: list[str] = []
    for _ in range(words - 1):
        word = cur.next().upper
        if word in JOIN_DIRECTIONS:
            plain.append(word)
        kind = _KINDS.get(word, kind)
        natural = natural or word == "NATURAL"
        if word in JOIN_VARIANTS or word == "LATERAL":
            variant.append(word)
    cur.next()
    named = cur.span_since(at)
    if not variant and tuple(plain[natural:]) not in (_OF_NATURAL if natural else _PLAIN):
        help = (
            "write  INNER, LEFT [OUTER], RIGHT [OUTER], FULL [OUTER] or CROSS JOIN, NATURAL in front of all but CROSS"
        )
        cur.fail("FQ1003", f"{' '.join(plain)} JOIN is not a join", at=named, help=help)
    cur.enter()
    right_start = cur.tok
    right = parse_relation(cur)
    conditional = kind != "cross" and not natural
    while conditional and (more := _join_words(cur)):  # a JOIN b JOIN c ON ... ON ...
        cur.enter()  # as deep as with the parentheses that may stand around it
        right = parse_join(cur, right_start, right, more)
        cur.leave()
    cur.leave()
    within = parse_within(cur) if cur.tok.upper == "WITHIN" else None
    on: Expr | None = None
    using: tuple[str, ...] = ()
    if cur.tok.upper == "USING" and cur.after.op == "(" and conditional:
        cur.next()
        using = cur.expect_names("the name of a column")
    elif cur.tok.upper == "ON" and conditional:
        cur.next()
        on = parse_expr(cur)
    elif conditional and not variant:
        edit = Edit(cur.span_of(cur.tok), "ON") if cur.tok.upper == "WHERE" else None
        cur.expected("`ON` with the condition of the join", help="write  JOIN other ON this.key = other.key", edit=edit)
    elif (cur.tok.upper == "ON" and cur.after.upper != "CONFLICT") or (
        cur.tok.upper == "USING" and cur.after.op == "("
    ):
        kind_named = "NATURAL JOIN" if natural else "CROSS JOIN"
        cur.fail("FQ1003", f"{kind_named} has no condition", label="not here", help="write  JOIN other ON ...")
    if cur.tok.upper == "WITHIN":
        cur.fail("FQ1003", "WITHIN comes before ON", help="write  JOIN other WITHIN 1 HOUR ON ...")
    return Join(kind, left, right, on, using, natural, within, " ".join(variant), at=named, span=cur.span_since(start))


def parse_join_alone(cur: Reader) -> Join:
    """One join without its left side, which is a table without a name."""
    start = cur.tok
    words = _join_words(cur)
    if not words:
        cur.expected("JOIN", words=("JOIN",))
    return parse_join(cur, start, Table(("",), span=cur.span_of(start)), words)


def parse_relation(cur: Reader) -> Relation:
    """One relation, or a join in parentheses."""
    start = cur.tok
    lateral = cur.tok.upper == "LATERAL"
    if lateral:
        cur.next()
    if cur.tok.op == "(":
        cur.next()
        return _parenthesised(cur, start, lateral=lateral)
    if cur.tok.upper == "TABLE" and cur.after.op == "(":
        cur.next()
        cur.next()
        call = parse_call(cur)
        cur.expect_op(")")
        return _function(cur, start, call, lateral=lateral, wrapped=True)
    if cur.tok.upper == "ONLY" or (cur.tok.upper == "ROWS" and cur.after.upper == "FROM"):
        named = "ROWS FROM" if cur.tok.upper == "ROWS" else "ONLY"
        edit = Edit(cur.span_of(cur.tok), "") if named == "ONLY" else None
        cur.unsupported(named, help="leave it out", edit=edit)
    if cur.after.op == "(" and cur.at_function():
        return _function(cur, start, parse_call(cur), lateral=lateral)
    if lateral:
        cur.expected("a query in parentheses or a table function after LATERAL")
    name = cur.expect_dotted("the name of a stream or table")
    as_of = None
    if cur.tok.upper == "FOR" and cur.accept_words("FOR", "SYSTEM_TIME"):
        cur.expect_word("AS", help="write  FOR SYSTEM_TIME AS OF time")
        cur.expect_word("OF", help="write  FOR SYSTEM_TIME AS OF time")
        as_of = parse_expr(cur)
    alias = _alias(cur)
    _refuse_clause(cur)
    return Table(name, alias, as_of, span=cur.span_since(start))


def _parenthesised(cur: Reader, start: Tok, *, lateral: bool) -> Relation:
    cur.enter()
    if cur.at_query() or lateral:
        query = cur.rules.query(cur)
        cur.expect_op(")", label="this `(` group is not closed here")
        cur.leave()
        made = Derived(query, _alias(cur), lateral, span=cur.span_since(start))
        _refuse_clause(cur)
        return made
    relation = parse_joined(cur)
    cur.expect_op(")", label="this `(` group is not closed here")
    cur.leave()
    if _alias(cur) is not None:
        cur.unsupported("an alias of a join", at=cur.span_since(start), help="give each of its relations an alias")
    return relation


def _function(cur: Reader, start: Tok, call: Call, *, lateral: bool, wrapped: bool = False) -> Relation:
    ordinality = cur.accept_words("WITH", "ORDINALITY")
    alias = _alias(cur, typed=True)
    _refuse_clause(cur)
    return TableFunction(call, alias, ordinality, lateral, wrapped, span=cur.span_since(start))


def _alias(cur: Reader, *, typed: bool = False) -> Alias | None:
    """`[AS] alias [(columns)]`. Without AS a word that begins a clause or names a kind of join is none."""
    start = cur.tok
    if cur.tok.upper == "AS":
        cur.next()
        name = cur.expect_name("an alias")
    elif cur.tok.is_name and not cur.at_clause() and not _at_other(cur):
        name = cur.next().name
    else:
        return None
    columns: list[str] = []
    types: list[TypeRef] = []
    if cur.accept_op("("):
        while not columns or cur.accept_op(","):
            columns.append(cur.expect_name("the name of a column"))
            if typed and cur.tok.op not in (",", ")"):
                types.append(parse_type(cur))
        cur.expect_op(")", label="a comma or `)` goes here")
    return Alias(name, tuple(columns), tuple(types), span=cur.span_since(start))


def _at_other(cur: Reader) -> bool:
    """Whether the word here names a kind of join, or begins a clause of another dialect."""
    count = 0
    while cur.peek(count).upper in (*JOIN_VARIANTS, *JOIN_DIRECTIONS):
        count += 1
    return (count > 0 and cur.peek(count).upper == "JOIN") or _clause(cur) != ""


def _refuse_clause(cur: Reader) -> None:
    named = _clause(cur)
    if named:
        cur.unsupported(named, help=_CLAUSE_HELP.get(named, ""))


def _clause(cur: Reader) -> str:
    for first, second in RELATION_CLAUSES:
        if cur.tok.upper == first and (not second or cur.after.upper == second or cur.after.op == second):
            return first if second in ("", "(") else f"{first} {second}"
    return ""

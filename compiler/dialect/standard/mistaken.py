"""Guesses the meaning of text after the end of a statement: words misspelt or of other systems, and how to change the text."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from flowql.compiler.diagnostics.edits import Edit, behind
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.cursor import Cursor, Tok

_CLAUSES = (
    "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "UNION", "INTERSECT", "EXCEPT",
    "BETWEEN", "LIKE", "ILIKE", "SIMILAR", "WINDOW", "RETURNING", "USING", "AND", "OR",
)  # fmt: skip
_BEHIND_TABLES = (
    "ENGINE",
    "CHARSET",
    "COMMENT",
    "TABLESPACE",
    "PARTITIONED",
    "PARTITION",
    "INHERITS",
    "DISTRIBUTED",
    "STORED",
    "LOCATION",
    "TBLPROPERTIES",
)
_MATCHES = ("REGEXP", "RLIKE", "MATCHES")
_CLOSED = {"“": "”", "‘": "’"}
_STRAIGHT = {"“": '"', "‘": "'"}
_LOOKED_AT = 20  # tokens behind an opening sign
_NEAR = 0.7  # of 1: names of columns are often similar to some keyword
Advice = tuple[str, Edit | None]


def pasted(cur: Cursor) -> Advice:
    """For what no SQL has: quotes of a word processor, and templates of dbt."""
    here = cur.tok
    end = next((n for n in range(1, _LOOKED_AT) if cur.peek(n).text in ("}", _CLOSED.get(here.text, ""))), 0)
    if here.text in _CLOSED and end:
        at, quote = cur.span_from(here, cur.peek(end)), _STRAIGHT[here.text]
        text = quote + cur.source.text[here.end : cur.peek(end).start] + quote
        return f"write straight quotes:  {text}", Edit(at, text)
    if here.text == "{" and cur.peek(end + 1).text == "}":
        names = [t.text for t in map(cur.peek, range(end)) if t.kind in ("string", "quoted")]
        edit = Edit(cur.span_from(here, cur.peek(end + 1)), names[-1]) if names else None
        return "a template of dbt is not SQL: write the name of the relation", edit
    return "", None


def mistaken(cur: Cursor) -> Advice:
    """Advice where the statement should have ended; no edit where none is certain."""
    for advice in (_sign(cur), _of_other_systems(cur), _misspelt(cur), _comma(cur)):
        if advice[1] is not None:
            return advice
    return "", None


def misspelt(tok: Tok, words: Sequence[str]) -> str:
    """The one of these words that a token nearly is, or nothing."""
    near = get_close_matches(tok.upper, words, n=1, cutoff=_NEAR) if tok.kind == "word" else []
    return near[0] if near and near[0] != tok.upper else ""


def _misspelt(cur: Cursor) -> Advice:
    """The word here, or the one before it, which was read as an alias."""
    for tok in (cur.back(1), cur.tok):
        meant = misspelt(tok, _CLAUSES)
        if meant and tok.upper.removesuffix("S") not in _CLAUSES and tok.upper not in cur.verbs:
            return f"did you mean `{meant}`?", Edit(cur.span_of(tok), meant)
    return "", None


def _sign(cur: Cursor) -> Advice:
    here = cur.tok
    if cur.tok.op == ")":
        return "remove the `)`: none is open", Edit(cur.span_of(here), "")
    pairs = cur.find("&&")
    if pairs is not None:
        return "conditions are joined by AND; && is for arrays", Edit(cur.span_of(pairs), "AND")
    if here.op == "." and cur.back(1).kind == "word" and cur.back(2).kind in ("word", "quoted"):
        return "is a comma missing?", behind(cur.span_of(cur.back(2)), ",")
    rows = cur.back(1).text == ")" and cur.tok.op == "(" and cur.after.kind != "end"
    return ("is a comma missing between rows?", behind(cur.span_of(cur.back(1)), ",")) if rows else ("", None)


def _of_other_systems(cur: Cursor) -> Advice:
    here, last = cur.tok, cur.back(1)
    if cur.tok.op == "," and last.kind == "number" and cur.back(2).upper == "LIMIT" and cur.after.kind == "number":
        text = f"{cur.after.text} OFFSET {last.text}"
        return f"write  LIMIT {text}", Edit(cur.span_from(last, cur.after), text)
    if last.upper == "TOP" and here.kind == "number":
        return _top(cur, last)
    if here.upper in _BEHIND_TABLES:
        return f"leave {here.upper} out", Edit(_up_to_with(cur), "")
    if here.upper in _MATCHES:
        return "a regular expression is matched by  ~", Edit(cur.span_of(here), "~")
    if here.upper == "CONTAINS" and last.kind in ("word", "quoted") and cur.after.kind == "string":
        value = "'" + cur.after.text.replace("'", "''") + "'"
        text = f"{value} = ANY ({last.text})"
        return f"write  {text}  for an array, or LIKE with a pattern", Edit(cur.span_from(last, cur.after), text)
    if here.upper == "NOT" and cur.after.upper == "NULL":
        return "write  IS NOT NULL", Edit(cur.span_of(here), "IS NOT")
    return "", None


def _up_to_with(cur: Cursor) -> Span:
    """From the next token to the end of the statement, or to WITH, which says what a table is over."""
    at = 0
    while (following := cur.peek(at)).kind != "end" and following.start < cur.final().start:
        at += 1
        if cur.peek(at).upper == "WITH" and cur.peek(at + 1).op == "(":
            return cur.span_from(cur.tok, cur.peek(at - 1))
    return cur.rest()


def _top(cur: Cursor, top: Tok) -> Advice:
    count = cur.tok
    text = cur.source.text[count.end : cur.final().end].strip()
    return f"write  LIMIT {count.text}  at the end", Edit(cur.span_from(top, cur.final()), f"{text} LIMIT {count.text}")


def _comma(cur: Cursor) -> Advice:
    """A name behind a name."""
    here, last = cur.tok, cur.back(1)
    names = {here.kind, last.kind} <= {"word", "quoted"} and here.upper not in cur.verbs
    return ("is a comma missing?", behind(cur.span_of(last), ",")) if names else ("", None)

"""Tokens of standard SQL, as PostgreSQL reads it: nested comments, `E'...'` and `$$...$$` texts, `::`. Back-ticks quote a name as well."""

from __future__ import annotations

import re
from dataclasses import replace

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.edits import behind
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.cursor import Positions, Tok
from flowql.compiler.dialect.standard.words import NOT_NAMES
from flowql.compiler.dialect.words import SYSTEM_COLUMNS

_OPERATORS = (
    "!~~*", "~~*", "!~~", "~~", "->>", "#>>", "!~*", "||/", "::", ":=", "=>", "->", "#>", "<>", "!=", "<=", ">=", "||", "|/", "@>", "<@", "^@", "?|", "?&", "!~", "~*", "&&",
)  # fmt: skip
TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')
    |(?P<string>'(?:[^']|'')*')
    |(?P<dollar>\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$)
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
    |(?P<word>[^\W\d](?:\w|\$(?!\{))*)
    |(?P<open>['"`])
    |(?P<op>"""
    + "|".join(re.escape(o) for o in _OPERATORS)
    + r"|.)",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))|''", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_NAMES = {"'": "string", '"': "quoted name", "`": "quoted name", "/*": "comment"}


def tokenize(source: SourceText, positions: Positions) -> tuple[list[Tok], Diagnostic | None]:
    """All tokens, or those before an unterminated quote or comment together with the finding about it.

    >>> [t.text for t in tokenize(SourceText("", "a::int -- b"), Positions(SourceText("", "")))[0]]
    ['a', '::', 'int']
    """
    text = source.text
    tokens: list[Tok] = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match is not None, "the pattern takes any character"
        kind, start, at = str(match.lastgroup), match.start(), match.end()
        if kind == "comment":
            at = comment_end(text, at)
        if kind == "open" or at < 0:
            return tokens, _unclosed(text[start : start + 2] if kind == "comment" else match[0], start, positions)
        tok = _token(kind, match)
        if tok is not None:
            _append(tokens, tok, text)
    return tokens, None


def _token(kind: str, match: re.Match[str]) -> Tok | None:
    text, start, end = match[0], match.start(), match.end()
    match kind:
        case "space" | "comment":
            return None
        case "word":
            upper = text.upper()
            name = upper if upper in SYSTEM_COLUMNS else text.lower()
            return Tok("word", text, start, end, upper, name=name, is_name=upper not in NOT_NAMES)
        case "string":
            return Tok("string", text[1:-1].replace("''", "'"), start, end)
        case "escaped":
            return Tok("string", _ESCAPE.sub(_unescaped, text[2:-1]), start, end)
        case "dollar" | "tag":
            mark = len(match["tag"]) + 2
            return Tok("string", text[mark:-mark], start, end)
        case "quoted":
            name = text[1:-1].replace(text[0] * 2, text[0])
            return Tok("quoted", name, start, end, name=name, is_name=True)
        case "number":
            return Tok("number", text, start, end)
    return Tok("op", text, start, end, op=text)


def _append(tokens: list[Tok], tok: Tok, text: str) -> None:
    """Texts with only a line break between them are one text."""
    last = tokens[-1] if tokens else None
    if last is not None and last.kind == tok.kind == "string":
        between = text[last.end : tok.start]
        if "\n" in between and not between.strip():
            tokens[-1] = Tok("string", last.text + tok.text, last.start, tok.end)
            return
    tokens.append(tok)


def comment_end(text: str, at: int) -> int:
    """Where the comment that was opened before `at` ends, with those inside it; -1 for nowhere."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code or match[4]:
        number = int(code, 16) if code else int(match[4], 8)
        return chr(number) if number <= 0x10FFFF else match[0]
    return _ESCAPES.get(match[5], match[5]) if match[5] else "'"


def _unclosed(opener: str, start: int, positions: Positions) -> Diagnostic:
    closer = "*/" if opener == "/*" else opener
    span = positions.span(start, start + len(opener))
    line = span.line_text[span.column :]  # behind the opener
    text = line.rstrip("; ") if opener == "'" else re.match(r"\w*", line)[0]  # type: ignore[index]
    edit = behind(replace(span, length=len(opener) + len(text)), closer) if opener != "/*" else None
    return Diagnostic(
        "FQ1002",
        f"this {_NAMES[opener]} is never closed",
        span,
        label="opened here",
        help=f"close it with {closer}",
        edit=edit,
    )

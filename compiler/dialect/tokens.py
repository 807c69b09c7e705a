"""From text to the tokens of statements, with `${variable}` substitution on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokens import Tokenizer as BaseTokenizer
from sqlglot.tokens import TokenType

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, ParseError
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.dialect.cursor import Positions, Tok
from flowql.compiler.dialect.words import RESERVED


class FlowQL(Dialect):
    """How sqlglot turns text into tokens. Registered under the name `flowql`.

    Only the tokenizer is a diff on sqlglot's base. The grammar above it is our own (`expressions`, `queries`, `statements`):
    ksqlDB's statements, windows, lambdas and struct access have no place in sqlglot's parser, and its expression nodes
    keep no position for operators and calls, which every error message here needs.
    """

    IDENTIFIERS_CAN_START_WITH_DIGIT = True  # ksqlDB takes `SELECT x AS 1R`

    class Tokenizer(BaseTokenizer):
        """Words stay plain words: whether one is a keyword depends on where it stands."""

        IDENTIFIERS: ClassVar = ["`", '"']
        QUOTES: ClassVar = ["'"]
        STRING_ESCAPES: ClassVar = ["'"]  # ksqlDB: a backslash is an ordinary character
        VAR_SINGLE_TOKENS: ClassVar = {"@"}
        COMMENTS: ClassVar = ["--", ("/*", "*/")]
        COMMANDS: ClassVar[set[TokenType]] = set()
        NESTED_COMMENTS = False
        KEYWORDS: ClassVar = {
            "->": TokenType.ARROW,
            "=>": TokenType.FARROW,
            ":=": TokenType.COLON_EQ,
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            "<=": TokenType.LTE,
            ">=": TokenType.GTE,
            "||": TokenType.DPIPE,
            "{#": TokenType.L_BRACE,  # no token of ours, and not the template comment sqlglot makes of it (see below)
        }


# sqlglot adds this comment to every dialect; here it would hide text that ksqlDB refuses.
del FlowQL.Tokenizer._COMMENTS["{#"]


def tokenize(source: SourceText, positions: Positions) -> tuple[list[Tok], Diagnostic | None]:
    """All tokens, or those before an unterminated quote or comment together with the finding about it."""
    tokenizer = FlowQL().tokenizer_class(dialect=FlowQL)
    bad = _unterminated(source.text) if "/*" in source.text else None
    if bad is None:
        try:
            return _tokens(tokenizer.tokenize(source.text), source.text), None
        except TokenError:
            bad = _unterminated(source.text)
            if bad is None:
                raise
    start, opener = bad
    what = {"'": "string", "/*": "comment"}.get(opener, "quoted name")
    closer = "*/" if opener == "/*" else opener
    finding = Diagnostic(
        "FQ1002",
        f"this {what} is never closed",
        positions.span(start, start + len(opener)),
        label="opened here",
        help=f"close it with {closer}",
    )
    return _tokens(tokenizer.tokenize(source.text[:start]), source.text), finding


T = TypeVar("T")
Tokenize = Callable[[SourceText, Positions], tuple[list[Tok], Diagnostic | None]]


def split_statements(tokens: Sequence[Tok]) -> list[list[Tok]]:
    """The tokens of each statement, without its semicolon, closed by an `end` token; empty statements are left out."""
    statements: list[list[Tok]] = []
    current: list[Tok] = []
    for tok in tokens:
        if tok.op == ";":
            if current:
                statements.append([*current, _end_after(current)])
            current = []
        else:
            current.append(tok)
    if current:
        statements.append([*current, _end_after(current)])
    return statements


def substitute(
    tokens: Sequence[Tok], variables: Mapping[str, str], positions: Positions, tokenize: Tokenize = tokenize
) -> list[Tok]:
    """Tokens with `${name}` replaced: a bare one by the tokens of its value, one in a string by its text.

    Names are matched ignoring case. An unknown name in a string stays as written; a bare one is an error. tokenize: of the dialect.
    """
    if not any(t.text == "$" or (t.kind == "string" and "${" in t.text) for t in tokens):
        return list(tokens)
    known = {name.upper(): value for name, value in variables.items()}
    out: list[Tok] = []
    i = 0
    while i < len(tokens):
        tok = tokens[i]
        if tok.kind == "string" and "${" in tok.text:
            out.append(replace(tok, text=_VARIABLE.sub(lambda m: known.get(m[1].upper(), m[0]), tok.text)))
        elif tok.text == "$" and [t.text for t in tokens[i + 1 : i + 4 : 2]] == ["{", "}"]:
            name, end = tokens[i + 2].text, tokens[i + 3].end
            if name.upper() not in known:
                raise ParseError(_undefined(name, sorted(variables), positions.span(tok.start, end)))
            value = SourceText("", known[name.upper()])
            inner, problem = tokenize(value, Positions(value))
            if problem is not None:
                raise ParseError(replace(problem, span=positions.span(tok.start, end)))
            out.extend(replace(t, start=tok.start, end=end) for t in inner)
            i += 3
        else:
            out.append(tok)
        i += 1
    return out


def read_statements(
    source: SourceText,
    variables: MutableMapping[str, str],
    read: Callable[[list[Tok], Positions], list[T]],
    tokenize: Tokenize = tokenize,
    *,
    check_size: Callable[[Sequence[Tok], Positions], None],
) -> tuple[list[T], list[Diagnostic]]:
    """The results of `read` over the tokens of each statement, and every mistake; after one, reading goes on behind the next semicolon.

    tokenize: of the dialect. check_size: raises ParseError for a statement that is too large.
    """
    positions = Positions(source)
    tokens, unclosed = tokenize(source, positions)
    groups = split_statements(tokens)
    if unclosed is not None and tokens and tokens[-1].text != ";":
        groups.pop()  # it goes on behind the unclosed quote, so anything said about its first part would be noise
    found: list[T] = []
    mistakes: list[Diagnostic] = []
    for group in groups:
        try:
            # DEFINE and UNDEFINE take names and values as they stand.
            keep = group[0].upper in ("DEFINE", "UNDEFINE")
            check_size(group, positions)
            found.extend(read(group if keep else substitute(group, variables, positions, tokenize), positions))
        except CompileError as e:
            mistakes.extend(e.diagnostics)
    if unclosed is not None:
        mistakes.append(unclosed)
    return found, mistakes


def fragment(
    source: SourceText, check_size: Callable[[Sequence[Tok], Positions], None], tokenize: Tokenize = tokenize
) -> tuple[list[Tok], Positions]:
    """The tokens of a part of a statement, with or without a semicolon behind it, closed by an `end` token. Raises ParseError."""
    positions = Positions(source)
    tokens, unclosed = tokenize(source, positions)
    if unclosed is not None:
        raise ParseError(unclosed)
    if tokens and tokens[-1].op == ";":
        tokens.pop()
    end = tokens[-1].end if tokens else len(source.text)
    body = [*tokens, Tok("end", "", end, end)]
    check_size(body, positions)
    return body, positions


_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SKIPPED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|'|"|`|/\*""", re.DOTALL)


def _unterminated(text: str) -> tuple[int, str] | None:
    """Offset and text of the first quote or comment opener that has no end."""
    for match in _SKIPPED.finditer(text):
        if match[0] in ("'", '"', "`", "/*"):
            return match.start(), match[0]
    return None


def _tokens(raw: Iterable[object], text: str) -> list[Tok]:
    """Our tokens. A number with letters right behind it is one word, a name that begins with a digit (`0x1F`)."""
    out: list[Tok] = []
    for token in raw:
        tok = _convert(token, text)
        if tok.kind == "word" and out and out[-1].kind == "number" and out[-1].end == tok.start:
            start = out.pop().start
            tok = _word(text[start : tok.end], start, tok.end)
        if tok.kind == "word" and "." in tok.text:  # sqlglot reads `1.5x` as one word
            tok = Tok("number", tok.text, tok.start, tok.end)
        out.append(tok)
    return out


def _convert(token: object, text: str) -> Tok:
    kind = token.token_type  # type: ignore[attr-defined]  # sqlglot is untyped here
    start, end, value = token.start, token.end + 1, token.text  # type: ignore[attr-defined]
    if kind in (TokenType.STRING, TokenType.NATIONAL_STRING):
        return Tok("string", value, start, end)
    if kind is TokenType.IDENTIFIER:
        return Tok("quoted", value, start, end, name=value, is_name=True)
    if kind is TokenType.NUMBER:
        return Tok("number", value, start, end)
    if kind is TokenType.VAR:
        return _word(value, start, end)
    return Tok("op", text[start:end], start, end, op=text[start:end])


def _word(text: str, start: int, end: int) -> Tok:
    """A word; as a name it is folded to upper case."""
    upper = text.upper()
    return Tok("word", text, start, end, upper, name=upper, is_name=upper not in RESERVED)


def _end_after(tokens: Sequence[Tok]) -> Tok:
    return Tok("end", "", tokens[-1].end, tokens[-1].end)


def _undefined(name: str, known: Sequence[str], span: Span) -> Diagnostic:
    hint = did_you_mean(name, known) or f"write  DEFINE {name} = 'value';  before this statement"
    return Diagnostic("FQ1006", f"variable `{name}` is not defined", span, label="no value is known for it", help=hint)

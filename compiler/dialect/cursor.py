"""Tokens, their places in the text, and a cursor over the tokens of a statement, with the tests and errors that grammar rules share."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, Self, TypeVar

from flowql.compiler.diagnostics.diagnostic import Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.edits import Edit, before, behind
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.diagnostics.suggest import closest
from flowql.compiler.dialect.words import VERBS

T = TypeVar("T")
TokKind = Literal["word", "quoted", "string", "number", "op", "end"]
CHAIN_MAX = 200  # operators in a row that each nest the tree one deeper: a + b + c ...
_DEPTH_MAX = 50  # a level of parentheses takes about 14 Python frames of the 1,000 there are


@dataclass(frozen=True, slots=True)
class Tok:
    """One token. `text`: a quoted token's content, otherwise as written; `upper`: of a word, its upper case, else
    empty; `op`: of a sign, its text, else empty.

    `start` and `end` are offsets in the source text; a substituted token has those of its variable. `name`: the name
    that a word or a quoted token stands for; `is_name`: whether it can name a column or a relation, as a reserved word cannot.
    """

    kind: TokKind
    text: str
    start: int
    end: int
    upper: str = ""
    op: str = ""
    name: str = ""
    is_name: bool = False

    def shown(self) -> str:
        """How an error message names this token."""
        if self.kind == "end":
            return "the end of the statement"
        return f"'{self.text}'" if self.kind == "string" else f"`{self.text}`"


class Positions:
    """Turns offsets of one source text into spans."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._starts = [0, *(m.end() for m in re.finditer("\n", source.text))]

    def span(self, start: int, end: int) -> Span:
        """The characters [start, end); an empty range is shown one character wide."""
        source = self._source
        row = bisect_right(self._starts, start) - 1
        begin = self._starts[row]
        stop = self._starts[row + 1] - 1 if row + 1 < len(self._starts) else len(source.text)
        return Span(
            path=source.path,
            line=row + 1 + source.line_offset,
            column=start - begin + 1 + source.column_offset,
            length=max(1, end - start),
            line_text=" " * source.column_offset + source.text[begin:stop].rstrip("\r"),
        )

    def offset(self, span: Span) -> int:
        """Where a span of this text begins."""
        row = span.line - 1 - self._source.line_offset
        return self._starts[row] + span.column - 1 - self._source.column_offset


class Cursor:
    """Reads tokens from left to right; `pos` may be set back to try another reading.

    `tok` is the next token and `after` the one behind it, at the end of the statement the `end` token. They are plain attributes, so
    that a rule asks `cur.tok.upper == "FROM"` or `cur.after.op == "("` without a call: most of what a parser does is looking.
    """

    depth_max = _DEPTH_MAX
    verbs: tuple[str, ...] = VERBS  # words that begin a statement
    missing = ""  # the advice where a word or a sign is expected, with {} in its place

    def __init__(self, source: SourceText, tokens: Sequence[Tok], positions: Positions) -> None:
        self.source = source
        self._tokens = tokens
        self._positions = positions
        self._last = len(tokens) - 1
        self.pos = 0
        self._depth = 0

    @property
    def pos(self) -> int:
        """How many tokens of the statement are before the next one."""
        return self._pos

    @pos.setter
    def pos(self, pos: int) -> None:
        self._pos = pos
        self.tok = self._tokens[min(pos, self._last)]
        self.after = self._tokens[min(pos + 1, self._last)]

    # Looking.

    def peek(self, ahead: int) -> Tok:
        """The token `ahead` of the next one; past the end, the `end` token."""
        return self._tokens[min(self._pos + ahead, self._last)]

    def at_words(self, *words: str, ahead: int = 0) -> bool:
        """Whether exactly these words follow one another here, or `ahead` tokens further on."""
        return all(self.peek(ahead + i).upper == word for i, word in enumerate(words))

    def is_qualifier(self, tok: Tok) -> bool:
        """Whether a name qualifies another one anywhere in the statement, as `a` does in `a.id`."""
        return any(dot.op == "." and word.name == tok.name for word, dot in itertools.pairwise(self._tokens))

    def back(self, count: int) -> Tok:
        """The token so many before the next one."""
        return self._tokens[max(self.pos - count, 0)]

    def find(self, sign: str) -> Tok | None:
        """The first sign of that text in the statement."""
        return next((t for t in self._tokens if t.op == sign), None)

    def final(self) -> Tok:
        """The last token of the statement."""
        return self._tokens[max(self._last - 1, 0)]

    # Moving.

    def next(self) -> Tok:
        tok = self.tok
        self.pos = min(self._pos + 1, self._last)
        return tok

    def step(self) -> Span:
        """Step over the next token, and tell where it stands."""
        return self.span_of(self.next())

    def accept_words(self, *words: str) -> bool:
        """Step over all of these words, or over none of them."""
        if self.tok.upper != words[0] or not self.at_words(*words):
            return False
        self.pos += len(words)
        return True

    def accept_op(self, op: str) -> bool:
        if self.tok.op != op:
            return False
        self.pos += 1
        return True

    def accept_lambda(self) -> tuple[str, ...] | None:
        """Step over `x =>` or `(x, y) =>` and give the parameters; None and unmoved when none stands here."""
        before, names = self.pos, list[str]()
        if self.tok.is_name:
            names.append(self.next().name)
        elif self.accept_op("("):
            while (tok := self.tok).is_name:
                names.append(tok.name)
                self.next()
                if not self.accept_op(","):
                    break
            if not self.accept_op(")"):
                names.clear()
        if names and self.accept_op("=>"):
            return tuple(names)
        self.pos = before
        return None

    def expect_word(self, word: str, *, help: str = "") -> Tok:
        if self.tok.upper != word:
            self._no_word(word, help or self.missing.format(word))
        return self.next()

    def expect_op(self, op: str, *, label: str = "", help: str = "") -> Tok:
        if self.tok.op != op:
            help = help or self.missing.format(op)
            self.expected(f"`{op}`", label=label, help=help, edit=behind(self.span_of(self.back(1)), op))
        return self.next()

    def expect_string(self, what: str) -> str:
        if self.tok.kind != "string":
            self.expected(what, help="write it in single quotes: 'text'")
        return self.next().text

    def expect_name(self, what: str) -> str:
        """A name, folded unless quoted."""
        if not self.tok.is_name:
            self._not_a_name(what)
        return self.next().name

    def expect_names(self, what: str) -> tuple[str, ...]:
        """`(a, b)`."""
        self.expect_op("(")
        names = self.listed(lambda cur: cur.expect_name(what))
        self.expect_op(")", label="a comma or `)` goes here")
        return names

    def expect_placed(self, what: str) -> tuple[str, Span]:
        """As `expect_name`, with where it stands."""
        tok = self.tok
        return self.expect_name(what), self.span_of(tok)

    def listed(self, rule: Callable[[Self], T]) -> tuple[T, ...]:
        """Reads with `rule`, once or several times with commas between."""
        found = [rule(self)]
        while self.accept_op(","):
            found.append(rule(self))
        return tuple(found)

    def expect_end(self) -> None:
        if self.tok.kind != "end":
            self._no_end()

    def _no_end(self) -> NoReturn:
        tok = self.tok
        if tok.upper in self.verbs:
            self.fail(
                "FQ1008",
                f"a new statement begins at `{tok.text}` before the last one was closed",
                help=f"end the statement before `{tok.text}` with a semicolon",
                edit=behind(self.span_of(self.back(1)), ";"),
            )
        self.expected("the end of the statement", label="not expected here")

    def enter(self, levels: int = 1) -> None:
        """Called where a rule may contain itself, with `leave` after it, so that no text exhausts the stack."""
        self._depth += levels
        if self._depth > self.depth_max:
            self.fail("FQ1013", "this is nested too deeply", label=f"more than {self.depth_max} levels")

    def check_chain(self, length: int) -> None:
        """Called per operator of a row of them."""
        if length > CHAIN_MAX:
            self.fail("FQ1013", f"more than {CHAIN_MAX} operators in a row", help="group some of them in parentheses")

    def leave(self, levels: int = 1) -> None:
        self._depth -= levels

    # Spans.

    def span_since(self, start: Tok) -> Span:
        """From `start` to the token before the cursor."""
        last = self._tokens[self.pos - 1] if self.pos else start
        return self._positions.span(start.start, max(last.end, start.end))

    def span_between(self, first: Span, last: Span) -> Span:
        """From the start of `first` to the end of `last`, both spans of this text."""
        start, end = self._positions.offset(first), self._positions.offset(last) + last.length
        return self._positions.span(start, end)

    def span_of(self, tok: Tok) -> Span:
        return self._positions.span(tok.start, tok.end)

    def span_from(self, first: Tok, last: Tok) -> Span:
        """From the start of one token to the end of another."""
        return self._positions.span(first.start, last.end)

    def rest(self) -> Span:
        """From the next token to the end of the statement."""
        return self.span_from(self.tok, self.final())

    def text_since(self, start: Tok) -> str:
        """The source text from `start` to the token before the cursor, as written."""
        return self.source.text[start.start : self._tokens[max(self.pos - 1, 0)].end]

    def written(self, start: Tok) -> tuple[str, Span]:
        """The source text from `start` to the token before the cursor, and where it stands."""
        return self.text_since(start), self.span_since(start)

    # Complaining.

    def expected(
        self,
        what: str,
        *,
        label: str = "",
        help: str = "",
        words: Iterable[str] = (),
        edit: Edit | None = None,
    ) -> NoReturn:
        """Fail at the next token: `what` was expected. `words` are spellings it may have been meant to be."""
        tok = self.tok
        near = closest(tok.text, words) if tok.kind == "word" else []
        if near and near[0] != tok.upper:
            help = f"did you mean `{near[0]}`?"
            edit = Edit(self.span_of(tok), near[0])
        self.fail("FQ1001", f"expected {what}, found {tok.shown()}", label=label, help=help, edit=edit)

    def fail(
        self,
        code: str,
        title: str,
        *,
        at: Span | None = None,
        label: str = "",
        help: str = "",
        why: str = "",
        edit: Edit | None = None,
    ) -> NoReturn:
        """Fail with a mistake of the user, at the next token unless `at` is given."""
        span = at if at is not None else self.span_of(self.tok)
        raise ParseError(Diagnostic(code, title, span, label=label, help=help, why=why, edit=edit))

    def unsupported(self, what: str, *, at: Span | None = None, help: str = "", edit: Edit | None = None) -> NoReturn:
        """Fail with something that is understood and not built yet."""
        span = at if at is not None else self.span_of(self.tok)
        title = f"{what} is not supported yet"
        raise UnsupportedError(
            Diagnostic("FQ1901", title, span, label="not supported yet", help=help, unsupported=True, edit=edit)
        )

    def _no_word(self, word: str, help: str) -> NoReturn:
        edit = before(self.span_of(self.tok), f"{word} ") if self.tok.kind != "end" else None
        self.expected(f"`{word}`", help=help, words=(word,), edit=edit)

    def _not_a_name(self, what: str) -> NoReturn:
        tok = self.tok
        if tok.kind == "word":
            self.fail(
                "FQ1005",
                f"expected {what}, found the reserved word `{tok.text}`",
                label="reserved",
                help=f"quote it to use it as a name: `{tok.text}`",
            )
        hint = "a name is not written in single quotes; use back-ticks or none" if tok.kind == "string" else ""
        self.expected(what, help=hint)

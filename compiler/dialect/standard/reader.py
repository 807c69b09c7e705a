"""A position in the tokens of one statement of standard SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect.cursor import Cursor, Positions, Tok
from flowql.compiler.dialect.standard.mistaken import misspelt, mistaken, pasted
from flowql.compiler.dialect.standard.refuse import fail
from flowql.compiler.dialect.standard.tree import Expr, OrderItem, Query, WindowSpec
from flowql.compiler.dialect.standard.words import NOT_BARE_ALIASES, RESERVED, VERBS

_NO_STRING = "a name is not written in single quotes; use double quotes or none"
_BEHIND_QUERIES = ("UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "LIMIT", "OFFSET", "FETCH")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that need each other: expressions contain queries, and queries expressions."""

    expr: Callable[[Reader], Expr]
    value: Callable[[Reader], Expr]  # an expression without comparisons, IN and the like
    query: Callable[[Reader], Query]
    order_items: Callable[[Reader], tuple[OrderItem, ...]]
    window: Callable[[Reader], WindowSpec]


class Reader(Cursor):
    """Names fold to lower case, and more words are reserved than in ksqlDB."""

    depth_max = 75  # times `enter`, each for at most 8 Python frames of the 1,000 there are
    verbs = VERBS
    missing = "is  {}  missing?"

    def __init__(self, source: SourceText, tokens: Sequence[Tok], positions: Positions, rules: Rules) -> None:
        super().__init__(source, tokens, positions)
        self.rules = rules

    def at_function(self) -> bool:
        """Whether the token can name a function: LEFT and RIGHT name some, though no columns."""
        tok = self.tok
        return tok.kind == "quoted" or (tok.kind == "word" and tok.upper not in RESERVED)

    def at_bare_alias(self) -> bool:
        """Whether the token can name an item of a select list without AS."""
        tok = self.tok
        return tok.kind == "quoted" or (tok.kind == "word" and tok.upper not in NOT_BARE_ALIASES)

    def expected(
        self,
        what: str,
        *,
        label: str = "",
        help: str = "",
        words: Iterable[str] = (),
        edit: Edit | None = None,
    ) -> NoReturn:
        advice = pasted(self)
        if advice[0]:
            help, edit = advice
        super().expected(what, label=label, help=help, words=words, edit=edit)

    def expect_label(self, what: str) -> str:
        """A name behind AS or a dot, where every word may stand."""
        if self.tok.kind not in ("word", "quoted"):
            quoted = '"' + self.tok.text.replace('"', '""') + '"'
            edit = Edit(self.span_of(self.tok), quoted) if self.tok.kind == "string" else None
            self.expected(what, help=_NO_STRING if edit is not None else "", edit=edit)
        return self.next().name

    def expect_dotted(self, what: str) -> tuple[str, ...]:
        """`t` or `schema.t`."""
        parts = [self.expect_name(what)]
        while self.tok.op == ".":
            self.next()
            parts.append(self.expect_label(what))
        return tuple(parts)

    def at_query(self, ahead: int = 0) -> bool:
        """Whether a query begins here. Behind parentheses it does if nothing but a query can follow what they close:
        `((SELECT 1) UNION ...` is one, `((SELECT 1) + 1` is a value, and `((SELECT 1) x JOIN ...` a relation.
        """
        first = inner = self.pos + ahead
        while self.peek(inner - self.pos).op == "(":
            inner += 1
        if not self._at_query_word(inner - self.pos):
            return False
        for opener in range(inner - 1, first - 1, -1):
            closer = self._closers.get(opener)
            if closer is None:
                return True
            after = self._tokens[min(closer + 1, self._last)]
            if after.upper in _BEHIND_QUERIES:
                return True
            if after.kind != "end" and after.text != ")":
                return False
        return True

    def at_emit(self) -> bool:
        """Whether EMIT CHANGES, EMIT FINAL or EMIT ON WINDOW CLOSE is next."""
        return self.tok.upper == "EMIT" and (
            self.after.upper in ("CHANGES", "FINAL") or self.at_words("ON", "WINDOW", "CLOSE", ahead=1)
        )

    def at_clause(self) -> bool:
        """Whether an unreserved word here begins a clause and is no alias."""
        return (
            self.at_words("PARTITION", "BY")
            or self.at_emit()
            or self.at_within()
            or self.at_minus()
            or self.at_qualify()
        )

    def at_within(self) -> bool:
        """WITHIN of a join: a duration follows, or two in parentheses."""
        return self.tok.upper == "WITHIN" and (self.after.kind == "number" or self.after.op == "(")

    def at_minus(self) -> bool:
        """MINUS of other dialects in the place of EXCEPT."""
        return self.tok.upper == "MINUS" and (self.at_query(1) or self.after.upper in ("ALL", "DISTINCT"))

    def at_qualify(self) -> bool:
        """QUALIFY and a condition behind it."""
        after = self.after
        return self.tok.upper == "QUALIFY" and after.kind != "end" and (after.kind != "op" or after.text == "(")

    def has_inside(self, *words: str) -> bool:
        """Whether one of the words stands between the parenthesis behind the next token and the one that closes it, in no others."""
        i = self.pos + 1
        last = self._closers.get(i, self._last)
        while (i := i + 1) < last:
            tok = self._tokens[i]
            if tok.upper in words:
                return True
            if tok.op == "(":
                i = self._closers.get(i, last)
        return False

    def _at_query_word(self, ahead: int) -> bool:
        if self.peek(ahead).upper == "VALUES":
            return self.peek(ahead + 1).op == "("
        if self.peek(ahead).upper == "TABLE":
            return self.peek(ahead + 1).op != "("
        return self.peek(ahead).upper in ("SELECT", "WITH")

    @cached_property
    def _closers(self) -> dict[int, int]:
        """Where each parenthesis is closed."""
        opened: list[int] = []
        found: dict[int, int] = {}
        for i, tok in enumerate(self._tokens):
            if tok.op == "(":
                opened.append(i)
            elif tok.op == ")" and opened:
                found[opened.pop()] = i
        return found

    def _no_word(self, word: str, help: str) -> NoReturn:
        """A word in its place that was read as an alias is taken for a misspelt one."""
        last = self.back(1)
        if misspelt(last, (word,)):
            edit = Edit(self.span_of(last), word)
            self.expected(f"`{word}`", help=f"did you mean `{word}` by `{last.text}`?", edit=edit)
        super()._no_word(word, help)

    def _no_end(self) -> NoReturn:
        help, edit = mistaken(self)
        if edit is not None:
            self.expected("the end of the statement", label="not expected here", help=help, edit=edit)
        super()._no_end()

    def _not_a_name(self, what: str) -> NoReturn:
        tok = self.tok
        if tok.kind == "word":
            self.fail(
                "FQ1005",
                f"expected {what}, found the reserved word `{tok.text}`",
                label="reserved",
                help=f'quote it to use it as a name: "{tok.text.lower()}"',
                edit=Edit(self.span_of(tok), f'"{tok.text.lower()}"'),
            )
        hint = _NO_STRING if tok.kind == "string" else ""
        self.expected(what, help=hint)


# --- names of relations with a schema in front ---


def plain_name(parts: Sequence[str], at: Span) -> str:
    """The name of a relation. There is one schema, `public`. at: where it stands."""
    if len(parts) > 1 and tuple(parts[:-1]) != ("public",):
        title = f"there is no schema {'.'.join(parts[:-1])}"
        help = f"write  {parts[-1]}: there are no schemas but public"
        fail("FQ2001", title, at, label="unknown schema", help=help)
    return parts[-1]


def expect_relation(cur: Reader, what: str) -> tuple[str, Span]:
    """The name that stands next, and where. what: is named, for the message."""
    start = cur.tok
    parts = cur.expect_dotted(what)
    span = cur.span_since(start)
    return plain_name(parts, span), span

"""A file of another dialect, statement by statement."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokens import TokenType

from flowql.compiler.dialect.foreign.dialects import dialect_of
from flowql.compiler.dialect.foreign.untranslated import Node, Problem, Untranslated

_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_PLAIN = "it is not a SELECT, an INSERT, or a CREATE of a table, a source, a sink or a view that can be read"
STATEMENT_CHARS_MAX = 2**20


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement. start, end: offsets in the text. closes: EMIT ON WINDOW CLOSE stands behind it. appends: APPEND ONLY does."""

    tokens: Sequence[Any]
    start: int
    end: int
    closes: bool = False
    appends: bool = False


def pieces(text: str, dialect: str) -> tuple[list[Piece], Problem | None]:
    """The statements of a text, and why it could not be read to its end."""
    try:
        tokens = dialect_of(dialect).tokenize(text)
    except SqlglotError as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        return [], Problem(
            "the file", f"it cannot be read: {cause}", "close its strings and comments", 0, min(1, len(text))
        )
    found: list[Piece] = []
    current: list[Any] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            current.append(token)
        elif current:
            found.append(_piece(current, dialect))
            current = []
    return found, None


def _piece(tokens: list[Any], dialect: str) -> Piece:
    start, end = tokens[0].start, tokens[-1].end + 1
    words = [t.text.upper() for t in tokens]
    closes = dialect == "risingwave" and words[-4:] == ["EMIT", "ON", "WINDOW", "CLOSE"]
    appends = dialect == "risingwave" and words[-2:] == ["APPEND", "ONLY"]
    tokens = tokens[: -4 if closes else -2 if appends else None]
    if dialect == "flink":
        tokens = _without_descriptors(tokens)
    if dialect == "materialize":
        tokens = _without_cluster(tokens)
    return Piece(tokens, start, end, closes, appends)


def _without_descriptors(tokens: list[Any]) -> list[Any]:
    """`TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), i))` as `TUMBLE(t, ts, i)`, which means the same."""
    made: list[Any] = []
    closing: list[bool] = []  # for each open parenthesis: whether it goes with its closing one
    for i, token in enumerate(tokens):
        word = token.text.upper()
        before = tokens[i - 1].text.upper() if i else ""
        following = [t.text.upper() for t in tokens[i + 1 : i + 4]]
        left_out = (word == "TABLE" and before == "(" and i > 1 and tokens[i - 2].text.upper() in _WINDOWS) or (
            (word == "DESCRIPTOR" and following[:1] == ["("])
            or (word == "TABLE" and following[:1] == ["("] and following[1] in _WINDOWS)
        )
        if word == "(":
            closing.append(before == "DESCRIPTOR" or (before == "TABLE" and following[0] in _WINDOWS))
            left_out = closing[-1]
        elif word == ")" and closing:
            left_out = closing.pop()
        if not left_out:
            made.append(token)
    return made


def _without_cluster(tokens: list[Any]) -> list[Any]:
    """Without IN CLUSTER name, which says where a view is computed."""
    for i in range(len(tokens) - 2):
        if tokens[i].text.upper() == "IN" and tokens[i + 1].text.upper() == "CLUSTER":
            return [*tokens[:i], *tokens[i + 3 :]]
    return tokens


def parsed(piece: Piece, text: str, dialect: str) -> Node:
    """The tree of a statement. Raises Untranslated where it cannot be read."""
    verb = " ".join(t.text.upper() for t in piece.tokens[:2])
    if piece.end - piece.start > STATEMENT_CHARS_MAX:
        raise Untranslated(
            Problem(f"`{verb}`", "the statement is longer than 1 MiB", "split it", piece.start, piece.start + 1)
        )
    try:
        with _quiet():
            trees = dialect_of(dialect).parser(error_level=ErrorLevel.RAISE).parse(list(piece.tokens), text)
    except ParseError as error:
        raise Untranslated(_unreadable(piece, text, error)) from None
    except (SqlglotError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Untranslated(Problem(f"`{verb}`", why, "split it", piece.start, piece.start + 1)) from None
    if len(trees) != 1 or trees[0] is None or not isinstance(trees[0], exp.Query | exp.Insert | exp.Create):
        first = piece.tokens[0]
        raise Untranslated(
            Problem(f"`{verb}`", _PLAIN, "write it in FlowQL: docs/reference/statements.md", piece.start, first.end + 1)
        )
    return trees[0]


def _unreadable(piece: Piece, text: str, error: ParseError) -> Problem:
    found = error.errors[0] if error.errors else {}
    why = re.sub(r"\s+", " ", str(found.get("description") or "it cannot be read")).strip(" .")
    line, column = found.get("line"), found.get("col")
    start = piece.start
    if line and column:
        begins = [0, *(m.end() for m in re.finditer("\n", text))]
        start = min(
            max(begins[min(line, len(begins)) - 1] + column - len(str(found.get("highlight") or " ")), piece.start),
            piece.end - 1,
        )
    construct = f"`{found['highlight']}`" if found.get("highlight") else "the statement"
    return Problem(
        construct, f"it cannot be read: {why}", "", start, start + max(1, len(str(found.get("highlight") or " ")))
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Sqlglot logs a warning for each statement that it does not read; it is listed instead."""
    logger = logging.getLogger("sqlglot")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before

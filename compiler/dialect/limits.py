"""How large a statement may be. The compiler runs on the interpreter that all queries of an instance share (rule R18)."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.diagnostics.diagnostic import Diagnostic, ParseError
from flowql.compiler.dialect.cursor import Positions, Tok

TOKENS_MAX = 10_000  # of a statement other than rows to insert; compiling takes 0.1 ms for each
ROW_STATEMENTS = ("INSERT", "VALUES", "DEFINE", "UNDEFINE")


def check_tokens(body: Sequence[Tok], positions: Positions) -> None:
    """Raises ParseError for a statement of too many words and signs. body: its tokens, with the `end` token."""
    count = len(body) - 1
    if count <= TOKENS_MAX or _lists_rows(body):
        return
    raise ParseError(
        Diagnostic(
            "FQ2065",
            f"the statement has {count:,} words and signs, and at most {TOKENS_MAX:,} are allowed",
            positions.span(body[0].start, body[0].end),
            label="begins here",
            why="all queries of an instance would wait while it is compiled",
            help="split it into several views, or insert the values into a table and join it",
        )
    )


def _lists_rows(body: Sequence[Tok]) -> bool:
    return body[0].upper in ROW_STATEMENTS and any(t.upper == "VALUES" for t in body)

"""How large a text may be that a running instance compiles, counted before it is read (rule R18).

Reading a text into tokens takes microseconds for each, and a megabyte has half a million of them. Counting stops at the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from flowql.compiler.diagnostics.diagnostic import Diagnostic, ParseError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect import limits
from flowql.compiler.dialect.cursor import Positions
from flowql.compiler.dialect.limits import ROW_STATEMENTS
from flowql.compiler.dialect.standard.tokens import TOKEN as STANDARD
from flowql.compiler.dialect.standard.tokens import comment_end

ROW_SHARE = 6  # of rows of INSERT so many words and signs take as long as one of other statements
_KSQL = re.compile(
    r"""(?P<space>\s+|--[^\n]*)|(?P<comment>/\*)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|[\w.]+|->|=>|:=|<>|!=|<=|>=|\|\||.""",
    re.DOTALL,
)


def check_request(source: SourceText, *, standard: bool) -> None:
    """Raises ParseError for a text of too many words and signs; those of its statements are counted together."""
    text = source.text
    if len(text) <= limits.TOKENS_MAX:  # each has a character
        return
    pieces, end_of = (STANDARD, comment_end) if standard else (_KSQL, _comment_end)
    if _exceeds(text, pieces, end_of):
        most = limits.TOKENS_MAX
        raise ParseError(
            Diagnostic(
                "FQ2065",
                f"the text has more than {most:,} words and signs, or {ROW_SHARE * most:,} in rows of INSERT",
                Positions(source).span(0, 1),
                label="begins here",
                why="all queries of an instance would wait while it is compiled",
                help="send fewer statements or rows at once",
            )
        )


def _exceeds(text: str, pieces: re.Pattern[str], end_of: Callable[[str, int], int]) -> bool:
    most = ROW_SHARE * limits.TOKENS_MAX
    at = count = 0
    price = 0  # of a word of this statement; 0: it has none yet
    while at < len(text) and count <= most:
        match = pieces.match(text, at)
        assert match is not None, "the pattern takes any character"
        at = match.end()
        if match.lastgroup == "comment":
            at = end_of(text, at)
            if at < 0:
                break
        elif match.lastgroup != "space":
            price = price or (1 if match[0].upper() in ROW_STATEMENTS else ROW_SHARE)
            count += price
            price = 0 if match[0] == ";" else price
    return count > most


def _comment_end(text: str, at: int) -> int:
    """Comments of ksqlDB do not nest."""
    found = text.find("*/", at)
    return found if found < 0 else found + 2

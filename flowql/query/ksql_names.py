"""Where DuckDB reads ksqlDB's dialect otherwise: columns with names that it keeps for itself, as in `SELECT AT FROM orders`, and LIKE."""

from __future__ import annotations

import re
from dataclasses import replace

from flowql.query.statement import Statement


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words of DuckDB that cannot be a column without quotes and that the dialect takes as one; a test computes them.
WORDS = _words("""
    analyse analyze anti any array asc asof asymmetric at authorization binary both check collate collation column concurrently
    constraint cross deferrable desc do except fetch for foreign freeze glob ilike initially intersect isnull lambda
    lateral leading natural notnull offset only order overlaps pivot pivot_longer pivot_wider placing positional primary qualify
    references returning semi show similar some summarize symmetric table tablesample to trailing unique unpack unpivot using
    variadic verbose
""")
# An unclosed string or comment reaches to the end of the text: the time is linear in its length.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z)|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z))
    |(?P<word>[^\W\d]\w*)|(?P<other>.)""",
    re.S | re.X,
)
# After these an expression begins, so that a word there is a name.
_BEFORE = _words("select distinct where by and or not on having when then else case between like as all over")
_OPERATORS = frozenset("(,=<>+-*/%|&^~![{.:")
_CALLS = frozenset("([{")


def with_words_in_quotes(sql: str) -> str:
    """The statement with these words in quotes where an expression begins with one."""
    tokens = [m for m in _TOKEN.finditer(sql) if m["skip"] is None]
    found = list[str]()
    at, before = 0, ""
    for i, token in enumerate(tokens):
        after = tokens[i + 1][0].casefold() if i + 1 < len(tokens) else ""
        word = token["word"]
        is_name = word is not None and word.casefold() in WORDS and _begins_expression(before) and after not in _CALLS
        found += [sql[at : token.start()], f'"{word}"' if is_name else token[0]]
        at, before = token.end(), "" if token["text"] is not None else f'"{word}"' if is_name else token[0].casefold()
    return "".join([*found, sql[at:]])


def _begins_expression(before: str) -> bool:
    return before in _BEFORE or before in _OPERATORS


def with_escapes(statement: Statement) -> Statement:
    """A backslash escapes in patterns of LIKE, where DuckDB has no escape character without ESCAPE."""
    text, parts, at = statement.sql.encode(), list[bytes](), 0
    for end in statement.likes:
        parts += [text[at:end], rb" ESCAPE '\'"]
        at = end
    return replace(statement, sql=b"".join([*parts, text[at:]]).decode(), likes=())

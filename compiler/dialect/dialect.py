"""The sqlglot dialect `flowql`: how text becomes tokens.

Only the tokenizer is a diff on sqlglot's base. The grammar above it is our own (`expressions`, `queries`, `statements`):
ksqlDB's statements, windows, lambdas and struct access have no place in sqlglot's parser, and its expression nodes
keep no position for operators and calls, which every error message here needs.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokens import Tokenizer as BaseTokenizer
from sqlglot.tokens import TokenType


class FlowQL(Dialect):
    """Registered under the name `flowql`."""

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

r"""Patterns of standard SQL: ILIKE, SIMILAR TO and POSIX regular expressions (`~`), as Python's.

What PostgreSQL reads otherwise than Python is translated (`[[:alpha:]]`, `$` at the end only, a point that is also a line break) or an error
(`\y`, `\m`, back references, look-behind).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from flowql.compiler.functions.patterns.like import ilike
from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import BOOLEAN, STRING, array

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s", "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "cntrl": r"\x00-\x1f\x7f", "print": r"\x20-\x7e", "graph": r"\x21-\x7e", "word": r"\w",
}  # fmt: skip
_ESCAPES = frozenset("dDsSwWtnrfv")  # one meaning in both; other letters and digits have another one or none
_SIMILAR = {"%": ".*", "_": "."}


@lru_cache(maxsize=256)
def posix(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """A POSIX regular expression as Python's. Raises ValueError for what it cannot say."""
    return _compiled("".join(_posix_parts(pattern)), pattern, ignore_case=ignore_case)


def _compiled(text: str, pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    try:
        return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    except (re.error, OverflowError, RecursionError) as e:
        raise ValueError(f"invalid regular expression {pattern!r}: {e}") from None


def _posix_parts(pattern: str) -> list[str]:
    out, at = [], 0
    while at < len(pattern):
        c = pattern[at]
        if c == "\\":
            out.append(_escape(pattern, at))
            at += 2
        elif c == "[":
            part, at = _bracket(pattern, at)
            out.append(part)
        elif c == "(" and pattern[at + 1 : at + 2] == "?":
            if pattern[at + 2 : at + 3] not in (":", "=", "!"):
                raise ValueError(
                    f"invalid regular expression {pattern!r}: (?{pattern[at + 2 : at + 3]} is not supported"
                )
            out.append(pattern[at : at + 3])
            at += 3
        else:
            out.append(r"\Z" if c == "$" else r"\A" if c == "^" else c)
            at += 1
    return out


def _escape(pattern: str, at: int) -> str:
    c = pattern[at + 1 : at + 2]
    if c == "" or (c.isalnum() and c not in _ESCAPES):
        shown = f"\\{c}" if c else "the escape at its end"
        raise ValueError(f"invalid regular expression {pattern!r}: {shown} is not supported")
    return f"\\{c}"


def _bracket(pattern: str, start: int) -> tuple[str, int]:
    """A bracket expression and where it ends."""
    at = start + 1
    out = ["["]
    if pattern[at : at + 1] == "^":
        out.append("^")
        at += 1
    first = True
    while at < len(pattern) and (first or pattern[at] != "]"):
        c = pattern[at]
        if c == "[" and pattern[at + 1 : at + 2] in (":", ".", "="):
            end = pattern.find(":]", at + 2)
            name = pattern[at + 2 : end] if end >= 0 else ""
            if pattern[at + 1] != ":" or name not in _CLASSES:
                raise ValueError(f"invalid regular expression {pattern!r}: invalid character class")
            out.append(_CLASSES[name])
            at = end + 2
        elif c == "\\":
            out.append(_escape(pattern, at))
            at += 2
        else:
            out.append(f"\\{c}" if c in "[]&~|^" else c)
            at += 1
        first = False
    if at >= len(pattern):
        raise ValueError(f"invalid regular expression {pattern!r}: brackets [] not balanced")
    return "".join(out) + "]", at + 1


@lru_cache(maxsize=256)
def similar(pattern: str, escape: str = "\\") -> re.Pattern[str]:
    """A pattern of SIMILAR TO: % and _ as in LIKE; | * + ? {m,n} () and [] as in regular expressions. Raises ValueError."""
    if len(escape) > 1:
        raise ValueError(f"invalid escape string {escape!r}: it must be empty or one character")
    out, at = [], 0
    while at < len(pattern):
        c = pattern[at]
        if escape and c == escape:
            if at + 1 == len(pattern):
                raise ValueError(f"the pattern {pattern!r} ends with its escape character")
            out.append(re.escape(pattern[at + 1]))
            at += 2
        elif c == "[":
            part, at = _bracket(pattern, at)
            out.append(part)
        else:
            out.append(_SIMILAR.get(c, c if c in "|*+?{}()," or c.isalnum() else re.escape(c)))
            at += 1
    return _compiled("".join(out), pattern)


def matches(s: str, pattern: str, flags: str = "") -> bool:
    """Whether a text contains what the expression describes; flags: i ignores case."""
    return posix(pattern, ignore_case=ignores_case(flags, "i")).search(s) is not None


def ignores_case(flags: str, known: str) -> bool:
    unknown = [f for f in flags if f not in known]
    if unknown:
        raise ValueError(f'invalid regular expression option: "{unknown[0]}"')
    return "i" in flags


def replaced(s: str, pattern: str, replacement: str, flags: str = "") -> str:
    r"""The first match replaced, all with the flag g; \1 is a group and \& the match."""
    found = posix(pattern, ignore_case=ignores_case(flags, "gi"))
    parts = re.split(r"\\(\\|&|[1-9])", replacement)

    def text(m: re.Match[str]) -> str:
        return "".join(p if i % 2 == 0 else _part(m, p) for i, p in enumerate(parts))

    return found.sub(text, s, count=0 if "g" in flags else 1)


def _part(m: re.Match[str], name: str) -> str:
    if name == "\\":
        return name
    n = 0 if name == "&" else int(name)
    return (m.group(n) or "") if n <= m.re.groups else ""


def _test(name: str, by: Callable[..., bool], summary: str, example: str, *, most: int = 2) -> None:
    overloads = [takes(*(STRING,) * n, gives=BOOLEAN) for n in range(2, most + 1)]
    standard(name, *overloads, by=by, summary=summary, example=example)


_test(
    "ILIKE",
    ilike,
    "Whether a text matches a pattern with % and _, whatever the case.",
    "sql_ilike('Flow', 'f%W') -> True",
    most=3,
)
_test(
    "SIMILAR",
    lambda s, pattern, escape="\\": similar(pattern, escape).fullmatch(s) is not None,
    "Whether a text matches a pattern with % and _ and the signs of regular expressions.",
    "sql_similar('flow', '(x|f)%') -> True",
    most=3,
)
_test(
    "REGEXP_LIKE",
    matches,
    "Whether a text contains what a POSIX regular expression describes; with the flag i whatever the case. Also `x ~ y`, `x ~* y`, `x !~ y`.",
    "sql_regexp_like('flow', '^f.*w$') -> True",
    most=3,
)


def first_match(s: str, pattern: str, flags: str = "") -> list[str | None] | None:
    """The groups of the first match, or all of it where the expression has none; NULL when there is none."""
    found = posix(pattern, ignore_case=ignores_case(flags, "i")).search(s)
    if found is None:
        return None
    return list(found.groups()) or [found[0]]


standard(
    "REGEXP_MATCH",
    takes(STRING, STRING, gives=array(STRING)),
    takes(STRING, STRING, STRING, gives=array(STRING)),
    by=first_match,
    summary="The groups of the first match of a POSIX regular expression, or the match if it has none; NULL when there is none.",
    example="sql_regexp_match('a=1&b=22', '(b)=([0-9]+)') -> ['b', '22']",
)
standard(
    "REGEXP_REPLACE",
    takes(STRING, STRING, STRING, gives=STRING),
    takes(STRING, STRING, STRING, STRING, gives=STRING),
    by=replaced,
    summary="The text with the first match of a POSIX regular expression replaced, or with the flag g all; \\1 is a group.",
    example="sql_regexp_replace('banana', 'a(.)', '<', 'g') -> 'b<<a'",
)

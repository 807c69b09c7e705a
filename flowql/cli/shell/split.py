"""Cuts the typed text into statements. Quotes and comments may hold semicolons."""

from __future__ import annotations

import re

# Strings and comments, passed over as a whole; one that is not closed goes to the end.
_OPAQUE = re.compile(
    r"'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|`[^`]*(?:`|\Z)|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)", re.DOTALL
)
_COMMENT = re.compile(r"\s*(?:--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)|\s+)*", re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    r"""The statements that are whole, without their semicolons, and what follows the last of them.

    A line that begins with a backslash is a command of the shell, and ends with the line.

    >>> split("SELECT ';' AS a; \\d T\nSELECT 2")
    (["SELECT ';' AS a", '\\d T'], 'SELECT 2')
    """
    found: list[str] = []
    start = position = 0
    while position < len(text):
        if text[start:position].strip() == "" and text[position] == "\\":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            found.append(text[position:end].strip().rstrip(";").rstrip())
            start = position = end
            continue
        opaque = _OPAQUE.match(text, position)
        if opaque is not None:
            position = opaque.end()
        elif text[position] == ";":
            found.append(text[start:position])
            start = position = position + 1
        else:
            position += 1
    whole = [s.strip("\n") for s in found if not is_blank(s)]
    rest = text[start:].lstrip()
    return whole, "" if is_blank(rest) else rest


def is_blank(text: str) -> bool:
    """Nothing but space and comments."""
    match = _COMMENT.match(text)
    return match is not None and match.end() == len(text)


def without_comments(text: str) -> str:
    """The text from its first word on."""
    match = _COMMENT.match(text)
    return text[match.end() :] if match is not None else text


def blanked(text: str) -> str:
    """The text with what is quoted or commented out left blank."""
    return _OPAQUE.sub(lambda m: " " * len(m.group()), text)

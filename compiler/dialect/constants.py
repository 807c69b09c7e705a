"""The constants of a statement of standard SQL, read without its grammar: texts that differ in nothing else have one form."""

from __future__ import annotations

import re
from dataclasses import dataclass

_INT_MAX, _BIGINT_MAX = (1 << 31) - 1, (1 << 63) - 1
# A constant, a name in quotes, or what is not read here: comments, other strings, parameters.
_TOKEN = re.compile(
    r"""(?<!\w)'(?P<string>(?:[^']|'')*)' | "(?:[^"]|"")*" | `[^`]*` | (?P<number>(?<![\w.])\d[\w.]*) | (?P<other>'|--|/\*|\$|\0|\.\d|["`])""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a text. written: without quotes and sign. start: its offset in the text. width: of all of its characters."""

    written: str
    is_string: bool
    start: int
    width: int


def constants_apart(text: str) -> tuple[str, list[Constant]] | None:
    r"""The text with a mark for each constant, and the constants. None for a text that is not read here. Marks: `\0s` is a string, `\0i` a whole
    number of 32 bits, `\0l` one of 64 bits, and `\0d` one with a point.

    >>> constants_apart("VALUES (1, -2.50, 'it''s')")[0]
    'VALUES (\x00i, -\x00d, \x00s)'
    """
    if "\0" in text:
        return None
    parts, constants, end = list[str](), list[Constant](), 0
    for found in _TOKEN.finditer(text):
        if found["other"] is not None:
            return None
        string, number = found["string"], found["number"]
        if string is not None:
            mark, written = "\0s", string.replace("''", "'")
        elif number is not None:
            made = _mark(number)
            if made is None:
                return None
            mark, written = made, number
        else:
            continue
        constants.append(Constant(written, string is not None, found.start(), found.end() - found.start()))
        parts += (text[end : found.start()], mark)
        end = found.end()
    return "".join(parts) + text[end:], constants


def _mark(number: str) -> str | None:
    found = _NUMBER.fullmatch(number)
    if found is None:
        return None
    if found[1] is not None:
        return "\0d"
    value = int(number) if len(number) < 20 else _BIGINT_MAX + 1
    return None if value > _BIGINT_MAX else "\0i" if value <= _INT_MAX else "\0l"

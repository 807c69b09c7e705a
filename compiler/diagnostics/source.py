"""Where a piece of text came from: a file and a range of characters in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceText:
    """One file (or inline text) given to the compiler.

    `line_offset` and `column_offset` shift positions of a text that is embedded in another file,
    such as a SQL block scalar inside YAML, so that spans point into the outer file.
    """

    path: str
    text: str
    line_offset: int = 0
    column_offset: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A range in a source: 1-based line and column of the first character, and the length in characters.

    `line_text` is the whole source line, kept so that an error can be rendered without the file.
    """

    path: str
    line: int
    column: int
    length: int = 1
    line_text: str = ""


NOWHERE = Span(path="", line=0, column=0, length=0)

"""Where the characters of a text that was taken out of a file stand in that file.

A YAML scalar loses its indentation, quotes and escapes, and `${...}` is replaced, before the compiler sees it. Each such text
gets a source path of its own (`flowql.yaml#3`) and remembers the place of every character; `place` turns spans back.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText, Span


@dataclass(frozen=True, slots=True)
class Taken:
    """A text and, for each of its characters, the offset in the file it came from."""

    text: str
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Origin:
    path: str
    taken: Taken
    starts: tuple[int, ...]  # of the lines of `taken`


class ProjectTexts:
    """The files of a project as they are, and the texts taken out of them."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[list[str], list[int]]] = {}
        self._origins: dict[str, _Origin] = {}

    def add_file(self, path: str, text: str) -> None:
        lines = text.split("\n")
        self._files[path] = (lines, line_starts(text))

    def source(self, path: str, taken: Taken) -> SourceText:
        """The text as the compiler is given it."""
        name = f"{path}#{len(self._origins) + 1}"
        self._origins[name] = _Origin(path, taken, tuple(line_starts(taken.text)))
        return SourceText(name, taken.text)

    def span(self, path: str, start: int, end: int) -> Span:
        """The characters [start, end) of a file; on its first line only when there are several."""
        lines, starts = self._files[path]
        row = bisect_right(starts, start) - 1
        line = lines[row].rstrip("\r")
        column = start - starts[row]
        length = max(1, min(end - start, len(line) - column))
        return Span(path, row + 1, column + 1, length, line)

    def place(self, span: Span) -> Span:
        """The span in its file; one that is in a file already stays."""
        origin = self._origins.get(span.path)
        if origin is None:
            return span
        offsets = origin.taken.offsets
        if not offsets:
            return self.span(origin.path, 0, 1)
        start = origin.starts[min(span.line, len(origin.starts)) - 1] + span.column - 1
        first = offsets[min(start, len(offsets) - 1)]
        last = offsets[min(start + span.length - 1, len(offsets) - 1)]
        if start >= len(offsets):  # behind the end, as for something that is missing there
            first = last = offsets[-1] + 1
        return self.span(origin.path, first, last + 1)

    def placed(self, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
        return tuple(replace(d, span=self.place(d.span)) for d in diagnostics)


def line_starts(text: str) -> list[int]:
    """Offset of the first character of each line."""
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def take_scalar(text: str, value: str, style: str | None, start: int) -> Taken:
    """Place the characters of a YAML scalar. text: of the file; start: offset of the scalar; style: as yaml.ScalarNode's.

    Walks the value and the file side by side. Blanks may be more in the file (indentation, folding), an escape is longer.
    """
    at = start
    if style in ("|", ">"):
        at = text.find("\n", start) + 1 or len(text)
    elif style in ("'", '"'):
        at += 1
    offsets: list[int] = []
    for i, char in enumerate(value):
        if char in " \n\t" and not (style == '"' and text[at : at + 1] == "\\"):
            offsets.append(min(at, len(text) - 1))
            at += text[at : at + 1] == char
            continue
        while at < len(text) and (text[at] in " \t\r\n" or (style == '"' and text[at : at + 2] == "\\\n")):
            at += 1
        offsets.append(min(at, len(text) - 1))
        width = _width(text, at, style)
        if width == 1 and text[at : at + 1] != char:  # not understood: the rest is placed here
            offsets.extend([offsets[-1]] * (len(value) - i - 1))
            break
        at += width
    return Taken(value, offsets)


def _width(text: str, at: int, style: str | None) -> int:
    """How many characters of the file one character of the value takes."""
    if style == "'" and text[at : at + 2] == "''":
        return 2
    if style == '"' and text[at : at + 1] == "\\":
        return {"x": 4, "u": 6, "U": 10}.get(text[at + 1 : at + 2], 2)
    return 1


# --- `${NAME}` and `${NAME:-default}` in project files ---

_REFERENCE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Variables:
    """Values of variables: `--var` beats `vars` of the file, which beat the environment. Names ignore case, but for the environment's."""

    def __init__(self, given: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._given = {k.upper(): v for k, v in given.items()}
        self._file: dict[str, str] = {}
        self._environment = environment

    def define(self, name: str, value: str) -> None:
        """Add one of the file's own."""
        self._file[name.upper()] = value

    def get(self, name: str) -> str | None:
        for known in (self._given, self._file):
            if name.upper() in known:
                return known[name.upper()]
        return self._environment.get(name)

    def names(self) -> list[str]:
        return [*self._given, *self._file]

    def for_sql(self, text: str) -> dict[str, str]:
        """The variables that the SQL parser needs for this text, without names that the text defines itself (DEFINE)."""
        named = {m[1]: self.get(m[1]) for m in _REFERENCE.finditer(text)}
        values = {n: v for n in self.names() if (v := self.get(n)) is not None}
        return values | {n.upper(): v for n, v in named.items() if v is not None}

    def expand(self, taken: Taken, *, defaults_only: bool = False) -> tuple[Taken, list[tuple[str, int, int]]]:
        """The text with values in place of references, and the undefined ones as (name, start, end) offsets in the file.

        defaults_only: leave `${NAME}` to the SQL parser, which knows DEFINE.
        """
        if "${" not in taken.text:
            return taken, []
        parts: list[str] = []
        offsets: list[int] = []
        undefined: list[tuple[str, int, int]] = []
        at = 0
        for m in _REFERENCE.finditer(taken.text):
            if defaults_only and m[2] is None:
                continue
            parts.append(taken.text[at : m.start()])
            offsets.extend(taken.offsets[at : m.start()])
            value = self.get(m[1])
            if value is None:
                value = m[2]
            if value is None:
                undefined.append((m[1], taken.offsets[m.start()], taken.offsets[m.end() - 1] + 1))
                value = ""
            parts.append(value)
            offsets.extend([taken.offsets[m.start()]] * len(value))
            at = m.end()
        parts.append(taken.text[at:])
        offsets.extend(taken.offsets[at:])
        return Taken("".join(parts), offsets), undefined

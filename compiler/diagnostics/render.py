"""Diagnostics as text for a terminal. Pure: needs neither the files nor a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from flowql.compiler.diagnostics.diagnostic import Diagnostic

_RESET = "\x1b[0m"
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "hint": "\x1b[1;36m", "frame": "\x1b[34m", "key": "\x1b[1m"}
_HINTS_SHOWN = 3  # of one code in full; a project of many joins gives the same hint for each


def render(diagnostics: Iterable[Diagnostic], *, color: bool = False) -> str:
    """One block per diagnostic, separated by blank lines, without a trailing newline. Many hints of one code share a line at the end.

    error[FQ1001]: expected `FROM`, found `FORM`
      --> orders.sql:3:15
     3 | SELECT amount FORM orders;
       |               ^^^^ a clause starts here
    help: did you mean `FROM`?        more: flowql explain FQ1001
    """
    blocks, hints = [], Counter[str]()
    more: dict[str, list[Diagnostic]] = {}
    for d in diagnostics:
        hints[d.code] += d.severity == "hint"
        if hints[d.code] > _HINTS_SHOWN:
            more.setdefault(d.code, []).append(d)
        else:
            blocks.append(_block(d, color=color))
    return "\n\n".join([*blocks, *(_places(ds) for ds in more.values())])


def _places(hints: Sequence[Diagnostic]) -> str:
    """Where else a hint applies that was shown in full before."""
    places = ", ".join(f"{d.span.path or '<text>'}:{d.span.line}" for d in hints)
    return f"hint[{hints[0].code}]: {len(hints)} more: {places}"


def _block(d: Diagnostic, *, color: bool) -> str:
    def paint(style: str, text: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if color else text

    lines = [paint(d.severity, f"{d.severity}[{d.code}]") + f": {d.title}"]
    span = d.span
    if span.path or span.line:
        lines.append(paint("frame", "  --> ") + f"{span.path or '<text>'}:{span.line}:{span.column}")
    if span.line_text.strip():
        number = str(span.line)
        lines.append(paint("frame", f" {number} | ") + span.line_text)
        marks = paint(d.severity, "^" * _width(d)) + (f" {d.label}" if d.label else "")
        lines.append(paint("frame", f" {' ' * len(number)} | ") + _indent(d) + marks)
    elif d.label:
        lines.append(f"      {d.label}")
    if d.why:
        lines.append(paint("key", "why:  ") + _continued(d.why))
    more = paint("key", "more: ") + f"flowql explain {d.code}"
    lines.append(paint("key", "help: ") + _continued(d.help) + "        " + more if d.help else more)
    return "\n".join(lines)


def _indent(d: Diagnostic) -> str:
    """Blanks up to the span; tabs stay tabs so that the caret stands under its character."""
    before = d.span.line_text[: d.span.column - 1]
    return "".join("\t" if c == "\t" else " " for c in before).ljust(d.span.column - 1)


def _width(d: Diagnostic) -> int:
    """Carets on the first line only, however long the span is."""
    rest = len(d.span.line_text.rstrip()) - (d.span.column - 1)
    return max(1, min(d.span.length, rest))


def _continued(text: str) -> str:
    return text.replace("\n", "\n      ")

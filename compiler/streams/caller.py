"""The span of the call in a module of a project that FlowQL is in."""

from __future__ import annotations

import linecache
import sys
from itertools import islice
from pathlib import Path
from types import FrameType

from flowql.compiler.diagnostics.source import NOWHERE, Span

_OWN = "flowql."


def here() -> Span:
    """The span that the nearest frame outside FlowQL is evaluating: the last method of a chain; NOWHERE outside a file."""
    frame: FrameType | None = sys._getframe(1)
    called = ""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_OWN):
        called, frame = frame.f_code.co_name, frame.f_back
    return NOWHERE if frame is None else _span(frame, called)


def _span(frame: FrameType, called: str) -> Span:
    path, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, line).rstrip("\n")
    if not text:
        return NOWHERE
    first, last, start, end = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    if first != line or start is None or end is None:
        start = len(text) - len(text.lstrip())
        last = None
    begin = len(text.encode()[:start].decode(errors="replace"))  # positions count bytes
    stop = len(text.encode()[:end].decode(errors="replace")) if last == line else len(text.rstrip())
    begin = _last_method(text, begin, stop, called)
    return Span(_shown(path), line, begin + 1, max(1, stop - begin), text)


def _last_method(text: str, begin: int, stop: int, called: str) -> int:
    """Where the name of the method stands whose call ends at `stop`; begin, if it is not found.

    >>> _last_method('a.filter(f(x)).to("B")', 0, 14, "filter")
    2
    """
    depth = 0
    for at in range(stop - 1, begin, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            name = at - len(called)
            return name if text[begin:at].endswith("." + called) else begin
    return begin


def _shown(path: str) -> str:
    """From the working directory when it is below that."""
    try:
        return Path(path).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path

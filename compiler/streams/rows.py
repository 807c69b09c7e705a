"""Rows of streams as Python has them: dataclasses, `msgspec.Struct`s, or dicts by column name."""

from __future__ import annotations

import linecache
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.user_rows import as_data, hints_of, is_row, without_none
from flowql.compiler.functions.user_types import DefinitionError, giver, sql_type, taker
from flowql.compiler.plan.types import Kind, SqlType, struct

# --- The span of the call in a module of a project that FlowQL is in ---

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


Convert = Callable[[Any], Any]
_EXAMPLE = 'a dataclass, a msgspec.Struct, or {"TOTAL": float}'


@dataclass(frozen=True, slots=True)
class RowType:
    """The columns of a row. made: the class of its objects; None for dicts by column name. hints: by name of a field."""

    fields: tuple[tuple[str, SqlType], ...]
    made: type | None
    hints: Mapping[str, Any]

    @property
    def type(self) -> SqlType:
        return struct(*self.fields)


def row_type(given: Any, what: str) -> RowType:
    """The columns of a user's `value=` or `key=`. Raises DefinitionError."""
    hints = given if isinstance(given, Mapping) else hints_of(given)
    if not hints:
        said = getattr(given, "__name__", None) or repr(given)
        raise DefinitionError(f"{what}: {said} does not say columns", _EXAMPLE)
    fields = tuple((str(name), sql_type(hint, f"{what}: {name}", rows=True)[0]) for name, hint in hints.items())
    return RowType(fields, None if isinstance(given, Mapping) else given, dict(hints))


def reader(of: SqlType, made: type | None) -> Convert:
    """From a reference value of a STRUCT to what a function of the user takes. Raises FunctionTypeError where a field has no column."""
    take = taker(of)
    if made is None:
        return take or dict
    build = _builder(of, made)
    return build if take is None else lambda row: build(take(row))


def _builder(of: SqlType, made: type) -> Convert:
    columns = {n.casefold(): (n, t) for n, t in of.fields}
    parts: list[tuple[str, str, Convert | None]] = []
    for name, hint in hints_of(made).items():
        if name.casefold() not in columns:
            known = ", ".join(n for n, _ in of.fields)
            raise FunctionTypeError(
                f"{made.__name__} has the field {name}, and the stream has no such column", f"its columns are {known}"
            )
        column, t = columns[name.casefold()]
        parts.append((name, column, _inner(t, without_none(hint))))

    def value(found: Any, convert: Convert | None) -> Any:
        return found if convert is None or found is None else convert(found)

    return lambda row: made(**{name: value(row[column], convert) for name, column, convert in parts})


def _inner(t: SqlType, hint: Any) -> Convert | None:
    """The conversion of a value within a row that has objects of classes; None if it has none."""
    if t.kind is Kind.STRUCT and is_row(hint):
        return _builder(t, hint)
    args = typing.get_args(hint)
    each = _inner(t.args[-1], without_none(args[-1])) if t.kind in (Kind.ARRAY, Kind.MAP) and args else None
    if each is None:
        return None
    if t.kind is Kind.ARRAY:
        return lambda items: [None if x is None else each(x) for x in items]
    return lambda items: {k: None if x is None else each(x) for k, x in items.items()}


def writer(rows: RowType) -> Convert:
    """From what a function of the user returns to a reference value of the STRUCT. Raises TypeError, ValueError, OverflowError."""
    give = giver(rows.type)
    return lambda value: give(as_data(value))

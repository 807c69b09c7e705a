"""Spans of mistakes in modules of a project."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path
from types import CodeType

from flowql.compiler.diagnostics.source import Span
from flowql.config.load import shown_path

_Def = ast.FunctionDef | ast.AsyncFunctionDef


def raised_in(root: Path, error: BaseException) -> Span | None:
    """The line in a file below `root` that raised the error; for a SyntaxError, the line that has it."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(root):
        return _line(Path(error.filename), error.lineno or 0)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(root)]
    return _line(Path(frames[-1].filename), frames[-1].lineno or 0) if frames else None


def part_in_file(root: Path, code: CodeType, part: str) -> Span | None:
    """part: a parameter of the function with that code, "return" for the type of its result, "" for its name. None outside of `root`."""
    file = Path(code.co_filename)
    if not file.is_relative_to(root):
        return None
    lines = file.read_text("utf-8", "replace").splitlines()
    found = next((n for n in ast.walk(ast.parse("\n".join(lines))) if isinstance(n, _Def) and _is_of(n, code)), None)
    if found is None:
        return None
    node = _part(found, part)
    if node is None:
        text = lines[found.lineno - 1]
        start = text.find(found.name, text.find("def", found.col_offset) + len("def"))
        if start < 0:  # a backslash parts `def` from the name
            return _line(file, found.lineno)
        return Span(shown_path(file), found.lineno, start + 1, len(found.name), text)
    text = lines[node.lineno - 1]
    start = _characters(text, node.col_offset)
    end = _characters(text, node.end_col_offset or 0) if node.end_lineno == node.lineno else len(text)
    return Span(shown_path(file), node.lineno, start + 1, max(1, end - start), text)


def _is_of(node: _Def, code: CodeType) -> bool:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _part(node: _Def, part: str) -> ast.arg | ast.expr | None:
    if part == "return":
        return node.returns
    args = node.args
    return next((a for a in (*args.posonlyargs, *args.args, *args.kwonlyargs) if a.arg == part), None)


def _characters(text: str, octets: int) -> int:
    """Positions in syntax trees count bytes."""
    return len(text.encode()[:octets].decode(errors="replace"))


def _line(file: Path, number: int) -> Span:
    lines = file.read_text("utf-8", "replace").splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    indent = len(text) - len(text.lstrip())
    return Span(shown_path(file), number, indent + 1, max(1, len(text.strip())), text)

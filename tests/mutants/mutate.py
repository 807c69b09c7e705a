"""Mutants of a module: each is its text with one small change that a test should notice.

Comparisons (`<` becomes `<=`), `and` and `or`, `not`, constants, results of functions, and statements that are left out. What only says something
(assertions, log lines, texts of errors, docstrings, annotations, `frozen=`, `slots=`, `strict=` and `repr=`) is left alone: its change is no change of behaviour. A function that returns no text returns some, as
its callers take None for no text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CHECKS = {"frozen", "slots", "strict", "repr"}  # arguments that only forbid something, or say it
LEFT_OUT = {"statement", "return"}  # kinds whose text says nothing of what it was
SAYS = {"say", "cast", "suppress", "suppress_errors"}  # calls that only say something, or what a type is


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the text of lines `first` to `last` (from 1) becomes `after`."""

    kind: str
    first: int
    last: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        return "".join([*lines[: self.first - 1], self.after, *lines[self.last :]])

    @property
    def name(self) -> str:
        """The text after the change; of a statement or a result that is left out also the text before it."""
        return f"{self.after.strip()} for {self.before.strip()}" if self.kind in LEFT_OUT else self.after.strip()

    def diff(self) -> str:
        old = [f"-{line}" for line in self.before.splitlines()]
        return "\n".join([*old, *(f"+{line}" for line in self.after.splitlines())])


def mutants(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    found = []
    for node, kind, text in _changes(ast.parse(source)):
        start, end = node.lineno, node.end_lineno or node.lineno
        before = "".join(lines[start - 1 : end])
        # Columns count bytes.
        head = lines[start - 1].encode()[: node.col_offset].decode()
        tail = lines[end - 1].encode()[node.end_col_offset :].decode()
        found.append(Mutant(kind, start, end, before, head + text + tail))
    return sorted(found, key=lambda m: (m.first, m.last, m.after))


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """(node, kind, its new text)."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if (isinstance(child, ast.Call) and _name(child) in SAYS) or (
            isinstance(child, ast.keyword) and child.arg in CHECKS
        ):
            continue
        yield from _changed(child)
        if isinstance(child, ast.AnnAssign):
            yield from _changes(ast.Tuple(elts=[child.value] if child.value else []))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _changes(ast.Module(body=child.body, type_ignores=[]))
        else:
            yield from _changes(child)


def _changed(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            ops = [*node.ops[:n], COMPARISONS[type(op)](), *node.ops[n + 1 :]]
            yield node, "comparison", f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, "boolean", f"({ast.unparse(ast.BoolOp(other, node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, "boolean", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, "constant", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node, "constant", str(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
        yield node, "return", 'return "mutant"' if _is_no_text(node.value) else "return None"
    elif isinstance(node, ast.AugAssign | ast.Expr | ast.Assign) and _acts(node):
        yield node, "statement", "pass"


def _acts(node: ast.AugAssign | ast.Expr | ast.Assign) -> bool:
    """Whether it does something that outlives the names of its function."""
    if isinstance(node, ast.Expr):
        is_call = isinstance(node.value, ast.Call) and _name(node.value) not in SAYS
        return is_call or isinstance(node.value, ast.Await | ast.YieldFrom)
    return isinstance(node, ast.AugAssign) or all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_no_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == ""


def _is_nothing(value: ast.expr) -> bool:
    """None, or False, for which callers take None as well."""
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)

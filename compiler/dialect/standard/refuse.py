"""Errors about a tree: what has no operator yet, and what is wrong whatever it is lowered to."""

from __future__ import annotations

from typing import NoReturn

from flowql.compiler.diagnostics.diagnostic import Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Node, Statement
from flowql.compiler.dialect.walks import levels

DEPTH_MAX = 120  # nodes below one another; the analyzer takes up to 6 Python frames of the 1,000 there are for each


def unsupported(named: str, span: Span, help: str = "", *, edit: Edit | None = None) -> NoReturn:
    """Refuse a construct by its name. help: what to write in its place."""
    title = f"{named} is not supported yet"
    raise UnsupportedError(
        Diagnostic("FQ1901", title, span, label="not supported yet", help=help, unsupported=True, edit=edit)
    )


def fail(code: str, title: str, span: Span, *, label: str = "", help: str = "", edit: Edit | None = None) -> NoReturn:
    """Fail with a mistake of the user."""
    raise ParseError(Diagnostic(code, title, span, label=label, help=help, edit=edit))


def check_depth(tree: Node | Statement) -> None:
    """Refuse a tree so deep that a recursive function over it could exhaust the stack."""
    below = levels(tree)[DEPTH_MAX + 1 :]
    if below:
        fail("FQ1013", "this is nested too deeply", below[0][0].span, label=f"more than {DEPTH_MAX} levels")

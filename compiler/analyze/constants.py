"""The values of a VALUES clause that belongs to no column: constants, computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flowql.compiler.analyze.bind import Binder
from flowql.compiler.analyze.scope import Scope
from flowql.compiler.catalog.catalog import EMPTY
from flowql.compiler.dialect.ast import Ast
from flowql.compiler.functions.evaluate import compile_row


def constants(values: Sequence[Ast], *, standard: bool) -> tuple[Any, ...]:
    """Reference values of expressions without columns. standard: they are of standard SQL. Raises CompileError; an expression that fails gives its exception."""
    binder = Binder(Scope((), ()), replace(EMPTY, standard=standard), "VALUES")
    return compile_row([binder.bind(v) for v in values], [], on_error=_refuse)(())


def _refuse(index: int, error: Exception) -> None:
    raise error

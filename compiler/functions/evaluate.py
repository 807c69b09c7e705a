"""Row kernels: expressions compiled to one generated Python function.

`compile_row` and `compile_predicate` are the entry points. Common operators become plain Python in the generated
source (`flowql.compiler.functions.inline`), all others a call of their reference. A failing expression gives NULL and is
reported; the other expressions of the row are computed all the same. What is no matter of values passes through (`registry.FAILURES`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions import builtin
from flowql.compiler.functions.generated import compiled
from flowql.compiler.functions.inline import Emitter
from flowql.compiler.functions.registry import FAILURES
from flowql.compiler.plan.expr import Column, Expr, Literal

OnError = Callable[[int, Exception], None]
RowFunction = Callable[[Sequence[Any]], tuple[Any, ...]]
Predicate = Callable[[Sequence[Any]], bool]

assert builtin.FAMILIES


def compile_row(
    exprs: Sequence[Expr], columns: Sequence[str], *, on_error: OnError | None = None, constants_apart: bool = False
) -> RowFunction:
    """A function from a row (values in the order of `columns`) to the values of `exprs`.

    on_error: told (index of the expression, exception) of each value that failed; with None they only become NULL. The index is
    inverted (`~index`) where NULL stands for the value by the meaning of the expression (`null_if_failed`).
    constants_apart: for expressions that are computed for few rows and differ from others in constants alone: they are compiled once.

    >>> from flowql.compiler.plan.expr import Call
    >>> from flowql.compiler.plan.types import INT
    >>> price = Column(INT, "price")
    >>> double = compile_row([Call(INT, "add", (price, price))], ["price"])
    >>> double((21,)), double((None,))
    ((42,), (None,))
    """
    emitter = Emitter(columns, constants_apart=constants_apart)
    lines: list[str] = []
    results: list[str] = []
    for i, e in enumerate(exprs):
        emitter.index = i
        piece = emitter.emit(e)
        if isinstance(e, (Column, Literal)):
            results.append(piece.src)
            continue
        results.append(f"v{i}")
        lines += _guarded(f"v{i} = {piece.src}", f"v{i} = None", i)
    body = [*emitter.prologue(), *lines, f"return ({', '.join(results)}{',' if results else ''})"]
    function: RowFunction = _build(body, emitter.names, on_error)
    return function


def compile_predicate(
    expr: Expr, columns: Sequence[str], *, on_error: OnError | None = None, constants_apart: bool = False
) -> Predicate:
    """A function that tells whether `expr` is TRUE for a row; NULL and failures are False.

    on_error: as of `compile_row`, with index 0. constants_apart: as of `compile_row`.
    """
    emitter = Emitter(columns, constants_apart=constants_apart)
    piece = emitter.emit(expr)
    test = f"{piece.src} is True" if piece.nullable else piece.src
    body = [*emitter.prologue(), *_guarded(f"return {test}", "return False", 0)]
    function: Predicate = _build(body, emitter.names, on_error)
    return function


def _guarded(statement: str, otherwise: str, index: int) -> list[str]:
    return [
        "try:",
        f" {statement}",
        "except FAILURES: raise",
        "except Exception as e:",
        f" {otherwise}" if not otherwise.startswith("return") else f" report({index}, e)",
        f" report({index}, e)" if not otherwise.startswith("return") else f" {otherwise}",
    ]


def _ignore(_index: int, _error: Exception) -> None:
    """The report of a caller that wants NULLs only."""


def _attempt(report: OnError) -> Callable[[Callable[[], Any], int], Any]:
    """Evaluates a value inside a constructor: NULL in its place where it fails, as ksqlDB has it."""

    def attempt(value: Callable[[], Any], index: int) -> Any:
        try:
            return value()
        except FAILURES:
            raise
        except Exception as e:
            report(index, e)
            return None

    return attempt


def _build(body: Sequence[str], names: dict[str, Any], on_error: OnError | None) -> Any:
    source = "def kernel(row):\n" + "\n".join(f" {line}" for line in body)
    report = on_error or _ignore
    scope = {**names, "FAILURES": FAILURES, "report": report, "attempt": _attempt(report)}
    exec(compiled(source), scope)
    return scope["kernel"]

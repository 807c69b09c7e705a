"""A short way to register functions that only standard SQL has, or that mean something else there than in ksqlDB.

In the catalogue and in plans such a function is called `sql_` and its name, so that the ksqlDB dialect does not know it; `NAMES` tells what
is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.registry import Function, Lowering, Reference, Resolution, register
from flowql.compiler.functions.signatures import Overload, resolver
from flowql.compiler.plan.types import SqlType

# The name as written, in upper case -> that in the catalogue.
NAMES: dict[str, str] = {}
Resolve = Callable[[tuple[SqlType, ...]], Resolution]


def standard(
    written: str,
    *overloads: Overload,
    by: Reference | None = None,
    by_types: Callable[[Resolution], Reference] | None = None,
    resolve: Resolve | None = None,
    summary: str,
    example: str,
    name: str = "",
    also: Sequence[str] = (),
    duckdb: Lowering | None = None,
    declines: Lowering | None = None,
    **more: Any,
) -> None:
    """Register a scalar function of standard SQL. also: other names for it. resolve: takes the place of overloads.

    name: in the catalogue, where it is not `sql_` and what is written.
    """
    name = name or f"sql_{written.lower()}"
    reference = by_types if by_types is not None else _same(by)
    for n in (written, *also):
        NAMES[n] = name
    register(
        Function(
            name,
            resolve if resolve is not None else resolver(written, *overloads),
            reference,
            duckdb=duckdb,
            declines=declines,
            summary=summary,
            example=example,
            **more,
        )
    )


def _same(by: Reference | None) -> Callable[[Resolution], Reference]:
    assert by is not None, "a function needs a meaning"
    return lambda _r: by

"""Short ways to register functions: the entry in the catalogue reads as one line per fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.registry import Function, Lowering, Reference, Resolution, register
from flowql.compiler.functions.signatures import Overload, Pattern, resolver
from flowql.compiler.plan.types import SqlType

Sql = Callable[..., str]


def takes(*params: Pattern, gives: Pattern | Callable[[tuple[SqlType, ...]], SqlType]) -> Overload:
    """An overload with exactly these parameters."""
    return Overload(params, gives)


def takes_many(
    *params: Pattern, gives: Pattern | Callable[[tuple[SqlType, ...]], SqlType], at_least: int = 1
) -> Overload:
    """An overload whose last parameter repeats, `at_least` times or more."""
    return Overload(params, gives, variadic=True, min_repeat=at_least)


def text(template: Sql) -> Lowering:
    """A lowering from a function of the argument texts alone."""
    return lambda args, _r: template(*args)


def named(function: str) -> Lowering:
    """A lowering to the SQL function of that name, with the same arguments."""
    return lambda args, _r: f"{function}({', '.join(args)})"


def same_for_all(function: Reference) -> Callable[[Resolution], Reference]:
    """A reference that does not depend on the types."""
    return lambda _r: function


def scalar(
    name: str,
    *overloads: Overload,
    by: Reference | None = None,
    by_types: Callable[[Resolution], Reference] | None = None,
    summary: str,
    example: str,
    aliases: Sequence[str] = (),
    duckdb: Lowering | None = None,
    declines: Lowering | None = None,
    **more: Any,
) -> None:
    """Register a scalar function under its name and aliases. Give the meaning as `by` or, typed, as `by_types`."""
    reference = by_types or same_for_all(_given(name, by))
    for n in (name, *aliases):
        register(
            Function(
                n,
                resolver(n, *overloads),
                reference,
                duckdb=duckdb,
                declines=declines,
                summary=summary,
                example=example,
                **more,
            )
        )


def _given(name: str, by: Reference | None) -> Reference:
    if by is None:
        raise ValueError(f"{name} has no reference meaning")
    return by


def ascii_only(args: Sequence[str], _r: Resolution) -> str:
    """Declines rows whose first text has other than ASCII characters (case mapping and classes differ there)."""
    return f"(strlen({args[0]}) <> length({args[0]}))"
